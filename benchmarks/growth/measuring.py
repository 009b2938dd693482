"""Run the points: fill a topic, copy it some times, and keep the median."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.filling import fill
from benchmarks.growth.copying import Part
from benchmarks.growth.points import Point
from benchmarks.processes import cpu_of
from benchmarks.systems import ROOT
from benchmarks.worlds import World

_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Measured:
    """What a point cost, in the median of its rounds.

    :param batches: of the source. :param bytes: of them all.
    :param cpu_s: of all tasks; ``brokers_cpu_s``: of both brokers meanwhile.
    :param seconds: until the last task was done.
    """

    point: Point
    records: int
    batches: int
    bytes: int
    cpu_s: float
    brokers_cpu_s: float
    seconds: float

    @classmethod
    def load(cls, values: dict[str, Any]) -> Measured:
        """Return what :meth:`dump` gave."""
        return cls(**values | {"point": Point(**values["point"])})

    def dump(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)


def measure(point: Point, world: World, rounds: int, work: Path, note: Callable[[str], None]) -> Measured:
    """Fill, and copy it ``rounds`` times to a fresh topic each.

    :raises RuntimeError: it could not be filled or copied.
    """
    case = point.case
    records, size = fill(case, world.source, 1.0, work, note)
    found = []
    for number in range(rounds):
        to = f"{case.topic}.{number}"
        world.target.create(to, case.partitions, case.settings)
        note(f"round {number + 1}")
        found.append(_copy(point, world, (case.topic, to)))
        world.target.clear()
    world.source.clear()
    cpu, brokers, seconds = (statistics.median(one[key] for one in found) for key in ("cpu_s", "brokers", "seconds"))
    return Measured(
        point, records, case.batches(1.0) * case.partitions, size,
        cpu_s=round(cpu, 3), brokers_cpu_s=round(brokers, 2), seconds=round(seconds, 2),
    )  # fmt: skip


def _copy(point: Point, world: World, topics: tuple[str, str]) -> dict[str, float]:
    ends = dict(world.source.plain.properties), dict(world.target.plain.properties)
    parts = [Part(*ends, topics, list(range(task, point.partitions, point.tasks))) for task in range(point.tasks)]
    pids = world.source.pids() + world.target.pids()
    before = cpu_of(pids)
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    tasks = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.growth.copying", part.dump()], env=environment, stdout=subprocess.PIPE
        )
        for part in parts
    ]
    try:
        said = [task.communicate(timeout=_TIMEOUT_S)[0] for task in tasks]
    finally:
        for task in tasks:
            task.kill()
    if any(task.returncode for task in tasks):
        raise RuntimeError(f"{topics[0]}: a task ended with status {[task.returncode for task in tasks]}")
    shown = [json.loads(one) for one in said]
    return {
        "cpu_s": sum(one["cpu_s"] for one in shown), "brokers": cpu_of(pids) - before,
        "seconds": max(one["seconds"] for one in shown),
    }  # fmt: skip
