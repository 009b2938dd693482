"""How much of what moves data do the unit tests go through? ``python -m tests.coverage`` shows what they left out.

The unit part of the tests notes it where it is asked to (``python -m tests.parts unit --coverage``), and fails below the
limit: nine tenths of the lines and nine tenths of the branches of each package. A line that was run is not a line that
was tested, for which there are the mutants; but a line that was not run was tested by nobody.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from coverage import Coverage

ROOT = Path(__file__).parents[1]
PACKAGES = ("wire", "copy", "verify", "cutover", "sync")
LIMIT = 90.0
DATA = ROOT / ".tests" / "coverage"


@dataclass(frozen=True)
class Share:
    """What the tests went through of a package, in numbers of lines and of branches."""

    package: str
    lines: int
    all_lines: int
    branches: int
    all_branches: int

    @property
    def percent(self) -> tuple[float, float]:
        """Of lines, and of branches; 0 where nothing was measured."""
        return 100 * self.lines / max(self.all_lines, 1), 100 * self.branches / max(self.all_branches, 1)


def shares() -> list[Share]:
    """Return the share of each package in the last run of the unit tests.

    :raises FileNotFoundError: there was none.
    """
    with contextlib.redirect_stdout(io.StringIO()):  # it says where it wrote
        measured().json_report(outfile=str(DATA.with_suffix(".json")))
    files = json.loads(DATA.with_suffix(".json").read_text(encoding="utf-8"))["files"]
    found: dict[str, list[int]] = {package: [0, 0, 0, 0] for package in PACKAGES}
    for name, file in files.items():
        there = [file["summary"][key] for key in ("covered_lines", "num_statements", "covered_branches", "num_branches")]
        package = Path(name).parts[1]
        found[package] = [a + b for a, b in zip(found[package], there, strict=True)]
    return [Share(package, *sums) for package, sums in found.items()]


def measured() -> Coverage:
    """Return what the last run of the unit tests noted; errors as in :func:`shares`."""
    from coverage import Coverage

    if not DATA.exists():
        raise FileNotFoundError(f"{DATA} is not there: run the unit tests first, python -m tests.parts unit --coverage")
    noted = Coverage(data_file=str(DATA), config_file=str(ROOT / "pyproject.toml"))
    noted.load()
    return noted


def show(found: Sequence[Share]) -> bool:
    """Print a row for each package; return whether all are at the limit or above."""
    table = Table(title="Unit tests go through", title_justify="left", box=None)
    for column in ("package", "lines", "", "branches", ""):
        table.add_column(column, justify="left" if column == "package" else "right")
    for one in found:
        lines, branches = (f"{percent:.1f} %" for percent in one.percent)
        counted = f"{one.lines} of {one.all_lines}", f"{one.branches} of {one.all_branches}"
        table.add_row(f"airflow_mirror.{one.package}", counted[0], lines, counted[1], branches)
    Console(width=100).print(table)
    low = [one.package for one in found if min(one.percent) < LIMIT]
    if low:
        print(f"below {LIMIT:.0f} %: {', '.join(low)}; python -m tests.coverage shows the lines")
    return not low


def forget() -> None:
    """Let no earlier run speak for the next one."""
    DATA.unlink(missing_ok=True)


def main() -> int:
    """Run the command; see the module's text."""
    try:
        measured().report(show_missing=True, skip_covered=True)
    except FileNotFoundError as e:
        print(e, file=sys.stderr)
        return 2
    return 0 if show(shares()) else 1


if __name__ == "__main__":
    sys.exit(main())
