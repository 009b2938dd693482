"""Make what another tool has copied a mirror's own.

**In which order.** First the maps, then one decision that the topics are the mirror's, then its plan, then its groups. A
map counts as a whole or not at all. Killed before the decision, nothing is the mirror's: a plan refuses topics that hold
data which are not, and the next call stores the maps again. Killed after it, the mirror goes on where its maps end, and
the next call keeps its plan, and sets its groups.

Matching takes hours. So it is asked again before the first effect, and before the decision, whether MirrorMaker 2 has
come back since the watch began.

All of it happens under the mirror's writer lease, and after the target's logs were seen to end where they were matched.
The lease stays held if we are killed. While no topic is a mirror's of this name, no job of one can hold it: it is taken
from whoever was killed here, or adopts at the same time and then loses it before its decision. Once all topics are, jobs
say that they live; it is taken from who does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.offsets.topic import make_ready
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.copy.writer.lease_watch import LeaseProof
from airflow_mirror.errors import NeedsHuman, WritingEnded
from airflow_mirror.extras.adopt.examine import Adoption, require_still, require_stopped
from airflow_mirror.jobs.decommission import require_at_rest
from airflow_mirror.jobs.runner.active import Watch, said
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger import state
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import BULK, PLAN, SIGN
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.owned import owners, shares
from airflow_mirror.plan.ownership import claim
from airflow_mirror.plan.upstream import upstream_of
from airflow_mirror.sync.maps import mapped_range
from airflow_mirror.wording import listed

T = TypeVar("T")


def refused(reasons: Sequence[str]) -> NeedsHuman:
    """Return the error for what can't be taken over as it is. All is listed, with partitions and offsets."""
    return NeedsHuman(
        f"{len(reasons)} reason(s) against taking over this target. Nothing was changed", "",
        "Look at these records. Raise the limit if you can answer for them, or copy the topic again under another name:\n"
        f"{listed(reasons)}\n",
    )  # fmt: skip


def take(
    adoption: Adoption, source: ClusterAdmin, target: ClusterAdmin, pause: Callable[[float], None] = time.sleep, *,
    end_writing: bool = False, then: Callable[[LeaseToken], T] | None = None,
) -> T | None:  # fmt: skip
    """Store the maps, decide that the topics are the mirror's, and keep its plan. Safe to repeat after a crash.

    :param end_writing: also if a job of a mirror of this name, which has topics already, holds the writer lease.
    :param then: what is done behind that, under the same lease; its result is returned.
    :raises NeedsHuman: with every reason. :raises InputError: MirrorMaker 2 may have come back since it was matched.
    :raises InputError: a job of the mirror runs. :raises NeedsHuman: the records would come back to the target.
    """
    if adoption.refusals:
        raise refused(adoption.refusals)
    plan, ledger = adoption.plan, Ledger(target)
    plans = state.state_of(target, PLAN.below(plan.mirror.name), keys_only=True)
    if not adoption.topics and not adoption.is_kept:  # all was decided, perhaps by a call that died before it kept it
        ledger_store.keep(plan, plans, ledger)
    if not adoption.topics and then is None:
        return None
    upstream = upstream_of(plan, Ledger(source).peek()) if adoption.topics else None
    with _leased(adoption, ledger, target, pause, end_writing=end_writing) as token:
        if upstream is not None:
            _decide(adoption, ledger, target, LeaseProof(target.wire, token), upstream.of)
            ledger_store.keep(plan, plans, ledger)
        return None if then is None else then(token)


@contextmanager
def _leased(
    adoption: Adoption, ledger: Ledger, target: ClusterAdmin, pause: Callable[[float], None], *, end_writing: bool
) -> Iterator[LeaseToken]:
    """Hold the mirror's writer lease; whoever was killed may hold it still."""
    name = adoption.plan.mirror.name
    jobs = state.state_of(target, SIGN.below(name))
    watch = Watch(jobs)
    if adoption.topics:
        owned, newer = owners(ledger.values())  # what can't be read may be the mirror's
        is_nobodys = not (newer or any(one.mirror == name for _, one in shares(owned)))
    else:  # by a call that was killed behind its decision: jobs say that they copy
        is_nobodys = all(watch.settled(one) != RUNNING for one in said(BULK, jobs.read(), name))
        if lease.is_writing_ended(target.wire, name):
            raise WritingEnded(name)
    require_at_rest(name, ledger, target.wire, watch, may_be_held=end_writing or is_nobodys)
    if adoption.topics:
        require_stopped(adoption.again(False))
        make_ready(target)
    token = lease.take(target.wire, name)
    try:
        pause(token.wait_s)
        yield token
    finally:
        lease.release(target.wire, token)


def _decide(
    adoption: Adoption, ledger: Ledger, target: ClusterAdmin, proof: LeaseProof,
    feeds: Callable[[str], Collection[str]],
) -> None:  # fmt: skip
    require_still(target, adoption.matches)
    store = MapStore(adoption.plan.mirror.name)
    for one in adoption.matches:
        if one.through is not None:
            flow = mapped_range(one.source.topic, one.target.topic, one.target.partition)
            store.adopt(target.wire, flow, one.through, proof.confirm)
    # Storing may take minutes, too. What it copied since would be on the target twice once the mirror goes on.
    require_stopped(adoption.again(False))
    require_still(target, adoption.matches)
    proof.confirm()
    claim(ledger, adoption.plan, target, feeds)
