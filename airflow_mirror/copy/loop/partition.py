"""The copy of one partition: fetched batches, the next step, acknowledged writes. No socket and no clock here.

The loop feeds fetch responses in and calls :meth:`PartitionCopy.next_step`, which returns a batch to send, a hole to
pad, a transaction to begin or commit, or nothing. State changes only on acknowledgement, so a lost response loses
nothing: the loop re-reads the target's end and calls :meth:`PartitionCopy.reopen`. The legal transitions are a table
(`states`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from airflow_mirror.copy.batches import tombstones
from airflow_mirror.copy.batches.tiers import Corrupt, Send
from airflow_mirror.copy.delays import DelayMeter
from airflow_mirror.copy.loop.asked import Begin, Commit, Pad
from airflow_mirror.copy.loop.fetched import FOREVER, TRICKLE_BYTES, Fetched
from airflow_mirror.copy.loop.leaders import NOBODY, Broker
from airflow_mirror.copy.loop.states import OPEN, Event, State, after
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.opening.epochs import Consumed
from airflow_mirror.copy.opening.identical import Opening
from airflow_mirror.errors import CorruptBatch, MirrorError, TargetMoved
from airflow_mirror.wire import batch as wire_batch

_LATE_AT_MOST = 4  # batches without an answer, one after the other, while nothing is appended


@dataclass(eq=False, kw_only=True)
class PartitionCopy(Fetched):
    """The copy of one range.

    :param max_bytes: largest batch that the target accepted when the job began, in bytes; larger ones are split.
    :param merge_below: merge waiting batches if they are smaller than this on average, uncompressed (bytes); 0: never.
    :param transaction_bytes: deliver in transactions of at most about this size, which also commit the progress. A
        transaction is committed earlier if the source has no more data, or if the loop finds it old. 0: no
        transactions. Mapped offsets only.
    :param tombstones: fill holes with tombstones of a reserved key instead of markers; identical offsets only.
    :param touched: the copy adds itself here on every event. A loop shares one among all of its partitions and looks at
        no others.
    :ivar timestamp: timestamp of the last record on the target, in ms; fillers use it.
    :ivar position: next source offset: everything below it is on the target.
    :ivar map: with mapped offsets: what was mapped since the copy was opened (or since the map was last taken).
    :ivar open_map: the map of the open transaction; it takes effect on commit.
    :ivar commit_before: offset of a batch that the target has refused: it gets a transaction of its own.
    :ivar refused_at: offset of the last fetch that the source has refused while something was left to write. It is asked
        again once nothing is.
    """

    transaction_bytes: int = 0
    tombstones: bool = False
    timestamp: int = 0
    map: OffsetMap | None = None
    open_map: OffsetMap | None = None
    producer_id: int = -1
    epoch: int = 0
    sequence: int = 0
    state: State = State.WAITING
    error: MirrorError | None = None  # the error that stopped it
    fetching: bool = False
    rests: bool = False  # nothing has come for a while
    fed_at: float = -math.inf  # when records came last, by the loop's clock
    generation: int = 0  # grows whenever it is not open any more; responses to older requests are discarded
    failures: int = 0  # reopenings since the last progress
    opened: bool = False  # at least once, so its position is known
    watched: int = 0  # position when the source topic was last seen with the planned id
    source_leader: Broker = NOBODY
    heard_epoch: int = -1  # the newest one of a source leader, of which it need not have been opened yet
    target_leader: Broker = NOBODY
    target_start: int = 0  # log start offset of the target when it was opened
    dry: int = 0  # consecutive fetch responses without records for any partition although there should be some
    dry_since: float = 0.0  # when the first of them came, by the loop's clock
    open_bytes: int = -1  # sent in the open transaction; -1 when none is open
    committed: int = 0  # transactional: position of the last commit
    commit_before: int = FOREVER
    refused_at: int = -1
    delays: DelayMeter = field(default_factory=DelayMeter)
    _filler: Send | None = None
    _unanswered: Send | None = None  # sent, not acknowledged; re-reading the target shows if it was appended
    _late: list[Send] = field(default_factory=list)  # those that were not there at the last look: they may arrive yet
    has_shed: bool = False  # released its fetched data, and fetches no more until the target has responded

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
    def is_unsettled(self) -> bool:
        """True while something that was fetched is not on the target, or not for good."""
        # Not by offsets: behind the last record there may be a hole, which waits for what the source says next.
        return self.is_under_way or self.open_bytes >= 0 or bool(self._responses)

    @property
    def settled_position(self) -> int:
        """The next source offset that another copier would find if this one ended now."""
        return self.committed if self.transactional else self.position

    @property
    def wants_fetch(self) -> bool:
        """True if another fetch response could be used, and none was asked for."""
        return not self.fetching and self.takes_more

    @property
    def takes_more(self) -> bool:
        """True if another fetch response could be used."""
        refused = self.fetch_offset == self.refused_at and self.is_unsettled
        waiting = self.state not in OPEN or self.fetch_offset >= self.end or self.has_shed or refused
        # Two are enough for a backlog: one being written, one ready. A trickle needs more, or the partition would miss
        # the next long poll while its last record is in flight, and would then wait half a second for that poll to end.
        queued = sum(len(one.buffers) for one in self._responses)  # each may hold other partitions' bytes as well
        return not waiting and (queued < 2 or (queued < 8 and self.queued_bytes < TRICKLE_BYTES))

    def begin_opening(self) -> None:
        """Record that the partition is being opened."""
        self._happens(Event.OPEN)

    def reopen(self, opening: Opening, source: Broker = NOBODY, target: Broker = NOBODY) -> None:
        """Continue at the target's log end offset, with these leaders."""
        # Behind a batch with a lost answer only the log tells: the position behind it means that it was appended,
        # before it that it was not, or not yet, since a partition takes a batch as a whole. One that arrives late refuses
        # what was sent in its place, which may be longer.
        self._happens(Event.OPENED)
        self.source_leader, self.target_leader = source, target
        self.heard_epoch = max(self.heard_epoch, source.epoch)
        sent = self._late if self._unanswered is None else [*self._late, self._unanswered]
        landed = [one for one in sent if one.next_source <= opening.position]
        if landed:
            self._count(max(landed, key=lambda one: one.next_source))
        self._unanswered, self._late = None, [] if landed else sent[-_LATE_AT_MOST:]
        # The opening has seen the source's topic with its planned id: what may be of another one begins here (`Watch`).
        self.opened, self.watched = True, opening.position
        self.target_start, self.dry = opening.log_start, 0
        # What was fetched before the failure is gone (`forget`), and a response that is still on its way has an older
        # generation: it can't be taken for one that was asked for from here.
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
        # No event leads back: what is still in flight has an older generation, and is thrown away when it comes.
        self._happens(Event.STOP)
        self.error = error

    def _happens(self, event: Event) -> None:
        self.state = after(self.state, event)
        self.has_shed = False
        # Also once it is done: what was fetched beyond the end of the range holds no memory.
        if self.state not in OPEN:
            self.forget()
        self.touch()

    def _settle(self) -> None:
        """Finish if nothing is left to do. In transactions, the progress over a hole at the end must be committed too."""
        uncommitted = self.transactional and self._ended_uncommitted
        if self.state is State.READY and self.position >= self.end and self.open_bytes < 0 and not uncommitted:
            self._happens(Event.FINISH)

    def take_map(self) -> OffsetMap | None:
        """Return what was mapped since the last call, None if nothing was; the caller has to store it."""
        # What is taken is the caller's to store or to give back. A death with it in hand loses nothing but a walk over
        # both logs.
        part = self.map
        if part is None or part.source_end == part.source_start:
            return None
        # Begins where the part ends, before anybody knows whether that will be stored: the two must stay joinable.
        self.map = OffsetMap(part.source_end, part.target_end)
        return part

    def give_back_map(self, part: OffsetMap) -> None:
        """Take back a part that could not be stored; the next :meth:`take_map` returns it with what was mapped since."""
        if self.map is not None:
            part.extend(self.map)
            self.map = part

    def forget(self) -> None:
        """Drop what was fetched, which gives its memory back; responses in flight will be ignored."""
        # First: from here on no answer, fetch or step of before counts, whichever thread brings it.
        self.generation += 1
        self.fetching = False
        while self._responses:
            self._drop_response()
        self._next = self._filler = None
        if self._unanswered is not None:
            # Kept through the failure, without its bytes: `reopen` asks whether it has landed, `if_landed` which leader
            # epoch it had.
            self._unanswered = self._unanswered.without_bytes()
        # An open transaction is left to the takeover of the next opening, which aborts it: nothing in it was counted as
        # committed.
        self.open_bytes = -1
        self.open_map = None

    def refuse_fetch(self) -> None:
        """Record that the source has refused the fetch: what was fetched before it is written, and committed, first."""
        self.refused_at = self.fetch_offset
        self.touch()  # a session has it, and its broker would say the same at once

    def shed(self) -> Send | None:
        """Release fetched data that is not in flight: while the target is slow, other partitions need the memory.

        It is fetched again once the target has responded.

        :return: the batch in flight, without its bytes; expect the response for it instead of the original.
        """
        following = self._next
        # A fetch under way would come back for an offset that is no longer the next one.
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
        self.touch()  # a session may have it at the old offset
        self._unanswered = sent and sent.without_bytes()
        return self._unanswered

    def next_step(self) -> Send | Pad | Begin | Commit | None:
        """Return the next step; None if there is none, if one is in flight, or if the copy is not open.

        :raises CorruptBatch: the next source batch is corrupt.
        """
        # One request in flight for each partition: of two, the second could be appended without the first, because a
        # broker that has forgotten our producer takes any sequence (measured).
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
            # Bounded, because readers of committed records see nothing of it until it ends, and a death throws all of
            # it away.
            is_large = self.open_bytes >= self.transaction_bytes
            # What is refused takes its transaction with it: what comes before it must have ended in another one.
            if is_large or (self.open_bytes > 0 and send.base_offset >= self.commit_before):
                return Commit(self.position)
            return Begin(self.position) if self.open_bytes < 0 else None
        # The hole first: the broker gives a batch the log's end as its offset, whatever the batch says.
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
        # Filled too early, the place of a record would be taken: markers can't be removed, and that partition could
        # only be copied anew.
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

    def sent(self, send: Send | None = None) -> None:
        """Mark a step as in flight.

        :param send: the batch, if the step is one.
        """
        self._happens(Event.STEP if send is None else Event.SEND)
        # Known before the bytes leave: if their answer is lost, only the target can say whether they arrived.
        self._unanswered = send

    def acknowledged(self, send: Send, base_offset: int, now_ms: int) -> None:
        """Accept the broker's acknowledgement of a batch, and measure its delays.

        :param now_ms: when it arrived, in ms since 1970.
        :raises TargetMoved: the batch was stored at another offset; the caller re-reads the end and decides again.
        """
        # From here on the batch counts, and not before: a process that dies between the broker's append and this line has
        # written a batch that the next opening finds at the target's end, and goes on behind it.
        self._happens(Event.ANSWER)
        self._unanswered, self._late = None, []
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
            book.add_spans(send.spans(), base_offset)
            book.advance(send.next_source)
        if self.open_bytes >= 0:
            self.open_bytes += send.size
        if send.base_offset >= self.commit_before:
            self.commit_before = FOREVER
        self.position = send.next_source
        self.sequence = wire_batch.next_sequence(self.sequence, send.record_count)
        self._count(send)
        if self.open_bytes < 0:
            self.failures = 0  # within a transaction nothing is gained before its commit: a failure begins it again
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
        # The log's end, as the padder has read it last: perhaps in the middle of the hole, if its step was cut short.
        self.position = pad.end
        self.counters.padded += written
        self.failures = 0
        self._settle()

    def began(self) -> None:
        """Record that a transaction is open."""
        self._happens(Event.ANSWER)
        self.open_bytes = 0
        if self.map is not None:
            # Of the transaction alone: if it is aborted, its records are not the group's, and their places in the map
            # neither.
            self.open_map = OffsetMap(self.map.source_end, self.map.target_end)

    def transaction_ended(self, commit: Commit) -> None:
        """Record that a transaction is committed."""
        # The coordinator has committed records and position together. Whoever dies before this line finds that position
        # with the group's offsets, and nothing of the map: it is derived again from the two logs.
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
