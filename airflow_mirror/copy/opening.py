"""Where the copy of a partition goes on: read the journal, check that it is ours, prime if it is empty.

Every start compares the last target batch with the source's records at the same offsets (the fingerprint), so that a
foreign writer, a wrong target or a re-created topic is found before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import xxhash

from airflow_mirror.copy import identity, journal, priming
from airflow_mirror.copy.journal import Journal
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.tiers import AbortedFilter
from airflow_mirror.errors import ForeignData, RetentionLost, SourceTruncated
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.records import Record
from airflow_mirror.wire.single import read_batches


@dataclass(frozen=True)
class Opening:
    """Where to go on: ``position`` is both the next source offset and the target's log end (identical offsets)."""

    position: int
    epoch: int
    sequence: int
    primed: int


def open_partition(
    source: WireCluster, target: WireCluster, one: CopyRange, mirror: str, isolation: int, check: Callable[[], None]
) -> Opening:
    """Return where the copy of ``one`` goes on; primes an empty partition first.

    :param isolation: of the fetches that follow (0 read_uncommitted, 1 read_committed).
    :raises SourceTruncated, RetentionLost, ForeignData: with topic, partition, offset range and remedy.
    """
    _check_same_topic(source, one)
    log_start = source.log_starts([one.source])[one.source]
    high_watermark = source.high_watermarks([one.source])[one.source]
    found = journal.read(target, mirror, one.target)
    primed = 0
    if _is_fresh(found, one, mirror):
        start = max(one.start_offset, log_start)
        if found.end < start or found.log_start < start:
            primed = priming.prime(target, mirror, one.target, found.end, start, check)
            found = journal.read(target, mirror, one.target)
    elif found.end > high_watermark:
        raise SourceTruncated(
            one.source_topic, one.partition, high_watermark, found.end,
            f"the source's log ends at {high_watermark}, the target's already at {found.end}",
            "The source lost records or was re-created, or the target has another writer. Compare both ends; to start "
            "over, delete the target topic.",
        )  # fmt: skip
    elif log_start > found.end:
        raise RetentionLost(
            one.source_topic, one.partition, found.end, log_start,
            f"the source deleted these offsets before they were copied (its log now starts at {log_start})",
            "Raise the source's retention. To go on without them, delete the target topic and copy again.",
        )  # fmt: skip
    else:
        _check_fingerprint(source, one, found, isolation)
        _check_padding(source, one, found, isolation)
    return Opening(found.end, found.epoch, found.sequence, primed)


def _check_same_topic(source: WireCluster, one: CopyRange) -> None:
    if one.source_topic_id is None:
        return
    now = source.topic_id(one.source_topic)
    if now != one.source_topic_id:
        raise SourceTruncated(
            one.source_topic, one.partition, one.start_offset, one.start_offset,
            f"the source topic was deleted and created again (id {one.source_topic_id} when planned, {now} now)",
            "Plan again. The target topic holds the old topic's records: delete it, or mirror under another name.",
        )  # fmt: skip


def _is_fresh(found: Journal, one: CopyRange, mirror: str) -> bool:
    """True for a partition that never held anything but, at most, our own fillers below the first offset."""
    if found.end == 0:
        return True
    filler = identity.filler_producer_id(mirror, one.target)
    only_fillers = found.last is not None and found.last.header is not None and found.last.header.producer_id == filler
    return only_fillers and found.end <= one.start_offset


def _check_fingerprint(source: WireCluster, one: CopyRange, found: Journal, isolation: int) -> None:
    """Compare the target's last batch of records with the source's at the same offsets.

    Offsets that the source no longer has (compaction, retention) prove nothing and are passed over.
    """
    last = found.last
    if last is None:
        return
    ours = {r.offset: r for r in wire_records.decode(last)}
    low, high = min(ours), max(ours) + 1
    log_start = source.log_starts([one.source])[one.source]
    if high <= log_start:
        return
    theirs = _committed_records(source, one, max(low, log_start), high, isolation)
    for offset, record in ours.items():
        if offset < log_start:
            continue
        other = theirs.get(offset)
        if other is not None and _digest(other) != _digest(record):
            raise ForeignData(
                one.target_topic, one.partition, low, high,
                f"the target's last batch differs from the source at offset {offset} "
                f"(source {_digest(other)}, target {_digest(record)})",
                "Somebody else wrote to the target, or this is another topic. Nothing was written. Delete the target "
                "topic, or choose another name for it.",
            )  # fmt: skip


def _check_padding(source: WireCluster, one: CopyRange, found: Journal, isolation: int) -> None:
    """Check that the markers at the target's end stand where the source has no records.

    A marker too many (a dying coordinator may repeat one) would otherwise be taken for copied records: lost, silently.
    """
    last = found.last
    start = max(found.log_start, found.end - journal.LOOK_BACK)
    if last is not None and last.header is not None:
        start = last.header.next_offset
    start = max(start, source.log_starts([one.source])[one.source]) if start < found.end else found.end
    if start >= found.end:
        return
    missing = _committed_records(source, one, start, found.end, isolation)
    if missing:
        raise ForeignData(
            one.target_topic, one.partition, start, found.end,
            f"the target's log ends with markers where the source has {len(missing)} record(s), the first at offset "
            f"{min(missing)}",
            "Another writer appended to it, or its transaction coordinator died and repeated a marker. Nothing was "
            "written. Delete the target topic and copy it again.",
        )  # fmt: skip


def _committed_records(source: WireCluster, one: CopyRange, start: int, end: int, isolation: int) -> dict[int, Record]:
    found: dict[int, Record] = {}
    seen_aborted: list[tuple[int, int]] | None = None
    aborted_filter = AbortedFilter([])
    for raw, aborted in read_batches(source, one.source, start, end, isolation=isolation):
        if aborted is not seen_aborted:
            seen_aborted, aborted_filter = aborted, AbortedFilter(aborted)
        aborted_now = isolation != READ_UNCOMMITTED and aborted_filter.is_aborted(raw)
        if aborted_now or (raw.header is not None and raw.header.is_control):
            continue
        found.update((r.offset, r) for r in wire_records.decode(raw) if start <= r.offset < end)
    return found


def _digest(record: Record) -> str:
    """A short digest of all that a reader sees; payload itself never goes into an error."""
    return xxhash.xxh3_64_hexdigest(repr((record.timestamp, record.key, record.value, record.headers)).encode())
