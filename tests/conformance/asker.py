"""Asks a broker, driven or real, and returns its answers as plain values that can be compared.

What differs from broker to broker is masked: producer ids that it gave (by the order in which they were given), and
times at or after the asker's own start.

Each request is sent in the newest version that the broker serves, up to the one that is named here. What the answer of an
older one lacks is NOT_TOLD; what can't be asked at all is answered with NOT_SERVED, or UNSUPPORTED_VERSION for an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from kafka.protocol.admin import (
    DeleteRecordsRequest,
    DescribeAclsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.consumer.group import OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.wire import fetch, produce
from airflow_mirror.wire.batch import iter_batches
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ConnectionLost
from airflow_mirror.wire.topology import id_of
from tests.driven import records

T = TypeVar("T")

NOT_TOLD = "not told"
NOT_SERVED = ("not served",)
HUNG_UP = ("hung up",)  # how a broker before 1.0 refuses a request that it can't parse
# The versions that brought what an answer lacks before.
_PRODUCE_LOG_START, _FETCH_EPOCH, _LIST_OFFSETS_EPOCH = 5, 9, 4

# The coordinator is loading, or has not finished the transaction before: asked again until it has.
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
        self._node_id = self._cluster.leader(self.tp).node_id
        self._ids: dict[int, str] = {}
        self._since_ms = int(time.time() * 1000) - _SLACK_MS
        self._asked_by: dict[bytes, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._cluster.close()

    # --- the log ------------------------------------------------------------------------------------------------------

    def produce(self, batch: bytes, transactional_id: str | None = None, *, topic: str | None = None) -> tuple[Any, ...]:
        """Return (error, base offset, log start), or HUNG_UP."""
        tp = self.tp._replace(topic=topic or self.tp.topic)
        body = produce.encode({tp: memoryview(bytearray(batch))}, 30_000, transactional_id)
        connection = self._connection
        version = connection.newest(produce.API_KEY, 3, produce.API_VERSION)
        try:
            answer = connection.roundtrip(produce.API_KEY, version, body)
        except ConnectionLost:
            return HUNG_UP
        one = ProduceResponse.decode(answer, version=version).responses[0].partition_responses[0]
        log_start = one.log_start_offset if version >= _PRODUCE_LOG_START else NOT_TOLD
        return one.error_code, one.base_offset, log_start

    @property
    def topic_id(self) -> str:
        """The id of the asker's topic; empty where it has none."""
        return self._cluster.topic_id(self.tp.topic)

    def produce_by_id(self, batch: bytes, topic_id: str = "", *, partition: int = 0) -> tuple[Any, ...]:
        """Return (error, base offset, log start), the last as kafka-python reads it; the others as we do.

        :param topic_id: of another topic than the asker's.
        """
        topic_id = topic_id or self.topic_id
        tp, number = TopicPartition("?", partition), id_of(topic_id).bytes
        body = produce.encode({tp: memoryview(batch)}, 30_000, ids={"?": number})
        answer = self._connection.roundtrip(produce.API_KEY, produce.BY_ID, body, flexible=True)
        _, (one,) = produce.decode(answer, {number: "?"})
        (topic,) = ProduceResponse.decode(answer, version=produce.BY_ID).responses
        (theirs,) = topic.partition_responses
        assert ((topic.topic_id or UUID(int=0)).bytes, theirs.index) == (number, one.tp.partition)
        assert (theirs.error_code, theirs.base_offset) == (one.error, one.base_offset)
        return one.error, one.base_offset, theirs.log_start_offset

    def fetch(self, offset: int, isolation: int = 0, max_bytes: int = 1 << 20, epoch: int = -1) -> tuple[Any, ...]:
        """Return (error, high watermark, last stable offset, log start, aborted, batches); a cut last batch is "cut"."""
        connection = self._connection
        version = fetch.version(connection)
        if epoch >= 0 and version < _FETCH_EPOCH:
            return NOT_SERVED
        body = fetch.encode([fetch.FetchSpec(self.tp, offset, max_bytes, epoch)], 0, 0, max_bytes, isolation, version)
        _, error, (one,) = fetch.decode(connection.roundtrip(fetch.API_KEY, version, [body]), version)
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

    def fetch_by_id(self, offset: int, topic_id: str = "", *, partition: int = 0, epoch: int = -1) -> tuple[Any, ...]:
        """Return (error, high watermark, last stable offset, log start, number of batches).

        :param topic_id: of another topic than the asker's.
        """
        number = id_of(topic_id or self.topic_id).bytes
        spec = fetch.FetchSpec(self.tp._replace(partition=partition), offset, 1 << 20, epoch, number)
        body = fetch.encode([spec], 0, 0, 1 << 20, 0, fetch.BY_ID)
        answer = self._connection.roundtrip(fetch.API_KEY, fetch.BY_ID, [body], flexible=True)
        _, error, (one,) = fetch.decode(answer, fetch.BY_ID, {number: self.tp.topic})
        assert not error and one.tp == spec.tp
        return one.error, one.high_watermark, one.last_stable, one.log_start, len(list(iter_batches(one.records)))

    def fetch_in_session(
        self, number: int, epoch: int, offsets: Mapping[int, int], forgotten: Sequence[int] = (), topic_id: str = "",
    ) -> tuple[int, tuple[Any, ...]]:  # fmt: skip
        """Return the session's number, and (error, whether there is one, [(partition, error, high watermark, log start,
        number of batches)]).

        :param offsets: of the partitions that the request names.
        :param topic_id: by which it names the topic; empty: by its name.
        """
        connection = self._connection
        by_id = id_of(topic_id).bytes if topic_id else b""
        version = fetch.BY_ID if by_id else fetch.version(connection)

        def spec(partition: int, offset: int) -> fetch.FetchSpec:
            return fetch.FetchSpec(self.tp._replace(partition=partition), offset, 1 << 20, topic_id=by_id)

        place = fetch.Place(number, epoch, [spec(p, 0) for p in forgotten])
        asked = fetch.encode([spec(*one) for one in offsets.items()], 0, 0, 1 << 20, 0, version, place)
        body = connection.roundtrip(fetch.API_KEY, version, [asked], flexible=bool(by_id))
        self._asked_by[by_id] = self.tp.topic  # a session tells of what an earlier request has named
        _, error, partitions = fetch.decode(body, version, self._asked_by)
        told = fetch.session_of(body, version)
        rows = [
            (one.tp.partition, one.error, one.high_watermark, one.log_start, len(list(iter_batches(one.records))))
            for one in partitions
        ]
        return told, (error, bool(told), rows)

    def list_offsets(self, timestamp: int, isolation: int = 0, epoch: int = -1) -> tuple[Any, ...]:
        """Return (error, timestamp, offset, leader epoch)."""
        tells_epochs = self._connection.serves(ListOffsetsRequest.API_KEY, _LIST_OFFSETS_EPOCH)
        if epoch >= 0 and not tells_epochs:
            return NOT_SERVED
        topic = ListOffsetsRequest.ListOffsetsTopic
        asked = topic.ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=timestamp)
        message = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[topic(name=self.tp.topic, partitions=[asked])]
        )
        one = self._ask(message, 2, 5).topics[0].partitions[0]
        return one.error_code, self._time(one.timestamp), one.offset, one.leader_epoch if tells_epochs else NOT_TOLD

    def epoch_end(self, epoch: int, current: int = -1) -> tuple[Any, ...]:
        """Return (error, leader epoch, end offset)."""
        if not self._connection.serves(OffsetForLeaderEpochRequest.API_KEY, 2):
            return NOT_SERVED  # before 2.1, to clients
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        asked = topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        message = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic=self.tp.topic, partitions=[asked])])
        one = self._ask(message, 2, 3).topics[0].partitions[0]
        return one.error_code, one.leader_epoch, one.end_offset

    def delete_records(self, before: int) -> tuple[int, int]:
        """Return (error, log start)."""
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        asked = topic.DeleteRecordsPartition(partition_index=0, offset=before)
        message = DeleteRecordsRequest(topics=[topic(name=self.tp.topic, partitions=[asked])], timeout_ms=30_000)
        one = self._ask(message, 0, 1).topics[0].partitions[0]
        return one.error_code, one.low_watermark

    def producers(self) -> tuple[Any, ...]:
        """Return (error, [(id, epoch, last sequence, last timestamp, coordinator epoch, transaction's start)])."""
        if not self._connection.serves(DescribeProducersRequest.API_KEY, 0):
            return NOT_SERVED  # before 2.8
        message = DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name=self.tp.topic, partition_indexes=[0])]
        )
        one = self._ask(message, 0, 0).topics[0].partitions[0]
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
        response = self._ask(message, 0, 1)
        return {self._id(m.producer_id): m.topics[0].partitions[0].error_code for m in response.markers}

    # --- transactions -------------------------------------------------------------------------------------------------

    def find_coordinator(self, key: str, key_type: int) -> int:
        """Return the error that is left when it has been found, or can't be."""
        message = FindCoordinatorRequest(key=key, key_type=key_type)
        return int(self._until_settled(lambda: self._ask(message, 0, 2).error_code))

    def init(
        self, transactional_id: str | None, timeout_ms: int = 60_000, producer_id: int = -1, epoch: int = -1
    ) -> tuple[int, int, int]:
        """Return (error, producer id, epoch), the id unmasked: it is needed to go on."""
        compares = producer_id >= 0 or epoch >= 0
        if compares and not self._connection.serves(InitProducerIdRequest.API_KEY, 4):
            return int(ErrorCode.UNSUPPORTED_VERSION), -1, -1  # before 2.7
        message = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        if compares:
            message.producer_id, message.producer_epoch = producer_id, epoch

        def ask() -> tuple[int, int, int]:
            one = self._ask(message, *((4, 4) if compares else (0, 1)))
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
                    self._ask(message, 0, 2).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
                )
            )
        )

    def add_offsets(self, transactional_id: str, producer_id: int, epoch: int, group: str) -> int:
        """Return the error."""
        message = AddOffsetsToTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=group
        )
        return int(self._until_settled(lambda: self._ask(message, 0, 1).error_code))

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
            self._until_settled(lambda: self._ask(message, 0, 2).topics[0].partitions[0].error_code)
        )  # fmt: skip

    def offset(
        self, group: str, *, stable: bool = True, is_open: bool = False, awaited: int | None = None
    ) -> tuple[Any, ...]:
        """OffsetFetch: return (error, offset, metadata).

        :param is_open: a transaction that would change it is open. Otherwise its end may be on its way to the group.
        :param awaited: the offset that an ended transaction sets; before 2.5 nothing else says that it is on its way.
        """
        if stable and is_open and not self._connection.serves(OffsetFetchRequest.API_KEY, 7):
            return NOT_SERVED  # before 2.5
        asked = OffsetFetchRequest.OffsetFetchRequestTopic(name=self.tp.topic, partition_indexes=[0])
        message = OffsetFetchRequest(group_id=group, topics=[asked], require_stable=stable)

        def ask() -> tuple[int, int, str]:
            answer = self._ask(message, 2, 7)
            if answer.error_code:
                return answer.error_code, -1, ""
            one = answer.topics[0].partitions[0]
            if awaited is not None and not one.error_code and one.committed_offset != awaited:
                return int(ErrorCode.UNSTABLE_OFFSET_COMMIT), one.committed_offset, one.metadata
            return one.error_code, one.committed_offset, one.metadata

        return self._until_settled(ask, frozenset() if is_open else frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT}))

    def end(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> int:
        """EndTxn: return the error, once the markers are written."""
        message = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        error = int(self._until_settled(lambda: self._ask(message, 0, 2).error_code))
        if not error:  # decided; a repeat is answered once the coordinator knows that the markers are written
            assert self._until_settled(lambda: self._ask(message, 0, 2).error_code) == 0
        return error

    def described(self, transactional_id: str) -> tuple[Any, ...]:
        """Return (error, state, timeout, start, producer id, epoch, topics)."""
        if not self._connection.serves(DescribeTransactionsRequest.API_KEY, 0):
            return NOT_SERVED  # before 3.0
        one = self._described(transactional_id)
        return (
            one.error_code, one.transaction_state, one.transaction_timeout_ms, self._time(one.transaction_start_time_ms),
            self._id(one.producer_id), one.producer_epoch, sorted((t.topic, tuple(t.partitions)) for t in one.topics),
        )  # fmt: skip

    def listed(self, *states: str) -> tuple[Any, ...]:
        """ListTransactions: return (error, unknown filters, [(id, producer id, state)] of this topic's ids)."""
        if not self._connection.serves(ListTransactionsRequest.API_KEY, 0):
            return NOT_SERVED  # before 3.0
        answer = self._ask(ListTransactionsRequest(state_filters=list(states), producer_id_filters=[]), 0, 0)
        ours = [one for one in answer.transaction_states if one.transactional_id.startswith(self.tp.topic)]
        rows = sorted((one.transactional_id, self._id(one.producer_id), one.transaction_state) for one in ours)
        return answer.error_code, sorted(answer.unknown_state_filters), rows

    def acls(self) -> tuple[int, int]:
        """DescribeAcls: return the error, and how many resources have rules."""
        message = DescribeAclsRequest(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
            host_filter=None, operation=1, permission_type=1,
        )  # fmt: skip
        answer = self._ask(message, 0, 3)
        return answer.error_code, len(answer.resources)

    # --- inside -------------------------------------------------------------------------------------------------------

    @property
    def _connection(self) -> Connection:
        """The broker's connection, opened again if it hung up."""
        return self._cluster.connection(self._node_id)

    def _ask(self, message: Any, lowest: int, highest: int) -> Any:
        """Send a message in the newest version that the broker serves, and return the answer."""
        connection = self._connection
        return connection.request(message, connection.newest(message.API_KEY, lowest, highest))

    def _described(self, transactional_id: str) -> Any:
        message = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        found: list[Any] = []

        def ask() -> int:
            found[:] = self._ask(message, 0, 0).transaction_states
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
