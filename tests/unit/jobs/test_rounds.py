"""A bulk copy that hears what is wished of its mirror while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult, unheard
from airflow_mirror.copy.writer import handover, lease
from airflow_mirror.copy.writer.lease import HANDOVER_S, LeaseToken
from airflow_mirror.errors import TryAgain
from airflow_mirror.jobs.driver.held_lease import HeldLease
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.jobs.driver.rounds import LOSSES, Ear, copy_in_rounds, listening
from airflow_mirror.jobs.runner.active import Heartbeat, JobId, said
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.jobs.runner.wishes import Wish, Wishes, wish
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.records import BULK
from airflow_mirror.mirror import Mirror
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from tests.builders import plan_of, topic_plan
from tests.driven.ledger import LedgerCluster
from tests.driven.script import Fault, Request, Rule
from tests.unit.ledger.memory import MemoryState
from tests.waiting import wait_until

ENDS = {0: 100, 1: 100, 2: 100}
FAST = 100  # so many seconds in one


def fast_clock() -> float:
    return time.monotonic() * FAST


class Bulk:
    """A bulk copy whose tasks copy ten offsets of each partition at a time, in memory; its target has a ledger.

    :param clock: by which its driver waits for tasks that it does not hear.
    :ivar rounds: what was wished in each round, and its partitions. :ivar during: called after each ten offsets.
    :ivar begun_at: of each round, by the clock; ``withdrawn_at``: when its lease was withdrawn.
    :ivar lost: partitions of a task that is lost in the present round.
    :ivar half_withdrawn: the token of which tasks see already that it is lost.
    """

    def __init__(self, cluster: LedgerCluster, wire: WireCluster, clock: Callable[[], float] = fast_clock) -> None:
        self.cluster, self.state, self.wire, self.clock = cluster, cluster.state, wire, clock
        self.held = HeldLease(wire, "m", clock=clock)
        self.withdrawn_at, self.begun_at, self.lost = list[float](), list[float](), set[int]()
        self.status = StatusFile(None)
        self.position = dict.fromkeys(ENDS, 0)
        self.rounds: list[tuple[int | None, list[int]]] = []
        self.during: Callable[[int], None] = lambda _: None
        self.taken_by_another = self.has_failed = False
        self.half_withdrawn: LeaseToken | None = None
        note = Fault(after=lambda _: self.withdrawn_at.append(self.clock()))
        cluster.script.on("InitProducerId", note, times=None, when=is_withdrawal)

    def refuse_withdrawals(self, times: int) -> Rule:
        """Have the coordinator refuse so many of them."""
        refused = Fault.refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return self.cluster.script.on("InitProducerId", refused, times=times, when=lambda r: r.message.transactional_id)

    def take_lease(self) -> None:
        """Take it, as another job does."""
        with WireCluster(self.cluster.config) as another:
            lease.take(another, "m")
        self.taken_by_another = True

    def run(self) -> list[PartitionResult]:
        plan = plan_of(Mirror(name="m", source="a", target="b"), topic_plan("t", {0: 0}, source_topic_id="id"))
        job = CopyJob(
            mirror=plan.mirror, source="a", target=self.cluster.reference, plan=plan, options=CopyOptions(mirror="m")
        )
        ranges = [
            CopyRange(source_topic="t", target_topic="t", partition=p, start_offset=0, end_offset=end)
            for p, end in ENDS.items()
        ]
        lost, failed = (lambda: bool(self.lost)), (lambda: self.has_failed)
        with listening(job, self.held, self.status, Wishes(), failed, lost, every_s=0.01) as ear:
            return copy_in_rounds(ranges, self.copy, ear, self.held, lambda: None)

    def copy(self, ranges: Sequence[CopyRange], wishes: Wishes, token: LeaseToken) -> list[PartitionResult]:
        self.status.update("copying")
        self.begun_at.append(self.clock())
        self.rounds.append(
            (None if wishes.rate is None else wishes.rate.max_bytes_per_second, [r.partition for r in ranges])
        )
        before = dict(self.position)
        for r in ranges:
            while self.position[r.partition] < ENDS[r.partition] and not self.is_lost(token):
                self.position[r.partition] += 10
                self.during(sum(self.position.values()))
        lost, self.lost = self.lost, set()
        told = [self.result(r.partition, before[r.partition]) for r in ranges if r.partition not in lost]
        return told + unheard([r for r in ranges if r.partition in lost], "its executor was lost") if lost else told

    def is_lost(self, token: LeaseToken) -> bool:
        return self.taken_by_another or token == self.half_withdrawn or self.held.token != token

    def result(self, p: int, before: int) -> PartitionResult:
        done = self.position[p] == ENDS[p]
        return PartitionResult(
            topic="t", target_topic="t", partition=p, target_partition=p, position=self.position[p], done=done,
            records=self.position[p] - before, lease_lost=not done, final=not done, error=None if done else "lease lost",
        )  # fmt: skip

    def wish(self, kind: str, value: Wish | None) -> None:
        wish(self.state, "m", kind, value)

    def heard(self) -> None:
        """Return when the lease was withdrawn."""
        token = self.held.token
        wait_until(lambda: self.held.token != token)


@pytest.fixture
def wire(ledger_target: LedgerCluster) -> Iterator[WireCluster]:
    with WireCluster(ledger_target.config) as wire:
        yield wire


@pytest.fixture
def bulk(ledger_target: LedgerCluster, wire: WireCluster) -> Bulk:
    return Bulk(ledger_target, wire)


def is_withdrawal(request: Request) -> bool:
    """Whether it is the second request of one: the first one's timeout is nobody's mark."""
    return request.version >= 3 and request.message.transaction_timeout_ms > handover.RELEASED_MS


def at(offset: int, do: Callable[[], None]) -> Callable[[int], None]:
    return lambda reached: do() if reached == offset else None


def test_without_wishes_there_is_one_round(bulk: Bulk) -> None:
    assert [r.records for r in bulk.run()] == [100, 100, 100] and bulk.rounds == [(None, [0, 1, 2])]


def test_another_rate_holds_for_what_is_left(bulk: Bulk) -> None:
    """What was copied is counted once, over both rounds, and the lost lease of the first one is no error."""

    def slow_down() -> None:
        bulk.wish("rate", Wish.now(7))
        bulk.heard()

    bulk.during = at(150, slow_down)
    results = bulk.run()
    assert bulk.rounds == [(None, [0, 1, 2]), (7, [1, 2])]
    assert [(r.records, r.done, r.error) for r in results] == [(100, True, None)] * 3


def test_a_paused_copy_rests_until_it_is_resumed(bulk: Bulk) -> None:
    """Who pauses it finds it in the state, and sees there that it rests."""
    seen: list[int] = []

    def resume() -> None:
        wait_until(lambda: bulk.status.brief()["phase"] == "paused")
        wait_until(lambda: any(b'"phase":"paused"' in value for value in bulk.state.read().values()))
        assert said(BULK, bulk.state.read(), "m")
        seen.append(sum(bulk.position.values()))
        bulk.wish("pause", None)

    def pause() -> None:
        bulk.wish("pause", Wish.now())
        bulk.heard()
        threading.Thread(target=resume).start()

    bulk.during = at(150, pause)
    assert sum(r.records for r in bulk.run()) == 300
    assert seen == [150] and len(bulk.rounds) == 2 and not bulk.state.read()


@pytest.mark.parametrize("is_lost", [False, True], ids=["ours", "another's"])
def test_what_an_earlier_copy_left_that_was_killed_goes_with_the_one_that_copied_in_its_place(
    bulk: Bulk, is_lost: bool
) -> None:
    """It was lost for ever, for whoever looked at the mirror. Without the lease nobody knows whether it was killed."""
    killed = JobId(name="m", host="h", where="h", bulk=True)
    Heartbeat(bulk.state, killed).give("RUNNING")

    def during() -> None:
        wait_until(lambda: len(said(BULK, bulk.state.read(), "m")) == 2)
        if is_lost:
            bulk.take_lease()

    bulk.during = at(150, during)
    bulk.run()
    assert said(BULK, bulk.state.read(), "m") == ([killed] if is_lost else [])
    assert is_lost or not bulk.state.read()


def test_a_lease_that_another_job_took_ends_the_copy(bulk: Bulk) -> None:
    bulk.during = at(150, bulk.take_lease)
    results = bulk.run()
    assert [r.error for r in results] == [None, "lease lost", "lease lost"] and len(bulk.rounds) == 1


def test_a_withdrawal_that_failed_is_tried_again(bulk: Bulk) -> None:
    """Otherwise the tasks would go on at the old rate to their ends."""
    refused = bulk.refuse_withdrawals(3)

    def slow_down() -> None:
        bulk.wish("rate", Wish.now(7))
        bulk.heard()

    bulk.during = at(150, slow_down)
    bulk.run()
    assert [rate for rate, _ in bulk.rounds] == [None, 7] and len(refused.hits) == 3


def test_a_withdrawal_that_got_half_way_is_completed(bulk: Bulk) -> None:
    """Its coordinator failed over between its two requests: who holds the lease is not another job."""
    refused = Fault.refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    bulk.cluster.script.clear()
    second = bulk.cluster.script.on("InitProducerId", refused, times=2, when=is_withdrawal)

    def slow_down() -> None:
        bulk.wish("rate", Wish.now(7))
        bulk.heard()

    bulk.during = at(150, slow_down)
    results = bulk.run()
    assert [rate for rate, _ in bulk.rounds] == [None, 7] and len(second.hits) == 2
    assert all(result.done for result in results)


def test_tasks_that_end_while_the_lease_is_half_withdrawn_go_on_in_the_next_round(
    bulk: Bulk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lose it by the first of the two requests."""
    bulk.cluster.script.clear()
    second = bulk.cluster.script.on("InitProducerId", Fault(hold=True), when=is_withdrawal)

    def slow_down() -> None:
        bulk.wish("rate", Wish.now(7))
        second.wait()
        bulk.half_withdrawn = bulk.held.token

    def all_reported() -> None:
        HeldLease.all_reported(bulk.held)
        second.release()

    monkeypatch.setattr(bulk.held, "all_reported", all_reported)
    bulk.during = at(150, slow_down)
    results = bulk.run()
    assert [rate for rate, _ in bulk.rounds] == [None, 7]
    assert [(r.done, r.error) for r in results] == [(True, None)] * 3


