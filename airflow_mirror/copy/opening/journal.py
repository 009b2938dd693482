"""Read a copy's position from the target partition itself, in one snapshot: the target log is the journal.

- The log end offset comes from OffsetForLeaderEpoch. ListOffsets returns the high watermark, which lags behind it; a copy
  that resumed there would write records twice.
- Log end, producer epoch and next sequence must belong together. They do not if they are read one after the other while
  an older copier still writes (measured: 1 of 6 concurrent runs corrupted). So the log end is read before and after, and
  everything in between is discarded unless nothing was appended: an optimistic snapshot (`answers`).
- Nothing here waits for a log to settle, because other partitions must be opened too. The caller retries this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.opening.answers import TargetAnswers
from airflow_mirror.copy.writer import identity
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire.aborted import Aborted, told_apart
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.single import read_batches
from airflow_mirror.wire.topology import ProducerState

LOOK_BACK = 131_072  # how many offsets before the end are searched for the last data batch: at most 10 MB of markers
# The first look finds the last batch of nearly every log. The others are for holes that were padded: a marker is a
# batch of 78 bytes, and a look further back reads all of them.
_WALK_BACK = (1, 64, 4096, LOOK_BACK)


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The state of a copy, read from its target partition.

    :param log_start: log start offset of the partition.
    :param end: log end offset; with identical offsets also the next source offset.
    :param last: the last batch with records that the copy would see, if one was found near the end.
    :param epoch: producer epoch to write with.
    :param sequence: next sequence of our data producer id.
    """

    log_start: int
    end: int
    last: RawBatch | None
    epoch: int
    sequence: int


def read(target: WireCluster, mirror: str, tp: TopicPartition, told: TargetAnswers, isolation: int) -> Journal:
    """Read the journal of one target partition.

    :param told: what the target answered about the partition. The log below its end does not change afterwards.
    :param isolation: of the copy's fetches; see :func:`last_data_batch`.
    :raises TryAgain: the log end offset moved, or the high watermark had not reached it.
    """
    # Records above the high watermark may still be truncated, and can't be fetched to be compared: the loop opens the
    # partition again, until its replicas have them or its leader dropped them.
    told.check_readable(tp)
    told.check_still(tp)
    # Below the snapshot's end the log does not change any more. If somebody appends behind it from now on, our first
    # batch shows it: by its sequence, or by the offset in its answer.
    last = last_data_batch(target, tp, told.log_start, told.end, isolation)
    epoch, sequence = _next_sequence(mirror, tp, told.end, last, told.producers)
    return Journal(log_start=told.log_start, end=told.end, last=last, epoch=epoch, sequence=sequence)


def last_data_batch(
    target: WireCluster,
    tp: TopicPartition,
    log_start: int,
    end: int,
    isolation: int,
    passed_over: Callable[[RawBatch], bool] = lambda _: False,
) -> RawBatch | None:
    """Search backwards for the last batch with records, in growing steps: markers of a padded hole may follow it.

    :param isolation: read_committed passes over aborted batches: the other side has a hole there. What is not decided
        yet counts.
    :param passed_over: returns True for a batch with records that should be skipped.
    :return: None if there is none in the last :data:`LOOK_BACK` offsets.
    """
    for back in _WALK_BACK:
        start = max(log_start, end - back)
        last = None
        for raw, is_aborted in told_apart(_to_the_end(target, tp, start, end, isolation)):
            if not is_aborted and not passed_over(raw):
                last = raw
        if last is not None or start == log_start:
            return last
    return None


def _to_the_end(
    target: WireCluster, tp: TopicPartition, start: int, end: int, isolation: int
) -> Iterator[tuple[RawBatch, Aborted]]:
    """Yield the batches in [start, end): also those behind the last stable offset, where nothing is known of aborts."""
    # What is decided between the two looks is still told as undecided, and counts: rather compared in vain than passed
    # over.
    for each in (isolation, READ_UNCOMMITTED):
        for raw, aborted in read_batches(target, tp, start, end, isolation=each):
            start = raw.next_offset
            yield raw, aborted


def _next_sequence(
    mirror: str, tp: TopicPartition, end: int, last: RawBatch | None, producers: Iterable[ProducerState]
) -> tuple[int, int]:
    ours = identity.data_producer_id(mirror, tp)
    # The log itself comes first: it survives what the broker forgets of its producers, by their records' times.
    if last is not None and last.header is not None and last.header.producer_id == ours:
        header = last.header
        # Advance by offsets, not by records: the target's log cleaner may have removed some records.
        return header.producer_epoch, wire_batch.next_sequence(header.base_sequence, header.last_offset_delta + 1)
    # The last batch with records is not ours (fillers of the priming, records of another tool), or out of sight behind
    # markers. What the leader remembers of our producer was asked within the snapshot, so it belongs to this end.
    for state in producers:
        if state.producer_id == ours and state.last_sequence >= 0:
            return state.epoch, wire_batch.next_sequence(state.last_sequence, 1)
    # Nobody knows: the broker then takes any first sequence, and two copiers must not choose equal ones that continue.
    return 0, identity.sequence_after_unknown(mirror, tp, end)
