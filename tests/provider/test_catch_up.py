"""The sensor and its trigger give the same answers, and neither waits for a tail that is dead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import ClusterUnreachable, InvalidField, TryAgain
from airflow_mirror.hooks import lag as hook_lag
from airflow_mirror.hooks import remembered
from airflow_mirror.jobs.runner import active
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat, Watch, active_tail
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.jobs.runner.wishes import Wish, wish
from airflow_mirror.operators.mirror import StartMirrorOperator
from airflow_mirror.plan import Plan
from airflow_mirror.plan.amendment import next_amendment
from airflow_mirror.plan.ledger_store import amend
from airflow_mirror.sensors import catch_up as catch_up_sensor
from airflow_mirror.sensors.catch_up import WaitForCatchUpSensor
from airflow_mirror.sync.lag import PartitionLag
from airflow_mirror.triggers import catch_up as catch_up_trigger
from airflow_mirror.triggers.catch_up import CatchUpTrigger
from tests.builders import topic_plan
from tests.provider.conftest import PLAN, Started
from tests.unit.ledger.memory import MemoryLedger, MemoryState


class Lags(list[Any]):
    """Each look takes the next value; the last one stays. ``measure``: what a look at a plan finds.

    ``gone``: raised where the source is asked for the planned topics.
    """

    gone: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self.measure: Callable[[Plan], list[PartitionLag]] = self.next

    def next(self, _: Plan) -> list[PartitionLag]:
        value = self.pop(0) if len(self) > 1 else self[0]
        if isinstance(value, Exception):
            raise value
        return [PartitionLag(TopicPartition("t", 0), 100 - value, 100)]

    def require(self, *_: Any) -> None:
        if self.gone is not None:
            raise self.gone


@pytest.fixture
def lags(monkeypatch: pytest.MonkeyPatch, plan: Plan, connections: Callable[..., None]) -> Lags:
    values = Lags()
    monkeypatch.setattr(hook_lag.lag, "measure", lambda plan, *_: values.measure(plan))  # type: ignore[attr-defined]
    monkeypatch.setattr(hook_lag.lag, "require_planned_topics", values.require)  # type: ignore[attr-defined]
    return values


@pytest.mark.parametrize("deferrable", [False, True])
def test_source_without_the_planned_topics_is_not_caught_up_with(
    lags: Lags, mirror: dict[str, Any], context: dict[str, Any], deferrable: bool
) -> None:
    lags.gone = TryAgain("the source has other topics")
    lags += [0]
    task = sensor(mirror, deferrable=deferrable)
    with pytest.raises(AirflowException, match="the source has other topics"):
        try:
            task.execute(context)
        except TaskDeferred as e:
            task.execute_complete(context, events(trigger_of(e)[0])[0])


def test_caught_up_with_what_is_committed_it_says_what_is_not(
    lags: Lags, mirror: dict[str, Any], context: dict[str, Any], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(hook_lag, "named", lambda _, found: [replace(one, by="transactional id 'app'") for one in found])
    held = [PartitionLag(TopicPartition("t", 0), 100, 100, 130)]
    lags.measure = lambda _: held
    said = "t-0: 30 offsets behind an open transaction since offset 100 (transactional id 'app')"
    assert sensor(mirror).execute(context)["open_transactions"] == [said]
    assert f"caught up with what is committed. Not with the log: {said}" in caplog.text


def sensor(mirror: dict[str, Any], **kwargs: Any) -> WaitForCatchUpSensor:
    kwargs = {"plan": PLAN, "require_tail": False, "samples": 2, "poke_interval": 0.01, **kwargs}
    return WaitForCatchUpSensor(task_id="w", mirror=mirror, **kwargs)


def events(trigger: CatchUpTrigger) -> Any:
    async def first() -> Any:
        return [event.payload async for event in trigger.run()]

    return asyncio.run(first())


def trigger_of(deferred: Any) -> tuple[CatchUpTrigger, str]:
    path, kwargs = deferred.trigger.serialize()
    return CatchUpTrigger(**json.loads(json.dumps(kwargs))), path


def test_sensor_waits_until_the_lag_was_small_twice(lags: Lags, mirror: dict[str, Any], context: dict[str, Any]) -> None:
    """It keeps its slot meanwhile."""
    lags += [40, 3, 9, 3, 2]
    result = sensor(mirror, max_lag_records=5).execute(context)
    course = result.pop("course")
    assert result == {"mirror": "m", "partitions": 1, "lag_records": 2, "max_lag_records": 2, "worst": "t-0"}
    assert [(row["lag"], row["copied"]) for row in course] == [(40, 60), (3, 97), (9, 91), (3, 97), (2, 98)]


def test_deferred_it_gives_the_same_answer(lags: Lags, mirror: dict[str, Any], context: dict[str, Any]) -> None:
    lags += [40, 3, 2]
    task = sensor(mirror, max_lag_records=5, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    trigger, path = trigger_of(deferred.value)
    assert path == "airflow_mirror.triggers.catch_up.CatchUpTrigger"
    assert trigger.serialize() == deferred.value.trigger.serialize()
    (event,) = events(trigger)
    result = task.execute_complete(context, event)
    assert result["lag_records"] == 2 and [row["lag"] for row in result["course"]] == [3, 2]


def test_each_sample_becomes_gauges_in_task_and_triggerer(
    lags: Lags, mirror: dict[str, Any], context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(
        catch_up_sensor, "tell_lag", lambda name, found: told.append(("task", name, found["lag_records"]))
    )
    monkeypatch.setattr(
        catch_up_trigger, "tell_lag", lambda name, found: told.append(("trigger", name, found["lag_records"]))
    )
    lags += [40, 3, 2]
    with pytest.raises(TaskDeferred) as deferred:
        sensor(mirror, max_lag_records=5, deferrable=True).execute(context)
    events(trigger_of(deferred.value)[0])
    assert told == [("task", "m", 40), ("trigger", "m", 3), ("trigger", "m", 2)]


def test_no_secret_is_in_what_the_trigger_is_made_of(lags: Lags, mirror: dict[str, Any], context: dict[str, Any]) -> None:
    lags += [40]
    with pytest.raises(TaskDeferred) as deferred:
        sensor(mirror, deferrable=True).execute(context)
    assert "hunter2" not in json.dumps(deferred.value.trigger.serialize())


@pytest.mark.parametrize("deferrable", [False, True])
def test_topic_that_joins_meanwhile_is_waited_for(
    lags: Lags, mirror: dict[str, Any], context: dict[str, Any], ledger: MemoryLedger,
    state: MemoryState, plan: Plan, deferrable: bool,
) -> None:  # fmt: skip
    """It has just appeared, and is the one that is behind."""
    joins, positions = topic_plan("new", {0: 0}, source_topic_id="id-2"), iter([10, 100, 100, 100])
    looks: list[Plan] = []

    def measure(looked_at: Plan) -> list[PartitionLag]:
        found = [
            PartitionLag(TopicPartition(t.source_topic, 0), 100 if t.source_topic == "t" else next(positions), 100)
            for t in looked_at.topics
        ]
        looks.append(looked_at)
        if len(looks) == 2:  # the trigger's first, where there is one
            amend(next_amendment(plan, [joins], [], "noon"), "m", state, ledger)
        return found

    lags.measure = measure
    task = sensor(mirror, samples=3, deferrable=deferrable)
    try:
        result = task.execute(context)
    except TaskDeferred as e:
        result = task.execute_complete(context, events(trigger_of(e)[0])[0])
    assert (result["partitions"], [row["lag"] for row in result["course"]][-4:]) == (2, [90, 0, 0, 0])


def test_already_caught_up_it_does_not_defer(lags: Lags, mirror: dict[str, Any], context: dict[str, Any]) -> None:
    lags += [0]
    assert sensor(mirror, samples=1, deferrable=True).execute(context)["lag_records"] == 0


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_stuck_partition_fails_by_name_without_a_retry(
    lags: Lags, mirror: dict[str, Any], context: dict[str, Any], deferrable: bool
) -> None:
    lags += [40]
    task = sensor(mirror, stuck_after_s=0.05, deferrable=deferrable)
    with pytest.raises(AirflowFailException, match="(?s)NeedsHuman: .*t-0: at 60 of 100"):
        try:
            task.execute(context)
        except TaskDeferred as e:
            task.execute_complete(context, events(trigger_of(e)[0])[0])


def test_trigger_forgives_a_few_broken_looks_but_not_five(
    lags: Lags, mirror: dict[str, Any], context: dict[str, Any]
) -> None:
    down = ClusterUnreachable("source", "x:1", "refused")
    kwargs = {"max_lag_records": 0, "samples": 1, "stuck_after_s": 9, "require_tail": False, "interval_s": 0.01}
    lags += [40, down, down, 0]
    assert events(CatchUpTrigger(mirror, PLAN, **kwargs))[0]["status"] == "caught_up"
    lags[:] = [down]
    (event,) = events(CatchUpTrigger(mirror, PLAN, **kwargs))
    assert (event["status"], event["blame"]) == ("failed", "retry")
    with pytest.raises(AirflowException, match="no broker at x:1") as caught:
        sensor(mirror).execute_complete(context, event)
    assert not isinstance(caught.value, AirflowFailException)


def test_trigger_forgives_a_broken_look_for_its_plan_too(
    lags: Lags, mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A triggerer that was started again while a broker was ended the wait of hours."""
    down = ClusterUnreachable("target", "x:1", "refused")
    answers, find = [down, down], remembered.plan_by_hash

    def plan_by_hash(*given: Any) -> Plan:
        if answers:
            raise answers.pop()
        return find(*given)

    monkeypatch.setattr(catch_up_trigger, "plan_by_hash", plan_by_hash)
    kwargs = {"max_lag_records": 0, "samples": 1, "stuck_after_s": 9, "require_tail": False, "interval_s": 0.01}
    lags += [0]
    assert events(CatchUpTrigger(mirror, PLAN, **kwargs))[0]["status"] == "caught_up"
    answers += [down] * 5
    assert events(CatchUpTrigger(mirror, PLAN, **kwargs))[0]["blame"] == "retry"


