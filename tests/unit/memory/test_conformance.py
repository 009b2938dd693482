"""The cluster in memory answers as a real one did."""

from __future__ import annotations

import pytest

from tests.conformance.sides import CASES, GOLDEN, transcript
from tests.conformance.transcript import assert_alike
from tests.memory.side import MemorySide


@pytest.mark.parametrize("name", CASES)
def test_cluster_in_memory_answers_as_written_down(name: str) -> None:
    answers = transcript(MemorySide("t0123456"), CASES[name])
    assert_alike(answers, (GOLDEN / f"{name}.txt").read_text())


def test_every_answer_that_was_written_down_belongs_to_a_case() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(CASES)
