"""Asks a broker, driven or real, and returns its answers as plain values that can be compared.

What differs from broker to broker is masked: producer ids that it gave (by the order in which they were given), and
times at or after the asker's own start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from kafka.protocol.admin import DeleteRecordsRequest, DescribeProducersRequest, DescribeTransactionsRequest
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.consumer.group import OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)

from airflow_mirror.config import ClientConfig
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire import fetch, produce
from airflow_mirror.wire.batch import iter_batches
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven import records

# The coordinator is loading, or has not finished the transaction before: asked again until it has.
T = TypeVar("T")

_PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
_PATIENCE_S = 240.0
# A broker checks a batch's time against its own clock, so clocks may differ by a little.
_SLACK_MS = 60_000


class Asker:
    """One connection to the only broker of a cluster; questions about partition 0 of ``topic``."""

    def __init__(self, config: ClientConfig, topic: str) -> None:
        self.tp = TopicPartition(topic, 0)
        self._cluster = WireCluster(config, timeout_s=_PATIENCE_S)
        self._cluster.refresh([topic])
        self._connection = self._cluster.connection(self._cluster.leader(self.tp).node_id)
        self._ids: dict[int, str] = {}
        self._since_ms = int(time.time() * 1000) - _SLACK_MS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._cluster.close()

    # --- the log ------------------------------------------------------------------------------------------------------

    def produce(
        self, batch: bytes, transactional_id: str | None = None, *, topic: str | None = None
    ) -> tuple[int, int, int]:
        """Return (error, base offset, log start)."""
        tp = self.tp._replace(topic=topic or self.tp.topic)
        body = produce.encode({tp: memoryview(bytearray(batch))}, 30_000, transactional_id)
        answer = self._connection.roundtrip(produce.API_KEY, produce.API_VERSION, body)
        response = _produce_response(answer)
        return response.error_code, response.base_offset, response.log_start_offset

    def fetch(
        self, offset: int, isolation: int = 0, max_bytes: int = 1 << 20, epoch: int = -1
    ) -> tuple[int, int, int, int, list[Any], list[Any]]:
        """Return (error, high watermark, last stable offset, log start, aborted, batches); a cut last batch is "cut"."""
        body = fetch.encode([fetch.FetchSpec(self.tp, offset, max_bytes, epoch)], 0, 0, max_bytes, isolation)
        _, error, (one,) = fetch.decode(self._connection.roundtrip(fetch.API_KEY, fetch.NEWEST, [body]))
        assert not error
        batches: list[Any] = []
        size, upper = 0, offset
        for raw in iter_batches(one.records):
            batches.append(self._batch(bytes(raw.view)))
            size, upper = size + len(raw.view), raw.next_offset
        if size < len(one.records):
            batches.append(f"cut after {len(one.records) - size} bytes")
        # A real broker looks for the end of what it sent in a sparse index, and may name transactions behind it.
        aborted = [(self._id(p), first) for p, first in one.aborted if first < upper]
        return one.error, one.high_watermark, one.last_stable, one.log_start, aborted, batches

    def list_offsets(self, timestamp: int, isolation: int = 0, epoch: int = -1) -> tuple[int, int, int, int]:
        """Return (error, timestamp, offset, leader epoch)."""
        topic = ListOffsetsRequest.ListOffsetsTopic
        asked = topic.ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=timestamp)
        message = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[topic(name=self.tp.topic, partitions=[asked])]
        )
        one = self._connection.request(message, 5).topics[0].partitions[0]
        return one.error_code, self._time(one.timestamp), one.offset, one.leader_epoch

    def epoch_end(self, epoch: int, current: int = -1) -> tuple[int, int, int]:
        """Return (error, leader epoch, end offset)."""
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        asked = topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        message = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic=self.tp.topic, partitions=[asked])])
        one = self._connection.request(message, 3).topics[0].partitions[0]
        return one.error_code, one.leader_epoch, one.end_offset

    def delete_records(self, before: int) -> tuple[int, int]:
        """Return (error, log start)."""
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        asked = topic.DeleteRecordsPartition(partition_index=0, offset=before)
        message = DeleteRecordsRequest(topics=[topic(name=self.tp.topic, partitions=[asked])], timeout_ms=30_000)
        one = self._connection.request(message, 1).topics[0].partitions[0]
        return one.error_code, one.low_watermark

    def producers(self) -> tuple[int, list[Any]]:
        """Return (error, [(id, epoch, last sequence, last timestamp, coordinator epoch, transaction's start)])."""
        if DescribeProducersRequest.API_KEY not in self._connection.api_versions:
            return -1, ["not served"]  # before 2.8
        message = DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name=self.tp.topic, partition_indexes=[0])]
        )
        one = self._connection.request(message, 0).topics[0].partitions[0]
        states = [
            (
                self._id(s.producer_id), s.producer_epoch, s.last_sequence, self._time(s.last_timestamp),
                s.coordinator_epoch, s.current_txn_start_offset,
            )
            for s in one.active_producers
        ]  # fmt: skip
        return one.error_code, sorted(states)

    def markers(
        self, producers: Sequence[tuple[int, int]], *, commit: bool = True, coordinator_epoch: int = 0
    ) -> dict[str, int]:
        """Write a marker for each (producer id, epoch); return the error told for each id."""
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        message = WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=producer_id, producer_epoch=epoch, transaction_result=commit,
                    topics=[marker.WritableTxnMarkerTopic(name=self.tp.topic, partition_indexes=[0])],
                    coordinator_epoch=coordinator_epoch,
                )
                for producer_id, epoch in producers
            ]
        )  # fmt: skip
        response = self._connection.request(message, 1)
        return {self._id(m.producer_id): m.topics[0].partitions[0].error_code for m in response.markers}

    # --- transactions -------------------------------------------------------------------------------------------------

    def find_coordinator(self, key: str, key_type: int) -> int:
        """Return the error that is left when it has been found, or can't be."""
        message = FindCoordinatorRequest(key=key, key_type=key_type)
        return int(self._until_settled(lambda: self._connection.request(message, 2).error_code))

    def init(
        self, transactional_id: str | None, timeout_ms: int = 60_000, producer_id: int = -1, epoch: int = -1
    ) -> tuple[int, int, int]:
        """Return (error, producer id, epoch), the id unmasked: it is needed to go on."""
        version = 4 if producer_id >= 0 or epoch >= 0 else 1
        message = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, version=version
        )
        if version == 4:
            message.producer_id, message.producer_epoch = producer_id, epoch

        def ask() -> tuple[int, int, int]:
            one = self._connection.request(message, version)
            return one.error_code, one.producer_id, one.producer_epoch

        found = self._until_settled(ask)
        if found[1] >= 0:
            self._ids.setdefault(found[1], f"given {len(self._ids)}")
        return found

    def add_partition(self, transactional_id: str, producer_id: int, epoch: int, topic: str | None = None) -> int:
        """Return the error."""
        asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic or self.tp.topic, partitions=[0])
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id, v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch, v3_and_below_topics=[asked],
        )  # fmt: skip
        return int(
            self._until_settled(
                lambda: (
                    self._connection.request(message, 2)
                    .results_by_topic_v3_and_below[0]
                    .results_by_partition[0]
                    .partition_error_code
                )
            )
        )

    def add_offsets(self, transactional_id: str, producer_id: int, epoch: int, group: str) -> int:
        """Return the error."""
        message = AddOffsetsToTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=group
        )
        return int(self._until_settled(lambda: self._connection.request(message, 1).error_code))

    def commit_offset(self, transactional_id: str, producer_id: int, epoch: int, group: str, offset: int) -> int:
        """TxnOffsetCommit: return the error."""
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        one = topic.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="m"
        )
        message = TxnOffsetCommitRequest(
            transactional_id=transactional_id, group_id=group, producer_id=producer_id, producer_epoch=epoch,
            topics=[topic(name=self.tp.topic, partitions=[one])],
        )  # fmt: skip
        return int(
            self._until_settled(lambda: self._connection.request(message, 2).topics[0].partitions[0].error_code)
        )  # fmt: skip

    def offset(self, group: str, *, stable: bool = True, is_open: bool = False) -> tuple[int, int, str]:
        """OffsetFetch: return (error, offset, metadata).

        :param is_open: a transaction that would change it is open. Otherwise its end may be on its way to the group.
        """
        asked = OffsetFetchRequest.OffsetFetchRequestTopic(name=self.tp.topic, partition_indexes=[0], version=7)
        message = OffsetFetchRequest(group_id=group, topics=[asked], require_stable=stable, version=7)

        def ask() -> tuple[int, int, str]:
            answer = self._connection.request(message, 7)
            if answer.error_code:
                return answer.error_code, -1, ""
            one = answer.topics[0].partitions[0]
            return one.error_code, one.committed_offset, one.metadata

        return self._until_settled(ask, frozenset() if is_open else frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT}))

    def end(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> int:
        """EndTxn: return the error, once the markers are written."""
        message = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        error = int(self._until_settled(lambda: self._connection.request(message, 2).error_code))
        if not error:  # decided; a repeat is answered once the coordinator knows that the markers are written
            assert self._until_settled(lambda: self._connection.request(message, 2).error_code) == 0
        return error

    def described(self, transactional_id: str) -> tuple[Any, ...]:
        """Return (error, state, timeout, start, producer id, epoch, topics)."""
        if DescribeTransactionsRequest.API_KEY not in self._connection.api_versions:
            return ("not served",)  # before 3.0
        one = self._described(transactional_id)
        return (
            one.error_code, one.transaction_state, one.transaction_timeout_ms, self._time(one.transaction_start_time_ms),
            self._id(one.producer_id), one.producer_epoch, sorted((t.topic, tuple(t.partitions)) for t in one.topics),
        )  # fmt: skip

    # --- inside -------------------------------------------------------------------------------------------------------

    def _described(self, transactional_id: str) -> Any:
        message = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        found: list[Any] = []

        def ask() -> int:
            found[:] = self._connection.request(message, 0).transaction_states
            return int(found[0].error_code)

        self._until_settled(ask)
        return found[0]

    @staticmethod
    def _until_settled(ask: Callable[[], T], passing: frozenset[int] = frozenset()) -> T:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = ask()
            if (
                answer[0] if isinstance(answer, tuple) else answer
            ) not in _PASSING | passing or time.monotonic() > deadline:
                return answer
            time.sleep(0.002)

    def _id(self, producer_id: int) -> str:
        return self._ids.get(producer_id, str(producer_id))

    def _time(self, timestamp: int) -> Any:
        return "now" if timestamp >= self._since_ms else timestamp

    def _batch(self, content: bytes) -> tuple[Any, ...]:
        header = records.header_of(content)
        rows = [row._replace(timestamp=self._time(row.timestamp)) for row in records.decode(content)]
        return (
            header.base_offset, header.last_offset_delta, header.leader_epoch, header.attributes,
            self._time(header.base_timestamp), self._time(header.max_timestamp), self._id(header.producer_id),
            header.producer_epoch, header.base_sequence, header.record_count, tuple(rows),
        )  # fmt: skip


def _produce_response(body: memoryview) -> Any:
    from kafka.protocol.producer import ProduceResponse

    response = ProduceResponse.decode(body, version=produce.API_VERSION)
    return response.responses[0].partition_responses[0]
