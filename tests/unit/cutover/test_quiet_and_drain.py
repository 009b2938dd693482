"""What is believed of a fence, and of a target that has caught up: each wrong yes would lose records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.drain import drain, verify
from airflow_mirror.cutover.quiet import longest_pause, prove_fence, stand_still
from airflow_mirror.cutover.report import FenceRecord
from airflow_mirror.errors import (
    BrokerError,
    CutoverCancelled,
    DrainTimedOut,
    FenceGone,
    FenceLeaks,
    MirrorPaused,
    PlanOutdated,
    TargetMoved,
    TransactionsOpen,
    VerificationFailed,
)
from airflow_mirror.jobs.runner.wishes import Wish, wish
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.kafka.transactions import OpenTransaction
from airflow_mirror.verify.result import LogBounds, PartitionComparison
from tests.unit.cutover.builders import Acls, Logs, a_run, want

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
ENDS = {ORDERS: 100, PAYMENTS: 7}


class Source(Logs):
    """A source whose last stable offsets may stay behind its ends."""

    def __init__(self) -> None:
        super().__init__(ENDS)
        self.open: dict[TopicPartition, int] = {}

    def last_stable(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.open.get(tp, self.ends[tp]) for tp in tps}


class Transactions(Acls):
    """A source whose open transactions all are seen."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[OpenTransaction] = []

        self.names = ["orders", "payments"]
        self.partitions = 1

    def open_transactions(self) -> list[OpenTransaction]:
        return self.open

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, f"id-{name}", self.partitions, 1) for name in names}


