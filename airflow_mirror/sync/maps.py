"""The offset maps of a plan's mapped topics, complete up to the current ends of both logs.

Translation, lag, drain and comparison use them. A map is read from its store and completed from the two logs; it is
completed again only after one of the logs has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from operator import le
from typing import NamedTuple

from airflow_mirror.common.closing import Closing
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.offsets.derive import complete, holds_records
from airflow_mirror.copy.offsets.map import OffsetMap, Translated, Where
from airflow_mirror.copy.offsets.reader import Loaded, MapReader
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.errors import ForeignData, InputError, NoOffsetMap
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED


class MapSource(NamedTuple):
    """Whose maps, and how its records were read; passed to Spark tasks.

    :param mirror: name of the Mirror, from which its producer ids are derived.
    :param committed_only: read_committed; aborted records were not copied.
    :param shared: other mirrors may write to the same target topics: what a map does not name is theirs.
    """

    mirror: str
    committed_only: bool
    shared: bool = False

    def open(self, ranges: Iterable[CopyRange] | None = None, *, keep: bool = False) -> Maps:
        """Return the maps of some ranges; None: of any. :param keep: see :class:`Maps`."""
        return Maps(self, None if ranges is None else {one.map_key for one in ranges}, keep=keep)


class Maps:
    """Maps as both logs stand now.

    :param flows: see :class:`MapReader`.
    :param keep: each map goes on from where it was complete before, so that what is stored of it is read once. It is the
        one that was returned then.
    """

    def __init__(self, whose: MapSource, flows: Collection[str] | None, *, keep: bool = False) -> None:
        self._whose, self._store = whose, MapReader(whose.mirror, flows)
        self._kept: dict[str, Loaded] | None = {} if keep else None
        self.shared = whose.shared

    def forget(self, copy_range: CopyRange) -> None:
        """Read a map anew at the next call: a log ends below what it says."""
        if self._kept is not None:
            self._kept.pop(copy_range.map_key, None)

    def complete(self, copy_range: CopyRange, source: WireCluster, target: WireCluster) -> OffsetMap:
        """Return the map of a range, complete up to the current ends of both logs.

        :raises NoOffsetMap: its copy never began.
        :raises ForeignData: the logs contradict the stored map.
        """
        before = None if self._kept is None else self._kept.pop(copy_range.map_key, None)
        try:
            found = self._complete(copy_range, source, target, before)
        except ForeignData:
            # A log may have been cut and have grown again since: what is stored tells.
            if before is None:
                raise
            found = self._complete(copy_range, source, target, None)
        if self._kept is not None:
            self._kept[copy_range.map_key] = found
        return found.whole

    def _complete(self, copy_range: CopyRange, source: WireCluster, target: WireCluster, before: Loaded | None) -> Loaded:
        isolation = READ_COMMITTED if self._whose.committed_only else READ_UNCOMMITTED
        return complete(source, target, copy_range, self._whose.mirror, isolation, self._store, before)


def map_source(plan: Plan) -> MapSource | None:
    """Return whose maps a plan needs; None if none of its topics is mapped."""
    if not mapped_topics(plan):
        return None
    return MapSource(plan.mirror.name, plan.mirror.isolation == "read_committed", plan.mirror.shares)


def mapped_topics(plan: Plan) -> dict[str, TopicPlan]:
    """Return the plan's topics with mapped offsets, by source topic."""
    return {t.source_topic: t for t in plan.topics if t.mode == MAPPED}


def mapped_range(source_topic: str, target_topic: str, partition: int) -> CopyRange:
    """Return the range that represents a whole partition with mapped offsets."""
    return CopyRange(
        source_topic=source_topic, target_topic=target_topic, partition=partition, start_offset=0, mode=MAPPED
    )


