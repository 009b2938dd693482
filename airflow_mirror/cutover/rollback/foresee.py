"""Whether a cutover that is still to come could be taken back after its target was opened: said to whoever approves it.

The same questions are asked as when the way back is armed (:mod:`.arm`), as far as they have an answer before there is a
fence. A yes is no promise: until then rights and topics may change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from airflow_mirror.cutover.fence import AclFence, Fence
from airflow_mirror.cutover.mirror_only_fence import spare
from airflow_mirror.cutover.open_transactions import unseen_because
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.preview import Preview
from airflow_mirror.cutover.request import Clusters
from airflow_mirror.cutover.rollback.arm import BY_CALLABLE, MAY_END, require_not_older
from airflow_mirror.cutover.rollback.reverse import not_reversible, own_on, reverse_plan
from airflow_mirror.errors import FenceNotSwapped, MirrorError, NoWayBack
from airflow_mirror.plan import build
from airflow_mirror.plan.direction import direction, reverse_name
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.model import Plan


def with_way_back(preview: Preview, plan: Plan, clusters: Clusters) -> Preview:
    """Return a preview that says at its end what :func:`foresee` finds."""
    found = foresee(plan, clusters.on, clusters.fence)
    return replace(preview, findings=[*preview.findings, found])


def foresee(plan: Plan, on: Platform, fence: Fence, planner: Callable[..., Plan] = build) -> Finding:
    """Return whether the way back of a plan's cutover could be armed; changes nothing.

    :param on: its clusters. :param fence: that the cutover will raise. :param planner: see :func:`.arm`.
    """
    # Asked before the fence, and by arming once more behind it: rights, topics and rules may be others by then.
    source, target, name = on.source.admin, on.target.admin, plan.mirror.name
    reasons = not_reversible(plan)
    try:
        # What an earlier way of the same mirror has left: the cutover itself decides no direction.
        here, there = on.target.ledger.peek(), on.source.ledger.peek()
        require_not_older(direction(here, name), direction(there, reverse_name(name)), name, plan.target_cluster_id)
        own = own_on(plan, source)
        if not isinstance(fence, AclFence):
            reasons.append(BY_CALLABLE)
        else:
            # The rules as they are before the fence: one that appears later is found when the way back is armed, with
            # the fence up.
            spare(source.describe_acls(resource_type="TOPIC"), sorted({t.source_topic for t in plan.topics}), own)
            reasons += [f"{MAY_END}: {why}" for why in [unseen_because(fence, source)] if why]
        if not reasons:
            # Until the cutover the topics are the mirror's: what is copied back now would go round for ever.
            reasons += reverse_plan(plan, source, target, probe=False, but="loops", planner=planner)[1]
    except (NoWayBack, FenceNotSwapped) as e:
        reasons += e.reasons
    except MirrorError as e:
        reasons.append(f"not known: {e}")
    if reasons:
        return Finding(
            "warn", "way_back", "old source", f"no way back after opening: {'; '.join(reasons)}",
            "Go on if what applications write to the target from then on may stay there.",
        )  # fmt: skip
    said = "what applications write to the target can be copied back, if the fence is kept (kafka_reverse_mirror)"
    return Finding("pass", "way_back", "old source", said)
