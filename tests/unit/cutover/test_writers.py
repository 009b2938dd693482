"""The target opens only after the mirror's own writing has ended, on every machine, for good."""

from __future__ import annotations

import dataclasses
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover import run as cutover
from airflow_mirror.cutover import steps, writers
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.decision import LIFTED, LIFTING, OPENED, UP, begin_lifting, fence_state
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.report import CutoverReport, FenceRecord, StepRecord
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.errors import (
    CutoverCancelled,
    CutoverTakenOver,
    DrainTimedOut,
    FenceGone,
    FenceLeaks,
    JobNotRunning,
    LeaseLost,
    MirrorPaused,
    OpeningUnfinished,
    TargetMoved,
    TryAgain,
)
from airflow_mirror.jobs.runner.wishes import Wish, wish
from tests.unit.cutover.builders import (
    OPENED_AT,
    Leases,
    Logs,
    a_run,
    dir_of,
    go_up,
    kept_in,
    ledger_of,
    not_kept,
    open_behind,
    target_of,
    want,
)

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
ENDS = {ORDERS: 100, PAYMENTS: 7}


class World:
    """A cutover whose drain is done: both sides end where the fence found the source."""

    def __init__(self, tmp_path: Path, raised: bool = True) -> None:
        self.fenced, self.calls = True, list[str]()
        fence = CallableFence(lambda: None, self._lift, lambda: self.fenced)
        self.run = a_run(tmp_path, fence)
        self.source, self.target = Logs(ENDS), Logs(ENDS)
        self.run.on.source.log, self.run.on.target.log = self.source, self.target  # type: ignore[assignment]
        if raised:
            go_up(self.run)
        self.run.intent = Intent(topics=("orders", "payments"))
        self.run.report.fence = FenceRecord(kind="callable", intent={"topics": ["orders", "payments"]}, requested=10.0)
        self.run.report.ends = [{"topic": tp.topic, "partition": tp.partition, "end": end} for tp, end in ENDS.items()]

    def _lift(self) -> None:
        self.fenced = False
        self.calls.append("lift")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    # Whatever moves is data here, no marker.
    monkeypatch.setattr("airflow_mirror.cutover.quiet.written_by", lambda *_: ["somebody wrote"])
    return World(tmp_path)


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> Leases:
    return Leases(monkeypatch)


def decided(attempt: Attempt) -> tuple[str, set[str | None]]:
    """What is decided about the fence, and by which plans the topics of the target are in production."""
    values = ledger_of(dir_of(attempt)).values()
    state = fence_state(values, "flow")
    assert state is not None
    return state.phase, {values.get(f"topic/{t}", {}).get("opened_by") for t in ("orders", "payments")}


def sealed(attempt: Attempt) -> dict[str, Any]:
    """Do what ends the tail's writing, with nothing in between."""
    writers.stop_writers(attempt)
    return writers.seal_target(attempt)


def test_what_is_done_meanwhile_is_not_waited_for_again(world: World, leases: Leases) -> None:
    """With a thousand groups to commit in between, writers stood still for 7 s more."""
    writers.stop_writers(world.run)
    leases.clock += 5.5  # the groups' positions are committed
    assert writers.seal_target(world.run) == {"waited_s": lease.HANDOVER_S - 5.5, "positions_set_again": 0}
    writers.stop_writers(world.run)
    leases.clock += 60
    assert writers.seal_target(world.run) == {"waited_s": 0.0, "positions_set_again": 0}


def test_ends_are_read_only_after_every_task_must_have_stopped(world: World, leases: Leases) -> None:
    """A task that was frozen, or is far away, may write until the lease's time is over."""

    class Late(Logs):
        def log_ends(self, tps: Any) -> dict[TopicPartition, int]:
            assert leases.clock >= lease.HANDOVER_S, "the target was read while a task may still write"
            return super().log_ends(tps)

    world.run.on.target.log = Late(ENDS)  # type: ignore[assignment]
    world.run.target_log.last_stable = Logs(ENDS).last_stable  # type: ignore[method-assign]
    assert sealed(world.run) == {"waited_s": lease.HANDOVER_S, "positions_set_again": 0}


