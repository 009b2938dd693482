"""Make what another tool has copied a mirror's own.

**In which order.** First the maps, then one decision that the topics are the mirror's, then its plan. A map counts as a
whole or not at all. Killed before the decision, nothing is the mirror's: a plan refuses topics that hold data which are
not, and the next call stores the maps again. Killed after it, the mirror goes on where its maps end, and the next call
keeps its plan.

Matching takes hours. So it is asked again before the first effect, and before the decision, whether MirrorMaker 2 has
come back since the watch began.

All of it happens under the mirror's writer lease, and after the target's logs were seen to end where they were matched.
The lease stays held if we are killed. While no topic is a mirror's of this name, no job of one can hold it: it is taken
from whoever was killed here, or adopts at the same time and then loses it before its decision.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.offsets.topic import make_ready
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease_watch import LeaseProof
from airflow_mirror.errors import NeedsHuman
from airflow_mirror.extras.adopt.examine import Adoption, require_still, require_stopped
from airflow_mirror.jobs.decommission import require_at_rest
from airflow_mirror.jobs.runner.active import Watch
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger import state
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import PLAN, SIGN
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.owned import owners, shares
from airflow_mirror.plan.ownership import claim
from airflow_mirror.plan.upstream import upstream_of
from airflow_mirror.sync.maps import mapped_range
from airflow_mirror.wording import listed


def refused(reasons: Sequence[str]) -> NeedsHuman:
    """Return the error for what can't be taken over as it is. All is listed, with partitions and offsets."""
    return NeedsHuman(
        f"{len(reasons)} reason(s) against taking over this target. Nothing was changed", "",
        "Look at these records. Raise the limit if you can answer for them, or copy the topic again under another name:\n"
        f"{listed(reasons)}\n",
    )  # fmt: skip


def take(
    adoption: Adoption, source: ClusterAdmin, target: ClusterAdmin, pause: Callable[[float], None] = time.sleep, *,
    end_writing: bool = False,
) -> None:  # fmt: skip
    """Store the maps, decide that the topics are the mirror's, and keep its plan. Safe to repeat after a crash.

    :param end_writing: also if a job of a mirror of this name, which has topics already, holds the writer lease.
    :raises NeedsHuman: with every reason. :raises InputError: MirrorMaker 2 may have come back since it was matched.
    :raises InputError: a job of the mirror runs. :raises NeedsHuman: the records would come back to the target.
    """
    if adoption.refusals:
        raise refused(adoption.refusals)
    plan, ledger = adoption.plan, Ledger(target)
    name = plan.mirror.name
    plans = state.state_of(target, PLAN.below(name), keys_only=True)
    if not adoption.topics:  # all was decided; perhaps by a call that died before it kept the plan
        if not adoption.is_kept:
            ledger_store.keep(plan, plans, ledger)
        return
    upstream = upstream_of(plan, Ledger(source).peek())
    owned, newer = owners(ledger.values())  # what can't be read may be the mirror's
    may_be_held = end_writing or not (newer or any(one.mirror == name for _, one in shares(owned)))
    require_at_rest(name, ledger, target.wire, Watch(state.state_of(target, SIGN.below(name))), may_be_held=may_be_held)
    require_stopped(adoption.again(False))
    make_ready(target)
    token = lease.take(target.wire, name)
    try:
        pause(token.wait_s)
        require_still(target, adoption.matches)
        proof, store = LeaseProof(target.wire, token), MapStore(name)
        for one in adoption.matches:
            if one.through is not None:
                flow = mapped_range(one.source.topic, one.target.topic, one.target.partition)
                store.adopt(target.wire, flow, one.through, proof.confirm)
        # Storing may take minutes, too. What it copied since would be on the target twice once the mirror goes on.
        require_stopped(adoption.again(False))
        require_still(target, adoption.matches)
        proof.confirm()
        claim(ledger, plan, target, upstream.of)
        ledger_store.keep(plan, plans, ledger)
    finally:
        lease.release(target.wire, token)
