"""The target side of the loop: batches of many partitions in one request.

Each leader has a few lanes. A lane is a connection with at most one Produce request in flight: with acks=all a broker
serves a connection's requests one after another, so more in flight would gain nothing and make it uncertain what was
appended. A request carries one batch of each of the lane's partitions that has one.
"""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import marker_id
from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.copy.delays import wall_ms
from airflow_mirror.copy.loop.crew import Dialler
from airflow_mirror.copy.loop.failures import CORRUPT_AGAIN, TOO_LARGE_AGAIN, Judge, retry_all
from airflow_mirror.copy.loop.lane import Lane, Lines
from airflow_mirror.copy.loop.limits import Pace, Throttle
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.errors import (
    CorruptBatch,
    LeaseLost,
    LeaseUnconfirmed,
    MirrorError,
    PartitionStopped,
    TargetMoved,
    TryAgain,
)
from airflow_mirror.wire import packed, produce
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.topology import id_of

# How long a leader may wait for its replicas. An answer that says so (REQUEST_TIMED_OUT) may come with a batch that was
# appended and stays, or with one that is truncated later: it is "unknown" like a lost one.
PRODUCE_TIMEOUT_MS = 30_000
_LANES = 2  # connections per target leader: one is served while the other is filled
# What to do about records that the target refuses, and about bytes that arrive damaged each time.
_SETTINGS = (
    "Correct the target topic's settings (max.message.bytes, segment.bytes, message.timestamp.*, cleanup.policy) and run "
    "this again; nothing after them was copied."
)
_DAMAGED = (
    "They were whole when they were fetched, and were fetched anew each time: look at the memory of this host, and at "
    "the network to the target (SSL finds what changes there). Run this again; nothing after them was copied."
)


class ProduceLane(Lane):
    """A lane to a target leader."""

    def __init__(self, node_id: int) -> None:
        super().__init__(node_id)
        self.sent: dict[TopicPartition, tuple[PartitionCopy, Send, int]] = {}
        self.ready: deque[PartitionCopy] = deque()
        self.filled_at = 0.0
        self.by_id = False  # the request in flight names topics by their ids


