"""Run a cutover. Running a finished one again verifies it; running one after a crash first undoes what was left."""

from __future__ import annotations

import logging
import signal
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover import steps
from airflow_mirror.cutover.alarm import alarm_of
from airflow_mirror.cutover.alive import require_over, signs_of_life
from airflow_mirror.cutover.check import precheck, refusals, reverify
from airflow_mirror.cutover.context import Limits, Log, Run
from airflow_mirror.cutover.decision import OPENED, FenceState, begin_lifting, fence_state, go_on_opening
from airflow_mirror.cutover.fence import AclFence, fence_text
from airflow_mirror.cutover.kept import Kept, reports_of
from airflow_mirror.cutover.marker import has_marker
from airflow_mirror.cutover.preview import Preview, judge
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.seen import look
from airflow_mirror.cutover.writers import end_writing, hold_lease
from airflow_mirror.errors import (
    CutoverRunning,
    CutoverTakenOver,
    InputError,
    LedgerNewer,
    MayBeOpen,
    MirrorError,
    NotUndone,
    OpeningUnfinished,
)
from airflow_mirror.files import lock
from airflow_mirror.jobs.runner.active import keys_of
from airflow_mirror.jobs.runner.guarding import guarded
from airflow_mirror.ledger.state import state_of
from airflow_mirror.signals import set_in_handler
from airflow_mirror.wire.cluster import WireCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from airflow_mirror.cutover.context import Offsets, Verify
    from airflow_mirror.cutover.fence import Fence
    from airflow_mirror.cutover.forecast import Forecast
    from airflow_mirror.cutover.signing import Signer
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.ledger.decisions import Decisions, Values
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan.model import Finding, Plan
    from airflow_mirror.sync.groups import Translate

_LOG = logging.getLogger("airflow_mirror.cutover")
_LOOK_EVERY_S = 1.0  # whether a fence stands
_GUARDED_S = 30.0  # within this time a guard lifts the fence of one that died
_LOCK_PATIENCE_S = 5.0  # an attempt that was just asked to stop needs a moment to back out


