"""The task loop: one thread that keeps source and target brokers busy for many partitions at once.

Source side: for each leader up to two fetches are out, one for partitions that are *behind* (answered at once) and one
long poll for those that *follow* the log's end, so that neither waits for the other. The next fetch is sent as soon as
an answer has arrived, before its batches are worked through: the broker reads while we write.

Target side: for each leader a few lanes, each a connection with at most one Produce request under way (with acks=all a
broker serves a connection's requests one after another, so that more in flight gains nothing and costs the certainty
about what was appended). A request carries one batch of every partition of the lane that has one.

Anything but the expected answer makes the partition re-read the target's end and go on from there: an error says nothing
about whether the batch was appended.
"""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from airflow_mirror.copy import identity
from airflow_mirror.copy.opening import open_partition
from airflow_mirror.copy.padding import Padder
from airflow_mirror.copy.partition import Pad, PartitionCopy
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.tiers import Send
from airflow_mirror.errors import (
    LeaseLost,
    MirrorError,
    RecordRefused,
    TargetMoved,
    TryAgain,
)
from airflow_mirror.kafka.config import ClientConfig
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import fetch, produce
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.errors import error_name
from airflow_mirror.wire.fetch import FetchSpec
from airflow_mirror.wire.single import MOVED

log = logging.getLogger(__name__)

_LONG_POLL_MS = 500
_PARTITION_FETCH_BYTES = 2 << 20
_FETCH_BYTES = 16 << 20
_REQUEST_BYTES = 8 << 20
_LANES = 2  # produce connections for each target leader: one is answered while the other is filled
_PADDING_THREADS = 4
_PRODUCE_TIMEOUT_MS = 30_000
_SILENCE_S = _PRODUCE_TIMEOUT_MS / 1000 + 5  # a live broker answers within the timeout that it was given
_IDLE_S = 0.25  # how often the loop looks up when nothing happens: stop requests, retries
_PATIENCE_S = 120.0  # how long a partition may go without progress while its brokers fail: elections take seconds
_BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
# The target will never take this batch: corrupt, too large, bad timestamp, invalid record, unsupported codec, policy.
_REFUSED = frozenset({2, 10, 18, 32, 44, 76, 87})


@dataclass(frozen=True)
class CopyOptions:
    """How to copy.

    :param mirror: name of the Mirror: producer ids and transactional ids derive from it.
    :param committed_only: read_committed; aborted records become holes.
    :param max_batch_bytes: target topic -> its ``max.message.bytes``; missing topics take the broker's default.
    :param direct_markers: pad by WriteTxnMarkers where the principal may; False uses the coordinator alone.
    """

    mirror: str
    committed_only: bool = True
    max_batch_bytes: dict[str, int] = field(default_factory=dict)
    direct_markers: bool = True


DEFAULT_MAX_BATCH_BYTES = 1_048_588  # message.max.bytes of a stock broker


class _FetchLane:
    """One connection to a source leader with at most one fetch under way."""

    def __init__(self, node_id: int, following: bool) -> None:
        self.node_id, self.following = node_id, following
        self.connection: Connection | None = None
        self.correlation = 0
        self.asked: dict[TopicPartition, tuple[PartitionCopy, int]] = {}


