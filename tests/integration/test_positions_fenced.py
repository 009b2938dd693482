"""What coordinators make of positions in a transaction, of two owners and of a group's members: ADR 37 relies on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.routing import GROUP, TRANSACTION, find_coordinators
from airflow_mirror.wire.transactions import TransactionClient
from sandbox import Cluster
from tests.integration.copying import config, wait_until

pytestmark = pytest.mark.versions

TP = TopicPartition("t", 0)
OUTSIDER = "airflow-mirror"  # a member id that no member has
_BUSY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


@pytest.fixture(scope="module", params=["3.4.1", "3.9.1", "4.4.0"])
def target(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    name = f"positions-{request.param.replace('.', '-')}"
    with Cluster(name, version=request.param, ready_timeout_s=400) as cluster:
        with ClusterAdmin(config(cluster), timeout_s=120) as one:
            one.create_topics([NewTopicSpec(TP.topic, 1, 1)], unfenced)
        yield cluster


@pytest.fixture
def admin(target: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(config(target), timeout_s=120) as one:
        yield one


@pytest.fixture
def group(admin: ClusterAdmin, topic_name: str) -> str:
    """A group without members that stands at 5."""

    def is_set() -> bool:
        try:
            admin.commit_group_offsets(topic_name, {TP: GroupPosition(5)}, unfenced)
        except Exception:  # a young cluster's coordinators are not where they will be
            return False
        return True

    wait_until(is_set, "the group is set")
    return topic_name


@dataclass
class Owner:
    """Somebody who has taken a transactional id, and says each request of a transaction by itself."""

    id: str
    wire: WireCluster

    def __post_init__(self) -> None:
        self.producer_id, self.epoch = TransactionClient(self.wire, self.id).init(60_000)

    def add(self, group: str) -> int:
        """Return the answer to AddOffsetsToTxn."""
        from kafka.protocol.producer import AddOffsetsToTxnRequest as Request

        message = Request(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )
        return self._settled(lambda: int(self._at(self.id, TRANSACTION).request(message, 1).error_code))

    def commit(self, group: str, offset: int, member: str = OUTSIDER) -> int:
        """Return the answer to TxnOffsetCommit, in the oldest version that tells of a member."""
        from kafka.protocol.producer import TxnOffsetCommitRequest as Request

        topic = Request.TxnOffsetCommitRequestTopic
        one = topic.TxnOffsetCommitRequestPartition(
            partition_index=TP.partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        message = Request(
            transactional_id=self.id, group_id=group, producer_id=self.producer_id, producer_epoch=self.epoch,
            generation_id=-1, member_id=member, group_instance_id=None, topics=[topic(name=TP.topic, partitions=[one])],
            version=3,
        )  # fmt: skip

        def ask() -> int:
            return int(self._at(group, GROUP).request(message, 3).topics[0].partitions[0].error_code)

        return self._settled(ask)

    def end(self) -> int:
        """Return the answer to EndTxn, which commits."""
        from kafka.protocol.producer import EndTxnRequest as Request

        message = Request(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=True
        )
        return self._settled(lambda: int(self._at(self.id, TRANSACTION).request(message, 2).error_code))

    def sets(self, group: str, offset: int, member: str = OUTSIDER) -> int:
        """Run a whole transaction; return the answer to its TxnOffsetCommit."""
        assert self.add(group) == 0
        code = self.commit(group, offset, member)
        assert self.end() == 0
        return code

    def _at(self, key: str, key_type: int) -> Connection:
        (found,) = find_coordinators(self.wire.any_connection(), [key], key_type)
        assert found.code == 0
        return self.wire.connection(found.node_id)

    @staticmethod
    def _settled(ask: Callable[[], int]) -> int:
        deadline = time.monotonic() + 120
        while (code := ask()) in _BUSY and time.monotonic() < deadline:
            time.sleep(0.02)
        return code


@pytest.fixture
def owner(target: Cluster, topic_name: str) -> Iterator[Callable[[], Owner]]:
    """Return who takes the test's transactional id, and so deposes who had it."""
    with ExitStack() as close:
        yield lambda: Owner(topic_name, close.enter_context(WireCluster(config(target), timeout_s=120)))


def at(admin: ClusterAdmin, group: str) -> int:
    """Where a group stands, as soon as no transaction would change that."""
    return admin.group_offsets(group)[TP].offset


def test_deposed_owner_sets_nothing_wherever_it_was_frozen(
    admin: ClusterAdmin, group: str, owner: Callable[[], Owner]
) -> None:
    before, now = owner(), owner()
    assert before.add(group) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert now.add(group) == 0  # frozen from here on, amid its transaction
    last = owner()
    assert now.commit(group, 66) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert last.sets(group, 7) == 0 and at(admin, group) == 7
    assert last.add(group) == last.commit(group, 66) == 0  # frozen behind its commit
    owner()
    assert at(admin, group) == 7
    assert last.end() == ErrorCode.PRODUCER_FENCED and at(admin, group) == 7


def test_only_newer_brokers_ask_whether_a_position_belongs_to_a_transaction(
    target: Cluster, admin: ClusterAdmin, group: str, owner: Callable[[], Owner]
) -> None:
    """Older ones believe a deposed owner that has not opened one, and readers wait until somebody ends it."""
    before, now = owner(), owner()
    asks = target.release.number >= (3, 6)
    assert before.commit(group, 66) == (ErrorCode.INVALID_PRODUCER_EPOCH if asks else 0)
    assert before.end() == ErrorCode.PRODUCER_FENCED
    assert now.sets(group, 7) == 0 and at(admin, group) == 7


def test_group_with_members_refuses_who_names_a_member_that_it_has_not(
    target: Cluster, group: str, owner: Callable[[], Owner]
) -> None:
    """Who names none is taken for an old client's member, and sets the position beneath those that are at work."""
    one = owner()
    for protocol in ("classic", "consumer") if target.release.number >= (4, 0) else ("classic",):
        settings = {"group.id": f"{group}-{protocol}", "group.protocol": protocol, "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": target.bootstrap, "log_level": 0, **settings})
        try:
            consumer.subscribe([TP.topic])
            wait_until(lambda consumer=consumer: consumer.poll(0.2) is None and consumer.assignment(), "it is a member")
            assert one.sets(settings["group.id"], 40) == ErrorCode.UNKNOWN_MEMBER_ID
            assert one.sets(settings["group.id"], 41, member="") == 0
        finally:
            consumer.close()
        wait_until(lambda settings=settings: one.sets(settings["group.id"], 42) == 0, "it has left")


def test_readers_wait_for_an_open_transaction_and_a_position_that_came_amid_it_stays(
    target: Cluster, admin: ClusterAdmin, group: str, owner: Callable[[], Owner]
) -> None:
    one = owner()
    assert one.add(group) == one.commit(group, 50) == 0
    reader = Consumer(
        {"bootstrap.servers": target.bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    )
    try:
        with pytest.raises(Exception, match="Timed out"):
            reader.committed([Assigned(*TP)], timeout=3)
        reader.commit(offsets=[Assigned(*TP, 3)], asynchronous=False)
        assert one.end() == 0 and at(admin, group) == 3
        assert [p.offset for p in reader.committed([Assigned(*TP)], timeout=60)] == [3]
    finally:
        reader.close()
