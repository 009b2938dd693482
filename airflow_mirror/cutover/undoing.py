"""Undo an attempt: this process's own, or what an earlier process of the run has left.

What is undone, and in which order, is :mod:`.raised`'s. Here it is asked whether there is anything to undo, and whether
it is still ours to do it.
"""

from __future__ import annotations

from airflow_mirror.common.signals import undisturbed
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.alone import alone
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.check import require_own_fence
from airflow_mirror.cutover.decision import CLOSING, LIFTED, OPENED, FenceState, fence_state, go_on_opening
from airflow_mirror.cutover.heartbeat import require_over
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.cutover.report import CutoverReport, UndoneRecord
from airflow_mirror.errors import (
    CutoverTakenOver,
    MayBeOpen,
    MirrorError,
    NotUndone,
    OpeningUnfinished,
    OpenOutcomeUnknown,
)


def back_out(attempt: Attempt) -> None:
    """Undo what this attempt did: :mod:`.lifting`. If it is decided that the target is open, nothing is undone.

    :raises CutoverTakenOver, OpenOutcomeUnknown: nothing is undone.
    """
    with undisturbed():
        # Its own limit must not end the undoing. It does not last for ever all the same: once this process is silent, or
        # hangs too long, a guard takes over by decision, and its permits refuse.
        attempt.fenced_until = None
        # Dies before `up`: not even this is needed. The target knows nothing of the attempt.
        if attempt.up is None:  # it has changed nothing
            attempt.report.outcome, attempt.report.fence = reports.BACKED_OUT, None
            attempt.save()
            return
        raised = Raised.by(attempt)
        try:
            # Asked first, whatever we believe: another process may have lifted, resumed or opened since our last look.
            begun = raised.begin(attempt.me)
        except CutoverTakenOver:
            raise
        except MirrorError as e:
            # The record may be applied yet. Lifted now, both sides might be open; so the fence stays, and whoever can
            # ask the ledger later knows: its retry, or a guard that is told the phase.
            if attempt.opening:
                raise OpenOutcomeUnknown(attempt.source.role, str(e)) from e
            _without_ledger(attempt, raised, e)
            return
        attempt.up = raised.state
        # It was opened, and only an answer was lost, or the report of the end. The next process completes it.
        if attempt.up.phase == OPENED:
            return
        if begun:
            # Dies amid it: `lifting` stands with what is left to do; a guard waits 12 s for this process, and does it
            # all again.
            raised.undo(attempt.log)
            attempt.up = raised.state
            _save(attempt)
        else:
            _take_theirs(attempt, raised)


def _take_theirs(attempt: Attempt, raised: Raised) -> None:
    """Take the report of whoever has undone this attempt, and write ours only where there is nothing that it could say.

    It says which groups have their positions back. Ours says of none, so saved over it nobody would restore the others.
    """
    try:
        theirs = attempt.store.of(raised.state.id)
    except MirrorError as e:  # nor could ours be written
        attempt.log.warning("the report of who has undone this cutover can't be read: %s", e)
        theirs = None
    if theirs is not None and theirs.outcome != reports.RUNNING:
        attempt.report = theirs
        return
    raised.is_down()
    attempt.report.undone.append(UndoneRecord(step="fence", what="somebody else has undone it"))
    # With groups: it has decided, and is about to write its report, or has died before that. As the last one of ours
    # stands there the run's next process looks at them (`_end_undoing`).
    if not attempt.report.groups:
        attempt.report.outcome, attempt.report.state = reports.BACKED_OUT, reports.CAUGHT_UP
        _save(attempt)


def _without_ledger(attempt: Attempt, raised: Raised, cause: MirrorError) -> None:
    """Let producers in again although the target can't be told. Who can tell it finds that the rest is to be undone.

    Nobody else opens what this process has not asked to be opened; and the source says whether somebody else's fence
    stands there by now.

    :raises OpenOutcomeUnknown: somebody else's may.
    """
    attempt.log.warning("the target's ledger can't be told that the fence is lifted: %s", cause)
    record = UndoneRecord(step="fence", what="fence lifted")
    attempt.report.outcome = reports.UNDO_FAILED  # the rest is left to who can ask the ledger
    try:
        # Dies behind it: `up` stands without rules, and is lifted once more by the first who can ask.
        # Its own announcement may stand there (`open_target`): this process knows that it has not asked for `opened`
        # behind it.
        raised.lift_rules(alone(raised, opened=True))
        raised.is_down()
    except MayBeOpen as e:
        raise OpenOutcomeUnknown(attempt.source.role, str(e)) from e
    except MirrorError as e:
        record.fail(e)
    attempt.report.undone.append(record)
    attempt.log.info("undo fence: %s", record)
    _save(attempt)


def _save(attempt: Attempt) -> None:
    try:
        attempt.save()
    # The undoing is done or decided; this record is for people, and for the next process, which looks at what is
    # decided first.
    except MirrorError as e:  # a target that is away may be the cause; the fence is lifted all the same
        attempt.log.warning("the report could not be written: %s", e)


