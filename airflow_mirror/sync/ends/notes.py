"""How far the source's logs reached at the last look, in the target's state: what a failover measures a loss by.

Partitions lie in :data:`BUCKETS` values by the name of their topic, and only values that differ are written. The time of
a look stands in a value of its own, and is the time of each partition that answered in it; one that did not keeps the
time of its last answer. A process that dies between these values leaves offsets that were seen a little later than they
say: none that the source did not have.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.ledger.records import ENDS, LOOKED

BUCKETS = 64
prefix = ENDS.below  # of all of a mirror
_RATES = 30  # notes whose rates are remembered: five minutes
_SECOND = 0.9  # looks of a second are a little closer now and then


class End(NamedTuple):
    """One source partition.

    :param stable: its last stable offset.
    :param end: its high watermark, at least ``stable``. Above it if a transaction was open.
    :param at_ms: when it answered, by the clock of who asked.
    """

    stable: int
    end: int
    at_ms: int


Ends = Mapping[TopicPartition, End]


@dataclass(frozen=True, kw_only=True)
class SourceEnds:
    """What was seen of a mirror's source.

    :param at_ms: time of the last look in which a partition answered, by the clock of who looked.
    :param rates: offsets a second that all partitions together took between two notes; the last is the newest.
    :param peaks: the same in the busiest second of each.
    :param missed_ms: when, after that look, the source did not answer; None: it was not asked again, as far as is noted.
    :param partitions: by source partition.
    """

    at_ms: int
    rates: tuple[float, ...] = ()
    peaks: tuple[float, ...] = ()
    missed_ms: int | None = None
    partitions: Ends = field(default_factory=dict)

    def after(
        self, answers: Mapping[TopicPartition, tuple[int, int]], asked: Collection[TopicPartition], now_ms: int,
        peak: float = 0.0,
    ) -> SourceEnds:  # fmt: skip
        """Return what is known after one more look.

        :param answers: last stable offset and end of each partition that answered. :param asked: all partitions.
        :param peak: offsets a second between the two closest looks since this one that were busiest.
        """
        known = {tp: self.partitions[tp] for tp in asked if tp in self.partitions}
        seen = {tp: End(stable, max(stable, end), now_ms) for tp, (stable, end) in answers.items()}
        rates, peaks, rate = self.rates, self.peaks, rate_of(known, seen, (now_ms - self.at_ms) / 1000)
        if rate is not None:
            rates, peaks = (*rates, rate)[-_RATES:], (*peaks, max(peak, rate))[-_RATES:]
        return SourceEnds(at_ms=now_ms, rates=rates, peaks=peaks, partitions=known | seen)

    def dump(self, mirror: str) -> dict[str, bytes]:
        """Return it as values of the state; the time of the look is the last."""
        buckets: dict[int, dict[str, list[list[int]]]] = {}
        for tp, one in sorted(self.partitions.items()):
            row = [tp.partition, one.stable, one.end - one.stable, one.at_ms]
            row = row[:2] if (one.end, one.at_ms) == (one.stable, self.at_ms) else row  # most of them
            buckets.setdefault(_bucket(tp.topic), {}).setdefault(tp.topic, []).append(row)
        values = {key: value for n, of in buckets.items() for key, value in ENDS.put({"ends": of}, mirror, n).items()}
        look = {"at": self.at_ms, "rates": self.rates, "peaks": self.peaks, "missed": self.missed_ms}
        return values | LOOKED.put(look, mirror)

    def changes(self, mirror: str, stored: Mapping[str, bytes]) -> dict[str, bytes | None]:
        """Return what of it the state lacks, as :meth:`dump`; None for a value of topics that are not asked any more."""
        dumped = self.dump(mirror)
        # They would count as seen at the time of this look, so they go before it is noted.
        gone = {key for n in range(BUCKETS) if (key := ENDS.key(mirror, n)) in stored and key not in dumped}
        return dict.fromkeys(gone) | {key: value for key, value in dumped.items() if stored.get(key) != value}


def rate_of(before: Ends, after: Ends, took_s: float) -> float | None:
    """Return the offsets a second that partitions of both looks took; None within less than a second: a clock's whim."""
    both = before.keys() & after.keys()
    if not both or took_s < _SECOND:
        return None
    return round(sum(max(0, after[tp].end - before[tp].end) for tp in both) / took_s, 1)


def is_newer(mirror: str, values: Mapping[str, bytes]) -> bool:
    """Return whether somebody looked, and this version can't read it."""
    return LOOKED.at(values, mirror) is not None and load(mirror, values) is None


def load(mirror: str, values: Mapping[str, bytes]) -> SourceEnds | None:
    """Return what was seen; None if nobody looked, or as far as this version can't read it."""
    return LOOKED.load(partial(_seen, mirror, values), values, mirror)


def since(seen: SourceEnds | None, planned_at: str) -> SourceEnds | None:
    """Return what was seen, unless it is of a disaster that is over: a plan that was made later has read the source.

    :param planned_at: when the plan was made by which a loss is judged, ISO 8601.
    """
    planned_ms = datetime.fromisoformat(planned_at).timestamp() * 1000
    return None if seen is None or max(seen.at_ms, seen.missed_ms or 0) < planned_ms else seen


def _seen(mirror: str, values: Mapping[str, bytes], look: Mapping[str, Any]) -> SourceEnds:
    at_ms, found = int(look["at"]), {}
    for n in range(BUCKETS):
        for topic, rows in ((ENDS.load(dict, values, mirror, n) or {}).get("ends") or {}).items():
            for partition, stable, *more in rows:
                beyond, seen_ms = more or (0, at_ms)
                found[TopicPartition(topic, int(partition))] = End(int(stable), int(stable + beyond), int(seen_ms))
    rates, peaks = (tuple(map(float, one)) for one in (look["rates"], look["peaks"]))
    return SourceEnds(at_ms=at_ms, rates=rates, peaks=peaks, missed_ms=look.get("missed"), partitions=found)


def _bucket(topic: str) -> int:
    return zlib.crc32(topic.encode()) % BUCKETS
