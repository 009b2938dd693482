"""Find where the copy of a partition continues: read the journal, check that it is ours, prime an empty partition.

Every start compares the last target batch with the source's records at the same offsets (the fingerprint). This detects a
foreign writer, a wrong target or a re-created topic before anything is written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from airflow_mirror.copy.batches import tombstones
from airflow_mirror.copy.fingerprint import GLANCE_BYTES, committed_records, decoded, first_foreign
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.opening import journal
from airflow_mirror.copy.opening.answers import Answers, ask_again
from airflow_mirror.copy.opening.journal import Journal
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.writer import identity, priming
from airflow_mirror.errors import ForeignData, PartitionStopped, SourceGone, SourceTruncated
from airflow_mirror.kafka.model import same_topic
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import UnknownTopic
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.requests import tells_ready_ends
from airflow_mirror.wire.single import read_batches
from airflow_mirror.wire.topology import ProducerState

log = logging.getLogger(__name__)

_ELECTED_S, _LOOK_AGAIN_S = 5.0, 0.25  # followers ask twice a second (replica.fetch.wait.max.ms)


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Where to continue, and with which producer identity.

    :param position: next source offset; with identical offsets also the target's log end offset.
    :param producer_id: identity of the next batch, together with ``epoch`` and ``sequence``.
    :param primed: number of offsets that were filled before the first record.
    :param log_start: log start offset of the target.
    :param map: an empty map that continues the stored one; None with identical offsets.
    :param timestamp: timestamp of the last record on the target, in ms; 0 if none was found.
    """

    position: int
    producer_id: int
    epoch: int
    sequence: int
    primed: int = 0
    log_start: int = 0
    map: OffsetMap | None = None
    timestamp: int = 0


def open_partition(
    source: WireCluster, target: WireCluster, copy_range: CopyRange, told: Answers, mirror: str, isolation: int,
    check: Callable[[], None],
) -> Opening:  # fmt: skip
    """Return where a copy with identical offsets continues; prime an empty partition first.

    :param told: what both clusters answered about the partition.
    :param isolation: of the fetches that follow (0 read_uncommitted, 1 read_committed).
    :raises SourceTruncated, ForeignData, PartitionStopped: with topic, partition, offset range and remedy.
    """
    # Nothing was written yet, and each check below refuses before anything is: who reads the error finds both logs as
    # they were. Only fillers are written here, at the front of a log that has nothing else.
    check_same_topic(told.topic_id, copy_range, lambda: told.target.end)
    # The source may delete more behind this look. A fetch below its log start is refused then, and leads here again; a
    # log that was only primed is primed further (`_is_fresh`).
    log_start = told.log_start
    state = journal.read(target, mirror, copy_range.target, told.target, isolation)
    primed = 0
    is_fresh = _is_fresh(state, copy_range, log_start, mirror, told.target.producers)
    # The source was asked behind the target, and only grows: it ends below only if it lost records, or if somebody else
    # has appended to the target.
    check_reaches(source, copy_range, told, 0 if is_fresh else state.end)
    if is_fresh:
        # The present log start, not the planned one: what the source has deleted since can't be copied by anybody.
        start = max(copy_range.start_offset, log_start)
        if 0 < state.end < log_start:
            log.warning(
                "%s: the source deleted offsets %d to %d before any record was copied", copy_range.source, state.end,
                log_start - 1,
            )  # fmt: skip
        if state.end < start or state.log_start < start:
            # Read again behind it: what this call has appended, and what somebody else has meanwhile, is told by the log.
            primed = priming.prime(target, mirror, copy_range.target, state.end, start, check, copy_range.target_topic_id)
            state = journal.read(target, mirror, copy_range.target, ask_again(target, copy_range.target), isolation)
    elif log_start > state.end:
        raise retention_lost(copy_range, state.end, log_start)
    else:
        # A broker of the target that died within a minute of the priming has brought the fillers back. A death of ours
        # between the fillers and their deletion is found above: then there is nothing else in the log.
        if state.log_start < copy_range.start_offset:
            restored = priming.restore_start(target, mirror, copy_range.target, state.log_start, state.end, check)
            state = replace(state, log_start=restored)
        last = state.last
        if last is not None and tombstones.is_filler(last):
            last = journal.last_data_batch(
                target, copy_range.target, state.log_start, state.end, isolation, tombstones.is_filler
            )  # fmt: skip
        # Last batch against the source, then what lies behind that batch: together they reach to the log's end, where
        # the next record is appended. What lies before them is for `verify` to compare.
        _check_fingerprint(source, copy_range, last, log_start)
        behind = max(state.log_start, state.end - journal.LOOK_BACK) if last is None else last.next_offset
        _check_padding(source, target, copy_range, max(behind, log_start), state.end, isolation)
    # Derived, so that it is the same in each process that copies this partition; epoch and sequence are those of the
    # log (`journal._next_sequence`).
    producer_id = identity.data_producer_id(mirror, copy_range.target)
    newest = state.last.header.max_timestamp if state.last is not None and state.last.header is not None else 0
    return Opening(
        position=state.end,
        producer_id=producer_id,
        epoch=state.epoch,
        sequence=state.sequence,
        primed=primed,
        log_start=state.log_start,
        timestamp=newest,
    )


