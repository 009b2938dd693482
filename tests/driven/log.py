"""One partition's log: batches as bytes, and what a leader derives from them."""

from __future__ import annotations

from bisect import bisect_right
from copy import copy, deepcopy
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire import legacy
from airflow_mirror.wire.batch import BatchHeader, RawBatch, iter_batches
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven import records
from tests.driven.clock import Clock
from tests.driven.producers import Producers
from tests.driven.records import Row
from tests.driven.refused import Refused
from tests.driven.release import Release
from tests.driven.validation import TopicConfig, accepted

READ_COMMITTED = 1


class Stored(NamedTuple):
    """A batch where it lies. ``header`` is None for magic 0 and 1."""

    base_offset: int
    next_offset: int
    content: bytes
    header: BatchHeader | None


class Ended(NamedTuple):
    """A transaction that a marker at ``last_offset`` ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class Appended(NamedTuple):
    """Where a batch is; ``timestamp`` -1 unless the broker gave one."""

    base_offset: int
    timestamp: int = -1


class PartitionLog:
    """The log of one partition, the same for whichever broker leads it.

    :ivar replicated_to: where the high watermark stands still; None: it follows the log's end.
    :ivar remote_below: what lies below it is in a remote store, of which nothing comes to a fetch that may wait for less
        than ``remote_ms``, as with brokers 3.6.
    :ivar epochs: (leader epoch, offset at which it began), ascending.
    """

    def __init__(self, tp: TopicPartition, config: TopicConfig, clock: Clock, release: Release) -> None:
        self.tp, self.config, self.clock, self.release = tp, config, clock, release
        self.batches: list[Stored] = []
        self.log_start = self.end = 0
        self.replicated_to: int | None = None
        self.remote_below = self.remote_ms = 0
        self.epochs: list[tuple[int, int]] = [(0, 0)]
        self.producers = Producers(release)
        self.ended: list[Ended] = []

    def as_it_is(self) -> PartitionLog:
        """Return a copy to read from, which does not grow with it."""
        same = copy(self)
        same.batches, same.epochs, same.ended = self.batches.copy(), self.epochs.copy(), self.ended.copy()
        same.producers = deepcopy(self.producers)
        return same

    # --- where it ends ------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The leader epoch of now."""
        return self.epochs[-1][0]

    @property
    def high_watermark(self) -> int:
        """Where readers end."""
        return self.end if self.replicated_to is None else max(self.log_start, min(self.replicated_to, self.end))

    @property
    def last_stable(self) -> int:
        """Where readers in read_committed end."""
        high = self.high_watermark
        open_ones = [p.txn_start for p in self.producers.known.values() if p.txn_start is not None]
        # A transaction whose marker readers can't see yet is as good as open.
        unseen = [e.first_offset for e in self.ended if e.last_offset >= high]
        first = min([high, *open_ones, *unseen])
        if first >= self.log_start:
            return first
        if self.release.stable_in_log:
            return self.log_start
        # Deleted meanwhile. UnifiedLog then names the batch that holds the log start, which may begin before it.
        return next((b.base_offset for b in self.batches if b.next_offset > self.log_start), self.log_start)

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, content: bytes, header: BatchHeader) -> Appended:
        """Append a client's batch, or recognise it as a repeat.

        :raises Refused: with what a leader answers; nothing is appended then.
        """
        kept = accepted(content, header, self.config, self.release, self.clock.now_ms)
        if header.producer_id >= 0:
            repeated = self.producers.duplicate_of(header)
            if repeated is not None:
                return Appended(repeated.base_offset, repeated.timestamp)
            self.producers.check(header)
        at = self.end
        self.lay(records.changed(kept, base_offset=at, leader_epoch=self.epoch))
        return Appended(at, self.clock.now_ms if self.config.append_time else -1)

    def append_marker(self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int) -> int:
        """Append a transaction marker and return its offset.

        :raises Refused: of an older epoch, or of an older term of the coordinator.
        """
        self.producers.check_marker(producer_id, epoch, coordinator_epoch)
        content = records.marker(
            producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch, timestamp=self.clock.now_ms
        )
        at = self.end
        self.lay(records.changed(content, base_offset=at, leader_epoch=self.epoch))
        return at

    def lay(self, content: bytes) -> None:
        """Put batches of any magic into the log at the offsets that they have, unchecked: so a source is built."""
        for raw in iter_batches(memoryview(content)):
            stored = _stored(raw)
            if stored.base_offset < self.end:
                raise ValueError(f"{self.tp} ends at {self.end}; a batch of offset {stored.base_offset} can't follow")
            self.batches.append(stored)
            self.end = stored.next_offset
            self._remember(stored)

    def begin_at(self, offset: int) -> None:
        """Make the log start at ``offset``, which may lie inside a batch, or behind everything."""
        self.log_start = offset
        self.end = max(self.end, offset)

    def delete_records(self, before: int) -> int:
        """Move the log start up; return it.

        :raises Refused: beyond the high watermark, or where the policy is to compact only.
        """
        if not self.config.deletes:
            raise Refused(ErrorCode.POLICY_VIOLATION)
        before = self.high_watermark if before == -1 else before
        if not 0 <= before <= self.high_watermark:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log_start = max(self.log_start, before)
        self.producers.forget_below(self.log_start)
        return self.log_start

    def truncate(self, to: int) -> None:
        """Lose what lies at or above ``to``, as an unclean election does; batches are lost whole."""
        self.batches = [b for b in self.batches if b.next_offset <= to]
        self.end = self.batches[-1].next_offset if self.batches else min(self.end, max(self.log_start, to))
        self.log_start = min(self.log_start, self.end)
        self.epochs = [(epoch, at) for epoch, at in self.epochs if at <= self.end] or [(self.epoch, self.end)]
        self.recover()

    def recover(self) -> None:
        """Derive the producers from the batches anew, as a broker does that was killed."""
        self.producers, self.ended = Producers(self.release), []
        for batch in self.batches:
            if batch.next_offset > self.log_start:
                self._remember(batch)
        self.producers.expire(self.clock.now_ms)

    def begin_epoch(self, epoch: int) -> None:
        """Begin a new leader's term at the log's end."""
        if epoch <= self.epoch:
            raise ValueError(f"{self.tp}: leader epoch {epoch} after {self.epoch}")
        self.epochs.append((epoch, self.end))

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, isolation: int, *, whole_first: bool) -> tuple[bytes, list[Ended]]:
        """Return the bytes from the batch that holds ``offset`` on, cut at ``max_bytes``, and the aborted among them.

        :param whole_first: a first batch that is larger is returned whole; otherwise nothing is then.
        :raises Refused: outside of the log.
        """
        if not self.log_start <= offset <= self.end:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        limit = self.last_stable if isolation == READ_COMMITTED else self.high_watermark
        content: list[bytes] = []
        upper, size = offset, 0
        first = bisect_right(self.batches, offset, key=lambda b: b.next_offset)
        for batch in self.batches[first:]:
            # Readers never see a part of a batch: the watermarks stand between batches, except where a test says so.
            if batch.base_offset >= limit or batch.next_offset > limit or (content and size >= max_bytes):
                break
            if not content and len(batch.content) > max_bytes:
                if not whole_first:
                    return b"", []
                max_bytes = len(batch.content)
            content.append(batch.content)
            size += len(batch.content)
            upper = batch.next_offset
        if isolation != READ_COMMITTED or not content:
            return b"".join(content)[:max_bytes], []
        aborted = [e for e in self.ended if e.aborted and e.last_offset >= offset and e.first_offset < upper]
        return b"".join(content)[:max_bytes], aborted

    def offset_for_time(self, timestamp: int, below: int) -> tuple[int, int, int]:
        """Return (timestamp, offset, leader epoch) of the first record or marker that is as late; -1s if none."""
        for batch in self.batches:
            if batch.next_offset <= self.log_start or (batch.header and batch.header.max_timestamp < timestamp):
                continue
            for row in rows_of(batch):
                if row.timestamp >= timestamp and self.log_start <= row.offset:
                    epoch = -1 if batch.header is None else batch.header.leader_epoch
                    return (row.timestamp, row.offset, epoch) if row.offset < below else (-1, -1, -1)
        return -1, -1, -1

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return (leader epoch, end offset) as LeaderEpochFileCache.endOffsetFor does; (-1, -1) for one to come."""
        if epoch == self.epoch:
            return epoch, self.end
        later = next(((e, at) for e, at in self.epochs if e > epoch), None)
        if epoch < 0 or later is None:
            return -1, -1
        floor = [e for e, _ in self.epochs if e <= epoch]
        return (floor[-1] if floor else epoch), later[1]

    def rows(self, isolation: int = READ_COMMITTED) -> list[Row]:
        """Return what a consumer sees, from the log start to its end for this isolation."""
        limit = self.last_stable if isolation == READ_COMMITTED else self.high_watermark
        found = []
        for batch in self.batches:
            header = batch.header
            if batch.next_offset <= self.log_start or batch.base_offset >= limit or (header and header.is_control):
                continue
            if isolation == READ_COMMITTED and header is not None and self._is_aborted(header):
                continue
            found += [row for row in rows_of(batch) if self.log_start <= row.offset < limit]
        return found

    # --- inside -------------------------------------------------------------------------------------------------------

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and any(
            e.aborted and e.producer_id == header.producer_id and e.first_offset <= header.base_offset < e.last_offset
            for e in self.ended
        )

    def _remember(self, stored: Stored) -> None:
        header = stored.header
        if header is None or header.producer_id < 0:
            return
        if not header.is_control:
            if header.base_sequence >= 0:
                self.producers.note(header)
            return
        if not header.record_count:
            return  # emptied by the cleaner
        kind, body = records.decode(stored.content)[0][2:4]
        assert kind is not None and body is not None
        commit, coordinator_epoch = kind[3] == 1, int.from_bytes(body[2:6], "big", signed=True)
        began = self.producers.note_marker(
            header.producer_id, header.producer_epoch, coordinator_epoch, stored.base_offset, header.max_timestamp
        )
        if began is not None:
            self.ended.append(Ended(header.producer_id, began, stored.base_offset, not commit))


def rows_of(batch: Stored) -> list[Row]:
    """Return the records of a batch of any magic."""
    if batch.header is not None:
        return records.decode(batch.content)
    return [Row(*message) for message in legacy.decode(memoryview(batch.content))]


def _stored(raw: RawBatch) -> Stored:
    content = bytes(raw.view)
    if raw.header is not None:
        return Stored(raw.header.base_offset, raw.header.next_offset, content, raw.header)
    offsets = [m.offset for m in legacy.decode(raw.view)]
    return Stored(min(offsets), max(offsets) + 1, content, None)