def test_good_looks_around_a_broken_one_are_not_in_a_row(
    lags: Lags, mirror: dict[str, Any], context: dict[str, Any]
) -> None:
    down = ClusterUnreachable("source", "x:1", "refused")
    kwargs = {"max_lag_records": 0, "samples": 2, "stuck_after_s": 9, "require_tail": False, "interval_s": 0.01}
    lags += [0, down, 0, 40, 0, 0]
    (event,) = events(CatchUpTrigger(mirror, PLAN, **kwargs))
    assert [row["lag"] for row in event["lag"]["course"]] == [0, 0, 40, 0, 0]


def test_without_a_tail_it_says_how_to_start_one(lags: Lags, mirror: dict[str, Any], context: dict[str, Any]) -> None:
    lags += [40]
    with pytest.raises(AirflowException, match=r"(?s)'tail' is not running \(it is never started\).*mode='tail'"):
        sensor(mirror, require_tail=True).execute(context)


def test_paused_mirror_fails_the_sensor_at_once_by_name(
    lags: Lags, mirror: dict[str, Any], context: dict[str, Any], state: MemoryState
) -> None:
    lags += [40]
    wish(state, "m", "pause", Wish(by="ann@desk", at="noon"))
    with pytest.raises(AirflowException, match="mirror 'm' is paused by ann@desk since noon"):
        sensor(mirror, require_tail=True).execute(context)


