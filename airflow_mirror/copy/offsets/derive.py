"""Derive the offset map from both logs: our k-th record on the target is the k-th mirrorable record of the source.

This holds because one writer at a time appends a source partition's records in order, under its own producer ids. A
stored map only saves walking the logs over the range that it covers. A crash at any moment makes the walk longer and has
no other effect. The walk can't recover if the source lost records (retention, compaction) after they were copied and
before their map was stored. Then the counts or the last records differ at the end of the walk, and the error says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import chain

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.batches.by_key import key_filter
from airflow_mirror.copy.fingerprint import committed_records, decoded, digest
from airflow_mirror.copy.offsets.map import FOREVER, OffsetMap
from airflow_mirror.copy.offsets.reader import Loaded, MapReader
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.writer import identity
from airflow_mirror.copy.writer.transactional import Deliveries
from airflow_mirror.errors import ForeignData, NoOffsetMap
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.aborted import data_batches
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED
from airflow_mirror.wire.records import Record
from airflow_mirror.wire.single import read_batches, unsettled

_FETCH_BYTES = 4 << 20
_GLANCE_BYTES = 1 << 16
_COMMIT = b"\0\1"  # in the key of a marker, after its version (org.apache.kafka.common.record.ControlRecordType)
Run = tuple[int, int]  # first offset, count


def complete(
    source: WireCluster, target: WireCluster, copy_range: CopyRange, mirror: str, isolation: int, store: MapReader,
    before: Loaded | None = None,
) -> Loaded:  # fmt: skip
    """Return the complete map of ``one`` for the current logs.

    Only reads from the clusters; needs no lease. What was missing in the store the copy's next opening adds.

    :param isolation: of the copy, as in Fetch (1 read_committed).
    :param before: what this returned before, to go on from; its map is extended.
    :raises NoOffsetMap: nothing was ever copied, or the start of the map is lost.
    :raises ForeignData: the logs contradict the map.
    """
    # The map before the ends. A copy that runs beside this may store more of it, or append more, meanwhile: that only
    # makes the walk longer.
    loaded = store.load_on(target, copy_range, before)
    if loaded is None:
        raise NoOffsetMap(copy_range.source)
    whole = loaded.whole
    producers, committed_only = writers(target, mirror, copy_range)
    end = (target.last_stable if committed_only else target.high_watermarks)([copy_range.target])[copy_range.target]
    part = walk(source, target, copy_range, whole, producers, isolation, end, committed_only=committed_only)
    check_last(source, target, copy_range, part if len(part) else whole, isolation)
    part.advance(next_mirrorable(source, copy_range, part.source_end, isolation))
    whole.extend(part)
    return loaded


def next_mirrorable(source: WireCluster, copy_range: CopyRange, start: int, isolation: int) -> int:
    """Return the offset of the first mirrorable record at or after ``start``, or the source's end if there is none.

    A log often ends with markers. Unless they are skipped, the map would seem to end before the log does.
    """
    ends = source.last_stable if isolation == READ_COMMITTED else source.high_watermarks
    end = ends([copy_range.source])[copy_range.source]
    if start >= end or start < source.log_starts([copy_range.source])[copy_range.source]:
        return start
    run = next(source_runs(source, copy_range, start, isolation, end, _GLANCE_BYTES), None)
    return end if run is None else run[0]


def writers(target: WireCluster, mirror: str, copy_range: CopyRange) -> tuple[set[int], bool]:
    """Return the producer ids that wrote ``one``, and whether they wrote in transactions."""
    deliveries = Deliveries(target, mirror, unfenced)
    progress = deliveries.progress(copy_range.target) if copy_range.key_partitions is None else None
    if progress is None:
        return {identity.writer_of(mirror, copy_range)}, False
    current = deliveries.writer(copy_range.target)
    # Of a transactional copy two ids may be ours: that of the last commit, and one that a copier took afterwards.
    return {progress[1]} | ({current} if current is not None else set()), True


def walk(
    source: WireCluster, target: WireCluster, copy_range: CopyRange, known: OffsetMap, producers: Collection[int],
    isolation: int, end: int, *, committed_only: bool,
) -> OffsetMap:  # fmt: skip
    """Return the continuation of ``known`` up to the target offset ``end``; empty if nothing of ours was appended since.

    :param producers: the producer ids that wrote this range.
    :param committed_only: the target was written in transactions; count committed records only.
    :raises ForeignData: the target has more of our records than the source has, or the source has deleted records that
        are not in the map yet.
    """
    part = OffsetMap(known.source_end, known.target_end)
    # Only up to the end that the caller has read, to which the next sequence belongs. What an orphan appends behind it
    # shows at our first batch.
    theirs = target_runs(target, copy_range.target, known.target_log_end, end, producers, committed_only=committed_only)
    started = next(theirs, None)
    if started is None:
        part.advance(part.source_end, end)
        return part
    # Behind the look at the target: there is something to be counted, and its first record must still be on the source.
    log_start = source.log_starts([copy_range.source])[copy_range.source]
    if log_start > known.source_end:
        raise ForeignData(
            copy_range.target_topic, copy_range.target.partition, started[0], end,
            f"it holds records of this mirror that are not in the offset map, and the source {copy_range.source} has "
            f"deleted theirs ([{known.source_end}, {log_start}))",
            "Raise the source's retention, delete the target topic, and copy again.",
        )  # fmt: skip
    ours = source_runs(source, copy_range, known.source_end, isolation)
    at = left = 0
    for first, count in chain([started], theirs):
        # Counting holds only as long as neither side lost a record in between; `check_last` compares the pair at the
        # end.
        while count:
            if not left:
                at, left = next(ours, (0, 0))
            if not left:
                raise ForeignData(
                    copy_range.target_topic, copy_range.target.partition, first, first + count,
                    f"the target holds {count} more record(s) of this mirror than the source {copy_range.source} from "
                    f"offset {known.source_end} on",
                    "The source lost records (retention, compaction) that were copied before their map was stored. "
                    "Delete the target topic, and copy again.",
                )  # fmt: skip
            taken = min(count, left)
            part.add(at, first, taken)
            at, first, left, count = at + taken, first + taken, left - taken, count - taken
    part.advance(part.source_end, end)
    return part


def check_last(source: WireCluster, target: WireCluster, copy_range: CopyRange, known: OffsetMap, isolation: int) -> None:
    """Compare the last mapped record with its source record, which would expose a miscounted map.

    :raises ForeignData: they differ.
    """
    if (last := known.last) is None:
        return
    here, there = last.source + last.count - 1, last.target + last.count - 1
    if (
        here < source.log_starts([copy_range.source])[copy_range.source]
        or there < target.log_starts([copy_range.target])[copy_range.target]
    ):
        return  # already deleted
    original, copied = digests(source, target, copy_range, here, there, isolation)
    if original is not None and copied is not None and original != copied:  # None: compacted away
        raise ForeignData(
            copy_range.target_topic, copy_range.target.partition, there, there + 1,
            f"the target's record differs from the source's at offset {here} (source {original}, target {copied}), "
            "which the offset map says it is a copy of",
            "The source lost records after they were copied, the map belongs to another topic, or somebody else wrote "
            "under this mirror's name. Nothing was written. Delete the target topic, and copy again.",
        )  # fmt: skip


def digests(
    source: WireCluster, target: WireCluster, copy_range: CopyRange, here: int, there: int, isolation: int
) -> tuple[str | None, str | None]:
    """Return the digests of the source record at ``here`` and the target record at ``there``, None without a record."""
    original = committed_records(source, copy_range.source, here, here + 1, isolation).get(here)
    copied = committed_records(target, copy_range.target, there, there + 1, READ_UNCOMMITTED).get(there)
    return original and digest(original), copied and digest(copied)


def next_record(cluster: WireCluster, tp: TopicPartition, start: int, isolation: int) -> Record | None:
    """Return the first record at or after ``start`` that a consumer with this isolation would see, or None."""
    fetched = read_batches(cluster, tp, start, FOREVER, isolation=isolation, max_bytes=_GLANCE_BYTES)
    batches = data_batches(fetched, committed=isolation == READ_COMMITTED)
    return next((r for raw in batches for r in decoded(raw, tp, cluster.role) if r.offset >= start), None)


def source_runs(
    cluster: WireCluster,
    copy_range: CopyRange,
    start: int,
    isolation: int,
    end: int = FOREVER,
    max_bytes: int = _FETCH_BYTES,
) -> Iterator[Run]:
    """Yield the offsets of mirrorable records from ``start`` on as runs; dense batches need their headers only."""
    wanted = None
    if copy_range.key_partitions is not None:
        wanted = key_filter(copy_range.partition, copy_range.target.partition, copy_range.key_partitions)
    yield from _runs(cluster, copy_range.source, start, end, isolation, lambda raw: True, wanted, max_bytes)


def target_runs(
    cluster: WireCluster, tp: TopicPartition, start: int, end: int, producers: Collection[int], *, committed_only: bool
) -> Iterator[Run]:
    """Yield the offsets in [start, end) of records that these producers wrote, as runs.

    :param committed_only: those that were written in transactions and committed. All of theirs below ``end`` have ended.
    """

    def ours(raw: RawBatch) -> bool:
        header = raw.header
        return header is not None and header.producer_id in producers and header.is_transactional == committed_only

    if not committed_only:
        yield from _runs(cluster, tp, start, end, READ_UNCOMMITTED, ours, None)
        return
    # Up to there the broker itself says what was aborted. Behind it an open transaction, not ours, hides it.
    stable = min(end, cluster.last_stable([tp])[tp])
    yield from _runs(cluster, tp, start, stable, READ_COMMITTED, ours, None)
    yield from _hidden_runs(cluster, tp, max(start, stable), end, ours)


def transactional_writers(
    cluster: WireCluster, tp: TopicPartition, start: int, end: int, wanted: Record, *, first: bool
) -> set[int]:
    """Return the producer ids that wrote a copy of ``wanted`` to [start, end) of a log, however its transaction ended.

    :param first: only those of whose records there it is the first.
    """
    seen, found, copied = set[int](), set[int](), digest(wanted)
    fetched = read_batches(cluster, tp, start, end, isolation=READ_UNCOMMITTED, max_bytes=_FETCH_BYTES)
    for raw in data_batches(fetched, committed=False):
        header = raw.header
        if header is None or not header.is_transactional or header.producer_id in (seen if first else found):
            continue
        records = [record for record in decoded(raw, tp, cluster.role) if start <= record.offset < end]
        if any(digest(record) == copied for record in (records[:1] if first else records)):
            found.add(header.producer_id)
        if records:
            seen.add(header.producer_id)
    return found


def holds_records(cluster: WireCluster, tp: TopicPartition, start: int, end: int) -> bool:
    """Return whether [start, end) of a log has a record that consumers find, or will if its transaction is committed."""
    if start >= end:  # as for each group that has read everything
        return False
    start, stable = max(start, cluster.log_starts([tp])[tp]), cluster.last_stable([tp])[tp]
    parts = (start, min(end, stable), READ_COMMITTED), (max(start, stable), end, READ_UNCOMMITTED)
    return any(
        next(_runs(cluster, tp, first, last, isolation, lambda raw: True, None, _GLANCE_BYTES), None) is not None
        for first, last, isolation in parts
        if first < last
    )


def _hidden_runs(
    cluster: WireCluster, tp: TopicPartition, start: int, end: int, ours: Callable[[RawBatch], bool]
) -> Iterator[Run]:
    """Yield the offsets of our committed records that an open transaction of somebody else hides, by our own markers.

    Where several write in transactions, one of them is open nearly always.
    """
    # What has no marker by `end` was not committed by then. An opening has ended all of ours before it read the end.
    undecided: dict[int, list[Run]] = {}
    for raw, _ in read_batches(cluster, tp, start, end, isolation=READ_UNCOMMITTED, max_bytes=_FETCH_BYTES):
        header = raw.header
        if header is None or not ours(raw):
            continue
        if not header.is_control:
            undecided.setdefault(header.producer_id, []).extend(_runs_of(raw, tp, cluster.role, start, end, None))
        elif runs := undecided.pop(header.producer_id, []):
            key = next((record.key for record in decoded(raw, tp, cluster.role)), None)
            if key is None:  # emptied by the log cleaner
                # Rather no answer than a guess: the loop opens again, and the broker tells it once that transaction has
                # ended.
                raise unsettled(tp, end, "an open transaction of another producer hides records there")
            yield from runs if key[2:4] == _COMMIT else ()


def _runs(
    cluster: WireCluster, tp: TopicPartition, start: int, end: int, isolation: int, takes: Callable[[RawBatch], bool],
    wanted: Callable[[bytes | None], bool] | None, max_bytes: int = _FETCH_BYTES,
) -> Iterator[Run]:  # fmt: skip
    fetched = read_batches(cluster, tp, start, end, isolation=isolation, max_bytes=max_bytes)
    for raw in data_batches(fetched, committed=isolation == READ_COMMITTED):
        if takes(raw):
            yield from _runs_of(raw, tp, cluster.role, start, end, wanted)


def _runs_of(
    raw: RawBatch, tp: TopicPartition, role: str, start: int, end: int, wanted: Callable[[bytes | None], bool] | None
) -> Iterator[Run]:
    header = raw.header
    if header is not None and header.is_dense and wanted is None:
        first, stop = max(start, header.base_offset), min(end, header.next_offset)
        if stop > first:
            yield first, stop - first
        return
    for record in decoded(raw, tp, role):
        if start <= record.offset < end and (wanted is None or wanted(record.key)):
            yield record.offset, 1
