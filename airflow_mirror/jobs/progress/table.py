"""The table of a job's partitions: where each of them is, as its task reports, the clusters show or its result says.

A *run* is one task's copy (`copy.reporter.Reporter`). A partition is copied by one run after another: each turn of a tail
is a run, and so is the second attempt of a Spark task. Counters add up over a partition's runs; position and state are
those of the newest.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_mirror.copy.delays import Delays
from airflow_mirror.copy.loop.counters import COUNTERS
from airflow_mirror.copy.phase import Phase, phase_of
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.reporter import MAX_ERROR_CHARS
from airflow_mirror.copy.results import PartitionResult

PATIENCE_S = 5.0  # how long a row is valid after its task's last line: a tail's next turn begins sooner
_LASTS_S = 5.0
_MAX_OFFSET = 2**63 - 1
_SIDES = ("source", "target")
_REMEMBERED_RUNS = 4096  # so that one that reconnects is recognized; a job has far fewer tasks at a time

Key = tuple[str, int, int]  # source topic, source partition, target partition


@dataclass(eq=False, kw_only=True)
class Run:
    """One task's copy, as the driver sees it.

    :param number: later runs have higher ones.
    :param heard_at: monotonic time of its last line, and ``heard_before`` of the one before that.
    :param held: fetched bytes that it held then. :param throttled: ms for which brokers of a side throttled it.
    """

    number: float = 0
    heard_at: float = -math.inf
    heard_before: float = -math.inf
    held: int = 0
    throttled: Mapping[str, int] = field(default_factory=dict)


_NOBODY = Run()
_RESULT = Run(number=math.inf, heard_at=math.inf)  # what nothing outdates


@dataclass(frozen=True, kw_only=True)
class Row:
    """One partition at one moment. Position and end are source offsets; None means unknown.

    :param state: a :class:`~airflow_mirror.copy.phase.Phase`.
    :param run: who reported last.
    :param before: counters of the runs before that.
    :param counters: of all runs; empty: no task has reported.
    :param delays: sums of all runs, extremes of the newest one; ``delays_before`` are of the runs before that.
    :param measured_at: when they last changed. This time and the next two are monotonic.
    :param timestamp_ms: of the last record on the target; 0: unknown.
    :param level_at: until when nothing was left to copy, before there was a lag again.
    :param seen_at: when this row came to be.
    :param held: offsets from ``end`` on that wait for an open transaction.
    :param held_at: since when the same one is known.
    :param bytes_per_s: this and what follows is added by `figures`.
    :param advances_per_s: by how many offsets the position moves.
    :param shrinks_per_s: by how many offsets the lag shrinks; negative while it grows.
    :param eta_s: seconds until the lag is gone at the present rate; None when it does not shrink or is unknown.
    """

    range: CopyRange
    state: str = Phase.OPENING
    position: int | None = None
    end: int | None
    error: str | None = None
    run: Run = _NOBODY
    before: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    delays: Delays = Delays()
    delays_before: Delays = Delays()
    measured_at: float = -math.inf
    timestamp_ms: int = 0
    level_at: float = -math.inf
    seen_at: float = -math.inf
    held: int = 0
    held_at: float = -math.inf
    bytes_per_s: float | None = None
    records_per_s: float | None = None
    advances_per_s: float = 0.0
    shrinks_per_s: float = 0.0
    eta_s: int | None = None

    @property
    def key(self) -> Key:
        """What the row is about."""
        return self.range.source_topic, self.range.partition, self.range.target.partition

    @property
    def name(self) -> str:
        """The partition's name for people, with the target partition when that is another one."""
        there = self.range.target.partition
        return f"{self.range.source}" if there == self.range.partition else f"{self.range.source} to {there}"

    @property
    def lag(self) -> int | None:
        """Offsets still to copy."""
        return None if self.end is None else max(0, self.end - max(self.position or 0, self.range.start_offset))

    @property
    def is_level(self) -> bool:
        """Whether the target has all that the source has, as far as is known."""
        return self.lag == 0 and self.state in (Phase.DONE, Phase.FOLLOWING)

    def waits(self, now: float) -> bool:
        """Return whether its end waits for a transaction that lasts: exactly-once writers always have a short one."""
        return self.held > 0 and now - self.held_at >= _LASTS_S

    def is_told(self, now: float) -> bool:
        """Say whether nobody else need be asked where the partition is: it is done, or its task spoke lately."""
        return self.state == Phase.DONE or (self.end is not None and now - self.run.heard_at < PATIENCE_S)

    def to_dict(self) -> dict[str, Any]:
        """Return the row of status.json."""
        topic, partition, target_partition = self.key
        return {
            "topic": topic, "partition": partition, "target_partition": target_partition, "state": self.state,
            "position": self.position, "end": self.end, "lag": self.lag, "held": self.held, "eta_s": self.eta_s,
            "bytes_per_s": None if self.bytes_per_s is None else round(self.bytes_per_s),
            "records_per_s": None if self.records_per_s is None else round(self.records_per_s),
            **(self.counters or dict.fromkeys(COUNTERS)), "error": self.error,
        }  # fmt: skip


