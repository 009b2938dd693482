"""The tests in parts: ``python -m tests.parts [PART ...]`` runs some of them, one after the other, and sums up.

``make test`` is the parts that CI runs; ``make test-all`` is every part. A part that fails does not keep the next from
running. With ``--resume`` what passed on this very tree (commit and changes) in an earlier run is left out.

With ``--coverage`` the unit part notes what it goes through, and fails where that is too little (``tests/coverage.py``);
``--all`` does so too. It takes half as long again, for which CI has no time.

``--on PYTHON`` runs unit and provider with another Python. In CI that is the newest one; 3.11 runs the rest.

Each run has an order of its own, and says from which seed; ``--seed`` runs the tests in that order again.

A part is a folder of tests and a mark. A test without a mark of a part is in its folder's first one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

from tests import coverage

RESULTS = Path(".tests")
EXAMPLES = "PROPERTY_EXAMPLES"  # in the environment: how many hypothesis tries of each property
_COVERAGE = ("--cov", "--cov-report=")
_ABSENT = 5  # pytest's exit status when nothing was selected: everything had passed before


@dataclass(frozen=True)
class Part:
    """Some of the tests.

    :param minutes: what it takes on a quiet machine of two cores, about.
    :param options: of pytest.
    :param examples: that hypothesis tries of each property; None: few (``tests/unit/conftest.py``).
    """

    name: str
    folders: tuple[str, ...]
    marks: str
    minutes: int
    what: str
    options: tuple[str, ...] = ()
    examples: int | None = None


# They wait for brokers most of the time: two processes, with clusters of their own. What a module shares stays in one.
_BY_FILE = ("-n", "2", "--dist", "loadfile")

PARTS = (
    Part(
        "unit",
        ("tests/unit",),
        "",
        2,
        "values, decisions, and the engine against a broker in the same process",
        # They wait a little now and then: three for two cores. Most modules stay whole, and with them what they share.
        ("-n", "3", "--dist", "worksteal"),
    ),
    Part(
        "provider",
        ("tests/provider",),
        "",
        1,
        "operators, sensors, triggers and DAGs, with Airflow's own code around them",
        ("-n", "2"),
    ),
    Part(
        "core",
        ("tests/integration",),
        "",
        6,
        "real brokers, real Spark: one path through each feature",
        # They wait more than the others. In the order of collection: by itself xdist begins with the files of most tests.
        ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"),
    ),
    Part("e2e", ("tests/e2e",), "", 4, "one real Airflow with the whole migration"),
    Part(
        "faults",
        ("tests/integration", "tests/unit"),
        "faults",
        32,
        "killed and frozen brokers, broken networks, lost topics, missing rights",
        _BY_FILE,
    ),
    Part(
        "nights",
        ("tests/integration",),
        "nights",
        7,
        "a night by hand, with lacking rights, a lost ledger, groups that don't come to rest; a way back",
        _BY_FILE,
    ),
    Part("properties", ("tests/unit",), "hypothesis", 4, "each property with 1,000 random examples", ("-n", "2"), 1000),
    Part("spark", ("tests/integration",), "spark", 24, "a Spark cluster: lost executors and workers, live progress"),
    Part("months", ("tests/integration",), "months", 10, "what runs for months: all that follows a tail", _BY_FILE),
    Part("versions", ("tests/integration",), "versions", 6, "brokers of other versions", _BY_FILE),
    Part("drills", ("tests/e2e",), "drills", 25, "drills, windows and backfills in a real Airflow"),
    Part(
        "newcomer",
        ("tests/e2e",),
        "newcomer",
        15,
        "a newcomer's trial: wheel, own Airflow, browser",
    ),
    Part("tools", ("tests/integration",), "tools", 5, "sandbox, demo and benchmarks; a schema registry", _BY_FILE),
    Part("parity", ("tests/integration",), "parity", 17, "the older tools' own scenarios, and their clients", _BY_FILE),
    Part("page", ("tests/page",), "", 7, "the page, in a real Airflow and Debian's chromium"),
    Part("kerberos", ("tests/integration",), "kerberos", 6, "logins by Kerberos, with a KDC of the sandbox", _BY_FILE),
    Part("managed", ("tests/integration",), "managed", 20, "migrations to stand-ins for managed clusters", _BY_FILE),
)
CI = ("unit", "provider", "core", "e2e")
ON_ANY = CI[:2]  # `make test-pythons` runs them on every Python that is found
# Marks that take a test out of the first part of its folder. Properties, which hypothesis marks, are in both.
_MARKS = sorted({part.marks for part in PARTS if part.marks} - {"hypothesis"})


@dataclass(frozen=True)
class Outcome:
    """How a part ended. ``slowest``: seconds and name of its slowest tests."""

    part: Part
    status: int
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    slowest: tuple[tuple[float, str], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every test of the part passed, now or before."""
        return self.status in (0, _ABSENT)


