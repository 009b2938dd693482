"""How far the source's logs reached at the last look, in the target's state: what a failover measures a loss by.

Partitions lie in :data:`BUCKETS` values by the name of their topic, and only values that differ are written. The time of
a look stands in a value of its own, and is the time of each partition that answered in it; one that did not keeps the
time of its last answer. A process that dies between these values leaves offsets that were seen a little later than they
say: none that the source did not have.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_mirror.partition import TopicPartition

_VERSION = 1
BUCKETS = 64
_RATES = 30  # looks whose rates are remembered: five minutes
_LOOK = "look"


class End(NamedTuple):
    """One source partition.

    :param stable: its last stable offset.
    :param end: its high watermark, at least ``stable``. Above it if a transaction was open.
    :param at_ms: when it answered, by the clock of who asked.
    """

    stable: int
    end: int
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class SourceEnds:
    """What was seen of a mirror's source.

    :param at_ms: time of the last look in which a partition answered, by the clock of who looked.
    :param rates: offsets a second that all partitions together took between two looks; the last is the newest.
    :param partitions: by source partition.
    """

    at_ms: int
    rates: tuple[float, ...] = ()
    partitions: Mapping[TopicPartition, End] = field(default_factory=dict)

    def after(
        self, answers: Mapping[TopicPartition, tuple[int, int]], asked: Collection[TopicPartition], now_ms: int
    ) -> SourceEnds:
        """Return what is known after one more look.

        :param answers: last stable offset and end of each partition that answered. :param asked: all partitions.
        """
        known = {tp: self.partitions[tp] for tp in asked if tp in self.partitions}
        seen = {tp: End(stable, max(stable, end), now_ms) for tp, (stable, end) in answers.items()}
        took_s = (now_ms - self.at_ms) / 1000
        rates = self.rates
        if known.keys() & seen.keys() and took_s >= 1:
            more = sum(max(0, seen[tp].end - known[tp].end) for tp in known.keys() & seen.keys())
            rates = (*rates, round(more / took_s, 1))[-_RATES:]
        return SourceEnds(at_ms=now_ms, rates=rates, partitions=known | seen)

    def dump(self, mirror: str) -> dict[str, bytes]:
        """Return it as values of the state; the time of the look is the last."""
        buckets: dict[int, dict[str, list[list[int]]]] = {}
        for tp, one in sorted(self.partitions.items()):
            row = [tp.partition, one.stable, one.end - one.stable, one.at_ms]
            row = row[:2] if (one.end, one.at_ms) == (one.stable, self.at_ms) else row  # most of them
            buckets.setdefault(_bucket(tp.topic), {}).setdefault(tp.topic, []).append(row)
        values = {f"{prefix(mirror)}{n}": _json({"ends": of}) for n, of in buckets.items()}
        return values | {_look(mirror): _json({"at": self.at_ms, "rates": self.rates})}


def prefix(mirror: str) -> str:
    """Return what the keys of a mirror's source ends begin with."""
    return f"ends/{mirror}/"


def is_newer(mirror: str, values: Mapping[str, bytes]) -> bool:
    """Return whether somebody looked, and this version can't read it."""
    return _look(mirror) in values and load(mirror, values) is None


def load(mirror: str, values: Mapping[str, bytes]) -> SourceEnds | None:
    """Return what was seen; None if nobody looked, or as far as this version can't read it."""
    look = _read(values.get(_look(mirror)))
    if look is None:
        return None
    try:
        at_ms, found = int(look["at"]), {}
        for n in range(BUCKETS):
            for topic, rows in ((_read(values.get(f"{prefix(mirror)}{n}")) or {}).get("ends") or {}).items():
                for partition, stable, *more in rows:
                    beyond, seen_ms = more or (0, at_ms)
                    found[TopicPartition(topic, int(partition))] = End(int(stable), int(stable + beyond), int(seen_ms))
        return SourceEnds(at_ms=at_ms, rates=tuple(map(float, look["rates"])), partitions=found)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _look(mirror: str) -> str:
    return f"{prefix(mirror)}{_LOOK}"


def _bucket(topic: str) -> int:
    return zlib.crc32(topic.encode()) % BUCKETS


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps({"v": _VERSION, **content}, separators=(",", ":")).encode()


def _read(value: bytes | None) -> dict[str, Any] | None:
    try:
        content = json.loads(value or b"")
    except ValueError:
        return None
    return content if isinstance(content, dict) and content.get("v") == _VERSION else None
