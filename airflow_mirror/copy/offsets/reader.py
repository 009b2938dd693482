"""Read the offset maps that the target's maps topic holds; :mod:`.store` says what lies there, and writes it.

A reader knows the keys of its maps and where their records lie, not their values. It reads each partition of the maps
topic once, and then only what was appended since; values are fetched one by one when they are needed. So neither
continuing a copy nor joining holds more than some pieces of a map.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from airflow_mirror.common.policy import MAP_PARTITIONS, MAPS
from airflow_mirror.copy.offsets import encoding, pieces
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.map_index import MapIndex
from airflow_mirror.copy.offsets.pieces import Origin, Piece, Stored
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import BrokerError, TryAgain
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import UnknownTopic

log = logging.getLogger(__name__)

_VALUE_BYTES = 1 << 16
_LOOKS = 3  # how often others may remove pieces between looking for them and reading them
_ABSENT_S = 30.0  # how long a topic that is not there is not asked for: the brokers' word takes seconds to be believed
_T = TypeVar("_T")


class Removed(Exception):
    """A record is gone: others have joined its piece, or the topic was created again."""


class Loaded(NamedTuple):
    """A map that was loaded, perhaps extended since by who has it.

    :ivar of: the target topic's id, the copy's origin, and the newest writer's version.
    """

    whole: OffsetMap
    of: tuple[str, Origin, int]


class MapReader:
    """The offset maps of one mirror. May be used by several threads, each with a ``target`` of its own.

    :param flows: the maps that it will be asked for (:attr:`CopyRange.map_key`); None: any.
    """

    def __init__(self, mirror: str, flows: Iterable[str] | None = None) -> None:
        self._mirror = mirror
        names = None if flows is None else {self._name(flow) for flow in flows}
        wanted = (lambda name: name.startswith(f"{mirror}/")) if names is None else names.__contains__
        self._shelves = [MapIndex(partition, wanted) for partition in range(MAP_PARTITIONS)]
        self._absent_until = 0.0

    def begun(self, target: WireCluster) -> set[tuple[str, str]]:
        """Return name and id of the target topics of which any partition was ever copied with a map.

        :raises MissingRight: no READ on the maps topic.
        """
        topics: set[tuple[str, str]] = set()
        for shelf in self._shelves:
            if self._look(target, shelf):
                topics |= pieces.begun(key for name in shelf.names() for key in shelf.keys(name))
        return topics

    def source_start(self, target: WireCluster, copy_range: CopyRange) -> int | None:
        """Return the source offset at which a map begins; None if the map was never begun. Errors as for :meth:`load`."""
        stored = self._find(target, copy_range)
        return None if stored is None else stored.origin.source_start

    def names(self, target: WireCluster) -> list[str]:
        """Return the names of the maps that are stored. Errors as for :meth:`load`."""
        return sorted(name for shelf in self._shelves if self._look(target, shelf) for name in shelf.names())

    def load(self, target: WireCluster, copy_range: CopyRange) -> OffsetMap | None:
        """Return the map from its origin up to the first gap; None without an origin, or without a maps topic.

        :raises MissingRight: no READ on the maps topic.
        """
        found = self.load_on(target, copy_range, None)
        return None if found is None else found.whole

    def load_on(self, target: WireCluster, copy_range: CopyRange, before: Loaded | None) -> Loaded | None:
        """Return the map as :meth:`load` does, with what it is of. Of one that was loaded before only the rest is read.

        :param before: its map is extended. Where a copy has begun anew since, or another writer, all is read again.
        """

        def look() -> Loaded | None:
            found = self._find(target, copy_range)
            if found is None:
                return None
            # Another writer's pieces cut those of the one before: what was read of them may count no more.
            version = max((piece.version for piece in found.pieces), default=found.origin.version)
            of = id_of_topic(target, copy_range.target_topic), found.origin, version
            if before is not None and before.of == of and self._extend(target, copy_range, before.whole, found):
                return before
            whole = self._whole(target, copy_range, found)
            return None if whole is None else Loaded(whole, of)

        return self._consistent(look)

    def _extend(self, target: WireCluster, copy_range: CopyRange, whole: OffsetMap, found: Stored) -> bool:
        """Append what is stored behind a map's end; return whether all of it could be."""
        name = self._name(copy_range.map_key)
        try:
            for piece in found.pieces:
                if piece.start > whole.source_end:
                    break
                if piece.until > whole.source_end:
                    whole.extend(self._value(target, name, piece))
        except ValueError:
            return False
        return True

    def _consistent(self, look: Callable[[], _T | None]) -> _T | None:
        """Return what ``look`` finds, again if pieces were removed meanwhile."""
        removed: Removed | None = None
        for _ in range(_LOOKS):
            try:
                return look()
            except Removed as e:
                removed = e
        raise TryAgain(f"{MAPS}: a map changed while it was read", f"{removed} was removed, {_LOOKS} times in a row")

    def _whole(self, target: WireCluster, copy_range: CopyRange, found: Stored | None) -> OffsetMap | None:
        if found is None:
            return None
        name, whole = self._name(copy_range.map_key), OffsetMap(found.origin.source_start, found.origin.target_start)
        for piece in found.pieces:
            if piece.start > whole.source_end:
                break
            try:
                whole.extend(self._value(target, name, piece))
            except ValueError as e:
                log.warning("%s is not used: %s", piece.key, e)
        whole.adopted_until = found.adopted_until
        return whole

    def _value(self, target: WireCluster, name: str, piece: Piece) -> OffsetMap:
        """Return a piece, as far as it counts.

        :raises Removed: its record is gone. :raises ValueError: it can't be read.
        """
        topic = TopicLog(target, MAPS, self._shelf(name).partition)
        try:
            records = [
                one for one in topic.read(piece.offset, piece.offset + 1, _VALUE_BYTES) if one.key == piece.key.encode()
            ]
        except BrokerError as e:
            if e.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            records = []
        if not records:
            # All of it is read again: what was known of this partition is older than the removal.
            self._shelf(name).forget()
            raise Removed(piece.key)
        return pieces.cut(encoding.decode(records[0].value or b""), piece.until)

    # --- what is there ------------------------------------------------------------------------------------------------

    def _name(self, flow: str) -> str:
        return f"{self._mirror}/{flow}"

    def _shelf(self, name: str) -> MapIndex:
        return self._shelves[zlib.crc32(name.encode()) % MAP_PARTITIONS]

    def _find(self, target: WireCluster, copy_range: CopyRange) -> Stored | None:
        shelf = self._shelf(self._name(copy_range.map_key))
        return self._stored(target, copy_range) if self._look(target, shelf) else None

    def _stored(self, target: WireCluster, copy_range: CopyRange) -> Stored | None:
        name = self._name(copy_range.map_key)
        return pieces.stored(self._shelf(name).keys(name), id_of_topic(target, copy_range.target_topic))

    def _look(self, target: WireCluster, shelf: MapIndex) -> bool:
        """Read on; return whether there is a maps topic at all."""
        if time.monotonic() < self._absent_until:
            return False
        try:
            shelf.read_on(target)
            return True
        except UnknownTopic:
            self._absent_until = time.monotonic() + _ABSENT_S
            return False


def id_of_topic(target: WireCluster, topic: str) -> str:
    """Return the id of a target topic; "" where topics have none.

    A broker that is not ready to describe a topic gives it no id. Taken for a new topic, it would lose its map.

    :raises TryAgain: the topic has an id, and no broker says which.
    """
    if not (topic_id := target.topic_id(topic)) and target.topic_id(MAPS):
        target.refresh([topic])
        if not (topic_id := target.topic_id(topic)):
            raise TryAgain(
                f"{target.role} cluster: topic {topic!r} has no id",
                "no broker describes it",
                "One that has just started may not know it yet.",
            )
    return topic_id
