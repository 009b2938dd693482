"""What the design promises, and whether a benchmark reached it. Values and decisions only: nothing is run or stored.

The figures are against MirrorMaker 2 in the same run, warm and with the better of its tunings, and no case may be slower
than it. Batches that pass as they are have a second one: a share of the limit that reads
(docs/adr/0010-a-limit-that-reads.md). An aim is shown and judged by nobody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.cases import CASES, TAILS, Case, Tail
from benchmarks.latency import Latency
from benchmarks.measure import Run
from benchmarks.results import CaseResult, Results, per_cpu_s, per_s, task_mb
from benchmarks.systems import MM2, OURS, READING_LIMIT


@dataclass(frozen=True)
class Goal:
    """At least so much; ``aim`` is better still."""

    least: float
    aim: float | None = None

    def __str__(self) -> str:
        return f"{self.least:g}" if self.aim is None else f"{self.least:g} (aim {self.aim:g})"


_WALL, _CPU = "records a second", "records per CPU second"
FIGURES: Mapping[str, Callable[[Run], float]] = {_WALL: per_s, _CPU: per_cpu_s}
NEVER_SLOWER = Goal(1.0)
"""Holds wherever :data:`GAINS` has nothing."""
GAINS: Mapping[str, Mapping[str, Goal]] = {
    # Case -> figure -> times MirrorMaker 2's.
    "big": {_CPU: Goal(20)},
    "small-records": {_WALL: Goal(15), _CPU: Goal(80)},
    "small-batches": {_WALL: Goal(3, 5), _CPU: Goal(10, 15)},
    "medium-batches": {_WALL: Goal(4, 6), _CPU: Goal(10, 15)},
    "single": {_WALL: Goal(4, 8), _CPU: Goal(10, 20)},
    "compacted": {_CPU: Goal(5, 8)},
    "log-append-time": {_CPU: Goal(5, 8)},
    "tls": {_CPU: Goal(15)},
}
SHARES: Mapping[str, Goal] = {"big": Goal(0.95)}
NOT_MERGED = Goal(0.8)
"""Of the limit that reads, for every case whose batches pass as they are and are too large to be merged."""
TASK_MB = 256.0
QUANTILES = ("p50", "p90", "p99")
_NOT_MEASURED = "-"


@dataclass(frozen=True)
class Verdict:
    """One target, and what came of it; ``measured`` is "-" where nothing was found out, which is a miss."""

    target: str
    wanted: str
    measured: str
    reached: bool


def judge(results: Results, complete: bool) -> list[Verdict]:
    """Return a verdict on each target, in the order of the tables.

    :param complete: everything should have been run: what is not there is a miss. Otherwise only what was run is judged,
        and nothing of a run with fewer records than usual: starting up is most of it.
    """
    if not complete and (results.settings["scale"] < 1 or results.settings["warm_s"] == 0):
        return []
    found = {case.name: case for case in results.cases}
    verdicts = [v for case in CASES for v in _gains(case, found.get(case.name), complete)]
    verdicts += [v for case in CASES for v in _share(case, found.get(case.name), complete)]
    return [*verdicts, *_memory(found, complete), *(v for tail in TAILS for v in _latency(tail, results, complete))]


def _gains(case: Case, found: CaseResult | None, complete: bool) -> Iterator[Verdict]:
    if not (complete or (found is not None and _both_ran(found.runs, MM2))):
        return
    for name, figure in FIGURES.items():
        goal = GAINS.get(case.name, {}).get(name, NEVER_SLOWER)
        ratio = found.ratio(OURS, MM2, figure) if found is not None else None
        measured = _NOT_MEASURED if ratio is None else f"{_rounded_down(ratio):.2f} x"
        reached = ratio is not None and ratio >= goal.least
        yield Verdict(f"{case.title}: {name}", f">= {goal} x", measured, reached)


def _share(case: Case, found: CaseResult | None, complete: bool) -> Iterator[Verdict]:
    if case.merged or not case.passes or not (complete or (found is not None and _both_ran(found.runs, READING_LIMIT))):
        return
    goal = SHARES.get(case.name, NOT_MERGED)
    ratio = found.ratio(OURS, READING_LIMIT, per_s) if found is not None else None
    measured = _NOT_MEASURED if ratio is None else f"{_rounded_down(ratio):.2f}"
    reached = ratio is not None and ratio >= goal.least
    yield Verdict(f"{case.title}: share of the limit that reads", f">= {goal}", measured, reached)


def _rounded_down(ratio: float) -> float:
    """4.996 must not be shown as the 5.00 that it misses. The inner round is for 1.95 * 100 = 194.99..."""
    return math.floor(round(ratio * 100, 6)) / 100


def _memory(found: Mapping[str, CaseResult], complete: bool) -> Iterator[Verdict]:
    """Judge the worst run of all, not a median: a container's limit is not kept by half of the tasks."""
    peaks = {
        name: max((task_mb(run) for run in case.runs if run.system == OURS), default=0.0)
        for name, case in found.items()
        if any(run.system == OURS for run in case.runs)
    }
    if not (complete or peaks):
        return
    wanted = {case.name for case in CASES} if complete else peaks.keys()
    known = all(peaks.get(name) for name in wanted)
    peak = max(peaks.values(), default=0.0)
    measured = f"{peak:.0f} MB" if known else _NOT_MEASURED
    yield Verdict("memory of the largest task", f"< {TASK_MB:g} MB", measured, known and peak < TASK_MB)


def _latency(tail: Tail, results: Results, complete: bool) -> Iterator[Verdict]:
    if not (complete or _both_ran([one for one in results.latencies if one.tail == tail.name], MM2)):
        return
    for name in QUANTILES:
        ours, theirs = (results.latency(tail.name, system, f"{name}_ms") for system in (OURS, MM2))
        wanted = "< MirrorMaker 2's" if theirs is None else f"< {theirs:g} ms"
        measured = _NOT_MEASURED if ours is None else f"{ours:g} ms"
        reached = ours is not None and theirs is not None and ours < theirs
        yield Verdict(f"{tail.title}: {name}", wanted, measured, reached)


def _both_ran(runs: Iterable[Run | Latency], other: str) -> bool:
    """Say whether both sides of a comparison were run, well or not: a run that failed is no excuse."""
    return {OURS, other} <= {run.system for run in runs}