def recover(attempt: Attempt) -> CutoverReport | None:
    """Undo what an earlier attempt of this run left behind; return the run's report, None if there was no attempt.

    What is decided about the mirror's fence says whether anything is this run's still. If nothing is, nothing is touched.
    If it is decided that its target is open, nothing is undone, and ``attempt.opening`` says so: this process goes on.

    :raises CutoverRunning: its process lives.
    :raises CutoverTakenOver: somebody else goes on with it, or another cutover has begun.
    :raises TryAgain: of another type: the target's ledger can't be asked, or nobody answers for a group.
    :raises NotUndone: undoing failed; a new attempt would hide that.
    :raises OpeningUnfinished: the target is open, and the report is gone.
    :raises MirrorCutOver: what has this run's name was raised after a failover.
    """
    earlier, name = attempt.store.load(), attempt.mirror.name
    fence_decided = fence_state(attempt.ledger.values(), name)
    require_own_fence(name, fence_decided, attempt.store.run, earlier)
    # The record is nobody's, another run's, or over. Then nothing that this run ever raised is there, whatever its
    # report says: a cleared task has nothing to undo but groups that could not be restored, and those only until another
    # fence goes up.
    if fence_decided is None or fence_decided.run != attempt.store.run or fence_decided.is_over:
        if earlier is not None and earlier.outcome not in (reports.DONE, reports.BACKED_OUT):
            _end_undoing(attempt, earlier, fence_decided)
        return earlier
    # An attempt that died between its decision and its report: it has set no position, and has at most a name and
    # rules.
    report = attempt.store.of(fence_decided.id)
    # Where the target was opened, and nowhere else: a report that says so of a fence that is up is not a cutover's.
    if report is not None and report.outcome == reports.DONE and not fence_decided.stands:
        attempt.up = fence_decided
        return report
    # A worker that Airflow took for dead may be at work. It is listened for: its signs, not its process, say so.
    require_over(attempt.on.target.watch_cutover(name), name, fence_decided)
    if fence_decided.phase == OPENED:
        if report is None:
            raise OpeningUnfinished(attempt.store.where, "its report is gone")
        process = attempt.report.process or {}
        attempt.up, attempt.opening, report.process = (
            # Decided before anything is done in its place: one that was only frozen, and thaws, is refused by its own
            # permits. Dies behind it: `opened` by us, and the next process takes it over from us in the same way.
            go_on_opening(attempt.ledger, name, fence_decided, attempt.me, process), True, process,
        )  # fmt: skip
        return report
    attempt.log.warning("attempt %d was interrupted; undoing what it did", fence_decided.attempt)
    raised = Raised.of(attempt.on, name, fence_decided, attempt.fence, report)
    # In this process's name, and before its first request: the one that was silent may be frozen only, and what it sends
    # from here on its own permits refuse.
    if not raised.begin(attempt.me):
        if raised.state.phase == CLOSING:
            raise CutoverTakenOver(attempt.store.run)  # a person gives the opening up
        # It ends there: what stands is taken over by `begin`, so by now it is opened or over, and neither of them comes
        # here again.
        return recover(attempt)  # while we listened it was opened, or a guard has lifted it: our own one listens as long
    # Behind the decision, and not what was read before: its owner may have lived until then. From here on its permits
    # refuse, and it says what it will do before it does it.
    report = raised.report = attempt.store.of(raised.state.id)
    if report is not None:
        report.error = report.error or f"the process was ended in state {report.state}"
    # Dies amid it: `lifting` with our name. Our guard, or the next try, does all of it again.
    done = raised.undo(attempt.log)
    if report is not None:
        # Behind `lifted`. Dies before it: the next process finds the fence over, and writes `backed_out` by that.
        attempt.store.save(report)
    # A new attempt would write its own report over what says which groups are still wrong.
    if not done:
        raise NotUndone(attempt.store.where, raised.failures)
    return report or earlier


def _end_undoing(attempt: Attempt, earlier: CutoverReport, decided: FenceState | None) -> None:
    """Note that an attempt was undone whose fence is over, once its groups have their positions back.

    Whoever has undone it could not restore a group, or could not say what was done; or it never had a fence.

    :param decided: what is decided about the mirror's fence.
    :raises NotUndone: a group can't be restored yet. :raises TryAgain: nobody answers for one.
    :raises CutoverTakenOver: another fence has gone up since.
    """
    earlier.error = earlier.error or f"the process was ended in state {earlier.state}"
    # By the attempt's id: where another one's fence went up since, its groups are that one's, or their readers' by now.
    # So they are behind an open target.
    if decided is not None and decided.id == earlier.id and decided.phase == LIFTED:
        raised = Raised(
            on=attempt.on, mirror=attempt.mirror.name, state=decided, fence=attempt.fence, intent=attempt.intent,
            report=earlier,
        )  # fmt: skip
        unanswered = raised.undo_rest(attempt.log)
        if raised.failures:
            attempt.store.save(earlier)
            # A coordinator that is away for a moment needs no person: Airflow's retry tries it again.
            raise unanswered[0] if unanswered else NotUndone(attempt.store.where, raised.failures)
    # In memory; where its fence was up, `run` writes it with its link. Dies before that: the next process reads the
    # same two, and says the same.
    # Not of an attempt whose opening a person gave up: nothing of it was undone, and its groups stay as it has set them.
    elif not earlier.has_lost_groups and (decided is None or decided.id != earlier.id):
        earlier.outcome, earlier.state = reports.BACKED_OUT, reports.CAUGHT_UP
