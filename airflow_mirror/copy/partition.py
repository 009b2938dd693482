"""One partition on its way: what was fetched, what comes next, what was acknowledged. No socket and no clock in here.

The loop feeds fetch responses in and asks :meth:`PartitionCopy.next_step`; the answer is a batch to send, a hole to pad,
or nothing. State changes only on acknowledgement, so that a lost answer loses nothing: the loop re-reads the target's
end and calls :meth:`PartitionCopy.reopen`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from airflow_mirror.copy import tiers
from airflow_mirror.copy.opening import Opening
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.tiers import AbortedFilter, Corrupt, Send, Tier
from airflow_mirror.errors import CorruptBatch, MirrorError, TargetMoved
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire.batch import iter_batches
from airflow_mirror.wire.fetch import FetchedPartition
from airflow_mirror.wire.single import next_offset

FOREVER = 2**63 - 1
_TRICKLE_BYTES = 1 << 16


class Pad(NamedTuple):
    """Fill target offsets [start, end) with markers."""

    start: int
    end: int


@dataclass
class Counters:
    """What a partition's copy did, in records, bytes (as sent) and batches."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    reencoded: int = 0  # batches
    dropped: int = 0  # batches: markers, aborted, emptied
    padded: int = 0  # offsets
    primed: int = 0  # offsets


@dataclass
class PartitionCopy:
    """The copy of one range.

    :param max_bytes: largest batch the target takes.
    """

    range: CopyRange
    committed_only: bool
    max_bytes: int
    target_end: int = 0
    fetch_offset: int = 0
    epoch: int = 0
    sequence: int = 0
    available_end: int = -1  # last stable offset or high watermark: what a fetch may return; -1 not yet known
    counters: Counters = field(default_factory=Counters)
    error: MirrorError | None = None
    busy: bool = False  # a batch or a padding is under way
    fetching: bool = False
    generation: int = 0  # grows with every reopening; answers to older requests are thrown away
    failures: int = 0  # reopenings since the last progress
    _responses: deque[Iterator[Send | Corrupt]] = field(default_factory=deque)
    _next: Send | Corrupt | None = None
    queued_bytes: int = 0
    _queued_sizes: deque[int] = field(default_factory=deque)

    @property
    def end(self) -> int:
        """Offset to stop at; a huge number when following."""
        return FOREVER if self.range.end_offset is None else self.range.end_offset

    @property
    def done(self) -> bool:
        """True when the target's log end reached the end of the range."""
        return self.target_end >= self.end

    @property
    def is_behind(self) -> bool:
        """True when the next fetch is known or expected to find data at once."""
        return self.available_end < 0 or self.fetch_offset < min(self.available_end, self.end)

    @property
    def wants_fetch(self) -> bool:
        """True when another fetch response could be used."""
        waiting = self.error is not None or self.fetching or self.fetch_offset >= self.end
        # Two are enough for a backlog: one is written, one is ready. A trickle needs more of them, or the partition would
        # miss the next long poll while its last record is on its way, and then wait half a second for that poll's end.
        queued = len(self._responses)
        return not waiting and (queued < 2 or (queued < 8 and self.queued_bytes < _TRICKLE_BYTES))

    def reopen(self, opening: Opening) -> None:
        """Forget everything in flight and go on where the target's log says."""
        self.target_end = self.fetch_offset = opening.position
        self.epoch, self.sequence = opening.epoch, opening.sequence
        self.counters.primed += opening.primed
        self.available_end = -1
        self.generation += 1
        self.busy = self.fetching = False
        self._responses.clear()
        self._queued_sizes.clear()
        self.queued_bytes = 0
        self._next = None

    def feed(self, fetched: FetchedPartition) -> None:
        """Take a fetch response for :attr:`fetch_offset`; its batches are worked through lazily, in order."""
        self.available_end = fetched.last_stable if self.committed_only else fetched.high_watermark
        start = self.fetch_offset
        for raw in iter_batches(fetched.records):
            self.fetch_offset = max(self.fetch_offset, next_offset(raw))
        self.fetch_offset = min(self.fetch_offset, self.end)
        if self.fetch_offset > start:
            self._responses.append(self._work(fetched, start))
            self._queued_sizes.append(len(fetched.records))
            self.queued_bytes += len(fetched.records)

    def next_step(self) -> Send | Pad | None:
        """Return what to do next, or None when there is nothing (or something is under way, or it has stopped).

        :raises CorruptBatch: when the next source batch is broken.
        """
        if self.busy or self.error is not None or self.done:
            return None
        step = self._peek()
        if isinstance(step, Corrupt):
            raise CorruptBatch(
                self.range.source_topic, self.range.partition, step.start, step.end, step.cause,
                "Everything before it was copied. Restore the batch from another replica of the source, or start the "
                "mirror of this partition behind it.",
            )  # fmt: skip
        if step is not None:
            return Pad(self.target_end, step.base_offset) if step.base_offset > self.target_end else step
        # Nothing left to send. Whatever lies between the last record and the position is a hole; it is filled once the
        # source has nothing more to show, because the next response may begin with a batch at any offset above it.
        if self.fetch_offset > self.target_end and (not self.is_behind or self.fetch_offset >= self.end):
            return Pad(self.target_end, self.fetch_offset)
        return None

    def sent(self) -> None:
        """Mark the step as under way."""
        self.busy = True

    def acknowledged(self, send: Send, base_offset: int) -> None:
        """Take the broker's answer for a batch.

        :raises TargetMoved: if it landed elsewhere than expected; the caller re-reads the end and decides again.
        """
        self.busy = False
        if base_offset != send.base_offset:
            raise TargetMoved(
                self.range.target_topic, self.range.partition, send.base_offset, send.base_offset + send.record_count,
                f"the target stored this batch at offset {base_offset}",
                "Another writer appended to the target. Stop it, then delete and copy this partition again.",
            )  # fmt: skip
        self.target_end = send.base_offset + send.record_count
        self.sequence = wire_batch.next_sequence(self.sequence, send.record_count)
        self.counters.records += send.record_count
        self.counters.batches += 1
        self.counters.bytes += send.size
        self.counters.reencoded += send.raw is None
        self.failures = 0
        self._next = None

    def padded(self, pad: Pad, written: int) -> None:
        """Take note that a hole is filled."""
        self.busy = False
        self.target_end = pad.end
        self.counters.padded += written
        self.failures = 0

    def _peek(self) -> Send | Corrupt | None:
        while self._next is None and self._responses:
            self._next = next(self._responses[0], None)
            if self._next is None:
                self._responses.popleft()
                self.queued_bytes -= self._queued_sizes.popleft()
        return self._next

    def _work(self, fetched: FetchedPartition, start: int) -> Iterator[Send | Corrupt]:
        aborted = AbortedFilter(fetched.aborted if self.committed_only else [])
        for raw in iter_batches(fetched.records):
            if raw.header is not None and raw.header.base_offset >= self.end:
                return
            is_aborted = aborted.is_aborted(raw)
            if next_offset(raw) <= start:
                continue
            tier = Tier.DROP if is_aborted else tiers.tier_of(raw.header, start, self.end, self.max_bytes)
            self.counters.dropped += tier is Tier.DROP
            yield from tiers.actions(raw, tier, start, self.end, self.max_bytes)
