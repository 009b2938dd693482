"""Routing: who is asked, what is tried again, and what is raised at once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin import DescribeProducersResponse
from kafka.protocol.consumer import ListOffsetsResponse, OffsetForLeaderEpochResponse
from kafka.protocol.metadata import MetadataResponse

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig, load
from airflow_mirror.errors import (
    AuthenticationFailed,
    BrokerError,
    ClusterUnreachable,
    MissingRight,
    RequestRefused,
    TryAgain,
)
from airflow_mirror.wire import metadata, requests
from airflow_mirror.wire.cluster import Leader, WireCluster
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.errors import ConnectionLost, UnknownTopic
from airflow_mirror.wire.retry import Backoff
from airflow_mirror.wire.settings import WireSettings
from tests.unit.peer import FakeBroker, HangUp
from tests.unit.wire.test_connection import wait_until_gone

METADATA, LIST_OFFSETS, EPOCH_END, LIST_TRANSACTIONS = 3, 2, 23, 66
T0, T1 = TopicPartition("orders-1", 0), TopicPartition("orders-1", 1)
NOT_LEADER, UNKNOWN_TOPIC, TOPIC_AUTHORIZATION, FENCED_EPOCH, SERVER_ERROR = 6, 3, 29, 74, -1


class World:
    """Two brokers and what they say of who leads."""

    def __init__(self) -> None:
        self.brokers = {1: FakeBroker(1), 2: FakeBroker(2)}
        self.leaders = {0: Leader(1, 5), 1: Leader(2, 6)}
        self.topic_error = 0
        self.timeout_s = 60.0  # nothing here waits for it, except the tests that set their own
        for broker in self.brokers.values():
            broker.answers[METADATA] = self._metadata

    def cluster(self, bootstrap: int = 1) -> WireCluster:
        address = f"127.0.0.1:{self.brokers[bootstrap].port}"
        cluster = WireCluster(ClientConfig({"bootstrap.servers": address}, "source"), timeout_s=self.timeout_s)
        cluster._request_timeout_s = 20  # also where calls give up soon: a broker here is never silent, but may be slow
        return cluster

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()

    def _metadata(self, request: Any) -> MetadataResponse:
        response, topic = MetadataResponse, MetadataResponse.MetadataResponseTopic
        partitions = [
            topic.MetadataResponsePartition(partition_index=p, leader_id=leader.node_id, leader_epoch=leader.epoch)
            for p, leader in self.leaders.items()
        ]
        topics = [
            topic(error_code=self.topic_error, name=t.name, topic_id=uuid.UUID(int=7), partitions=partitions)
            for t in request.topics
        ]
        brokers = [
            response.MetadataResponseBroker(node_id=i, host="127.0.0.1", port=b.port) for i, b in self.brokers.items()
        ]
        return response(brokers=brokers, topics=topics)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def offsets(answer: Callable[[int], tuple[int, int]]) -> Callable[[Any], ListOffsetsResponse]:
    """Answer ListOffsets by partition number -> (error, offset)."""

    def respond(request: Any) -> ListOffsetsResponse:
        topic = ListOffsetsResponse.ListOffsetsTopicResponse
        return ListOffsetsResponse(
            topics=[
                topic(
                    name=t.name,
                    partitions=[
                        topic.ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=e, offset=o)
                        for p in t.partitions
                        for e, o in [answer(p.partition_index)]
                    ],
                )
                for t in request.topics
            ]
        )

    return respond


def test_each_leader_is_asked_once_about_all_its_partitions(world: World) -> None:
    world.leaders = {0: Leader(1, 5), 1: Leader(2, 6), 2: Leader(1, 7), 3: Leader(2, 8)}
    for broker in world.brokers.values():
        broker.answers[LIST_OFFSETS] = offsets(lambda p: (0, 100 + p))
    tps = [TopicPartition("orders-1", p) for p in (3, 0, 2, 1)]
    with world.cluster() as cluster:
        assert cluster.log_starts([*tps, tps[0]]) == {tp: 100 + tp.partition for tp in tps}
    for node_id, asked in ((1, [(0, 5), (2, 7)]), (2, [(3, 8), (1, 6)])):
        (request,) = [m for key, m in world.brokers[node_id].asked if key == LIST_OFFSETS]
        assert [(p.partition_index, p.current_leader_epoch) for p in request.topics[0].partitions] == asked


def test_the_leader_moves_and_the_next_one_is_asked(world: World) -> None:
    def moved(_: int) -> tuple[int, int]:
        world.leaders[0] = Leader(2, 9)
        return NOT_LEADER, -1

    world.brokers[1].answers[LIST_OFFSETS] = offsets(moved)
    world.brokers[2].answers[LIST_OFFSETS] = offsets(lambda p: (0, 42))
    with world.cluster() as cluster:
        assert cluster.high_watermarks([T0, T1]) == {T0: 42, T1: 42}
        assert cluster.leader(T0) == Leader(2, 9)


def test_a_connection_that_breaks_once_is_opened_again(world: World) -> None:
    broken: list[bool] = []

    def hang_up_once(request: Any) -> Any:
        if not broken:
            broken.append(True)
            raise HangUp
        return offsets(lambda p: (0, 7))(request)

    world.brokers[1].answers[LIST_OFFSETS] = hang_up_once
    with world.cluster() as cluster:
        assert cluster.last_stable([T0]) == {T0: 7}


@pytest.mark.parametrize("known", [True, False], ids=["a-brokers-own", "the-bootstraps"])
def test_connections_that_idled_away_cost_no_request(world: World, known: bool) -> None:
    """Brokers close them after ten minutes, all at once: who asks once, in a hurry, would ask in vain for each."""
    for broker in world.brokers.values():
        broker.answers[LIST_OFFSETS] = offsets(lambda p: (0, 100 + p))
    cluster = world.cluster()
    with cluster:
        cluster.hurry()
        cluster.high_watermarks([T0, T1])
        if not known:
            cluster._connections.pop(2).close()
            cluster._connections[metadata._BOOTSTRAP] = cluster._connections.pop(1)
            cluster._brokers = {}
        connections = [*cluster._connections.values()]
        for broker in world.brokers.values():
            broker.disconnect()
        for connection in connections:
            wait_until_gone(connection)
        if not known:
            assert not cluster.any_connection().gone
            cluster.refresh(["orders-1"])
        answers, errors = cluster.ask_each("ListOffsets", [T0, T1], latest, "Describe")
        assert (answers, errors) == ({T0: 100, T1: 101}, {})
        assert all(connection.closed for connection in connections)


def latest(connection: Connection, led: requests.Led) -> Any:
    return requests.list_offsets(connection, led, requests.LATEST, requests.READ_UNCOMMITTED)


def test_leader_that_stays_away_is_an_error(world: World) -> None:
    """The error names cluster, partition and answer."""
    world.timeout_s = 0.3
    world.brokers[1].answers[LIST_OFFSETS] = offsets(lambda p: (NOT_LEADER, -1))
    with (
        world.cluster() as cluster,
        pytest.raises(BrokerError, match=r"source cluster, .*orders-1-0.* NOT_LEADER.*\(6\)"),
    ):
        cluster.log_starts([T0])


def test_a_partition_without_a_leader_is_waited_for(world: World) -> None:
    world.leaders[0] = Leader(-1, 5)
    with world.cluster() as cluster:
        cluster.refresh(["orders-1"])
        world.leaders[0] = Leader(2, 6)
        assert cluster.leader(T0) == Leader(2, 6)
    world.leaders[0], world.timeout_s = Leader(-1, 5), 0.2
    with world.cluster() as cluster, pytest.raises(BrokerError, match=r"orders-1-0.* LEADER_NOT_AVAILABLE \(5\)") as e:
        cluster.leader(T0)
    assert "a disk of theirs is full or broken" in str(e.value) and "Make room or replace it" in str(e.value)


def test_question_that_a_broker_fails_at_once_is_asked_again(world: World) -> None:
    failing = iter([SERVER_ERROR, SERVER_ERROR])
    good = world._metadata

    def once(request: Any) -> MetadataResponse:
        response = good(request)
        for topic in response.topics:
            topic.error_code = next(failing, 0)
        return response

    for broker in world.brokers.values():
        broker.answers[METADATA] = once
    codes = iter([SERVER_ERROR])
    world.brokers[1].answers[LIST_OFFSETS] = offsets(lambda p: (next(codes, 0), 42))
    with world.cluster() as cluster:
        assert cluster.log_starts([T0]) == {T0: 42}


def test_question_that_brokers_fail_at_for_good_is_an_error_that_names_it(world: World) -> None:
    world.timeout_s = 0.3
    world.brokers[1].answers[LIST_OFFSETS] = offsets(lambda p: (SERVER_ERROR, -1))
    with world.cluster() as cluster:
        with pytest.raises(
            BrokerError, match=r"source cluster, ListOffsets.*orders-1-0.* UNKNOWN_SERVER_ERROR.*log says why"
        ):
            cluster.log_starts([T0])
        world.topic_error = SERVER_ERROR
        with pytest.raises(
            BrokerError, match=r"source cluster, Metadata of orders-1.* UNKNOWN_SERVER_ERROR.*log says why"
        ):
            cluster.refresh(["orders-1"])


def test_topic_that_brokers_fail_at_holds_up_no_other(world: World) -> None:
    """Who asks in a hurry has the others, and forgets what was known of this one."""
    good = world._metadata
    with world.cluster() as cluster:
        cluster.refresh(["orders-0", "orders-1", "orders-2"])
        cluster.hurry()

        def some(request: Any) -> MetadataResponse:
            response = good(request)
            for topic in response.topics:
                topic.error_code = SERVER_ERROR if topic.name == "orders-1" else 0
            return response

        for broker in world.brokers.values():
            broker.answers[METADATA] = some
        world.leaders[0] = Leader(2, 9)
        with pytest.raises(BrokerError, match="Metadata of orders-1"):
            cluster.refresh(["orders-0", "orders-1", "orders-2"])
        assert [cluster.leader(TopicPartition(name, 0)) for name in ("orders-0", "orders-2")] == [Leader(2, 9)] * 2
        with pytest.raises(BrokerError, match="Metadata of orders-1"):
            cluster.topic_id("orders-1")


def test_missing_right_is_named_at_once_with_its_acl(world: World) -> None:
    world.brokers[1].answers[LIST_OFFSETS] = offsets(lambda p: (TOPIC_AUTHORIZATION, -1))
    with world.cluster() as cluster, pytest.raises(MissingRight) as caught:
        cluster.log_starts([T0])
    assert world.brokers[1].keys.count(LIST_OFFSETS) == 1
    assert "--operation Describe --topic orders-1" in str(caught.value)
    acl = caught.value.acl
    assert acl is not None and (acl.operation, acl.name) == ("Describe", "orders-1")


@pytest.fixture
def elapsed(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return a clock for rumours alone; in a :class:`Backoff` time passes as usual."""
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(metadata, "_UNANIMOUS_S", 3.0)
    monkeypatch.setattr(metadata, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


def test_unknown_topic_is_believed_once_every_broker_says_so(world: World, elapsed: SimpleNamespace) -> None:
    """The caller is a patient one."""
    world.topic_error = UNKNOWN_TOPIC
    with world.cluster() as cluster:
        cluster.broker_ids()
        began, good = elapsed.s, world._metadata

        def later(request: Any) -> MetadataResponse:
            elapsed.s += 1.0
            return good(request)

        for broker in world.brokers.values():
            broker.answers[METADATA] = later
        with pytest.raises(UnknownTopic, match="source cluster, .*'orders-1'"):
            cluster.log_ends([T0])
        # The rumour is as old as the second question.
        assert elapsed.s - began == metadata._UNANIMOUS_S + 1.0 < metadata._BELIEVED_S
    assert all(METADATA in broker.keys for broker in world.brokers.values())


def test_dozens_of_brokers_are_asked_one_after_the_other_without_a_pause(
    world: World, elapsed: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a pause for each the time limit came first, for each call anew: nothing was ever created on such a target."""

    class Paused(Backoff):
        def pause(self) -> None:
            elapsed.s += 1.0

    monkeypatch.setattr(metadata, "Backoff", Paused)
    world.brokers |= {node: FakeBroker(node) for node in range(3, 25)}
    for broker in world.brokers.values():
        broker.answers[METADATA] = world._metadata
    world.topic_error, began = UNKNOWN_TOPIC, elapsed.s
    with world.cluster() as cluster:
        assert cluster.refresh_present(["gone"]) == {"gone"}
    assert elapsed.s - began == metadata._UNANIMOUS_S
    assert all(METADATA in broker.keys for broker in world.brokers.values())


def test_topics_that_were_asked_for_before_are_believed_to_be_absent_so_much_sooner(
    world: World, elapsed: SimpleNamespace
) -> None:
    world.topic_error = UNKNOWN_TOPIC
    with world.cluster() as cluster:
        cluster.sound_out(["gone", "lost"])
        elapsed.s = asked = elapsed.s + metadata._UNANIMOUS_S
        assert cluster.refresh_present(["gone"]) == {"gone"} and cluster.refresh_present(["lost"]) == {"lost"}
    assert elapsed.s == asked


def test_topics_that_may_not_be_seen_are_no_error_of_who_sounds_them_out(world: World) -> None:
    world.topic_error = TOPIC_AUTHORIZATION
    with world.cluster() as cluster:
        cluster.sound_out(["gone"])
        with pytest.raises(MissingRight):
            cluster.refresh_present(["gone"])


def test_topics_that_exist_are_refreshed_although_others_do_not(world: World) -> None:
    good = world._metadata

    def some(request: Any) -> MetadataResponse:
        response = good(request)
        for topic in response.topics:
            if topic.name.startswith("gone"):
                topic.error_code = UNKNOWN_TOPIC
        return response

    for broker in world.brokers.values():
        broker.answers[METADATA] = some
    with world.cluster() as cluster:
        assert cluster.refresh_present(["gone-1", "orders-1", "gone-2"]) == {"gone-1", "gone-2"}
        assert cluster._topics.keys() == {"orders-1"}
        assert cluster.refresh_present(["gone-1"]) == {"gone-1"} and cluster.refresh_present([]) == set()


def test_password_that_was_changed_in_its_file_is_read_once_the_old_one_is_refused(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail runs for months, and its connections end one after the other. Each password is tried once a connection."""
    file, valid, tried = tmp_path / "src.properties", "old", list[str]()
    login = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=m\nsasl.password="
    address, opened = f"127.0.0.1:{world.brokers[1].port}", Connection.open

    def open_(host: str, port: int, settings: WireSettings, timeout_s: float | None = None) -> Connection:
        tried.append(settings.get("sasl.password"))
        if tried[-1] != valid:
            raise AuthenticationFailed(settings.role, f"{host}:{port}", "no such password")
        return opened(host, port, WireSettings({"bootstrap.servers": address}, settings.role), timeout_s)

    monkeypatch.setattr(Connection, "open", open_)
    file.write_text(f"bootstrap.servers={address}\n{login}old\n")
    with WireCluster(load(str(file), "source")) as cluster:
        assert cluster.partitions("orders-1") == 2
        connect = cluster.connector(2)
        cluster.close()
        valid = "new"
        tried.clear()
        with pytest.raises(AuthenticationFailed):
            cluster.refresh(["orders-1"])
        assert tried == ["old"]
        file.write_text(f"bootstrap.servers={address}\n{login}new\n")
        connect().close()
        cluster.refresh(["orders-1"])
        assert tried == ["old", "old", "new", "new"]


def test_topics_that_are_known_to_be_gone_cost_two_requests_however_many_they_are(world: World) -> None:
    """One request for each took longer than a failover listens for: it was accepted beside a source that was well."""
    good, gone = world._metadata, {f"gone-{n}" for n in range(50)}

    def some(request: Any) -> MetadataResponse:
        response = good(request)
        for topic in response.topics:
            if topic.name in gone:
                topic.error_code = UNKNOWN_TOPIC
        return response

    for broker in world.brokers.values():
        broker.answers[METADATA] = some
    with world.cluster() as cluster:
        assert cluster.refresh_present({"orders-1", *gone}) == gone
        for broker in world.brokers.values():
            broker.asked.clear()
        assert cluster.refresh_present({"orders-1", *gone}) == gone
        assert [key for broker in world.brokers.values() for key, _ in broker.asked] == [METADATA, METADATA]
        gone.remove("gone-7")
        assert cluster.refresh_present({"orders-1", "gone-7", *gone}) == gone, "it is back"
        assert cluster._topics.keys() == {"orders-1", "gone-7"}


def test_a_broker_that_has_just_started_is_contradicted_by_another(world: World) -> None:
    ignorant = world.brokers[1]
    good = ignorant.answers[METADATA]

    def unknown(request: Any) -> MetadataResponse:
        response = good(request)
        for topic in response.topics:
            topic.error_code = UNKNOWN_TOPIC
        return response

    ignorant.answers[METADATA] = unknown
    with world.cluster() as cluster:
        assert cluster.partitions("orders-1") == 2
        assert cluster._rumours == {}


def test_hurried_caller_comes_back_until_absence_is_witnessed(world: World, elapsed: SimpleNamespace) -> None:
    """By more than one broker, and for long enough."""
    world.topic_error = UNKNOWN_TOPIC
    with world.cluster() as cluster:
        cluster.broker_ids()
        cluster.hurry()
        for _ in range(4):
            with pytest.raises(TryAgain, match="'orders-1'"):
                cluster.log_ends([T0])
        elapsed.s += metadata._BELIEVED_S - 0.1
        with pytest.raises(
            TryAgain,
            match=r"^source cluster: 2 of 2 broker\(s\) know no topic or partition 'orders-1', for 30 s. One "
            "that has just started, or has not heard of a new topic yet, says so too.$",
        ):
            cluster.leader(T0)
        elapsed.s += 0.1
        with pytest.raises(UnknownTopic):
            cluster.leader(T0)


def test_one_witness_alone_is_never_believed_while_there_are_others(world: World, elapsed: SimpleNamespace) -> None:
    world.topic_error = UNKNOWN_TOPIC
    with world.cluster() as cluster:
        cluster.broker_ids()
        world.brokers[2].close()
        cluster.hurry()
        for _ in range(3):
            with pytest.raises(TryAgain, match="1 of 2"):
                cluster.topic_id("orders-1")
            elapsed.s += metadata._BELIEVED_S
    world.brokers[2] = FakeBroker(2)


def test_absence_that_was_denied_once_begins_anew(world: World, elapsed: SimpleNamespace) -> None:
    with world.cluster() as cluster:
        cluster.broker_ids()
        cluster.hurry()
        world.topic_error = UNKNOWN_TOPIC
        with pytest.raises(TryAgain, match="know no topic or partition"):
            cluster.topic_id("orders-1")
        world.topic_error = 0
        assert cluster.partitions("orders-1") == 2
        world.topic_error = UNKNOWN_TOPIC
        elapsed.s += 1000
        for _ in range(3):
            with pytest.raises(TryAgain, match="know no topic or partition"):
                cluster.refresh()
        assert cluster.leader(T0) == Leader(1, 5), "what was known stays known meanwhile"


def test_broker_without_brokers_is_no_witness(world: World, elapsed: SimpleNamespace) -> None:
    """It has not heard of anything yet."""
    world.topic_error = UNKNOWN_TOPIC
    with world.cluster() as cluster:
        cluster.broker_ids()
        for broker in world.brokers.values():
            broker.answers[METADATA] = lambda request: MetadataResponse(
                brokers=[], topics=world._metadata(request).topics
            )
        cluster.hurry()
        for _ in range(4):
            with pytest.raises(TryAgain, match="0 of 2"):
                cluster.topic_id("orders-1")
            elapsed.s += 1000


def test_leader_not_knowing_its_partition_yet_is_asked_again(world: World) -> None:
    said = [UNKNOWN_TOPIC] * 3
    world.brokers[1].answers[LIST_OFFSETS] = offsets(lambda p: (said.pop() if said else 0, 7))
    with world.cluster() as cluster:
        assert cluster.log_starts([T0]) == {T0: 7}


def test_a_partition_number_that_does_not_exist_is_refused(world: World) -> None:
    with world.cluster() as cluster, pytest.raises(UnknownTopic, match="orders-1-9"):
        cluster.log_starts([TopicPartition("orders-1", 9)])


def test_a_partition_that_has_just_been_added_is_waited_for(world: World, elapsed: SimpleNamespace) -> None:
    new = TopicPartition("orders-1", 2)
    with world.cluster() as cluster:
        cluster.refresh(["orders-1"])
        cluster.hurry()
        with pytest.raises(TryAgain, match="orders-1-2"):
            cluster.leader(new)
        world.leaders[2] = Leader(2, 1)
        elapsed.s += 1000
        assert cluster.leader(new) == Leader(2, 1)


def test_an_error_that_no_retry_cures_is_raised_at_once(world: World) -> None:
    world.brokers[1].answers[LIST_OFFSETS] = offsets(lambda p: (43, -1))
    with world.cluster() as cluster, pytest.raises(RequestRefused, match="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
        cluster.log_starts([T0])


def test_an_unreachable_cluster_is_named_with_every_cause() -> None:
    config = ClientConfig({"bootstrap.servers": "127.0.0.1:1,127.0.0.1:2"}, "target")
    with pytest.raises(ClusterUnreachable, match=r"target cluster: .*127.0.0.1:1.*Connection refused") as caught:
        WireCluster(config, timeout_s=0.2).refresh()
    assert "127.0.0.1:2" in str(caught.value)


def test_a_dead_bootstrap_server_does_not_matter_while_another_answers(world: World) -> None:
    servers = f"127.0.0.1:1,127.0.0.1:{world.brokers[2].port}"
    with WireCluster(ClientConfig({"bootstrap.servers": servers}), timeout_s=240) as cluster:
        assert cluster.broker_ids() == [1, 2]


def test_the_bootstrap_connection_is_used_on_as_its_brokers_own(world: World) -> None:
    world.brokers[1].answers[LIST_OFFSETS] = offsets(lambda p: (0, 0))
    with world.cluster() as cluster:
        cluster.log_starts([T0])
        cluster.high_watermarks([T0])
        dedicated = cluster.dedicated(1)
        assert dedicated is not cluster.connection(1)
        dedicated.close()
    assert world.brokers[1].connections == 2


def test_topology_in_kafkas_own_words(world: World) -> None:
    with world.cluster() as cluster:
        assert cluster.topic_id("orders-1") == "AAAAAAAAAAAAAAAAAAAABw"
        assert cluster.partitions("orders-1") == 2
        with pytest.raises(ConnectionLost, match="no live broker has this id"):
            cluster.dedicated(77)


def epoch_ends(said: list[tuple[int, int, int]]) -> Callable[[Any], Any]:
    """Answer with (error code, epoch, end) in turn, for one partition at a time."""
    response, topic = OffsetForLeaderEpochResponse, OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult

    def answer(request: Any) -> Any:
        partitions = []
        for asked in request.topics[0].partitions:
            assert asked.current_leader_epoch == asked.leader_epoch
            error, epoch, end = said.pop(0)
            partitions.append(
                topic.EpochEndOffset(error_code=error, partition=asked.partition, leader_epoch=epoch, end_offset=end)
            )
        return response(topics=[topic(topic=T0.topic, partitions=partitions)])

    return answer


def test_older_epochs_end_is_not_taken_as_log_end(world: World) -> None:
    """A broker that does not know our epoch yet answers with the end of the newest one that it knows."""
    said = [(FENCED_EPOCH, -1, -1), (0, -1, -1), (0, 4, 90), (0, 5, 123)]
    world.brokers[1].served[LIST_TRANSACTIONS] = (0, 0)
    world.brokers[1].answers[EPOCH_END] = epoch_ends(said)
    with world.cluster() as cluster:
        assert cluster.log_ends([T0]) == {T0: 123}
    assert not said


def test_of_a_log_without_epochs_an_old_broker_tells_the_high_watermark(world: World) -> None:
    """One of a message format before 0.11: no leader would ever know the epoch that it is asked about."""
    world.leaders[1] = Leader(1, 6)
    said = [(0, 5, 123), (0, -1, -1)]
    world.brokers[1].answers |= {EPOCH_END: epoch_ends(said), LIST_OFFSETS: offsets(lambda p: (0, 42 + p))}
    with world.cluster() as cluster:
        assert cluster.log_ends([T0, T1]) == {T0: 123, T1: 43}
    (asked,) = [message for key, message in world.brokers[1].asked if key == LIST_OFFSETS]
    assert [(p.partition_index, p.current_leader_epoch) for p in asked.topics[0].partitions] == [(1, 6)]


def test_producers_are_described_in_our_own_words(world: World) -> None:
    topic = DescribeProducersResponse.TopicResponse
    state = topic.PartitionResponse.ProducerState(
        producer_id=9,
        producer_epoch=2,
        last_sequence=-1,
        last_timestamp=5,
        coordinator_epoch=4,
        current_txn_start_offset=-1,
    )
    answer = DescribeProducersResponse(
        topics=[topic(name=T0.topic, partitions=[topic.PartitionResponse(partition_index=0, active_producers=[state])])]
    )
    world.brokers[1].answers[61] = lambda _: answer
    with world.cluster() as cluster:
        assert cluster.describe_producers([T0]) == {T0: [(9, 2, -1, 5, -1, 4)]}
