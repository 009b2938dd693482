"""What was fetched of one partition: responses that wait, and the batches that they become, in order. No socket.

Batches are looked at lazily, when the next one is wanted: what a partition holds of a response are its bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from airflow_mirror.copy.batches import joining, tiers
from airflow_mirror.copy.batches.by_key import key_filter
from airflow_mirror.copy.batches.joining import CompiledJoiner, Joiner
from airflow_mirror.copy.batches.tiers import Corrupt, Send, Tier
from airflow_mirror.copy.loop.counters import Counters
from airflow_mirror.copy.loop.limits import Buffer
from airflow_mirror.copy.opening.epochs import Trail
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire.aborted import AbortedFilter
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.fetch import FetchedPartition

FOREVER = 2**63 - 1
TRICKLE_BYTES = 1 << 16
# A response, the offset it was asked for, its number of batches, and what comes behind them.
_Part = tuple[FetchedPartition, int, int, Corrupt | None]


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
class Fetched:
    """The responses of one partition; see the module. Its parameters are those of :class:`.partition.PartitionCopy`."""

    range: CopyRange
    committed_only: bool
    max_bytes: int
    _: KW_ONLY
    merge_below: int = 0
    touched: dict[Any, None] = field(default_factory=dict, repr=False)
    position: int = 0
    fetch_offset: int = 0
    available_end: int = -1  # last stable offset or high watermark: the end of what a fetch may return; -1 not yet known
    held: int = 0  # offsets behind an open transaction, from `available_end` on
    counters: Counters = field(default_factory=Counters)
    trail: Trail = field(default_factory=Trail)
    queued_bytes: int = 0
    _responses: deque[_Responses] = field(default_factory=deque)
    _next: Send | Corrupt | None = None
    _wanted: Callable[[bytes | None], bool] | None = None

    def __post_init__(self) -> None:
        if self.range.key_partitions is not None:
            self._wanted = key_filter(self.range.partition, self.range.target.partition, self.range.key_partitions)

    @property
    def end(self) -> int:
        """Offset to stop at; a huge number when following the log."""
        return FOREVER if self.range.end_offset is None else self.range.end_offset

    @property
    def is_behind(self) -> bool:
        """True if the next fetch is known or expected to return data at once."""
        return self.available_end < 0 or self.fetch_offset < min(self.available_end, self.end)

    def touch(self) -> None:
        """Mark the copy for the loop's next turn."""
        self.touched[self] = None

    def feed(self, fetched: FetchedPartition, buffer: Buffer) -> None:
        """Accept a fetch response for :attr:`fetch_offset`; its batches are processed lazily, in order.

        :param buffer: holds the response's bytes; released once the last of them was sent.
        """
        end_before = self.available_end
        self.available_end = fetched.last_stable if self.committed_only else fetched.high_watermark
        self.held = fetched.high_watermark - self.available_end
        if self.available_end != end_before or fetched.records:
            self.touch()
        start = self.fetch_offset
        batches, jump = 0, None
        try:
            batches, behind = wire_batch.scan(fetched.records)
            if behind > fetched.high_watermark >= 0 and (found := _jump(fetched, start, self.end)) is not None:
                fetched, batches, behind, jump = found
            # Before anything of it is written: the next fetch overlaps with the writing. What fails sets it back to the
            # position, which only acknowledgements move (`PartitionCopy.reopen`).
            self.fetch_offset = max(self.fetch_offset, behind)
        except wire_batch.BrokenFrame:
            pass
        # Brokers send the first batch whole, however large. If no batch is whole, its length is wrong, which is reported.
        broken = bool(fetched.records) and not batches
        # A batch may go on behind the end of the range; what lies there is not this copy's to send (`tiers.actions`
        # cuts it).
        self.fetch_offset = min(self.fetch_offset, self.end)
        if self.fetch_offset <= start and not broken and jump is None:
            return
        size = len(fetched.records)
        # Counted before it is queued: who drops it from there gives it back, also behind a failure
        # (`PartitionCopy.forget`).
        buffer.take()
        self.queued_bytes += size
        last = self._responses[-1] if self._responses else None
        # A target far away takes one batch a round trip. What comes meanwhile is merged as a backlog is: sent one by one,
        # records that come faster than that would wait for each other.
        if last is not None and last.steps is None and last.size + size < TRICKLE_BYTES:
            last.parts.append((fetched, start, batches, jump))
            last.buffers.append(buffer)
            last.size += size
        else:
            self._responses.append(_Responses([(fetched, start, batches, jump)], [buffer], size))

    @property
    def _keeps_offsets(self) -> bool:
        return not self.range.is_mapped

    def _peek(self) -> Send | Corrupt | None:
        # The same step each time, until it is acknowledged or thrown away with the rest: to look again changes nothing.
        while self._next is None and self._responses:
            first = self._responses[0]
            if first.steps is None:
                first.steps = self._steps_of(first.parts, first.size)
            self._next = next(first.steps, None)
            if self._next is None:
                self._drop_response()
        return self._next

    def _drop_response(self) -> None:
        # Out of the queue first: a failure may empty it in the middle of a step, and nothing may be given back twice.
        first = self._responses.popleft()
        self.queued_bytes -= first.size
        for buffer in first.buffers:
            buffer.give_back()

    # Given the responses themselves, the two would hold each other, and their bytes, until Python looks for such cycles.
    def _steps_of(self, parts: list[_Part], size: int) -> Iterator[Send | Corrupt]:
        """Yield the steps of responses in order; stop after the first corrupt batch."""
        batches = sum(count for _, _, count, _ in parts)
        joiner = None
        if batches > 1 and size < batches * self.merge_below:
            first = next(of.records for of, _, count, _ in parts if count)
            below = joining.worthwhile(first, self.merge_below, size / batches)
            if size < batches * below:
                joiner = joining.joiner(2 * below, self.max_bytes, dense=self._keeps_offsets)
        for fetched, start, _, jump in parts:
            for step in self._work(fetched, start, joiner):
                if isinstance(step, Send):
                    self.trail.reach(step.next_source)  # of a run of batches, before its end is known
                yield step
                if isinstance(step, Corrupt):
                    return
            if jump is not None:
                yield from _joined(joiner, jump)
                return
        if joiner is not None and (rest := joiner.flush()) is not None:
            yield rest

    def _work(self, fetched: FetchedPartition, start: int, joiner: Joiner | None) -> Iterator[Send | Corrupt]:
        """Yield the steps of a response in order; nothing behind a corrupt batch counts.

        :param joiner: merges small neighbouring batches; it may keep some in the end.
        """
        records = fetched.records
        aborted = AbortedFilter(fetched.aborted if self.committed_only else [])
        # Only in a response that names aborted transactions can a batch be of one: there each transactional batch takes
        # the long way, through the filter, which must see all of them in order.
        doubtful = wire_batch.TRANSACTIONAL if self.committed_only and fetched.aborted else 0
        whole, end, max_bytes = self._wanted is None, self.end, self.max_bytes
        runs = joiner if whole and isinstance(joiner, CompiledJoiner) else None
        at, read = start, 0  # everything below this offset, and these bytes of the response, were processed
        epoch: int | None = None  # of the previous batch
        try:
            while (raw := wire_batch.batch_at(records, read)) is not None:
                header = raw.header
                if header is not None and header.leader_epoch != epoch:
                    # Noted when it is looked at, not when it is written; the opening behind a failure cuts off what was
                    # not.
                    epoch = header.leader_epoch
                    self.trail.note(epoch, max(at, header.base_offset), self.position)
                if runs is not None and header is not None:
                    begun = read
                    read, at = yield from runs.run(records, read, at, end, max_bytes, doubtful, header.leader_epoch)
                    if read > begun:
                        self.trail.reach(at)
                        continue
                read += len(raw.view)
                self.trail.reach(raw.next_offset)
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


def _jump(fetched: FetchedPartition, at: int, end: int) -> tuple[FetchedPartition, int, int, Corrupt] | None:
    """Find a batch below ``end`` that comes behind a hole and goes beyond the high watermark: its base offset is wrong.

    :param at: the offset that was asked for.
    :return: the response without it, the number of batches before it, the offset behind them, and what it is.
    """
    # A watermark alone proves nothing: a broker takes it before it reads, and what is appended in between comes along
    # (Partition.readRecords). That follows what was there. Holes are made by the cleaner, which never reaches the last
    # batch of a log.
    read = 0
    for count, raw in enumerate(wire_batch.iter_batches(fetched.records)):
        if raw.header is not None and at < min(raw.first_offset, end) and raw.next_offset > fetched.high_watermark:
            cause = f"a batch of offset {raw.first_offset} comes behind offset {at - 1}, where the log ends at "
            jump = Corrupt(at, at + 1, f"{cause}{fetched.high_watermark}")
            return fetched._replace(records=fetched.records[:read]), count, at, jump
        read += len(raw.view)
        at = max(at, raw.next_offset)
    return None


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
