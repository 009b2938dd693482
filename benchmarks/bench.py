"""The order of a benchmark: world by world, case by case, round by round, all systems in turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_mirror.errors import MirrorError
from benchmarks import results as values
from benchmarks.cases import CASES, LATENCY, Case
from benchmarks.filling import fill
from benchmarks.latency import CASE, SOURCE_ALONE, Latency, measure_latency
from benchmarks.measure import Run, measure
from benchmarks.progress import Progress
from benchmarks.results import CaseResult, Results
from benchmarks.systems import LIMIT, LIMITS, MM2_DEFAULT, MM2_TUNED, OURS, PLAIN, READING_LIMIT, TITLES, Task
from benchmarks.worlds import World, world

SYSTEMS = (MM2_DEFAULT, MM2_TUNED, OURS, LIMIT, READING_LIMIT)
ON_REQUEST = (PLAIN,)  # the results in the docs don't wait for it
_WORLDS = {"plain": "two clusters", "tls": "two clusters with TLS", "three": "a target of three nodes"}


@dataclass(frozen=True)
class Wanted:
    """What to run.

    :param cases: names, ``latency`` among them.
    :param rounds: of every case. MirrorMaker 2 with defaults runs in the first only.
    :param scale: of the number of records and of the latency's length.
    :param box_s: MirrorMaker 2 copies for so many seconds at most.
    :param latency_s: seconds of measuring in each round, without a change of the tail's leases (every ten minutes).
    """

    cases: Sequence[str]
    systems: Sequence[str] = SYSTEMS
    rounds: int = 3
    scale: float = 1.0
    box_s: float = 90.0  # 15 s were its warm-up: 131,000 records a second at 100 B, 328,000 in a run to the end
    latency_s: float = 30.0

    def turns(self, case: Case) -> list[tuple[int, str]]:
        """Return (round, system) of a case, in order."""
        found = []
        for number in range(1, self.rounds + 1):
            first = [s for s in (*SYSTEMS, *ON_REQUEST) if s in self.systems and (s != MM2_DEFAULT or number == 1)]
            found += [(number, s) for s in first if s not in LIMITS or case.passes]
        return found

    def latency_turns(self) -> list[tuple[int, str]]:
        """Return (round, system) of the latency, in order."""
        found = []
        for number in range(1, self.rounds + 1):
            again = [s for s in (MM2_DEFAULT, MM2_TUNED, OURS) if s in self.systems and (s != MM2_DEFAULT or number == 1)]
            found += [(number, s) for s in (SOURCE_ALONE, *again)]
        return found

    def steps(self) -> int:
        """Return how many steps there will be: a start a world, a filling a case, and the runs."""
        chosen = [case for case in CASES if case.name in self.cases]
        worlds = {case.world for case in chosen} | ({"plain"} if LATENCY in self.cases else set())
        runs = sum(1 + len(self.turns(case)) for case in chosen)
        return len(worlds) + runs + (len(self.latency_turns()) if LATENCY in self.cases else 0)


class Bench:
    """One benchmark under way; ``results`` fills up.

    :param work: a directory for logs and settings of the runs.
    """

    def __init__(self, wanted: Wanted, work: Path) -> None:
        self._wanted, self._work = wanted, work
        self._progress = Progress(wanted.steps())
        self._numbers = itertools.count(1)
        settings = {
            "rounds": wanted.rounds, "scale": wanted.scale, "box_s": wanted.box_s, "latency_s": wanted.latency_s,
        }  # fmt: skip
        self.results = Results(values.today(), values.machine(), values.software(), settings)

    def run(self) -> Results:
        """Run everything that is wanted."""
        for name in _WORLDS:
            cases = [case for case in CASES if case.name in self._wanted.cases and case.world == name]
            follows = name == "plain" and LATENCY in self._wanted.cases
            if cases or follows:
                with self._world(name) as clusters:
                    for case in cases:
                        self._case(case, clusters)
                    if follows:
                        self._latency(clusters)
        return self.results

    @contextmanager
    def _world(self, name: str) -> Iterator[World]:
        self._progress.begin(_WORLDS[name])
        with world(name, self._work, max(256, int(9000 * self._wanted.scale))) as clusters:
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
        task = self._task(case, clusters, system)
        try:
            run = measure(system, task, records, number, self._wanted.box_s, self._progress.note, self._progress.say)
        except MirrorError as e:  # of watching: the clusters are in a bad way
            run = Run(system, number, failed=str(e))
        finally:
            self._clear(clusters, (case.topic,))
        if run.failed:
            self._progress.end(f"FAILED: {run.failed}")
        else:
            cut = f", cut after {run.seconds:.0f} s" if run.cut else ""
            self._progress.end(f"{run.per_s:,.0f} records/s, {run.per_cpu_s:,.0f} per CPU second{cut}")
        return run

    def _latency(self, clusters: World) -> None:
        warm_up_s, length_s = 10 * min(1.0, self._wanted.scale * 5), self._wanted.latency_s * self._wanted.scale
        for number, system in self._wanted.latency_turns():
            self._progress.begin(f"latency: round {number}, {TITLES.get(system, 'the source alone')}")
            task = self._task(CASE, clusters, system)
            length = length_s / 3 if system == SOURCE_ALONE else length_s
            try:
                found = measure_latency(system, task, number, warm_up_s, length, self._progress.note, self._progress.say)
            except MirrorError as e:
                found = Latency(system, number, failed=str(e))
            finally:
                self._clear(clusters)
            self.results.latencies.append(found)
            self._progress.end(
                f"FAILED: {found.failed}" if found.failed
                else f"p50 {found.p50_ms:.1f}, p90 {found.p90_ms:.1f}, p99 {found.p99_ms:.1f} ms"
            )  # fmt: skip

    def _clear(self, clusters: World, keep: tuple[str, ...] = ()) -> None:
        """Delete what a run left. A topic that can't be deleted is in nobody's way: each run has names of its own."""
        try:
            clusters.target.clear()
            clusters.source.clear(keep)
        except MirrorError as e:
            self._progress.say(f"not deleted: {e}")

    def _task(self, case: Case, clusters: World, system: str) -> Task:
        alias = f"run{next(self._numbers)}"
        return Task(case, clusters, self._wanted.scale, alias, self._work / f"{alias}-{system}")