class _ProduceLane:
    """One connection to a target leader with at most one Produce request under way."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.connection: Connection | None = None
        self.correlation = 0
        self.sent: dict[TopicPartition, tuple[PartitionCopy, Send, int]] = {}
        self.ready: deque[PartitionCopy] = deque()


class CopyLoop:
    """Copies ranges until each reached its end, stopped with an error, or the loop was told to stop.

    :param check_lease: raises LeaseLost when this process must not write any more.
    """

    def __init__(
        self, ranges: Iterable[CopyRange], source: ClientConfig, target: ClientConfig, options: CopyOptions,
        check_lease: Callable[[], None],
    ) -> None:  # fmt: skip
        self._options, self._check_lease = options, check_lease
        self._source_config, self._target_config = source, target
        self._isolation = fetch.READ_COMMITTED if options.committed_only else fetch.READ_UNCOMMITTED
        limits = options.max_batch_bytes
        self.partitions = [
            PartitionCopy(r, options.committed_only, limits.get(r.target_topic, DEFAULT_MAX_BATCH_BYTES)) for r in ranges
        ]
        self._producer_ids = {
            p.range.target: identity.data_producer_id(options.mirror, p.range.target) for p in self.partitions
        }
        self._reopen_at: dict[TopicPartition, float] = {}
        self._failing_since: dict[TopicPartition, float] = {}
        self._fetch_lanes: dict[tuple[int, bool], _FetchLane] = {}
        self._produce_lanes: dict[tuple[int, int], _ProduceLane] = {}
        self._queued: set[TopicPartition] = set()  # target partitions that stand in a lane's ready queue
        self._padders: list[tuple[ThreadPoolExecutor, Padder]] = []
        self._paddings: deque[tuple[PartitionCopy, Pad, int, Future[int]]] = deque()

    def run(self, should_stop: Callable[[], bool]) -> list[PartitionCopy]:
        """Copy until everything ended or ``should_stop`` says so; batches under way are awaited.

        :raises LeaseLost: when the lease is gone; nothing is written from then on.
        """
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        with (
            WireCluster(self._source_config, client_id=f"airflow-mirror.{self._options.mirror}") as self._source,
            WireCluster(self._target_config, client_id=f"airflow-mirror.{self._options.mirror}") as self._target,
        ):
            try:
                self._source.refresh({p.range.source_topic for p in self.partitions})
                self._target.refresh({p.range.target_topic for p in self.partitions})
                for p in self.partitions:
                    self._open(p)
                while not should_stop() and not self._ended():
                    self._step()
                self._drain()
            finally:
                self._close()
        return self.partitions

    # --- one turn of the loop ----------------------------------------------------------------------------------------

    def _step(self) -> None:
        self._check_lease()
        self._drop_silent_lanes()
        self._reopen_due()
        self._send_fetches()
        for p in self.partitions:
            self._advance(p)
        self._send_batches()
        self._await_answers(_IDLE_S)

    def _ended(self) -> bool:
        return all(p.done or p.error is not None for p in self.partitions)

    def _await_answers(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            if isinstance(key.data, _FetchLane):
                self._receive_fetch(key.data)
            elif isinstance(key.data, _ProduceLane):
                self._receive_produce(key.data)
            else:
                self._receive_paddings()

    def _drain(self) -> None:
        """Await what was sent: its answer tells whether more was appended than the counters say."""
        deadline = time.monotonic() + _PRODUCE_TIMEOUT_MS / 1000
        while (self._paddings or any(lane.sent for lane in self._produce_lanes.values())) and time.monotonic() < deadline:
            self._await_answers(_IDLE_S)

    # --- opening and reopening ---------------------------------------------------------------------------------------

    def _open(self, p: PartitionCopy) -> None:
        try:
            p.reopen(
                open_partition(
                    self._source, self._target, p.range, self._options.mirror, self._isolation, self._check_lease
                )
            )
        except MirrorError as e:
            self._failed(p, e)

    def _failed(self, p: PartitionCopy, error: MirrorError) -> None:
        """Decide what an error means: the whole task stops, the partition stops, or it tries again."""
        if isinstance(error, LeaseLost):
            raise error
        if isinstance(error, TryAgain | TargetMoved):
            # A moved end: opening tells whether another copier of ours was here (go on) or a foreign writer (stop).
            self._retry_later(p, error)
        else:
            self._stop_partition(p, error)

    def _stop_partition(self, p: PartitionCopy, error: MirrorError) -> None:
        log.error("%s stopped: %s", p.range.source, error)
        p.error = error
        p.busy = False

    def _retry_later(self, p: PartitionCopy, cause: Exception | str) -> None:
        """Forget what is in flight for a partition and re-read the target's end after a pause."""
        p.generation += 1
        p.busy = True  # nothing is sent for it until it is open again
        p.failures += 1
        now = time.monotonic()
        if p.failures == 1:
            self._failing_since[p.range.target] = now
        failing_s = now - self._failing_since[p.range.target]
        if failing_s > _PATIENCE_S:
            self._stop_partition(p, TryAgain(f"{p.range.source}: no progress for {failing_s:.0f} s: {cause}"))
            return
        level = logging.INFO if p.failures < 3 else logging.WARNING
        log.log(level, "%s: reading the target's end again (attempt %d): %s", p.range.source, p.failures, cause)
        self._reopen_at[p.range.target] = now + _BACKOFF_S[min(p.failures, len(_BACKOFF_S)) - 1]

    def _reopen_due(self) -> None:
        if not self._reopen_at:
            return
        now = time.monotonic()
        due = [p for p in self.partitions if self._reopen_at.get(p.range.target, now + 1) <= now]
        if due:
            self._refresh({p.range.source_topic for p in due}, {p.range.target_topic for p in due})
        for p in due:
            del self._reopen_at[p.range.target]
            self._open(p)

    def _refresh(self, source_topics: set[str], target_topics: set[str]) -> None:
        for cluster, topics in ((self._source, source_topics), (self._target, target_topics)):
            try:
                cluster.refresh(topics)
            except MirrorError as e:  # a deleted topic too: opening its partition names it, and stops that one only
                log.warning("metadata not refreshed: %s", e)

    # --- source side -------------------------------------------------------------------------------------------------

    def _send_fetches(self) -> None:
        wanted: dict[tuple[int, bool], list[PartitionCopy]] = {}
        for p in self.partitions:
            if p.wants_fetch and p.range.target not in self._reopen_at:
                try:
                    key = self._source.leader(p.range.source).node_id, not p.is_behind
                except TryAgain as e:
                    self._retry_later(p, e)
                    continue
                wanted.setdefault(key, []).append(p)
        for (node_id, following), partitions in wanted.items():
            lane = self._fetch_lanes.setdefault((node_id, following), _FetchLane(node_id, following))
            if not lane.asked:
                self._send_fetch(lane, partitions)

    def _send_fetch(self, lane: _FetchLane, partitions: Sequence[PartitionCopy]) -> None:
        specs = [
            FetchSpec(p.range.source, p.fetch_offset, _PARTITION_FETCH_BYTES, self._source.leader(p.range.source).epoch)
            for p in partitions
        ]
        wait_ms = _LONG_POLL_MS if lane.following else 50
        try:
            if lane.connection is None:
                lane.connection = self._source.dedicated(lane.node_id)
                self._selector.register(lane.connection, selectors.EVENT_READ, lane)
            body = fetch.encode(specs, wait_ms, 1, _FETCH_BYTES, self._isolation)
            lane.correlation = lane.connection.send(fetch.API_KEY, fetch.API_VERSION, [body])
        except TryAgain as e:
            self._drop_fetch_lane(lane)
            for p in partitions:
                self._retry_later(p, e)
            return
        for p in partitions:
            p.fetching = True
            lane.asked[p.range.source] = p, p.generation

    def _receive_fetch(self, lane: _FetchLane) -> None:
        if not lane.asked:
            self._drop_fetch_lane(lane)  # readable without a request: the broker closed an idle connection
            return
        asked, lane.asked = lane.asked, {}
        for p, generation in asked.values():
            if p.generation == generation:
                p.fetching = False
        try:
            assert lane.connection is not None
            _throttle, error, answers = fetch.decode(lane.connection.receive(lane.correlation))
        except TryAgain as e:
            self._drop_fetch_lane(lane)
            self._retry_all(asked.values(), e)
            return
        if error:
            self._retry_all(asked.values(), error_name(error))
            return
        for answer in answers:
            p, generation = asked[answer.tp]
            if p.generation != generation or p.error is not None:
                continue
            if answer.error:
                # Offset out of range included: reopening tells truncation from retention, with the offsets.
                self._retry_later(p, f"fetch from {answer.tp}: {error_name(answer.error)}")
            else:
                p.feed(answer)

    def _retry_all(self, asked: Iterable[tuple[PartitionCopy, int]], cause: Exception | str) -> None:
        for p, generation in asked:
            if p.generation == generation and p.error is None:
                self._retry_later(p, cause)

    def _drop_fetch_lane(self, lane: _FetchLane) -> None:
        if lane.connection is not None:
            self._selector.unregister(lane.connection)
            lane.connection.close()
        self._fetch_lanes.pop((lane.node_id, lane.following), None)

    # --- target side -------------------------------------------------------------------------------------------------

    def _advance(self, p: PartitionCopy) -> None:
        """Start a partition's next padding, or put it into its lane's queue when it has a batch to send."""
        if p.busy or p.range.target in self._queued:
            return
        try:
            step = p.next_step()
            if isinstance(step, Pad):
                self._start_padding(p, step)
            elif step is not None:
                leader = self._target.leader(p.range.target).node_id
                self._lane_of(p, leader).ready.append(p)
                self._queued.add(p.range.target)
        except MirrorError as e:
            self._failed(p, e)

    def _lane_of(self, p: PartitionCopy, leader: int) -> _ProduceLane:
        key = leader, hash(p.range.target) % _LANES
        return self._produce_lanes.setdefault(key, _ProduceLane(leader))

    def _send_batches(self) -> None:
        for lane in list(self._produce_lanes.values()):
            if lane.ready and not lane.sent:
                self._send_produce(lane)

    def _send_produce(self, lane: _ProduceLane) -> None:
        batches: dict[TopicPartition, memoryview] = {}
        size = 0
        while lane.ready and size < _REQUEST_BYTES:
            p = lane.ready.popleft()
            self._queued.discard(p.range.target)
            step = p.next_step()  # the same as when it was queued, unless the partition was reopened meanwhile
            if not isinstance(step, Send):
                continue
            batch = self._sign(p, step)
            if len(batch) > p.max_bytes:
                self._refuse(p, step, f"a batch of {len(batch)} bytes is larger than max.message.bytes={p.max_bytes}")
                continue
            batches[p.range.target] = batch
            size += len(batch)
            lane.sent[p.range.target] = p, step, p.generation
            p.sent()
        if not batches:
            return
        self._check_lease()
        try:
            if lane.connection is None:
                lane.connection = self._target.dedicated(lane.node_id)
                self._selector.register(lane.connection, selectors.EVENT_READ, lane)
            buffers = produce.encode(batches, _PRODUCE_TIMEOUT_MS)
            lane.correlation = lane.connection.send(produce.API_KEY, produce.API_VERSION, buffers)
        except TryAgain as e:
            self._lose_produce_lane(lane, e)

    def _sign(self, p: PartitionCopy, step: Send) -> memoryview:
        producer_id = self._producer_ids[p.range.target]
        if step.raw is not None and step.raw.header is not None:
            wire_batch.resign(step.raw.view, step.raw.header, producer_id, p.epoch, p.sequence)
            return step.raw.view
        return wire_records.encode(step.records, step.codec, producer_id, p.epoch, p.sequence)

    def _receive_produce(self, lane: _ProduceLane) -> None:
        if not lane.sent:
            self._lose_produce_lane(lane, "closed by the broker while idle")
            return
        try:
            assert lane.connection is not None
            _throttle, answers = produce.decode(lane.connection.receive(lane.correlation))
        except TryAgain as e:
            self._lose_produce_lane(lane, e)
            return
        sent, lane.sent = lane.sent, {}
        for answer in answers:
            p, step, generation = sent[answer.tp]
            if p.generation == generation and p.error is None:
                self._take_answer(p, step, answer)

    def _take_answer(self, p: PartitionCopy, step: Send, answer: produce.Produced) -> None:
        if answer.error in _REFUSED and answer.error not in MOVED:
            self._refuse(p, step, f"{error_name(answer.error)} {answer.message}".strip())
        elif answer.error:
            self._retry_later(p, f"produce to {answer.tp}: {error_name(answer.error)} {answer.message}".strip())
        else:
            try:
                p.acknowledged(step, answer.base_offset)
            except TargetMoved as e:
                self._failed(p, e)

    def _refuse(self, p: PartitionCopy, step: Send, cause: str) -> None:
        self._stop_partition(
            p,
            RecordRefused(
                p.range.source_topic, p.range.partition, step.base_offset, step.base_offset + step.record_count,
                f"the target refuses these records: {cause}",
                "Correct the target topic's settings (max.message.bytes, message.timestamp.*, cleanup.policy) and run "
                "this again; nothing behind them was copied.",
            ),
        )  # fmt: skip

    def _lose_produce_lane(self, lane: _ProduceLane, cause: Exception | str) -> None:
        """Give a connection up. What it carried may or may not be in the log: those partitions re-read the end."""
        if lane.connection is not None:
            self._selector.unregister(lane.connection)
            lane.connection.close()
            lane.connection = None
        sent, lane.sent = lane.sent, {}
        self._retry_all([(p, generation) for p, _, generation in sent.values()], cause)

    # --- padding -----------------------------------------------------------------------------------------------------

    def _start_padding(self, p: PartitionCopy, pad: Pad) -> None:
        """Pad in a thread of its own: the coordinator's answers take milliseconds each, and others can go on."""
        if not self._padders:
            self._padders = [self._new_padder(i) for i in range(_PADDING_THREADS)]
        # Always the same thread for a partition: taking its transactional id over in another would fence this one.
        executor, padder = self._padders[hash(p.range.target) % len(self._padders)]
        future = executor.submit(padder.fill, p.range.target, pad.start, pad.end)
        p.sent()
        self._paddings.append((p, pad, p.generation, future))
        future.add_done_callback(lambda _: self._wake_write.send(b"."))

    def _new_padder(self, index: int) -> tuple[ThreadPoolExecutor, Padder]:
        cluster = WireCluster(self._target_config, client_id=f"airflow-mirror.{self._options.mirror}.padding-{index}")
        padder = Padder(cluster, self._options.mirror, self._check_lease, self._options.direct_markers)
        return ThreadPoolExecutor(1, thread_name_prefix=f"padding-{index}"), padder

    def _receive_paddings(self) -> None:
        try:
            self._wake_read.recv(4096)
        except BlockingIOError:
            pass
        for _ in range(len(self._paddings)):
            p, pad, generation, future = self._paddings.popleft()
            if not future.done():
                self._paddings.append((p, pad, generation, future))
            elif p.generation == generation:
                self._take_padding(p, pad, future)

    def _take_padding(self, p: PartitionCopy, pad: Pad, future: Future[int]) -> None:
        try:
            p.padded(pad, future.result())
        except MirrorError as e:
            self._failed(p, e)

    def _drop_silent_lanes(self) -> None:
        """Give up connections whose broker is frozen or cut off: a socket that stays silent never wakes the selector."""
        for fetch_lane in list(self._fetch_lanes.values()):
            if fetch_lane.connection is not None and fetch_lane.connection.waiting_s > _SILENCE_S:
                asked, fetch_lane.asked = fetch_lane.asked, {}
                self._drop_fetch_lane(fetch_lane)
                self._retry_all(asked.values(), f"no answer for {_SILENCE_S:.0f} s")
        for lane in self._produce_lanes.values():
            if lane.connection is not None and lane.connection.waiting_s > _SILENCE_S:
                self._lose_produce_lane(lane, f"no answer for {_SILENCE_S:.0f} s")

    def _close(self) -> None:
        for executor, padder in self._padders:
            executor.shutdown(wait=True)
            padder.target.close()
        lanes: list[_FetchLane | _ProduceLane] = [*self._fetch_lanes.values(), *self._produce_lanes.values()]
        for lane in lanes:
            if lane.connection is not None:
                lane.connection.close()
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()
