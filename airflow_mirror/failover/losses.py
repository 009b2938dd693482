"""How much is lost when the source is gone, from what was last seen of it. No socket, no clock.

Nobody can count records of a cluster that is gone. So it is an interval:

- *At least* the data records below the source's last stable offset at the last look that the target lacks. An offset may
  hold a marker or nothing; so this counts only where the target's log shows that the partition has neither.
- *At most*, as an estimate: everything up to the end at that look, open transactions as well, and what the source took
  since then if it took no more a second than in the busiest interval between two of the last looks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_mirror.partition import TopicPartition
from airflow_mirror.sync.ends.notes import SourceEnds

_LISTED = 50


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One partition.

    :param copied: source offset up to which the target has everything.
    :param stable: the source's last stable offset when it was last seen; ``end``: its end.
    """

    source: TopicPartition
    copied: int
    stable: int
    end: int

    @property
    def missing(self) -> int:
        """Offsets below the last stable one that the target lacks."""
        return max(0, self.stable - self.copied)

    @property
    def open(self) -> int:
        """Offsets of transactions that were open at the last look, and what was written after them."""
        return self.end - self.stable


@dataclass(frozen=True, kw_only=True)
class Losses:
    """What is lost.

    :param age_s: seconds since the last look in which the source answered; None: it was never seen.
    :param oldest_s: the same of the partition that has not answered for longest.
    :param rate: offsets a second in the busiest interval between two of the last looks.
    :param partitions: those that lack something, or where a transaction was open.
    :param unknown: partitions of which nothing was seen, or nothing is known of the copy.
    :param dense: partitions whose log shows neither markers nor holes.
    """

    age_s: float | None
    oldest_s: float
    rate: float
    partitions: tuple[Loss, ...]
    unknown: tuple[TopicPartition, ...]
    dense: frozenset[TopicPartition]

    @property
    def at_least(self) -> int:
        """Data records that are lost for certain."""
        return sum(one.missing for one in self.partitions if one.source in self.dense)

    @property
    def at_most(self) -> int | None:
        """An upper estimate in records; None: nobody looked at the source."""
        if self.age_s is None:
            return None
        return sum(max(0, one.end - one.copied) for one in self.partitions) + math.ceil(self.rate * self.oldest_s)

    @property
    def cut(self) -> list[Loss]:
        """The partitions in which transactions may be cut: some of their records are there, and the rest is not."""
        return [one for one in self.partitions if one.open]

    def lines(self) -> Iterator[str]:
        """Yield what there is to say, for people."""
        if self.age_s is None:
            yield "lost: not known. No tail has noted where the source's logs end"
        else:
            yield (
                f"lost: at least {self.at_least:,} records, at most about {self.at_most:,}: the source was last seen "
                f"{self.age_s:,.0f} s ago, and took up to {self.rate:,.0f} offsets a second"
            )
        for one in self.partitions[:_LISTED]:
            if one.missing:
                what = "records" if one.source in self.dense else "offsets, markers and holes among them"
                yield f"  {one.source}: {one.missing:,} {what}, from offset {one.copied}"
        for one in self.cut[:_LISTED]:
            yield f"  {one.source}: a transaction was open from offset {one.stable}; it may be cut"
        if self.unknown:
            yield f"  nothing is known of {len(self.unknown)} partitions, as {min(self.unknown)}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; of each list its length and its first rows."""
        rows = [[str(o.source), o.copied, o.stable, o.end, o.source in self.dense] for o in self.partitions]
        return {
            "at_least": self.at_least,
            "at_most": self.at_most,
            "age_s": self.age_s,
            "oldest_s": self.oldest_s,
            "rate": self.rate,
            "partitions": {"count": len(rows), "first": rows[:_LISTED]},
            "cut": {"count": len(self.cut), "first": [str(one.source) for one in self.cut[:_LISTED]]},
            "unknown": {"count": len(self.unknown), "first": [str(tp) for tp in sorted(self.unknown)[:_LISTED]]},
        }


def losses(
    seen: SourceEnds | None,
    copied: Mapping[TopicPartition, int],
    partitions: Collection[TopicPartition],
    dense: Collection[TopicPartition],
    now_ms: int,
    *,
    committed: bool = True,
) -> Losses:
    """Return what is lost.

    :param seen: what was last seen of the source. :param copied: as in :class:`Loss`, where it is known.
    :param partitions: all source partitions of the mirror. :param dense: as in :class:`Losses`.
    :param now_ms: until when the source may have taken records. By another clock than the looks', mostly.
    :param committed: only what is below the last stable offset is copied; otherwise up to the end.
    """
    known = {} if seen is None else seen.partitions
    every = sorted({*partitions, *known})
    found = []
    for tp in every:
        if tp in known and tp in copied:
            stable, end = known[tp].stable if committed else known[tp].end, known[tp].end
            found.append(Loss(source=tp, copied=copied[tp], stable=stable, end=end))
    oldest_ms = min((one.at_ms for one in known.values()), default=now_ms)
    return Losses(
        age_s=None if seen is None else max(0.0, (now_ms - seen.at_ms) / 1000),
        oldest_s=max(0.0, (now_ms - oldest_ms) / 1000),
        rate=0.0 if seen is None else max(seen.rates, default=0.0),
        partitions=tuple(one for one in found if one.missing or one.open),
        unknown=tuple(tp for tp in every if tp not in known or tp not in copied),
        dense=frozenset(dense),
    )
