"""The gate of the unit tests."""

from __future__ import annotations

import sys

import pytest

from tests.coverage import Share, show


@pytest.mark.parametrize(
    ("lines", "branches", "far_enough"), [(900, 90, True), (899, 100, False), (1000, 89, False), (0, 0, False)]
)
def test_lines_and_branches_are_held_each_for_itself(
    lines: int, branches: int, far_enough: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Share("copy", 10, 10, 10, 10)
    assert show([whole, Share("wire", lines, 1000, branches, 100)]) == far_enough
    assert ("below 90 %: wire;" in capsys.readouterr().out) != far_enough


def test_what_was_not_measured_is_not_far_enough() -> None:
    assert not show([Share("wire", 0, 0, 0, 0)])


def test_of_a_test_of_anything_else_nothing_is_noted() -> None:
    """See conftest.py."""
    assert sys.gettrace() is None
