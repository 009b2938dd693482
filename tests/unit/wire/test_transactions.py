"""Markers: what is tried again because it is harmless, and what is never sent twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.admin import DescribeTransactionsResponse
from kafka.protocol.consumer.group import OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse
from kafka.protocol.producer import (
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokerError, MissingRight, RequestRefused, TryAgain
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import ConnectionLost, Fenced
from airflow_mirror.wire.markers import markers_body
from airflow_mirror.wire.transactions import TransactionClient, TransactionDescription, write_txn_markers
from tests.unit.peer import FakeBroker, HangUp

FIND, INIT, ADD, END, MARKERS, DESCRIBE, OFFSET_FETCH = 10, 22, 24, 26, 27, 65, 9
TP = TopicPartition("orders", 3)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    broker = FakeBroker()
    broker.served[FIND] = (0, 3)  # one id a request
    topic = MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition(partition_index=3, leader_id=1, leader_epoch=0)
    broker.answers = {
        3: lambda request: MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port)],
            topics=[topic(name=t.name, partitions=[partition]) for t in request.topics],
        ),
        FIND: lambda _: FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=broker.port),
        INIT: lambda _: InitProducerIdResponse(producer_id=40, producer_epoch=2),
        ADD: lambda _: added(0),
        END: lambda _: EndTxnResponse(error_code=0),
        DESCRIBE: lambda _: described("CompleteCommit"),
    }
    yield broker
    broker.close()


@pytest.fixture
def cluster(broker: FakeBroker) -> Iterator[WireCluster]:
    config = ClientConfig({"bootstrap.servers": f"127.0.0.1:{broker.port}"}, "target")
    with WireCluster(config, timeout_s=60.0) as cluster:
        yield cluster


def added(code: int) -> AddPartitionsToTxnResponse:
    result = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    partition = result.AddPartitionsToTxnPartitionResult(partition_index=3, partition_error_code=code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[result(name="orders", results_by_partition=[partition])]
    )


def described(state: str, epoch: int = 2, error: int = 0) -> DescribeTransactionsResponse:
    entry = DescribeTransactionsResponse.TransactionState(
        error_code=error, transactional_id="m", transaction_state=state, transaction_timeout_ms=7,
        producer_id=40, producer_epoch=epoch, topics=[],
    )  # fmt: skip
    return DescribeTransactionsResponse(transaction_states=[entry])


def marked(code: int) -> WriteTxnMarkersResponse:
    marker = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic = marker.WritableTxnMarkerTopicResult
    partition = topic.WritableTxnMarkerPartitionResult(partition_index=3, error_code=code)
    return WriteTxnMarkersResponse(
        markers=[marker(producer_id=40, topics=[topic(name="orders", partitions=[partition])])]
    )


def in_turn(*answers: Any) -> Any:
    """Answer with each in turn; an exception is raised, the last one stays."""
    left = list(answers)

    def answer(_: Any) -> Any:
        said = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(said, Exception):
            raise said
        return said

    return answer


def asked(broker: FakeBroker) -> list[int]:
    return [key for key in broker.keys if key != 3]


# --- through the coordinator -----------------------------------------------------------------------------------------


def test_coordinator_is_looked_up_and_waited_for(broker: FakeBroker, cluster: WireCluster) -> None:
    """It is looked up again when it loads or has moved, and asked again while it is busy."""
    codes = [InitProducerIdResponse(error_code=c, producer_id=-1, producer_epoch=-1) for c in (14, 15, 16, 51)]
    broker.answers[INIT] = in_turn(*codes, InitProducerIdResponse(producer_id=40, producer_epoch=2))
    assert TransactionClient(cluster, "m").init(60_000) == (40, 2)
    # 51 is the right coordinator, still busy: it is not looked up again
    assert asked(broker) == [FIND, INIT, FIND, INIT, FIND, INIT, FIND, INIT, INIT]


def test_absent_coordinator_is_looked_up_again(broker: FakeBroker, cluster: WireCluster) -> None:
    nobody = FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1)
    broker.answers[FIND] = in_turn(nobody, nobody, broker.answers[FIND](None))
    assert TransactionClient(cluster, "m").init(60_000) == (40, 2)


def test_take_over_sends_identity_only_for_comparison(broker: FakeBroker, cluster: WireCluster) -> None:
    """The identity is producer id and epoch."""
    client = TransactionClient(cluster, "m")
    client.init(60_000)
    client.init(60_000, producer_id=40, epoch=2)
    first, second = (message for key, message in broker.asked if key == INIT)
    assert (first.version, second.version) == (1, 4)
    assert (second.producer_id, second.producer_epoch, second.transaction_timeout_ms) == (40, 2, 60_000)


@pytest.mark.parametrize("code", [47, 49, 90])
def test_a_fenced_writer_learns_it_at_once(broker: FakeBroker, cluster: WireCluster, code: int) -> None:
    broker.answers[ADD] = lambda _: added(code)
    with pytest.raises(Fenced) as caught:
        TransactionClient(cluster, "mirror-m").write_marker(TP, 40, 2)
    assert (caught.value.code, caught.value.producer_id, caught.value.epoch) == (code, 40, 2)
    assert "mirror-m" in str(caught.value) and END not in broker.keys


def test_lost_answer_to_end_txn_repeats_only_the_end(broker: FakeBroker, cluster: WireCluster) -> None:
    """Adding the partition again would open a second transaction, and so write a second marker."""
    broker.answers[END] = in_turn(HangUp(), EndTxnResponse(error_code=51), EndTxnResponse(error_code=0))
    TransactionClient(cluster, "m").write_marker(TP, 40, 2)
    assert [key for key in broker.keys if key in (ADD, END)] == [ADD, END, END, END]


def test_marker_is_reported_only_after_the_coordinator_noted_it(broker: FakeBroker, cluster: WireCluster) -> None:
    """Until then the death of the coordinator would write it a second time, behind the back of who was told."""
    states = ["Ongoing", "PrepareCommit", "PrepareCommit", "CompleteCommit"]
    broker.answers[DESCRIBE] = in_turn(*(described(state) for state in states))
    TransactionClient(cluster, "m").write_marker(TP, 40, 2)
    assert asked(broker) == [FIND, ADD, END, *[DESCRIBE] * 4]


def test_a_takeover_while_the_marker_is_on_its_way_fences(broker: FakeBroker, cluster: WireCluster) -> None:
    broker.answers[DESCRIBE] = in_turn(described("PrepareCommit"), described("Empty", epoch=3))
    with pytest.raises(Fenced):
        TransactionClient(cluster, "m").write_marker(TP, 40, 2)


@pytest.mark.parametrize(
    ("left", "then"),
    [("Ongoing", [DESCRIBE, END, DESCRIBE]), ("PrepareCommit", [DESCRIBE] * 2), ("Empty", [DESCRIBE] * 2)],
)
def test_call_after_an_uncertain_marker_only_settles_it(
    broker: FakeBroker, cluster: WireCluster, left: str, then: list[int]
) -> None:
    """The caller read the log end before the first marker arrived; a second one would be one too many."""
    cluster.timeout_s = 0.2
    client = TransactionClient(cluster, "m")
    broker.answers[END] = in_turn(*[EndTxnResponse(error_code=16)] * 50)
    with pytest.raises(BrokerError, match="NOT_COORDINATOR"):
        client.write_marker(TP, 40, 2)
    broker.answers[END] = lambda _: EndTxnResponse(error_code=0)
    broker.answers[DESCRIBE] = in_turn(described(left), described("CompleteCommit"))
    broker.asked.clear()
    with pytest.raises(TryAgain, match="Read the log end offset again"):
        client.write_marker(TP, 40, 2)
    assert [key for key in asked(broker) if key != FIND] == then
    broker.asked.clear()
    client.write_marker(TP, 40, 2)
    assert [key for key in asked(broker) if key != FIND] == [ADD, END, DESCRIBE]


def test_an_abort_marker_is_an_abort(broker: FakeBroker, cluster: WireCluster) -> None:
    TransactionClient(cluster, "m").write_marker(TP, 40, 2, commit=False)
    assert [message.committed for key, message in broker.asked if key == END] == [False]


def test_missing_rights_name_the_topic_or_the_transactional_id(broker: FakeBroker, cluster: WireCluster) -> None:
    client = TransactionClient(cluster, "mirror-m")
    broker.answers[ADD] = lambda _: added(29)
    with pytest.raises(MissingRight, match="--operation Write --topic orders"):
        client.write_marker(TP, 40, 2)
    broker.answers[INIT] = lambda _: InitProducerIdResponse(error_code=53, producer_id=-1, producer_epoch=-1)
    with pytest.raises(MissingRight, match="--operation Write --transactional-id mirror-m"):
        client.init(60_000)


def test_an_invalid_timeout_is_not_tried_again(broker: FakeBroker, cluster: WireCluster) -> None:
    broker.answers[INIT] = lambda _: InitProducerIdResponse(error_code=50, producer_id=-1, producer_epoch=-1)
    with pytest.raises(RequestRefused, match="INVALID_TRANSACTION_TIMEOUT"):
        TransactionClient(cluster, "m").init(10**9)
    assert asked(broker) == [FIND, INIT]


def test_an_id_that_the_coordinator_never_heard_of_is_none(broker: FakeBroker, cluster: WireCluster) -> None:
    broker.answers[DESCRIBE] = in_turn(described("", error=105), described("Ongoing"))
    client = TransactionClient(cluster, "m")
    assert client.describe() is None
    assert client.describe() == TransactionDescription(40, 2, "Ongoing", 7)


def test_progress_that_an_open_transaction_may_move_is_no_answer(broker: FakeBroker, cluster: WireCluster) -> None:
    """A copier that went on from there would write again what that transaction commits (KIP-447)."""
    topic = OffsetFetchResponse.OffsetFetchResponseTopic
    one = topic.OffsetFetchResponsePartition(partition_index=3, committed_offset=17, metadata="{}")
    unstable = topic.OffsetFetchResponsePartition(partition_index=3, committed_offset=-1, error_code=88)
    told = [OffsetFetchResponse(topics=[topic(name="orders", partitions=[p])]) for p in (unstable, one)]
    broker.served[OFFSET_FETCH] = (0, 7)
    broker.answers[OFFSET_FETCH] = in_turn(*told)
    assert TransactionClient(cluster, "m").committed_offset(TP, "g") == (17, "{}")
    assert [m.require_stable for key, m in broker.asked if key == OFFSET_FETCH] == [True, True]


# --- directly to the leader ------------------------------------------------------------------------------------------


@pytest.mark.repeats
@pytest.mark.parametrize("count", [1, 2, 126, 127, 128, 16_383, 16_384])
def test_many_equal_markers_are_encoded_as_the_schema_says(count: int) -> None:
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    one = marker(
        producer_id=2**40,
        producer_epoch=7,
        transaction_result=True,
        topics=[marker.WritableTxnMarkerTopic(name=TP.topic, partition_indexes=[TP.partition])],
        coordinator_epoch=3,
    )
    expected = bytes(WriteTxnMarkersRequest(markers=[one] * count).encode(version=1))
    assert markers_body(TP, 2**40, 7, count, 3, True) == expected


def test_direct_markers_are_sent_once_despite_a_lost_answer(broker: FakeBroker, cluster: WireCluster) -> None:
    broker.answers[MARKERS] = in_turn(HangUp(), marked(0))
    with pytest.raises(ConnectionLost):
        write_txn_markers(cluster, TP, 40, 2, 5)
    assert asked(broker) == [MARKERS]
    ((_, message),) = [(k, m) for k, m in broker.asked if k == MARKERS]
    assert len(message.markers) == 5


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        (6, BrokerError, r"WriteTxnMarkers \(5\) to orders-3: .*NOT_LEADER"),
        (19, BrokerError, "NOT_ENOUGH_REPLICAS"),
        (31, MissingRight, r"lacks Alter \(or ClusterAction\) on cluster .* --operation Alter --cluster$"),
        (47, Fenced, "INVALID_PRODUCER_EPOCH"),
        (52, Fenced, "TRANSACTION_COORDINATOR_FENCED"),
        (-1, RequestRefused, "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_refused_direct_markers_are_typed_and_never_retried(
    broker: FakeBroker, cluster: WireCluster, code: int, error: type[Exception], said: str
) -> None:
    broker.answers[MARKERS] = lambda _: marked(code)
    with pytest.raises(error, match=said):
        write_txn_markers(cluster, TP, 40, 2, 5)
    assert asked(broker) == [MARKERS]


def test_brokers_before_3_8_ask_for_cluster_action(broker: FakeBroker, cluster: WireCluster) -> None:
    """KIP-1037: ALTER, which is right for a newer one, would change nothing there."""
    broker.served[INIT] = (0, 4)
    broker.answers[MARKERS] = lambda _: marked(31)
    with pytest.raises(MissingRight, match="lacks ClusterAction on cluster .* --operation ClusterAction --cluster$"):
        write_txn_markers(cluster, TP, 40, 2, 5)


def test_one_refused_marker_among_those_that_were_written_is_told(broker: FakeBroker, cluster: WireCluster) -> None:
    broker.answers[MARKERS] = lambda _: WriteTxnMarkersResponse(markers=[*marked(0).markers, *marked(19).markers])
    with pytest.raises(BrokerError, match="NOT_ENOUGH_REPLICAS"):
        write_txn_markers(cluster, TP, 40, 2, 2)


def test_after_not_leader_the_next_call_asks_who_leads_now(broker: FakeBroker, cluster: WireCluster) -> None:
    broker.answers[MARKERS] = in_turn(marked(6), marked(0))
    with pytest.raises(BrokerError):
        write_txn_markers(cluster, TP, 40, 2, 1)
    before = broker.keys.count(3)
    write_txn_markers(cluster, TP, 40, 2, 1)
    assert broker.keys.count(3) == before + 1


def test_no_marker_at_all_is_a_mistake_of_the_caller(cluster: WireCluster) -> None:
    with pytest.raises(ValueError, match="at least one"):
        write_txn_markers(cluster, TP, 40, 2, 0)
