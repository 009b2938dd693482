"""Run a cutover. Running a finished one again verifies it; running one after a crash first undoes what was left."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from airflow_mirror.cutover import html, steps
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.alive import require_over, signs_of_life
from airflow_mirror.cutover.check import precheck, reverify
from airflow_mirror.cutover.context import Limits, Log, Run
from airflow_mirror.cutover.fence import fence_text
from airflow_mirror.cutover.kept import Kept, reports_of
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.writers import end_writing, hold_lease
from airflow_mirror.errors import (
    CutoverCancelled,
    CutoverRunning,
    CutoverTakenOver,
    InputError,
    MirrorError,
    NotUndone,
    OpeningUnfinished,
    TryAgain,
)
from airflow_mirror.files import lock, replace_file
from airflow_mirror.jobs.runner.active import keys_of
from airflow_mirror.ledger.state import state_of
from airflow_mirror.plan.life import take_back
from airflow_mirror.wire.cluster import WireCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_mirror.cutover.context import Offsets, Verify
    from airflow_mirror.cutover.fence import Fence
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.ledger.decisions import Decisions
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan.model import Plan
    from airflow_mirror.sync.groups import Translate

_LOG = logging.getLogger("airflow_mirror.cutover")
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
    limits: Limits | None = None,
    log: Log = _LOG,
    stop: threading.Event | None = None,
    tail_positions: Callable[[], Offsets] | None = None,
    translate_offset: Translate | None = None,
    life: Decisions | None = None,
    allow_rewind: bool = False,
    fence_name: str = "",
    open_target: Callable[[], object] | None = None,
    compared: Sequence[str] = (),
) -> CutoverReport:
    """Cut a mirror over: fence the source, drain, verify, end the tail's writing, move the groups, open the target.

    The tail must be running, unless the target already holds everything. If a cutover backs out after it took the
    writer lease, the tail has to be started again.

    After any failure the groups get their positions back and the fence is lifted before the error is raised again. A
    killed process leaves the fence up; the next call with a ``run_dir`` of this name, on any host, lifts it and starts
    from the beginning, and :func:`lift_leftover_fence` lifts it too. A call for a finished cutover changes nothing: it
    compares once more and returns the report.

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
    :param life: records which target topics were handed over to applications. With it, a cutover of topics that are
        already in production is refused.
    :param fence_name: what ``fence`` was made of, for whoever has to lift it: the path of a function, say.
    :param open_target: called last, if something keeps applications from writing to the target. If it raises, the
        target must not be open. After a crash it is called again.
    :param compared: revisions of the plan that were compared, and perhaps approved, before: each must be the present one.
    :raises NoAuthorizer, OpenByDefaultUnknown, FenceStands, PlanOutdated, PlanAmended, MirrorCutOver, GroupActive,
        GroupAhead, JobNotRunning, MirrorPaused: before anything was changed.
    :raises FenceLeaks, FenceGone, FenceUnproven, TransactionsOpen, DrainTimedOut, TargetMoved, VerificationFailed,
        GroupsStillMoving, CutoverCancelled, LeaseLost: after backing out.
    :raises OpeningUnfinished: an earlier process ended while it opened the target, and the source is no longer fenced.
    :raises CutoverTakenOver: another process took this one for dead; nothing was undone here.
    :raises EndUnknown: the target does not answer at the very end; the fence stays up until it does.
    :raises FenceNotLifted: backing out failed; producers may still be kept out.
    :raises CutoverRunning: another process is at work on this cutover.
    """
    report = CutoverReport(mirror=mirror.name, plan_hash=plan.hash)
    with (
        _locked(run_dir),
        _interruptible(),
        signs_of_life(target.config, report),
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
            limits=limits or Limits(),
            report=report,
            kept=Kept(reports_of(target, mirror.name), mirror.name, run_dir.name, run_dir),
            run_dir=run_dir,
            log=log,
            tail_positions=tail_positions,
            translate_offset=translate_offset,
            life=life,
            state=None if life is None else state_of(target, keys_of(mirror.name)),
            allow_rewind=allow_rewind,
            fence_name=fence_name,
            open_target=open_target,
            compared=compared,
            stop=stop or threading.Event(),
        )
        try:
            return _run(run)
        finally:
            _write_html(run)


def _run(run: Run) -> CutoverReport:
    earlier = recover(run)
    if earlier is not None and (earlier.outcome == reports.DONE or earlier.is_opening):
        if earlier.plan_hash != run.plan.hash:
            raise InputError(
                f"{run.run_dir} holds the cutover of another plan. Give this cutover a directory of its own."
            )
        run.report = earlier
        if earlier.fence is not None and earlier.fence.lifted is None:
            run.fence = steps.recorded_fence(earlier.fence, run.fence, run.source)
        if earlier.is_opening:
            steps.finish_opening(run)
        _finish(run)
        reverify(run)
        return earlier
    if earlier is not None:
        run.report.attempt = earlier.attempt + 1
        run.report.earlier = [*earlier.earlier, _remembered(earlier)]
    precheck(run)
    steps.walk(run)
    _finish(run)
    fence = run.report.fence
    assert fence is not None
    run.log.info("cut over: nobody could write for %.1f s", fence.seconds or 0.0)
    return run.report


def recover(run: Run) -> CutoverReport | None:
    """Undo what an earlier attempt of this run left behind; return its report, None if there was no attempt.

    :raises CutoverRunning: its process lives.
    :raises CutoverTakenOver: somebody else undoes it, or has begun anew.
    :raises NotUndone: undoing failed; a new attempt would hide that.
    """
    earlier = run.kept.load()
    if earlier is None or earlier.outcome == reports.DONE:
        return earlier
    require_over(run.target, earlier)
    run.kept.require_ours()  # listening takes time
    if earlier.is_opening:
        return earlier
    if earlier.outcome in (reports.RUNNING, reports.UNDO_FAILED):
        run.log.warning("attempt %d was interrupted in state %s; undoing what it did", earlier.attempt, earlier.state)
        earlier.error = earlier.error or f"the process was ended in state {earlier.state}"
        fresh, run.report = run.report, earlier
        earlier.process = fresh.process
        run.save()  # one that was frozen, and wakes up, sees it before it opens or undoes anything
        undone_before = len(earlier.undone)
        steps.back_out(run)
        run.report = fresh
        if earlier.outcome == reports.UNDO_FAILED:
            failed = [r for r in earlier.undone[undone_before:] if not r["ok"]]
            raise NotUndone(str(run.run_dir), [f"{r['step']}: {r['error']}" for r in failed])
    return earlier


def lift_leftover_fence(
    kept: Kept, source: ClusterAdmin, target: ClusterAdmin, fence: Fence | None = None, *,
    life: Decisions | None = None, kept_too: bool = False,
) -> list[str]:  # fmt: skip
    """Lift the fence that a killed cutover left up, for a teardown task. Does nothing if there is none.

    A finished cutover's fence stays, unless ``kept_too``. Before that fence is lifted the mirror's writer lease is
    taken, so that no tail copies new source records into a target that is in use.

    :param kept: the report of that cutover. A fence is lifted also if the target can't be told.
    :param target: used only for a finished cutover.
    :param life: as passed to the cutover; the entries of a killed one are removed.
    :param fence: the fence that was used; needed unless it was an ACL fence.
    :return: what was undone, as readable lines.
    :raises CutoverRunning: the cutover is still running.
    :raises CutoverTakenOver: somebody else undoes it, or has begun anew.
    :raises InputError: the given fence is not of the kind that is up.
    :raises FenceNotLifted: names what is still in place.
    :raises OpeningUnfinished: the target may be open; only the cutover itself can continue from there.
    """
    if kept.load_anyhow() is None:
        return []
    with nullcontext() if kept.directory is None else _locked(kept.directory):
        report = kept.load_anyhow()
        if report is None or report.fence is None or not report.is_fenced or (report.fence.kept and not kept_too):
            return []
        used = steps.recorded_fence(report.fence, fence, source)
        _require_over(kept, target, report)
        if report.is_opening:
            raise OpeningUnfinished(kept.run, "run the cutover again")
        _tell(kept, report)  # one that was frozen, and wakes up, sees it before it opens or undoes anything
        if report.outcome == reports.DONE:
            end_writing(target.config, report.mirror)
        lines = fence_text(report.fence.kind, report.fence.intent)
        if life is not None and report.outcome != reports.DONE:
            try:
                take_back(life, report.plan_hash)
            except MirrorError as e:  # it must not keep applications from writing to the source
                lines.append(f"but the target's topics may still count as in production: {e}")
        steps.lift_recorded(used, report.fence, source.role)
        if (error := _tell(kept, report)) is not None:
            lines.append(f"but the target still says that it is up: {error}")
        return lines


def _tell(kept: Kept, report: CutoverReport) -> MirrorError | None:
    """Write the report; return why that was not possible. It must not keep applications from writing to the source."""
    try:
        kept.save(report)
    except MirrorError as e:
        _LOG.warning("the target could not be told: %s", e)
        return e
    return None


def _require_over(kept: Kept, target: ClusterAdmin, report: CutoverReport) -> None:
    try:
        require_over(target, report)
        kept.require_ours()  # listening takes time
    except (CutoverRunning, CutoverTakenOver):
        raise
    except TryAgain as e:  # producers must be able to write to the source again, whatever became of the target
        _LOG.warning("whether the cutover's process lives, the target can't tell: %s", e)


def _finish(run: Run) -> None:
    """Lift the fence of a finished cutover unless it is kept. Not a step, because a step could be undone."""
    fence = run.report.fence
    if fence is not None and fence.lifted is None and not fence.kept:
        hold_lease(run)
        steps.lift_fence(run)
        run.save()


def _remembered(report: CutoverReport) -> dict[str, Any]:
    times = {"started": report.started, "updated": report.updated}
    return {**report.summary(), **times, "undone": report.undone}


def _write_html(run: Run) -> None:
    try:
        replace_file(run.run_dir / reports.HTML_NAME, html.render(run.report))
    except OSError as e:  # it is for people
        run.log.warning("report.html could not be written: %s", e)


def _locked(run_dir: Path) -> IO[str]:
    try:
        return lock(run_dir / "lock", _LOCK_PATIENCE_S)
    except BlockingIOError:
        raise CutoverRunning(str(run_dir)) from None


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn SIGTERM into an exception if it would otherwise end the process with the fence up."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield  # the host's own handler: Airflow's calls on_kill, which sets `stop`
        return

    def stop(*_: object) -> None:
        raise CutoverCancelled("SIGTERM")

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
