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
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

import pytest
from rich.console import Console
from rich.table import Table

from tests.parts import PARTS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "airflow_mirror"
LARGEST = 15
_LARGE, _PARAMETERS = 400, 8
_CRASH_PRONE = ("wire", "copy", "ledger", "cutover")
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


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


def _code(path: Path) -> tuple[int, int]:
    """Return how many lines of a file are code, and how many comments there are.

    Docstrings, comments and blank lines are no code.
    """
    text = path.read_text(encoding="utf-8")
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    docs: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            docs.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    code = {n for t in tokens if t.type not in _NO_CODE for n in range(t.start[0], t.end[0] + 1)}
    return len(code - docs), sum(t.type == tokenize.COMMENT for t in tokens)


def _counted(roots: Iterable[Path]) -> tuple[int, int]:
    of_each = [_code(path) for root in roots for path in modules(root)]
    return sum(code for code, _ in of_each), sum(comments for _, comments in of_each)


def goals() -> Table:
    """What we measure the code by, and what it is to be."""
    table = _table("Goals", "figure", "now", "goal")
    code, comments = _counted([PACKAGE])
    tests, _ = _counted([ROOT / "tests"])
    effects = [_counted([PACKAGE / name]) for name in _CRASH_PRONE]
    share = 100 * sum(c for _, c in effects) / sum(code + c for code, c in effects)
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in modules(PACKAGE)]
    functions = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    named = (
        [a.arg for a in f.args.posonlyargs + f.args.args + f.args.kwonlyargs] for f in functions if f.name != "__init__"
    )
    long = [names for names in named if len([n for n in names if n not in ("self", "cls")]) > _PARAMETERS]
    large = sum(size > _LARGE for size in lines(modules(PACKAGE)))
    table.add_row("code lines of the package", f"{code:,}", "41,000")
    table.add_row("tests' code for each line of it", f"{tests / code:.2f}", "1.6")
    table.add_row("comments in 100 lines of the package", f"{100 * comments / (code + comments):.0f}", "")
    table.add_row(f"comments in 100 lines of {', '.join(_CRASH_PRONE)}", f"{share:.0f}", "15")
    table.add_row(f"functions with more than {_PARAMETERS} parameters", str(len(long)), "0")
    table.add_row("classes of errors", str(len(errors())), "90")
    table.add_row(f"modules above {_LARGE} lines", str(large), "6")
    return table


def errors() -> list[str]:
    """Return the classes of errors, and not what helps them to speak."""
    found = ["MirrorError"]
    for node in ast.parse((PACKAGE / "errors.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and any(isinstance(base, ast.Name) and base.id in found for base in node.bases):
            found.append(node.name)
    return found


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


def main(argv: list[str]) -> int:
    """Print the tables; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.figures", description=__doc__.splitlines()[0])
    parser.add_argument("--no-tests", action="store_true", help="don't collect the tests of each part")
    arguments = parser.parse_args(argv)
    console = Console(width=122)
    for made in (packages, goals, largest, imports, *(() if arguments.no_tests else (tests,))):
        console.print(made(), "")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
