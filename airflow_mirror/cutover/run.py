"""Attempt a cutover. Running a finished one again verifies it; running one after a crash first undoes what was left."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from airflow_mirror.common.signals import set_in_handler
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover import steps
from airflow_mirror.cutover.alarm import alarm_of
from airflow_mirror.cutover.attempt import Attempt, Log
from airflow_mirror.cutover.check import precheck, refusals, require_own_fence, reverify
from airflow_mirror.cutover.decision import CLOSING, LIFTED, OPENED, FenceState, fence_state, go_on_opening
from airflow_mirror.cutover.forecast import Forecast
from airflow_mirror.cutover.heartbeat import require_over
from airflow_mirror.cutover.lifting import locked
from airflow_mirror.cutover.preview import Preview, judge
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import ALONE, Additions, Clusters, CutoverRequest
from airflow_mirror.cutover.seen import look
from airflow_mirror.cutover.signing import Signer
from airflow_mirror.cutover.writers import hold_lease
from airflow_mirror.errors import (
    CutoverTakenOver,
    InputError,
    MirrorError,
    NotUndone,
    OpeningUnfinished,
)
from airflow_mirror.plan.direction import direction
from airflow_mirror.plan.findings import Finding

_LOG = logging.getLogger("airflow_mirror.cutover")
_AGAIN_S = 1.0
_GUARDED_S = 30.0  # within this time a guard lifts the fence of one that died


def run_cutover(
    request: CutoverRequest, clusters: Clusters, store: ReportStore, *, log: Log = _LOG,
    stop: threading.Event | None = None,
    signer: Signer | None = None, additions: Additions = ALONE,
) -> CutoverReport:  # fmt: skip
    """Cut a mirror over: fence the source, drain, verify, end the tail's writing, move the groups, open the target.

    The tail must be running, unless the target already holds everything. If a cutover backs out after it took the
    writer lease, the tail has to be started again.

    After any failure the groups get their positions back and the fence is lifted before the error is raised again. A
    killed process leaves the fence up; the next call for a run of this name, on any host, lifts it and starts from the
    beginning. A guard (:mod:`.guard`), which this call starts, lifts it before, and so does
    :func:`lift_leftover_fence`. Who comes second, in opening or in lifting, stops (:mod:`.decision`). A call for a
    finished cutover changes nothing: it compares once more and returns the report.

    :param request: what is wanted. :param clusters: what it is done with (:func:`.connected`).
    :param store: the run's report on the target. Its directory, if it has one, holds a lock, and for people
        ``report.json`` and ``report.html``.
    :param stop: set it from another thread or a signal handler to make the cutover back out.
    :param signer: signs the report's link in the mirror's chain (:mod:`airflow_mirror.ledger.chain`).
    :param additions: what is done beside the steps.
    :raises InvalidField: ``alarm`` can't be called.
    :raises LedgerOpen, NoAuthorizer, OpenByDefaultUnknown, FenceStands, PlanOutdated, PlanAmended, MirrorCutOver,
        GroupActive, GroupAhead, JobNotRunning, MirrorPaused, PreviewTooOld, CutoverBlocked: before anything was changed.
    :raises FenceLeaks, FenceGone, FenceUnproven, TransactionsOpen, DrainTimedOut, TargetMoved, VerificationFailed,
        GroupsStillMoving, CutoverCancelled, FenceTooLong, DecidedLate, LeaseLost: after backing out.
    :raises OpeningUnfinished: an earlier process ended while it opened the target, and the source is no longer fenced.
    :raises CutoverTakenOver: another process took this one for dead, and goes on; nothing was undone here.
    :raises OpenOutcomeUnknown: the target does not answer at the very end; the fence stays up until it does.
    :raises FenceNotLifted: backing out failed; producers may still be kept out.
    :raises CutoverRunning: another process is at work on this cutover.
    """
    on, plan = clusters.on, request.plan
    stop = stop or on.event()
    # Now, and not by the guard when somebody has to be called.
    if request.alarm:
        alarm_of(request.alarm)
    report = CutoverReport(
        mirror=plan.mirror.name, plan_hash=plan.hash, max_fence_s=request.limits.max_fence_s,
        approved=None if request.approved is None else dict(request.approved),
        course=[dict(row) for row in request.course],
    )  # fmt: skip
    # From the outside in. The lock first: two processes of one run on one host must not both give signs. Signs before
    # the guard, which would take a silent process for dead; the guard before anything that it would have to undo. Left
    # in the reverse order: the guard stays on its own while a fence stands.
    with (
        locked(store),
        _interruptible(stop),
        on.signs_of_life(report),
        on.guarded(plan.mirror.name, store.guard_log, request.alarm, request.fence) as ready,
    ):
        attempt = Attempt(
            request=request, clusters=clusters, report=report, store=store, log=log, additions=additions,
            signer=signer, require_guard=ready, stop=stop,
        )  # fmt: skip
        try:
            _run(attempt)
            # Behind the end, and not a step of it: nothing here can be undone. Dies before or amid it: the next call of
            # the run finds its report finished, and comes here again.
            additions.afterwards()
            # Of a cutover that was over, whose report that is. Last: what it finds is told, and helps nobody who is kept
            # out until then.
            if attempt.report is not report:
                reverify(attempt)
            _look_who_has_come(attempt)
            return attempt.report
        finally:
            # Also where it raised: what backed out is part of the chain. Died before this: the run's next process does
            # it, first of all.
            _seal(attempt, attempt.report)


def _run(attempt: Attempt) -> CutoverReport:
    """Cut over, or complete a cutover that is over, whose report is this run's from then on."""
    # First, before any check: what an earlier process left keeps producers out, whether or not this call could begin
    # anew.
    earlier = recover(attempt)
    if earlier is not None:
        _seal(attempt, earlier)  # its process may have died just before
    if earlier is not None and (earlier.outcome == reports.DONE or attempt.opening):
        # An opening was taken over by then. A call with the right plan hears that this process has ended, and takes it
        # over in its turn.
        if earlier.plan_hash != attempt.plan.hash:
            what = f"{attempt.store.where} holds the cutover of another plan ({earlier.plan_hash[:12]})"
            raise InputError(what, f"this one is of {attempt.plan.hash[:12]}", "Give this cutover a run of its own.")
        # By `kept`, which no lifting takes back: the decision may be a later run's by now, and says nothing of this one.
        if earlier.outcome == reports.DONE and attempt.up is None and earlier.fence is not None and earlier.fence.kept:
            raise InputError(
                attempt.store.where, "its cutover was finished, and the fence that it kept was lifted since, by a "
                "rollback or 'lift-fence --include-retained': who was moved may be back",
                "Give a new cutover a run of its own.",
            )  # fmt: skip
        attempt.report = earlier
        if attempt.up is not None:
            raised = Raised.of(attempt.on, attempt.mirror.name, attempt.up, attempt.fence, earlier)
            attempt.intent, attempt.fence = raised.intent, raised.fence
        # It was decided to be open, and its end is not on record: this process is its owner now.
        if attempt.opening:
            steps.finish_opening(attempt)
        # The process before may have died between its end and the lifting of a fence that is not kept.
        _finish(attempt)
        return attempt.report
    if earlier is not None:
        # For people: two processes of one run may both take themselves for its second attempt. What tells them apart, in
        # decisions, rules and reports, is `attempt.me`.
        attempt.report.attempt = earlier.attempt + 1
        attempt.report.earlier = [*earlier.earlier, _remembered(earlier)]
    # Read behind the recovery, and before all checks: whatever is decided from here on, by whomever, refuses our `up`.
    attempt.before = _before(attempt)
    values = attempt.ledger.values()
    # Failed over before this look: its topics are in production by then, and `precheck` refuses. Behind it: `go_up` does.
    attempt.turned = direction(values, attempt.mirror.name)
    precheck(attempt)
    attempt.additions.require()
    if before := _clients(attempt):
        attempt.report.clients["before"] = dict(before)
    # Takes ten seconds and more, in which topics may appear or fences go up. So what can't be pinned is looked at again
    # behind the fence (`quiet.prove_fence`).
    found = ask_first(attempt)
    for line in found.lines():
        attempt.log.info("%s", line)
    found.raise_if_blocked()
    attempt.short_lease.wait(attempt.pause)
    # Until here this attempt has given signs of life, and changed nothing: dies before it, and nobody has anything to
    # undo.
    steps.walk(attempt)
    _finish(attempt)
    fence = attempt.report.fence
    assert fence is not None
    attempt.log.info("cut over: nobody could write for %.1f s", fence.seconds or 0.0)
    return attempt.report


