"""A topic of traces on a broker that fails at a moment of the test's choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_mirror.errors import BrokerError, InputError, LeaseLost, MissingRight, TryAgain
from airflow_mirror.kafka.model import NewTopicSpec
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.sync.mm2_topics import log as logs
from airflow_mirror.sync.mm2_topics.log import TraceLog
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.script import Fault

TOPIC = "A.checkpoints.internal"


def nothing() -> None:
    pass


class Admin:
    """What a trace's log asks of an admin client, straight from the cluster."""

    def __init__(self, cluster: DrivenCluster, wire: WireCluster) -> None:
        self.cluster, self.wire = cluster, wire
        self.specs: list[NewTopicSpec] = []

    def topics(self, names: list[str]) -> dict[str, Any]:
        return {name: self.cluster.topics[name] for name in names if name in self.cluster.topics}

    def broker_count(self) -> int:
        return 1

    def create_topics(self, specs: list[NewTopicSpec], permit: Permit) -> None:
        self.specs += specs
        for spec in specs:
            self.cluster.create(spec.name, spec.partitions)


@pytest.fixture
def cluster() -> Iterator[DrivenCluster]:
    with DrivenCluster("target") as one:
        yield one


@pytest.fixture
def new(cluster: DrivenCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], TraceLog]]:
    """Return logs of new processes."""
    monkeypatch.setattr(logs, "_PATIENCE_S", 0.3)
    with WireCluster(cluster.config) as wire:
        admin = Admin(cluster, wire)
        yield lambda: TraceLog(admin, TOPIC)  # type: ignore[arg-type]


def rows(cluster: DrivenCluster) -> list[tuple[bytes, bytes]]:
    with WireCluster(cluster.config) as wire:
        wire.refresh([TOPIC])
        return [(bytes(r.key or b""), bytes(r.value or b"")) for r in TopicLog(wire, TOPIC).read(0)]


def test_topic_is_created_compacted_with_the_first_record(cluster: DrivenCluster, new: Callable[[], TraceLog]) -> None:
    log = new()
    assert log.read() == {}  # there is no topic
    log.write([(b"a", b"1"), (b"b", b"2")], 7, nothing)
    (spec,) = log._target.specs  # type: ignore[attr-defined]
    assert (spec.partitions, spec.configs["cleanup.policy"]) == (1, "compact")
    assert rows(cluster) == [(b"a", b"1"), (b"b", b"2")]
    log.write([], 8, nothing)
    assert len(rows(cluster)) == 2


def test_newest_value_of_each_key_is_read_whoever_wrote_it(new: Callable[[], TraceLog]) -> None:
    first, second = new(), new()
    first.write([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], 7, nothing)
    assert second.read() == {b"a": b"3", b"b": b"2"}
    first.write([(b"b", b"4")], 8, nothing)
    assert second.read() == {b"a": b"3", b"b": b"4"}


def test_nothing_of_a_topic_that_was_created_again_is_remembered(
    cluster: DrivenCluster, new: Callable[[], TraceLog]
) -> None:
    log = new()
    log.write([(b"a", b"1")], 7, nothing)
    assert log.read() == {b"a": b"1"}
    cluster.delete(TOPIC)
    assert log.read() == {}
    log.write([(b"b", b"2")], 8, nothing)
    assert log.read() == {b"b": b"2"}


def test_a_log_that_was_emptied_is_read_from_its_start_at_the_next_call(
    cluster: DrivenCluster, new: Callable[[], TraceLog]
) -> None:
    log = new()
    log.write([(b"a", b"1")], 7, nothing)
    log.read()
    log.write([(b"b", b"2")], 8, nothing)
    log.write([(b"c", b"3")], 9, nothing)
    with cluster.changing():
        cluster.topics[TOPIC].logs[0].log_start = 2
    with pytest.raises(BrokerError):
        log.read()
    assert log.read() == {b"c": b"3"}


@pytest.mark.parametrize("fault", [Fault.lost_answer(), Fault.not_arrived()], ids=["answer lost", "request lost"])
def test_each_record_is_appended_once(cluster: DrivenCluster, new: Callable[[], TraceLog], fault: Fault) -> None:
    log = new()
    log.write([(b"a", b"0")], 7, nothing)
    cluster.script.on("Produce", fault)
    log.write([(b"a", b"1")], 8, nothing)
    log.write([(b"a", b"2")], 9, nothing)
    assert [value for _, value in rows(cluster)] == [b"0", b"1", b"2"]


def test_what_could_not_be_settled_comes_first_at_the_next_call(
    cluster: DrivenCluster, new: Callable[[], TraceLog]
) -> None:
    log = new()
    log.write([(b"a", b"0")], 7, nothing)
    cluster.script.on("Produce", Fault.lost_answer(), times=None)
    with pytest.raises(TryAgain):
        log.write([(b"a", b"1")], 8, nothing)
    cluster.script.clear()
    log.write([(b"a", b"2")], 9, nothing)
    assert [value for _, value in rows(cluster)] == [b"0", b"1", b"2"]


def test_what_was_sent_under_a_lost_lease_is_given_up(cluster: DrivenCluster, new: Callable[[], TraceLog]) -> None:
    """Others write now: the old value must not come behind theirs."""
    log, other = new(), new()
    log.write([(b"a", b"0")], 7, nothing)
    cluster.script.on("Produce", Fault.not_arrived(), times=None)
    with pytest.raises(TryAgain):
        log.write([(b"a", b"1")], 8, nothing)
    cluster.script.clear()

    def lost() -> None:
        raise LeaseLost("airflow-mirror.m", 3, "epoch 5")

    with pytest.raises(LeaseLost):
        log.write([(b"a", b"2")], 9, lost)
    other.write([(b"a", b"3")], 9, nothing)
    log.write([(b"b", b"4")], 9, nothing)
    assert [value for _, value in rows(cluster)] == [b"0", b"3", b"4"]


def test_missing_right_is_named_and_nothing_waits_behind_it(cluster: DrivenCluster, new: Callable[[], TraceLog]) -> None:
    log = new()
    log.write([(b"a", b"0")], 7, nothing)
    cluster.script.on("Produce", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(MissingRight, match=r"A\.checkpoints\.internal") as caught:
        log.write([(b"a", b"1")], 8, nothing)
    assert isinstance(caught.value, InputError)
    log.write([(b"a", b"2")], 9, nothing)
    assert [value for _, value in rows(cluster)] == [b"0", b"2"]


def test_many_records_are_written_in_batches_that_brokers_take(
    cluster: DrivenCluster, new: Callable[[], TraceLog]
) -> None:
    new().write([(b"%d" % n, bytes(1000)) for n in range(1200)], 7, nothing)
    assert [int(key) for key, _ in rows(cluster)] == list(range(1200))
    assert len(cluster.asked("Produce")) == 3
