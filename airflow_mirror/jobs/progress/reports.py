"""The reports of running tasks, merged by partition. Nothing in here waits or does I/O.

A *run* is one task's copy (`copy.reporter.Reporter`). A partition is copied by one run after another: each turn of a tail
is a run, and so is the second attempt of a Spark task. Counters add up over a partition's runs; position and state are
those of the newest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_mirror.copy.loop.partition import COUNTERS
from airflow_mirror.copy.phase import Phase, phase_of
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.reporter import MAX_ERROR_CHARS
from airflow_mirror.copy.results import PartitionResult

_MAX_OFFSET = 2**63 - 1
_REMEMBERED_RUNS = 4096  # so that one that reconnects is recognized; a job has far fewer tasks at a time


class Key(NamedTuple):
    """A source partition and the target partition that it is copied to."""

    topic: str
    partition: int
    target_partition: int


def key_of(one: CopyRange) -> Key:
    """Return the key of a range."""
    return Key(one.source_topic, one.partition, one.target.partition)


@dataclass
class Run:
    """One task's copy, as the listener sees it.

    :param number: later runs have higher ones.
    :ivar heard_at: monotonic time of its last line.
    """

    number: int
    heard_at: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Told:
    """The newest row of a partition.

    :param before: counters of the partition's earlier runs.
    """

    run: Run
    state: str
    position: int
    end: int | None
    error: str | None
    counters: dict[str, int]
    before: dict[str, int] = field(default_factory=dict)

    @property
    def totals(self) -> dict[str, int]:
        """Counters over all runs."""
        return _sum(self.before, self.counters) if self.before else self.counters

    def is_fresh(self, now: float, patience_s: float) -> bool:
        """Say whether the row is still valid: the partition is done, or its task said something lately."""
        return self.state == Phase.DONE or now - self.run.heard_at < patience_s


class Live:
    """Merges rows of tasks; safe to use from several threads."""

    def __init__(self, ranges: Iterable[CopyRange]) -> None:
        self._lock = threading.Lock()
        self._told: dict[Key, Told] = {}
        self._runs: dict[str, Run] = {}
        self._started = 0
        self._before_turn = 0  # number of the last run before the present turn
        self.follow(ranges)

    def follow(self, ranges: Iterable[CopyRange]) -> None:
        """From now on accept only rows of these ranges, so that no sender can make this grow."""
        keys = {key_of(one) for one in ranges}
        with self._lock:
            self._keys = keys
            self._told = {key: told for key, told in self._told.items() if key in keys}

    def take(self, run_id: str, rows: Sequence[Any]) -> None:
        """Merge a task's rows; ignore malformed and outdated ones and those of other partitions."""
        with self._lock:
            run = self._run(run_id[:64])
            run.heard_at = time.monotonic()
            for value in rows:
                row = _parse(value)
                if row is not None and row[0] in self._keys:
                    self._merge(run, *row)

    def settle(self, results: Iterable[PartitionResult]) -> None:
        """Replace reported values by what the tasks returned at their end, which is exact."""
        with self._lock:
            self._started += 1
            final = Run(self._started, heard_at=time.monotonic())
            for result in results:
                key = Key(*result.key)
                if key in self._keys:
                    self._told[key] = _settled(final, self._told.get(key), result)

    def told(self) -> dict[Key, Told]:
        """Return the newest row of each reported partition."""
        with self._lock:
            return dict(self._told)

    def begin_turn(self) -> None:
        """Record that all tasks have ended, and new ones begin."""
        with self._lock:
            self._before_turn = self._started

    def has_stopped(self) -> bool:
        """Say whether a task of this turn, which may have ended since, has given up on a partition."""
        with self._lock:
            return any(
                told.state == Phase.STOPPED and told.run.number > self._before_turn for told in self._told.values()
            )

    def _merge(self, run: Run, key: Key, now: dict[str, Any]) -> None:
        known = self._told.get(key)
        if known is not None and now["end"] is None:
            now["end"] = known.end  # a new run has not fetched yet; the source's last known end is close enough
        if known is None:
            self._told[key] = Told(run=run, **now)
        elif known.run is run:
            self._told[key] = Told(run=run, **now, before=known.before)
        elif run.number > known.run.number:
            self._told[key] = Told(run=run, **now, before=known.totals)

    def _run(self, run_id: str) -> Run:
        run = self._runs.get(run_id)
        if run is None:
            if len(self._runs) >= _REMEMBERED_RUNS:
                del self._runs[next(iter(self._runs))]  # the oldest
            self._started += 1
            run = self._runs[run_id] = Run(self._started)
        return run


def _sum(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}


def _settled(run: Run, known: Told | None, result: PartitionResult) -> Told:
    counters = {name: getattr(result, name) for name in COUNTERS}
    state = phase_of(stopped=result.error is not None, done=result.done, opening=False, at_end=False)
    end = known.end if known is not None else None
    return Told(
        run=run,
        state=state,
        position=result.position,
        end=end,
        error=result.error[:MAX_ERROR_CHARS] if result.error else None,
        counters=counters,
    )


def _parse(value: Any) -> tuple[Key, dict[str, Any]] | None:
    """Return key and content of a row, or None when it is malformed: it came from a network."""
    if not isinstance(value, dict) or not isinstance(value.get("topic"), str) or value.get("state") not in tuple(Phase):
        return None
    error, end = value.get("error"), value.get("end")
    counters = {name: value.get(name, 0) for name in COUNTERS}
    numbers = [value.get("partition"), value.get("target_partition"), value.get("position"), 0 if end is None else end]
    if not all(map(_is_count, [*numbers, *counters.values()])):
        return None
    content = {
        "state": value["state"], "position": value["position"], "end": end,
        "error": None if error is None else str(error)[:MAX_ERROR_CHARS], "counters": counters,
    }  # fmt: skip
    return Key(value["topic"], value["partition"], value["target_partition"]), content


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= _MAX_OFFSET
