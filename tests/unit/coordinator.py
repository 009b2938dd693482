"""A transaction coordinator in process, as far as leases and padding need it.

What it answers to InitProducerId is what ``tests/integration/test_lease.py`` saw of a real one: the same questions, the
same answers, over a restart too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.admin import DescribeTransactionsResponse
from kafka.protocol.consumer import OffsetForLeaderEpochResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse
from kafka.protocol.producer import (
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    WriteTxnMarkersResponse,
)

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.wire.cluster import WireCluster
from tests.unit.peer import FakeBroker

METADATA, FIND, INIT, EPOCH_END, ADD, END, MARKERS, DESCRIBE = 3, 10, 22, 23, 24, 26, 27, 65
PARTITIONS = 8  # of every topic
LAST_EPOCH = 32_766
_NONE = -1


@dataclass
class Entry:
    """What is kept of an id; ``last_epoch`` and ``last_producer_id`` in memory only."""

    producer_id: int
    epoch: int
    timeout_ms: int
    last_epoch: int = _NONE
    last_producer_id: int = _NONE
    state: str = "Empty"
    partitions: list[TopicPartition] = field(default_factory=list)


class Coordinator(FakeBroker):
    """The one broker of a cluster, which leads every partition of every topic too.

    :ivar fails: asked before each answer of the coordinator; what it raises is done to the connection.
    :ivar ends: log end of each partition; what is appended are markers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ids: dict[str, Entry] = {}
        self.fails: Callable[[], None] = lambda: None
        self.ends: Counter[TopicPartition] = Counter()
        self._next_id = 100
        self.served[FIND] = (0, 3)  # one id a request
        self.answers |= {
            METADATA: self._metadata,
            FIND: lambda _: FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=self.port),
            INIT: self._init,
            DESCRIBE: self._describe,
            EPOCH_END: self._epoch_end,
            ADD: self._add,
            END: self._end,
            MARKERS: self._markers,
        }

    @property
    def config(self) -> ClientConfig:
        return ClientConfig({"bootstrap.servers": f"127.0.0.1:{self.port}"}, "target")

    def cluster(self, timeout_s: float = 60.0) -> WireCluster:
        return WireCluster(self.config, timeout_s=timeout_s)

    def restart(self) -> None:
        """Forget what is not in the log."""
        for entry in self.ids.values():
            entry.last_epoch = entry.last_producer_id = _NONE

    def _init(self, request: Any) -> InitProducerIdResponse:
        self.fails()
        entry = self.ids.get(request.transactional_id)
        expected = getattr(request, "producer_epoch", None)
        expected = None if expected is None or expected < 0 else (request.producer_id, expected)
        if entry is None:
            entry = self.ids[request.transactional_id] = Entry(self._new_id(), _NONE, request.transaction_timeout_ms)
            entry.epoch = 0
        elif expected in (None, (entry.producer_id, entry.epoch)):
            last = (_NONE, _NONE) if expected is None else expected
            if entry.epoch >= LAST_EPOCH:
                entry.producer_id, entry.epoch = self._new_id(), 0
            else:
                entry.epoch += 1
            entry.last_producer_id, entry.last_epoch = last
        elif expected != (entry.last_producer_id, entry.last_epoch):
            return InitProducerIdResponse(error_code=90, producer_id=-1, producer_epoch=-1)
        entry.timeout_ms = request.transaction_timeout_ms
        return InitProducerIdResponse(error_code=0, producer_id=entry.producer_id, producer_epoch=entry.epoch)

    def _describe(self, request: Any) -> DescribeTransactionsResponse:
        self.fails()
        (name,) = request.transactional_ids
        entry = self.ids.get(name)
        state = DescribeTransactionsResponse.TransactionState
        if entry is None:
            return DescribeTransactionsResponse(transaction_states=[state(error_code=105, transactional_id=name)])
        one = state(
            error_code=0, transactional_id=name, transaction_state=entry.state, transaction_timeout_ms=entry.timeout_ms,
            producer_id=entry.producer_id, producer_epoch=entry.epoch, topics=[],
        )  # fmt: skip
        return DescribeTransactionsResponse(transaction_states=[one])

    def _metadata(self, request: Any) -> MetadataResponse:
        topic = MetadataResponse.MetadataResponseTopic
        partitions = [
            topic.MetadataResponsePartition(partition_index=p, leader_id=1, leader_epoch=0) for p in range(PARTITIONS)
        ]
        return MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            topics=[topic(name=t.name, partitions=partitions) for t in request.topics or []],
        )

    def _epoch_end(self, request: Any) -> OffsetForLeaderEpochResponse:
        topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        return OffsetForLeaderEpochResponse(
            topics=[
                topic(
                    topic=t.topic,
                    partitions=[
                        topic.EpochEndOffset(
                            error_code=0, partition=p.partition, leader_epoch=0,
                            end_offset=self.ends[TopicPartition(t.topic, p.partition)],
                        )
                        for p in t.partitions
                    ],
                )
                for t in request.topics
            ]
        )  # fmt: skip

    def _add(self, request: Any) -> AddPartitionsToTxnResponse:
        self.fails()
        entry = self.ids[request.v3_and_below_transactional_id]
        (topic,) = request.v3_and_below_topics
        ours = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch) == (entry.producer_id, entry.epoch)
        if ours:
            entry.state, entry.partitions = "Ongoing", [TopicPartition(topic.name, p) for p in topic.partitions]
        result = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
        one = result.AddPartitionsToTxnPartitionResult(
            partition_index=topic.partitions[0], partition_error_code=0 if ours else 90
        )
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[result(name=topic.name, results_by_partition=[one])]
        )

    def _end(self, request: Any) -> EndTxnResponse:
        self.fails()
        entry = self.ids[request.transactional_id]
        if (request.producer_id, request.producer_epoch) != (entry.producer_id, entry.epoch):
            return EndTxnResponse(error_code=90)
        if entry.state == "Ongoing":
            self.ends.update(entry.partitions)
            entry.state = "CompleteCommit"
        return EndTxnResponse(error_code=0)

    def _markers(self, request: Any) -> WriteTxnMarkersResponse:
        for marker in request.markers:
            self.ends.update(TopicPartition(t.name, p) for t in marker.topics for p in t.partition_indexes)
        return WriteTxnMarkersResponse(markers=[])

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id
