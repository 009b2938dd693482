"""The order of a cutover, and how to undo each of its steps, in one tuple.

`walk` executes it: each step leads from one state to the next, and after any failure the completed steps are undone,
last one first. No state outlives an attempt, so a restart starts from the beginning: quiet writers are proven only
while the cutover watches them.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.drain import drain, verify
from airflow_mirror.cutover.fence import AclFence, fence_text
from airflow_mirror.cutover.groups import commit_groups, restore_groups, settle_groups
from airflow_mirror.cutover.proof import look_before
from airflow_mirror.cutover.quiet import prove_fence
from airflow_mirror.cutover.report import FenceRecord, StepRecord
from airflow_mirror.cutover.writers import (
    require_no_writer,
    require_source_shut,
    seal_target,
    stop_writers,
    take_lease,
)
from airflow_mirror.errors import (
    CutoverTakenOver,
    EndUnknown,
    FenceGone,
    FenceLeaks,
    FenceNotLifted,
    FenceUnproven,
    InputError,
    MirrorError,
    OpeningUnfinished,
    TryAgain,
)
from airflow_mirror.plan.life import mark_cut_over, take_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_mirror.cutover.context import Run
    from airflow_mirror.cutover.fence import Fence
    from airflow_mirror.kafka.admin import ClusterAdmin

CAUGHT_UP, FENCED, QUIET, DRAINED, VERIFIED, SETTLED, ENDING, GROUPS_MOVED, SEALED, HANDED_OVER, CUT_OVER = (
    "CAUGHT_UP", "FENCED", "QUIET", "DRAINED", "VERIFIED", "SETTLED", "ENDING", "GROUPS_MOVED", "SEALED", "HANDED_OVER",
    "CUT_OVER",
)  # fmt: skip

# After SIGTERM a supervisor sends SIGKILL within some seconds. Brokers may be restarting meanwhile.
LIFT_PATIENCE_S = 20.0


@dataclass(frozen=True)
class Step:
    """One step.

    :param leads_from: the state that it requires; ``to`` is the state that it leads to.
    :param do: executes the step and returns evidence for the report.
    :param undo: undoes its effect and returns what it did; safe to call without an effect. None: nothing to undo.
    """

    name: str
    leads_from: str
    to: str
    do: Callable[[Run], dict[str, Any]]
    undo: Callable[[Run], str] | None


def raise_fence(run: Run) -> dict[str, Any]:
    """Look who is let in, describe the fence, record it, raise it: the intent is on the target before any change."""
    proof = look_before(run)
    intent = run.fence.intent(sorted({t.source_topic for t in run.plan.topics}))
    run.report.fence = FenceRecord(
        kind=run.fence.kind, name=run.fence_name or run.fence.kind, intent=intent, requested=time.time(), proof=proof
    )
    run.save()
    run.fence.raise_(intent)
    return {"fence": fence_text(run.fence.kind, intent)}


def lift_fence(run: Run) -> str:
    """Undo what the recorded fence changed.

    :raises FenceNotLifted: names what is still in place.
    """
    record = run.report.fence
    if record is None or record.lifted is not None:
        return "no fence is up"
    lift_recorded(recorded_fence(record, run.fence, run.source), record, run.source.role)
    return "fence lifted"


def recorded_fence(record: FenceRecord, given: Fence | None, source: ClusterAdmin) -> Fence:
    """Return the fence that an earlier process recorded.

    A record of ACLs is complete, whatever fence is given now; any other fence has to be given again. If a fence of
    another kind lifted it, it would count as lifted and still be up.

    :raises InputError: the recorded fence can't be built.
    """
    if given is not None and given.kind == record.kind:
        return given
    if record.kind == AclFence.kind:
        return AclFence(source)
    got = "none" if given is None else f"one of kind {given.kind!r}"
    raise InputError(
        f"the fence that is up is of kind {record.kind!r} ({record.name or 'nobody says which'}), and {got} was given. "
        "Pass the fence that was used."
    )


def lift_recorded(fence: Fence, record: FenceRecord, role: str) -> None:
    """Lift a fence by its record; retry for ``LIFT_PATIENCE_S`` while brokers don't answer.

    :raises FenceNotLifted: names what is still in place.
    """
    deadline = time.monotonic() + LIFT_PATIENCE_S
    while True:
        try:
            fence.lift(record.intent)
            break
        except TryAgain as e:
            if time.monotonic() > deadline:
                raise FenceNotLifted(role, fence_text(record.kind, record.intent), str(e)) from e
            time.sleep(0.5)
    record.lifted, record.kept = time.time(), False


def tell_tail(run: Run) -> str:
    """Report that the tail has to be started again, because its lease can't be given back."""
    lost = "has" if run.report.lease is not None else "may have"  # unknown if the takeover itself was interrupted
    return f"the tail {lost} lost its lease: start it again"


