"""The sensor that lets windows be copied oldest first believes only a copy that was made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_mirror.sensors.windows import PreviousWindowSensor


def context(state: str | None, *, first: bool = False) -> Any:
    """Return what a task is given whose DAG's run before has a copy in this state."""
    before = None if first else SimpleNamespace(run_id="before")
    states = {"before": {"copy": state} if state else {}}
    ti = SimpleNamespace(dag_id="d", get_previous_dagrun=lambda: before, get_task_states=lambda **_: states)
    return {"ti": ti}


@pytest.fixture
def sensor() -> PreviousWindowSensor:
    return PreviousWindowSensor(task_id="w", copy="copy")


def test_only_a_copy_that_was_made_is_waited_for_no_longer(sensor: PreviousWindowSensor) -> None:
    assert sensor.poke(context(None, first=True)) is True
    found = {state: sensor.poke(context(state)) for state in (None, "queued", "running", "up_for_retry", "success")}
    assert [state for state, done in found.items() if done] == ["success"]


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "skipped"])
def test_window_that_was_not_copied_keeps_the_next_one_out(sensor: PreviousWindowSensor, state: str) -> None:
    with pytest.raises(AirflowFailException, match=rf"run before was not copied \(its task 'copy' is {state}\)"):
        sensor.poke(context(state))
