"""What runs of the shipped DAGs do once somebody clears a task, or marks them. Airflow's own code schedules them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.provider.scheduled import Scheduler

# They run behind whatever becomes of the others, and change nothing: they look, or are empty.
HARMLESS = {"restored", "way_back.is_wanted"}
COPY = {"topics": ["a"], "mode": "copy", "follow": ["acls"]}


@pytest.fixture(scope="module")
def scheduler(bag: Any) -> Iterator[Scheduler]:
    with Scheduler(bag, "kafka_migration", "kafka_failback", "kafka_failover") as one:
        yield one


def test_a_task_that_is_cleared_does_no_more_than_its_run_was_asked_for(scheduler: Scheduler) -> None:
    """One of a run that only copies had readers' rights for a reason to cut over: nobody had looked, or been asked."""
    run = scheduler.run("kafka_migration", **COPY).go()
    first = {*run.ran, *HARMLESS}
    assert run.state == "success" and "let_readers_in" in first and "cutover" not in first
    more: dict[str, set[str]] = {}
    for task in ("is_access_wanted", "let_readers_in", *(one for one in run.dag.task_ids if one not in first)):
        with run.tried():
            more[task] = {*run.clear(task).go().ran} - first
    assert {task: ran for task, ran in more.items() if ran} == {}


def test_a_run_that_was_marked_and_is_cleared_behind_its_comparison_does_not_cut_over(scheduler: Scheduler) -> None:
    run = (
        scheduler.run("kafka_migration", **{**COPY, "mode": "migrate"}).go(until="wait_for_catch_up").mark("failed").go()
    )
    assert run.states["wait_for_catch_up"] == "failed" and run.states["let_readers_in"] == "success"
    assert {*run.clear("preview_groups").go().ran} <= {*HARMLESS, "lift_fence", "outcome"}


def test_nothing_is_cut_over_where_readers_were_not_let_in(scheduler: Scheduler) -> None:
    run = scheduler.run("kafka_migration", **{**COPY, "mode": "migrate"}).go(fails=["let_readers_in"])
    assert run.state == "failed" and "verify" in run.ran
    assert run.states["preview_groups"] == run.states["cutover"] == "upstream_failed"


FENCING = [("kafka_migration", "cutover"), ("kafka_failback", "rollback")]


@pytest.mark.parametrize(("dag_id", "task"), FENCING)
def test_tail_is_started_again_also_in_a_run_that_somebody_marks(scheduler: Scheduler, dag_id: str, task: str) -> None:
    """A cutover may have ended it; then nobody would copy on. One that runs is left alone."""
    form = {"topics": ["a"]} if dag_id == "kafka_migration" else {}
    run = scheduler.run(dag_id, **form).go(until=task)
    for state in ("failed", "success"):
        with run.tried():
            assert run.mark(state).go().ran == ["lift_fence", "follow_on", *(["outcome"] if state == "success" else [])]
            assert run.states["follow_on"] == "success"
    with run.tried():  # between two tries of it
        assert run.set_state("up_for_retry", task).mark("failed").go().ran[:2] == ["lift_fence", "follow_on"]
        assert run.states[task] == "skipped"
    with run.tried():
        assert "follow_on" in run.set_state("failed", task).go().ran
    with run.tried():  # the run goes on, and stops the tail
        assert "stop_tail" in run.set_state("success", task).go().ran and run.states["follow_on"] == "skipped"
    with run.tried():  # it is over, and what comes next was not
        run.push(task, "return_value", {"outcome": "done"})
        assert "follow_on" not in run.set_state("success", task).go(until="stop_tail").mark("failed").go().ran
    early = scheduler.run(dag_id, **form).go(until="verify").mark("failed").go()
    assert early.ran == ["lift_fence"] and early.states["follow_on"] == "skipped"
    assert early.states["outcome"] == early.state == "failed"


@pytest.mark.parametrize(
    ("dag_id", "task", "asked"),
    [
        ("kafka_migration", "cutover", "approve_cutover"),
        ("kafka_failback", "rollback", "approve_rollback"),
        ("kafka_failover", "failover", "approve_failover"),
    ],
)
def test_an_approval_that_was_skipped_is_no_yes(scheduler: Scheduler, dag_id: str, task: str, asked: str) -> None:
    """By a request, or in a run that was marked before it asked. One that somebody marks as success is."""
    run = scheduler.run(dag_id, **({"topics": ["a"]} if dag_id == "kafka_migration" else {})).go()
    assert run.state == "success" and {task, asked} <= {*run.ran}
    with run.tried():
        assert task not in run.set_state("skipped", asked).clear(task).go().ran
        assert run.states[task] == "failed"
    with run.tried():
        assert task in run.set_state("success", asked).clear(task).go().ran
