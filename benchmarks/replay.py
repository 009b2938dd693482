"""Produce raw batches from memory: fills the source, and shows the limits, the speed of a copy that costs nothing itself.

The way to the target is the copier's own: two lanes for each leader, each a connection, a request carries one batch of
each partition of its lane, acks=all. What a copier does besides is missing here: no checksum, no signature, no fetch, or
one whose answers are thrown away and that has to stay ahead. So no copy of the same batches can be faster over these
lanes; one that merges batches sends others, and can.

Runs as a process of its own: ``python -m benchmarks.replay SPEC`` with the JSON of :class:`Replay`.
"""

from __future__ import annotations

import itertools
import json
import selectors
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.wire import produce
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.error_codes import error_name
from benchmarks import records
from benchmarks.cases import Case
from benchmarks.reading import Reader

LANES = 2  # for each leader, as the copier has
REQUEST_BYTES = 8 << 20
_TIMEOUT_MS = 60_000
_AHEAD_BYTES = 32 << 20


@dataclass(frozen=True)
class Replay:
    """What one process produces.

    :param case: whose batches are made.
    :param properties: librdkafka settings of the cluster.
    :param batches: how many for each partition.
    :param depth: requests under way on each connection; the limit has 1, as the copier has.
    :param read: librdkafka settings of the cluster where the case's topic is read meanwhile; None: nothing is read.
    """

    case: Case
    properties: dict[str, str]
    topic: str
    partitions: list[int]
    batches: int
    depth: int = 1
    read: dict[str, str] | None = None

    def dump(self) -> str:
        """Return the JSON that the process is given."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Replay:
        """Return what :meth:`dump` gave."""
        values = json.loads(text)
        return cls(**values | {"case": Case(**values["case"])})


@dataclass
class _Lane:
    connection: Connection
    depth: int
    left: dict[TopicPartition, Iterator[memoryview]] = field(default_factory=dict)
    turn: deque[TopicPartition] = field(default_factory=deque)
    under_way: deque[int] = field(default_factory=deque)

    def fill(self, reader: Reader | None) -> None:
        """Send requests until as many are under way as may be, all that was read is sent, or nothing is left."""
        while len(self.under_way) < self.depth and (reader is None or reader.allowance > 0):
            batches = self._next_request()
            if not batches:
                return
            if reader is not None:
                reader.allowance -= len(batches)
            buffers = produce.encode(batches, _TIMEOUT_MS)
            self.under_way.append(self.connection.send(produce.API_KEY, produce.API_VERSION, buffers))

    def take_answer(self) -> None:
        """Receive the oldest answer.

        :raises RuntimeError: when the broker refused a batch.
        """
        _, answers = produce.decode(self.connection.receive(self.under_way.popleft()))
        for answer in answers:
            if answer.error:
                raise RuntimeError(f"{answer.tp}: {error_name(answer.error)} {answer.message}")

    def _next_request(self) -> dict[TopicPartition, memoryview]:
        request: dict[TopicPartition, memoryview] = {}
        size = 0
        for _ in range(len(self.turn)):
            if size >= REQUEST_BYTES:
                break
            tp = self.turn.popleft()
            batch = next(self.left[tp], None)
            if batch is not None:
                request[tp] = batch
                size += len(batch)
                self.turn.append(tp)
        return request


def run(replay: Replay) -> None:
    """Produce everything and return when it is acknowledged.

    :raises RuntimeError: a batch was refused; :raises MirrorError: the cluster is gone.
    """
    case = replay.case
    sources = _sources(case, replay)
    with ExitStack() as stack:
        cluster = stack.enter_context(WireCluster(ClientConfig(replay.properties, "target"), client_id="benchmark"))
        selector = stack.enter_context(selectors.DefaultSelector())
        reader = None
        if replay.read is not None:
            source = stack.enter_context(WireCluster(ClientConfig(replay.read, "source"), client_id="benchmark"))
            ahead = max(1, _AHEAD_BYTES // (case.per_batch * case.record_bytes))
            reader = Reader(source, [TopicPartition(case.topic, p) for p in replay.partitions], ahead, selector)
            stack.callback(reader.close)
        lanes = _lanes(cluster, replay, sources)
        for lane in lanes:
            stack.callback(lane.connection.close)
            selector.register(lane.connection, selectors.EVENT_READ, lane)
        while True:
            if reader is not None:
                reader.ask()
            for lane in lanes:
                lane.fill(reader)
            if (reader is None or reader.done) and not any(lane.under_way for lane in lanes):
                return
            for key, _ in selector.select(_TIMEOUT_MS / 1000):
                key.data.take_answer()


def _sources(case: Case, replay: Replay) -> dict[int, Iterator[memoryview]]:
    """Return each partition's batches, all made before the first is sent."""
    if case.compacted:
        return {p: iter(list(records.keyed(case, p, replay.batches))) for p in replay.partitions}
    ring = records.ring(case)
    # Each partition starts elsewhere in the ring, so that a request is not the same batch eight times.
    starts = {p: p * 7 % len(ring) for p in replay.partitions}
    return {p: _cycle(ring, start, replay.batches) for p, start in starts.items()}


def _cycle(ring: list[memoryview], start: int, count: int) -> Iterator[memoryview]:
    endless: Iterable[memoryview] = itertools.cycle(ring)
    return itertools.islice(endless, start, start + count)


def _lanes(cluster: WireCluster, replay: Replay, sources: dict[int, Iterator[memoryview]]) -> list[_Lane]:
    cluster.refresh([replay.topic])
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in sources:
        tp = TopicPartition(replay.topic, partition)
        by_leader.setdefault(cluster.leader(tp).node_id, []).append(tp)
    lanes = []
    for node_id, tps in by_leader.items():
        for number in range(min(LANES, len(tps))):
            own = tps[number::LANES]
            lane = _Lane(cluster.dedicated(node_id), replay.depth, {tp: sources[tp.partition] for tp in own})
            lane.turn.extend(own)
            lanes.append(lane)
    return lanes


if __name__ == "__main__":
    run(Replay.load(sys.argv[1]))