def run_cutover(
    mirror: Mirror,
    plan: Plan,
    source: ClusterAdmin,
    target: ClusterAdmin,
    *,
    fence: Fence,
    keep_fence: bool,
    run_dir: Path,
    verify: Verify,
    life: Decisions,
    limits: Limits | None = None,
    log: Log = _LOG,
    stop: threading.Event | None = None,
    tail_positions: Callable[[], Offsets] | None = None,
    translate_offset: Translate | None = None,
    allow_rewind: bool = False,
    accept_still_groups: Collection[str] = (),
    leave_out_groups: Collection[str] = (),
    fence_name: str = "",
    alarm: str = "",
    open_target: Callable[[], object] | None = None,
    compared: Sequence[str] = (),
    compared_to: Offsets | None = None,
    shown_at: float | None = None,
    approved: Mapping[str, str] | None = None,
    signer: Signer | None = None,
    require: Callable[[], object] = lambda: None,
    decide_with: Callable[[Values], Values] = lambda _: {},
    afterwards: Callable[[], object] = lambda: None,
) -> CutoverReport:
    """Cut a mirror over: fence the source, drain, verify, end the tail's writing, move the groups, open the target.

    The tail must be running, unless the target already holds everything. If a cutover backs out after it took the
    writer lease, the tail has to be started again.

    After any failure the groups get their positions back and the fence is lifted before the error is raised again. A
    killed process leaves the fence up; the next call with a ``run_dir`` of this name, on any host, lifts it and starts
    from the beginning. A guard (:mod:`.guard`), which this call starts, lifts it before, and so does
    :func:`lift_leftover_fence`. Who comes second, in opening or in lifting, stops (:mod:`.decision`). A call for a
    finished cutover changes nothing: it compares once more and returns the report.

    :param fence: how producers are kept away; see :mod:`airflow_mirror.cutover.fence`.
    :param keep_fence: leave the source fenced afterwards, so that nobody writes where nobody reads.
    :param run_dir: directory of this cutover. Its name is the run's, by which the target keeps the report. Holds a lock,
        and for people ``report.json`` and ``report.html``.
    :param verify: compares up to the given source ends. It runs while the source is fenced, so it should compare only
        what was not compared before.
    :param limits: time limits of the steps.
    :param stop: set it from another thread or a signal handler to make the cutover back out.
    :param tail_positions: source offsets up to which the target holds everything; needed for mapped topics.
    :param translate_offset: exact offset translation; needed for mapped topics.
    :param life: the target's ledger, of this call alone. It decides what becomes of the fence, and records which target
        topics were handed over to applications: a cutover of topics that are already in production is refused.
    :param accept_still_groups: groups that may have members and lag, once they have stood still for ``group_quiet_s``.
    :param leave_out_groups: selected groups that don't move; the report says what that means for each of them.
    :param fence_name: what ``fence`` was made of, for whoever has to lift it: the path of a function, say.
    :param alarm: path of a function by which guards call a person (:mod:`.alarm`), if this process dies behind its fence.
    :param open_target: called last, if something keeps applications from writing to the target. If it raises, the
        target must not be open. After a crash it is called again.
    :param compared_to: source offsets up to which both sides were found equal; ``verify`` begins there.
    :param compared: revisions of the plan that were compared, and perhaps approved, before: each must be the present one.
    :param shown_at: when was seen what a :func:`preview_cutover` has shown before; seconds since the epoch.
    :param approved: who has approved it, for the report: ``answer, by, at``.
    :param signer: signs the report's link in the mirror's chain (:mod:`airflow_mirror.ledger.chain`).
    :param require: raises what else refuses it, before anything is touched. Not asked for a finished cutover.
    :param decide_with: what is decided in the record that opens the target.
    :param afterwards: what is left to do then, also for a finished cutover. While it runs guards watch over this process.
    :raises InvalidField: ``alarm`` can't be called.
    :raises NoAuthorizer, OpenByDefaultUnknown, FenceStands, PlanOutdated, PlanAmended, MirrorCutOver, GroupActive,
        GroupAhead, JobNotRunning, MirrorPaused, PreviewTooOld, CutoverBlocked: before anything was changed.
    :raises FenceLeaks, FenceGone, FenceUnproven, TransactionsOpen, DrainTimedOut, TargetMoved, VerificationFailed,
        GroupsStillMoving, CutoverCancelled, FenceTooLong, DecidedLate, LeaseLost: after backing out.
    :raises OpeningUnfinished: an earlier process ended while it opened the target, and the source is no longer fenced.
    :raises CutoverTakenOver: another process took this one for dead, and goes on; nothing was undone here.
    :raises EndUnknown: the target does not answer at the very end; the fence stays up until it does.
    :raises FenceNotLifted: backing out failed; producers may still be kept out.
    :raises CutoverRunning: another process is at work on this cutover.
    """
    stop, limits = stop or threading.Event(), limits or Limits()
    if alarm:
        alarm_of(alarm)
    report = CutoverReport(
        mirror=mirror.name, plan_hash=plan.hash, max_fence_s=limits.max_fence_s,
        approved=None if approved is None else dict(approved),
    )  # fmt: skip
    with (
        _locked(run_dir),
        _interruptible(stop),
        signs_of_life(target.config, report),
        guarded(source.config, target.config, mirror.name, every_s=_LOOK_EVERY_S, log=run_dir / "guard.log") as ready,
        WireCluster(source.config) as source_log,
        WireCluster(target.config) as target_log,
    ):
        run = Run(
            mirror=mirror,
            plan=plan,
            source=source,
            target=target,
            source_log=source_log,
            target_log=target_log,
            fence=fence,
            keep_fence=keep_fence,
            verify=verify,
            limits=limits,
            report=report,
            require_guard=ready,
            kept=Kept(reports_of(target, mirror.name), mirror.name, run_dir.name, run_dir),
            run_dir=run_dir,
            log=log,
            tail_positions=tail_positions,
            translate_offset=translate_offset,
            life=life,
            state=state_of(target, keys_of(mirror.name)),
            allow_rewind=allow_rewind,
            accept_still_groups=accept_still_groups,
            leave_out_groups=leave_out_groups,
            fence_name=fence_name,
            alarm=alarm,
            open_target=open_target,
            compared=compared,
            compared_to=compared_to,
            shown_at=shown_at,
            signer=signer,
            require=require,
            decide_with=decide_with,
            stop=stop,
        )
        try:
            done = _run(run)
            afterwards()
            return done
        finally:
            _seal(run, run.report)


