"""Up to where the target's records go. No socket, no clock. The rule, for one record of the target:

1. The source does not have it: it lies below the source's log start, now and in every sight that counts.
2. It was seen to be gone long before (``log_start_delay_s``), by the same topic's sight.
3. Retention explains that: the record was older than ``retention.ms`` then, or more than ``retention.bytes`` followed it.
   Both are measured on the target's own records, which nobody has deleted. Each limit is the longer one of the source's
   and of what the target's will be: a backup may keep more. And no later sight has a longer one: who shortened it by
   mistake, and set it back within the delay, loses nothing here.
4. It is not needed to tell where the copy goes on: the last batch of records stays.

So the target's log never begins above the source's. That is why nobody else has to know what was deleted here: who
compares, translates or opens a partition begins at the source's log start, or is told that the source has deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.plan.configs import Rules, overrides
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.sync.log_starts.observations import FOREVER, Retention, Seen, Sight

EVERY_MS = 60_000  # between two passes
_SIGHTS = 24  # of a delay
_KEYS = ("cleanup.policy", "retention.bytes", "retention.ms")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One partition, as both clusters show it now, in the target's offsets: the source's own, or by a map (`mapped`).

    :param start: the source's log start offset.
    :param end: the source's high watermark.
    :param there_start: the target's log start offset.
    :param there_end: the target's high watermark.
    """

    start: int
    end: int
    there_start: int
    there_end: int


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is done about one partition.

    :param goal: the target's log start offset to be; None if it stays.
    :param left: why its log start does not follow at all.
    :param kept: records that the source has lost to somebody, and that the target keeps: [from, to).
    """

    goal: int | None = None
    left: str = ""
    kept: tuple[int, int] | None = None


def step_ms(delay_ms: int) -> int:
    """Return the time between two sights."""
    return max(delay_ms // _SIGHTS, EVERY_MS)


def is_due(sights: Sequence[Sight], now_ms: int, delay_ms: int) -> bool:
    """Return whether to take another sight. ``sights``: of the topic, ascending by number."""
    # Not "older than": behind a clock that was set back, the next time would be far away.
    return not sights or not 0 <= now_ms - sights[-1].at_ms < step_ms(delay_ms)


def old_enough(sights: Sequence[Sight], now_ms: int, delay_ms: int) -> list[Sight]:
    """Return those sights that were taken at least ``delay_ms`` ago.

    Between two sights at most two steps count. So neither a clock that jumps nor a time in which nobody watched makes a
    sight old: somebody must have had the time to see it.
    """
    age_ms, after_ms, most_ms = 0, now_ms, 2 * step_ms(delay_ms)
    found = []
    for sight in reversed(sights):
        age_ms += min(max(0, after_ms - sight.at_ms), most_ms)
        after_ms = sight.at_ms
        if age_ms >= delay_ms:
            found.append(sight)
    return found[::-1]


def counting(sights: Sequence[Sight], retention: Retention, now_ms: int, delay_ms: int) -> list[Sight]:
    """Return those sights by which records may be deleted.

    :param retention: as it is now.
    """
    return [
        sight
        for sight in old_enough(sights, now_ms, delay_ms)
        if sight.retention.covers(retention)
        and all(sight.retention.covers(later.retention) for later in sights if later.number > sight.number)
    ]


def young_from_ms(retention: Retention, at_ms: int) -> int | None:
    """Return the time from which on retention had to leave records at the source; None: it had to leave everything."""
    # ListOffsets takes negative times for something else.
    return at_ms - retention.ms if retention.ms <= at_ms else None


def beyond_size(now: Standing, limit: int, size: int | None, segment_bytes: int) -> int:
    """Return the offset behind which the target still has ``limit`` bytes, by the mean size of an offset; 0: not known.

    :param size: bytes of the target's log; None: not known.
    :param segment_bytes: how much of it may lie before the log start: segments go as wholes.
    """
    held = (size or 0) - segment_bytes
    if held <= 0 or limit >= FOREVER:
        return 0
    offsets = -(-limit * (now.there_end - now.there_start) // held)
    return max(0, now.there_end - offsets)


def explained(now: Standing, first_young: int | None, beyond: int) -> Seen:
    """Return what is noted of a partition.

    :param first_young: offset of the target's first record of :func:`young_from_ms` or later; -1 if there is none; None
        if it is not known.
    :param beyond: see :func:`beyond_size`.
    """
    if now.start <= now.there_start:
        return Seen(now.start, now.start)  # the target has nothing of it
    old = now.start if first_young == -1 else first_young or 0
    return Seen(now.start, min(now.start, now.there_end, max(old, beyond)))


def decide(now: Standing, partition: int, sights: Sequence[Sight], count: Collection[Sight]) -> Decision:
    """Return what is done about a partition.

    :param sights: all of the topic's, ascending by number.
    :param count: those by which records may be deleted.
    """
    if now.end < now.there_end:
        return Decision(left=f"the source's log ends at {now.end}, before the target's ({now.there_end})")
    seen = [sight.seen[partition] for sight in sights if partition in sight.seen]
    highest = max((one.start for one in seen), default=0)
    if now.start < highest:
        return Decision(left=f"the source's log began at {highest} before, and at {now.start} now: another log?")
    goal = max((sight.seen[partition].explained for sight in count if partition in sight.seen), default=0)
    goal = min(goal, now.start, now.there_end)
    return Decision(goal=goal if goal > now.there_start else None, kept=_kept(now, partition, sights))


def _kept(now: Standing, partition: int, sights: Sequence[Sight]) -> tuple[int, int] | None:
    """Return what retention did not take, judged a step later: by clocks that differ it may seem young at first."""
    if len(sights) < 2 or not all(partition in sight.seen for sight in sights[-2:]):
        return None
    start, known = sights[-2].seen[partition].start, sights[-1].seen[partition].explained
    first = max(now.there_start, known)
    return (first, min(start, now.there_end)) if first < min(start, now.there_end) else None


def retention_of(values: Mapping[str, str | None]) -> Retention:
    """Return how long records stay by a topic's settings. What is not known, or -1, is for ever."""
    if "delete" not in (values.get("cleanup.policy") or ""):
        return Retention(FOREVER, FOREVER)
    ms, size = (int(values.get(key) or -1) for key in ("retention.ms", "retention.bytes"))
    return Retention(FOREVER if ms < 0 else ms, FOREVER if size < 0 else size)


def segment_bytes(configs: Mapping[str, ConfigEntry]) -> int:
    """Return a topic's ``segment.bytes``; :data:`FOREVER` if it is not known."""
    entry = configs.get("segment.bytes")
    return FOREVER if entry is None or entry.value is None else int(entry.value)


def target_values(
    t: TopicPlan, source: Mapping[str, ConfigEntry], own: Mapping[str, str | None] | None, rules: Rules
) -> dict[str, str | None]:
    """Return what the settings of retention will be on the target when the mirror has ended; None: not known.

    :param source: the source topic's settings now.
    :param own: values that apply on the target without an override.
    """
    final = overrides(source, False, own, rules)
    chosen = {key: (t.configs if rules.keeps(key) else final).get(key) for key in _KEYS}
    return {key: (own or {}).get(key) if value is None else value for key, value in chosen.items()}