def check_reaches(source: WireCluster, copy_range: CopyRange, told: Answers, position: int) -> None:
    """Check that the source's log has what was copied, and what the range still asks for.

    The end of a range was the source's once. Who waited for what is lost by now would wait for ever, or take what
    producers write in its place.

    :param position: source offset up to which the partition is copied.
    :raises SourceTruncated: names the offsets that the source has lost.
    """
    end = _end_below(source, copy_range, told, max(position, copy_range.end_offset or 0))
    if end is None:
        return
    if end < position:
        raise _truncated(copy_range, end, position)
    assert copy_range.end_offset is not None
    raise SourceTruncated(
        copy_range.source_topic, copy_range.partition, end, copy_range.end_offset,
        f"the source's log ends at {end}, and reached {copy_range.end_offset} when this copy was begun",
        "The source lost records before they were copied, perhaps in an unclean leader election: only their producers "
        "may still have them. A bulk copy that is begun anew takes what the source has by now.",
    )  # fmt: skip


def _end_below(source: WireCluster, copy_range: CopyRange, told: Answers, position: int) -> int | None:
    """Return where the source's log ends if that is below ``position``; None: it is not.

    A leader that has just been elected tells an end that is too low, until its followers have asked it for more. From 2.2
    on it says so instead, and is asked again (:func:`.requests.tells_ready_ends`); an older one is given some seconds.
    """
    end, until = told.high_watermark, time.monotonic() + _ELECTED_S
    if end >= position or tells_ready_ends(source.connection(told.leader.node_id)):
        return end if end < position else None
    while end < position and time.monotonic() < until:
        time.sleep(_LOOK_AGAIN_S)
        end = source.high_watermarks([copy_range.source])[copy_range.source]
    return end if end < position else None


def _truncated(copy_range: CopyRange, end: int, position: int) -> SourceTruncated:
    """Return the error for a source whose log ends below the copied position."""
    return SourceTruncated(
        copy_range.source_topic, copy_range.partition, end, position,
        f"the source's log ends at {end}, and was already copied up to {position}",
        "The source lost records or was re-created, or the target has another writer. Compare both ends; to start over, "
        "delete the target topic.",
    )  # fmt: skip


def retention_lost(copy_range: CopyRange, position: int, log_start: int) -> PartitionStopped:
    """Return the error for a source that deleted records before they were copied."""
    return PartitionStopped(
        copy_range.source_topic, copy_range.partition, position, log_start,
        f"the source deleted these offsets before they were copied (its log now starts at {log_start})",
        "Raise the source's retention. To continue without them, delete the target topic and copy again.",
    )  # fmt: skip


def check_same_topic(found: str | UnknownTopic, copy_range: CopyRange, copied_to: Callable[[], int]) -> None:
    """Compare the source topic's id with the planned one.

    :param found: the topic's id, or the error that says why it has none.
    :param copied_to: returns the source offset up to which the old topic was copied; called only on a mismatch.
    :raises SourceGone: the topic is gone or was re-created; carries the offsets from :func:`affected`.
    """
    if isinstance(found, UnknownTopic):
        raise SourceGone(
            copy_range.source_topic, copy_range.partition, *affected(copy_range, copied_to()),
            f"the source topic is gone, or hidden from this principal ({found})",
            "Its copied records stay on the target. Plan again without it, or grant the right to describe it again.",
        ) from found  # fmt: skip
    # "": the broker has none, or answered with an error that passes; who fetches by the id is told by the leader.
    if not same_topic(copy_range.source_topic_id, found):
        raise SourceGone(
            copy_range.source_topic, copy_range.partition, *affected(copy_range, copied_to()),
            f"the source topic was deleted and created again (id {copy_range.source_topic_id} when planned, {found} now)",
            "Plan again. The target topic holds the old topic's records: delete it, or mirror under another name.",
        )  # fmt: skip


