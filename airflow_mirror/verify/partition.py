"""Read both sides of partitions and compare them. Read-only: no group, no commit, no auto-created topic.

The source is read as the copy read it: with read_committed aborted transactions are skipped; with read_uncommitted they
are compared, and so are open ones. The target is always read with read_committed, because the copy is visible there and
aborted transactions of a transactional delivery are not. Control batches are skipped on both sides.
One response per side is held at a time, so memory does not depend on the topic's size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.fingerprint import decoded
from airflow_mirror.copy.offsets.map import OffsetMap, Where
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.writer import priming
from airflow_mirror.errors import BrokerError, ForeignData, InvalidField, NoOffsetMap
from airflow_mirror.sync.maps import Maps, MapSource, mapped_range
from airflow_mirror.verify.bounds import begun_by_now, bounds_difference, through_map, unseen, window
from airflow_mirror.verify.compaction import Gaps
from airflow_mirror.verify.compare import Floor, Tally, compare, translated
from airflow_mirror.verify.result import (
    Difference,
    Evidence,
    LogBounds,
    PartitionComparison,
    PartitionPair,
    check_level,
)
from airflow_mirror.wire.aborted import Aborted
from airflow_mirror.wire.aborted import data_batches as committed_batches
from airflow_mirror.wire.batch import BrokenFrame, RawBatch, iter_batches
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED, FetchedPartition
from airflow_mirror.wire.records import Record
from airflow_mirror.wire.single import broken_log, fetch_one, fetch_together, nothing_fetched, read_batches

STALL_S = 30.0
_FETCH_BYTES = 4 << 20
# The first records of many partitions are read together: what is left behind a fence is a few records of each. A batch
# that does not fit is left out of an answer. Producers' default is 16 KB, and _BOUNDS_AT_ONCE of these fit into a fetch.
_FIRST_BYTES = 20 << 10
# Bounds are read for this many partitions together, right before they are compared. Read all at once, retention would
# have moved the later ones by then; read one by one, they would cost a fenced source of 2,000 partitions seconds.
_BOUNDS_AT_ONCE = 200


def compare_partitions(
    pairs: Sequence[PartitionPair],
    source_config: ClientConfig,
    target_config: ClientConfig,
    level: str = "records",
    progress: Callable[[PartitionComparison, int, int], None] | None = None,
    maps: MapSource | None = None,
    isolation: str = "read_committed",
) -> list[PartitionComparison]:
    """Compare partitions one after the other and return a verdict for each, in the order of ``pairs``.

    Differences are results, not errors; a cluster that can't be read is an error.

    :param level: ``offsets`` compares the bounds of the logs; ``batches`` also compares the records, and takes batches
        with equal frame and payload digest as equal; ``records`` decodes every record.
    :param progress: called after each partition with its verdict, the number of partitions done, and their total.
    :param maps: whose offset maps lead through mapped pairs.
    :param isolation: the Mirror's isolation, with which the records were copied.
    :raises InvalidField: the level is unknown, or a pair is mapped and ``maps`` was not given.
    :raises TryAgain: a broker does not answer.
    """
    check_level(level)
    verdicts: list[PartitionComparison] = []
    opened = maps.open(_range_of(pair) for pair in pairs if pair.mapped) if maps is not None else None
    with WireCluster(source_config) as source, WireCluster(target_config) as target:
        source_logs: dict[TopicPartition, LogBounds] = {}
        target_logs: dict[TopicPartition, LogBounds] = {}
        first = _First()
        for pair in pairs:
            if len(verdicts) % _BOUNDS_AT_ONCE == 0:
                now = pairs[len(verdicts) : len(verdicts) + _BOUNDS_AT_ONCE]
                source_logs = log_bounds(source, {p.source for p in now}, committed=isolation == "read_committed")
                target_logs = log_bounds(target, {p.target for p in now})
                first = _First.of(now, (source, source_logs), (target, target_logs), level, isolation)
            sides: tuple[_Side, _Side] = (source, source_logs), (target, target_logs)
            verdicts.append(compare_partition(pair, *sides, level=level, maps=opened, isolation=isolation, first=first))
            if progress is not None:
                progress(verdicts[-1], len(verdicts), len(pairs))
    return verdicts


Answers = Mapping[TopicPartition, FetchedPartition]


@dataclass(frozen=True)
class _First:
    """The first answers of partitions that are compared next. One that is missing is asked for when it is its turn.

    :param source, target: of the range that is compared. :param front: the first batch of a target log that begins
        before it.
    """

    source: Answers = field(default_factory=dict)
    target: Answers = field(default_factory=dict)
    front: Answers = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Sequence[PartitionPair], source: _Side, target: _Side, level: str, isolation: str) -> _First:
        """Read them of pairs with identical offsets: where a mapped one begins is known only once its map is."""
        here, there, fronts = dict[TopicPartition, int](), dict[TopicPartition, int](), dict[TopicPartition, int]()
        for pair in (pair for pair in pairs if not pair.mapped):
            start, end = window(pair, source[1][pair.source], target[1][pair.target])
            if start < end and level != "offsets":
                here[pair.source] = there[pair.target] = start
            if (front := target[1][pair.target].start) < start:
                fronts[pair.target] = front
        read_as = READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED
        return cls(
            _together(source[0], here, read_as), _together(target[0], there, READ_COMMITTED),
            _together(target[0], fronts, READ_UNCOMMITTED),
        )  # fmt: skip


_Side = tuple[WireCluster, Mapping[TopicPartition, LogBounds]]


def _together(cluster: WireCluster, offsets: Mapping[TopicPartition, int], isolation: int) -> Answers:
    if not offsets:
        return {}
    return fetch_together(
        cluster, offsets, isolation=isolation, max_bytes_each=_FIRST_BYTES, max_bytes=_FETCH_BYTES
    )  # fmt: skip


def log_bounds(
    cluster: WireCluster, tps: Collection[TopicPartition], *, committed: bool = True
) -> dict[TopicPartition, LogBounds]:
    """Return the bounds of logs. The end is the log end offset, not the high watermark.

    :param committed: an open transaction hides the records after it.
    """
    # Starts last: retention may move a start past an end that was read before it, never the other way round.
    ends = cluster.log_ends(tps)
    stable = cluster.last_stable(tps) if committed else cluster.high_watermarks(tps)
    starts = cluster.log_starts(tps)
    return {tp: LogBounds(min(starts[tp], ends[tp]), stable[tp], ends[tp]) for tp in tps}


def compare_partition(
    pair: PartitionPair,
    of_source: _Side,
    of_target: _Side,
    *,
    level: str,
    maps: Maps | None = None,
    isolation: str = "read_committed",
    first: _First | None = None,
) -> PartitionComparison:
    """Compare one partition with known bounds (the source's for this isolation)."""
    (source, source_logs), (target, target_logs) = of_source, of_target
    source_log, target_log = source_logs[pair.source], target_logs[pair.target]
    first = first or _First()
    through: OffsetMap | None = None
    held, difference = target_log, None  # what the target holds, in source offsets
    if pair.mapped:
        through, difference = _map_of(pair, source, target, source_log, target_log, maps)
        held = through_map(through, target_log)
    start, end = window(pair, source_log, held)
    there = translated((start, end), through)
    floors = Floor(start, lambda: min(end, source.log_starts([pair.source])[pair.source])), Floor(there[0])
    tally = Tally(0, 0, difference)
    if level != "offsets" and difference is None:
        copies = data_batches(target, pair.target, *there, floor=floors[1], first=first.target.get(pair.target))
        if through is not None and maps is not None and maps.shared:
            copies = _named(copies, through)
        tally = compare(
            data_batches(
                source,
                pair.source,
                start,
                end,
                committed=isolation == "read_committed",
                floor=floors[0],
                first=first.source.get(pair.source),
            ),  # fmt: skip
            copies,
            (start, end),
            by_batch=level == "batches",
            through=through,
            floors=floors,
            held=pair.held,
            cleaned_on=pair.cleaned_on,
        )
    if any(floor.has_risen for floor in floors):
        # What retention took meanwhile was not compared, or is not there any more. The target's start is asked for first:
        # one that follows its source lacks nothing of it.
        target_log = begun_by_now(target, pair.target, target_log)
        source_log = begun_by_now(source, pair.source, source_log)
        held = target_log if through is None else through_map(through, target_log)
    if tally.gaps and tally.difference is None:
        logs = (source, pair.source, end, source_log), (target, pair.target, there[1], target_log)
        difference = _judge(tally.gaps, logs, isolation == "read_committed", through)
        tally = tally._replace(difference=difference)
    difference = tally.difference or bounds_difference(pair, source_log, held)
    if difference is None and through is None and target_log.start < start:
        difference = _fillers_in_front(target, pair.target, target_log, first.front.get(pair.target))
    lost = unseen(pair, source_log, held)
    return PartitionComparison(
        source_topic=pair.source_topic,
        target_topic=pair.target_topic,
        partition=pair.partition,
        start_offset=min(max(start, held.start), end) if lost else start,
        end_offset=end,
        records=tally.records,
        bytes=tally.bytes,
        equal=difference is None,
        first_difference=difference,
        offsets_equal=source_log == target_log,
        source_log=source_log,
        target_log=target_log,
        fillers=tally.fillers,
        expired=tally.expired,
        cleaned=tally.gaps.count if tally.gaps is not None else 0,
        unseen=lost,
    )


_Log = tuple[WireCluster, TopicPartition, int, LogBounds]  # with the end of what was compared


def _judge(gaps: Gaps, logs: tuple[_Log, _Log], committed: bool, through: OffsetMap | None) -> Difference | None:
    """Read what decides about records that only one side has: what follows the compared range, and all before its end.

    A tombstone's key may lie before what is compared now: both sides had it there, and were equal.
    """
    for number, (cluster, tp, end, log) in enumerate(logs):
        if gaps and end < log.stable:
            for record in _records(cluster, tp, end, log.stable, committed or number == 1):
                gaps.seen(record)
    found = gaps.lost(through is not None)
    for side, (cluster, tp, end, log) in zip(("source", "target"), logs, strict=True):
        if found is not None or not gaps.lacks(side):
            continue
        for record in _records(cluster, tp, log.start, end, committed or side == "target"):
            if through is not None and side == "source":
                record = record._replace(offset=through.to_target(record.offset).offset)
            found = gaps.left_behind(side, record, through is not None)
            if found is not None:
                break
    return found


def _records(cluster: WireCluster, tp: TopicPartition, start: int, end: int, committed: bool) -> Iterator[Record]:
    for raw in data_batches(cluster, tp, start, end, committed=committed, floor=Floor(start)):
        yield from (record for record in decoded(raw, tp, cluster.role) if start <= record.offset < end)


def _named(batches: Iterator[RawBatch], by: OffsetMap) -> Iterator[RawBatch]:
    """Yield the batches that a map names. A batch has one producer: it is this mirror's, or another one's."""
    return (raw for raw in batches if by.to_source(raw.first_offset).where is Where.RECORD)


def _fillers_in_front(
    target: WireCluster, tp: TopicPartition, log: LogBounds, answer: FetchedPartition | None
) -> Difference | None:  # fmt: skip
    """Find fillers of a priming at the start of a log, where records other than the source's are not a difference.

    They are deleted at once, but a broker that dies within a minute forgets that (`copy.writer.priming`).
    """
    # One batch is enough: fillers come before everything else.
    if answer is None:
        read = read_batches(target, tp, log.start, log.end, isolation=READ_UNCOMMITTED, max_bytes=1)
        try:
            first = next((raw for raw, _ in read), None)
        except BrokerError as e:
            # The bounds may be hours old by now, and retention, or a tail that lets log starts follow, goes on.
            start = target.log_starts([tp])[tp]
            if e.code != ErrorCode.OFFSET_OUT_OF_RANGE or start <= log.start:
                raise
            return _fillers_in_front(target, tp, log._replace(start=start), None)
    else:
        first = next(_framed(answer, tp, log.start, target), None)
    if first is None or not priming.is_filler(first):
        return None
    shown: Evidence = {
        "fillers": "of the priming: a broker forgot that they were deleted",
        "remedy": "run the copy again, it deletes them",
    }
    return Difference(offset=log.start, kind="extra", source=None, target=shown)


def _range_of(pair: PartitionPair) -> CopyRange:
    return mapped_range(pair.source_topic, pair.target_topic, pair.partition)


def _map_of(
    pair: PartitionPair, source: WireCluster, target: WireCluster, source_log: LogBounds, target_log: LogBounds,
    maps: Maps | None,
) -> tuple[OffsetMap, Difference | None]:  # fmt: skip
    """Return the pair's offset map, or an empty one and the difference that explains it."""
    if maps is None:
        raise InvalidField("maps", None, f"the offsets of {pair.source} are mapped", "Say whose offset map it is.")
    nothing = OffsetMap(source_log.start, target_log.end)
    one = _range_of(pair)
    try:
        try:
            return maps.complete(one, source, target), None
        except BrokerError as e:
            if e.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return maps.complete(one, source, target), None  # retention deleted the next records
    except NoOffsetMap:
        return nothing, None  # never begun: the target holds none of its records
    except ForeignData as e:
        found = Difference(
            offset=source_log.start, kind="map", source=None, target={"map": e.cause}, target_offset=e.start_offset
        )
        return nothing, found


def data_batches(
    cluster: WireCluster, tp: TopicPartition, start: int, end: int, *, committed: bool = True, floor: Floor | None = None,
    first: FetchedPartition | None = None,
) -> Iterator[RawBatch]:  # fmt: skip
    """Yield the data batches that overlap [start, end), as a consumer would read them.

    The first one may begin before ``start``.

    :param committed: skip aborted records. ``end`` must then not be above the last stable offset, and otherwise not
        above the high watermark.
    :param floor: raised if retention deletes the next records, and reading continues after them; without it that is an
        error.
    :param first: the answer to a fetch at ``start``, if there is one already.
    :raises BrokerError: the broker rejects the fetch, or sends nothing for ``STALL_S`` seconds.
    :raises CorruptBatch: the bytes where a batch should begin are not a batch.
    """
    isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
    return committed_batches(_batches(cluster, tp, start, end, isolation, floor, first), committed=committed)


def count_data(cluster: WireCluster, tp: TopicPartition, start: int, end: int, *, committed: bool = False) -> int:
    """Return the number of records in [start, end); 0 means markers or holes only.

    What retention deletes meanwhile is not counted.

    :param committed: skip aborted records; ``end`` must then not be above the last stable offset.
    """
    found, floor = 0, Floor(start)
    for raw in data_batches(cluster, tp, start, end, committed=committed, floor=floor):
        found += sum(floor.offset <= record.offset < end for record in decoded(raw, tp, cluster.role))
    return found


def _batches(
    cluster: WireCluster, tp: TopicPartition, start: int, end: int, isolation: int, floor: Floor | None = None,
    first: FetchedPartition | None = None,
) -> Iterator[tuple[RawBatch, Aborted]]:  # fmt: skip
    """Yield every batch that overlaps [start, end), with the aborted transactions of its response.

    An empty response below ``end`` is not the end of the log: a broker that throttles a client sends empty responses
    (KIP-219). Treating it as the end would report a partition as equal that was never read.
    """
    position, stalled_since = start, time.monotonic()
    while position < end:
        answer, first = (
            first or fetch_one(cluster, tp, position, isolation=isolation, max_bytes=_FETCH_BYTES, max_wait_ms=500), None,
        )  # fmt: skip
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE and floor is not None:
            log_start = cluster.log_starts([tp])[tp]
            if log_start > position:
                floor.rise(min(log_start, end))
                position = floor.offset
                continue
        if answer.error:
            raise BrokerError(f"fetch {tp} at offset {position}", answer.error, error_name(answer.error))
        before = position
        for raw in _framed(answer, tp, position, cluster):
            if raw.header is not None and raw.header.base_offset >= end:
                return
            position = max(position, raw.next_offset)
            yield raw, answer.aborted
        if position > before:  # not at the last batch: who compares it may take as long as the other side
            stalled_since = time.monotonic()
        elif time.monotonic() - stalled_since > STALL_S:
            raise nothing_fetched(cluster.role, tp, position, f"empty answers for {STALL_S:.0f} s")


def _framed(answer: FetchedPartition, tp: TopicPartition, position: int, cluster: WireCluster) -> Iterator[RawBatch]:
    """Yield the batches of an answer to a fetch at ``position``."""
    try:
        for raw in iter_batches(answer.records):
            position = max(position, raw.next_offset)
            yield raw
    except BrokenFrame as e:
        raise broken_log(tp, position, cluster.role, e) from e
