"""Arm the way back of a finished cutover: its fence spares the mirror, and the old source belongs to the reverse mirror.

A failover whose source has returned and is fenced (:mod:`airflow_mirror.cutover.failover.returned`) is such a cutover.
There the old source may end below the cut, topics may be gone, and those that have diverged are left out by name
(:mod:`.topic_divergence`).

The order makes every beginning safe. A call that dies anywhere leaves a fence that is up and a target that applications
write to; the next call goes on.

1. Everything is checked that can be without a change. What speaks against it is collected, and said as a whole.
2. The source's own ledger begins, if there is none: there it is said that nobody copies back, should the fence be lifted
   from here on. The fence is swapped. Nobody copies back yet: no job has a plan.
3. The logs are compared again: the source still ends where the cutover left it, at every partition. Topics that are gone
   are created, and partitions that the target got since.
4. The plan is kept on the source, in its own ledger; so is the cutover's report.
5. The direction is decided on the target, where applications write: it is the primary, and which plan copies back.
6. A fence of the reverse mirror's own, from an earlier round of disasters, is ended. The source's topics become the
   reverse mirror's, by their ids. That is a decision in the source's ledger, and only this
   one may take topics out of production: applications write elsewhere, as 5 says. Is the fence not kept any more behind
   it, they are handed over again.
7. The source's ledger notes the direction as well. Should the target be lost, a failover onto the old source is one
   generation higher than what the target says when it returns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airflow_mirror.cutover.decided_fence import intent_of
from airflow_mirror.cutover.decision import CLOSING, OPENED, FenceState, fence_state, permit
from airflow_mirror.cutover.decision_copy import require_no_namesake
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.lifting import Assurance, hand_over_copied_back, handed_over_by, lift_leftover_fence
from airflow_mirror.cutover.platform import Platform, Side, require_source
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.cutover.report import DONE, CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.rollback.divergence import ends_moved
from airflow_mirror.cutover.rollback.fence_copy import copy_fence, older_copy
from airflow_mirror.cutover.rollback.reverse import (
    from_log_starts,
    not_reversible,
    own_on,
    reverse_plan,
)
from airflow_mirror.cutover.rollback.topic_divergence import DIVERGED, classify_divergence
from airflow_mirror.cutover.swap import swap_fence
from airflow_mirror.errors import (
    FenceGone,
    FenceNotSwapped,
    InputError,
    MirrorCutOver,
    NoWayBack,
)
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.plan import build, ledger_store, ownership
from airflow_mirror.plan.direction import ARMED, FAILOVER, ROLLBACK, Direction, direction, reverse_name, turn
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.topics import create_target_topics

BY = "cutover"
BY_CALLABLE = "the source is fenced by a callable, which can't tell a mirror from an application"
MAY_END = "a transaction may still end on the source"
_NOT_FENCED = (
    "it was failed over, and its source is not fenced since: 'airflow-mirror fence-on-return' fences it once it is back, "
    "or says that it is another cluster, to which an ordinary mirror leads"
)
_RUNS = (
    "It copies what applications write to the new cluster back to the old one: a second tail, a Spark driver with a JVM "
    "of its own, and it has no end by itself. 'kafka_failback' returns to {target!r}; without a return stop that "
    "tail, and 'airflow-mirror retire --target {target} --mirror {name} --yes' gives its topics up"
)
_FORGET = "'airflow-mirror retire --target OLD --mirror {name} --yes' on the old source (OLD) forgets it"
_LISTED = 50
_LOG = logging.getLogger("airflow_mirror.cutover.rollback")


@dataclass(frozen=True, kw_only=True)
class Armed:
    """A way back.

    :param plan: of the reverse mirror, for its tail. :param direction: None: it was only checked.
    :param fence: what the fence of the old source consists of, or would, as readable lines.
    """

    plan: Plan
    direction: Direction | None
    fence: list[str]

    def lines(self) -> list[str]:
        """Return what there is to say, for people."""
        name, hashed = self.plan.mirror.name, self.plan.hash
        if self.direction is None:
            head = f"the way back can be armed: mirror {name!r}, {len(self.plan.topics)} topics"
        else:
            head = f"armed at {self.direction.at}: start the tail of mirror {name!r}, plan {hashed}. " + _RUNS.format(
                target=self.plan.mirror.target, name=name
            )
        return [head, *(f"fence of the old source: {line}" for line in self.fence)]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values in a few kilobytes; as a plan's summary, with the Mirror."""
        return {
            **self.plan.summary(),
            "fields": self.plan.mirror.to_dict(),
            "direction": None if self.direction is None else self.direction.value(),
            "text": self.lines()[:_LISTED],
        }


