"""Tasks of which nobody hears any more: neither crew lets anybody else write under their lease."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.results import PartitionResult, add, unheard
from airflow_mirror.copy.spark import attempt
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import HANDOVER_S, LeaseToken
from airflow_mirror.errors import LeaseLost, TryAgain
from airflow_mirror.jobs.driver import held_lease
from airflow_mirror.jobs.driver.held_lease import HeldLease, writer_lease
from airflow_mirror.jobs.driver.rounds import LOSSES
from airflow_mirror.jobs.driver.spark_crew import SparkStream, _has_lost
from airflow_mirror.jobs.driver.tail_states import State
from airflow_mirror.jobs.plain import workers as plain
from airflow_mirror.jobs.runner.wishes import Wish, Wishes
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.content import Writer
from tests.driven.copying import ends, ranges_of
from tests.driven.ledger import LedgerCluster
from tests.driven.script import Fault, Rule
from tests.unit.jobs.losing import TOKEN, Stream, World, copied, nth, ranges
from tests.waiting import Elapsing, wait_until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LedgerCluster]:
    with LedgerCluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def target(cluster: LedgerCluster) -> Iterator[WireCluster]:
    with WireCluster(cluster.config) as wire:
        yield wire


def test_what_a_lost_task_copied_is_not_known_and_its_position_is_that_of_before() -> None:
    known = copied(1)[0]
    (lost,) = unheard(ranges(1), "its executor was lost")
    total = add({known.key: known}, lost)
    assert (total.position, total.records, total.unheard, total.final) == (9, 4, True, False)
    assert (total.going_on().error, known.going_on()) == (None, known)


def test_copying_process_whose_driver_was_killed_amid_an_order_ends() -> None:
    """The thread that hears orders failed at half a line, and the process waited for ever for what it never told."""
    process = plain._start()
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write('{"settings": {"src.prop')
        process.stdin.close()
        assert process.wait(240) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# --- the lease --------------------------------------------------------------------------------------------------------


@contextmanager
def remembering(home: Path, expires_ms: str | None) -> Iterator[LedgerCluster]:
    """A target whose brokers tell when they forget an id, in ms, "" where one hides it; None: nobody may read it."""
    each = [""] if expires_ms is None else expires_ms.split(",")
    with LedgerCluster(home, brokers=len(each)) as cluster:
        for broker, ms in zip(cluster.brokers.values(), each, strict=True):
            broker.settings["transactional.id.expiration.ms"] = ms or None
        if expires_ms is None:
            cluster.script.on("DescribeConfigs", Fault.refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), times=None)
        yield cluster


@pytest.mark.parametrize(
    ("expires_ms", "every_s"),
    [
        *(("604800000", 600.0), ("1800000", 600.0), ("600000", 200.0), ("6000", 2.0), (None, 60.0)),
        *(("604800000,6000,600000", 2.0), ("604800000,", 60.0), (",6000", 2.0)),  # any broker may be its coordinator
    ],
)
def test_a_lease_is_renewed_three_times_before_its_coordinator_forgets_it(
    tmp_path: Path, expires_ms: str | None, every_s: float
) -> None:
    with remembering(tmp_path, expires_ms) as cluster:
        assert held_lease._renew_every_s(cluster.admin) == every_s


@pytest.mark.parametrize(
    ("expires_ms", "wait_s"), [("604800000", 0.0), ("6000", HANDOVER_S), ("604800000,6000", HANDOVER_S)]
)
def test_who_takes_an_unknown_lease_waits_where_one_is_forgotten_soon(
    tmp_path: Path, expires_ms: str, wait_s: float
) -> None:
    """Its last holder was killed some seconds ago, and its tasks may have asked a moment before it was forgotten."""
    with remembering(tmp_path, expires_ms) as cluster:
        asked = time.monotonic()
        with writer_lease(cluster.reference, "m") as held:
            assert asked + wait_s <= held.safe_at <= time.monotonic() + wait_s
            held.all_reported()


def test_a_lease_is_renewed_while_a_broker_that_is_away_has_not_told_how_often(
    cluster: LedgerCluster, target: WireCluster
) -> None:
    ended = Elapsing()
    ended.ends_in(lease.RENEW_AGAIN_S)
    held = HeldLease(target, "m", clock=ended.clock)
    cluster.script.on("DescribeConfigs", Fault.refused(ErrorCode.UNKNOWN_SERVER_ERROR), times=None)
    taken = len(cluster.asked("InitProducerId"))
    held_lease._Keeper(held, cluster.reference).keep(ended)
    assert len(cluster.asked("InitProducerId")) > taken
    lease.confirm(target, held.token)


def test_a_lease_is_short_while_a_cutover_runs_also_one_that_was_withdrawn(
    cluster: LedgerCluster, target: WireCluster
) -> None:
    runs = threading.Event()

    def is_short(token: LeaseToken) -> bool:
        seen = lease.seen_short(target, "m")
        return seen is not None and token.is_short(seen)

    with writer_lease(cluster.reference, "m", runs.is_set) as held:
        assert not is_short(held.token)
        runs.set()
        wait_until(lambda: is_short(held.token), "it is short", 60)
        held.begin()
        held.withdraw()
        wait_until(lambda: is_short(held.token), "it is short", 60)
        runs.clear()
        wait_until(lambda: not is_short(held.token), "it is longer", 60)
        held.all_reported()
    assert lease.take(target, "m").wait_s == 0.0


def test_a_lease_that_was_taken_is_not_tried_to_be_made_short_for_ever(
    cluster: LedgerCluster, target: WireCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    ended = Elapsing()
    held = HeldLease(target, "m", lambda: True, ended.clock)
    keeper = held_lease._Keeper(held, cluster.reference)
    ended.ends_in(60.0)
    keeper.keep(ended)
    assert lease.seen_short(target, "m") is not None
    held.token = replace(held.token, mark_ms=held.token.mark_ms + 1)  # another job's, by now
    ended.ends_in(60.0)
    keeper.keep(ended)
    assert caplog.text.count("not made short") == 1


@pytest.mark.parametrize("reported", [True, False])
def test_a_lease_is_given_back_only_if_every_task_of_it_has_reported(
    cluster: LedgerCluster, target: WireCluster, reported: bool
) -> None:
    with writer_lease(cluster.reference, "m") as held:
        held.begin()
        held.withdraw()
        if reported:
            held.all_reported()
    assert lease.take(target, "m").wait_s == (0.0 if reported else HANDOVER_S)


def test_a_job_that_was_stopped_while_it_waited_gives_no_lease_back(target: WireCluster) -> None:
    """The next one would begin beside the tasks for which this one waited."""
    lease.take(target, "m")
    held = HeldLease(target, "m")
    held.release()
    assert lease.take(target, "m").wait_s == HANDOVER_S
    held.take_back(lambda _: None)
    held.release()
    assert lease.take(target, "m").wait_s == HANDOVER_S


def test_tasks_that_begin_while_the_lease_is_withdrawn_are_waited_for(target: WireCluster) -> None:
    held = HeldLease(target, "m")
    assert held.is_safe and not held.is_in_use
    token = held.begin()
    assert held.is_in_use and not held.is_safe
    held.withdraw()
    assert held.token != token and not held.is_in_use and not held.is_safe
    soon = held.safe_at
    held.withdraw()
    assert held.safe_at == soon, "nobody began in between"
    held.begin()
    assert held.is_in_use


# --- Spark ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Make this thread a task of Spark's; None: it is none."""

    def be(number: int | None) -> None:
        context = None if number is None else SimpleNamespace(attemptNumber=lambda: number)
        found = SimpleNamespace(TaskContext=SimpleNamespace(get=lambda: context))
        monkeypatch.setitem(sys.modules, "pyspark", found)

    return be