def _run(run: Run) -> CutoverReport:
    earlier = recover(run)
    if earlier is not None:
        _seal(run, earlier)  # its process may have died just before
    if earlier is not None and (earlier.outcome == reports.DONE or run.opening):
        if earlier.plan_hash != run.plan.hash:
            raise InputError(
                f"{run.run_dir} holds the cutover of another plan. Give this cutover a directory of its own."
            )
        run.report = earlier
        if earlier.fence is not None and earlier.fence.lifted is None:
            run.fence = steps.recorded_fence(earlier.fence, run.fence, run.source)
        if run.opening:
            steps.finish_opening(run)
        _finish(run)
        reverify(run)
        return earlier
    if earlier is not None:
        run.report.attempt = earlier.attempt + 1
        run.report.earlier = [*earlier.earlier, _remembered(earlier)]
    run.before = _before(run)
    precheck(run)
    run.require()
    found = ask_first(run)
    for line in found.lines():
        run.log.info("%s", line)
    found.raise_if_blocked()
    steps.walk(run)
    _finish(run)
    fence = run.report.fence
    assert fence is not None
    run.log.info("cut over: nobody could write for %.1f s", fence.seconds or 0.0)
    return run.report


def ask_first(run: Run) -> Preview:
    """Look at what the cutover would meet, and keep it in the report. Only reads."""
    found = _preview_of(run, *judge(look(run), run.limits))
    run.report.preview = found.to_dict()
    return found


def _preview_of(run: Run, findings: Sequence[Finding], expected: Forecast | None = None) -> Preview:
    return Preview(
        mirror=run.mirror.name, plan=run.plan.hash, revision=run.plan.revision, at=time.time(), findings=findings,
        forecast=expected,
    )  # fmt: skip


def preview_cutover(
    mirror: Mirror, plan: Plan, source: ClusterAdmin, target: ClusterAdmin, *, run_dir: Path, **given: Any
) -> Preview:
    """Return what a cutover would meet that is given the same as :func:`run_cutover`. Errors as :func:`preview`.

    :param given: fields of :class:`Run`.
    """
    with WireCluster(source.config) as source_log, WireCluster(target.config) as target_log:
        return preview(
            Run(
                mirror=mirror,
                plan=plan,
                source=source,
                target=target,
                source_log=source_log,
                target_log=target_log,
                keep_fence=True,
                report=CutoverReport(mirror=mirror.name, plan_hash=plan.hash),
                kept=Kept(reports_of(target, mirror.name), mirror.name, run_dir.name, None),
                run_dir=run_dir,
                state=state_of(target, keys_of(mirror.name)),
                **given,
            )
        )


def preview(run: Run) -> Preview:
    """Return what a cutover of this run would meet, without one: nothing is written, and everything is listed.

    :raises TryAgain: a cluster does not answer.
    """
    run.before = fence_state(run.life.values(), run.mirror.name)
    refused = refusals(run)
    blocks = [f for f in refused if f.level == "block"]
    if blocks:  # rates and lengths of what can't begin would only hide them
        return _preview_of(run, [*blocks, *(f for f in refused if f.level != "block")])
    found = ask_first(run)
    return replace(found, findings=[*found.findings, *refused])


def _before(run: Run) -> FenceState | None:
    """Return what is decided about the mirror's fence, once none stands: our guard lifts one whose owner died."""
    deadline = run.now() + _GUARDED_S
    while (found := fence_state(run.life.values(), run.mirror.name)) is not None and found.stands:
        if run.now() > deadline:
            break
        run.pause(_LOOK_EVERY_S)
    return found