def affected(copy_range: CopyRange, position: int) -> tuple[int, int]:
    """Return the offsets affected by the loss of a topic: those still to copy or, without an end offset, those copied.

    :param position: source offset up to which the topic was copied.
    """
    position = max(position, copy_range.start_offset)
    if copy_range.end_offset is not None and copy_range.end_offset > position:
        return position, copy_range.end_offset
    return copy_range.start_offset, position


def _is_fresh(
    found: Journal, copy_range: CopyRange, log_start: int, mirror: str, producers: Iterable[ProducerState]
) -> bool:  # fmt: skip
    """Return whether the partition never held anything except, at most, our own fillers below the first offset.

    :param log_start: log start offset of the source. It may have moved since a priming, whose fillers end at the old one.
    :param producers: producer states that the target remembers.
    """
    # A topic that was created again looks the same, and is nobody's. It is refused by its id before this (`answers.ask`),
    # and behind it by brokers that take batches by id.
    if found.end == 0:
        return True
    filler = identity.filler_producer_id(mirror, copy_range.target)
    if found.last is not None:
        # Of the last batch alone: fillers are written before the first record, and never after one.
        only_fillers = found.last.header is not None and found.last.header.producer_id == filler
    else:
        only_fillers = _was_only_primed(found, filler, producers)
    return only_fillers and found.end <= max(copy_range.start_offset, log_start)


def _was_only_primed(found: Journal, filler: int, producers: Iterable[ProducerState]) -> bool:
    """Return whether an empty log was primed and nothing more.

    Fillers use their offset as sequence, so the broker's producer state shows that the last offset was a filler. If the
    broker has forgotten that state (which happens within minutes, because the fillers' timestamp is 0), the log may
    equally have lost copied records. The operator who reads the error then has to decide.
    """
    last = (found.end - 1) % wire_batch.MAX_SEQUENCE
    primed = any(state.producer_id == filler and state.last_sequence == last for state in producers)
    return primed and found.log_start == found.end


def _check_fingerprint(source: WireCluster, copy_range: CopyRange, last: RawBatch | None, log_start: int) -> None:
    """Compare the target's last batch of records with the source at the same offsets (`fingerprint.first_foreign`).

    Offsets that the source no longer has (retention) prove nothing and are skipped.
    """
    if last is None or last.next_offset <= log_start:
        return
    low = min(r.offset for r in decoded(last, copy_range.target, "target")) if last.header is None else last.first_offset
    start, high = max(low, log_start), last.next_offset
    # All of it, whatever the copy itself reads: a record that was aborted since, or is undecided, stands at its place.
    theirs = [
        raw
        for raw, _ in read_batches(
            source, copy_range.source, start, high, isolation=READ_UNCOMMITTED, max_bytes=GLANCE_BYTES
        )
    ]
    difference = first_foreign(copy_range, last, theirs, log_start)
    if difference is not None:
        raise ForeignData(
            copy_range.target_topic, copy_range.partition, low, high,
            f"the target's last batch differs from the source at offset {difference[0]} ({difference[1]})",
            "Somebody else wrote to the target, or this is another topic. Nothing was written. Delete the target "
            "topic, or choose another name for it.",
        )  # fmt: skip


def _check_padding(
    source: WireCluster, target: WireCluster, copy_range: CopyRange, start: int, end: int, isolation: int
) -> None:  # fmt: skip
    """Check that the source has no records where the target has markers, aborted records or fillers, in [start, end).

    Otherwise an extra marker (a dying coordinator may repeat one) would count as a copied record: silent data loss. Where
    the target has nothing at all, its cleaner has removed the record. A source that was filled has fillers of its own.
    """
    records = committed_records(source, copy_range.source, start, end, isolation)
    missing = [offset for offset, record in sorted(records.items()) if not tombstones.is_filler_record(record)]
    if missing:
        # Only if the source has records there, which is rare: what was padded was a hole.
        ours = read_batches(target, copy_range.target, start, end, isolation=READ_UNCOMMITTED)
        headers = [raw.header for raw, _ in ours if raw.header is not None]
        taken = {at for h in headers if h.is_control or h.record_count for at in range(h.base_offset, h.next_offset)}
        missing = [offset for offset in missing if offset in taken]
    if missing:
        raise ForeignData(
            copy_range.target_topic, copy_range.partition, start, end,
            "the target's log ends with markers, fillers or aborted records, where the source has "
            f"{len(missing)} record(s), the first at offset {missing[0]}",
            "Another writer appended to it, its transaction coordinator died and repeated a marker, the source lost "
            "records in an unclean leader election, or it is another topic's copy. Nothing was written. Delete the "
            "target topic and copy it again.",
        )  # fmt: skip
