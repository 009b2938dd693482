"""The order of a cutover, and how to undo each of its steps, in one tuple.

`walk` executes it: each step leads from one state to the next, and after any failure the completed steps are undone,
last one first. No state outlives an attempt, so a restart starts from the beginning: quiet writers are proven only
while the cutover watches them.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_mirror.cutover import decision, quiet
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.decision import FenceState
from airflow_mirror.cutover.drain import drain, verify
from airflow_mirror.cutover.fence import AclFence, fence_text
from airflow_mirror.cutover.groups import commit_groups, read_ahead, restore_groups, settle_groups
from airflow_mirror.cutover.held import look_for_unseen
from airflow_mirror.cutover.marker import (
    attempts_named,
    group_of,
    name_fence,
    remove_marker,
    require_none_of_others,
    set_marker,
)
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
    TransactionsOpen,
    TryAgain,
)
from airflow_mirror.plan.life import target_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_mirror.cutover.context import Run
    from airflow_mirror.cutover.fence import Fence
    from airflow_mirror.cutover.report import CutoverReport
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.ledger.decisions import Decisions

CAUGHT_UP, FENCED, PROVEN, DRAINED, ENDING, QUIET, VERIFIED, SETTLED, GROUPS_MOVED, SEALED, CUT_OVER = (
    "CAUGHT_UP", "FENCED", "PROVEN", "DRAINED", "ENDING", "QUIET", "VERIFIED", "SETTLED", "GROUPS_MOVED", "SEALED",
    "CUT_OVER",
)  # fmt: skip

_LOG = logging.getLogger("airflow_mirror.cutover")

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
    """Look who is let in, describe the fence, record it, decide it, raise it.

    The intent is on the target before the first change, and the fence's name at the source before the fence.

    :raises FencedByAnother: before anything is touched.
    """
    proof, unseen = look_before(run), look_for_unseen(run)
    intent = run.fence.intent(run.topics)
    if run.fence.kind == AclFence.kind:
        require_none_of_others(run.source, run.mirror.name, run.topics)
    run.report.fence = FenceRecord(
        kind=run.fence.kind,
        name=run.fence_name or run.fence.kind,
        intent=intent,
        requested=time.time(),
        proof=proof,
        unseen=unseen,
    )
    run.save()
    run.require_guard()
    run.up = replace(attempt_of(run.kept.run, run.report, run.me, run.limits.max_fence_s), alarm=run.alarm)
    run.fenced_until = run.now() + run.limits.max_fence_s
    run.until_ms = decision.go_up(run.life, run.mirror.name, run.up, run.before)
    if run.fence.kind == AclFence.kind:
        name_fence(run.source, run.mirror.name, run.kept.run, run.report.attempt)
    run.fence.raise_(intent)
    _require_still_up(run, intent)
    return {"fence": fence_text(run.fence.kind, intent)}


def _require_still_up(run: Run, intent: dict[str, Any]) -> None:
    """Return if the fence is still decided to be up; otherwise take back what was raised, and stop.

    A process that was frozen before its request raises a fence that was lifted meanwhile, and nobody would look for it.
    The same rules are those of another attempt as long as its name stands at the source.

    :raises CutoverTakenOver: somebody has undone this attempt.
    """
    assert run.up is not None
    there = decision.fence_state(run.life.values(), run.mirror.name)
    if there == run.up:
        return
    own = run.mirror.name, run.kept.run, run.report.attempt
    if run.fence.kind != AclFence.kind:
        if there is None or not (there.stands or there.phase == decision.OPENED):
            run.fence.lift(intent)
    elif not attempts_named(run.source, run.mirror.name) - {group_of(*own)}:
        run.fence.lift(intent)
        remove_marker(run.source, *own)
    raise CutoverTakenOver(run.kept.run)


def attempt_of(run: str, report: CutoverReport, owner: str = "", max_fence_s: float = 0.0) -> FenceState:
    """Return what is to be decided about the fence of a report's attempt."""
    return FenceState(
        run=run, attempt=report.attempt, plan=report.plan_hash, owner=owner, process=report.process or {},
        max_fence_s=max_fence_s,
    )  # fmt: skip


