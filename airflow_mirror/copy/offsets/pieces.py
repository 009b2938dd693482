"""What the records of the maps topic are called, and which of them make up the map of a partition.

A key names what its record can say only once, so that no record ever replaces a different one:
``<mirror>/<target topic>/<flow>/<topic id>/<token>/<version>/<what>``, where *what* is

- ``begin@<source offset>@<target offset>``: the origin of a copy, written before its first record. The token is drawn
  there, and every piece carries it;
- ``<start>-<end>x<runs>``: a piece of the map, over the source offsets [start, end);
- ``adopted@<target offset>``: another tool has written what lies below that offset, and the map up to there was made
  afterwards. It is written before its origin, as the pieces are, so that all of them begin to count with that one.

The *version* counts the openings of a partition: a writer takes one above the highest that it reads. It trusts the map
that it read and goes on at its end, so what older writers say from there on does not count any more. A writer that was
frozen and thaws may therefore store what it likes: it has an older version.

Which pieces count, of the newest origin with the target topic's present id: those with its token, each only below the
start of any piece of a higher version, as long as they follow each other without a gap.

Pure: no clock, no socket.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from airflow_mirror.copy.offsets import encoding
from airflow_mirror.copy.offsets.map import OffsetMap

_BEGIN = re.compile(r"begin@(\d+)@(\d+)")
_ADOPTED = re.compile(r"adopted@(\d+)")
_PIECE = re.compile(r"(\d+)-(\d+)x(\d+)")
_FIELDS = 7


class Origin(NamedTuple):
    """Where a copy begins on both sides."""

    source_start: int
    target_start: int
    token: str
    version: int

    def key(self, name: str, topic_id: str) -> str:
        """Return the key of its record."""
        what = f"begin@{self.source_start}@{self.target_start}"
        return f"{name}/{topic_id}/{self.token}/{self.version}/{what}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A piece of a map: the source offsets [start, end), its number of runs, and its record's place in the topic.

    :ivar until: the piece counts below this source offset only.
    """

    start: int
    end: int
    runs: int
    version: int
    key: str
    offset: int
    until: int


class Stored(NamedTuple):
    """What is stored of one map.

    :ivar pieces: those that count, in order. Each begins at or before the end of those before it.
    :ivar leftover: keys of this map that count no more.
    :ivar adopted_until: see :attr:`OffsetMap.adopted_until`.
    """

    origin: Origin
    pieces: tuple[Piece, ...]
    leftover: tuple[str, ...]
    adopted_until: int = 0


def piece_key(name: str, topic_id: str, token: str, version: int, bounds: tuple[int, int, int]) -> str:
    """Return the key of a piece's record.

    :param name: of the map, see :func:`name_of`. :param bounds: start, end and number of runs.
    """
    start, end, runs = bounds
    return f"{name}/{topic_id}/{token}/{version}/{start}-{end}x{runs}"


def adopted_key(name: str, topic_id: str, origin: Origin, until: int) -> str:
    """Return the key of the record that says up to which target offset a map was made afterwards."""
    return f"{name}/{topic_id}/{origin.token}/{origin.version}/adopted@{until}"


def name_of(key: str) -> str | None:
    """Return the name of the map that a record belongs to: ``<mirror>/<target topic>/<flow>``; None for other records."""
    parts = key.split("/")
    return "/".join(parts[:3]) if len(parts) == _FIELDS and parts[5].isdecimal() else None


def highest_version(keys: Iterable[str]) -> int:
    """Return the highest version among the keys of one name; 0 without any."""
    return max((int(key.split("/")[5]) for key in keys), default=0)


def begun(keys: Iterable[str]) -> set[tuple[str, str]]:
    """Return (target topic, its id) of every origin."""
    fields = (key.split("/") for key in keys)
    return {(topic, topic_id) for _, topic, _, topic_id, _, _, what in fields if _BEGIN.fullmatch(what)}