def test_a_target_without_a_ledger_gets_no_signs(tmp_path: Path) -> None:
    with LedgerCluster(tmp_path) as cluster, WireCluster(cluster.config) as wire:
        cluster.delete(DECISIONS)
        bulk = Bulk(cluster, wire)
        bulk.during = at(150, lambda: wait_until(lambda: bool(cluster.asked("ListOffsets", "Fetch"))))  # it hears wishes
        bulk.run()
        assert not cluster.asked("Produce")
        bulk.wish("rate", Wish.now(7))
        assert cluster.asked("Produce"), "it would have been seen"


def test_a_failure_that_is_to_end_the_copy_ends_all_its_tasks_and_no_round_follows(bulk: Bulk) -> None:
    def fail(copied: int) -> None:
        bulk.has_failed = True
        token = bulk.held.token
        wait_until(lambda: bulk.held.token != token)

    bulk.during = fail
    results = bulk.run()
    assert len(bulk.rounds) == 1 and not any(r.done for r in results)
    assert [r.error for r in results] == [None] * len(ENDS), "none of these has failed"


# --- what is heard while a round begins -------------------------------------------------------------------------------


def between(bulk: Bulk, monkeypatch: pytest.MonkeyPatch, rounds: int, do: Callable[[], None]) -> None:
    """Do something behind so many rounds, once it was seen that the next one may begin, and wait until it is heard."""
    begin, left = bulk.held.begin, [do]

    def slow() -> LeaseToken:
        if len(bulk.rounds) == rounds and left:
            token = bulk.held.token
            left.pop()()
            wait_until(lambda: bulk.held.token != token)
        return begin()

    monkeypatch.setattr(bulk.held, "begin", slow)