def lift_fence(run: Run) -> str:
    """Undo what the recorded fence changed.

    :raises FenceNotLifted: names what is still in place.
    """
    record = run.report.fence
    is_up = record is not None and record.lifted is None
    if record is not None and is_up:
        lift_recorded(recorded_fence(record, run.fence, run.source), record, run.source.role)
    forget_fence(run.life, run.source, run.kept.run, run.report, run.me)
    return "fence lifted" if is_up else "no fence is up"


def forget_fence(life: Decisions, source: ClusterAdmin, run: str, report: CutoverReport, lifter: str) -> None:
    """Remove the marker of a fence that was lifted, and decide that it is. What fails is left to the next who lifts."""
    try:
        if report.fence is not None and report.fence.kind == AclFence.kind:
            remove_marker(source, report.mirror, run, report.attempt)
        decision.end_lifting(life, report.mirror, lifter)
    except MirrorError as e:
        _LOG.warning("the fence is lifted, and not everybody could be told: %s", e)


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


def stand_still(run: Run) -> dict[str, Any]:
    """Read the groups' positions ahead, and wait until the source has stood still for long enough."""
    read_ahead(run)
    return quiet.stand_still(run)


def open_target(run: Run) -> dict[str, Any]:
    """Check both sides for the last time, decide that the target is open, then let applications write to it.

    The decision takes the topics out of the mirror's hands in the same moment. Once it is made nothing can be undone,
    because applications may have written to the target.
    """
    ids = target_ids(run.plan, run.target)
    require_no_writer(run)
    if run.fence.kind == AclFence.kind:
        set_marker(run.source, run.mirror.name, run.kept.run, run.report.attempt)
    run.check_stop()
    run.opening = True
    at = datetime.now(UTC).isoformat(timespec="seconds")
    decision.open_behind(run.life, run.plan, run.me, ids, at, run.until_ms, run.decide_with)
    run.fenced_until = None
    return {"topics": len(ids), **_open(run)}


def _open(run: Run) -> dict[str, Any]:
    assert run.report.fence is not None
    if run.open_target is not None:
        try:
            with _undisturbed():  # an interrupt half way would leave it unknown whether the target is open
                run.open_target()
        except Exception:  # by contract the target is not open then
            decision.close_again(run.life, run.mirror.name, run.report.plan_hash, run.me)
            raise
    run.report.fence.opened = time.time()
    run.report.fence.kept = run.keep_fence
    return {"fence_seconds": round(run.report.fence.seconds or 0.0, 3), "source": "fenced" if run.keep_fence else "open"}


STEPS = (  # name          leads from    to            does           undone by (last step first)
    Step("fence",          CAUGHT_UP,    FENCED,       raise_fence,   lift_fence),
    Step("prove_fence",    FENCED,       PROVEN,       prove_fence,   None),
    Step("drain",          PROVEN,       DRAINED,      drain,         None),
    Step("stop_writers",   DRAINED,      ENDING,       stop_writers,  tell_tail),  # all that follows is done meanwhile
    Step("stand_still",    ENDING,       QUIET,        stand_still,   None),
    Step("verify",         QUIET,        VERIFIED,     verify,        None),
    Step("settle_groups",  VERIFIED,     SETTLED,      settle_groups, None),
    Step("commit_groups",  SETTLED,      GROUPS_MOVED, commit_groups, restore_groups),
    Step("seal_target",    GROUPS_MOVED, SEALED,       seal_target,   None),
    Step("open_target",    SEALED,       CUT_OVER,     open_target,   None),  # the point of no return
)  # fmt: skip

# A restart goes back to CAUGHT_UP, because writers may have come back.
EXPIRE_ON_RESTART = frozenset({FENCED, PROVEN, DRAINED, ENDING, QUIET, VERIFIED, SETTLED, GROUPS_MOVED, SEALED})


