"""Two Airflows that drill one target: one drills, the other stands back."""

from __future__ import annotations

import pytest

from airflow_mirror.extras.drill.clean_up import DEAD_AFTER_S
from airflow_mirror.extras.drill.turn import another, begin, end
from tests.unit.ledger.memory import MemoryLedger

NOW_S = 1_000.0  # when the memory's broker says that it is


def test_one_of_two_that_begin_at_once_drills_and_the_other_one_once_it_has_ended() -> None:
    """They have one schedule: one run, one topic, one second."""
    one = MemoryLedger()
    other = MemoryLedger(one.records)
    assert begin(one, "dr-drill", "scheduled-1", "A", NOW_S) == "" and one.values() and other.values()
    said = begin(other, "dr-drill", "scheduled-1", "B", NOW_S)
    assert said.startswith("drill scheduled-1 of mirror 'dr-drill' runs since 1970-01-01 00:16 UTC, and is another ")
    assert begin(one, "dr-drill", "scheduled-1", "A", NOW_S) == "", "its next try goes on"
    for owner, stands_back in (("A", False), ("B", True), ("", True)):
        assert bool(another(other, other.values(), "dr-drill", owner, NOW_S)) is stands_back
    end(other, "dr-drill", "B")
    assert begin(other, "dr-drill", "scheduled-1", "B", NOW_S)
    end(one, "dr-drill", "A")
    assert begin(other, "dr-drill", "scheduled-1", "B", NOW_S) == ""
    assert another(one, one.values(), "dr-drill", "A", NOW_S)


@pytest.mark.parametrize(("age_s", "is_dead"), [(DEAD_AFTER_S - 1, False), (DEAD_AFTER_S, True)])
def test_drill_counts_as_dead_as_soon_as_what_it_left_is_deleted(age_s: float, is_dead: bool) -> None:
    ledger = MemoryLedger()
    begin(ledger, "dr-drill", "monday", "A", NOW_S)
    ledger.now_ms += round(age_s * 1000)
    assert (begin(ledger, "dr-drill", "tuesday", "B", NOW_S + age_s) == "") is is_dead
    assert ledger.values()["drilling/dr-drill"]["run"] == ("tuesday" if is_dead else "monday")


def test_person_ends_a_drill_by_its_run() -> None:
    ledger = MemoryLedger()
    begin(ledger, "dr-drill", "monday", "A", NOW_S)
    end(ledger, "dr-drill", "sunday")
    assert begin(ledger, "dr-drill", "tuesday", "B", NOW_S)
    end(ledger, "dr-drill", "monday")
    assert begin(ledger, "dr-drill", "tuesday", "B", NOW_S) == ""