def test_a_pause_that_is_heard_while_a_round_begins_is_heeded(bulk: Bulk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is withdrawn before a task has it, so none would lose it."""
    copied: list[list[int]] = []

    def resume() -> None:
        wait_until(lambda: bulk.status.brief()["phase"] == "paused" or bool(bulk.rounds))
        copied.append(list(bulk.position.values()))
        bulk.wish("pause", None)

    def pause() -> None:
        bulk.wish("pause", Wish.now())
        threading.Thread(target=resume).start()

    between(bulk, monkeypatch, 0, pause)
    assert [r.records for r in bulk.run()] == [100, 100, 100]
    assert copied == [[0, 0, 0]] and len(bulk.rounds) == 1


def test_a_rate_that_is_heard_while_a_round_begins_is_its_rate(bulk: Bulk, monkeypatch: pytest.MonkeyPatch) -> None:
    between(bulk, monkeypatch, 0, lambda: bulk.wish("rate", Wish.now(7)))
    bulk.run()
    assert bulk.rounds == [(7, [0, 1, 2])] and bulk.held.is_safe


def test_a_failure_that_is_seen_while_a_round_begins_lets_none_begin(bulk: Bulk, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_down() -> None:
        bulk.wish("rate", Wish.now(7))
        bulk.heard()

    def fail() -> None:
        bulk.has_failed = True

    bulk.during = at(150, slow_down)
    between(bulk, monkeypatch, 1, fail)
    results = bulk.run()
    assert len(bulk.rounds) == 1 and [r.done for r in results] == [True, False, False] and bulk.held.is_safe


# --- tasks of which nobody hears any more -----------------------------------------------------------------------------


def lose(bulk: Bulk, *partitions: int) -> Callable[[], None]:
    return lambda: bulk.lost.update(partitions)


@pytest.mark.parametrize("refusals", [0, 3])
def test_nobody_copies_what_a_lost_task_had_until_it_must_have_stopped(bulk: Bulk, refusals: int) -> None:
    """It holds the lease of its round, and may write until that was withdrawn, and for seven seconds then."""
    bulk.refuse_withdrawals(refusals)
    bulk.during = at(150, lose(bulk, 1))
    results = bulk.run()
    assert len(bulk.rounds) == 2 and 1 in bulk.rounds[1][1]
    (withdrawn_at,) = bulk.withdrawn_at
    assert bulk.begun_at[1] >= withdrawn_at + HANDOVER_S
    assert sorted((r.partition, r.done, r.error) for r in results) == [(p, True, None) for p in ENDS]
    assert bulk.held.is_safe


def test_the_others_end_early_when_a_task_is_lost(bulk: Bulk) -> None:
    """Its partitions would stand still until the longest of the others is at its end."""

    def wait() -> None:
        lose(bulk, 0)()
        bulk.heard()

    bulk.during = at(10, wait)
    bulk.run()
    assert [partitions for _, partitions in bulk.rounds] == [[0, 1, 2], [0, 1, 2]]


def test_a_wish_does_not_cut_short_what_a_lost_task_is_waited_for(bulk: Bulk) -> None:
    """The lease is withdrawn for the wish, the others report, and one is not heard."""

    def slow_down() -> None:
        bulk.wish("rate", Wish.now(7))
        bulk.heard()
        lose(bulk, 2)()

    bulk.during = at(150, slow_down)
    bulk.run()
    assert bulk.begun_at[1] >= bulk.withdrawn_at[0] + HANDOVER_S


def test_a_wish_is_followed_at_once_where_every_task_has_reported(
    ledger_target: LedgerCluster, wire: WireCluster
) -> None:
    bulk = Bulk(ledger_target, wire, clock=lambda: 0.0)  # by which it would wait for ever

    def slow_down() -> None:
        bulk.wish("rate", Wish.now(7))
        bulk.heard()

    bulk.during = at(150, slow_down)
    bulk.run()
    assert [rate for rate, _ in bulk.rounds] == [None, 7]


def test_tasks_that_are_lost_again_and_again_end_the_copy_and_the_lease_stays_held(bulk: Bulk) -> None:
    def lose_it(_: int) -> None:
        lose(bulk, 1)()
        bulk.position[1] = min(bulk.position[1], 90)

    bulk.during = lose_it
    errors = {r.partition: r.error for r in bulk.run()}
    assert len(bulk.rounds) == LOSSES
    assert errors[1] is not None and "its executor was lost" in errors[1] and errors[0] is errors[2] is None
    bulk.held.release()
    assert lease.is_anybody_writing(bulk.wire, "m")
    bulk.held.all_reported()
    bulk.held.release()
    assert not lease.is_anybody_writing(bulk.wire, "m")


def test_a_lost_task_and_a_lease_that_another_job_took_end_the_copy(bulk: Bulk) -> None:
    def take() -> None:
        lose(bulk, 0, 1, 2)()
        bulk.take_lease()

    bulk.during = at(10, take)
    results = bulk.run()
    assert [r.error for r in results] == ["lease lost"] * 3 and len(bulk.rounds) == 2


def test_copy_takes_its_leave_once_the_ledger_has_a_leader_again(bulk: Bulk) -> None:
    """It was told once, for five seconds; an election takes nine, and a copy that ended well was shown as lost."""
    me, state = JobId(name="m", bulk=True), MemoryState()
    heartbeat, away = Heartbeat(state, me), 2
    heartbeat.give(RUNNING, phase="copying")
    assert said(BULK, state.read(), "m")
    write = state.write

    def no_leader(values: Mapping[str, Any], permit: Permit = unfenced) -> None:
        nonlocal away
        away -= 1
        if away >= 0:
            raise TryAgain("airflow-mirror.state: could not be written", "no broker answered")
        write(values, permit)

    state.write = no_leader  # type: ignore[method-assign]
    ear = Ear(me, "dst", bulk.held, StatusFile(None), Wishes(), lambda: False, lambda: False, every_s=0.01)
    ear._leave(heartbeat)
    assert away < 0 and not said(BULK, state.read(), "m")
