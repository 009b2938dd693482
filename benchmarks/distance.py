"""What a long way costs: ``python -m benchmarks.distance [--round-trip-ms 80] [--rounds 3]``.

MirrorMaker 2 and this engine run far from one of the two clusters: beside the target, with a proxy that delays before the
source, or the other way round. Each copies the same topic in turn, and each follows 200 records a second; who fills and
who watches is near. Prints a table of medians, then one JSON object with every run.

The proxy delays each direction by half of the round trip and lets 4 MB of a connection be under way, as Linux does for
TCP; it loses nothing. A broker's own ``socket.send.buffer.bytes`` (100 KB by default) would leave less.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks import results, table
from benchmarks.cases import CASES, TAILS, Case, Tail
from benchmarks.filling import fill
from benchmarks.latency import Times, measure_latency
from benchmarks.measure import measure
from benchmarks.progress import Progress
from benchmarks.results import CaseResult, Results
from benchmarks.systems import MM2, OURS, Task
from benchmarks.tuning import Tunings
from benchmarks.window import WHOLE, Window
from benchmarks.worlds import World, far_world

SYSTEMS = (MM2, OURS)
PLACES = {"source": "near the target", "target": "near the source"}  # by what is far
_CASE = next(case for case in CASES if case.name == "big")
_TAIL = TAILS[0]
_WARM_UP_S = 10.0
_WINDOWS = {MM2: Window(_WARM_UP_S, 90.0), OURS: WHOLE}
_MIN_FREE_MB = 2000


def main(argv: Sequence[str] | None = None) -> int:
    """Run both places; return the exit status, 1 when a run failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distance", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--round-trip-ms", type=float, default=80.0, metavar="MS", help="to the far cluster and back (default: 80)"
    )
    parser.add_argument("--records", type=int, default=400_000, metavar="N", help="of 1 KB each (default: 400,000)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each system (default: 3)")
    parser.add_argument("--latency-s", type=float, default=30.0, metavar="S", help="of measuring (default: 30)")
    args = parser.parse_args(argv)
    progress = Progress(len(PLACES) * (2 + 2 * len(SYSTEMS) * args.rounds))
    places = {}
    with tempfile.TemporaryDirectory(prefix="airflow-mirror-distance-") as work:
        for far, place in PLACES.items():
            progress.begin(f"{place}: two clusters")
            with far_world(far, args.round_trip_ms / 2, _MIN_FREE_MB) as clusters:
                progress.end("ready")
                places[place] = _Place(place, clusters, Path(work) / far, progress).run(args)
    print(table.distance_as_text(places))
    print(json.dumps({"round_trip_ms": args.round_trip_ms, "places": {k: asdict(v) for k, v in places.items()}}))
    return 1 if any(found.failures for found in places.values()) else 0


class _Place:
    """Everything that is measured with one of the clusters far away."""

    def __init__(self, name: str, clusters: World, work: Path, progress: Progress) -> None:
        self._name, self._clusters, self._work, self._progress = name, clusters, work, progress
        self._numbers = itertools.count(1)
        work.mkdir()

    def run(self, args: argparse.Namespace) -> Results:
        """Measure the rates, then the latencies."""
        case = replace(_CASE, records=args.records)
        self._progress.begin(f"{self._name}: fill")
        records, size = fill(case, self._clusters.source, 1.0, self._work, self._progress.note)
        self._progress.end(f"{records:,} records, {size / 1e6:,.0f} MB")
        found = CaseResult(case.name, case.title, records, case.partitions, round(size / 1e6, 1), [])
        turns = [(number, system) for number in range(1, args.rounds + 1) for system in SYSTEMS]
        say, note = self._progress.say, self._progress.note
        for number, system in turns:
            self._progress.begin(f"{self._name}: copy, round {number}, {system}")
            run = measure(system, self._task(case, system), records, number, _WINDOWS[system], note, say)
            self._clusters.target.clear()
            self._progress.end(run.failed or f"{run.per_s:,.0f} records/s")
            found.runs.append(run)
        self._clusters.source.clear()
        latencies = []
        for number, system in turns:
            self._progress.begin(f"{self._name}: tail, round {number}, {system}")
            times = Times(_WARM_UP_S, args.latency_s)
            one = measure_latency(system, self._task(_TAIL.probes, system, _TAIL), number, times, note, say)
            self._clusters.target.clear()
            self._clusters.source.clear()
            self._progress.end(one.failed or f"p50 {one.p50_ms:.0f} ms, p99 {one.p99_ms:.0f} ms")
            latencies.append(one)
        return Results(results.today(), results.machine(), results.software(), {}, [found], latencies)

    def _task(self, case: Case, system: str, tail: Tail | None = None) -> Task:
        alias = f"run{next(self._numbers)}"
        tuning = Tunings.load().best(case.name, tail is not None)
        return Task(case, self._clusters, 1.0, alias, self._work / f"{alias}-{system}", tail, tuning)


if __name__ == "__main__":
    sys.exit(main())
