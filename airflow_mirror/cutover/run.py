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
from airflow_mirror.cutover.check import precheck, refusals, reverify
from airflow_mirror.cutover.decision import FenceState, fence_state
from airflow_mirror.cutover.forecast import Forecast
from airflow_mirror.cutover.lifting import locked
from airflow_mirror.cutover.preview import Preview, judge
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import ALONE, Additions, Clusters, CutoverRequest
from airflow_mirror.cutover.seen import look
from airflow_mirror.cutover.signing import Signer
from airflow_mirror.cutover.undoing import recover
from airflow_mirror.cutover.writers import hold_lease
from airflow_mirror.errors import (
    InputError,
    MirrorError,
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
    return {**report.summary(), **times, "undone": [dict(vars(record)) for record in report.undone]}


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
