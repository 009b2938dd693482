"""The command: measure every point, store them, and make the docs. See the package."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks import results
from benchmarks.growth import page
from benchmarks.growth.measuring import measure
from benchmarks.growth.points import POINTS
from benchmarks.progress import Progress
from benchmarks.worlds import world

_FREE_MB = 12_000


def main(argv: list[str]) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth",
        description="What a copy costs against partitions, batch size, bytes and tasks; six minutes.",
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each point (default: 3)")
    parser.add_argument("--doc", action="store_true", help="run nothing; make docs and plot from the stored points")
    parser.add_argument("--out", type=Path, default=page.STORED, metavar="FILE", help="where to store the points")
    given = parser.parse_args(argv)
    if not given.doc:
        progress = Progress(1 + len(POINTS))
        found = []
        with tempfile.TemporaryDirectory(prefix="airflow-mirror-growth-") as work:
            progress.begin("two clusters")
            with world("plain", Path(work), _FREE_MB) as clusters:
                progress.end("ready")
                for point in POINTS:
                    progress.begin(point.case.name)
                    found.append(measure(point, clusters, given.rounds, Path(work), progress.note))
                    progress.end(f"{found[-1].cpu_s:.2f} CPU s, {found[-1].seconds:.1f} s")
        machine, software = results.machine(), results.software()
        about = (
            f"{machine['cpu']}, {machine['cores']} cores shared with both brokers, Kafka {software['mirrormaker']}, "
            f"Python {software['python']}. Medians of {given.rounds} rounds."
        )
        growth = page.Growth(results.today(), about, found)
        given.out.write_text(json.dumps(growth.dump(), indent=1) + "\n", encoding="utf-8")
        print(page.block(growth))
    if given.out == page.STORED:
        page.write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
