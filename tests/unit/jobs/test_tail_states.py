"""The states of a tail: the table is whole, and the docs show it. That the driver walks it, test_lost_tasks.py shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_mirror.common.states import IllegalTransition
from airflow_mirror.jobs.driver.tail_states import TABLE, TRANSITIONS, Event, State

DESIGN = Path(__file__).parents[3] / "docs" / "design.md"


def test_every_state_is_reached_and_every_one_can_end() -> None:
    reached = {State.READY} | {after for row in TRANSITIONS.values() for after in row.values()}
    assert reached == set(State) == set(TRANSITIONS)
    assert {state for state in State if Event.END not in TRANSITIONS[state]} == {State.OVER}


def test_a_stream_begins_only_where_no_task_of_another_one_may_write() -> None:
    assert {state for state, row in TRANSITIONS.items() if State.COPYING in row.values()} == {State.READY}
    assert set(TRANSITIONS[State.COPYING].values()) == {State.HANDING_OVER, State.OVER}, "its tasks may still write"
    for state in (State.RESTING, State.DEPOSED, State.COPYING, State.HANDING_OVER):
        with pytest.raises(IllegalTransition, match=f"a tail can't start while it is {state.value}"):
            TABLE.after(state, Event.START)


def test_the_docs_show_the_table() -> None:
    assert TABLE.drawing() in re.findall(r"```mermaid\n(.*?)\n```", DESIGN.read_text(), re.S)
