"""The sizes and ratios of the code: ``python -m tests.figures`` prints them as tables. ``make figures`` calls it.

Lines are physical lines. Each import statement counts once, including those inside functions. The tests of a part are
those that pytest collects; with ``--no-tests`` nothing is collected and the run takes a second.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from rich.console import Console
from rich.table import Table

from tests.parts import PARTS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "airflow_mirror"
LARGEST = 15


def modules(root: Path) -> list[Path]:
    """Return the Python files below a directory, in order."""
    return sorted(root.rglob("*.py"))


def lines(paths: list[Path]) -> list[int]:
    """Return the number of lines of each file."""
    return [len(path.read_text(encoding="utf-8").splitlines()) for path in paths]


def imported(path: Path) -> Iterator[str]:
    """Yield the dotted name of each module that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{a.name}" for a in node.names if node.module == PACKAGE.name)


def part_of(dotted: str) -> str | None:
    """Return the first part below our package of a dotted name: ``copy`` of ``airflow_mirror.copy.loop``."""
    package, _, rest = dotted.partition(".")
    return rest.partition(".")[0] or None if package == PACKAGE.name else None


def arrows() -> Counter[tuple[str, str]]:
    """Return how often each package or top module of ours imports each other one."""
    found: Counter[tuple[str, str]] = Counter()
    for path in modules(PACKAGE):
        here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        found.update((here, there) for name in imported(path) if (there := part_of(name)) and there != here)
    return found


class _Collected:
    """Counts the tests that pytest collects, by part."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            where = item.path.relative_to(ROOT).as_posix()
            marks = {mark.name for mark in item.iter_markers()}
            there = [p for p in PARTS if any(where.startswith(f"{folder}/") for folder in p.folders)]
            self.count[next((p for p in there if p.marks in marks), there[0]).name] += 1


def collected() -> Counter[str]:
    """Return how many tests pytest collects for each part.

    :raises SystemExit: when a test can't be imported; pytest's own words are above.
    """
    plugin = _Collected()
    folders = sorted({str(ROOT / folder) for part in PARTS for folder in part.folders if folder.count("/") == 1})
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = pytest.main(["--collect-only", "-q", "--rootdir", str(ROOT), *folders], plugins=[plugin])
    if status:
        raise SystemExit(printed.getvalue())
    return plugin.count


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    return table


def packages() -> Table:
    """Lines of each package and of what stands beside it."""
    table = _table("Lines", "package", "modules", "lines", "median", "largest")
    own = [path for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    roots = [(f"airflow_mirror/{p.name}", modules(p)) for p in sorted(own)]
    roots.append(("airflow_mirror/*.py", sorted(PACKAGE.glob("*.py"))))
    roots += [(name, modules(ROOT / name)) for name in ("airflow_mirror", "tests", "sandbox", "demo", "benchmarks")]
    for name, paths in roots:
        sizes = lines(paths)
        table.add_row(name, str(len(paths)), f"{sum(sizes):,}", f"{median(sizes):.0f}", str(max(sizes)))
    return table


def largest() -> Table:
    """The largest modules of the package."""
    table = _table(f"Largest {LARGEST} modules", "module", "lines")
    paths = modules(PACKAGE)
    for size, path in sorted(zip(lines(paths), paths, strict=True), reverse=True)[:LARGEST]:
        table.add_row(str(path.relative_to(ROOT)), str(size))
    return table


def imports() -> Table:
    """Who imports whom, and how often."""
    table = _table("Imports", "package", "imports", "imported by", "its imports")
    found = arrows()
    for name in sorted({end for arrow in found for end in arrow}):
        out = {there: n for (here, there), n in sorted(found.items()) if here == name}
        into = sum(n for (_, there), n in found.items() if there == name)
        table.add_row(name, str(sum(out.values())), str(into), ", ".join(f"{there} {n}" for there, n in out.items()))
    table.columns[-1].justify = "left"
    return table


def tests() -> Table:
    """How many tests each part has."""
    table = _table("Tests", "part", "tests")
    count = collected()
    for part in PARTS:
        table.add_row(part.name, f"{count[part.name]:,}")
    table.add_row("all", f"{count.total():,}")
    return table


def ratio() -> float:
    """Return the lines of tests for each line of the package."""
    return sum(lines(modules(ROOT / "tests"))) / sum(lines(modules(PACKAGE)))


def main(argv: list[str]) -> int:
    """Print the tables; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.figures", description=__doc__.splitlines()[0])
    parser.add_argument("--no-tests", action="store_true", help="don't collect the tests of each part")
    arguments = parser.parse_args(argv)
    console = Console(width=122)
    for made in (packages, largest, imports, *(() if arguments.no_tests else (tests,))):
        console.print(made(), "")
    console.print(f"{ratio():.2f} lines of tests for each line of the package")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