class Table:
    """A row for each range; safe to use from several threads. Nothing in here waits or does I/O."""

    def __init__(self, ranges: Iterable[CopyRange]) -> None:
        self._lock = threading.Lock()
        self._rows: dict[Key, Row] = {}
        self._runs: dict[str, Run] = {}
        self._started = 0  # number of the last run
        self._before_turn = 0  # number of the last run before the present turn
        self.follow(ranges)

    def follow(self, ranges: Iterable[CopyRange]) -> None:
        """Have rows of these ranges from now on, and of no others, so that no sender can make the table grow."""
        new = [Row(range=one, end=one.end_offset) for one in ranges]
        with self._lock:
            self._rows = {row.key: self._rows.get(row.key, row) for row in new}

    def rows(self) -> list[Row]:
        """Return the rows as they are now, in the order of the ranges."""
        with self._lock:
            return list(self._rows.values())

    @property
    def held(self) -> int:
        """Fetched bytes in the memory of the task that holds most."""
        return max((run.held for run in self._heard()), default=0)

    @property
    def throttled(self) -> dict[str, int]:
        """The longest time in ms for which brokers of a side throttle a task; sides without a quota are left out."""
        longest = {side: max((run.throttled.get(side, 0) for run in self._heard()), default=0) for side in _SIDES}
        return {side: ms for side, ms in longest.items() if ms}

    def _heard(self) -> list[Run]:
        heard_since = time.monotonic() - PATIENCE_S
        with self._lock:
            return [run for run in self._runs.values() if run.heard_at > heard_since]

    def take(self, run_id: str, rows: Iterable[Any], held: Any = 0, throttled: Any = None) -> None:
        """Merge what a task reports; skip malformed and outdated rows and those of other partitions.

        :raises ValueError: ``held`` is no number of bytes, or ``throttled`` not ms by side.
        """
        with self._lock:
            run = self._heard_of(run_id[:64])
            run.held = _count(held)
            run.throttled = {side: _count(ms) for side in _SIDES if (ms := (throttled or {}).get(side))}
            for row in rows:
                try:
                    self._merge(run, row)
                except (LookupError, TypeError, ValueError):  # it came from a network
                    pass

    def see(self, key: Key, position: int, end: int, held: int = 0) -> None:
        """Record where the clusters show a partition; where its task does not, and that has not given up on it."""
        with self._lock:
            row = self._rows.get(key)
            if row is None or row.is_told(time.monotonic()):
                return
            arrived = position >= end
            state = phase_of(
                stopped=row.state == Phase.STOPPED, done=arrived and row.range.end_offset is not None, at_end=arrived,
                opening=not arrived and position <= row.range.start_offset,
            )  # fmt: skip
            self._rows[key] = replace(
                row, state=state, position=position, end=end, seen_at=time.monotonic(),
                level_at=_level_until(row, row.run.heard_at), **_held(row, end, held),
            )  # fmt: skip

    def settle(self, results: Iterable[PartitionResult]) -> None:
        """Replace what tasks reported by what they returned at their end, which is exact."""
        with self._lock:
            for result in results:
                if result.key in self._rows:
                    state = phase_of(stopped=result.error is not None, done=result.done, opening=False, at_end=False)
                    self._rows[result.key] = replace(self._rows[result.key], counters={})
                    self._merge(_RESULT, {**result.to_dict(), "state": state, "end": None})

    def begin_turn(self) -> None:
        """Record that all tasks have ended, and new ones begin."""
        with self._lock:
            self._before_turn = self._started

    def has_stopped(self) -> bool:
        """Say whether a task of this turn, which may have ended since, has given up on a partition."""
        return any(row.state == Phase.STOPPED and row.run.number > self._before_turn for row in self.rows())

    def _heard_of(self, run_id: str) -> Run:
        run = self._runs.pop(run_id, None)
        if run is None:
            self._started += 1
            run = Run(number=self._started)
        run.heard_before, run.heard_at = run.heard_at, time.monotonic()
        self._runs[run_id] = run  # the last one
        if len(self._runs) > _REMEMBERED_RUNS:
            del self._runs[next(iter(self._runs))]  # was silent for longest
        return run

    def _merge(self, run: Run, said: Any) -> None:
        """Put a row of a run in the place of the partition's last one.

        :raises LookupError: or TypeError, ValueError, when it is malformed or not of this table.
        """
        key = said["topic"], said["partition"], said["target_partition"]
        row = self._rows[key]
        if run.number < row.run.number:
            return
        before = row.before if run is row.run else row.counters
        delays_before = row.delays_before if run is row.run else row.delays
        delays = row.delays if said.get("delays") is None else _add(delays_before, said["delays"])
        told_until = run.heard_before if run is row.run else row.run.heard_at
        now = time.monotonic()
        # A new run has not fetched yet; the source's last known end is close enough.
        end = row.end if said["end"] is None else _count(said["end"])
        self._rows[key] = replace(
            row, run=run, before=before, delays=delays, delays_before=delays_before,
            seen_at=now, level_at=_level_until(row, told_until),
            measured_at=now if delays.batches > row.delays.batches else row.measured_at,
            timestamp_ms=_count(said.get("timestamp_ms", 0)) or row.timestamp_ms,
            state=Phase(said["state"]), position=_count(said["position"]),
            end=end, **({} if said["end"] is None else _held(row, end, _count(said.get("held", 0)))),
            error=None if said["error"] is None else str(said["error"])[:MAX_ERROR_CHARS],
            counters={name: before.get(name, 0) + _count(said[name]) for name in COUNTERS},
        )  # fmt: skip


def _level_until(old: Row, told_until: float) -> float:
    """Return until when nothing was left to copy, now that ``old`` is replaced.

    :param told_until: when its task last spoke before this; tasks don't repeat rows that did not change.
    """
    return max(old.seen_at, told_until) if old.is_level else old.level_at


def _held(old: Row, end: int | None, held: int) -> dict[str, Any]:
    """Return how many offsets wait for an open transaction, and since when this one is known to hold them."""
    return {"held": held, "held_at": old.held_at if old.held and old.end == end else time.monotonic()}


def _add(before: Delays, told: Any) -> Delays:
    """Return the delays of all runs: sums add up, extremes are the newest run's, if it has measured any.

    :raises ValueError: or TypeError, when ``told`` is malformed.
    """
    new = Delays._make(map(_count, told))
    if not new.batches:
        return before
    return new._replace(
        batches=before.batches + new.batches,
        age_sum_ms=before.age_sum_ms + new.age_sum_ms,
        latency_sum_ms=before.latency_sum_ms + new.latency_sum_ms,
    )


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_OFFSET:
        raise ValueError(f"{value!r} is no offset and no count")
    return value