def test_only_the_first_attempt_of_a_spark_task_copies(
    spark: Callable[[int | None], None], cluster: LedgerCluster, target: WireCluster, tmp_path: Path
) -> None:
    """Executors that were preempted or decommissioned do not count as failures, so no setting forbids a second one."""
    with LedgerCluster(tmp_path, "source") as source:
        source.create("t", 2), cluster.create("t", 2)
        work = CopyWork(
            source=source.reference, target=cluster.reference, options=CopyOptions(mirror="m"),
            lease=lease.take(target, "m"),
        )  # fmt: skip
        for number, duration_s, writes in (
            *((None, None, True), (0, None, True), (0, 0.0, False)),
            *((1, None, False), (7, None, False)),
        ):
            spark(number)
            for log in source.topics["t"].logs:
                Writer(log).plain(3)
            before = ends(cluster)
            told = attempt.carry_out(work, ranges_of(source, "t"), duration_s)
            results = [PartitionResult(**json.loads(text)) for text in told]
            assert [(r.partition, r.done) for r in results] == [(0, writes), (1, writes)]
            assert [end > was for end, was in zip(ends(cluster), before, strict=True)] == [writes] * 2
            assert [r.unheard for r in results] == [bool(number)] * 2
            assert not number or all("Spark runs its task again" in str(r.error) and not r.final for r in results)


