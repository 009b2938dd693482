"""Begin where an older tool's consumer group stands, once that tool has stopped.

The positions are read once, by the mirror's first plan; what is found is part of the plan, or remembered on the target
by a job that has none (:mod:`airflow_mirror.plan.start_offsets`). See :mod:`.overlap` for what lies behind them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, tee
from types import MappingProxyType

import xxhash

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.fingerprint import decoded
from airflow_mirror.errors import InputError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NO_MEMBERS, TopicInfo
from airflow_mirror.mirror import Mirror, time_ms
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.start_offsets import Begun, known_as
from airflow_mirror.sync.overlap import Overlap, is_spread, overlap
from airflow_mirror.wire.aborted import data_batches
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED
from airflow_mirror.wire.records import Record
from airflow_mirror.wire.single import read_batches

Starts = Mapping[str, Mapping[int, int]]
NOTHING: Starts = MappingProxyType({})

log = logging.getLogger(__name__)

_WINDOW = 20_000  # offsets of the target that are read at first
_WINDOWS = 5  # each four times as large as the one before: 5 million offsets in the end
_FETCH_BYTES = 1 << 20


def begun_before(mirror: Mirror, last: Plan | None, source: ClusterAdmin, target: ClusterAdmin) -> Begun:
    """Return where a mirror began by its last plan, or where it takes over if this is its first. Errors as below."""
    begun = Begun.of_plan(last, mirror)
    return begun if begun.starts or mirror.start_group is None else taken_over(mirror, source, target)


def taken_over(mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin, known: Starts = NOTHING) -> Begun:
    """Return where the mirror begins in the partitions in which ``start_group`` has a position.

    :param known: by source topic (:func:`.known_as`) and partition: where it is known to have begun. A job that was
        killed while it remembered that has remembered some.
    :raises InputError: the group has no position in any of the mirror's topics, although the target's hold records; or it
        has members: the tool still runs.
    :raises InputError: what the tool has written can't be told with certainty.
    """
    group = mirror.start_group
    assert group is not None
    topics = source.topics([name for name in source.topic_names() if mirror.selects_topic(name)])
    # Before its positions: a tool that commits and ends in between would be taken over where it stood before.
    state = source.group_states([group])[group]
    positions = {
        tp: found.offset
        for tp, found in source.group_offsets(group).items()
        if tp.topic in topics and found.offset >= 0 and tp.partition < topics[tp.topic].partitions
    }
    if not positions and not known:
        _require_empty(mirror, topics, target)
    starts = {topic: dict(several) for topic, several in known.items()}
    keys = {name: known_as(name, info.topic_id) for name, info in topics.items()}
    new = {tp: at for tp, at in positions.items() if tp.partition not in known.get(keys[tp.topic], {})}
    if new and state not in NO_MEMBERS:
        raise InputError(
            f"start_group={group!r}",
            f"the group is {state} on the source, so the tool from which the mirror takes over still runs, and where "
            "it ends is not known yet",
            "Stop all of its processes, then plan again.",
        )
    for topic in sorted({tp.topic for tp in new}):
        of_topic = {tp: offset for tp, offset in new.items() if tp.topic == topic}
        info, key = topics[topic], keys[topic]
        if key not in starts:
            starts[key] = _without_position(mirror, info, of_topic, source)
        starts[key] |= _of_topic(mirror, info, of_topic, source, target)
    return Begun(starts)


def _require_empty(mirror: Mirror, topics: Collection[str], target: ClusterAdmin) -> None:
    """Return if no tool can have written anything. A group's wrong id would copy everything again.

    :raises InputError: the group has no position, and the target's topics hold records.
    """
    there = target.topics([mirror.naming.target_topic(topic) for topic in topics])
    ends = target.offsets([TopicPartition(name, p) for name, info in there.items() for p in range(info.partitions)])
    if filled := sorted({tp.topic for tp, end in ends.items() if end > 0}):
        raise InputError(
            f"start_group={mirror.start_group!r}: it has no position in any topic that the mirror selects",
            f"the target's {', '.join(filled[:5])} hold records",
            "Check the group's id; positions that a tool kept in ZooKeeper have to be committed to Kafka first.",
        )
    log.info("%r has no position: nothing to take over, the copy begins at %s", mirror.start_group, mirror.start)


def _of_topic(
    mirror: Mirror, topic: TopicInfo, positions: Mapping[TopicPartition, int], source: ClusterAdmin, target: ClusterAdmin
) -> dict[int, int]:
    """Return where each partition of a topic begins in which the group has a position."""
    starts: dict[int, int] = {}
    there = target.topics([mirror.naming.target_topic(topic.name)])
    copies = _Copies(target.wire, *there.values()) if there and mirror.start_overlap == "search" else None
    for tp, position in positions.items():
        found = Overlap(position) if copies is None else _searched(mirror, source.wire, tp, position, copies)
        if found.copies:
            log.info(
                "%s: %s records behind the position %s of %r are on the target already; the copy begins at %s",
                tp, f"{found.copies:,}", position, mirror.start_group, found.start,
            )  # fmt: skip
        starts[tp.partition] = found.start
    return starts


def _without_position(
    mirror: Mirror, topic: TopicInfo, positions: Mapping[TopicPartition, int], source: ClusterAdmin
) -> dict[int, int]:
    """Return where those partitions begin in which the group has no position: as ``start`` says."""
    others = [tp for p in range(topic.partitions) if (tp := TopicPartition(topic.name, p)) not in positions]
    if mirror.start in ("earliest", "latest"):
        when = "latest_committed" if mirror.start == "latest" and mirror.isolation == "read_committed" else mirror.start
        return {tp.partition: offset for tp, offset in source.offsets(others, when).items()}
    found = source.offsets(others, time_ms("start", mirror.start))
    ends = source.offsets([tp for tp, offset in found.items() if offset < 0], "latest")
    return {tp.partition: ends.get(tp, offset) for tp, offset in found.items()}


class _Copies:
    """The last records of a target topic, by digest, read as far back as is asked for."""

    def __init__(self, cluster: WireCluster, topic: TopicInfo) -> None:
        self._cluster = cluster
        self._partitions = [TopicPartition(topic.name, p) for p in range(topic.partitions)]
        self._starts = cluster.log_starts(self._partitions)
        self._ends = cluster.high_watermarks(self._partitions)
        self._read: dict[tuple[TopicPartition, int], Counter[int]] = {}

    def ends_with(self, anchor: int | None, partition: int | None, window: int) -> Counter[int] | None:
        """Return the digests of the last ``window`` offsets; None unless ``anchor`` is among them, or these are all.

        :param partition: of one partition; None: of all.
        """
        wanted = [tp for tp in self._partitions if partition is None or tp.partition == partition]
        found, complete = Counter[int](), True
        for tp in wanted:
            found += self._last(tp, window)
            complete = complete and self._ends[tp] - window <= self._starts[tp]
        return found if (anchor in found if anchor is not None else complete) else None

    def _last(self, tp: TopicPartition, window: int) -> Counter[int]:
        if (tp, window) not in self._read:
            start = max(self._starts[tp], self._ends[tp] - window)
            records = _records(self._cluster, tp, start, self._ends[tp], READ_UNCOMMITTED)
            self._read[tp, window] = Counter(_digest(record) for record in records)
        return self._read[tp, window]


def _searched(mirror: Mirror, source: WireCluster, tp: TopicPartition, position: int, copies: _Copies) -> Overlap:
    """Return what the target holds of a partition from the group's position on.

    :raises InputError: it can't be told.
    """
    isolation = READ_COMMITTED if mirror.isolation == "read_committed" else READ_UNCOMMITTED
    log_start = source.log_starts([tp])[tp]
    end = (source.last_stable if isolation == READ_COMMITTED else source.high_watermarks)([tp])[tp]
    if not log_start <= position <= end:
        raise unclear(
            tp, mirror.start_group or "", f"its position {position} is outside of the source's log [{log_start}, {end})",
            "Records were deleted before the tool had copied them. Decide from where to copy, and set start instead.",
        )  # fmt: skip
    if position == end:
        return Overlap(position)
    for window in (_WINDOW * 4**n for n in range(_WINDOWS)):
        before = [_digest(r) for r in _records(source, tp, max(log_start, position - window), position, isolation)]
        anchor = before[-1] if before else None
        here, anywhere = (copies.ends_with(anchor, partition, window) for partition in (tp.partition, None))
        if here is not None and anywhere is not None and is_spread(before, here, anywhere):
            here = None  # that the last committed record is in this one proves nothing: it has to be in some
        readings = [there for there in (here, anywhere) if there is not None]
        if readings:
            after = ((r.offset, _digest(r)) for r in _records(source, tp, position, end, isolation))
            each = zip(readings, tee(after, len(readings)), strict=True)  # what lies behind is read once
            return _judged(mirror, tp, *(overlap(before, rows, there, position, end) for there, rows in each))
    raise unclear(
        tp, mirror.start_group or "",
        f"the record before its position {position} is not among the last {window:,} of the target's topic",
        "If the tool was stopped cleanly, nothing is behind its position: set start_overlap='none'. Else copy to a new "
        "topic, from the start.",
    )  # fmt: skip


def unclear(tp: TopicPartition, group: str, cause: str, remedy: str) -> InputError:
    """Return the error where records would be lost or copied twice."""
    return InputError(f"{tp}: where the tool with start_group={group!r} ended is not clear", cause, remedy)


def _judged(mirror: Mirror, tp: TopicPartition, found: Overlap, *others: Overlap) -> Overlap:
    """Return what was found, unless it is unclear.

    :param others: what other readings of the target found.
    """
    remedy = "Copy to a new topic, from the start."
    group = mirror.start_group or ""
    if any(other != found for other in others):
        cause = "records behind its position may have copies in other partitions of the target, and none before it has"
        raise unclear(tp, group, cause, remedy)
    if found.equal is not None:
        cause = f"the record at offset {found.equal} is equal to another one, so that its copies can't be told apart"
        raise unclear(tp, group, cause, remedy)
    if found.behind_gap:
        cause = f"the target lacks the record at offset {found.start}, and has {found.behind_gap:,} that come later"
        raise unclear(tp, group, cause, remedy)
    return found


def _records(cluster: WireCluster, tp: TopicPartition, start: int, end: int, isolation: int) -> Iterator[Record]:
    if start >= end:
        return
    fetched = read_batches(cluster, tp, start, end, isolation=isolation, max_bytes=_FETCH_BYTES)
    batches = data_batches(fetched, committed=isolation == READ_COMMITTED)
    for record in chain.from_iterable(decoded(raw, tp, cluster.role) for raw in batches):
        if start <= record.offset < end:
            yield record


def _digest(record: Record) -> int:
    # Both tools keep the time of a record; where the target sets its own, nothing is found, and that is said.
    return xxhash.xxh3_64_intdigest(repr((record.timestamp, record.key, record.value, record.headers)).encode())
