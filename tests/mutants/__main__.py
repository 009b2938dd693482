"""Do the unit tests notice? ``python -m tests.mutants`` applies changes that lose data, one by one, and runs the tests.

``mutants.toml`` is the list: each mutant replaces a text that stands once in its file, and names the tests that should
kill it. A mutant that survives is a promise that nothing holds. Exit status 0 only when every one was killed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutants.toml")
_TIMEOUT_S = 300.0  # a mutant that makes the tests hang is killed too
_PARTS = ("airflow_mirror", "tests", "sandbox", "demo", "benchmarks", "dags", "docs", "spark_jobs")
_FILES = ("pyproject.toml", "setup.cfg", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change.

    :param name: what goes wrong, in a few words.
    :param file: relative to the repository.
    :param old: stands exactly once in the file.
    :param new: what takes its place.
    :param tests: files or node ids of unit tests.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> None:
        """Change the file below ``root``.

        :raises ValueError: the text does not stand there exactly once.
        """
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: its text stands {text.count(self.old)} times in {self.file}")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


def load() -> list[Mutant]:
    """Return the list."""
    rows = tomllib.loads(LIST.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def survives(mutant: Mutant) -> str | None:
    """Apply a mutant to a copy of the repository; return None when its tests failed, else what they said."""
    with tempfile.TemporaryDirectory(prefix="airflow-mirror-mutant-") as home:
        root = Path(home)
        for part in _PARTS:
            shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
        for name in _FILES:
            shutil.copy2(ROOT / name, root / name)
        mutant.apply(root)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests]
        try:
            env = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
            done = subprocess.run(
                command, cwd=root, env=env, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return None
    # 1: some test failed. Anything else is no verdict: nothing was collected, or pytest itself broke.
    return None if done.returncode == 1 else f"status {done.returncode}: {done.stdout[-300:].strip()}"


def main(argv: list[str]) -> int:
    """Run the command; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only mutants with one of these words in their names")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: one for each core)")
    arguments = parser.parse_args(argv)
    wanted = [m for m in load() if not arguments.words or any(word in m.name for word in arguments.words)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        survivors = list(_told(wanted, pool.map(survives, wanted)))
    print(f"{len(wanted) - len(survivors)} of {len(wanted)} mutants killed")
    return 1 if survivors or not wanted else 0


def _told(mutants: Iterable[Mutant], outcomes: Iterable[str | None]) -> Iterable[Mutant]:
    for mutant, outcome in zip(mutants, outcomes, strict=True):
        print(f"{'killed  ' if outcome is None else 'SURVIVED'} {mutant.name}", flush=True)
        if outcome is not None:
            print(f"         {mutant.file}: {outcome}")
            yield mutant


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
