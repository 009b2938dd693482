"""The race against the source's retention: when it deletes what is not copied yet, and who is first.

Retention deletes whole segments, from the log's start. By time: the oldest one once its newest record is older than
``retention.ms``. By size: the oldest one while what stays is at least ``retention.bytes``. Brokers look every five
minutes (``log.retention.check.interval.ms``). Nobody tells a client where segments begin, so for each moment there are
two bounds: what *may* be deleted by then, as if every record were a segment, and what *surely* is, with segments as large
as they may be. Only what is surely lost blocks. Rule: Kafka's ``UnifiedLog.deleteOldSegments``. No cluster is asked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_mirror.wording import count, duration

Bound = Callable[[float], float]

HORIZON_S = 30 * 86_400.0  # what happens later is no matter of this plan
NEAR_S = 86_400.0
_CHECKED_S = 300.0
_LEVELS = {"lost": "block", "loses": "block", "may lose": "warn", "near": "warn", "late": "warn", "wins": "pass"}


@dataclass(frozen=True, kw_only=True)
class Log:
    """One partition of the source. Offsets are those of the next record; rates are in offsets a second.

    :param start: its log start. :param end: its high watermark. :param position: the next offset to copy.
    :param copied_per_s: None: nothing of it was copied while somebody looked, so nobody knows.
    :param expires: (seconds from now, first offset that ``retention.ms`` keeps then), ascending from 0 on, the last one
        with the end; empty: time deletes nothing.
    :param room: offsets that ``retention.bytes`` keeps; None: size deletes nothing.
    :param segment: offsets of a segment as large as ``segment.bytes`` allows; None: not known.
    :param offset_bytes: what an offset takes; None: not known.
    :param segment_s: ``segment.ms``: how much older its first record may be than its last one.
    """

    start: int
    end: int
    position: int
    produced_per_s: float = 0.0
    copied_per_s: float | None = None
    expires: Sequence[tuple[float, int]] = ()
    room: float | None = None
    segment: float | None = None
    offset_bytes: float | None = None
    segment_s: float = HORIZON_S

    def at_most(self) -> list[Bound]:
        """Return what bounds the log start from above, by the seconds from now: by what exists, time and size."""
        by_size: list[Bound] = [] if (room := self.room) is None else [lambda x: self._end(x) - room]
        return [lambda x: self.start, lambda x: self._expired(x, between=True), *by_size]

    def at_least(self) -> list[Bound]:
        """Return what bounds it from below."""
        found: list[Bound] = [lambda x: self.start, lambda x: self._expired(x - _CHECKED_S - self.segment_s)]
        if (segment := self.segment) is not None:
            found.append(lambda x: self._expired(x - _CHECKED_S) - segment)
            if (room := self.room) is not None:
                found.append(lambda x: self._end(x - _CHECKED_S) - room - segment)
        return found

    def moments(self) -> list[float]:
        """Return the seconds between which the bounds are straight lines."""
        grid = [x for x, _ in self.expires] or [0.0]
        late = [x + _CHECKED_S + more for x in (0.0, *grid) for more in (0.0, self.segment_s)]
        return sorted({0.0, *(x for x in (*grid, *late) if x < HORIZON_S), HORIZON_S})

    def _end(self, at_s: float) -> float:
        return self.end + self.produced_per_s * at_s

    def _expired(self, at_s: float, *, between: bool = False) -> float:
        """Return the first offset that time keeps then; ``between``: two known ones by a line, else the lower one."""
        at = bisect_right(self.expires, at_s, key=lambda one: one[0])
        if not at:
            return self.start
        x, offset = self.expires[at - 1]
        if at == len(self.expires):
            return offset + self.produced_per_s * (at_s - x)
        if not between:
            return offset
        later_x, later = self.expires[at]
        return offset + (later - offset) * (at_s - x) / (later_x - x)


@dataclass(frozen=True, kw_only=True)
class Race:
    """How it stands for one partition.

    :param lost: offsets that the source has deleted before they were copied.
    :param left_s: seconds until it may delete what is not copied yet, if nothing is copied meanwhile; None: not within
        30 days. :param behind: offsets still to copy.
    :param verdict: ``lost``: some are gone; ``loses``: some surely will be, at the rates that were seen; ``may lose``: at
        half the rate of the copy; ``near``: nobody knows that rate, and less than a day is left; ``late``: nobody knows
        it, and its topic is estimated to take longer than is left (:func:`estimated`); ``wins``.
    """

    topic: str
    partition: int
    lost: int
    left_s: float | None
    behind: int
    produced_per_s: float
    copied_per_s: float | None
    verdict: str

    @property
    def level(self) -> str:
        """The level of a finding about it."""
        return _LEVELS[self.verdict]

    def __str__(self) -> str:
        gone = f"{count(self.lost, 'offset')} gone, " if self.lost else ""
        rates = f"{self.produced_per_s:,.1f} offsets/s written, " + (
            "the copy's rate is not known" if self.copied_per_s is None else f"{self.copied_per_s:,.1f} copied"
        )
        left = "none within 30 days" if self.left_s is None else duration(self.left_s) if self.left_s else "no time"
        return f"{self.topic}-{self.partition}: {gone}{left} left, {count(self.behind, 'offset')} behind, {rates}"


def race(topic: str, partition: int, log: Log) -> Race:
    """Return how it stands for a partition."""
    lost, position, rate = max(0, log.start - log.position), max(log.start, log.position), log.copied_per_s
    left_s = _overtaken(log.at_most(), position, 0.0, log.moments())
    if lost:
        verdict = "lost"
    elif position >= log.end or left_s is None:
        verdict = "wins"
    elif rate is None:
        verdict = "near" if left_s < NEAR_S else "wins"
    elif _overtaken(log.at_least(), position, rate, log.moments()) is not None:
        verdict = "loses"
    else:
        verdict = "wins" if _overtaken(log.at_most(), position, rate / 2, log.moments()) is None else "may lose"
    return Race(
        topic=topic, partition=partition, lost=lost, left_s=left_s, behind=max(0, log.end - position),
        produced_per_s=log.produced_per_s, copied_per_s=rate, verdict=verdict,
    )  # fmt: skip


def estimated(one: Race, seconds: float | None) -> Race:
    """Return how it stands for a partition by the estimate of its topic, where nobody knows the partition's own rate.

    By that rate more is known: a copy that runs passes what would be deleted first before anything else.

    :param seconds: until the topic is level; None: nobody knows.
    """
    if one.verdict != "wins" or one.copied_per_s is not None or not one.behind:
        return one
    late = seconds is not None and one.left_s is not None and one.left_s < seconds
    return replace(one, verdict="late") if late else one


def _overtaken(bounds: Iterable[Bound], position: float, rate: float, moments: Sequence[float]) -> float | None:
    """Return when a log's start passes the copy; None: not before the last of the moments."""
    return min((at for one in bounds if (at := _first(one, position, rate, moments)) is not None), default=None)


def _first(bound: Bound, position: float, rate: float, moments: Sequence[float]) -> float | None:
    gaps = [bound(at) - position - rate * at for at in moments]
    for i, gap in enumerate(gaps):
        if gap > 0:
            # Between two moments it is a straight line, or a step at the later one.
            share = max(0.0, -gaps[i - 1] / (gap - gaps[i - 1])) if i else 0.0
            return moments[i - 1] + (moments[i] - moments[i - 1]) * share if i else 0.0
    return None


def urgent(races: Iterable[Race]) -> list[Race]:
    """Return the partition of each topic that loses first, the most urgent topic first."""
    found: dict[str, Race] = {}
    for one in sorted(races, key=lambda one: (-one.lost, HORIZON_S if one.left_s is None else one.left_s)):
        found.setdefault(one.topic, one)
    return list(found.values())