def walk(run: Run, steps: Sequence[Step] = STEPS, begin: int = 0) -> None:
    """Execute the steps in order, from number ``begin`` on.

    On any exception, including KeyboardInterrupt, undo what was done and raise it again.

    :raises FenceNotLifted: instead, if undoing failed too and producers may still be kept out.
    :raises CutoverTakenOver: instead, if another process has undone it, and another cutover has begun. Nothing is undone.
    :raises EndUnknown: instead, if nobody knows whether it is decided that the target is open. Nothing is undone.
    """
    try:
        for step in steps[begin:]:
            run.check_stop()
            _do(run, step, reports.DONE if step is steps[-1] else reports.RUNNING)
    except BaseException as e:
        if run.report.outcome == reports.DONE:
            raise
        run.report.error = f"{type(e).__name__}: {e}"
        try:
            back_out(run, steps)
        except (CutoverTakenOver, EndUnknown) as taken:
            raise taken from e
        if run.report.is_fenced and run.report.undone and not isinstance(e, FenceNotLifted):
            record = run.report.fence
            assert record is not None
            raise FenceNotLifted(
                run.source.role, fence_text(record.kind, record.intent), "see 'undone' in the report"
            ) from e
        raise


def finish_opening(run: Run) -> None:
    """Resume a report whose process ended after it had decided to open the target: open it, perhaps for the second time.

    Nothing can be undone, because applications may be writing to the target. So the source must be unchanged.

    :raises OpeningUnfinished: the source has changed.
    """
    try:
        require_source_shut(run)
    except (FenceGone, FenceLeaks, FenceUnproven, TransactionsOpen) as e:
        raise OpeningUnfinished(str(run.run_dir), str(e)) from e
    take_lease(run)
    *before, last = STEPS
    walk(run, [*before, replace(last, do=_open)], len(before))


def back_out(run: Run, steps: Sequence[Step] = STEPS, *, owned: bool = True) -> None:
    """Undo every step that was begun, last one first. If one undo fails, the others are still done.

    First it is decided that the fence is lifted, which is when the target can't be opened any more. If it is decided that
    the target is open, nothing is undone. Also works on a report that was loaded, long after its process ended.

    :param owned: the report is this process's own.
    :raises CutoverTakenOver, EndUnknown: nothing is undone.
    """
    begun = {record.name for record in run.report.steps}
    failed = False
    with _undisturbed():
        run.fenced_until = None
        if not _may_undo(run, owned):
            return
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


def _may_undo(run: Run, owned: bool) -> bool:
    """Decide that the fence is lifted; return whether that is so, or no fence was up.

    :raises CutoverTakenOver: another attempt is at work. :raises EndUnknown: the target may be open.
    """
    attempt = run.up if owned else attempt_of(run.kept.run, run.report)
    if attempt is None:
        return True
    try:
        there = decision.begin_lifting(
            run.life, run.mirror.name, attempt, run.me, owned=owned, before=run.before if owned else None
        )
    except CutoverTakenOver:
        raise
    except MirrorError as e:
        if run.opening or not owned:
            raise EndUnknown(run.source.role, str(e)) from e
        # Nobody else opens what this process has not asked to be opened. A fence must come down without a target too.
        run.log.warning("the target's ledger can't be told that the fence is lifted: %s", e)
        return True
    return there.phase != decision.OPENED


def _do(run: Run, step: Step, outcome: str) -> None:
    record = StepRecord(name=step.name, status="running", started=time.time())
    run.report.steps.append(record)
    run.save()
    run.log.info("%s ...", step.name)
    run.waits_for, started = "", run.now()
    try:
        record.evidence = step.do(run)
        record.status = "done"
    except BaseException:
        record.status = "failed"
        raise
    finally:
        record.seconds = run.now() - started
    # One write for both: a crash between two writes would leave it unclear whether the step is to be undone.
    before, run.report.state, run.report.outcome = run.report.state, step.to, outcome
    try:
        run.save()
    except BaseException:
        run.report.state, run.report.outcome = before, reports.RUNNING
        raise
    run.log.info("%s: done in %.1f s", step.name, record.seconds)


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