def test_dead_tail_fails_the_sensor_with_its_cause(
    lags: Lags,
    mirror: dict[str, Any],
    context: dict[str, Any],
    fake_spark: Started,
    home: Path,
    ledger: MemoryLedger,
    state: MemoryState,
) -> None:
    lags += [40]
    fake_spark[1]["is"] = "damaged"
    with pytest.raises(AirflowFailException):
        StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail").execute(context)
    tail = active_tail(ledger.values(), "m")
    assert tail is not None and LocalRunner(home / "m").find("tail")
    with pytest.raises(AirflowException, match="no sign of it any more"):
        sensor(mirror, require_tail=True).execute(context)
    Heartbeat(state, tail).give("FAILED", error="t-0: foreign data", blame="human")
    with pytest.raises(AirflowFailException, match="foreign data"):
        sensor(mirror, require_tail=True).execute(context)


@pytest.mark.parametrize("deferrable", [False, True])
def test_tail_that_died_elsewhere_long_ago_is_not_caught_up(
    lags: Lags, mirror: dict[str, Any], context: dict[str, Any], ledger: MemoryLedger, state: MemoryState,
    monkeypatch: pytest.MonkeyPatch, deferrable: bool,
) -> None:  # fmt: skip
    """Nobody was behind when it died, and its last sign still says that it runs."""
    lags += [0]
    tail = a_tail_elsewhere(mirror, ledger)
    Heartbeat(state, tail).give("RUNNING")
    monkeypatch.setattr(active, "Watch", partial(Watch, silence_s=0.3, probe_every_s=0.05))
    task = sensor(mirror, require_tail=True, samples=1, deferrable=deferrable)
    with pytest.raises(AirflowException, match="no sign of it any more from host elsewhere"):
        try:
            task.execute(context)
        except TaskDeferred as e:
            task.execute_complete(context, events(trigger_of(e)[0])[0])


def test_tail_elsewhere_has_caught_up_once_it_gives_a_sign(
    lags: Lags, mirror: dict[str, Any], context: dict[str, Any], ledger: MemoryLedger, state: MemoryState
) -> None:
    signs = Heartbeat(state, a_tail_elsewhere(mirror, ledger))
    signs.give("RUNNING")

    def measure(_: Plan) -> list[PartitionLag]:
        if len(looks) == 3:
            signs.give("RUNNING")
        looks.append(None)
        return [PartitionLag(TopicPartition("t", 0), 100, 100)]

    looks: list[None] = []
    lags.measure = measure
    assert sensor(mirror, require_tail=True, samples=1).execute(context)["lag_records"] == 0
    assert len(looks) == 5


def a_tail_elsewhere(mirror: dict[str, Any], ledger: MemoryLedger) -> ActiveTail:
    tail = ActiveTail(
        mirror=mirror, plan=PLAN, inputs="i", directory="/there", host="elsewhere", where="elsewhere", pid=1
    )
    ledger.decide(lambda _: {"active/m": tail.value()})
    return tail


def test_reschedule_is_refused_because_it_would_never_end(mirror: dict[str, Any]) -> None:
    with pytest.raises(InvalidField, match="Use deferrable=True"):
        sensor(mirror, mode="reschedule")
