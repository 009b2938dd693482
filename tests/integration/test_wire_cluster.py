"""Offsets, producers and markers, compared with what an ordinary client sees on the same broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import RequestRefused
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import Fenced, UnknownTopic
from airflow_mirror.wire.transactions import TransactionClient, write_txn_markers
from sandbox import Cluster
from tests.integration.copying import wait_until

# Years old, out of order, two of them equal.
TIMES = [1_600_000_000_000, 1_500_000_000_000, 1_700_000_000_000, 1_700_000_000_000, 1_650_000_000_000]


@pytest.fixture
def cluster(target_cluster: Cluster) -> Iterator[WireCluster]:
    with WireCluster(ClientConfig(target_cluster.properties(), "target"), timeout_s=90) as cluster:
        yield cluster


@pytest.fixture
def tps(target_cluster: Cluster, topic_name: str) -> list[TopicPartition]:
    """Three partitions: five records, one record, none."""
    admin = AdminClient(target_cluster.properties())
    # The records are years old; retention must not delete them meanwhile.
    admin.create_topics([NewTopic(topic_name, 3, 1, config={"retention.ms": "-1"})])[topic_name].result()
    producer = Producer(target_cluster.properties() | {"batch.num.messages": "2"})
    for time_ms in TIMES:
        producer.produce(topic_name, b"value", None, 0, timestamp=time_ms)
    producer.produce(topic_name, None, b"key", 1, timestamp=TIMES[0])
    producer.flush()
    return [TopicPartition(topic_name, p) for p in range(3)]


def test_offsets_are_those_that_an_ordinary_client_sees(
    cluster: WireCluster, tps: list[TopicPartition], target_cluster: Cluster
) -> None:
    first, second, empty = tps
    assert cluster.delete_records({first: 2}, unfenced) == {first: 2}
    consumer = Consumer(target_cluster.properties() | {"group.id": "referee"})
    marks = {tp: consumer.get_watermark_offsets(ClientPartition(*tp), timeout=60) for tp in tps}
    assert cluster.log_starts(tps) == {tp: low for tp, (low, _) in marks.items()} == {first: 2, second: 0, empty: 0}
    assert cluster.high_watermarks(tps) == {tp: high for tp, (_, high) in marks.items()}
    assert cluster.log_ends(tps) == cluster.last_stable(tps) == {first: 5, second: 1, empty: 0}
    for time_ms in (0, TIMES[0] + 1, TIMES[2], TIMES[2] + 1):
        seen = consumer.offsets_for_times([ClientPartition(*tp, time_ms) for tp in tps], timeout=60)
        # librdkafka says "end" (-1) where no record is as late
        assert cluster.offsets_for_time(tps, time_ms) == dict(zip(tps, (s.offset for s in seen), strict=True))
    consumer.close()


def test_topology_is_what_the_admin_client_says(
    cluster: WireCluster, tps: list[TopicPartition], target_cluster: Cluster
) -> None:
    from confluent_kafka import TopicCollection

    topic = tps[0].topic
    admin = AdminClient(target_cluster.properties())
    described = admin.describe_topics(TopicCollection([topic]))[topic].result()
    # librdkafka writes ids in the other Base64 alphabet.
    assert cluster.topic_id(topic) == str(described.topic_id).replace("+", "-").replace("/", "_")
    assert cluster.partitions(topic) == 3
    assert cluster.leader(tps[2]).node_id == described.partitions[2].leader.id
    assert cluster.broker_ids() == [1]


def test_a_topic_that_grows_is_noticed(cluster: WireCluster, tps: list[TopicPartition], target_cluster: Cluster) -> None:
    from confluent_kafka.admin import NewPartitions

    topic = tps[0].topic
    assert cluster.partitions(topic) == 3
    admin = AdminClient(target_cluster.properties())
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result()
    wait_until(lambda: len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 5, "it has heard of five")
    assert cluster.log_ends([TopicPartition(topic, 4)]) == {TopicPartition(topic, 4): 0}
    assert cluster.partitions(topic) == 5


def test_what_does_not_exist_is_an_error_that_names_it(cluster: WireCluster, tps: list[TopicPartition]) -> None:
    with pytest.raises(UnknownTopic, match="target cluster.*'no-such-topic'"):
        cluster.log_ends([TopicPartition("no-such-topic", 0)])
    with pytest.raises(UnknownTopic, match=f"{tps[0].topic}-3"):
        cluster.log_starts([TopicPartition(tps[0].topic, 3)])
    with pytest.raises(RequestRefused, match=rf"DeleteRecords of {tps[0]}: .*OFFSET_OUT_OF_RANGE \(1\)"):
        cluster.delete_records({tps[0]: 6}, unfenced)


def test_each_write_marker_appends_exactly_one_invisible_marker(
    cluster: WireCluster, tps: list[TopicPartition], target_cluster: Cluster
) -> None:
    first, second, empty = tps
    client = TransactionClient(cluster, f"writer-{first.topic}")
    assert client.describe() is None
    producer_id, epoch = client.init(60_000)
    for number in range(1, 21):
        client.write_marker(first, producer_id, epoch, commit=number % 3 > 0)
    client.write_marker(empty, producer_id, epoch)
    # No waiting: the markers are in the log, and behind the high watermark.
    assert cluster.high_watermarks(tps) == {first: 25, second: 1, empty: 1}
    assert cluster.log_ends(tps) == cluster.last_stable(tps) == {first: 25, second: 1, empty: 1}
    described = client.describe()
    assert described is not None and (described.producer_id, described.epoch) == (producer_id, epoch)
    assert described.timeout_ms == 60_000
    (state,) = [s for s in cluster.describe_producers([first])[first] if s.producer_id == producer_id]
    assert (state.epoch, state.last_sequence, state.current_txn_start) == (epoch, -1, -1)
    assert len(read(target_cluster, first)) == 5 and read(target_cluster, empty) == []


def test_direct_markers_append_as_many_as_asked_for(cluster: WireCluster, tps: list[TopicPartition]) -> None:
    producer_id, epoch = TransactionClient(cluster, f"ids-{tps[0].topic}").init(60_000)
    end = 0
    for count in (1, 2, 127, 128, 20_000):
        write_txn_markers(cluster, tps[2], producer_id, epoch, count)
        end += count
        assert cluster.log_ends([tps[2]]) == {tps[2]: end}
    assert cluster.high_watermarks([tps[2]]) == {tps[2]: end}


def test_whoever_takes_the_id_over_fences_the_one_before(cluster: WireCluster, tps: list[TopicPartition]) -> None:
    tp, name = tps[2], f"lease-{tps[0].topic}"
    old, new = TransactionClient(cluster, name), TransactionClient(cluster, name)
    producer_id, epoch = old.init(60_000)
    old.write_marker(tp, producer_id, epoch)
    assert new.init(60_000) == (producer_id, epoch + 1)
    with pytest.raises(Fenced) as caught:
        old.write_marker(tp, producer_id, epoch)
    assert caught.value.code in (47, 90)
    with pytest.raises(Fenced):  # compare and bump: the comparison fails
        old.init(60_000, producer_id, epoch)
    # The new one's first marker also fences the old one's direct markers; until then they pass.
    write_txn_markers(cluster, tp, producer_id, epoch, 1)
    new.write_marker(tp, producer_id, epoch + 1)
    with pytest.raises(Fenced, match="INVALID_PRODUCER_EPOCH"):
        write_txn_markers(cluster, tp, producer_id, epoch, 10)
    with pytest.raises(Fenced, match="TRANSACTION_COORDINATOR_FENCED"):
        write_txn_markers(cluster, tp, producer_id, epoch + 1, 10, coordinator_epoch=-1)
    assert cluster.log_ends([tp]) == {tp: 3}


def test_compare_and_bump_returns_the_next_epoch(cluster: WireCluster, topic_name: str) -> None:
    client = TransactionClient(cluster, topic_name)
    producer_id, epoch = client.init(60_000)
    assert client.init(60_000, producer_id, epoch) == (producer_id, epoch + 1)


def test_a_transaction_left_open_is_aborted_by_the_next_writer(
    cluster: WireCluster, tps: list[TopicPartition], target_cluster: Cluster
) -> None:
    """Also proves that last_stable and the high watermark are not the same question."""
    tp, name = tps[0], f"open-{tps[0].topic}"
    producer = Producer(target_cluster.properties() | {"transactional.id": name})
    producer.init_transactions(240)
    producer.begin_transaction()
    producer.produce(tp.topic, b"never committed", None, tp.partition)
    producer.flush()
    assert (cluster.last_stable([tp])[tp], cluster.high_watermarks([tp])[tp]) == (5, 6)
    described = TransactionClient(cluster, name).describe()
    assert described is not None and described.state == "Ongoing"
    (state,) = [s for s in cluster.describe_producers([tp])[tp] if s.current_txn_start >= 0]
    assert state.current_txn_start == 5
    TransactionClient(cluster, name).init(60_000)
    assert (cluster.last_stable([tp])[tp], cluster.log_ends([tp])[tp]) == (7, 7)


def read(cluster: Cluster, tp: TopicPartition) -> list[int]:
    """Return the offsets of all records that a consumer gets before the end of the partition."""
    consumer = Consumer(cluster.properties() | {"group.id": "referee", "enable.partition.eof": "true"})
    consumer.assign([ClientPartition(*tp, 0)])
    offsets: list[int] = []
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error():
            break
        if message is not None:
            offsets.append(message.offset())
    consumer.close()
    return offsets