def recover(run: Run) -> CutoverReport | None:
    """Undo what an earlier attempt of this run left behind; return its report, None if there was no attempt.

    If it is decided that its target is open, nothing is undone, and ``run.opening`` says so: this process goes on.

    :raises CutoverRunning: its process lives.
    :raises CutoverTakenOver: somebody else goes on with it, or another cutover has begun.
    :raises EndUnknown: the target's ledger can't be asked.
    :raises NotUndone: undoing failed; a new attempt would hide that.
    """
    earlier = run.kept.load()
    if earlier is None or earlier.outcome == reports.DONE:
        return earlier
    there = _decided(run.life, run.kept, earlier)
    if earlier.outcome == reports.BACKED_OUT and not (there is not None and there.stands):
        return earlier
    require_over(run.target, earlier)
    if there is not None and there.phase == OPENED:
        process = run.report.process or {}
        go_on_opening(run.life, run.mirror.name, there, run.me, process)
        run.up, run.opening, earlier.process = replace(there, owner=run.me, process=process), True, process
        return earlier
    run.log.warning("attempt %d was interrupted in state %s; undoing what it did", earlier.attempt, earlier.state)
    earlier.error = earlier.error or f"the process was ended in state {earlier.state}"
    fresh, run.report = run.report, earlier
    undone_before = len(earlier.undone)
    steps.back_out(run, owned=False)
    run.report = fresh
    if len(earlier.undone) == undone_before:
        raise CutoverTakenOver(run.kept.run)  # it was opened while we listened
    if earlier.outcome == reports.UNDO_FAILED:
        failed = [r for r in earlier.undone[undone_before:] if not r["ok"]]
        raise NotUndone(str(run.run_dir), [f"{r['step']}: {r['error']}" for r in failed])
    return earlier


def _decided(life: Decisions, kept: Kept, report: CutoverReport) -> FenceState | None:
    """Return what is decided about the fence of a report's attempt; None if nothing is."""
    there = fence_state(life.values(), report.mirror)
    return there if there is not None and there.is_of(kept.run, report.attempt) else None


def lift_leftover_fence(
    kept: Kept, source: ClusterAdmin, target: ClusterAdmin, fence: Fence | None = None, *,
    life: Decisions, kept_too: bool = False, listened: bool = False, ended: str = "",
) -> list[str]:  # fmt: skip
    """Lift the fence that a killed cutover left up, for a teardown task. Does nothing if there is none.

    That it is lifted is decided first, so that no cutover can open the target behind it. A finished cutover's fence
    stays, unless ``kept_too``. Before that fence is lifted the mirror's writer lease is taken, so that no tail copies new
    source records into a target that is in use; so is that of the mirror that copies back, if the fence was swapped.

    :param kept: the report of that cutover.
    :param target: used only for a finished cutover.
    :param life: the target's ledger. While it can't be asked, a fence is lifted only if nothing was being opened then.
    :param fence: the fence that was used; needed unless it was an ACL fence.
    :param kept_too: also if nobody can say whether the target is open.
    :param ended: a mirror of which the caller has ended all writing.
    :param listened: the caller has heard no sign of the cutover's process for long enough.
    :return: what was undone, as readable lines.
    :raises CutoverRunning: the cutover is still running.
    :raises CutoverTakenOver: another cutover of the mirror has begun.
    :raises InputError: the given fence is not of the kind that is up.
    :raises FenceNotLifted: names what is still in place.
    :raises OpeningUnfinished: it is decided that the target is open; only the cutover itself can continue from there.
    :raises MayBeOpen: the ledger can't be asked, and it may be decided.
    """
    report = kept.load_anyhow()
    if report is None or report.fence is None or (report.fence.kept and not kept_too):
        return []
    used, lifter = steps.recorded_fence(report.fence, fence, source), uuid.uuid4().hex
    try:
        there = _decided(life, kept, report)
        if not report.is_fenced and not (there is not None and there.stands):
            return []
        if report.outcome != reports.DONE:
            if not listened:
                require_over(target, report)
            if begin_lifting(life, report.mirror, steps.attempt_of(kept.run, report), lifter).phase == OPENED:
                raise OpeningUnfinished(kept.run, "run the cutover again")
    except (CutoverRunning, CutoverTakenOver, LedgerNewer, OpeningUnfinished):
        raise
    except MirrorError as e:  # producers must be able to write to the source again, whatever became of the target
        if not report.is_fenced:
            return []
        if report.outcome != reports.DONE and not kept_too:
            _require_unopened(kept, report, source, e)
    if report.outcome == reports.DONE:
        _end_copies(report, source, target, ended)
    lines = fence_text(report.fence.kind, report.fence.intent)
    steps.lift_recorded(used, report.fence, source.role)
    steps.forget_fence(life, source, kept.run, report, lifter)
    if (error := _tell(kept, report)) is not None:
        lines.append(f"but the target still says that it is up: {error}")
    return lines


