"""The copy of one partition: fetched batches, the next step, acknowledged writes. No socket and no clock here.

The loop feeds fetch responses in and calls :meth:`PartitionCopy.next_step`, which returns a batch to send, a hole to
pad, a transaction to begin or commit, or nothing. State changes only on acknowledgement, so a lost response loses
nothing: the loop re-reads the target's end and calls :meth:`PartitionCopy.reopen`. The legal transitions are a table
(`states`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import NamedTuple

from airflow_mirror.copy.batches import joining, tiers, tombstones
from airflow_mirror.copy.batches.by_key import key_filter
from airflow_mirror.copy.batches.joining import CompiledJoiner, Joiner
from airflow_mirror.copy.batches.tiers import Corrupt, Send, Tier
from airflow_mirror.copy.delays import DelayMeter
from airflow_mirror.copy.loop.leaders import NOBODY, Broker
from airflow_mirror.copy.loop.limits import Buffer
from airflow_mirror.copy.loop.states import OPEN, Event, State, after
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.opening.epochs import Consumed, Trail
from airflow_mirror.copy.opening.identical import Opening
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import CorruptBatch, MirrorError, TargetMoved
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire.aborted import AbortedFilter
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.fetch import FetchedPartition

FOREVER = 2**63 - 1
_TRICKLE_BYTES = 1 << 16


class Pad(NamedTuple):
    """Fill the target offsets [start, end) with padding; no record may be written there."""

    start: int
    end: int


class Begin(NamedTuple):
    """Open a transaction for the records from ``position`` on."""

    position: int


class Commit(NamedTuple):
    """Commit the open transaction, with ``position`` as the next source offset."""

    position: int


@dataclass(kw_only=True)
class Counters:
    """What a partition's copy did, in records, bytes (as sent) and batches."""

    records: int = 0
    bytes: int = 0
    batches: int = 0  # sent
    passed: int = 0  # of the batches sent: unchanged
    reencoded: int = 0  # of the batches sent: decoded and re-encoded, each source batch into one or several
    merged: int = 0  # source batches that were merged into larger ones
    dropped: int = 0  # source batches not sent: markers, aborted, emptied
    padded: int = 0  # offsets
    primed: int = 0  # offsets


COUNTERS = tuple(f.name for f in fields(Counters))


_Part = tuple[FetchedPartition, int, int]  # a response, the offset it was asked for, and its number of batches


@dataclass
class _Responses:
    """Fetch responses that are processed as one: a large one, or several small ones that waited for the target together.

    :ivar steps: None until processing begins; from then on no part is added.
    """

    parts: list[_Part]
    buffers: list[Buffer]
    size: int
    steps: Iterator[Send | Corrupt] | None = None