def hand_over(run: Run) -> dict[str, Any]:
    """Record that the target topics are in production: from now on no task of the mirror holds or fills them.

    Done before the target opens, because a crash between the two must not leave topics in production without a record.
    """
    if run.life is None:
        return {}
    ids = {name: info.topic_id for name, info in run.target.topics([t.target_topic for t in run.plan.topics]).items()}
    mark_cut_over(run.life, run.plan, ids, datetime.now(UTC).isoformat(timespec="seconds"))
    return {"topics": len(ids)}


def take_back_topics(run: Run) -> str:
    """Return the target topics to the mirror."""
    if run.life is None:
        return "nothing to take back"
    take_back(run.life, run.report.plan_hash)
    return "the topics are the mirror's again"


def open_target(run: Run) -> dict[str, Any]:
    """Check both sides for the last time, then let applications write to the target.

    Once this is on record nothing can be undone, because applications may have written to the target.
    """
    run.kept.require_ours()
    require_no_writer(run)
    return _open(run)


def _open(run: Run) -> dict[str, Any]:
    assert run.report.fence is not None
    if run.open_target is not None:
        _call_open(run, run.open_target)
    run.report.fence.opened = time.time()
    run.report.fence.kept = run.keep_fence
    return {"fence_seconds": round(run.report.fence.seconds or 0.0, 3), "source": "fenced" if run.keep_fence else "open"}


def _call_open(run: Run, call: Callable[[], object]) -> None:
    """Open the target, and record that before: if the process dies in the call, nothing may be undone."""
    run.report.opening = time.time()
    run.save()
    try:
        with _undisturbed():  # an interrupt half way would leave it unknown whether the target is open
            call()
    except Exception:
        run.report.opening = None  # by contract the target is not open if it raises
        raise


STEPS = (  # name          leads from    to            does           undone by (last step first)
    Step("fence",          CAUGHT_UP,    FENCED,       raise_fence,   lift_fence),
    Step("prove_fence",    FENCED,       QUIET,        prove_fence,   None),
    Step("drain",          QUIET,        DRAINED,      drain,         None),
    Step("verify",         DRAINED,      VERIFIED,     verify,        None),
    Step("settle_groups",  VERIFIED,     SETTLED,      settle_groups, None),
    Step("stop_writers",   SETTLED,      ENDING,       stop_writers,  tell_tail),
    Step("commit_groups",  ENDING,       GROUPS_MOVED, commit_groups, restore_groups),  # while the tail's last task ends
    Step("seal_target",    GROUPS_MOVED, SEALED,       seal_target,   None),
    Step("hand_over",      SEALED,       HANDED_OVER,  hand_over,     take_back_topics),
    Step("open_target",    HANDED_OVER,  CUT_OVER,     open_target,   None),  # the point of no return
)  # fmt: skip

# A restart goes back to CAUGHT_UP, because writers may have come back.
EXPIRE_ON_RESTART = frozenset({FENCED, QUIET, DRAINED, VERIFIED, SETTLED, ENDING, GROUPS_MOVED, SEALED, HANDED_OVER})


def walk(run: Run, steps: Sequence[Step] = STEPS) -> None:
    """Execute the steps in order. On any exception, including KeyboardInterrupt, undo what was done and raise it again.

    :raises FenceNotLifted: instead, if undoing failed too and producers may still be kept out.
    :raises CutoverTakenOver: instead, if another process has undone it, or goes on. Nothing is undone.
    """
    try:
        for step in steps:
            run.check_stop()
            _do(run, step, reports.DONE if step is steps[-1] else reports.RUNNING)
    except BaseException as e:
        if run.report.outcome == reports.DONE or run.report.opening is not None:
            # Either it is on record, or may be, or the target is open and the record does not say so: undo nothing.
            raise
        _require_ours(run, e)
        run.report.error = f"{type(e).__name__}: {e}"
        back_out(run, steps)
        if run.report.is_fenced and not isinstance(e, FenceNotLifted):
            record = run.report.fence
            assert record is not None
            raise FenceNotLifted(
                run.source.role, fence_text(record.kind, record.intent), "see 'undone' in the report"
            ) from e
        raise


