"""What a test can do to requests and clusters, seen by the product's own connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire import fetch, requests
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ConnectionLost
from airflow_mirror.wire.settings import WireSettings
from airflow_mirror.wire.single import produce_one
from airflow_mirror.wire.transactions import TransactionClient, write_txn_markers
from tests.driven import records
from tests.driven.cluster import TRANSACTION, DrivenCluster
from tests.driven.content import Writer, row
from tests.driven.log import PartitionLog
from tests.driven.script import WAIT_S, Fault

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> Iterator[DrivenCluster]:
    with DrivenCluster("target", brokers=2) as cluster:
        cluster.create("t", 2)
        yield cluster


@pytest.fixture
def wire(cluster: DrivenCluster) -> Iterator[WireCluster]:
    with WireCluster(cluster.config, timeout_s=WAIT_S) as wire:
        yield wire


def batch(count: int = 2) -> memoryview:
    return memoryview(bytearray(records.encode([row(i) for i in range(count)])))


def log_of(cluster: DrivenCluster, tp: TopicPartition = T0) -> PartitionLog:
    return cluster.log(tp)


@pytest.mark.parametrize(
    ("fault", "end"),
    [(Fault.lost_answer(), 2), (Fault.cut_answer(9), 2), (Fault.not_arrived(), 0)],
    ids=["lost", "cut", "not-arrived"],
)
def test_an_answer_does_not_come(cluster: DrivenCluster, wire: WireCluster, fault: Fault, end: int) -> None:
    rule = cluster.script.on("Produce", fault)
    with pytest.raises(ConnectionLost):
        produce_one(wire, T0, batch())
    assert (log_of(cluster).end, len(rule.hits)) == (end, 1)
    assert produce_one(wire, T0, batch()).base_offset == end


@pytest.mark.parametrize(
    ("fault", "end"),
    [(Fault.refused(ErrorCode.NOT_ENOUGH_REPLICAS), 0), (Fault.done_but_refused(ErrorCode.NOT_ENOUGH_REPLICAS), 2)],
    ids=["refused", "done-but-refused"],
)
def test_an_error_is_said(cluster: DrivenCluster, wire: WireCluster, fault: Fault, end: int) -> None:
    cluster.script.on("Produce", fault)
    answer = produce_one(wire, T0, batch())
    assert (answer.error, log_of(cluster).end) == (ErrorCode.NOT_ENOUGH_REPLICAS, end)


def test_an_error_is_said_of_one_partition_alone(cluster: DrivenCluster, wire: WireCluster) -> None:
    cluster.move_leader(T1, 1)
    cluster.script.on("ListOffsets", Fault.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, [T1]))
    assert wire.log_starts([T0, T1]) == {T0: 0, T1: 0}
    asked = [[p.partition_index for p in r.message.topics[0].partitions] for r in cluster.asked("ListOffsets")]
    assert asked == [[0, 1], [1]]


def test_a_leader_moves_between_two_requests(cluster: DrivenCluster, wire: WireCluster) -> None:
    cluster.script.on("ListOffsets", Fault(before=lambda _: cluster.move_leader(T0, 2)))
    assert wire.high_watermarks([T0]) == {T0: 0}
    assert [r.broker for r in cluster.asked("ListOffsets")] == [1, 2]
    assert wire.leader(T0) == (2, 1)


def test_a_request_waits_until_it_is_let_go(cluster: DrivenCluster, wire: WireCluster) -> None:
    rule = cluster.script.on("Produce", Fault(hold=True))
    thread = threading.Thread(target=produce_one, args=(wire, T0, batch()))
    thread.start()
    rule.wait()
    assert log_of(cluster).end == 0
    rule.release()
    thread.join(WAIT_S)
    assert log_of(cluster).end == 2


def test_an_answer_waits_for_the_clusters_clock(cluster: DrivenCluster, wire: WireCluster) -> None:
    rule = cluster.script.on("Produce", Fault(delay_s=5))
    thread = threading.Thread(target=produce_one, args=(wire, T0, batch()))
    thread.start()
    rule.wait()
    cluster.advance(4.9)
    assert log_of(cluster).end == 0
    while thread.is_alive():  # the request may be about to look at the clock
        cluster.advance(5)
        thread.join(0.01)
    assert log_of(cluster).end == 2


def test_a_frozen_connection_stays_open_and_silent(cluster: DrivenCluster) -> None:
    cluster.script.on("Metadata", Fault(freeze=True))
    settings = WireSettings.from_config(cluster.config)
    with (
        Connection.open("127.0.0.1", cluster.brokers[1].port, settings, 0.2) as connection,
        pytest.raises(ConnectionLost, match="no answer within"),
    ):
        requests.metadata(connection, ["t"])


def test_a_fetch_is_throttled(cluster: DrivenCluster, wire: WireCluster) -> None:
    cluster.script.on("Fetch", Fault(throttle_ms=700))
    body = fetch.encode([fetch.FetchSpec(T0, 0, 1000)], 0, 1, 1000, fetch.READ_UNCOMMITTED)
    connection = wire.connection(wire.leader(T0).node_id)
    answers = [fetch.decode(connection.roundtrip(fetch.API_KEY, fetch.NEWEST, [body]))[0] for _ in range(2)]
    assert answers == [700, 0]


def test_the_nth_request_that_fits_is_the_one(cluster: DrivenCluster, wire: WireCluster) -> None:
    rule = cluster.script.on(
        "Produce", Fault.refused(ErrorCode.KAFKA_STORAGE_ERROR), nth=2, when=lambda r: r.message.timeout_ms == 7
    )
    times = (7, 8, 7, 7)
    assert [produce_one(wire, T0, batch(), timeout_ms=t).error for t in times] == [0, 0, 56, 0]
    assert [r.message.timeout_ms for r in rule.hits] == [7]


def test_a_marker_is_written_twice_by_a_dying_coordinator(cluster: DrivenCluster, wire: WireCluster) -> None:
    client = TransactionClient(wire, "id")
    producer_id, epoch = client.init(60_000)
    client.write_marker(T0, producer_id, epoch)
    cluster.move_coordinator(TRANSACTION, 2, repeat_markers=True)
    assert log_of(cluster).end == 2
    client.write_marker(T0, producer_id, epoch)
    assert {r.broker for r in cluster.asked("EndTxn")} == {1, 2}
    assert log_of(cluster).producers.known[producer_id].coordinator_epoch == 1


def test_a_markers_writing_is_held(cluster: DrivenCluster, wire: WireCluster) -> None:
    cluster.transactions.holds_markers = True
    client = TransactionClient(wire, "id")
    producer_id, epoch = client.init(60_000)
    thread = threading.Thread(target=client.write_marker, args=(T0, producer_id, epoch))
    thread.start()
    while not cluster.asked("EndTxn"):
        thread.join(0.001)
    assert cluster.transactions.known["id"].state in ("Ongoing", "PrepareCommit")
    assert log_of(cluster).end == 0
    with cluster.changing():
        cluster.transactions.write_held_markers()
    thread.join(WAIT_S)
    assert log_of(cluster).end == 1


def test_a_transaction_times_out_by_the_clusters_clock(cluster: DrivenCluster, wire: WireCluster) -> None:
    client = TransactionClient(wire, "id")
    producer_id, epoch = client.init(60_000)
    client.begin(T0, "group", producer_id, epoch)
    cluster.advance(60)
    assert cluster.transactions.known["id"].state == "Ongoing"
    cluster.advance(0.001)
    described = client.describe()
    assert described is not None
    assert (described.state, described.epoch, log_of(cluster).end) == ("CompleteAbort", epoch + 1, 1)


def test_a_broker_dies_and_comes_back(cluster: DrivenCluster, wire: WireCluster) -> None:
    assert produce_one(wire, T0, batch()).base_offset == 0
    cluster.kill(1)
    assert wire.log_ends([T0]) == {T0: 2}
    assert wire.leader(T0) == (2, 1)
    cluster.restart(1)
    cluster.move_leader(T0, 1)
    assert wire.log_ends([T0]) == {T0: 2}


def test_the_high_watermark_stands_still(cluster: DrivenCluster, wire: WireCluster) -> None:
    with cluster.changing():
        log_of(cluster).replicated_to = 0
    answer = produce_one(wire, T0, batch())
    assert (answer.error, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert (wire.high_watermarks([T0]), wire.log_ends([T0])) == ({T0: 0}, {T0: 2})


def test_a_truncated_log_ends_its_epochs_earlier(cluster: DrivenCluster) -> None:
    log = log_of(cluster)
    writer = Writer(log)
    writer.plain(3)
    cluster.move_leader(T0, 2)
    writer.plain(3)
    log.truncate(4)  # inside the second batch, which goes as a whole
    assert (log.end, log.epoch_end(0), log.epoch_end(1)) == (3, (0, 3), (1, 3))
    assert len(log.rows()) == 3


def test_old_producers_are_forgotten(cluster: DrivenCluster, wire: WireCluster) -> None:
    log = log_of(cluster)
    log.lay(records.encode([row(0)], producer_id=5, epoch=0, sequence=0))
    write_txn_markers(wire, T0, 6, 0, 1)
    assert set(log.producers.known) == {5, 6}
    cluster.expire_producers()
    assert set(log.producers.known) == {6}


def test_a_broker_of_another_version_is_imitated(cluster: DrivenCluster) -> None:
    for broker in cluster.brokers.values():
        del broker.served[65]
        broker.served[18] = (0, 1)  # ApiVersions before 2.4
    with WireCluster(cluster.config, timeout_s=WAIT_S) as wire:
        connection = wire.any_connection()
        assert 65 not in connection.api_versions
        assert connection.api_versions[18] == (0, 1)


def test_nobody_gets_the_port_of_a_broker_that_is_stopped(cluster: DrivenCluster) -> None:
    address = cluster.brokers[2].address
    cluster.kill(2)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=WAIT_S)
    with pytest.raises(OSError, match="in use"):
        socket.create_server(address)
    cluster.restart(2)
    socket.create_connection(address, timeout=WAIT_S).close()


def test_an_error_inside_the_broker_fails_the_test() -> None:
    with pytest.raises(ZeroDivisionError), DrivenCluster() as cluster:
        cluster.create("t")
        cluster.script.on("Metadata", Fault(before=lambda _: 1 / 0))
        with WireCluster(cluster.config, timeout_s=WAIT_S) as wire:
            wire.refresh(["t"])  # of the second try