def arm(
    on: Platform, store: ReportStore, plan: Plan, *, exclude_topics: Collection[str] = (), check_only: bool = False,
    connections: tuple[str, str] | None = None, dag: str | None = None, planner: Callable[..., Plan] = build,
) -> Armed:  # fmt: skip
    """Arm the way back of a finished cutover; see the module. May be repeated: what is armed stays as it is.

    Anew where the reverse mirror was retired before it has copied anything.

    :param on: its source, which is to be a target, and its target, which applications write to.
    :param store: that cutover. :param plan: its plan.
    :param exclude_topics: that the reverse mirror leaves out. What is armed stays as it is, whatever this says by then.
    :param check_only: change nothing.
    :param connections: ids of the source's and the target's connections, where they are others than in the mirror: an
        Airflow that has never seen it may have its own. None: the mirror's.
    :param dag: id of the DAG whose readers may see the reverse mirror; None: that of the mirror.
    :param planner: makes the reverse mirror's plan, as :func:`airflow_mirror.plan.build` does.
    :raises InputError: one of them is none of the mirror's; or the source is another cluster, or another mirror of this
        name has a fence whose target the source is.
    :raises NoWayBack: with every reason. Nothing was changed, except perhaps the fence, which stays up.
    :raises FenceNotLifted: an earlier fence of the reverse mirror's own is not all down; call it again.
    :raises TryAgain: a cluster does not answer; call it again.
    """
    name, run = plan.mirror.name, store.run
    report = store.load()
    source, target, here, there = on.source.admin, on.target.admin, on.target.ledger, on.source.ledger
    require_source(source, plan)
    decided = direction(here.values(), name)
    # Both ledgers, since one of the clusters may have been lost, failed over and returned: only the higher generation
    # is right.
    noted = there.peek()
    former = fence_state(noted, reverse_name(name))
    require_not_older(decided, direction(noted, reverse_name(name)), name, plan.target_cluster_id)
    if report is None or report.fence is None or report.outcome != DONE:
        raise NoWayBack(name, [f"cutover {run!r} has not finished"])
    before = []
    if decided is not None and (decided.by, decided.attempt) == (BY, run):
        # A call before has decided, and perhaps died behind that: nothing is chosen anew, only completed. Its last plan
        # was decided before the direction; where that is gone by now (and the ledger is not) the mirror was retired.
        if not noted or ledger_store.last_hash(noted, reverse_name(name)) is not None:
            return _complete(on, store, plan, decided, former, check_only=check_only)
        # Chosen anew, behind the checks of the first time: by them nobody has written there since the cut.
        before = [f"{retired(name, decided)}. It is armed anew only if nothing was copied back"]
    fence_decided = fence_state(here.values(), name)
    # What had passed on to other mirrors when the source came back is not fenced, and not copied back by this one.
    others = frozenset[str]() if fence_decided is None else intent_of(on.target, name, fence_decided).others
    exclude_topics = {*exclude_topics, *others}
    own, plan = own_on(plan, source), _without(plan, exclude_topics)
    if connections is not None:
        plan = replace(plan, mirror=replace(plan.mirror, source=connections[0], target=connections[1]))
    if fence_decided is not None:  # before anything is touched: its fence is copied there behind the swap
        require_no_namesake(noted, name, fence_decided, older_copy(on, plan, fence_decided, noted))
    is_kept = fence_decided is not None and (fence_decided.phase, fence_decided.run) == (OPENED, run)
    reasons = [*not_reversible(plan), *_unfit(report, is_kept=is_kept)]
    reasons += [] if reasons else _moved(run, report, plan, source, target, "batches")
    reverse = None
    if not reasons:
        # Before the swap: what would block the way back must not be found when the fence is changed already.
        reverse, reasons = reverse_plan(plan, source, target, exclude_topics, probe=not check_only, planner=planner)
    fence = [] if reasons else _swap(on, name, run, own, reasons, check_only=True)
    if reasons or reverse is None:
        raise NoWayBack(name, before + reasons)
    # Nothing was changed until here, but that in earnest a scratch topic has come and gone.
    if check_only:
        return Armed(plan=reverse, direction=None, fence=fence)
    # Dies behind it: a ledger without anything in it, which the next call finds. Behind the swap it would be too late:
    # who lifts the fence from there on says in it that nobody copies back.
    there.begin()
    # Dies behind it: the mirror may write, and nobody does, since no job has a plan. Whoever lifts the fence undoes it.
    fence = _swap(on, name, run, own, reasons)
    # Behind the swap, which waits for brokers: what was written there until then has offsets that the mirror would
    # write to.
    reasons += _moved(run, report, plan, source, target, None)
    if reasons:
        raise NoWayBack(name, before + reasons)
    # Read again: the swap has decided another intent, and a permit goes by all that is decided.
    fence_decided = fence_state(here.values(), name)
    assert fence_decided is not None
    # Partitions as well, which the target may have got since the opening: no job of the reverse mirror adds any to a
    # topic that is there. Dies amid it: topics and partitions that are empty, and nobody's yet; the next call finds them
    # as they were planned.
    create_target_topics(reverse, source, permit(here, name, fence_decided))
    # Before the direction: once that is decided the target may be lost at any moment, and its fence has to be liftable
    # without.
    copy_fence(on, store, plan)
    # Right before it is kept: the old source's retention goes on, behind the fence as well, until its topics are on hold.
    reverse = from_log_starts(reverse, source)
    # The plan before the decision that names it: who reads that decision finds the plan, whoever died in between.
    dag = dag or ledger_store.dag_of(here.values(), name)
    ledger_store.keep(reverse, on.source.state(PLAN.below(reverse.mirror.name)), there, dag=dag)
    wanted = Direction(
        # Above what either cluster has ever decided: of two ledgers that differ later the higher one is believed.
        generation=_next(decided, direction(there.values(), reverse_name(name))), primary=plan.target_cluster_id, by=BY,
        attempt=run, plan=reverse.hash, at=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    return _complete(on, store, plan, _decide(here, name, decided, wanted), former)


def cutover_of(mirror: str, on: Side) -> tuple[ReportStore, Plan]:
    """Return the cutover that has opened a mirror's target, and its plan.

    :raises NoWayBack: none has.
    """
    values = on.ledger.values()
    fence, turned = fence_state(values, mirror), direction(values, mirror)
    if fence is None or fence.phase != OPENED:
        lost = turned is not None and turned.by == FAILOVER
        raise NoWayBack(mirror, [_NOT_FENCED if lost else "no cutover of it has opened the target"])
    report_of = ReportStore(on.reports(mirror), mirror, fence.run, None)
    return report_of, on.plan(mirror, fence.plan)


def armed(mirror: str, values: Values) -> Direction | None:
    """Return what was decided when a mirror's way back was armed, from the target's ledger; None: it was not."""
    found = direction(values, mirror)
    return found if found is not None and found.by == BY else None


def retired(mirror: str, decided: Direction) -> str:
    """Return that the mirror which copied back is over, for people, while its way back is still decided."""
    return f"mirror {reverse_name(mirror)!r}, which copied back, was retired since the way back was armed at {decided.at}"


def require_not_older(here: Direction | None, there: Direction | None, mirror: str, target: str) -> None:
    """Return unless the other cluster was decided to be the primary since, or nobody knows which one is.

    :param here: on the cutover's target. :param there: on its source, about the reverse mirror.
    :param target: id of the cluster that the cutover has opened. A mirror that was retired has left no direction there.
    :raises NoWayBack: of two generations the higher one is right.
    """
    if there is None or (here is not None and here.generation > there.generation):
        return
    if (target if here is None else here.primary) == there.primary:
        return
    same = "as well: a person has to pick" if here is not None and here.generation == there.generation else "since"
    # Of a failover nobody else knows. A rollback has both clusters, and says nothing of a migration that came later.
    over = (
        f", by a rollback; if that is over, {_FORGET.format(name=reverse_name(mirror))}" if there.by == ROLLBACK else ""
    )
    raise NoWayBack(mirror, [f"cluster {there.primary} was decided to be the primary at {there.at} {same}{over}"])


def _moved(
    run: str, report: CutoverReport, plan: Plan, source: ClusterAdmin, target: ClusterAdmin, level: str | None
) -> list[str]:
    """Return what keeps the old source's logs from going on as the target's, as readable lines.

    :param level: at which a source that returned is compared with the target; None: by the ends alone.
    """
    if not report.is_of_returned:
        return ends_moved(report, plan, source, target)
    found = [one for one in classify_divergence(report.cut, plan, source, target, level) if one.verdict == DIVERGED]
    how = "'airflow-mirror failback' exports it, and deletes it on a yes; or leave it out"
    return [f"{one.topic} has diverged ({'; '.join(one.reasons)}): {how}" for one in found]


def _without(plan: Plan, exclude_topics: Collection[str]) -> Plan:
    if unknown := set(exclude_topics) - {t.source_topic for t in plan.topics}:
        what = f"mirror {plan.mirror.name!r} has no topic {', '.join(sorted(unknown))} to leave out"
        raise InputError(what, remedy="Correct the names.")
    return (
        replace(plan, topics=tuple(t for t in plan.topics if t.source_topic not in exclude_topics))
        if exclude_topics
        else plan
    )


def _unfit(report: CutoverReport, *, is_kept: bool) -> list[str]:
    """Return why the cutover left no source that could be copied back to."""
    fence = report.fence
    assert fence is not None
    if not is_kept or not fence.kept:
        return ["the source's fence was not kept: applications may write there"]
    if fence.kind != AclFence.kind:
        return [BY_CALLABLE]
    return [f"{MAY_END}: {fence.unseen}"] if fence.unseen else []


def _swap(
    on: Platform, mirror: str, run: str, own: str, reasons: list[str], *, check_only: bool = False
) -> list[str]:  # fmt: skip
    """Swap the fence; return it as readable lines. Adds to ``reasons`` why it is not possible."""
    try:
        return swap_fence(on, mirror, own, run=run, copied_by=reverse_name(mirror), check_only=check_only)
    except (FenceNotSwapped, FenceGone) as e:
        reasons.append(str(e))
        return []


def _decide(here: Decisions, mirror: str, before: Direction | None, wanted: Direction) -> Direction:
    """Decide the direction; return what is decided, which is somebody else's if they were faster."""

    def change(values: Values) -> Values | None:
        # Against a failover, or another arming, that was decided since: that one's word stays, and what is found is
        # completed.
        return turn(mirror, wanted) if direction(values, mirror) == before else None

    here.decide(change)
    found = direction(here.values(), mirror)
    assert found is not None
    return found


def _complete(
    on: Platform, store: ReportStore, plan: Plan, decided: Direction, former: FenceState | None, *,
    check_only: bool = False,
) -> Armed:  # fmt: skip
    """Complete what is decided: the source's topics are the reverse mirror's.

    :param former: the reverse mirror's own fence, as it was when no later direction than ours was known.
    :raises NoWayBack: somebody else's cutover was decided about meanwhile, or the fence is down.
    """
    report, source, there, run = store.load(), on.source.admin, on.source.ledger, store.run
    gone = NoWayBack(plan.mirror.name, ["the fence of the old source is gone, or incomplete: others may write there"])

    def kept_fence() -> FenceState:
        state = fence_state(on.target.ledger.values(), plan.mirror.name)
        if state is not None and (state.run, state.phase) == (run, OPENED):
            return state
        if not check_only and state is not None and state.run == run:
            # Somebody has closed the fence. He hands over what the reverse mirror has, and was to have, before he lifts;
            # where our plan came behind that, other topics may be in it, so they are handed over here. Twice is no harm.
            hand_over_copied_back(on.source, reverse_name(plan.mirror.name), run, lambda: plan)
        raise gone

    def still_armed(values: Values) -> None:
        # In the record that takes the topics out of production: a rollback may have opened them since we looked.
        require_not_older(decided, direction(values, reverse_name(plan.mirror.name)), plan.mirror.name, decided.primary)

    if report is None or report.fence is None or decided.attempt != run:
        raise NoWayBack(plan.mirror.name, [f"the way back is that of cutover {decided.attempt!r}"])
    # By what is decided, in which the swap is: the report does not know of it.
    raised = Raised.of(on, plan.mirror.name, kept_fence(), None, report)
    if not raised.fence.is_up(raised.intent):
        raise gone
    reverse = on.source.plan(reverse_name(plan.mirror.name), decided.plan)
    if not check_only:
        # Before there is anything to fail over: applications write to the cluster that it fenced, and a failover onto
        # this one would take it for a cutover that has opened the topics. Dies amid it: `closing`, and the next call
        # ends it.
        if former is not None and former.phase in (OPENED, CLOSING):
            _end_former_fence(on, plan.mirror.name, former)
        # Dies before it: decided, and nobody may copy: the topics are in production still, and each job refuses. Frozen
        # before it, for however long: whoever lifts the fence hands the topics over, also where they have no owner yet.
        try:
            ownership.adopt(there, reverse, source, require=still_armed, unless=handed_over_by(run))
        except MirrorCutOver:  # by whoever has closed the fence since we looked
            raise gone from None
        # Read again: who closed it between the first look and the adoption has not seen that the topics have an owner.
        kept_fence()
        # Last: a copy, for the day on which the target is lost. Without it the next call notes it.
        _note(there, reverse.mirror.name, replace(decided, by=ARMED))
    return Armed(plan=reverse, direction=decided, fence=raised.lines)


def _end_former_fence(on: Platform, mirror: str, former: FenceState) -> None:
    """End the reverse mirror's own fence, which an opening of the old source has left in its ledger.

    A rollback ends the fence that it goes back behind. A failover can't: the ledger that has it is on the lost cluster.
    """
    # What the reverse mirror had copied back by then belongs to `mirror`, whose opening has ended all writing of it.
    known = Assurance(ended=mirror)
    # By its id: if we were frozen meanwhile, a rollback may have been finished, whose fence is to stay.
    lifted = lift_leftover_fence(
        on.turned(), reverse_name(mirror), attempt=former.id, include_retained=True, known=known
    )  # fmt: skip
    for line in lifted:
        _LOG.info("lifted, from an earlier opening of the old source: %s", line)


def _note(there: Decisions, mirror: str, decided: Direction) -> None:
    def change(values: Values) -> Values | None:
        noted = direction(values, mirror)
        # A slow call must not write an older generation over a newer one.
        return turn(mirror, decided) if noted is None or noted.generation < decided.generation else None

    there.decide(change)


def _next(*known: Direction | None) -> int:
    return 1 + max((one.generation for one in known if one is not None), default=0)