def _require_ours(run: Run, error: BaseException) -> None:
    """Return unless another process took the cutover over: its fence and its groups are not ours to put back."""
    try:
        run.kept.require_ours()
    except CutoverTakenOver as e:
        raise e from error
    except MirrorError as e:  # a fence must come down, whatever became of the target
        run.log.warning("whether another process took the cutover over, the target can't tell: %s", e)


def finish_opening(run: Run) -> None:
    """Resume a report whose process ended while it opened the target: open it, perhaps for the second time.

    Nothing can be undone, because applications may be writing to the target. So the source must be unchanged.

    :raises OpeningUnfinished: the source has changed.
    """
    try:
        require_source_shut(run)
    except (FenceGone, FenceLeaks, FenceUnproven) as e:
        raise OpeningUnfinished(str(run.run_dir), str(e)) from e
    take_lease(run)
    try:
        _do(run, replace(STEPS[-1], do=_open), reports.DONE)
    except BaseException:
        if run.report.opening is None:
            back_out(run)
        raise


def back_out(run: Run, steps: Sequence[Step] = STEPS) -> None:
    """Undo every step that was begun, last one first. If one undo fails, the others are still done.

    Also works on a report that was loaded, long after its process ended.
    """
    begun = {record.name for record in run.report.steps}
    failed = False
    with _undisturbed():
        for step in reversed([s for s in steps if s.undo is not None and s.name in begun]):
            assert step.undo is not None
            row: dict[str, Any] = {"step": step.name, "what": step.undo.__name__, "ok": True, "error": None}
            try:
                row["what"] = step.undo(run)
            except Exception as e:
                row.update(ok=False, error="; ".join([f"{type(e).__name__}: {e}", *getattr(e, "__notes__", [])]))
                failed = True
            run.report.undone.append(row)
            run.log.info("undo %s: %s", step.name, row["what"] if row["ok"] else row["error"])
        run.report.outcome = reports.UNDO_FAILED if failed else reports.BACKED_OUT
        run.report.state = CAUGHT_UP
        try:
            run.save()
        except MirrorError as e:  # a target that is away may be the cause; the fence is lifted all the same
            run.log.warning("the report could not be written: %s", e)


def _do(run: Run, step: Step, outcome: str) -> None:
    record = StepRecord(name=step.name, status="running", started=time.time())
    run.report.steps.append(record)
    run.save()
    run.log.info("%s ...", step.name)
    started = run.now()
    try:
        record.evidence = step.do(run)
        record.status = "done"
    except BaseException:
        record.status = "failed"
        raise
    finally:
        record.seconds = run.now() - started
    # One write for both: a crash between two writes would undo a cutover that is finished.
    before, run.report.state, run.report.outcome = run.report.state, step.to, outcome
    try:
        run.save()
    except BaseException:
        run.report.state, run.report.outcome = before, reports.RUNNING
        if outcome == reports.DONE:
            _require_no_end(run, step)
        raise
    run.log.info("%s: done in %.1f s", step.name, record.seconds)


def _require_no_end(run: Run, last: Step) -> None:
    """Write that the cutover is not at its end, where a writing that says so may have arrived without an answer.

    What was undone, while the next process finds a finished cutover, would leave both clusters open. If this can't be
    written either, nothing is undone, and the fence stays up: the next process goes by what is there.

    :raises EndUnknown: it can't.
    """
    try:
        run.save()
    except BaseException as e:
        run.report.state, run.report.outcome = last.to, reports.DONE
        if isinstance(e, MirrorError):
            raise EndUnknown(run.source.role, str(e)) from e
        raise


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore SIGINT, SIGTERM and SIGALRM while undoing: a second Ctrl-C must not leave the fence up.

    The first signal has already ended the cutover, so later ones can be dropped.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return
    held = [signal.SIGINT, signal.SIGTERM, signal.SIGALRM]
    before = {number: signal.getsignal(number) for number in held}
    for number in held:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