def stored(keys: Mapping[str, int], topic_id: str) -> Stored | None:
    """Return what is stored of a map; None without an origin.

    :param keys: of one name, each with its record's offset in the topic.
    :param topic_id: of the target topic. Another one is of a topic that was deleted.
    """
    split = [(key.split("/")[3:], key) for key in keys]
    # Of the target topic that is there now: one that was deleted has left its keys, whose offsets mean nothing in this
    # one.
    ours = [(token, int(version), what, key) for (there, token, version, what), key in split if there == topic_id]
    origins = [
        (-version, keys[key], Origin(int(at[1]), int(at[2]), token, version))
        for token, version, what, key in ours
        if (at := _BEGIN.fullmatch(what))
    ]
    if not origins:
        return None
    origin = min(origins)[-1]  # of two of a version the first: the other one was on its way for longer
    pieces = [
        Piece(
            start=int(at[1]),
            end=int(at[2]),
            until=int(at[2]),
            runs=int(at[3]),
            version=version,
            key=key,
            offset=keys[key],
        )  # fmt: skip
        for token, version, what, key in ours
        if token == origin.token and (at := _PIECE.fullmatch(what))
    ]
    # Two rules, in this order: what older writers said beyond a newer one's start is cut off, then what is left is
    # followed from the origin until something is missing. What lies behind a gap is derived from the logs again.
    used = _chain(origin.source_start, _below_newer_ones(pieces))
    kept = {one.key for one in used}
    leftover = tuple(one.key for one in pieces if one.key not in kept)
    adopted = [int(at[1]) for token, _, what, _ in ours if token == origin.token and (at := _ADOPTED.fullmatch(what))]
    return Stored(origin, tuple(used), leftover, max(adopted, default=0))


def _below_newer_ones(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces, without what a writer of a higher version has said as well, or instead."""
    by_version: dict[int, list[Piece]] = {}
    for one in pieces:
        by_version.setdefault(one.version, []).append(one)
    counting: list[Piece] = []
    floor: int | None = None
    # A newer writer has read the map up to its start, and believed it. From there on an older one, frozen and thawed,
    # may have stored what it copied while it was no longer the writer: that is not in the log, or under other offsets.
    for version in sorted(by_version, reverse=True):
        several = by_version[version]
        counting += several if floor is None else [replace(one, until=min(one.end, floor)) for one in several]
        lowest = min(one.start for one in several)
        floor = lowest if floor is None else min(floor, lowest)
    return counting


def _chain(start: int, pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces that lead on from ``start`` without a gap; not those that others cover."""
    chain: list[Piece] = []
    reached = start
    for one in sorted(pieces, key=lambda one: (one.start, -one.until)):
        # A part was lost: its writer died before it was stored, or the answer was "no". The walk over both logs begins
        # here.
        if one.start > reached:
            break  # what follows can't be appended
        if one.until > reached:
            chain.append(one)
            reached = one.until
    return chain


def joinable(several: Iterable[Piece]) -> list[Piece]:
    """Return the newest pieces down to the first that is large, or of which only a part counts."""
    small: list[Piece] = []
    for one in reversed(list(several)):
        if one.runs > encoding.LARGEST // 2 or one.until != one.end:
            break
        small.append(one)
    return small[::-1]


def to_join(several: list[Piece]) -> list[Piece]:
    """Return the newest pieces that are joined: at least two."""
    used, runs = list(several[-2:]), sum(one.runs for one in several[-2:])
    for older in reversed(several[:-2]):
        if older.runs > 2 * max(runs, 1) or older.runs + runs > encoding.LARGEST:
            break
        used.insert(0, older)
        runs += older.runs
    return used


def cut(piece: OffsetMap, until: int) -> OffsetMap:
    """Return a piece up to a source offset."""
    if piece.source_end <= until:
        return piece
    kept = OffsetMap(piece.source_start, piece.target_start)
    for segment in piece.segments(piece.source_start, until):
        kept.add(*segment)
    kept.advance(until)
    return kept