def _end_copies(report: CutoverReport, source: ClusterAdmin, target: ClusterAdmin, ended: str) -> None:
    """End the writing of the mirror that was cut over, and of the one that copies back, before applications may write."""
    end_writing(target.config, report.mirror)
    back = "" if report.fence is None else report.fence.intent.get("copied_by", "")
    if back not in ("", ended):
        end_writing(source.config, back)


def _require_unopened(kept: Kept, report: CutoverReport, source: ClusterAdmin, unasked: MirrorError) -> None:
    """Return if a cutover has not begun to open its target, as far as can be seen without the target's ledger.

    :raises MayBeOpen: it may have. :raises CutoverRunning: it is at work on this host.
    """
    _LOG.warning("what is decided about the fence, the target can't tell: %s", unasked)
    if kept.directory is not None:
        _locked(kept.directory).close()
    if any(step.name == steps.STEPS[-1].name for step in report.steps):
        raise MayBeOpen(kept.run, source.role, f"its report says that it was about to open the target, and {unasked}")
    has_markers = report.fence is not None and report.fence.kind == AclFence.kind
    if has_markers and has_marker(source, report.mirror, kept.run, report.attempt):
        raise MayBeOpen(kept.run, source.role, f"its marker stands there, and {unasked}")


def _tell(kept: Kept, report: CutoverReport) -> MirrorError | None:
    """Write the report; return why that was not possible. It must not keep applications from writing to the source."""
    try:
        kept.save(report)
    except MirrorError as e:
        _LOG.warning("the target could not be told: %s", e)
        return e
    return None


def _finish(run: Run) -> None:
    """Lift the fence of a finished cutover unless it is kept. Not a step, because a step could be undone."""
    fence = run.report.fence
    if fence is not None and fence.lifted is None and not fence.kept:
        hold_lease(run)
        steps.lift_fence(run)
        run.save()


def _seal(run: Run, report: CutoverReport) -> None:
    """Add the report of a run that has ended to the mirror's chain."""
    if report.outcome in (reports.DONE, reports.BACKED_OUT):
        run.kept.add_to_chain(report, run.life, run.signer, run.log.warning)


def _remembered(report: CutoverReport) -> dict[str, Any]:
    times = {"started": report.started, "updated": report.updated}
    return {**report.summary(), **times, "undone": report.undone}


def _locked(run_dir: Path) -> IO[str]:
    try:
        return lock(run_dir / "lock", _LOCK_PATIENCE_S)
    except BlockingIOError:
        raise CutoverRunning(str(run_dir)) from None


@contextmanager
def _interruptible(stop: threading.Event) -> Iterator[None]:
    """Let SIGTERM set ``stop`` if it would otherwise end the process with the fence up.

    It raises nothing: inside a loop that tries again after lost answers, the error would count as one of them.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield  # the host's own handler: Airflow's calls on_kill, which sets `stop`
        return

    signal.signal(signal.SIGTERM, lambda *_: set_in_handler(stop))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
