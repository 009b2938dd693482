"""A target with a maps topic, and stories of maps, for the tests of their store."""

from __future__ import annotations

import random
from collections.abc import Callable

from airflow_mirror.common.policy import MAPS
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.wire.cluster import WireCluster
from tests.driven.cluster import DrivenCluster
from tests.driven.copying import create_maps

ONE = CopyRange(source_topic="here", target_topic="orders", partition=3, start_offset=0, mode=MAPPED)


class World:
    """A target with the topic ``orders``; stores as processes have them."""

    def __init__(self, target: DrivenCluster, wire: WireCluster) -> None:
        self.target, self.wire = target, wire
        target.create("orders", 4)
        create_maps(target)

    def store(self, many: int = 32) -> MapStore:
        return MapStore("m", [ONE.map_key], many=many)

    def writer(self, many: int = 32) -> MapStore:
        """A process that has opened the partition."""
        store = self.store(many)
        store.resume(self.wire, ONE)
        return store

    def begin(self, store: MapStore, whole: OffsetMap) -> None:
        store.begin(self.wire, ONE, whole.source_start, whole.target_start, nothing)

    def append(self, store: MapStore, *parts: OffsetMap, check: Callable[[], None] = lambda: None) -> None:
        for part in parts:
            store.append(self.wire, ONE, part, check)

    def stored(self, seed: int = 1, parts: int = 9, many: int = 32) -> tuple[OffsetMap, list[OffsetMap]]:
        """Store a map piece by piece; return it, and the pieces."""
        whole, pieces = story(seed, parts)
        store = self.store(many)
        self.begin(store, whole)
        self.append(store, *pieces)
        return whole, pieces

    def load(self) -> OffsetMap | None:
        return self.store().load(self.wire, ONE)

    def end(self) -> OffsetMap | None:
        return self.store().resume(self.wire, ONE)

    def left(self) -> list[str]:
        """The keys that the cleaner would leave, without the begin's."""
        there: dict[bytes | None, bytes | None] = {}
        for log in self.target.topics[MAPS].logs:
            there |= {row.key: row.value for row in log.rows()}
        return [str(key, "utf-8") for key, value in there.items() if key and value is not None and b"begin" not in key]

    def lose(self, key: str) -> None:
        """Remove one piece."""
        (log,) = (log for log in self.target.topics[MAPS].logs if log.end)
        TopicLog(self.wire, MAPS, log.tp.partition).put({key: None}, 60)


def nothing() -> None:
    pass


def story(seed: int, parts: int = 9) -> tuple[OffsetMap, list[OffsetMap]]:
    """Return a map with holes on both sides, and the pieces that a copier would have stored of it."""
    chance = random.Random(seed)
    source, target = chance.randrange(50), chance.randrange(50)
    whole, pieces = OffsetMap(source, target), []
    for _ in range(parts):
        piece = OffsetMap(source, target)
        for _ in range(chance.randrange(4)):
            source, target = source + chance.choice([0, 0, 1, 5]), target + chance.choice([0, 0, 0, 2])
            count = chance.randrange(1, 9)
            piece.add(source, target, count)
            source, target = source + count, target + count
        source += chance.choice([1, 2, 7])
        piece.advance(source)
        pieces.append(piece)
        whole.extend(piece)
    return whole, pieces


def prefix(pieces: list[OffsetMap], count: int) -> OffsetMap:
    joined = OffsetMap(pieces[0].source_start, pieces[0].target_start)
    for piece in pieces[:count]:
        joined.extend(piece)
    return joined


def ends(one: OffsetMap | None) -> tuple[object, ...]:
    """What a copy that goes on needs to know: the ends, and where the last record is. Its run may begin earlier."""
    assert one is not None
    last = one.last
    after = None if last is None else (last.source + last.count, last.target + last.count)
    return one.source_end, one.target_end, one.target_log_end, after


def run(start: int, count: int, shift: int, source_start: int | None = None) -> OffsetMap:
    """A piece with one run; its target offsets are ``shift`` higher."""
    first = start if source_start is None else source_start
    piece = OffsetMap(first, first + shift)
    piece.add(start, start + shift, count)
    return piece