class World:
    """A fenced source, and a clock on which things happen: ``at[n]`` is called at the n-th wait."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fenced, self.clock, self.waits, self.records = True, 0.0, 0, 0
        self.at: dict[int, Callable[[], object]] = {}
        self.source, self.target = Source(), Logs(ENDS)
        self.run = a_run(tmp_path, CallableFence(lambda: None, lambda: None, lambda: self.fenced))
        self.run.on.source.log, self.run.on.target.log = self.source, self.target  # type: ignore[assignment]
        self.run.on.source.admin = self.transactions = Transactions()  # type: ignore[assignment]
        self.run.report.fence = FenceRecord(kind="callable", intent={}, requested=10.0, unseen="")
        monkeypatch.setattr("airflow_mirror.cutover.quiet.written_by", lambda *_: ["somebody wrote"] * self.records)
        monkeypatch.setattr(lease, "seen_short", lambda *_: None)
        monkeypatch.setattr(Attempt, "now", lambda _: self.clock)
        monkeypatch.setattr("airflow_mirror.cutover.drift.missing_topics", lambda _, source: source.names[2:])
        monkeypatch.setattr(Attempt, "pause", lambda _, seconds=None: self._pause(seconds))

    def proven(self) -> World:
        self.run.report.ends = [{"topic": tp.topic, "partition": tp.partition, "end": end} for tp, end in ENDS.items()]
        return self

    def _pause(self, seconds: float | None) -> None:
        self.waits += 1
        self.clock += 0.5 if seconds is None else seconds
        self.at.get(self.waits, lambda: None)()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_fence_is_proven_by_ends_that_stand_still_throughout(world: World) -> None:
    assert prove_fence(world.run)["markers_after_fence"] == 0
    assert world.run.ends == ENDS
    assert world.clock == world.run.limits.settle_s, "the tail ends meanwhile"
    world.clock += 1  # as it takes to drain
    assert stand_still(world.run) == {"quiet_s": world.run.limits.quiet_s}
    assert world.clock == world.run.limits.settle_s + world.run.limits.quiet_s


def test_ends_stand_still_for_the_longest_pause_of_a_producer(world: World) -> None:
    """Between two writes to one partition: others that write more often say nothing about it."""
    want(world.run, limits=replace(world.run.limits, quiet_at_most_s=10.0, poll_s=0.5))
    for wait in (2, 3, 4, 13):  # half a second each
        world.at[wait] = lambda: world.source.ends.update({PAYMENTS: world.source.ends[PAYMENTS] + 1})
    for wait in range(1, 20):
        world.at.setdefault(wait, lambda: world.source.ends.update({ORDERS: world.source.ends[ORDERS] + 1}))
    world.run.longest_pause_s = longest_pause(world.run)
    assert (world.run.longest_pause_s, world.clock) == (4.5, 10.0)
    world.at.clear()
    prove_fence(world.run)
    assert stand_still(world.run)["quiet_s"] == 5.0
    assert world.clock == 10.0 + world.run.limits.settle_s + 5.0


def test_marker_is_no_leak_but_restarts_the_quiet_time(world: World) -> None:
    """Where transactions may be unseen, all of that time is over before the tail is ended: it has to copy the marker."""
    assert world.run.report.fence is not None
    world.run.report.fence.unseen = "brokers before 3.0 do not list transactions"
    world.at[6] = lambda: world.source.ends.update({ORDERS: 101})  # 2.5 s into the quiet time
    assert prove_fence(world.run)["markers_after_fence"] == 1
    assert world.run.ends == {**ENDS, ORDERS: 101}
    assert world.clock == world.run.limits.settle_s + 2.5 + world.run.limits.quiet_s


@pytest.mark.parametrize("unseen", ["", "brokers before 3.0 do not list transactions"])
def test_a_record_behind_the_fence_is_a_leak(world: World, unseen: str) -> None:
    assert world.run.report.fence is not None
    world.records, world.run.report.fence.unseen = 1, unseen
    world.at[3] = lambda: world.source.ends.update({ORDERS: 101})
    with pytest.raises(FenceLeaks, match=r"orders-0: 100 -> 101; somebody wrote\)"):
        prove_fence(world.run)
        assert not unseen
        stand_still(world.run)


def test_log_end_that_goes_back_is_a_leak(world: World) -> None:
    world.at[3] = lambda: world.source.ends.update({ORDERS: 99})
    prove_fence(world.run)
    with pytest.raises(FenceLeaks, match="orders-0"):
        stand_still(world.run)


def test_an_open_transaction_is_waited_for_and_then_named(world: World) -> None:
    """What it holds is neither committed nor aborted yet: the ends do not say what the target must hold."""
    world.source.open[PAYMENTS] = 5
    with pytest.raises(TransactionsOpen, match="payments-0"):
        prove_fence(world.run)
    assert world.clock > world.run.limits.transactions_timeout_s


HOLDS = OpenTransaction(
    transactional_id="billing", producer_id=7001, epoch=3, state="Ongoing", started_ms=1_700_000_000_000,
    partitions=frozenset({PAYMENTS, TopicPartition("x", 1)}),
)  # fmt: skip
ELSEWHERE = replace(HOLDS, transactional_id="other", partitions=frozenset({TopicPartition("x", 1)}))


def test_transaction_without_data_is_waited_for_and_then_named(world: World) -> None:
    """It holds back no stable offset, and its marker would land behind the proven ends."""
    world.transactions.open = [ELSEWHERE, HOLDS]
    named = (
        r"90 s after the fence.*transactional id 'billing' \(producer 7001, epoch 3, Ongoing since "
        r"2023-11-14T22:13:20\+00:00\) holds payments-0"
    )
    with pytest.raises(TransactionsOpen, match=named) as caught:
        prove_fence(world.run)
    assert len(caught.value.held) == 1 and world.clock > world.run.limits.transactions_timeout_s


def test_marker_of_a_transaction_that_ended_is_below_the_proven_ends(world: World) -> None:
    """It lands between the look at the transactions and the look at the ends, or before both."""
    world.transactions.open = [HOLDS]

    def end() -> None:
        world.transactions.open = [ELSEWHERE]
        world.source.ends[PAYMENTS] += 1

    world.at[4] = end
    found = prove_fence(world.run)
    assert world.run.ends == {**ENDS, PAYMENTS: 8} and found["markers_after_fence"] == 1
    assert [line.split()[2] for line in found["transactions_waited_for"]] == ["'billing'"]
    assert world.clock == world.run.limits.settle_s + 2.0
    stand_still(world.run)
    assert world.clock == world.run.limits.settle_s + 1.5 + world.run.limits.quiet_s


def test_transactions_that_may_be_hidden_end_the_identical_way_back(world: World) -> None:
    assert world.run.report.fence is not None
    world.run.report.fence.unseen = "brokers before 3.0 do not list transactions"
    world.transactions.open = [HOLDS]  # nobody looks: what is not there would prove nothing
    assert prove_fence(world.run)["no_identical_way_back"].startswith("brokers before 3.0")


def test_a_fence_that_somebody_took_away_is_not_proven(world: World) -> None:
    world.at[4] = lambda: setattr(world, "fenced", False)
    prove_fence(world.run)
    with pytest.raises(FenceGone):
        stand_still(world.run)


def test_a_target_one_record_behind_is_waited_for(world: World) -> None:
    world.proven().target.ends[ORDERS] = 99
    world.at[5] = lambda: world.target.ends.update({ORDERS: 100})
    assert drain(world.run) == {"lag_at_start": 1}
    assert world.waits == 5
    drained, rows = world.run.report.drained, world.run.report.lags
    assert drained["total"] == 1 and [name for name, _ in drained["top"]] == ["orders-0"] and drained["top"][0][1] > 0
    assert rows[-1]["copied"] - rows[0]["copied"] == 1


def test_a_target_that_stays_behind_is_named_in_time(world: World) -> None:
    world.proven().target.ends[ORDERS] = 99
    with pytest.raises(DrainTimedOut, match="orders-0"):
        drain(world.run)


def test_target_beyond_the_fenced_end_has_another_writer(world: World) -> None:
    world.proven().target.ends[ORDERS] = 101
    with pytest.raises(TargetMoved, match="orders-0"):
        drain(world.run)


def test_leak_that_the_tail_has_copied_is_no_other_writer_of_the_target(world: World) -> None:
    world.proven().target.ends[ORDERS] = world.source.ends[ORDERS] = 101
    world.records = 1
    with pytest.raises(FenceLeaks, match="orders-0"):
        drain(world.run)


@pytest.mark.parametrize("what", [{"partitions": 2}, {"names": ["orders", "payments", "refunds"]}])
def test_what_came_since_the_fence_was_planned_ends_it(world: World, what: dict[str, Any]) -> None:
    """It may have taken records before the fence; nobody copies them."""
    vars(world.transactions).update(what)
    with pytest.raises(PlanOutdated, match="partitions|refunds"):
        prove_fence(world.run)


def test_a_source_that_leaks_while_the_target_drains_is_found(world: World) -> None:
    world.proven().target.ends[ORDERS] = 99
    world.records = 1
    world.at[2] = lambda: world.source.ends.update({PAYMENTS: 8})
    with pytest.raises(FenceLeaks, match="payments-0"):
        drain(world.run)


def test_a_mirror_paused_while_it_drains_backs_out_at_once(world: World) -> None:
    world.proven().target.ends[ORDERS] = 99
    state = world.run.tail_state
    world.at[3] = lambda: wish(state, world.run.mirror.name, "pause", Wish(by="ann@desk", at="noon"))
    with pytest.raises(MirrorPaused, match="paused by ann@desk since noon"):
        drain(world.run)
    assert world.clock < world.run.limits.drain_timeout_s / 10


def compared(topic: str, *, equal: bool) -> PartitionComparison:
    log = LogBounds(0, 7, 7)
    return PartitionComparison(
        source_topic=topic,
        target_topic=topic,
        partition=0,
        start_offset=0,
        end_offset=7,
        records=7,
        bytes=70,
        equal=equal,
        first_difference=None,
        offsets_equal=True,
        source_log=log,
        target_log=log,
    )


@pytest.mark.parametrize("last_is_equal", [True, False])
def test_one_partition_that_differs_fails_the_whole_verification(world: World, last_is_equal: bool) -> None:
    found: Sequence[PartitionComparison] = [compared("orders", equal=True), compared("payments", equal=last_is_equal)]
    want(world.proven().run, verify=lambda _: found)
    if last_is_equal:
        assert verify(world.run) == {"partitions": 2, "records": 14}
    else:
        with pytest.raises(VerificationFailed, match="payments-0"):
            verify(world.run)


def test_error_of_the_comparison_is_the_cutovers(world: World) -> None:
    def fail(_: object) -> Sequence[PartitionComparison]:
        raise BrokerError("fetch", 6, "NOT_LEADER_OR_FOLLOWER")

    want(world.proven().run, verify=fail)
    with pytest.raises(BrokerError, match="NOT_LEADER"):
        verify(world.run)


@pytest.mark.parametrize(("what", "error"), [("stop", CutoverCancelled), ("leak", FenceLeaks)])
def test_long_comparison_is_abandoned_on_stop_or_leak(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str, error: type[Exception]
) -> None:
    released = threading.Event()

    def endless(_: object) -> Sequence[PartitionComparison]:
        released.wait(60)
        return []

    def tick(_: Attempt) -> float:
        world.clock += 1
        return world.clock

    monkeypatch.setattr(Attempt, "now", tick)
    want(world.proven().run, verify=endless)
    if what == "stop":
        world.run.stop.set()
    else:
        world.records = 1
        world.source.ends[ORDERS] = 101
    try:
        with pytest.raises(error):
            verify(world.run)
        assert not released.is_set()
    finally:
        released.set()


def test_partitions_with_mapped_offsets_are_drained_by_the_map(world: World) -> None:
    """What the target's log says is in the offsets of the other side."""
    topics = world.run.plan.topics
    want(world.run, plan=replace(world.run.plan, topics=(topics[0], replace(topics[1], mode="mapped"))))
    reached = {PAYMENTS: 5}
    want(world.run, tail_positions=lambda: reached)
    world.proven().target.ends[PAYMENTS] = 4_000
    world.at[3] = lambda: reached.update({PAYMENTS: 7})
    assert drain(world.run) == {"lag_at_start": 2}
