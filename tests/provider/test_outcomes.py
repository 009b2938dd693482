"""What a task that fails says at the end of its log, where Airflow's UI scrolls to."""

from __future__ import annotations

from airflow_mirror.errors import InvalidField
from airflow_mirror.hooks.outcomes import outcome_of
from airflow_mirror.plan.model import blocked


def test_what_blocks_a_plan_stays_in_the_panel_of_the_log() -> None:
    """A panel of a window of 1280 pixels shows 85 columns and folds nothing: the remedies stood out of sight."""
    long = "unmatched: topics: 'userz': the source has no such topic. The nearest known is 'users'. Correct or remove it."
    said = str(outcome_of(blocked([long, "same_cluster: both are one"])))
    assert said.splitlines() == [
        "InputError: 2 check(s) block this mirror; nothing was written",
        "  - unmatched: topics: 'userz': the source has no such topic. The nearest known is",
        "    'users'. Correct or remove it.",
        "  - same_cluster: both are one",
    ]


def test_other_errors_have_their_three_lines_folded() -> None:
    error = InvalidField("topics", ["a" * 90], "why " * 29 + "not", "Do it.")
    assert str(outcome_of(error)).splitlines() == [
        f"InvalidField: topics={['a' * 90]!r}",
        f"  why: {' '.join(['why'] * 19)}",
        f"       {' '.join(['why'] * 10)} not",
        "  do:  Do it.",
    ]


def test_command_stays_on_one_line() -> None:
    command = f"Type kafka-acls --add --allow-principal User:mirror --topic {'t' * 60}."
    assert str(outcome_of(InvalidField("x", 1, "it lacks a right", command))).splitlines()[-1] == f"  do:  {command}"
