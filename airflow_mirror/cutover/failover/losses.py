"""How much is lost when the source is gone, from what was last seen of it. No socket, no clock.

Nobody can count records of a cluster that is gone. So it is an interval:

- *At least* the data records below the source's last stable offset at the last look that the target lacks. An offset may
  hold a marker or nothing; so this counts only where the target's log shows that the partition has neither.
- *At most*, as an estimate: everything up to the end at that look, open transactions as well, and what the source took
  from then until its tail missed it (until now, if none did), if it took no more than in the busiest second and the
  busiest ten of the last five minutes, each once more for what a look has cut in two; less what the target has of that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.sync.ends.follower import looked_every_s, noted_every_s
from airflow_mirror.sync.ends.notes import SourceEnds
from airflow_mirror.wording import first_lines

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

    :param seen_ms: when the source answered last, in ms since the epoch, by its tail's clock; None: it was never seen.
    :param age_s: seconds since then; None: as before.
    :param oldest_s: the same of the partition that has not answered for longest.
    :param missed_s: seconds from the last look to the first one that the source did not answer; None: there was none.
    :param unseen_s: for so long the source may have taken records that nobody saw: until it was missed, or until now.
    :param rate: offsets a second between the busiest two notes, ``note_s`` apart.
    :param peak: the same between the busiest two looks, ``look_s`` apart.
    :param beyond: offsets behind the ends at that look that the target has.
    :param partitions: those that lack something, or where a transaction was open.
    :param unknown: partitions of which nothing was seen, or nothing is known of the copy.
    :param dense: partitions whose log shows neither markers nor holes.
    """

    seen_ms: int | None
    age_s: float | None
    oldest_s: float
    missed_s: float | None
    unseen_s: float
    rate: float
    note_s: float
    peak: float
    look_s: float
    beyond: int
    partitions: tuple[Loss, ...]
    unknown: tuple[TopicPartition, ...]
    dense: frozenset[TopicPartition]

    @property
    def at_least(self) -> int:
        """Data records that are lost for certain."""
        return sum(one.missing for one in self.partitions if one.source in self.dense)

    @property
    def at_most(self) -> int | None:
        """An upper estimate in records, if the source was gone when it was missed; None: nobody looked at it."""
        return None if self.age_s is None else self._within(self.unseen_s)

    @property
    def until_now(self) -> int | None:
        """The same if it was only cut off, and took records until now."""
        return None if self.age_s is None else self._within(self.oldest_s)

    def _within(self, unseen_s: float) -> int:
        taken = min(self.rate * (unseen_s + self.note_s), self.peak * (unseen_s + self.look_s)) if unseen_s else 0.0
        return sum(max(0, one.end - one.copied) for one in self.partitions) + max(0, math.ceil(taken) - self.beyond)

    @property
    def cut(self) -> list[Loss]:
        """The partitions in which transactions may be cut: some of their records are there, and the rest is not."""
        return [one for one in self.partitions if one.open]

    def lines(self) -> Iterator[str]:
        """Yield what there is to say of all partitions together, for people."""
        if self.age_s is None or self.seen_ms is None:
            yield "lost: not known. No tail has noted where the source's logs end"
        else:
            missed = "" if self.missed_s is None else f", did not answer {self.missed_s:,.1f} s later"
            at = datetime.fromtimestamp(self.seen_ms / 1000, UTC).isoformat(timespec="seconds")
            yield (
                f"lost: at least {self.at_least:,} records, at most about {self.at_most:,}: the source was last seen "
                f"at {at}, {self.age_s:,.0f} s ago{missed}, and took up to {self.peak:,.0f} offsets a second"
            )
            if self.missed_s is not None:
                yield f"  if it was only cut off, and went on until now, at most about {self.until_now:,}"
        if self.unknown:
            yield f"  nothing is known of {len(self.unknown):,} partitions, as {min(self.unknown)}"

    def by_partition(self, most: int) -> list[str]:
        """Return a line for each partition that lacks something, and for each with an open transaction.

        :param most: how many of each.
        """
        short = (
            f"lost in {one.source}: {one.missing:,} "
            f"{'records' if one.source in self.dense else 'offsets, markers and holes among them'}, "
            f"from offset {one.copied}"
            for one in self.partitions
            if one.missing
        )
        cut = (f"cut in {one.source}, perhaps: a transaction that was open from offset {one.stable}" for one in self.cut)
        return [*first_lines(short, most), *first_lines(cut, most)]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; of each list its length and its first rows."""
        rows = [[str(o.source), o.copied, o.stable, o.end, o.source in self.dense] for o in self.partitions]
        return {
            "at_least": self.at_least,
            "at_most": self.at_most,
            "until_now": self.until_now,
            "age_s": self.age_s,
            "oldest_s": self.oldest_s,
            "missed_s": self.missed_s,
            "rate": self.rate,
            "peak": self.peak,
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
    looked, seen = seen is not None, seen or SourceEnds(at_ms=now_ms)
    known, missed_ms = seen.partitions, seen.missed_ms
    every = sorted({*partitions, *known})
    found = []
    for tp in every:
        if tp in known and tp in copied:
            stable, end = known[tp].stable if committed else known[tp].end, known[tp].end
            found.append(Loss(source=tp, copied=copied[tp], stable=stable, end=end))
    oldest_ms = min((one.at_ms for one in known.values()), default=now_ms)
    rate = max(seen.rates, default=0.0)
    return Losses(
        seen_ms=seen.at_ms if looked else None,
        age_s=_seconds(seen.at_ms, now_ms) if looked else None,
        oldest_s=_seconds(oldest_ms, now_ms),
        missed_s=None if missed_ms is None else _seconds(seen.at_ms, missed_ms),
        # From the partition that was seen longest ago: it may have taken records the longest.
        unseen_s=_seconds(oldest_ms, now_ms if missed_ms is None else missed_ms),
        rate=rate,
        note_s=noted_every_s(len(known)) + 1,
        peak=max(seen.peaks, default=rate),
        look_s=looked_every_s(len(known)),
        beyond=sum(max(0, one.copied - one.end) for one in found),
        partitions=tuple(one for one in found if one.missing or one.open),
        unknown=tuple(tp for tp in every if tp not in known or tp not in copied),
        dense=frozenset(dense),
    )


def _seconds(since_ms: int, until_ms: int) -> float:
    return max(0.0, (until_ms - since_ms) / 1000)
