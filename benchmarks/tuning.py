"""The better of MirrorMaker 2's tunings: found once by ``python -m benchmarks --tune``, stored, and used from then on.

Cases of one class have one tuning: what decides is the size of batches and records. In a bulk copy the candidate with the
most records a second wins, in the tail the one with the lowest p90. Every candidate's figures are stored as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import mirrormaker
from benchmarks.cases import CASES, TAILS
from benchmarks.results import Results, per_cpu_s, per_s

FILE = Path(__file__).with_name("results") / "tuning.json"
SYSTEM = "mm2-{}"  # how a run of one candidate is called
CLASSES = tuple(dict.fromkeys([*(case.tuned_as or case.name for case in CASES), *(t.tuned_as or t.name for t in TAILS)]))
_UNTRIED = {True: "prompt", False: "large"}  # by whether it is a tail


@dataclass(frozen=True)
class Tunings:
    """The winner of each class.

    :param made: the date. :param classes: class -> ``best``, and ``tried``: candidate -> its figures.
    """

    made: str
    classes: Mapping[str, Mapping[str, Any]]

    @classmethod
    def load(cls, file: Path = FILE) -> Tunings:
        """Return what is stored; nothing is known without a file."""
        return cls(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else cls("", {})

    def best(self, name: str, tail: bool) -> str:
        """Return the best candidate of a class; an operator's usual choice where nobody has tried."""
        return str(self.classes[name]["best"]) if name in self.classes else _UNTRIED[tail]

    def with_those_of(self, results: Results) -> Tunings:
        """Return these tunings, and the winners of a run of candidates instead of those of the same classes."""
        return Tunings(results.made, {**self.classes, **dict(_winners(results))})

    def store(self, file: Path = FILE) -> None:
        """Write the file."""
        file.write_text(json.dumps({"made": self.made, "classes": self.classes}, indent=1) + "\n", encoding="utf-8")


def _winners(results: Results) -> Iterator[tuple[str, dict[str, Any]]]:
    for case in results.cases:
        rates = {
            c: (case.median(SYSTEM.format(c), per_s), case.median(SYSTEM.format(c), per_cpu_s)) for c in mirrormaker.BULK
        }
        tried = {c: {"per_s": round(wall), "per_cpu_s": round(cpu)} for c, (wall, cpu) in rates.items() if wall and cpu}
        if tried:
            yield case.name, {"best": max(tried, key=lambda c: tried[c]["per_s"]), "tried": tried}
    for tail in TAILS:
        found = {c: results.latency(tail.name, SYSTEM.format(c), "p90_ms") for c in mirrormaker.TAIL}
        waits = {c: {"p90_ms": value} for c, value in found.items() if value is not None}
        if waits:
            yield tail.name, {"best": min(waits, key=lambda c: waits[c]["p90_ms"]), "tried": waits}
