"""The target's lag, measured on both clusters and judged over several samples. No Airflow, no Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import InputError, NeedsHuman, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.held import Held
from airflow_mirror.kafka.model import same_topic
from airflow_mirror.plan import Plan
from airflow_mirror.wording import some

_MOST_ROWS = 120


@dataclass(frozen=True)
class PartitionLag:
    """One partition at one moment.

    :param position: the next source offset to copy.
    :param end: the source offset up to which records are copied.
    :param log_end: the high watermark, which is above ``end`` while a transaction is open there.
    """

    source: TopicPartition
    position: int
    end: int
    log_end: int = 0

    @property
    def records(self) -> int:
        """Number of offsets still to copy; an upper bound for the number of records."""
        return max(0, self.end - self.position)

    @property
    def is_ahead(self) -> bool:
        """Whether the target has more than the source, which was read behind it: no copy of it does that."""
        return self.position > max(self.end, self.log_end)

    @property
    def held(self) -> Held | None:
        """What waits for an open transaction; None: nothing."""
        return Held(source=self.source, since=self.end, end=self.log_end) if self.end < self.log_end else None


def measure(
    plan: Plan,
    source: ClusterAdmin,
    target: ClusterAdmin,
    mapped: Callable[[], Mapping[TopicPartition, int]] | None = None,
) -> list[PartitionLag]:
    """Return the lag of each current partition of the plan's topics.

    The target is read first; read second, it could seem ahead of the source. A partition that the target does not have
    yet is at its start. Topics that the source has no more are left out: :func:`require_planned_topics`.

    :param mapped: returns the positions of partitions with mapped offsets, whose target end says nothing about the
        source: :meth:`airflow_mirror.sync.maps.OffsetMaps.positions`.
    :raises InputError: a topic is mapped and ``mapped`` was not given.
    """
    by_map = {t.source_topic for t in plan.topics if t.mode != "identical"}
    if by_map and mapped is None:
        raise InputError(
            "lag of topics with mapped offsets needs their offset maps",
            ", ".join(sorted(by_map)[:5]),
            "Pass mapped: OffsetMaps.positions.",
        )
    here = source.topics([t.source_topic for t in plan.topics])
    there = target.topics([t.target_topic for t in plan.topics])
    pairs = {
        TopicPartition(t.source_topic, p): (TopicPartition(t.target_topic, p), t.starts.get(p, 0))
        for t in plan.topics
        if t.source_topic in here
        for p in range(here[t.source_topic].partitions)
    }
    there_by_map = {t.target_topic for t in plan.topics if t.source_topic in by_map}
    exist = [tp for tp, _ in pairs.values() if tp.topic in there and tp.partition < there[tp.topic].partitions]
    positions = target.offsets([tp for tp in exist if tp.topic not in there_by_map], "latest")
    if mapped is not None:
        positions |= {pairs[tp][0]: position for tp, position in mapped().items() if tp in pairs}
    committed = plan.mirror.isolation == "read_committed"
    logs = source.offsets(pairs, "latest")
    ends = source.offsets(pairs, "latest_committed") if committed else logs
    return [
        PartitionLag(tp, max(start, positions.get(on_target, 0)), ends[tp], logs[tp])
        for tp, (on_target, start) in sorted(pairs.items())
    ]


def require_whole(plan: Plan, lags: Sequence[PartitionLag]) -> None:
    """Return if a sample has each of the plan's topics: one that the asked broker did not list has no lag in it.

    Whoever asks again for the topics may meet another broker, which lists all.

    :raises TryAgain: names the topics.
    """
    seen = {one.source.topic for one in lags}
    if missing := sorted({t.source_topic for t in plan.topics} - seen):
        raise TryAgain(
            f"mirror {plan.mirror.name!r}: a broker of the source does not list {some(missing, 3)}",
            "one that has just started may not know them yet; or they were deleted",
        )


DELETED, AGAIN = "deleted", "created again"


def gone(plan: Plan, source: ClusterAdmin) -> dict[str, str]:
    """Return what became of the plan's topics that the source has not: :data:`DELETED`, or another one has its name.

    They have no lag: one of which nothing is left, and one that is behind what was copied of the old one.
    """
    there = source.topics([t.source_topic for t in plan.topics])
    ids = {name: info.topic_id for name, info in there.items()}
    return {
        t.source_topic: AGAIN if t.source_topic in ids else DELETED
        for t in plan.topics
        if t.source_topic not in ids or not same_topic(t.source_topic_id, ids[t.source_topic])
    }


def require_planned_topics(plan: Plan, source: ClusterAdmin) -> None:
    """Return if the source still has each of the plan's topics.

    :raises TryAgain: names those that it has not. A broker that has just started may not know them yet.
    """
    if found := gone(plan, source):
        remedy = "Plan again: the next plan leaves them out."
        lines = [f"{name} was {became}" for name, became in found.items()]
        raise TryAgain(f"mirror {plan.mirror.name!r}: the source has other topics than its plan", some(lines), remedy)


@dataclass(kw_only=True)
class CatchUp:
    """Judges samples of the lag: caught up after ``samples`` good ones in a row.

    :param max_lag_records: largest lag per partition that counts as caught up.
    :param stuck_after_s: a partition with a larger lag is stuck if it does not move for this long.
    :ivar held: what waits for the same open transactions as at the look before: who has caught up lacks it all the same.
    """

    max_lag_records: int
    samples: int
    stuck_after_s: float
    held: Sequence[Held] = ()
    _good: int = 0
    _before: list[PartitionLag] = field(default_factory=list)
    _moved: dict[TopicPartition, tuple[int, float]] = field(default_factory=dict)

    def look(self, lags: list[PartitionLag], now_s: float) -> bool:
        """Add one sample; return whether the mirror has caught up.

        :param now_s: seconds of a monotonic clock.
        :raises NeedsHuman: names every partition that does not move, or of which the target has more than the source.
        """
        behind = [lag for lag in lags if lag.records > self.max_lag_records]
        self._good = 0 if behind else self._good + 1
        self.held = standing(self._before or lags, lags)
        # Twice in a row: a leader that has just taken over may not know yet where its log ends.
        before = {lag.source for lag in self._before if lag.is_ahead}
        if ahead := [lag for lag in lags if lag.is_ahead and lag.source in before]:
            raise NeedsHuman(
                f"the target has more than the source of {len(ahead)} partition(s)",
                some((f"{lag.source}: at {lag.position:,}, the source ends at {lag.end:,}" for lag in ahead), 10),
                "Somebody else has written to the target, or the source has lost records. 'airflow-mirror verify' says "
                "where they differ.",
            )
        self._before = lags
        stuck = []
        for lag in lags:
            position, since_s = self._moved.get(lag.source, (-1, now_s))
            # An idle partition may not move for days without being stuck; the clock runs only while it has lag.
            if position != lag.position or lag.records <= self.max_lag_records:
                self._moved[lag.source] = (lag.position, now_s)
            elif now_s - since_s >= self.stuck_after_s:
                stuck.append(lag)
        if stuck:
            raise NeedsHuman(
                f"{len(stuck)} partition(s) did not move for {self.stuck_after_s:.0f} s",
                some((f"{lag.source}: at {lag.position:,} of {lag.end:,}" for lag in stuck), 10),
                "See the tail's log. Likely causes: an open transaction on the source, a partition without a leader, "
                "missing rights on a topic.",
            )
        return self._good >= self.samples

    def interrupted(self) -> None:
        """Begin to count again: a look failed, so the next good one is not in a row with those before."""
        self._good = 0


class Course:
    """Samples over time, of which few stay however long it takes: where there are many, every other one goes.

    :ivar rows: of ``at, lag, copied``: seconds since the epoch, offsets that the target lacks, and the sum of those that
        it has reached. The last one is the newest sample.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._every_s = 0.0

    def add(self, at: float, lags: Sequence[PartitionLag]) -> None:
        """Add a sample. :param at: seconds since the epoch."""
        lag, copied = sum(one.records for one in lags), sum(one.position for one in lags)
        row = {"at": round(at, 1), "lag": lag, "copied": copied}
        if self._every_s and at - self.rows[-2]["at"] < self._every_s:
            self.rows[-1] = row
            return
        self.rows.append(row)
        if len(self.rows) >= _MOST_ROWS:
            self._every_s = 2 * (at - self.rows[0]["at"]) / len(self.rows)
            self.rows = [*self.rows[:-1:2], row]


def standing(before: Sequence[PartitionLag], lags: Sequence[PartitionLag]) -> list[Held]:
    """Return what waits for the same open transactions as before: others come and go, as exactly-once writers write."""
    since = {one.source: one.end for one in before if one.held}
    return [one.held for one in lags if one.held and since.get(one.source) == one.end]


def summary(lags: list[PartitionLag]) -> dict[str, Any]:
    """Return totals and the worst partition: small enough for XCom and for one log line."""
    worst = max(lags, key=lambda lag: lag.records, default=None)
    return {
        "partitions": len(lags),
        "lag_records": sum(lag.records for lag in lags),
        "max_lag_records": worst.records if worst else 0,
        "worst": str(worst.source) if worst and worst.records else None,
    }