class TargetSide:
    """Sends the batches of partitions and receives the acknowledgements.

    :param pace: limits the write rate.
    :param mirror: name of the Mirror, from which transactional ids are derived.
    :param ids: of target topics, by name, as far as they are known.
    :param check_lease: raises LeaseLost if this process must never write again, LeaseUnconfirmed if not now.
    """

    def __init__(
        self, dialler: Dialler, selector: selectors.BaseSelector, pace: Pace, mirror: str, ids: Mapping[str, str],
        check_lease: Callable[[], None], judge: Judge, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        self.know(ids)
        self._lines, self._pace, self._mirror = Lines(dialler, selector), pace, mirror
        self._check_lease, self._judge, self._clock = check_lease, judge, clock
        self.throttle = Throttle(clock)
        self._lanes: dict[tuple[int, int], ProduceLane] = {}
        self._queued: set[PartitionCopy] = set()  # partitions in a lane's ready queue

    def know(self, ids: Mapping[str, str]) -> None:
        """Write to these topics by their ids from now on."""
        self._ids |= {topic: id_of(topic_id).bytes for topic, topic_id in ids.items()}
        self._names = {topic_id: topic for topic, topic_id in self._ids.items()}

    @property
    def busy(self) -> bool:
        """True while any response is awaited."""
        return any(lane.sent for lane in self._lanes.values())

    def has(self, p: PartitionCopy) -> bool:
        """True if ``p`` is queued."""
        return p in self._queued

    def queue(self, p: PartitionCopy) -> None:
        """Queue a partition that has a batch to send."""
        self._lane_of(p, p.target_leader.node_id).ready.append(p)
        self._queued.add(p)

    def expect(self, p: PartitionCopy, sent: Send) -> None:
        """Match the response to the batch in flight with ``sent``, which no longer holds the batch's bytes."""
        for lane in self._lanes.values():
            asked = lane.sent.get(p.range.target)
            if asked is not None and asked[0] is p:
                lane.sent[p.range.target] = p, sent, asked[2]

    def send(self) -> None:
        """Fill a request on each idle connection."""
        now = self._clock()
        # Under a rate limit only the first lane gets to write, so the one that has waited longest goes first.
        for lane in sorted(self._lanes.values(), key=lambda lane: lane.filled_at):
            if lane.ready and not lane.sent and lane.not_before <= now and self._pace.wait_s <= 0:
                self._fill(lane)

    def _fill(self, lane: ProduceLane) -> None:
        lane.filled_at = self._clock()
        first = self._front(lane)
        if first is None:
            return
        try:
            # Before anything is signed or marked as sent: what is in the queue stays there until the connection is up.
            if not self._lines.is_up(lane, first.target_leader.connect):
                return
        except MirrorError as e:
            self._give_up(lane, e)
            return
        batches: dict[TopicPartition, memoryview] = {}
        transactional_id: str | None = None
        size, limit = 0, min(produce.REQUEST_BYTES, self._pace.portion or produce.REQUEST_BYTES)
        for _ in range(len(lane.ready)):
            if size >= limit or transactional_id is not None:
                break  # a request belongs to one transaction at most
            p = self._front(lane)
            if p is None:
                break
            if p.range.target in batches or (p.transactional and batches):
                lane.ready.rotate(-1)  # one batch per partition and request: this one goes into the next
                continue
            self._pop(lane)
            try:
                step = p.next_step()  # the same as when it was queued, unless the partition was reopened
            except MirrorError as e:
                self._judge.failed(p, e)
                continue
            if not isinstance(step, Send):
                p.touch()
                continue
            # Epoch and sequence are the partition's own since its opening, and move on with an acknowledgement only. So
            # a batch of another copier that opened at the same end has the same ones: the broker takes one of the two.
            batch = self._sign(p, step)
            # Also one above `p.max_bytes`, a single record: the topic may take more by now than when this copy began.
            batches[p.range.target] = batch
            size += len(batch)
            transactional_id = marker_id(self._mirror, p.range.target) if p.transactional else None
            # Noted before the bytes leave, each with the generation it was signed in: an answer that comes behind a
            # failure of the partition finds another one, and is thrown away.
            lane.sent[p.range.target] = p, step, p.generation
            p.sent(step)
        if batches:
            self._produce(lane, batches, transactional_id)
            self._pace.spend(size)

    def _front(self, lane: ProduceLane) -> PartitionCopy | None:
        """Return the partition that has waited longest; let go of those before it that have another leader by now."""
        # Also before the lane is connected, by the means of the one in front. That of another leader would connect it to
        # that leader's broker, which refuses all that this lane ever sends.
        while lane.ready:
            p = lane.ready[0]
            if p.target_leader.node_id == lane.node_id:
                return p
            self._pop(lane)
            p.touch()  # it was reopened meanwhile with another leader, where it is queued
        return None

    def _pop(self, lane: ProduceLane) -> PartitionCopy:
        p = lane.ready.popleft()
        self._queued.discard(p)
        return p

    def _produce(
        self, lane: ProduceLane, batches: dict[TopicPartition, memoryview], transactional_id: str | None
    ) -> None:
        assert lane.connection is not None
        lane.heard_at = self._clock()
        has_ids = transactional_id is None and all(tp.topic in self._ids for tp in batches)
        # By id a leader refuses a batch for a topic that was created again while nobody looked; by name it would append
        # it.
        lane.by_id = has_ids and lane.connection.serves(produce.API_KEY, produce.BY_ID)
        version, ids = (produce.BY_ID, self._ids) if lane.by_id else (produce.API_VERSION, None)
        try:
            # Each partition knows that its batch is sent (`p.sent`): whether the bytes are executed, this process may
            # never learn. It dies, or the answer is lost, and the next opening finds out by the target's log end.
            # The lease is asked right before the first byte, and before each rest (`receive`): behind a freeze another
            # job's batches may be in the log, and a request that is not sent to its end is not executed.
            buffers = produce.encode(batches, PRODUCE_TIMEOUT_MS, transactional_id, ids)
            sent = lane.connection.send(
                produce.API_KEY, version, buffers, lane.by_id, check=self._check_lease, wait=False
            )  # fmt: skip
            self._lines.sent(lane, sent)
        except LeaseLost:
            raise
        except LeaseUnconfirmed as e:
            # Raised before the first byte: the connection is in step, and stays. In `receive` the broker has a part,
            # waits for the rest, and is hung up on.
            self._keep_back(lane, e)
        except TryAgain as e:
            self._lose(lane, e)

    def _keep_back(self, lane: ProduceLane, error: LeaseUnconfirmed) -> None:
        """Make the partitions of a request wait for the lease. Part of it was not sent, so the broker ignores it."""
        sent, lane.sent = lane.sent, {}
        for p, _, generation in sent.values():
            if p.generation == generation:
                self._judge.failed(p, error)

    def _sign(self, p: PartitionCopy, step: Send) -> memoryview:
        return step.signed(p.max_bytes, p.producer_id, p.epoch, p.sequence, p.transactional)

    def receive(self, lane: ProduceLane) -> None:
        """Receive from a connection that is ready to read or write."""
        if not lane.sent:
            self._lose(lane, "closed by the broker while idle")
            return
        try:
            # The rest of the request first, if the kernel did not take all of it at once: minutes may have passed since
            # its head.
            body = self._lines.take(lane, self._check_lease)
            if body is None:
                lane.heard_at = self._clock()
                return
            throttle_ms, answers = produce.decode(body, self._names if lane.by_id else None)
        except LeaseLost:
            raise
        except LeaseUnconfirmed as e:
            self._lines.hang_up(lane)
            self._keep_back(lane, e)
            return
        except TryAgain as e:
            self._lose(lane, e)
            return
        # Also behind an error: the broker does not read from this connection for so long (KIP-219).
        lane.not_before = self.throttle.told(throttle_ms)
        sent, lane.sent = lane.sent, {}
        now_ms = wall_ms()
        for answer in answers:
            p, step, generation = sent[answer.tp]
            if p.generation == generation:
                self._take_answer(lane, p, step, answer, now_ms)

    def drop_silent(self, since: float, silence_s: float) -> None:
        """Give up silent connections, like the source side."""
        # A broker that was only frozen may append it all the same when it thaws, behind the look that follows. What is
        # sent then has the same sequence: the broker takes one of the two (`identity`).
        for lane in self._lanes.values():
            if lane.sent and lane.heard_at < since:
                self._lose(lane, f"no answer for {silence_s:.0f} s")

    def pauses(self) -> Iterator[float]:
        """Yield the seconds until the rate allows a write, and each connection's throttle, like the source side."""
        yield self._pace.wait_s
        now = self._clock()
        for lane in self._lanes.values():
            yield lane.not_before - now

    def close(self) -> None:
        """Close all connections."""
        for lane in self._lanes.values():
            # Reset, with what the kernel has not sent yet. What the broker has of it, and had no time to answer, is in
            # the log for the next opening.
            self._lines.abandon(lane)

    def _lane_of(self, p: PartitionCopy, leader: int) -> ProduceLane:
        key = leader, hash(p.range.target) % _LANES
        return self._lanes.setdefault(key, ProduceLane(leader))

    def _take_answer(
        self, lane: ProduceLane, p: PartitionCopy, step: Send, answer: produce.Produced, now_ms: int
    ) -> None:
        cause = _unreadable(step) if answer.error == ErrorCode.UNKNOWN_SERVER_ERROR else None
        if (answer.error in produce.REFUSED or cause is not None) and p.open_bytes > 0:
            # Whatever stops the partition now would throw away what is acknowledged in the open transaction, and say
            # that it was copied.
            p.commit_before = step.base_offset
            self._judge.retry_later(p, f"the target refuses a batch of a transaction: {error_name(answer.error)}")
        elif answer.error in produce.REFUSED and not _may_pass(p, step, answer.error):
            said = f"{error_name(answer.error)} {answer.message}".strip()
            if answer.error == ErrorCode.MESSAGE_TOO_LARGE:
                said += f" (about {step.size} bytes; max.message.bytes={p.max_bytes} when this copy began)"
            self._refuse(p, step, said, _DAMAGED if answer.error == ErrorCode.CORRUPT_MESSAGE else _SETTINGS)
        elif cause is not None:
            # Passed unchanged because the target might have accepted it. It did not, and can't say why.
            self._judge.stop(
                p,
                CorruptBatch(
                    p.range.source_topic, p.range.partition, step.base_offset, step.next_source,
                    f"the target refuses this batch unchanged, and it can't be decoded to be re-encoded: {cause}",
                    "Its checksum is correct, so it was written like that. Everything before it was copied. Start the "
                    "mirror of this partition after it.",
                ),
            )  # fmt: skip
        elif answer.error:
            of_id = answer.error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            name = marker_id(self._mirror, answer.tp) if of_id else answer.tp.topic
            # Whatever its name, an error does not tell whether the batch is in the log: NOT_LEADER with a base offset
            # was seen for batches that stayed, REQUEST_TIMED_OUT for such that were truncated. The opening looks.
            self._judge.retry_later(
                p, lane.cause(f"produce to {answer.tp}", answer.error, "Write", name, answer.message)
            )  # fmt: skip
        else:
            try:
                # Death behind the broker's append and before this line: the next opening finds the batch at the log's
                # end, compares it with the source's, and begins behind it.
                p.acknowledged(step, answer.base_offset, now_ms)
            except TargetMoved as e:
                self._judge.failed(p, e)

    def _refuse(self, p: PartitionCopy, step: Send, cause: str, remedy: str) -> None:
        if step.merged:
            # Most of it may be fine: continue batch by batch, so that the error names the one that is not.
            p.merge_below = 0
            self._judge.retry_later(p, f"the target refuses a merged batch: {cause}")
            return
        self._judge.stop(
            p,
            PartitionStopped(
                p.range.source_topic, p.range.partition, step.base_offset, step.base_offset + step.record_count,
                f"the target refuses these records: {cause}", remedy,
            ),
        )  # fmt: skip

    def _give_up(self, lane: ProduceLane, error: MirrorError) -> None:
        """Make the partitions that wait for a broker look up their leader again."""
        # Not a byte of theirs has left: they were not in a request yet.
        waiting = list(lane.ready)
        lane.ready.clear()
        self._queued.difference_update(waiting)
        for p in waiting:
            if p.is_open and p.target_leader.node_id == lane.node_id:
                self._judge.failed(p, error)
            else:
                p.touch()

    def _lose(self, lane: ProduceLane, cause: Exception | str) -> None:
        """Give up a connection. Its batches may or may not be in the log, so their partitions re-read the end."""
        self._lines.hang_up(lane)
        sent, lane.sent = lane.sent, {}
        # The connection is closed first, and reset (`Stream._tune`): what has not left this machine by now never will, so
        # that it can't move the end that is read next.
        retry_all(self._judge, [(p, generation) for p, _, generation in sent.values()], cause)


def _may_pass(p: PartitionCopy, step: Send, error: int) -> bool:
    """Return whether a batch that was refused is to be offered again."""
    # Damaged behind our look at the checksum, in memory or on the way: a few openings fetch it again.
    if error == ErrorCode.CORRUPT_MESSAGE:
        return p.failures < CORRUPT_AGAIN
    follows = p.range.end_offset is None
    return error in produce.TOO_LARGE and follows and not step.merged and p.failures < TOO_LARGE_AGAIN


def _unreadable(step: Send) -> str | None:
    """Return why a batch that was sent unchanged can't be decoded; None if it can be."""
    if step.raw is None or not step.raw.view:  # re-encoded, or its bytes were given back: it is sent again
        return None
    try:
        for record in wire_records.pack(step.raw):
            packed.fields_of(record.body)
    except ValueError as e:
        return str(e)
    return None