def ask_first(attempt: Attempt) -> Preview:
    """Look at what the cutover would meet, and keep it in the report. Only reads."""
    facts = look(attempt)
    attempt.schemas = facts.schemas
    found = _preview_of(attempt, *judge(facts, attempt.limits))
    attempt.report.preview = found.to_dict()
    attempt.report.schemas = [] if facts.schemas is None else facts.schemas.to_dict()["rows"]
    return found


def _preview_of(attempt: Attempt, findings: Sequence[Finding], expected: Forecast | None = None) -> Preview:
    return Preview(
        mirror=attempt.mirror.name, plan=attempt.plan.hash, revision=attempt.plan.revision, at=time.time(),
        findings=findings, forecast=expected,
    )  # fmt: skip


def preview_cutover(
    request: CutoverRequest,
    clusters: Clusters,
    store: ReportStore,
    *,
    log: Log = _LOG,
    stop: threading.Event | None = None,
) -> Preview:
    """Return what a cutover would meet that is given the same (:func:`run_cutover`). Errors as :func:`preview`."""
    report = CutoverReport(mirror=request.plan.mirror.name, plan_hash=request.plan.hash)
    stop = stop or clusters.on.event()
    return preview(Attempt(request=request, clusters=clusters, report=report, store=store, log=log, stop=stop))