def command(part: Part, *more: str, python: str = sys.executable) -> list[str]:
    """Return the command line that runs a part."""
    marks = part.marks or " and ".join(f"not {mark}" for mark in _MARKS)
    report = RESULTS / f"{part.name}.xml"
    options = [*part.options, f"--junitxml={report}", *more]
    return [python, "-m", "pytest", *part.folders, "-m", marks, *options]


def environment(part: Part | None = None) -> dict[str, str]:
    """Return the environment of a part: the caller's and its number of examples; what Python has compiled is kept.

    Each worker, and each program that a test starts, would compile all modules again: a third of the unit part.
    """
    more = {} if part is None or part.examples is None else {EXAMPLES: str(part.examples)}
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | more


def run(part: Part, *more: str, python: str = sys.executable) -> Outcome:
    """Run a part and return how it ended."""
    report = RESULTS / f"{part.name}.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    if _COVERAGE[0] in more:
        coverage.forget()
    began = time.monotonic()
    status = subprocess.run(command(part, *more, python=python), env=environment(part), check=False).returncode
    seconds = time.monotonic() - began
    if not report.exists():  # the run ended before it had a result
        return Outcome(part, status, seconds)
    return _read(part, status, seconds, report)


def _read(part: Part, status: int, seconds: float, report: Path) -> Outcome:
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    count = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    timed = [(float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}") for case in suite]
    slowest = tuple(sorted(timed, reverse=True)[:10])
    return Outcome(part, status, seconds, count["tests"] - failed - count["skipped"], failed, count["skipped"], slowest)


def show(outcomes: list[Outcome]) -> None:
    """Print the closing table."""
    table = Table(title="Tests", title_justify="left", box=None)
    for column in ("part", "result", "passed", "failed", "skipped", "time"):
        table.add_column(column, justify="left" if column in ("part", "result") else "right")
    for o in outcomes:
        result = "passed" if o.ok else f"FAILED ({o.status})"
        minutes, seconds = divmod(round(o.seconds), 60)
        table.add_row(o.part.name, result, str(o.passed), str(o.failed), str(o.skipped), f"{minutes}:{seconds:02d}")
    Console(width=100).print(table)


def _far_enough() -> bool:
    try:
        return coverage.show(coverage.shares())
    except FileNotFoundError:
        return False  # the run ended before it had a result


def main(argv: list[str]) -> int:
    """Run the command; see the module's text."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.parts",
        description=__doc__.splitlines()[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="parts:\n" + "\n".join(f"  {p.name:10} {p.what} (about {p.minutes} min)" for p in PARTS),
    )
    names = [part.name for part in PARTS]
    parser.add_argument("parts", nargs="*", choices=[*names, []], metavar="PART", help=f"default: {' '.join(CI)}")
    parser.add_argument("--all", action="store_true", help="every part")
    parser.add_argument("--resume", action="store_true", help="leave out what passed on this very tree before")
    parser.add_argument("--seed", type=int, metavar="N", help="the order of the run that printed --randomly-seed=N")
    on = f"the Python that runs {' and '.join(ON_ANY)}, with all that they need (make newest)"
    parser.add_argument("--on", default=sys.executable, metavar="PYTHON", help=on)
    parser.add_argument("--coverage", action="store_true", help="of the unit part, which fails where it is too low")
    parser.add_argument("--slowest", action="store_true", help="list the slowest ten tests of each part as well")
    arguments = parser.parse_args(argv)
    wanted = names if arguments.all else arguments.parts or CI
    more = ["--resume"] if arguments.resume else []
    more += [] if arguments.seed is None else [f"--randomly-seed={arguments.seed}"]
    # Of a run that left tests out nobody knows what all of them go through.
    noted = (arguments.all or arguments.coverage) and "unit" in wanted and not arguments.resume
    outcomes = []
    by_name = {part.name: part for part in PARTS}
    for part in (by_name[name] for name in dict.fromkeys(wanted)):  # in the order named
        python = arguments.on if part.name in ON_ANY else sys.executable
        print(f"\n=== {part.name}: {part.what} ({python}) ===", flush=True)
        outcomes.append(run(part, *more, *(_COVERAGE if noted and part.name == "unit" else ()), python=python))
    show(outcomes)
    far = _far_enough() if noted else True
    if arguments.slowest:
        for outcome in outcomes:
            for seconds, name in outcome.slowest:
                print(f"{outcome.part.name:10} {seconds:7.1f} s  {name}")
    return 0 if far and all(outcome.ok for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