class OffsetMaps(Closing):
    """The maps of one plan. Opens no connection while no topic is mapped."""

    def __init__(self, plan: Plan, source: ClientConfig, target: ClientConfig) -> None:
        self._topics = mapped_topics(plan)
        whose = map_source(plan)
        self._from = whose.open(keep=True) if whose else None
        self._by_key = plan.mirror.partitioning == "by_key"
        self._source, self._target = WireCluster(source), WireCluster(target)
        self._maps: dict[str, tuple[tuple[int, ...], OffsetMap]] = {}

    def close(self) -> None:
        """Close the connections."""
        self._source.close()
        self._target.close()

    def __bool__(self) -> bool:
        """True if any topic is mapped."""
        return bool(self._topics)

    def to_target(self, tp: TopicPartition, offset: int) -> Translated:
        """Return the target offset at which a reader of source partition ``tp`` at ``offset`` continues.

        ``Where.BEYOND`` means that the record is not copied yet.

        :raises InputError: records are partitioned by key, so offsets have no counterpart.
        :raises NoOffsetMap: the partition's copy never began.
        """
        return self._translate(self._topics[tp.topic], tp.partition, lambda one: place(one, offset))

    def to_source(self, tp: TopicPartition, offset: int) -> Translated:
        """Return the source offset where a reader of target partition ``tp`` at ``offset`` continues. Errors as above.

        ``Where.BEYOND`` also means that others have written since the last mirrored record, and that it has read theirs.
        """
        topic = next(t for t in self._topics.values() if t.target_topic == tp.topic)
        return self._translate(topic, tp.partition, lambda one: place_back(one, offset, self._target, tp))

    def positions(self) -> dict[TopicPartition, int]:
        """Return the source offset up to which readers of the target find everything, for each mapped partition.

        Partitions whose copy has not begun are omitted.
        """
        self._source.refresh(self._topics)
        self._target.refresh({t.target_topic for t in self._topics.values()})
        ranges = {
            TopicPartition(name, p): self._ranges(topic, p)
            for name, topic in self._topics.items()
            for p in range(self._copied(name, topic))
        }
        found = self._complete([one for several in ranges.values() for one in several])
        stable = self._target.last_stable({one.target for several in ranges.values() for one in several})
        return {
            tp: min(_readable(found[one.map_key], stable[one.target]) for one in several)
            for tp, several in ranges.items()
            if all(one.map_key in found for one in several)
        }

    def of(self, topics: Collection[str]) -> dict[TopicPartition, OffsetMap]:
        """Return the maps of source topics, as both logs stand now, by source partition; without those not begun."""
        some = {name: topic for name, topic in self._topics.items() if name in topics}
        if not some:
            return {}
        self._source.refresh(some)
        self._target.refresh({t.target_topic for t in some.values()})
        ranges = [
            mapped_range(name, topic.target_topic, p)
            for name, topic in some.items()
            for p in range(min(self._source.partitions(name), self._target.partitions(topic.target_topic)))
        ]
        found = self._complete(ranges)
        return {one.source: found[one.map_key] for one in ranges if one.map_key in found}

    def _translate(self, topic: TopicPlan, partition: int, through: Callable[[OffsetMap], Translated]) -> Translated:
        if self._by_key:
            raise InputError(
                f"topic {topic.source_topic!r}: partitioning='by_key' splits the records of a partition to several",
                "an offset has no counterpart then",
                "Start its groups at the earliest offset, or by time.",
            )
        one = mapped_range(topic.source_topic, topic.target_topic, partition)
        known = self._maps.get(one.map_key)
        if known is not None and (found := through(known[1])).where is not Where.BEYOND:
            return found
        maps = self._complete([one])
        if not maps:
            raise NoOffsetMap(one.source)
        return through(maps[one.map_key])

    def _copied(self, name: str, topic: TopicPlan) -> int:
        """Return how many partitions of a source topic have a place on the target."""
        here = self._source.partitions(name)
        return here if self._by_key else min(here, self._target.partitions(topic.target_topic))

    def _ranges(self, topic: TopicPlan, partition: int) -> list[CopyRange]:
        """Return the ranges in which a source partition is copied: one, or one per target partition."""
        whole = mapped_range(topic.source_topic, topic.target_topic, partition)
        if not self._by_key:
            return [whole]
        count = topic.key_partitions or self._target.partitions(topic.target_topic)
        return [replace(whole, target_partition=p, key_partitions=count) for p in range(count)]

    def _complete(self, ranges: Collection[CopyRange]) -> dict[str, OffsetMap]:
        """Return the complete maps of ``ranges`` by their keys; ranges without a map are omitted."""
        assert self._from is not None
        looks = [
            look(tps)
            for cluster, tps in (
                (self._source, {one.source for one in ranges}),
                (self._target, {one.target for one in ranges}),
            )
            for look in (cluster.last_stable, cluster.high_watermarks)
        ]
        found: dict[str, OffsetMap] = {}
        for one in ranges:
            # If both ends are unchanged, reading the logs would find nothing new.
            stamp = (*(look[one.source] for look in looks[:2]), *(look[one.target] for look in looks[2:]))
            seen, known = self._maps.get(one.map_key, ((), None))
            if known is None or seen != stamp:
                if not all(map(le, seen, stamp)):
                    self._from.forget(one)
                try:
                    known = self._from.complete(one, self._source, self._target)
                except NoOffsetMap:
                    continue
                self._maps[one.map_key] = stamp, known
            found[one.map_key] = known
        return found


def place(one: OffsetMap, offset: int) -> Translated:
    """Return where a reader continues; who has read everything has read what another tool sent again behind it, too."""
    found = one.to_target(offset)
    at_end = found.offset == one.target_end and found.where is not Where.BEFORE
    return found._replace(offset=max(found.offset, one.adopted_until)) if at_end else found


def place_back(one: OffsetMap, offset: int, target: WireCluster, tp: TopicPartition) -> Translated:
    """Return where a reader of target partition ``tp`` continues on the source; see :meth:`OffsetMaps.to_source`."""
    found, own_end = one.to_source(offset), max(one.target_end, one.adopted_until)
    # The map is complete behind records of others, too: they are none of its own, like markers.
    if found.where is Where.END and holds_records(target, tp, own_end, offset):
        return found._replace(where=Where.BEYOND)
    return found


def _readable(one: OffsetMap, stable: int) -> int:
    """Return the source offset up to which consumers of the target get everything; open transactions hide the rest."""
    return one.source_end if stable >= one.target_end else one.to_source(stable).offset