def test_groups_are_looked_at_again_only_when_nobody_can_move_them(
    world: World, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail's driver lets groups follow for as long as its tasks may write."""

    def keep(attempt: Attempt) -> int:
        assert leases.clock >= lease.HANDOVER_S
        return 3

    monkeypatch.setattr(writers, "keep_groups", keep)
    assert sealed(world.run)["positions_set_again"] == 3


def test_lease_that_was_released_is_waited_for_as_well(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its job knows of the tasks that it heard, and an executor that was lost may still write."""
    leases = Leases(monkeypatch, holder=None)
    sealed(world.run)
    assert leases.clock == lease.HANDOVER_S


def test_token_is_on_record_before_the_wait(world: World, leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(attempt: Attempt, seconds: float | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Attempt, "pause", die)
    with pytest.raises(KeyboardInterrupt):
        sealed(world.run)
    left = kept_in(dir_of(world.run)).load()
    assert left is not None and left.lease is not None and left.lease["epoch"] == 2


def test_stop_is_heard_while_tasks_are_waited_for(world: World, leases: Leases) -> None:
    world.run.stop.set()
    with pytest.raises(CutoverCancelled):
        sealed(world.run)


@pytest.mark.parametrize("end", [99, 101])
def test_target_not_at_the_fenced_end_is_never_opened(world: World, leases: Leases, end: int) -> None:
    world.target.ends[ORDERS] = end
    with pytest.raises(TargetMoved if end > 100 else DrainTimedOut, match="orders-0"):
        sealed(world.run)


def test_routes_of_a_plan_are_built_once(world: World) -> None:
    """They are asked for each of thousands of partitions behind the fence: to build all for each took half of it."""
    assert world.run.routes is world.run.routes


def test_record_that_consumers_can_not_see_yet_counts_too(world: World, leases: Leases) -> None:
    world.run.target_log.last_stable = Logs(ENDS).last_stable  # type: ignore[method-assign]
    world.target.ends[ORDERS] = 101  # appended, not replicated
    with pytest.raises(TargetMoved, match="orders-0"):
        sealed(world.run)


def test_source_written_while_tasks_are_waited_for_is_found(world: World, leases: Leases) -> None:
    world.source.ends[PAYMENTS] = 8
    with pytest.raises(FenceLeaks, match="payments-0"):
        sealed(world.run)


@pytest.mark.parametrize(
    ("meddle", "error"),
    [
        (lambda w, _: w.source.ends.update({ORDERS: 101}), FenceLeaks),
        (lambda w, _: w.target.ends.update({ORDERS: 101}), TargetMoved),
        (lambda w, _: setattr(w, "fenced", False), FenceGone),
        (lambda _, leases: leases.take_by_another_job(), LeaseLost),
    ],
)
def test_target_stays_shut_when_anything_moved_since_writing_ended(
    world: World, leases: Leases, meddle: Any, error: type[Exception]
) -> None:
    sealed(world.run)
    meddle(world, leases)
    with pytest.raises(error):
        steps.open_target(world.run)
    assert decided(world.run) == (UP, {None}) and not world.run.opening


@pytest.mark.parametrize("listed", [[], ["orders"]])
def test_target_stays_shut_while_a_broker_does_not_list_its_topics(
    world: World, leases: Leases, listed: list[str]
) -> None:
    """It has just started. The fence was opened, and no topic: a job that is run again would copy beside applications."""
    sealed(world.run)
    admin: Any = world.run.on.target.admin
    admin.wire = SimpleNamespace(refresh_present=lambda _: set())
    young = {name: admin.topics([name])[name] for name in listed}
    answers = [young, *[admin.topics(["orders", "payments"])] * 3]
    admin.topics = lambda _: answers.pop(0)
    with pytest.raises(TryAgain, match="target topics payments: a" if listed else "target topics orders, payments: a"):
        steps.open_target(world.run)
    assert decided(world.run) == (UP, {None}) and not world.run.opening
    steps.open_target(world.run)
    assert decided(world.run) == (OPENED, {world.run.plan.hash})


def test_target_stays_shut_for_one_that_was_taken_for_dead(world: World, leases: Leases) -> None:
    """Every other sign says that it may go on: another attempt's fence is up, and both logs stand still."""
    sealed(world.run)
    assert world.run.up is not None
    begin_lifting(ledger_of(dir_of(world.run)), "flow", world.run.up, "guard")
    with pytest.raises(CutoverTakenOver):
        steps.open_target(world.run)
    assert decided(world.run) == (LIFTING, {None})


def test_opening_is_one_record_with_its_topics_and_what_else_belongs_to_it(world: World, leases: Leases) -> None:
    want(world.run, decide_with=lambda _: {"direction/flow": {"v": 1}})
    sealed(world.run)
    records = len(ledger_of(dir_of(world.run)).records)
    steps.open_target(world.run)
    ledger = ledger_of(dir_of(world.run))
    assert len(ledger.records) == records + 1 and ledger.values()["direction/flow"] == {"v": 1}
    assert decided(world.run) == (OPENED, {world.run.plan.hash})


def test_mapped_target_may_have_writers_of_its_own(world: World, leases: Leases) -> None:
    topics = tuple(dataclasses.replace(t, mode="mapped") for t in world.run.plan.topics)
    want(world.run, plan=dataclasses.replace(world.run.plan, topics=topics))
    want(world.run, tail_positions=lambda: ENDS)
    world.target.ends[ORDERS] = 5_000
    sealed(world.run)
    steps.open_target(world.run)


def test_fence_is_not_lifted_while_another_job_holds_the_lease(world: World, leases: Leases) -> None:
    not_kept(world.run)
    sealed(world.run)
    leases.take_by_another_job()
    open_behind(world.run)
    world.run.report.fence.opened = 20.0  # type: ignore[union-attr]
    before = leases.clock
    cutover._finish(world.run)
    assert world.calls == ["lift"] and leases.taken == 2
    assert leases.clock - before == lease.HANDOVER_S  # the other one had to stop first


def test_leftover_fence_is_lifted_by_a_new_process_under_lease(
    world: World, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence that a finished cutover kept is lifted only with include_retained."""
    slept = list[float]()
    on = world.run.on
    monkeypatch.setattr(on.target, "clock", SimpleNamespace(sleep=slept.append))
    report = world.run.report
    report.outcome, report.fence.kept = reports.DONE, True  # type: ignore[union-attr]
    open_behind(world.run)
    world.run.save()
    assert lift_leftover_fence(on, "flow", world.run.fence) == []
    assert lift_leftover_fence(on, "flow", world.run.fence, include_retained=True) != []
    assert slept == [lease.HANDOVER_S] and world.calls == ["lift"]


def test_paused_mirror_is_refused_before_the_fence(world: World, leases: Leases) -> None:
    """Its tail holds the lease, and would never drain; also one that has copied all there is until now."""
    state = world.run.tail_state
    writers.require_tail(world.run)
    wish(state, world.run.mirror.name, "pause", Wish(by="ann@desk", at="noon"))
    with pytest.raises(MirrorPaused, match="paused by ann@desk since noon"):
        writers.require_tail(world.run)


def test_target_behind_without_a_tail_is_refused_before_the_fence(world: World, leases: Leases) -> None:
    world.target.ends[ORDERS] = 90
    writers.require_tail(world.run)  # somebody holds the lease
    leases.holder = None
    with pytest.raises(JobNotRunning, match=r"orders-0 by 10.*start the tail"):
        writers.require_tail(world.run)
    world.target.ends[ORDERS] = 100
    writers.require_tail(world.run)  # nothing left to copy


def test_killed_before_its_lease_is_on_record_wants_a_tail(
    world: World, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try can not know that the lease was its own.

    It took the lease for that of a tail, and fenced the source until the drain timed out.
    """
    world.run.report.steps = [
        StepRecord(name=step, status="running", started=time.time()) for step in ("fence", "stop_writers")
    ]
    world.run.save()
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        killed.setattr(ReportStore, "save", die)
        writers.stop_writers(world.run)
    left = kept_in(dir_of(world.run)).load()
    assert leases.taken == 1 and left is not None and left.lease is None

    monkeypatch.setattr(cutover, "precheck", lambda run: writers.require_tail(run))
    fresh = World(dir_of(world.run), raised=False)
    fresh.source.ends[ORDERS] = 110  # its fence is lifted first, so the source goes on
    with pytest.raises(JobNotRunning, match=r"orders-0 by 10.*start the tail"):
        cutover._run(fresh.run)
    assert fresh.calls == ["lift"]
    assert [u.what for u in kept_in(dir_of(world.run)).load().undone] == [  # type: ignore[union-attr]
        "fence lifted",
        "the tail may have lost its lease: start it again",
        "it is decided that it is lifted",
    ]
    leases.take_by_another_job()  # the tail was started again
    writers.require_tail(fresh.run)


def test_lease_that_another_runs_cutover_took_is_no_tails(world: World, leases: Leases, tmp_path: Path) -> None:
    """Each DAG run has a directory of its own, and knows nothing of the others' attempts."""
    writers.take_lease(world.run)
    other = World(tmp_path / "another run")
    other.target.ends[ORDERS] = 90
    with pytest.raises(JobNotRunning, match="No job holds the mirror's writer lease"):
        writers.require_tail(other.run)


# --- a process that ends behind its decision to open the target ---


def cut_off_behind_opening(world: World) -> World:
    """Return the world as a new process finds it, after one was killed before it could say that the target is open."""
    report = world.run.report
    report.steps = [StepRecord(name=step.name, status="done", started=time.time()) for step in steps.STEPS]
    world.run.save()
    open_behind(world.run)
    fresh = World(dir_of(world.run), raised=False)
    fresh.run.report = CutoverReport(mirror="flow", plan_hash=fresh.run.plan.hash)
    fresh.target.ends[ORDERS] = 150  # applications write there already
    return fresh


def interrupted(_: Attempt) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("keep_fence", [True, False])
def test_killed_behind_its_decision_to_open_a_cutover_goes_forward(
    world: World, leases: Leases, monkeypatch: pytest.MonkeyPatch, keep_fence: bool
) -> None:
    """Whether the fence is kept was decided when it went up."""
    monkeypatch.setattr(cutover, "reverify", lambda run: None)
    if not keep_fence:
        not_kept(world.run)
    found = cut_off_behind_opening(world)
    want(found.run, keep_fence=not keep_fence)
    report = cutover._run(found.run)
    assert report.outcome == reports.DONE and report.undone == []
    assert report.fence is not None and report.fence.opened is not None and report.fence.kept == keep_fence
    assert found.calls == ([] if keep_fence else ["lift"]) and found.fenced == keep_fence


@pytest.mark.parametrize("deaths", [1, 2])
def test_time_until_somebody_goes_on_with_an_opening_is_none_of_the_fence(
    world: World, leases: Leases, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    """The report said that nobody could write for as long as the task was not cleared."""
    monkeypatch.setattr(cutover, "reverify", lambda run: None)
    opened = datetime.fromisoformat(OPENED_AT).timestamp()
    assert world.run.report.fence is not None
    world.run.report.fence.requested = opened - 7
    found = cut_off_behind_opening(world)
    if deaths == 2:
        with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
            killed.setattr(steps, "finish_opening", interrupted)
            cutover._run(found.run)
        found = World(dir_of(world.run), raised=False)
    report = cutover._run(found.run)
    assert report.outcome == reports.DONE and report.opened_at == opened
    assert report.fence is not None and report.fence.seconds == 7.0


@pytest.mark.parametrize("meddle", [lambda w: setattr(w, "fenced", False), lambda w: w.source.ends.update({ORDERS: 101})])
def test_source_open_again_after_an_unfinished_opening_needs_a_human(world: World, leases: Leases, meddle: Any) -> None:
    found = cut_off_behind_opening(world)
    meddle(found)
    with pytest.raises(OpeningUnfinished, match="both clusters may take writes"):
        cutover._run(found.run)
    assert found.calls == [] and leases.taken == 0


def test_teardown_does_not_lift_the_fence_of_an_unfinished_opening(world: World, leases: Leases) -> None:
    found = cut_off_behind_opening(world)
    run = found.run
    with pytest.raises(OpeningUnfinished):
        lift_leftover_fence(run.on, "flow", run.fence, include_retained=True)
    assert found.fenced


def test_fence_of_an_opening_whose_report_is_lost_comes_down_at_a_persons_word(world: World, leases: Leases) -> None:
    """The cutover can't go on without it, and says that. Nothing else would ever lift the fence."""
    found = cut_off_behind_opening(world)
    run, state = found.run, target_of(dir_of(found.run))
    state.write({key: None for key in state.read() if key.startswith("report/")})
    (dir_of(run) / "report.json").unlink(missing_ok=True)
    with pytest.raises(OpeningUnfinished):
        lift_leftover_fence(run.on, "flow", run.fence)
    assert found.fenced
    assert lift_leftover_fence(run.on, "flow", run.fence, include_retained=True) and not found.fenced


def test_target_away_after_it_was_opened_undoes_nothing(
    world: World, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, gone = ReportStore.save, list[str]()

    def away(self: ReportStore, report: CutoverReport) -> None:
        if report.outcome == reports.DONE or gone:
            gone.append("")
            raise TryAgain("no broker answered")
        save(self, report)

    monkeypatch.setattr(ReportStore, "save", away)
    sealed(world.run)
    with pytest.raises(TryAgain, match="no broker answered"):
        steps.walk(world.run, steps.STEPS[-1:])
    assert decided(world.run) == (OPENED, {world.run.plan.hash}) and world.calls == [] and world.fenced
    assert world.run.report.undone == []


def test_opening_that_is_not_decided_is_backed_out(world: World, leases: Leases) -> None:
    """What was to be decided with it fails at the last moment."""

    def refuse(_: object) -> dict[str, Any]:
        raise RuntimeError("its direction is another one")

    want(world.run, decide_with=refuse)
    done = [dataclasses.replace(step, do=lambda _: {}) for step in steps.STEPS if step.name in ("fence", "drain")]
    last = [step for step in steps.STEPS if step.name in ("stop_writers", "seal_target", "open_target")]
    with pytest.raises(RuntimeError, match="direction"):
        steps.walk(world.run, (*done, *last))
    assert world.calls == ["lift"] and decided(world.run) == (LIFTED, {None})
    assert [(u.step, u.what) for u in world.run.report.undone] == [
        ("fence", "fence lifted"),
        ("stop_writers", "the tail has lost its lease: start it again"),
        ("decision", "it is decided that it is lifted"),
    ]
