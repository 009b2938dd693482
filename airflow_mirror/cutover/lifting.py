"""End a fence, and undo what else its cutover did: one way for the owner that backs out, its retry, a guard and a person.

1. It is decided that the fence is lifted: from here on nobody opens the target behind it.
2. Its rules go. Each request is permitted by that decision, which is read right before the bytes.
3. The groups get the positions back that they had on the target, likewise.
4. It is decided that all that is done. Only then another fence may go up.

Whoever dies in between leaves a decision that says ``lifting``; the next one takes it over. The kept fence of an open
target is ended in the same way, but that the decisions are ``closing`` and ``closed``, and the groups stay.

Where the ledger can't be asked, the source tells: a fence is lifted only while this attempt's name stands there, and no
other one of the mirror. The decision comes later, by whoever can make it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from airflow_mirror.common.files import lock
from airflow_mirror.cutover import decision
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.alone import alone
from airflow_mirror.cutover.decided_fence import fence_for, intent_of
from airflow_mirror.cutover.decision import CLOSED, LIFTED, FenceState
from airflow_mirror.cutover.fence import AclFence, Fence
from airflow_mirror.cutover.fence_names import target_of
from airflow_mirror.cutover.heartbeat import require_over
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.platform import Platform, Side
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.errors import (
    CutoverRunning,
    FenceNotLifted,
    LedgerLost,
    LedgerMissing,
    LedgerNewer,
    MayBeOpen,
    MirrorError,
    NotUndone,
    OpeningUnfinished,
    PlanNotKept,
    first_of,
)
from airflow_mirror.plan import ownership
from airflow_mirror.plan.ledger_store import last_hash
from airflow_mirror.plan.model import Plan

_LOG = logging.getLogger("airflow_mirror.cutover")
_LOCK_PATIENCE_S = 5.0  # an attempt that was just asked to stop needs a moment to back out


@dataclass(frozen=True, kw_only=True)
class Assurance:
    """What whoever lifts a fence knows, and answers for: no ledger says it.

    :param listened: no sign of the cutover's process was heard for long enough.
    :param ended: a mirror of which all writing was ended.
    :param unfinished_too: lift it also if the target is open, and its cutover died before its end, which perhaps nobody
        can bring about any more, because the source has changed. A person's yes, not a teardown's.
    """

    listened: bool = False
    ended: str = ""
    unfinished_too: bool = False


def lift_leftover_fence(
    on: Platform, mirror: str, fence: Fence | None = None, *, run: str = "", attempt: str = "",
    include_retained: bool = False, runs: Path | None = None, known: Assurance = Assurance(),
) -> list[str]:  # fmt: skip
    """Lift the fence that a killed cutover of a mirror left up, and undo what else it did. Nothing if there is none.

    A finished cutover's fence stays, unless ``include_retained``. Before that one is lifted the mirror's writer lease is
    taken, so that no tail copies new source records into a target that is in use. If the fence was swapped, the source's
    topics are decided to be in production, and the lease of the mirror that copies back is taken.

    :param fence: the fence that was used; needed unless it was an ACL fence.
    :param run: only if it is this run's; "": of whichever run. :param attempt: only if it is this attempt's, by its id,
        which the caller has seen: a retry of the run may have raised another one since.
    :param include_retained: also if nobody can say whether the target is open.
    :param runs: directory of the mirror's runs on this host, for what the target can't tell.
    :param known: what the caller answers for.
    :return: what was undone, as readable lines.
    :raises CutoverRunning: the cutover is still running.
    :raises CutoverTakenOver: somebody else lifts it, or another cutover of the mirror has begun.
    :raises InputError: the given fence is not of the kind that is up, or the source is another cluster than was fenced.
        Nothing was decided.
    :raises FenceNotLifted: names what is still in place. It is undone as far as possible. :raises NotUndone: it is
        lifted, and something else is left.
    :raises OpeningUnfinished: it is decided that the target is open; only the cutover itself can continue from there. Not
        with ``include_retained`` where its report is lost: then it can't either.
    :raises MayBeOpen: the ledger can't be asked, and it may be decided; or the fence is another attempt's by now.
    """
    try:
        there = decision.fence_state(on.target.ledger.values(), mirror)
    except LedgerMissing:
        return []  # no fence goes up without it
    # It answers, and says what this version can't read: by the source alone, all would be lifted but what the newer one
    # has added, and count as lifted.
    except LedgerNewer:
        raise
    except MirrorError as e:  # producers must be able to write to the source again, whatever became of the target
        # The host that cut over may hold the only record that can be read now. What it undoes is not decided: the next
        # one who can ask the ledger finds `up`, lifts what is not there, and decides that.
        return _by_the_source(on, mirror, fence, run, runs, e, include_retained=include_retained)
    # What is decided names the fence, not any report: a report of an attempt that was lifted long ago once took another
    # one's rules away. By the attempt's id, because a retry of the same run may have raised its own since the caller
    # looked.
    if there is None or there.is_over or run not in ("", there.run) or attempt not in ("", there.id):
        return []
    # The record first, then the report: what is read second is never older. The other way round an attempt that went up
    # and died in between would be lifted without its report, and its groups would stay as it has set them.
    kept = ReportStore(on.target.reports(mirror), mirror, there.run, directory_of(runs, there.run))
    # Only the report of this very attempt says where groups go back to; one of another attempt says nothing about this
    # one.
    raised = Raised.of(on, mirror, there, fence, kept.of(there.id))
    done = (
        _undone(raised, kept, listened=known.listened) if there.stands
        else _closed(raised, known.ended, include_retained=include_retained, unfinished_too=known.unfinished_too)
    )  # fmt: skip
    if not done:
        return []
    # Read behind the undoing: what was decided when the lifting began is what was undone.
    lines = raised.lines
    if raised.state.phase == CLOSED and (back := raised.intent.copied_by) not in ("", known.ended):
        lines.append(
            f"mirror {back!r} is ended, and its topics there are in production: 'airflow-mirror retire' names the "
            "settings that it held"
        )
    # The report comes last, and its failure undoes nothing: it is for people, and the run's next process writes it
    # again.
    if (error := _tell(kept, raised.report)) is not None:
        lines.append(f"but the report on the target still says that it is up: {error}")
    # Decided to be over: producers are in, and a group that was refused for good is told as what it is.
    if raised.failures and raised.state.phase == LIFTED:
        raise NotUndone(kept.where, raised.failures)
    if raised.failures:
        raise FenceNotLifted(on.source.admin.role, lines, "; ".join(raised.failures))
    return lines


def _undone(raised: Raised, store: ReportStore, *, listened: bool) -> bool:
    # Asked, not believed: a living owner would find its fence gone behind its own proof. Who says that it has listened
    # (a guard) has done so for as long.
    if not listened:
        require_over(raised.on.target.watch_cutover(raised.mirror), raised.mirror, raised.state)
    # A lifter's name for each call: two calls of one process are told apart as two processes are. Dies behind it:
    # `lifting`, which the next call takes over, once it has listened as well.
    if raised.begin(raised.on.new_id()):
        # Read again behind the decision: its owner may have lived until then, and set groups since we read.
        raised.report = store.of(raised.state.id)
        # Dies amid it, or a group's coordinator does not answer: `lifting` stands, and the next call, or a guard, begins
        # at the rules once more.
        raised.undo()
        return True
    # It was faster than our silence: nothing was touched, and only its own retry may go on.
    if raised.state.phase == decision.OPENED:
        raise OpeningUnfinished(raised.state.run, "it was opened meanwhile")
    # Another one was faster, and has done all of it.
    return False


def _closed(raised: Raised, ended: str, *, include_retained: bool, unfinished_too: bool) -> bool:
    """Lift the fence of an open target; return whether it was to be lifted."""
    report = raised.report
    # Behind `closing` nothing is asked any more: somebody was allowed to close it, and died.
    if raised.state.phase == decision.OPENED:
        if report is None or report.outcome != reports.DONE:
            # The owner died behind its decision and before its end: its retry goes on from there, and would find no
            # fence. Only a person may give that up; a teardown that runs at this moment must not.
            if not unfinished_too and not (include_retained and report is None):
                raise OpeningUnfinished(raised.state.run, "its report does not say that it has ended")
            # It may be between its decision and its last save at this very moment.
            require_over(raised.on.target.watch_cutover(raised.mirror), raised.mirror, raised.state)
        # Kept on purpose, as was decided: a report may be anybody's who may write to the ledger's other topic. One that
        # was not to be kept, and whose process died before it had lifted it, is lifted here.
        elif raised.state.kept and not include_retained:
            return False
    # The owner of an opening that was given up may be frozen only: `closing` is not what its permits go by, so it
    # completes nothing any more.
    raised.close(lambda: _end_writing(raised, ended))
    return True


def _end_writing(raised: Raised, ended: str) -> None:
    """End all writing of the mirror, and of the one that copies back."""
    # Taken for good, and waited for: a task that nobody can hear writes for up to six seconds yet.
    # Dies in that wait: `closing` stands with all rules, and who goes on takes it again, and waits in full.
    raised.on.target.end_writing(raised.mirror)
    # A rollback has ended the writing of that mirror itself, and holds its lease: taken once more, it would lose it.
    if raised.intent.copied_by != ended:
        _end_copying_back(raised)


def _end_copying_back(raised: Raised) -> None:
    """First no job of the mirror that copies back begins any more, then none writes.

    A source without a ledger has none that begins.
    """
    if not (back := raised.intent.copied_by):
        return
    try:
        # The decision before the lease: a job of that mirror that starts in between takes the lease, looks at what is
        # decided, and ends. The other way round it could have looked before the decision, and begin to write behind our
        # wait.
        state = raised.state
        plan = partial(raised.on.target.plan, raised.mirror, state.plan, state.revision)
        hand_over_copied_back(raised.on.source, back, state.run, plan)
    except PlanNotKept as e:
        _LOG.warning("which topics %r was to have can't be told; without that plan no job of it begins: %s", back, e)
    except (LedgerMissing, LedgerLost) as e:
        _LOG.warning("the source's ledger can't be told that its topics are in production: %s", e)
    # Dies before it: handed over, a running job still writes, and the rules stand: who lifts next comes here again.
    raised.on.source.end_writing(back)


def hand_over_copied_back(source: Side, back: str, run: str, cut_over: Callable[[], Plan]) -> None:
    """Decide on the source that its fenced topics are in production: no job of the mirror that copies back begins.

    :param back: that mirror's name. :param run: whose fence is lifted. :param cut_over: reads that cutover's plan.
    :raises PlanNotKept: which topics these are can't be told. :raises LedgerMissing: :raises LedgerLost: as the source's.
    """
    at, by = datetime.now(UTC).isoformat(timespec="seconds"), handed_over_by(run)
    ownership.hand_over(source.ledger, back, by, at)
    # Who arms the way back may have died, or may stand still, before the topics became that mirror's, or before its plan
    # was kept: nothing is handed over then, and whoever starts its tail later would claim them.
    last = last_hash(source.ledger.values(), back)
    planned = _fenced(cut_over(), back) if last is None else source.plan(back, last)
    ownership.hand_over_planned(source.ledger, planned, source.admin, by, at)


def _fenced(plan: Plan, back: str) -> Plan:
    """Return which topics the mirror that copies back could write to, as a plan of it that nobody has made."""
    topics = tuple(replace(t, target_topic=t.source_topic) for t in plan.topics)
    return replace(
        plan, mirror=replace(plan.mirror, name=back), topics=topics, source_cluster_id=plan.target_cluster_id,
        target_cluster_id=plan.source_cluster_id,
    )  # fmt: skip


def told(line: str) -> str:
    """Return a line of what a lifting has done, for people: of what stays it says that, and not that it was lifted."""
    return line if line.startswith("but ") else f"lifted: {line}"


def handed_over_by(run: str) -> str:
    """Return by whose word an old source is in production whose fence was lifted."""
    return f"lift-fence {run}"


def directory_of(runs: Path | None, run: str) -> Path | None:
    """Return the directory that a run has on this host; None if it has none."""
    return None if runs is None or not (runs / run).is_dir() else runs / run


@contextmanager
def locked(store: ReportStore) -> Iterator[None]:
    """Hold the run's lock, which tells the processes of one host apart.

    :raises CutoverRunning: another one holds it.
    """
    if store.directory is None:
        yield
        return
    try:
        # The kernel gives it back when a process ends, however it ends. It tells the processes of one host apart, and
        # no more: who may act is decided in the ledger. Without it two of one run on one host would write each other's
        # report.json.
        held = lock(store.directory / "lock", _LOCK_PATIENCE_S)
    except BlockingIOError:
        raise CutoverRunning(store.where) from None
    with held:
        yield


def _by_the_source(
    on: Platform, mirror: str, fence: Fence | None, run: str, runs: Path | None, unasked: MirrorError, *,
    include_retained: bool,
) -> list[str]:  # fmt: skip
    """Lift the fences that this host knows of and the source still names, without the target.

    :param unasked: why the target can't be asked; raised if nothing is known here.
    """
    _LOG.warning("what is decided about the fence, the target can't tell: %s", unasked)
    # Of whichever run has a directory on this host: which of them has a fence up, only the source can tell now.
    here = runs.iterdir() if runs is not None and runs.is_dir() else ()
    names, lines = [run] if run else sorted(path.name for path in here), list[str]()
    targets, failed = set[str](), list[MirrorError]()
    for name in names:
        # Of this host alone: what reads the target's reports connects, and no broker may answer.
        kept = ReportStore(None, mirror, name, directory_of(runs, name))
        # One that can't be read, or can't be lifted, keeps no other one up.
        try:
            report = kept.on_disk()
            # Written before the first rule, so a fence that this host has raised is here; and one that is down by now,
            # too. Which of the two the source tells, by its names.
            if report is not None and report.fence is not None and report.fence.lifted is None:
                targets.add(target_of(report.id))
                lines += _lifted_here(on, kept, report, fence, include_retained=include_retained)
        except MirrorError as e:
            failed.append(e)
    unsure = [e for e in failed if isinstance(e, MayBeOpen)]  # told by names at the source, so there is an authorizer
    # Asked once more behind what was lifted: a run whose rules were another attempt's, and are down with that one's, is
    # done. Those of a mirror of this name to another target are none of them.
    if lines and unsure and not any(AclFence(on.source.admin).standing(mirror, one) for one in targets):
        failed = [e for e in failed if e not in unsure]
    # "Nothing known here" is not "nothing is up": it is raised why the target could not be asked, so that nobody takes
    # it for done.
    if failed or not targets:
        raise first_of(failed) if failed else unasked
    return lines


def _lifted_here(
    on: Platform, store: ReportStore, report: CutoverReport, given: Fence | None, *, include_retained: bool
) -> list[str]:
    record = report.fence
    assert record is not None
    # A cutover of this run on this host may be alive, and only be cut off from the target: it holds the lock, and backs
    # out.
    with locked(store):
        # Made of the report, and decided nowhere: what it is good for is the name that the fence has at the source.
        state = FenceState(
            run=store.run, attempt=report.attempt, id=report.id, plan=report.plan_hash, revision="", owner="",
            max_fence_s=0.0, kind=record.kind, name=record.name,
        )  # fmt: skip
        used = fence_for(record.kind, record.name, given, on.source)
        # A swap has changed the fence since the report was written. Arming has put a copy of what is decided on this
        # cluster.
        intent = _noted_there(on.source, report) if include_retained else None
        raised = Raised(
            on=on, mirror=report.mirror, state=state, fence=used, intent=intent or record.changes, report=report
        )  # fmt: skip
        permit = alone(raised, opened=include_retained, by_person=include_retained)
        # Asked first as well: before writing is ended for nothing.
        permit()
        # As in `Raised.close`, before the rules: nobody copies into what producers are let in to.
        _end_copying_back(raised)
        # Each request asks the source again: only this attempt's name, no other one of the mirror. Dies amid it: the
        # name stands, which goes last, so the next call finds what it needs.
        raised.lift_rules(permit)
        raised.is_down()
        # On this host alone. On the target the record stays `up` or `opened`, until somebody who can ask it decides the
        # rest.
        store.save_here(report)
    return raised.lines


def _noted_there(source: Side, report: CutoverReport) -> Intent | None:
    """Return what the source's own ledger says that a fence has changed, once a way back was armed; None: nothing.

    The report of a cutover does not know what a swap has changed since.
    """
    try:
        there = decision.fence_state(source.ledger.values(), report.mirror)
    except (LedgerMissing, LedgerLost):
        return None
    # By the attempt's id: a copy that an earlier arming has left is of other rules.
    return None if there is None or there.id != report.id else intent_of(source, report.mirror, there)


def _tell(store: ReportStore, report: CutoverReport | None) -> MirrorError | None:
    """Write the report; return why that was not possible. It must not keep applications from writing to the source."""
    try:
        if report is not None:
            store.save(report)
    except MirrorError as e:
        _LOG.warning("the target could not be told: %s", e)
        return e
    return None