@dataclass(eq=False)
class PartitionCopy:
    """The copy of one range.

    :param max_bytes: largest batch that the target accepts, in bytes.
    :param merge_below: merge waiting batches if they are smaller than this on average, uncompressed (bytes); 0: never.
    :param transaction_bytes: deliver in transactions of at most about this size, which also commit the progress. A
        transaction is committed earlier if the source has no more data. 0: no transactions. Mapped offsets only.
    :param tombstones: fill holes with tombstones of a reserved key instead of markers; identical offsets only.
    :param touched: the copy adds itself here on every event. A loop shares one among all of its partitions and looks at
        no others.
    :ivar timestamp: timestamp of the last record on the target, in ms; fillers use it.
    :ivar position: next source offset: everything below it is on the target.
    :ivar map: with mapped offsets: what was mapped since the copy was opened (or since the map was last taken).
    :ivar open_map: the map of the open transaction; it takes effect on commit.
    """

    range: CopyRange
    committed_only: bool
    max_bytes: int
    _: KW_ONLY
    merge_below: int = 0
    transaction_bytes: int = 0
    tombstones: bool = False
    touched: dict[PartitionCopy, None] = field(default_factory=dict, repr=False)
    position: int = 0
    timestamp: int = 0
    map: OffsetMap | None = None
    open_map: OffsetMap | None = None
    fetch_offset: int = 0
    producer_id: int = -1
    epoch: int = 0
    sequence: int = 0
    available_end: int = -1  # last stable offset or high watermark: the end of what a fetch may return; -1 not yet known
    held: int = 0  # offsets behind an open transaction, from `available_end` on
    counters: Counters = field(default_factory=Counters)
    state: State = State.WAITING
    error: MirrorError | None = None  # the error that stopped it
    fetching: bool = False
    generation: int = 0  # grows whenever it is not open any more; responses to older requests are discarded
    failures: int = 0  # reopenings since the last progress
    opened: bool = False  # at least once, so its position is known
    watched: int = 0  # position when the source topic was last seen with the planned id
    source_leader: Broker = NOBODY
    target_leader: Broker = NOBODY
    target_start: int = 0  # log start offset of the target when it was opened
    dry: int = 0  # consecutive fetch responses without records for any partition although there should be some
    open_bytes: int = -1  # sent in the open transaction; -1 when none is open
    committed: int = 0  # transactional: position of the last commit
    trail: Trail = field(default_factory=Trail)
    delays: DelayMeter = field(default_factory=DelayMeter)
    _responses: deque[_Responses] = field(default_factory=deque)
    _next: Send | Corrupt | None = None
    _filler: Send | None = None
    _unanswered: Send | None = None  # sent, not acknowledged; re-reading the target shows if it was appended
    queued_bytes: int = 0
    has_shed: bool = False  # released its fetched data, and fetches no more until the target has responded
    _wanted: Callable[[bytes | None], bool] | None = None

    def __post_init__(self) -> None:
        if self.range.key_partitions is not None:
            self._wanted = key_filter(self.range.partition, self.range.target.partition, self.range.key_partitions)

    @property
    def end(self) -> int:
        """Offset to stop at; a huge number when following the log."""
        return FOREVER if self.range.end_offset is None else self.range.end_offset

    @property
    def transactional(self) -> bool:
        """True if records are delivered in transactions."""
        return self.transaction_bytes > 0

    @property
    def done(self) -> bool:
        """True once everything up to the end of the range is on the target, for good."""
        return self.state is State.DONE

    @property
    def is_open(self) -> bool:
        """True while the position is known: only then do brokers' responses count."""
        return self.state in OPEN

    @property
    def if_landed(self) -> Consumed | None:
        """What was consumed last, if the batch with the lost response is on the target."""
        return None if self._unanswered is None else self.trail.at(self._unanswered.next_source)

    @property
    def is_under_way(self) -> bool:
        """True while a request to the target or to a coordinator is in flight."""
        return self.state in (State.SENDING, State.STEPPING)

    @property
    def settled_position(self) -> int:
        """The next source offset that another copier would find if this one ended now."""
        return self.committed if self.transactional else self.position

    @property
    def is_behind(self) -> bool:
        """True if the next fetch is known or expected to return data at once."""
        return self.available_end < 0 or self.fetch_offset < min(self.available_end, self.end)

    @property
    def wants_fetch(self) -> bool:
        """True if another fetch response could be used."""
        waiting = self.state not in OPEN or self.fetching or self.fetch_offset >= self.end or self.has_shed
        # Two are enough for a backlog: one being written, one ready. A trickle needs more, or the partition would miss
        # the next long poll while its last record is in flight, and would then wait half a second for that poll to end.
        queued = sum(len(one.buffers) for one in self._responses)  # each may hold other partitions' bytes as well
        return not waiting and (queued < 2 or (queued < 8 and self.queued_bytes < _TRICKLE_BYTES))

    def begin_opening(self) -> None:
        """Record that the partition is being opened."""
        self._happens(Event.OPEN)

    def reopen(self, opening: Opening, source: Broker = NOBODY, target: Broker = NOBODY) -> None:
        """Continue at the target's log end offset, with these leaders."""
        self._happens(Event.OPENED)
        self.source_leader, self.target_leader = source, target
        unanswered, self._unanswered = self._unanswered, None
        if unanswered is not None and opening.position >= unanswered.next_source:
            self._count(unanswered)  # its response was lost or came too late
        self.opened, self.watched = True, opening.position
        self.target_start = opening.log_start
        self.position = self.committed = self.fetch_offset = opening.position
        self.trail.cut(opening.position)
        self.producer_id, self.epoch, self.sequence = opening.producer_id, opening.epoch, opening.sequence
        self.map, self.timestamp = opening.map, opening.timestamp
        self.counters.primed += opening.primed
        self.available_end = -1
        self._settle()

    def fail(self) -> None:
        """Discard everything in flight, until the target's end is read again."""
        self._happens(Event.FAIL)

    def stop(self, error: MirrorError) -> None:
        """Stop for good."""
        self._happens(Event.STOP)
        self.error = error

    def _happens(self, event: Event) -> None:
        self.state = after(self.state, event)
        self.has_shed = False
        if self.state not in OPEN:
            self.forget()
        self.touch()

    def touch(self) -> None:
        """Mark the copy for the loop's next turn."""
        self.touched[self] = None

    def _settle(self) -> None:
        """Finish if nothing is left to do. In transactions, the progress over a hole at the end must be committed too."""
        uncommitted = self.transactional and self._ended_uncommitted
        if self.state is State.READY and self.position >= self.end and self.open_bytes < 0 and not uncommitted:
            self._happens(Event.FINISH)

    def take_map(self) -> OffsetMap | None:
        """Return what was mapped since the last call, None if nothing was; the caller has to store it."""
        part = self.map
        if part is None or part.source_end == part.source_start:
            return None
        self.map = OffsetMap(part.source_end, part.target_end)
        return part

    def give_back_map(self, part: OffsetMap) -> None:
        """Take back a part that could not be stored; the next :meth:`take_map` returns it with what was mapped since."""
        if self.map is not None:
            part.extend(self.map)
            self.map = part

    def forget(self) -> None:
        """Drop what was fetched, which gives its memory back; responses in flight will be ignored."""
        self.generation += 1
        self.fetching = False
        while self._responses:
            self._drop_response()
        self._next = self._filler = None
        if self._unanswered is not None:
            self._unanswered = self._unanswered.without_bytes()
        self.open_bytes = -1
        self.open_map = None

    def shed(self) -> Send | None:
        """Release fetched data that is not in flight: while the target is slow, other partitions need the memory.

        It is fetched again once the target has responded.

        :return: the batch in flight, without its bytes; expect the response for it instead of the original.
        """
        following = self._next
        if self.fetching or isinstance(following, Corrupt) or not self._responses:
            return None
        sent = self._unanswered
        if sent is not None:
            self.fetch_offset = sent.next_source
        elif following is not None:
            self.fetch_offset = following.base_offset  # the padding in flight ends there
        else:
            return None
        while self._responses:
            self._drop_response()
        self._next = self._filler = None
        self.trail.cut(self.fetch_offset)
        self.has_shed = True
        self._unanswered = sent and sent.without_bytes()
        return self._unanswered

    def feed(self, fetched: FetchedPartition, buffer: Buffer) -> None:
        """Accept a fetch response for :attr:`fetch_offset`; its batches are processed lazily, in order.

        :param buffer: holds the response's bytes; released once the last of them was sent.
        """
        known = self.available_end
        self.available_end = fetched.last_stable if self.committed_only else fetched.high_watermark
        self.held = fetched.high_watermark - self.available_end
        if self.available_end != known or fetched.records:
            self.touch()
        start = self.fetch_offset
        batches = 0
        try:
            batches, behind = wire_batch.scan(fetched.records)
            self.fetch_offset = max(self.fetch_offset, behind)
        except wire_batch.BrokenFrame:
            pass
        # Brokers send the first batch whole, however large. If no batch is whole, its length is wrong, which is reported.
        broken = bool(fetched.records) and not batches
        self.fetch_offset = min(self.fetch_offset, self.end)
        if self.fetch_offset <= start and not broken:
            return
        size = len(fetched.records)
        buffer.take()
        self.queued_bytes += size
        last = self._responses[-1] if self._responses else None
        # A target far away takes one batch a round trip. What comes meanwhile is merged as a backlog is: sent one by one,
        # records that come faster than that would wait for each other.
        if last is not None and last.steps is None and last.size + size < _TRICKLE_BYTES:
            last.parts.append((fetched, start, batches))
            last.buffers.append(buffer)
            last.size += size
        else:
            self._responses.append(_Responses([(fetched, start, batches)], [buffer], size))

    def next_step(self) -> Send | Pad | Begin | Commit | None:
        """Return the next step; None if there is none, if one is in flight, or if the copy is not open.

        :raises CorruptBatch: the next source batch is corrupt.
        """
        if self.state is not State.READY:
            return None
        step = self._peek()
        if isinstance(step, Corrupt):
            if self.open_bytes >= 0:
                return Commit(self.position)  # commit the intact batches first
            raise CorruptBatch(
                self.range.source_topic, self.range.partition, step.start, step.end, step.cause,
                "Everything before it was copied. Restore the batch from another replica of the source, or start the "
                "mirror of this partition behind it.",
            )  # fmt: skip
        if step is not None:
            return self._before(step) or step
        last = self._at_the_end()
        self._settle()
        return last

    def _before(self, send: Send) -> Send | Pad | Begin | Commit | None:
        """Return what has to be done before a batch can be sent."""
        if self.transactional:
            if self.open_bytes >= self.transaction_bytes:
                return Commit(self.position)
            return Begin(self.position) if self.open_bytes < 0 else None
        if self._keeps_offsets and send.base_offset > self.position:
            return self._fill(send.base_offset)
        return None

    def _fill(self, end: int) -> Send | Pad:
        """Return what fills the hole from the position to ``end``, or the next part of it."""
        if not self.tombstones:
            return Pad(self.position, end)
        # Cached, because the loop asks twice per step and packing a filler takes milliseconds.
        if self._filler is None or self._filler.base_offset != self.position:
            self._filler = tombstones.filler(self.position, end, self.timestamp, self.max_bytes)
        return self._filler

    def _at_the_end(self) -> Send | Pad | Begin | Commit | None:
        """Handle the hole between the last record and the fetch position, once nothing is left to send.

        The hole is filled or skipped only once the source has no more data, because the next response may begin with a
        batch at any offset above it.
        """
        if self.fetch_offset > self.position and (not self.is_behind or self.fetch_offset >= self.end):
            if self._keeps_offsets:
                return self._fill(self.fetch_offset)
            self.position = self.fetch_offset
            if (book := self._book) is not None:
                book.advance(self.position)
        if self.open_bytes >= 0:
            return Commit(self.position)
        # A range may end in a hole; the progress over it must be committed too.
        return Begin(self.position) if self.transactional and self._ended_uncommitted else None

    @property
    def _ended_uncommitted(self) -> bool:
        return self.position >= self.end and self.committed < self.position

    @property
    def _book(self) -> OffsetMap | None:
        """The map that the next record is added to."""
        return self.open_map if self.open_map is not None else self.map

    @property
    def _keeps_offsets(self) -> bool:
        return not self.range.is_mapped

    def sent(self, send: Send | None = None) -> None:
        """Mark a step as in flight.

        :param send: the batch, if the step is one.
        """
        self._happens(Event.STEP if send is None else Event.SEND)
        self._unanswered = send

    def acknowledged(self, send: Send, base_offset: int, now_ms: int) -> None:
        """Accept the broker's acknowledgement of a batch, and measure its delays.

        :param now_ms: when it arrived, in ms since 1970.
        :raises TargetMoved: the batch was stored at another offset; the caller re-reads the end and decides again.
        """
        self._happens(Event.ANSWER)
        self._unanswered = None
        book = self._book
        # Others may write to a mapped target too. A lower offset means that the broker already has the batch.
        moved = base_offset != send.base_offset if book is None else base_offset < book.target_end
        if moved:
            raise TargetMoved(
                self.range.target_topic, self.range.target.partition, send.base_offset,
                send.base_offset + send.record_count, f"the target stored this batch at offset {base_offset}",
                "Another writer appended to the target. Stop it, then delete and copy this partition again.",
            )  # fmt: skip
        if book is not None:
            at = base_offset
            for first, count in send.runs():
                book.add(first, at, count)
                at += count
            book.advance(send.next_source)
        if self.open_bytes >= 0:
            self.open_bytes += send.size
        self.position = send.next_source
        self.sequence = wire_batch.next_sequence(self.sequence, send.record_count)
        self._count(send)
        self.failures = 0
        if send is self._next:
            self._next = None
        if self.tombstones:
            self.timestamp = send.newest_timestamp
        if not send.filler:  # which has an old record's timestamp
            # The response that the batch came in is the first one until the next step; but it may have been shed.
            arrived_ms = self._responses[0].buffers[-1].arrived_ms if self._responses else now_ms
            self.delays.add(send.last_timestamp, arrived_ms, now_ms)
        self._settle()

    def padded(self, pad: Pad, written: int) -> None:
        """Record that a hole is filled."""
        self._happens(Event.ANSWER)
        self.position = pad.end
        self.counters.padded += written
        self.failures = 0
        self._settle()

    def began(self) -> None:
        """Record that a transaction is open."""
        self._happens(Event.ANSWER)
        self.open_bytes = 0
        if self.map is not None:
            self.open_map = OffsetMap(self.map.source_end, self.map.target_end)

    def transaction_ended(self, commit: Commit) -> None:
        """Record that a transaction is committed."""
        self._happens(Event.ANSWER)
        self.open_bytes = -1
        self.committed = commit.position
        if self.map is not None and self.open_map is not None:
            self.map.extend(self.open_map)
        self.open_map = None
        self.failures = 0
        self._settle()

    def _count(self, send: Send) -> None:
        c = self.counters
        if send.filler:
            c.padded += send.record_count
            return
        c.records += send.record_count
        c.batches += 1
        c.bytes += send.size
        c.passed += send.raw is not None and not send.merged
        c.reencoded += send.raw is None and not send.merged
        c.merged += send.merged

    def _peek(self) -> Send | Corrupt | None:
        while self._next is None and self._responses:
            first = self._responses[0]
            if first.steps is None:
                first.steps = self._steps_of(first.parts, first.size)
            self._next = next(first.steps, None)
            if self._next is None:
                self._drop_response()
        return self._next

    def _drop_response(self) -> None:
        first = self._responses.popleft()
        self.queued_bytes -= first.size
        for buffer in first.buffers:
            buffer.give_back()

    # Given the responses themselves, the two would hold each other, and their bytes, until Python looks for such cycles.
    def _steps_of(self, parts: list[_Part], size: int) -> Iterator[Send | Corrupt]:
        """Yield the steps of responses in order; stop after the first corrupt batch."""
        batches = sum(count for _, _, count in parts)
        joiner = None
        if batches > 1 and size < batches * self.merge_below:
            below = joining.worthwhile(next(of.records for of, _, count in parts if count), self.merge_below)
            if size < batches * below:
                joiner = joining.joiner(2 * below, self.max_bytes, dense=self._keeps_offsets)
        for fetched, start, _ in parts:
            for step in self._work(fetched, start, joiner):
                yield step
                if isinstance(step, Corrupt):
                    return
        if joiner is not None and (rest := joiner.flush()) is not None:
            yield rest

    def _work(self, fetched: FetchedPartition, start: int, joiner: Joiner | None) -> Iterator[Send | Corrupt]:
        """Yield the steps of a response in order; nothing behind a corrupt batch counts.

        :param joiner: merges small neighbouring batches; it may keep some in the end.
        """
        records = fetched.records
        aborted = AbortedFilter(fetched.aborted if self.committed_only else [])
        doubtful = wire_batch.TRANSACTIONAL if self.committed_only and fetched.aborted else 0
        whole, end, max_bytes = self._wanted is None, self.end, self.max_bytes
        runs = joiner if whole and isinstance(joiner, CompiledJoiner) else None
        at, read = start, 0  # everything below this offset, and these bytes of the response, were processed
        epoch: int | None = None  # of the previous batch
        try:
            while (raw := wire_batch.batch_at(records, read)) is not None:
                header = raw.header
                if header is not None and header.leader_epoch != epoch:
                    epoch = header.leader_epoch
                    self.trail.note(epoch, max(at, header.base_offset), self.position)
                if runs is not None and header is not None:
                    begun = read
                    read, at = yield from runs.run(records, read, at, end, max_bytes, doubtful, header.leader_epoch)
                    if read > begun:
                        continue
                read += len(raw.view)
                # Fast path for nearly every batch: next, intact, and passes unchanged. The code below handles these too.
                if (
                    header is not None and whole and header.base_offset == at and not header.attributes & doubtful
                    and tiers.passes(header, at, end, max_bytes) and not tiers.has_linked_blocks(raw, header)
                    and wire_batch.crc_is_valid(raw.view, header)
                ):  # fmt: skip
                    at = header.next_offset
                    if joiner is None:
                        yield Send.unchanged(raw, header)
                    elif not joiner.take_batch(raw, header):
                        yield from _joined(joiner, Send.unchanged(raw, header), refused=True)
                    continue
                steps = self._unusual(raw, at, start, wire_batch.follows(records, read), aborted)
                if steps is None:
                    return
                for step in steps:
                    yield from _joined(joiner, step)
                at = max(at, raw.next_offset)
        except wire_batch.BrokenFrame as e:
            yield from _joined(joiner, Corrupt(at, at + 1, str(e)))
            return
        # Nothing of the response could be used, and nothing came behind it.
        if at == start and records and self.fetch_offset == start:
            yield from _joined(joiner, Corrupt(at, at + 1, "its length goes beyond everything that the source sent"))

    def _unusual(
        self, raw: RawBatch, at: int, start: int, behind: int | None, aborted: AbortedFilter
    ) -> Iterable[Send | Corrupt] | None:
        """Return the steps for a batch that does not simply pass next; None if the batch is beyond the range.

        Corruption is checked first: a corrupt header could claim that the batch lies below our position or is a marker,
        and the batch would be dropped.

        :param behind: base offset of the next batch in the response.
        """
        # The base offset is the one field that no checksum covers.
        if behind is not None and at < raw.first_offset and behind < raw.next_offset:
            return (Corrupt(at, at + 1, f"a batch of offset {raw.first_offset} comes before one of offset {behind}"),)
        if raw.header is not None and raw.header.base_offset >= self.end:
            return None
        if corrupt := tiers.damage(raw, at):
            return (corrupt,)
        if at > start and raw.first_offset < at:
            return (Corrupt(at, at + 1, f"a batch of offset {raw.first_offset} comes after offset {at - 1}"),)
        is_aborted = aborted.is_aborted(raw)
        if raw.next_offset <= at:
            return ()
        tier = Tier.DROP if is_aborted else tiers.tier_of(raw.header, start, self.end, self.max_bytes)
        if tier is Tier.PASS and self._wanted is not None:
            tier = Tier.REENCODE
        self.counters.dropped += tier is Tier.DROP
        return tiers.actions(raw, tier, at, self.end, self.max_bytes, dense=self._keeps_offsets, wanted=self._wanted)


def _joined(joiner: Joiner | None, step: Send | Corrupt, *, refused: bool = False) -> Sequence[Send | Corrupt]:
    """Append a batch to the joiner; return what does not become part of a merged batch.

    :param refused: the joiner has no room for it behind what it has taken.
    """
    if joiner is None:
        return (step,)
    if not refused and isinstance(step, Send) and joiner.take(step):
        return ()
    before = () if (send := joiner.flush()) is None else (send,)
    return before if isinstance(step, Send) and joiner.take(step) else (*before, step)
