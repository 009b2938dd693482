"""Where coverage is noted: see conftest.py of all unit tests."""

from __future__ import annotations

import sys

import pytest

from tests.unit.conftest import unnoted


@pytest.mark.repeats
def test_of_a_test_that_repeats_nothing_is_noted() -> None:
    assert sys.gettrace() is None


def test_nothing_is_noted_for_a_while_and_then_all_goes_on() -> None:
    coverage = pytest.importorskip("coverage")
    before = sys.gettrace()
    several = [coverage.Coverage(data_file=None, config_file=False) for _ in range(2)]
    for one in several:
        one.start()
    try:
        with unnoted():
            assert sys.gettrace() is None
        assert sys.gettrace() is not None and coverage.Coverage.current() is several[-1]
    finally:
        for one in reversed(several):
            one.stop()
    assert type(sys.gettrace()) is type(before)
