"""The list of mutants stays true: each still stands in the code, and names tests that exist."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import ROOT, Mutant, load


@pytest.mark.parametrize("mutant", load(), ids=lambda m: m.name.replace(" ", "-"))
def test_a_mutant_changes_one_place_and_names_its_tests(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1
    assert mutant.old != mutant.new
    for name in mutant.tests:
        file, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}" in (ROOT / file).read_text(encoding="utf-8"), name


def test_no_two_mutants_are_the_same() -> None:
    mutants = load()
    assert len({m.name for m in mutants}) == len({(m.file, m.old, m.new) for m in mutants}) == len(mutants)