def test_what_a_spark_task_can_not_do_is_its_result(spark: Callable[[int | None], None], cluster: LedgerCluster) -> None:
    """Raised, Spark would run it again, which hides the cause: a second attempt says nothing but that it is one."""
    spark(0)
    work = CopyWork(source="/not/on/this/host", target=cluster.reference, options=CopyOptions(mirror="m"), lease=TOKEN)
    (text,) = attempt.carry_out(work, ranges(1))
    result = PartitionResult(**json.loads(text))
    assert "/not/on/this/host" in str(result.error) and (result.final, result.unheard) == (True, False)


class Tracker:
    """What Spark tells of its jobs: (failed tasks, attempt) of each stage, by job."""

    def __init__(self, jobs: dict[int, list[tuple[int, int] | None]]) -> None:
        self._jobs = jobs

    def statusTracker(self) -> Tracker:
        return self

    def getJobIdsForGroup(self, group: str) -> list[int]:
        return list(self._jobs) if group == "g" else []

    def getJobInfo(self, job: int) -> Any:
        return SimpleNamespace(stageIds=[(job, number) for number in range(len(self._jobs[job]))])

    def getStageInfo(self, stage: tuple[int, int]) -> Any:
        told = self._jobs[stage[0]][stage[1]]
        return None if told is None else SimpleNamespace(numFailedTasks=told[0], currentAttemptId=told[1])


@pytest.mark.parametrize(
    ("jobs", "lost"),
    [
        ({}, False),
        ({3: [(0, 0), None]}, False),
        ({3: [(0, 0), (1, 0)]}, True),
        ({3: [(0, 1)]}, True),
        ({3: [(2, 0)], 4: [(0, 0)]}, False),
    ],
    ids=["no job", "all well", "a task was lost", "a stage again", "the one before"],
)
def test_a_driver_sees_that_spark_has_lost_a_task(jobs: dict[int, Any], lost: bool) -> None:
    assert _has_lost(Tracker(jobs), "g") is lost
    assert not _has_lost(Tracker(jobs), "another")
    stream = SparkStream(SimpleNamespace(runId="g"), None, Tracker(jobs))  # type: ignore[arg-type]
    assert stream.must_restart is lost


# --- plain processes --------------------------------------------------------------------------------------------------


def test_a_process_that_dies_is_not_replaced_under_its_lease(cluster: LedgerCluster) -> None:
    """And the others end soon, so that its partitions need not wait."""
    program = (
        "import json, os, sys\n"
        "task = json.loads(sys.stdin.readline())\n"
        "if task['ranges'][0]['partition'] == 1:\n"
        "    os._exit(9)\n"
        "assert json.loads(sys.stdin.readline()) is None\n"
        "print(json.dumps({'results': []}), flush=True)\n"
    )

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", program], stdin=PIPE, stdout=PIPE, text=True)

    clusters = {"source": cluster.reference, "target": cluster.reference}
    work = CopyWork(**clusters, options=CopyOptions(mirror="m"), lease=TOKEN)
    with plain.workers(2, start) as them:
        results = them.run([ranges(0), ranges(1)], work)
        answers = [one._process.stdout for one in them._all if one._process is not None]
    for answer in answers:
        assert answer is not None
        answer.close()
    assert [(r.partition, r.unheard) for r in results] == [(1, True)]
    assert "ended with status 9" in str(results[0].error)


# --- the tail ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def world(target: WireCluster) -> World:
    return World(target)


