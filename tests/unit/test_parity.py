"""docs/parity.md and the scenarios say the same: no row without a test, no test without a row, no cell without words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "integration" / "parity"
SCENARIOS = [*(f"I{n}" for n in range(1, 15)), *(f"S{n}" for n in range(1, 6)), *(f"D{n}" for n in range(1, 4))]
TOPOLOGIES = ["chain of four", "fan-in of three", "fan-out of three", "mesh of three", "side by side"]


def rows() -> list[list[str]]:
    table = (ROOT / "docs" / "parity.md").read_text(encoding="utf-8").partition("| scenario |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_every_scenario_has_a_row_and_every_row_its_cells() -> None:
    named = [row[0] for row in rows()]
    assert [one for one in SCENARIOS if not any(re.match(rf"{one}\b", name) for name in named)] == []
    assert [one for one in TOPOLOGIES if one not in named] == []
    assert [row for row in rows() if len(row) != 4 or not all(row)] == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_names_a_test_that_the_part_runs(row: list[str]) -> None:
    file, _, name = row[3].strip("`").partition("::")
    code = (TESTS / file).read_text(encoding="utf-8")
    assert re.search(rf"^ *(def|class) {name}\b", code, re.MULTILINE), row[3]
    if file.startswith("test_"):
        assert "pytestmark = pytest.mark.parity" in code


def test_every_test_of_a_scenario_has_its_row() -> None:
    named = {row[3].strip("`").rpartition("::")[2] for row in rows()}
    written = [
        name
        for file in sorted(TESTS.glob("*.py"))
        for name in re.findall(r"^ *def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert written and [name for name in written if name not in named] == []
