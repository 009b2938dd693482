"""Find where a copy with mapped offsets continues: read the stored offset map, derive the rest, check both.

A mapped copy pads and primes nothing; the target may hold other producers' data before and between our records. The
map's origin (the pair of offsets at which the copy begins) is stored before the first record is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from airflow_mirror.copy.offsets import derive
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.opening.answers import Answers, TargetAnswers, ask_again
from airflow_mirror.copy.opening.identical import Opening, check_reaches, check_same_topic, retention_lost
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.writer import identity
from airflow_mirror.copy.writer.transactional import Deliveries
from airflow_mirror.errors import ForeignData, PartitionStopped
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.single import read_batches


@dataclass(frozen=True, kw_only=True)
class _Writer:
    """The producers that wrote this range, and the one that continues it.

    :param progress: with transactional delivery: the next source offset from the last commit.
    """

    producers: frozenset[int]
    producer_id: int
    epoch: int = 0
    transactional: bool = False
    progress: int | None = None


@dataclass(frozen=True)
class Terms:
    """On which terms a copy opens partitions with mapped offsets.

    :param mirror: its name. :param isolation: of the fetches that follow (0 read_uncommitted, 1 read_committed).
    :param check: called before every step that has an effect; raises if the writer lease is gone.
    :param transactional: it delivers in transactions.
    """

    mirror: str
    isolation: int
    check: Callable[[], None]
    transactional: bool


def open_mapped(
    source: WireCluster, target: WireCluster, copy_range: CopyRange, told: Answers, store: MapStore, terms: Terms
) -> Opening:  # fmt: skip
    """Return where a copy with mapped offsets continues. On return, the stored map is complete up to that position.

    :param told: what both clusters answered about the partition.
    :raises SourceTruncated, ForeignData, PartitionStopped: with topic, partition, offset range and remedy.
    """
    mirror, isolation, check = terms.mirror, terms.isolation, terms.check
    check_same_topic(told.topic_id, copy_range, lambda: _mapped_to(target, store, copy_range))
    log_start = told.log_start
    # With transactions this takes the partition over, before anything is read: it ends an older copier's transaction, and
    # the log end and the progress that are read behind it can't be moved by that one any more.
    writer = _writer(target, mirror, copy_range, check, transactional=terms.transactional)
    now = _settled(target, copy_range, writer, told.target)
    stored = _known(source, target, copy_range, store, writer, max(copy_range.start_offset, log_start), now, terms)
    if writer.transactional and writer.progress is None:
        earlier = _earlier_writers(source, target, copy_range, stored, replace(told, target=now), isolation)
        writer = replace(writer, producers=writer.producers | earlier)
    # What both logs show behind the stored end. A process that died between a batch and its map left exactly this.
    part = derive.walk(
        source, target, copy_range, stored, writer.producers, isolation, now.end, committed_only=writer.transactional
    )  # fmt: skip
    empty = not len(stored) and not len(part)
    # No record was copied, and the source deleted the first ones: a new origin, with the records' true begin. A death
    # behind it leaves an origin without records, which the next opening finds as it is.
    if empty and stored.source_start < log_start:
        check()
        stored = part = _begin(target, store, copy_range, max(copy_range.start_offset, log_start), now.end, check)
    # Of what either side has deleted nobody can tell whether it was copied.
    if writer.progress is not None and log_start <= part.source_end and now.log_start <= stored.target_log_end:
        _check_kept(source, copy_range, part.source_end, writer.progress, isolation)
    # The committed progress goes beyond the last record where the source ends in a hole: both were committed together.
    position = max(part.source_end, writer.progress or 0)
    epoch, sequence = _next_sequence(target, mirror, copy_range, writer, part if len(part) else stored, now)
    # Read again, because transactional delivery queried the target again: an older copier may have committed meanwhile.
    if position > told.high_watermark:
        told = replace(told, high_watermark=source.high_watermarks([copy_range.source])[copy_range.source])
    check_reaches(source, copy_range, told, position)
    if log_start > position:
        raise retention_lost(copy_range, position, log_start)
    # Before anything is stored: a map that was counted wrongly would send groups to wrong offsets for ever.
    derive.check_last(source, target, copy_range, part if len(part) else stored, isolation)
    part.advance(position)
    # Only what both logs show by now is stored: a map that is behind after a death is derived again from there.
    if part.source_end > stored.source_end:
        check()
        # By the writer that `resume` has just made: its version counts for more than what a frozen one may still store.
        store.append(target, copy_range, part, check)
    return Opening(
        position=position,
        producer_id=writer.producer_id,
        epoch=epoch,
        sequence=sequence,
        map=OffsetMap(position, part.target_end),
    )


def _check_kept(source: WireCluster, copy_range: CopyRange, end: int, progress: int, isolation: int) -> None:
    """Check that the target still has what was committed: progress is kept apart from its log, and passes over a loss.

    :param end: source offset up to which the target's log has all. :param progress: up to which all was committed.
    :raises PartitionStopped: it lacks records that the source has.
    """
    if end >= progress:
        return
    lost = derive.next_mirrorable(source, copy_range, end, isolation)
    if lost < progress:
        raise PartitionStopped(
            copy_range.target_topic, copy_range.target.partition, lost, progress,
            f"the target lost records that were committed: the copy's progress is {progress}, and its log has nothing of "
            f"{copy_range.source} from offset {lost} on",
            "Delete the target topic, and copy again.",
        )  # fmt: skip


def _mapped_to(target: WireCluster, store: MapStore, copy_range: CopyRange) -> int:
    stored = store.resume(target, copy_range)
    return 0 if stored is None else stored.source_end


def _writer(
    target: WireCluster, mirror: str, copy_range: CopyRange, check: Callable[[], None], *, transactional: bool
) -> _Writer:
    if not transactional:
        ours = identity.writer_of(mirror, copy_range)
        return _Writer(producers=frozenset({ours}), producer_id=ours)
    deliveries = Deliveries(target, mirror, check)
    # An earlier copier of this partition can't begin, commit or abort any more: the coordinator refuses its epoch, and
    # so does the leader, behind the marker that ends its open transaction.
    producer_id, epoch = deliveries.take_over(copy_range.target)
    # Behind the takeover: a commit that was decided is in it, one that was not will never be.
    progress = deliveries.progress(copy_range.target)
    if progress is None:
        return _Writer(producers=frozenset({producer_id}), producer_id=producer_id, epoch=epoch, transactional=True)
    return _Writer(
        # Both: the coordinator gives another id when it has forgotten the old one, or its epochs are used up. What was
        # written under the old one is in the stored map before a byte goes out under the new one (`open_mapped`).
        producers=frozenset({producer_id, progress[1]}),
        producer_id=producer_id,
        epoch=epoch,
        transactional=True,
        progress=progress[0],
    )


def _settled(target: WireCluster, copy_range: CopyRange, writer: _Writer, told: TargetAnswers) -> TargetAnswers:
    """Return the target's answers once everything below its log end can be read.

    With transactions our own takeover may have moved the log end: whatever was open of ours has ended below it.

    :raises TryAgain: it can't be read yet; unreplicated records will be replicated or truncated.
    """
    if writer.transactional:
        told = ask_again(target, copy_range.target)
    told.check_readable(copy_range.target)
    return told


def _known(
    source: WireCluster, target: WireCluster, copy_range: CopyRange, store: MapStore, writer: _Writer, start: int,
    told: TargetAnswers, terms: Terms,
) -> OffsetMap:  # fmt: skip
    """Return the end of the stored map; begin a new map if there is none."""
    # Becomes the map's writer, by a version above all that are there: what an older writer adds from now on is cut off
    # where we go on.
    stored, end = store.resume(target, copy_range), told.end
    if stored is not None and end >= stored.target_end:
        return stored
    # What is copied next would get offsets that the map has given away. A log that lost everything (end 0) has nothing
    # that contradicts: it is begun anew, under a new origin.
    if stored is not None and end > 0:
        raise PartitionStopped(
            copy_range.target_topic, copy_range.target.partition, end, stored.target_end,
            f"the target's log ends at {end}, but the offset map knows records up to {stored.target_end}",
            "The target lost records. Delete the target topic, and copy again.",
        )  # fmt: skip
    first = _first_of_ours(target, copy_range, writer, told) if stored is None and end > 0 else None
    terms.check()
    if first is None:
        # The origin before the first record: a record of which no origin tells where it belongs could only be guessed
        # at.
        return _begin(target, store, copy_range, start, end, terms.check)
    # There are records of ours and no map: it was lost, or its topic deleted. The first pair is compared, since all
    # others are counted from it.
    _check_first(source, target, copy_range, terms.isolation, start, first)
    return _begin(target, store, copy_range, start, first, terms.check)


def _begin(
    target: WireCluster, store: MapStore, copy_range: CopyRange, source_start: int, target_start: int,
    check: Callable[[], None],
) -> OffsetMap:  # fmt: skip
    store.begin(target, copy_range, source_start, target_start, check)
    return OffsetMap(source_start, target_start)


def _first_of_ours(target: WireCluster, copy_range: CopyRange, writer: _Writer, told: TargetAnswers) -> int | None:
    """Return the offset of the first record that this mirror wrote, for a map that was lost or never stored."""
    runs = derive.target_runs(
        target, copy_range.target, told.log_start, told.end, writer.producers, committed_only=writer.transactional
    )  # fmt: skip
    return next((first for first, _ in runs), None)


def _earlier_writers(
    source: WireCluster, target: WireCluster, copy_range: CopyRange, stored: OffsetMap, told: Answers, isolation: int
) -> frozenset[int]:
    """Return the producer ids of this mirror's earlier transactions, where nothing but the target's log tells them.

    Coordinators forget transactional ids, and groups' offsets, that nobody has used for a week
    (transactional.id.expiration.ms, offsets.retention.minutes). What a killed copier had committed and not stored in the
    map would count as somebody else's, and be copied once more.
    """
    start, end = stored.target_log_end, told.target.end
    if start >= end:  # as when a copy begins: nobody has written anything there
        return frozenset()
    found = set[int]()
    # Whoever wrote the last mapped record mostly wrote what follows it.
    if (last := stored.last) is not None and (at := last.target + last.count - 1) >= told.target.log_start:
        batches = read_batches(target, copy_range.target, at, at + 1, isolation=READ_UNCOMMITTED)
        found |= {raw.header.producer_id for raw, _ in batches if raw.header is not None}
    # An id behind that, or behind a map without records, is ours if it wrote the source's next record.
    begin = max(stored.source_end, told.log_start)
    following = derive.next_record(source, copy_range.source, begin, isolation) if begin < told.high_watermark else None
    if following is None:  # nothing is left that could be copied once more
        return frozenset(found)
    # First of all, unless the source has a hole there: what it lost since may have been copied before that record.
    # `derive.walk` counts it then, and says so.
    is_first = following.offset == stored.source_end
    return frozenset(
        found | derive.transactional_writers(target, copy_range.target, start, end, following, first=is_first)
    )


def _check_first(
    source: WireCluster, target: WireCluster, copy_range: CopyRange, isolation: int, start: int, first: int
) -> None:
    """Check that the first records match: without a stored origin, nothing else shows where the copy began."""
    here = next((at for at, _ in derive.source_runs(source, copy_range, start, isolation)), None)
    original, copied = (
        (None, None) if here is None else derive.digests(source, target, copy_range, here, first, isolation)
    )
    if original is None or original != copied:
        raise ForeignData(
            copy_range.target_topic, copy_range.target.partition, first, first + 1,
            "it holds records of this mirror, but its offset map is gone and the source's first record (offset "
            f"{here}) is another one",
            "Delete the target topic and copy again.",
        )  # fmt: skip


def _next_sequence(
    target: WireCluster, mirror: str, copy_range: CopyRange, writer: _Writer, known: OffsetMap, told: TargetAnswers
) -> tuple[int, int]:
    if writer.transactional:
        return writer.epoch, 0  # a new epoch starts at 0
    last = known.target_end - 1
    if len(known) and last >= told.log_start:
        # The log's own word first, as in `journal`: two copiers that read the same last batch choose the same sequence,
        # and the broker takes one of them.
        for raw, _ in read_batches(target, copy_range.target, last, known.target_end, isolation=READ_UNCOMMITTED):
            header = raw.header
            if header is not None and header.producer_id == writer.producer_id:
                # By records, and not by offsets as in `journal`: a mapped topic is never compacted while a mirror writes
                # there (`configs.may_compact`), so that the batch has all of its records.
                return header.producer_epoch, wire_batch.next_sequence(header.base_sequence, header.record_count)
    # The leader's producer state belongs to this end only if nothing was appended meanwhile; others may write here too.
    told.check_still(copy_range.target)
    for state in told.producers:
        if state.producer_id == writer.producer_id and state.last_sequence >= 0:
            return state.epoch, wire_batch.next_sequence(state.last_sequence, 1)
    return 0, identity.sequence_after_unknown(mirror, copy_range.target, known.target_end)