def test_the_next_stream_begins_when_a_lost_task_must_have_stopped(world: World, target: WireCluster) -> None:
    begun = world.held.token

    def lose(stream: Stream) -> None:
        stream.take([*copied(0), *unheard(ranges(1), "its executor was lost")])

    world.on_start = nth(world, first=lose, second=lambda _: world.stopping.set())
    world.run()
    first, second = world.streams
    assert first.under == begun and second.under != begun
    assert second.at - first.at >= HANDOVER_S
    assert {r.error for r in world.tail.totals.values()} == {None}, "it goes on"
    world.held.release()
    assert lease.take(target, "m").wait_s == 0.0, "every task of the last lease has reported"


def test_the_next_stream_begins_at_once_where_every_task_has_reported(world: World) -> None:
    """As when another process comes to share the mirror."""

    def change(stream: Stream) -> None:
        stream.must_restart = True  # type: ignore[misc]

    world.on_start = nth(world, first=change, second=lambda _: world.stopping.set())
    world.run()
    first, second = world.streams
    assert first.under != second.under and second.at - first.at < HANDOVER_S


def test_tasks_that_do_not_report_to_a_stop_are_waited_for(world: World, target: WireCluster) -> None:
    def change(stream: Stream) -> None:
        stream.must_restart = True  # type: ignore[misc]

    world.on_start = nth(world, first=change, second=lambda _: world.stopping.set())
    world.on_stop = lambda _: None
    world.run()
    first, second = world.streams
    assert second.at - first.at >= HANDOVER_S
    world.held.release()
    assert lease.take(target, "m").wait_s == HANDOVER_S


def test_no_stream_begins_under_a_lease_whose_withdrawal_failed(world: World, cluster: LedgerCluster) -> None:
    """A pause that is taken back meanwhile is no reason to begin: tasks of the one before may copy for an hour yet."""
    refused = Fault.refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    rules: list[Rule] = []

    def pause(stream: Stream) -> None:
        rules.append(cluster.script.on("InitProducerId", refused, times=3))
        world.there.wishes = Wishes(pause=Wish(by="ann", at="today"))

    def resume(stream: Stream) -> None:
        world.there.wishes = Wishes()
        stream.take(copied(0, 1))

    world.on_start = nth(world, first=pause, second=lambda _: world.stopping.set())
    world.on_stop = resume
    world.run()
    first, second = world.streams
    assert len(rules[0].hits) == 3 and first.under != second.under


def test_a_paused_tail_rests_only_when_a_lost_task_must_have_stopped(world: World) -> None:
    paused_at: list[float] = []
    update = world.status.update

    def note(phase: str | None = None, **others: Any) -> None:
        if phase == "paused":
            paused_at.append(world.stopping.now)
            world.stopping.set()
        update(phase, **others)

    world.status.update = note  # type: ignore[method-assign, assignment]

    def pause(_: Stream) -> None:
        world.there.wishes = Wishes(pause=Wish(by="ann", at="today"))

    world.on_start, world.on_stop = pause, lambda _: None
    world.run()
    assert paused_at[0] - world.streams[0].at >= HANDOVER_S


def test_a_paused_tail_that_loses_its_lease_may_be_stopped(world: World) -> None:
    """Nobody takes the lease back for it, and nothing is copied any more."""

    def lose() -> None:
        world.stopping.set()
        raise LeaseLost("airflow-mirror:lease:m", 2, "epoch 3")

    world.there.wishes = Wishes(pause=Wish(by="ann", at="today"))
    world.on_look = lose
    world.run()
    assert world.tail.state is State.RESTING and not world.streams


def test_a_tail_whose_tasks_are_lost_at_once_each_time_ends(world: World) -> None:
    world.on_start = lambda stream: stream.take(unheard(ranges(0, 1), "its executor was lost"))
    with pytest.raises(TryAgain, match="its executor was lost"):
        world.run()
    assert len(world.streams) == LOSSES


def test_a_failing_tail_does_not_wait_for_a_coordinator_that_is_away(cluster: LedgerCluster) -> None:
    """Nobody follows it, and the lease stays held."""

    def fail(stream: Stream) -> None:
        cluster.script.on(None, Fault.not_arrived(), times=None)
        stream.is_running = False

    with WireCluster(cluster.config, timeout_s=0.2) as impatient:
        world = World(impatient)
        world.on_start = fail
        with pytest.raises(TryAgain, match="no turn follows"):
            world.run()
    cluster.script.clear()
    assert world.held.is_in_use
