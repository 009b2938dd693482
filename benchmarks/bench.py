"""The order of a benchmark: world by world, case by case, round by round, all systems in turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_mirror.errors import MirrorError
from benchmarks import results as values
from benchmarks.cases import CASES, TAILS, Case, Tail
from benchmarks.filling import fill
from benchmarks.latency import SOURCE_ALONE, Latency, Times, measure_latency
from benchmarks.measure import Run, measure
from benchmarks.mirrormaker import BULK, TAIL
from benchmarks.progress import Progress
from benchmarks.results import CaseResult, Results
from benchmarks.systems import CANDIDATES, LIMIT, LIMITS, MM2, OURS, PLAIN, READING_LIMIT, TITLES, Task, is_mirrormaker
from benchmarks.tuning import Tunings
from benchmarks.window import WHOLE, Window
from benchmarks.worlds import World, world

SYSTEMS = (MM2, OURS, LIMIT, READING_LIMIT)
ON_REQUEST = (PLAIN, *CANDIDATES)  # the results in the docs don't wait for them
_WORLDS = {"plain": "two clusters", "tls": "two clusters with TLS", "three": "a target of three nodes"}
_LIMIT_S = 20.0  # a limit has one pace from the start
_FREE_MB = 14_000  # the largest case, with what MirrorMaker 2 does not compress


@dataclass(frozen=True)
class Wanted:
    """What to run.

    :param cases: names, those of tails among them.
    :param rounds: of every case.
    :param scale: of the number of records.
    :param warm_s: so many seconds of a run of MirrorMaker 2 don't count, and of everybody's tail.
    :param length_s: then so many are measured.
    """

    cases: Sequence[str]
    systems: Sequence[str] = SYSTEMS
    rounds: int = 3
    scale: float = 1.0
    warm_s: float = 30.0
    length_s: float = 60.0

    def turns(self, case: Case) -> list[tuple[int, str]]:
        """Return (round, system) of a case, in order."""
        candidates = [f"{MM2}-{name}" for name in BULK]
        several = [s for s in (MM2, *candidates, OURS, PLAIN, *(LIMITS if case.passes else ())) if s in self.systems]
        return [(number, system) for number in range(1, self.rounds + 1) for system in several]

    def tail_turns(self) -> list[tuple[int, str]]:
        """Return (round, system) of a tail, in order."""
        several = [s for s in (MM2, *(f"{MM2}-{name}" for name in TAIL), OURS) if s in self.systems]
        return [(number, system) for number in range(1, self.rounds + 1) for system in (SOURCE_ALONE, *several)]

    def window(self, system: str) -> Window:
        """Return which part of a bulk copy counts."""
        if is_mirrormaker(system):
            return Window(self.warm_s, self.length_s)
        return Window(0.0, _LIMIT_S) if system in LIMITS else WHOLE

    def steps(self) -> int:
        """Return how many steps there will be: a start a world, a filling a case, and the runs."""
        chosen = [case for case in CASES if case.name in self.cases]
        tails = [tail for tail in TAILS if tail.name in self.cases]
        worlds = {case.world for case in chosen} | ({"plain"} if tails else set())
        runs = sum(1 + len(self.turns(case)) for case in chosen)
        return len(worlds) + runs + len(tails) * len(self.tail_turns())


class Bench:
    """One benchmark under way; ``results`` fills up.

    :param work: a directory for logs and settings of the runs.
    """

    def __init__(self, wanted: Wanted, work: Path) -> None:
        self._wanted, self._work = wanted, work
        self._progress = Progress(wanted.steps())
        self._numbers = itertools.count(1)
        stored = Tunings.load()
        self._tunings = {case.name: stored.best(case.tuned_as or case.name, False) for case in CASES}
        self._tunings |= {tail.name: stored.best(tail.tuned_as or tail.name, True) for tail in TAILS}
        settings = {
            "rounds": wanted.rounds, "scale": wanted.scale, "warm_s": wanted.warm_s, "length_s": wanted.length_s,
            "tunings": self._tunings,
        }  # fmt: skip
        self.results = Results(values.today(), values.machine(), values.software(), settings)

    def run(self) -> Results:
        """Run everything that is wanted."""
        for name in _WORLDS:
            cases = [case for case in CASES if case.name in self._wanted.cases and case.world == name]
            tails = [tail for tail in TAILS if tail.name in self._wanted.cases and name == "plain"]
            if cases or tails:
                with self._world(name) as clusters:
                    for case in cases:
                        self._case(case, clusters)
                    for tail in tails:
                        self._tail(tail, clusters)
        return self.results

    @contextmanager
    def _world(self, name: str) -> Iterator[World]:
        self._progress.begin(_WORLDS[name])
        with world(name, self._work, max(256, int(_FREE_MB * self._wanted.scale))) as clusters:
            self._progress.end("ready")
            yield clusters

    def _case(self, case: Case, clusters: World) -> None:
        self._progress.begin(f"{case.name}: fill")
        try:
            records, size = fill(case, clusters.source, self._wanted.scale, self._work, self._progress.note)
        except (RuntimeError, MirrorError) as e:
            self._progress.end(f"FAILED: {e}")
            cause = "the source was not filled"
            failed = [Run(system, number, failed=cause) for number, system in self._wanted.turns(case)]
            self.results.cases.append(CaseResult(case.name, case.title, 0, case.partitions, 0.0, failed))
            return
        self._progress.end(f"{records:,} records, {size / 1e6:,.0f} MB")
        found = CaseResult(case.name, case.title, records, case.partitions, round(size / 1e6, 1), [])
        self.results.cases.append(found)
        for number, system in self._wanted.turns(case):
            found.runs.append(self._one(case, clusters, system, number, records))
        self._clear(clusters)

    def _one(self, case: Case, clusters: World, system: str, number: int, records: int) -> Run:
        self._progress.begin(f"{case.name}: round {number}, {TITLES[system]}")
        task, window = self._task(case, clusters, system), self._wanted.window(system)
        try:
            run = measure(system, task, records, number, window, self._progress.note, self._progress.say)
        except MirrorError as e:  # of watching: the clusters are in a bad way
            run = Run(system, number, failed=str(e))
        finally:
            self._clear(clusters, (case.topic,))
        if run.failed:
            self._progress.end(f"FAILED: {run.failed}")
        else:
            measured = f" in {run.seconds:.0f} s after {run.warm_s:.0f} s" if is_mirrormaker(system) else ""
            self._progress.end(f"{run.per_s:,.0f} records/s, {run.per_cpu_s:,.0f} per CPU second{measured}")
        return run

    def _tail(self, tail: Tail, clusters: World) -> None:
        wanted = self._wanted
        for number, system in wanted.tail_turns():
            self._progress.begin(f"{tail.name}: round {number}, {TITLES.get(system, 'the source alone')}")
            task = self._task(tail.probes, clusters, system, tail)
            share = min(1.0, wanted.scale * 5)
            times = Times(wanted.warm_s * share, wanted.length_s * share)
            if system == SOURCE_ALONE:  # no JVM to warm, no turn to change
                times = Times(times.warm_s / 10, times.length_s / 6)
            try:
                found = measure_latency(system, task, number, times, self._progress.note, self._progress.say)
            except MirrorError as e:
                found = Latency(tail.name, system, number, failed=str(e))
            finally:
                self._clear(clusters)
            self.results.latencies.append(found)
            quantiles = f"{found.p50_ms:.1f}, {found.p90_ms:.1f}, {found.p99_ms:.1f}, {found.p999_ms:.1f}"
            self._progress.end(f"FAILED: {found.failed}" if found.failed else f"p50, p90, p99, p99.9: {quantiles} ms")

    def _clear(self, clusters: World, keep: tuple[str, ...] = ()) -> None:
        """Delete what a run left. A topic that can't be deleted is in nobody's way: each run has names of its own."""
        try:
            clusters.target.clear()
            clusters.source.clear(keep)
        except MirrorError as e:
            self._progress.say(f"not deleted: {e}")

    def _task(self, case: Case, clusters: World, system: str, tail: Tail | None = None) -> Task:
        alias = f"run{next(self._numbers)}"
        tuning = system.removeprefix(f"{MM2}-") if system in CANDIDATES else self._tunings[case.name]
        return Task(case, clusters, self._wanted.scale, alias, self._work / f"{alias}-{system}", tail, tuning)
