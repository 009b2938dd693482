"""The log of decisions on a cluster: answers that are lost, leaders that move, records that are gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.errors import DecidedLate, LedgerLost, MissingRight, RequestRefused
from airflow_mirror.ledger.deciding import catch_up, decide
from airflow_mirror.ledger.fold import Fold
from airflow_mirror.ledger.log import DecisionLog
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster, topic_config
from tests.driven.content import Writer
from tests.driven.log import PartitionLog
from tests.driven.script import Fault
from tests.unit.ledger.patience import tries


@pytest.fixture
def cluster() -> Iterator[DrivenCluster]:
    with DrivenCluster(brokers=2) as cluster:
        cluster.create(DECISIONS, config=topic_config({"message.timestamp.type": "LogAppendTime"}))
        yield cluster


@pytest.fixture
def log(cluster: DrivenCluster) -> Iterator[DecisionLog]:
    with WireCluster(cluster.config) as wire:
        yield DecisionLog(wire)


@pytest.fixture
def stored(cluster: DrivenCluster) -> PartitionLog:
    return cluster.log(TopicPartition(DECISIONS, 0))


def add_one(log: DecisionLog, fold: Fold | None = None) -> None:
    assert decide(log, fold or Fold(), lambda values: {"n": values.get("n", 0) + 1}, tries(20)) is not None


def counted(log: DecisionLog) -> int:
    fold = Fold()
    catch_up(log, fold)
    return int(fold.values["n"])


@pytest.mark.parametrize(
    "fault",
    [
        Fault(answer_bytes=0),
        Fault(effect=False, answer_bytes=0),
        Fault(effect=False, code=ErrorCode.NOT_ENOUGH_REPLICAS),
        Fault(code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        Fault(effect=False, code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Fault(code=ErrorCode.REQUEST_TIMED_OUT),
    ],
    ids=["answer lost", "request lost", "too few replicas", "after append", "not leader", "timed out"],
)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_each_doubtful_append_counts_once(cluster: DrivenCluster, log: DecisionLog, fault: Fault, nth: int) -> None:
    rule = cluster.script.on("Produce", fault, nth=nth)
    for _ in range(3):
        add_one(log)
    assert len(rule.hits) == 1 and counted(log) == 3


def test_leader_that_moves_is_followed(cluster: DrivenCluster, log: DecisionLog) -> None:
    add_one(log)
    cluster.move_leader(TopicPartition(DECISIONS, 0), 2)
    add_one(log)
    assert counted(log) == 2


@pytest.mark.parametrize(
    ("api", "code", "error"),
    [
        ("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED, MissingRight),
        ("Produce", ErrorCode.MESSAGE_TOO_LARGE, RequestRefused),
        ("Fetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED, MissingRight),
    ],
)
def test_what_is_refused_for_good_is_said_at_once(
    cluster: DrivenCluster, log: DecisionLog, api: str, code: ErrorCode, error: type[Exception]
) -> None:
    """To try it again would not help, and to say that nobody knows would be wrong."""
    add_one(log)
    cluster.script.on(api, Fault.refused(code, [TopicPartition(DECISIONS, 0)]), times=None)
    with pytest.raises(error, match=f"{DECISIONS}.*{code.name}"):
        add_one(log)


def test_records_of_others_are_passed(log: DecisionLog, stored: PartitionLog) -> None:
    add_one(log)
    Writer(stored).plain(3)
    Writer(stored).in_transaction(5, 1)
    Writer(stored).end(5, commit=False)
    add_one(log)
    assert counted(log) == 2


def test_deleted_beginning_is_a_loss(log: DecisionLog, stored: PartitionLog) -> None:
    """A new reader would know less than the others, and decide otherwise."""
    add_one(log)
    add_one(log)
    stored.delete_records(1)
    with pytest.raises(LedgerLost, match="begins at offset 1"):
        add_one(log)


def test_truncated_log_is_a_loss_for_who_had_read_it(log: DecisionLog, stored: PartitionLog) -> None:
    """An unclean election; others have decided meanwhile, so that it is as long as it was."""
    fold = Fold()
    for _ in range(3):
        add_one(log, fold)
    stored.truncate(1)
    for _ in range(2):
        add_one(log)
    with pytest.raises(LedgerLost, match="that was read at offset 2 is not there any more"):
        add_one(log, fold)


def test_log_that_ends_before_what_was_read_is_a_loss(log: DecisionLog, stored: PartitionLog) -> None:
    fold = Fold()
    for _ in range(3):
        add_one(log, fold)
    stored.truncate(1)
    with pytest.raises(LedgerLost):
        add_one(log, fold)


def test_a_decision_that_a_frozen_process_sends_late_is_void(log: DecisionLog, cluster: DrivenCluster) -> None:
    """The broker's time says so, to its writer as to everybody else."""
    fold = Fold()
    decide(log, fold, lambda _: {"fence": "up"}, tries(20))
    deadline = fold.time_ms("fence") + 60_000
    assert fold.time_ms("fence") > 0
    decide(log, fold, lambda _: {"fence": "still up"}, tries(20), deadline)
    with pytest.raises(DecidedLate, match="on fence, topic came after its deadline"):
        decide(log, fold, lambda _: {"fence": "opened", "topic": 1}, tries(20), fold.time_ms("fence"))
    again = Fold()
    catch_up(log, again)
    assert again.values == {"fence": "still up"}
