"""What both clusters say of a mirror now. Asked by a task that checks, and by the page that shows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_mirror.hooks.tail import TailView

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_mirror.cutover.platform import Side
    from airflow_mirror.jobs.health.judging import Facts, Limits
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan import Plan


def facts_of(
    mirror: Mirror, plan: Plan, source: ClusterAdmin, target: ClusterAdmin, limits: Limits, told: Callable[..., object]
) -> Facts:  # fmt: skip
    """Return what both clusters say of a mirror. Takes ten seconds; if its tail is lost, forty.

    :param mirror: as it should be copied; the tail may differ. :param plan: its last one.
    :param told: is told, as a logger's ``info`` is, what could not be looked for.
    """
    from airflow_mirror.cutover.after import told_gone
    from airflow_mirror.cutover.other_fences import told_unexplained
    from airflow_mirror.cutover.platform import Platform
    from airflow_mirror.jobs.health.gathering import gather

    view, on = TailView(target, mirror.name), Platform.of(source, target)
    facts = gather(
        plan, source, target, lambda: view.look(mirror), lambda: _fences(on.target, mirror), limits,
        handed_over=lambda: _handed_over(on.target, plan),
    )  # fmt: skip
    if facts.other_source:
        return facts
    gone, unexplained = told_gone(on, mirror.name, told), told_unexplained(on, mirror.name, told)
    return replace(facts, fences=() if gone else facts.fences, fences_gone=gone, unexplained=unexplained)


def _fences(target: Side, mirror: Mirror) -> list[str]:
    from airflow_mirror.cutover.decision import fence_state

    fence = fence_state(target.ledger.values(), mirror.name)
    return [] if fence is None or fence.is_over else [f"the fence of cutover {fence.run} {fence.text}"]


def _handed_over(target: Side, plan: Plan) -> set[str]:
    """Return the plan's target topics that are in production, or another mirror's, by what is decided."""
    from airflow_mirror.plan.owned import owned_topics

    decided = owned_topics(target.ledger)
    ours = {t: one.of_mirror(plan.mirror.name, plan.source_cluster_id) for t, one in decided.items()}
    return {t for t, one in ours.items() if one is None or one.opened_by is not None}
