"""The source side of the loop: fetches for many partitions at once.

Each leader has up to two requests in flight: one for partitions that are *behind* (answered at once), and one long poll
for partitions that *follow* the log end, so that neither waits for the other. The next fetch of a backlog is sent as
soon as a response has arrived, before its batches are written: the broker reads while we write. The next long poll is
sent after the records of the last one were sent to the target, because every tenth of a millisecond adds latency there.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable, Iterable, Iterator, Sequence

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.delays import wall_ms
from airflow_mirror.copy.loop.crew import Dialler
from airflow_mirror.copy.loop.failures import Asked, Judge, retry_all
from airflow_mirror.copy.loop.lane import Lane, Lines
from airflow_mirror.copy.loop.limits import Buffer, Memory, Throttle
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.errors import CorruptBatch, MirrorError, TryAgain
from airflow_mirror.wire import fetch
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.fetch import FetchedPartition, FetchSpec

# As long as Kafka's own consumers wait (fetch.max.wait.ms).
_LONG_POLL_MS = 500
# A batch has at most 1 MB by default, and one that is larger comes whole in any case (KIP-74).
_PARTITION_FETCH_BYTES = 2 << 20
# Three such responses are all that a task may hold (`loop._MEMORY_BYTES`).
_FETCH_BYTES = 16 << 20
_LEAST_FETCH_BYTES = 1 << 20
_DRY_ANSWERS = 2400  # a broker waits 50 ms before it sends an empty response, so this takes two minutes


class FetchLane(Lane):
    """A lane to a source leader."""

    def __init__(self, node_id: int, following: bool) -> None:
        super().__init__(node_id)
        self.following = following
        self.asked: dict[TopicPartition, Asked] = {}
        self.expected = 0  # bytes that the response may have


class SourceSide:
    """Fetches for partitions and feeds them.

    :param memory: memory for responses; nothing is requested that would not fit.
    :param isolation: of every fetch (0 read_uncommitted, 1 read_committed).
    :ivar starves: a backlog could not be fetched because fetched data takes all the memory.
    """

    starves = False

    def __init__(
        self, dialler: Dialler, selector: selectors.BaseSelector, memory: Memory, isolation: int, judge: Judge,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._lines, self._memory = Lines(dialler, selector), memory
        self._isolation, self._judge, self._clock = isolation, judge, clock
        self.throttle = Throttle(clock)
        self._lanes: dict[tuple[int, bool], FetchLane] = {}
        # By lane, in order: the partitions that wanted a response at their last event.
        self._waiting: dict[tuple[int, bool], dict[PartitionCopy, None]] = {}

    def send(self, touched: Iterable[PartitionCopy]) -> None:
        """Fetch for the partitions that can use a response: a backlog now, the others at :meth:`poll`.

        :param touched: partitions with an event since the last call; the wishes of the others are unchanged.
        """
        self.starves = False
        for p in touched:
            self._enlist(p)
        self._ask_idle(following=False)

    def poll(self) -> None:
        """Send the long polls."""
        self._ask_idle(following=True)

    def _enlist(self, p: PartitionCopy) -> None:
        if p.wants_fetch:
            self._waiting.setdefault(_lane_of(p), {})[p] = None

    def _ask_idle(self, following: bool) -> None:
        now = self._clock()
        for key in list(self._waiting):
            if key[1] is not following:
                continue
            lane = self._lanes.setdefault(key, FetchLane(*key))
            if not lane.asked and not lane.comes_up and lane.not_before <= now:
                self._ask(lane, self._wanting(key))

    def _wanting(self, key: tuple[int, bool]) -> list[PartitionCopy]:
        """Return the partitions to fetch for; drop those that want no fetch any more or have another leader."""
        waiting = {p: None for p in self._waiting.pop(key) if p.wants_fetch and _lane_of(p) == key}
        if waiting:
            self._waiting[key] = waiting
        # A request may name a partition only once; other copies of it (by key) follow in the next request.
        several: dict[TopicPartition, PartitionCopy] = {}
        for p in waiting:
            several.setdefault(p.range.source, p)
        return list(several.values())

    def _ask(self, lane: FetchLane, partitions: Sequence[PartitionCopy]) -> None:
        if not partitions:
            return
        # Promised, though nothing of it is there yet: each broker may send all that it was asked for.
        expected = sum(other.expected for other in self._lanes.values() if other.asked)
        size = min(_FETCH_BYTES, self._memory.free - expected)
        # A long poll returns little, and must not wait for memory that a backlog occupies.
        if size < _LEAST_FETCH_BYTES and not lane.following and (expected or self._memory.used):
            self.starves = True
            return
        # What exceeds the limit by this much, or by a batch that is larger, is accepted of a long poll, and of a backlog
        # when nothing else is held: it would never be fetched otherwise.
        size = max(size, _LEAST_FETCH_BYTES)
        # A backlog is answered at once. 50 ms are for one that is none any more, or that a quota holds back.
        wait_ms = _LONG_POLL_MS if lane.following else 50
        try:
            if not self._lines.is_up(lane, partitions[0].source_leader.connect):
                return
            share = min(size, _PARTITION_FETCH_BYTES)
            # The epoch is the one that the opening found: as soon as there is a newer leader the broker refuses this
            # fetch, and the next opening asks what that leader has lost (`epochs`).
            specs = [FetchSpec(p.range.source, p.fetch_offset, share, p.source_leader.epoch) for p in partitions]
            assert lane.connection is not None
            # A fetch changes nothing on either side: one that is lost is asked again, behind the opening that follows.
            self._lines.sent(lane, fetch.ask(lane.connection, specs, wait_ms, 1, size, self._isolation, wait=False))
        except MirrorError as e:
            self._drop(lane)
            for p in partitions:
                self._judge.failed(p, e)
            return
        lane.heard_at = self._clock()
        lane.expected = size
        waiting = self._waiting[lane.node_id, lane.following]
        for p in partitions:
            p.fetching = True
            # With the generation: an answer that arrives after the partition has failed is for an offset that may be
            # wrong by now.
            lane.asked[p.range.source] = p, p.generation
            del waiting[p]

    def receive(self, lane: FetchLane) -> None:
        """Receive from a connection that is ready to read or write."""
        if not lane.asked:
            self._drop(lane)  # readable without a request: the broker closed an idle connection
            return
        try:
            assert lane.connection is not None
            body = self._lines.take(lane)
            if body is None:
                lane.heard_at = self._clock()
                return
            throttle_ms, error, answers = fetch.decode(body, fetch.version(lane.connection))
        except TryAgain as e:
            asked = self._answered(lane)
            self._drop(lane)
            retry_all(self._judge, asked.values(), e)
            return
        asked = self._answered(lane)
        lane.not_before = self.throttle.told(throttle_ms)
        # It counts as soon as a partition takes something of it: an answer to partitions that have all failed meanwhile
        # holds no memory.
        buffer = Buffer(self._memory, len(body), wall_ms())
        if error:
            retry_all(self._judge, asked.values(), error_name(error))
            return
        dry = not throttle_ms and not any(answer.records for answer in answers)
        for answer in answers:
            p, generation = asked[answer.tp]
            if p.generation == generation:
                self._take_fetched(lane, p, answer, buffer, dry)
        for p, _ in asked.values():  # most got no records and are touched by nothing else
            self._enlist(p)

    def _answered(self, lane: FetchLane) -> dict[TopicPartition, Asked]:
        """Return the partitions of the request in flight, and allow fetching for them again."""
        asked, lane.asked = lane.asked, {}
        for p, generation in asked.values():
            if p.generation == generation:
                p.fetching = False
        return asked

    def _take_fetched(
        self, lane: FetchLane, p: PartitionCopy, answer: FetchedPartition, buffer: Buffer, dry: bool
    ) -> None:
        # Three openings first, each with the leader of its moment: another replica may have the batch whole.
        if answer.error == ErrorCode.CORRUPT_MESSAGE and p.failures >= 3:
            self._judge.stop(p, _unreadable(p, p.fetch_offset + 1, "its broker can't read them (CORRUPT_MESSAGE)"))
        elif answer.error:
            # Includes offset out of range: reopening tells truncation from lost retention, with the offsets.
            self._judge.retry_later(p, lane.cause(f"fetch from {answer.tp}", answer.error, "Read", answer.tp.topic))
        else:
            p.feed(answer, buffer)
            # A batch with a wrong length hides what follows it: the broker then never has anything to send. A response
            # that was filled with other partitions' batches, or is empty because of a quota, proves nothing.
            p.dry = p.dry + 1 if dry and p.is_behind else 0 if answer.records else p.dry
            if p.dry > _DRY_ANSWERS:
                cause = f"nothing arrives although the log ends at {p.available_end}; a batch of wrong length causes that"
                self._judge.stop(p, _unreadable(p, p.available_end, cause))

    def drop_silent(self, since: float, silence_s: float) -> None:
        """Give up connections with a request in flight on which nothing has moved since ``since``, ``silence_s`` ago.

        Their broker is frozen or cut off; a silent socket never wakes the selector.
        """
        for lane in list(self._lanes.values()):
            if lane.asked and lane.heard_at < since:
                asked, lane.asked = lane.asked, {}
                self._drop(lane)
                retry_all(self._judge, asked.values(), f"no answer for {silence_s:.0f} s")

    def pauses(self) -> Iterator[float]:
        """Yield for each connection the seconds that its broker still throttles us; below 0: none."""
        now = self._clock()
        return (lane.not_before - now for lane in self._lanes.values())

    def close(self) -> None:
        """Close all connections."""
        for lane in list(self._lanes.values()):
            self._drop(lane)

    def _drop(self, lane: FetchLane) -> None:
        self._lines.abandon(lane)
        # The next fetch has a lane of its own. A connection that this one has asked for is closed when it comes
        # (`Lines.abandon`).
        self._lanes.pop((lane.node_id, lane.following), None)


def _lane_of(p: PartitionCopy) -> tuple[int, bool]:
    return p.source_leader.node_id, not p.is_behind


def _unreadable(p: PartitionCopy, end: int, cause: str) -> CorruptBatch:
    return CorruptBatch(
        p.range.source_topic, p.range.partition, p.fetch_offset, end, f"the source's records can't be read: {cause}",
        "Everything before them was copied. Restore this partition of the source from another replica.",
    )  # fmt: skip
