"""The sensor that lets windows be copied oldest first believes only a copy that was made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import GetPreviousDagRun

from airflow_mirror.sensors.windows import PreviousWindowSensor


def run(run_id: str, day: int = 1, state: str = "running", **conf: Any) -> Any:
    start = pendulum.datetime(2026, 3, day)
    return SimpleNamespace(run_id=run_id, conf=conf, data_interval_start=start, logical_date=start, state=state)


def context(state: str | None, before: Any = ..., here: Any = ...) -> Any:
    """Return what a task is given whose DAG's run before has a copy in this state."""
    before = run("before") if before is ... else before
    states = {"before": {"copy": state} if state else {}}
    ti = SimpleNamespace(dag_id="d", get_previous_dagrun=lambda: before, get_task_states=lambda **_: states)
    dag = SimpleNamespace(params={"name": "windows"})
    return {"ti": ti, "dag": dag, "dag_run": run("here", 2) if here is ... else here}


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The DAG's runs, of which Airflow is asked for the last one before a logical date."""
    runs: list[Any] = []

    def send(asked: Any) -> Any:
        assert isinstance(asked, GetPreviousDagRun) and asked.dag_id == "d"
        before = [one for one in runs if one.logical_date < asked.logical_date]
        return SimpleNamespace(dag_run=max(before, key=lambda one: one.logical_date, default=None))

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    return runs


@pytest.fixture
def sensor(older: list[Any]) -> PreviousWindowSensor:
    return PreviousWindowSensor(task_id="w", copy="copy")


def test_only_a_copy_that_was_made_is_waited_for_no_longer(sensor: PreviousWindowSensor) -> None:
    assert sensor.poke(context(None, before=None)) is True
    found = {state: sensor.poke(context(state)) for state in (None, "queued", "running", "up_for_retry", "success")}
    assert [state for state, done in found.items() if done] == ["success"]


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "skipped"])
def test_window_that_was_not_copied_keeps_the_next_one_out(sensor: PreviousWindowSensor, state: str) -> None:
    with pytest.raises(AirflowFailException, match=rf"run before was not copied \(its task 'copy' is {state}\)"):
        sensor.poke(context(state))


FIRST, AGAIN = {"from": "2026-03-01T00:00:00Z"}, {"from": "2026-03-01T02:00:00+02:00"}


@pytest.mark.parametrize(
    ("before", "here"),
    [
        (run("before", 1, name="another"), run("here", 2)),
        (run("before", 1, name="another"), run("here", 2, name="mine")),
        (run("before", 1), run("here", 1)),
        (run("before", 7, **FIRST), run("here", 8, **AGAIN)),
        (run("before", 2), run("here", 1)),
    ],
    ids=["another-mirror", "of-two-names", "corrected", "corrected-in-the-form", "later"],
)
def test_what_was_tried_for_another_mirror_or_this_window_keeps_nobody_out(
    sensor: PreviousWindowSensor, before: Any, here: Any
) -> None:
    assert sensor.poke(context("upstream_failed", before, here)) is True


@pytest.mark.parametrize(
    ("before", "here"),
    [
        (run("before", 1, name="windows"), run("here", 2)),
        (run("before", 7, **FIRST), run("here", 8, **{"from": "2026-03-02"})),
        (run("before", 1, **{"from": "yesterday"}), run("here", 1)),
    ],
    ids=["by-the-default-name", "by-the-form", "nobody-knows"],
)
def test_an_earlier_window_of_the_mirror_is_waited_for(sensor: PreviousWindowSensor, before: Any, here: Any) -> None:
    assert sensor.poke(context("running", before, here)) is False


@pytest.mark.parametrize(
    "between", [[run("b", 5, name="another")], [run("b", 4, name="another"), run("c", 5, name="third")], [run("b", 8)]],
    ids=["another-mirror", "two-others", "the-same-window"],
)  # fmt: skip
@pytest.mark.parametrize("state", ["failed", "running", "success", None])
def test_window_behind_runs_that_are_not_waited_for_is(
    sensor: PreviousWindowSensor, older: list[Any], between: list[Any], state: str | None
) -> None:
    """It had failed, another mirror's run lay between, the next one was copied: the failed one was refused for ever."""
    between[-1].logical_date = pendulum.datetime(2026, 3, 5)
    older += [run("first", 1), run("before", 2), *between]
    given = context(state, between[-1], run("here", 8))
    if state == "failed":
        with pytest.raises(AirflowFailException, match="run before was not copied"):
            sensor.poke(given)
    else:
        assert sensor.poke(given) is (state == "success")


def test_run_without_a_logical_date_waits_for_none_and_fails(sensor: PreviousWindowSensor) -> None:
    """Airflow finds no run before it: the order was lost, and an older window that had failed was refused for ever."""
    nowhere = run("here", 2, **{"from": "2026-03-02"})
    nowhere.logical_date = None
    with pytest.raises(AirflowFailException, match="no logical date.*--logical-date"):
        sensor.poke(context("running", None, nowhere))


def test_run_before_that_may_have_to_wait_for_this_one_is_not_waited_for(sensor: PreviousWindowSensor) -> None:
    """A backfill that runs backwards stood still for a week: what it may have active waited for what was queued."""
    queued = run("before", 1, "queued")
    with pytest.raises(AirflowException, match="run before comes before this one, and that run is queued") as e:
        sensor.poke(context(None, queued))
    assert not isinstance(e.value, AirflowFailException), "one that was cleared just now has begun when it is tried again"
    assert sensor.poke(context("success", queued)) is True, "another task of it was cleared"