def preview(attempt: Attempt) -> Preview:
    """Return what a cutover of this run would meet, without one: nothing is written, and everything is listed.

    :raises TryAgain: a cluster does not answer.
    """
    values = attempt.ledger.values()
    attempt.before, attempt.turned = fence_state(values, attempt.mirror.name), direction(values, attempt.mirror.name)
    refused = _preview_of(attempt, refusals(attempt))
    if refused.blocks:  # rates and lengths of what can't begin would only hide them
        return refused
    found = ask_first(attempt)
    return replace(found, findings=[*found.findings, *refused.findings])


def _before(attempt: Attempt) -> FenceState | None:
    """Return what is decided about the mirror's fence, once none stands: our guard lifts one whose owner died."""
    deadline = attempt.now() + _GUARDED_S
    # An attempt of another run that died is our guard's to lift, which listens for 12 s; a living one's fence stays,
    # and the check refuses this one.
    while (state := fence_state(attempt.ledger.values(), attempt.mirror.name)) is not None and state.stands:
        if attempt.now() > deadline:
            break
        attempt.pause(_AGAIN_S)
    return state


def recover(attempt: Attempt) -> CutoverReport | None:
    """Undo what an earlier attempt of this run left behind; return the run's report, None if there was no attempt.

    What is decided about the mirror's fence says whether anything is this run's still. If nothing is, nothing is touched.
    If it is decided that its target is open, nothing is undone, and ``run.opening`` says so: this process goes on.

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


def _end_undoing(attempt: Attempt, earlier: CutoverReport, there: FenceState | None) -> None:
    """Note that an attempt was undone whose fence is over, once its groups have their positions back.

    Whoever has undone it could not restore a group, or could not say what was done; or it never had a fence.

    :param there: what is decided about the mirror's fence.
    :raises NotUndone: a group can't be restored yet. :raises TryAgain: nobody answers for one.
    :raises CutoverTakenOver: another fence has gone up since.
    """
    earlier.error = earlier.error or f"the process was ended in state {earlier.state}"
    # By the attempt's id: where another one's fence went up since, its groups are that one's, or their readers' by now.
    # So they are behind an open target.
    if there is not None and there.id == earlier.id and there.phase == LIFTED:
        raised = Raised(
            on=attempt.on, mirror=attempt.mirror.name, state=there, fence=attempt.fence, intent=attempt.intent,
            report=earlier,
        )  # fmt: skip
        unanswered = raised.undo_rest(attempt.log)
        if raised.failures:
            attempt.store.save(earlier)
            # A coordinator that is away for a moment needs no person: Airflow's retry tries it again.
            raise unanswered[0] if unanswered else NotUndone(attempt.store.where, raised.failures)
    # In memory; where its fence was up, `_seal` writes it with its link. Dies before that: the next process reads the
    # same two, and says the same.
    # Not of an attempt whose opening a person gave up: nothing of it was undone, and its groups stay as it has set them.
    elif not earlier.has_lost_groups and (there is None or there.id != earlier.id):
        earlier.outcome, earlier.state = reports.BACKED_OUT, steps.CAUGHT_UP


def _finish(attempt: Attempt) -> None:
    """Lift the fence of a finished cutover unless it is kept. Not a step, because a step could be undone."""
    if attempt.up is not None and not attempt.up.is_over and not attempt.up.kept:
        # Writing is ended once more, before the source is open: a tail that was started since would copy what producers
        # write there into a target that applications use. Dies behind it: a fence that is up too long, and the next
        # call comes here again.
        hold_lease(attempt)
        attempt.up = Raised.by(attempt).close()
        # Dies before it: `closed` is decided, and the report has no time of it. Who goes by the fence asks what is
        # decided.
        attempt.save()


def _look_who_has_come(attempt: Attempt) -> None:
    """Note in the report of a finished cutover who was seen on the target. What fails is said: all is done by now."""
    if since := _clients(attempt):
        try:
            attempt.read_again()  # asking took its time
            # Between that reading and the save a person may still lift it: then the report lacks that, and what is
            # decided has it.
            attempt.report.clients["since"] = dict(since)
            attempt.save()
        except MirrorError as e:
            attempt.log.warning("who has come to the target is not in the report: %s", e)


def _clients(attempt: Attempt) -> Mapping[str, Any]:
    """Return who uses the topics; empty: that can't be told, for whatever reason."""
    try:
        return attempt.additions.clients(attempt.report)
    except Exception as e:  # it is for people, and asked by a library with errors of its own: no cutover fails by it
        attempt.log.warning("who uses the topics is not in the report: %s: %s", type(e).__name__, e)
        return {}


