"""What a benchmark found: the runs as they were, and the medians and ratios that follow from them."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.latency import Latency
from benchmarks.measure import Run
from benchmarks.systems import OURS

VERSION = 2
LATEST = Path(__file__).with_name("results") / "latest.json"
PARTIAL = LATEST.with_name("partial.json")  # of a full run that is not whole yet


@dataclass(frozen=True)
class CaseResult:
    """A case with all its runs. ``stored_mb`` is the size of the source's batches."""

    name: str
    title: str
    records: int
    partitions: int
    stored_mb: float
    runs: list[Run]

    def median(self, system: str, figure: Callable[[Run], float]) -> float | None:
        """Return the median over a system's good runs, None without one."""
        values = [value for run in self.runs if run.system == system and not run.failed and (value := figure(run))]
        return statistics.median(values) if values else None

    def ratio(self, system: str, to: str, figure: Callable[[Run], float]) -> float | None:
        """Return the ratio of two medians."""
        one, other = self.median(system, figure), self.median(to, figure)
        return one / other if one and other else None


@dataclass(frozen=True)
class Results:
    """Everything that one run of the benchmark found."""

    made: str
    machine: Mapping[str, Any]
    software: Mapping[str, str]
    settings: Mapping[str, Any]
    cases: list[CaseResult] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        """A sentence for each run that failed."""
        bad = [(c.name, r.system, r.round, r.failed) for c in self.cases for r in c.runs if r.failed]
        bad += [(one.tail, one.system, one.round, one.failed) for one in self.latencies if one.failed]
        return [f"{case}, {system}, round {number}: {cause}" for case, system, number, cause in bad]

    @property
    def names(self) -> set[str]:
        """The cases and tails that were run."""
        return {case.name for case in self.cases} | {one.tail for one in self.latencies}

    def with_those_of(self, later: Results) -> Results:
        """Return both parts of one benchmark; where both have a case, the later one counts.

        :raises ValueError: when they were not made on one kind of machine, with the same software and the same settings.
        """
        mine, other = ({**r.settings, "tunings": None} for r in (self, later))
        # Whatever its kernel is by now: all systems of a case run in one part.
        here, there = ({**r.machine, "kernel": None} for r in (self, later))
        if (here, self.software, mine) != (there, later.software, other):
            raise ValueError(
                "the stored part is of another benchmark (machine, software or settings differ): delete it, or begin"
                " without --add"
            )
        tunings = {**self.settings["tunings"], **{n: later.settings["tunings"][n] for n in later.names}}
        return Results(
            later.made, later.machine, later.software, {**later.settings, "tunings": tunings},
            [*(case for case in self.cases if case.name not in later.names), *later.cases],
            [*(one for one in self.latencies if one.tail not in later.names), *later.latencies],
        )  # fmt: skip

    def latency(self, tail: str, system: str, figure: str) -> float | None:
        """Return the median over the rounds of ``p50_ms``, ``p90_ms``, ``p99_ms``, ``p999_ms`` or ``max_ms``."""
        runs = [one for one in self.latencies if (one.tail, one.system) == (tail, system)]
        values = [getattr(one, figure) for one in runs if not one.failed]
        return statistics.median(values) if values else None

    def dump(self) -> str:
        """Return JSON, a line for each run."""
        head = {"version": VERSION, **{k: v for k, v in asdict(self).items() if k not in ("cases", "latencies")}}
        cases = [
            json.dumps({k: v for k, v in asdict(c).items() if k != "runs"})[:-1]
            + ', "runs": [\n    '
            + ",\n    ".join(json.dumps(asdict(run)) for run in c.runs)
            + "\n  ]}"
            for c in self.cases
        ]
        text = json.dumps(head, indent=1)[:-2]
        latencies = [json.dumps(asdict(one)) for one in self.latencies]
        return text + f',\n "cases": [\n  {_join(cases)}\n ],\n "latencies": [\n  {_join(latencies)}\n ]\n}}\n'

    @staticmethod
    def is_readable(text: str) -> bool:
        """Say whether a text holds results of this version."""
        return bool(text) and json.loads(text).get("version") == VERSION

    @classmethod
    def load(cls, text: str) -> Results:
        """Inverse of :meth:`dump`.

        :raises ValueError: for another version.
        """
        values = json.loads(text)
        if values.pop("version") != VERSION:
            raise ValueError(f"results of another version of the benchmark (not {VERSION}); run it again")
        cases = [CaseResult(**c | {"runs": [Run(**run) for run in c["runs"]]}) for c in values.pop("cases")]
        return cls(**values | {"cases": cases, "latencies": [Latency(**one) for one in values["latencies"]]})


def _join(items: list[str]) -> str:
    return ",\n  ".join(items)


def per_s(run: Run) -> float:
    """Records a second."""
    return run.per_s


def per_cpu_s(run: Run) -> float:
    """Records per CPU second of the copier."""
    return run.per_cpu_s


def task_mb(run: Run) -> float:
    """Peak memory of the process that copies: the largest Python task of ours, the JVM of MirrorMaker 2."""
    return run.task_mb if run.system == OURS else run.jvm_mb


def machine() -> dict[str, Any]:
    """Return what is worth knowing of this machine; no name and no path."""
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory = int(Path("/proc/meminfo").read_text().split()[1])
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_gb": round(memory / 2**20), "system": platform.system(),
            "kernel": platform.release()}  # fmt: skip


def software() -> dict[str, str]:
    """Return the versions of what took part."""
    from airflow_mirror.jobs.runner.java import find_java
    from sandbox.versions import DEFAULT_VERSION, TOOLS_VERSION

    return {
        "kafka": DEFAULT_VERSION, "mirrormaker": TOOLS_VERSION, "airflow_mirror": version("airflow-mirror"),
        "pyspark": version("pyspark"), "python": platform.python_version(), "java": str(find_java().version),
    }  # fmt: skip


def today() -> str:
    """Return the date."""
    return datetime.date.today().isoformat()