def _seal(attempt: Attempt, report: CutoverReport) -> None:
    """Add the report of a run that has ended to the mirror's chain; of one whose fence never was up there is none."""
    # Not of one whose undoing failed: its report changes yet.
    if report.id and report.outcome in (reports.DONE, reports.BACKED_OUT):
        attempt.store.add_to_chain(report, attempt.ledger, attempt.signer, attempt.log.warning)


def _remembered(report: CutoverReport) -> dict[str, Any]:
    times = {"started": report.started, "updated": report.updated}
    return {**report.summary(), **times, "undone": report.undone}


@contextmanager
def _interruptible(stop: threading.Event) -> Iterator[None]:
    """Let SIGTERM, and SIGHUP of a lost terminal, set ``stop`` if they would otherwise end the process with the fence up.

    It raises nothing: inside a loop that tries again after lost answers, the error would count as one of them.
    """
    ends = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread() or signal.SIGTERM not in ends:
        yield  # the host's own handler: Airflow's calls on_kill, which sets `stop`
        return

    for number in ends:
        signal.signal(number, lambda *_: set_in_handler(stop))
    try:
        yield
    finally:
        for number in ends:
            # Behind the guard and the signs, which are left before: a second SIGTERM must not end the process amid its
            # last sign.
            signal.signal(number, signal.SIG_DFL)
