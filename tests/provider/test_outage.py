"""An outage of a mirror is told once, by the failover's own rule, and starts one run with its approval."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.trigger import Trigger
from airflow.providers.common.compat.sdk import DagRunTriggerException
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.failover import outage
from airflow_mirror.cutover.failover.outage import SOURCE_LOST, UNHEALTHY, Outage, Told
from airflow_mirror.errors import ClusterUnreachable, InputError, InvalidField
from airflow_mirror.example_dags.kafka_failover import failover
from airflow_mirror.hooks.outage import OutageProbe
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat
from airflow_mirror.ledger.kinds import in_pieces
from airflow_mirror.plan import ledger_store
from airflow_mirror.sync.ends.notes import SourceEnds
from airflow_mirror.triggers.outage import MirrorOutageTrigger, outages_in, run_id_of
from tests.provider.conftest import PLAN, THE_PLAN, InMemory
from tests.unit.ledger.memory import MemoryLedger, MemoryState

LOST = Outage(what=SOURCE_LOST, since_ms=1_000, evidence="gone")
ILL = Outage(what=UNHEALTHY, since_ms=5_000, evidence="tail: it failed")
WATCHED = [("kafka_dc2", "orders"), ("kafka_dc2", "pay")]


# --- what one look finds ---------------------------------------------------------------------------------------------


@pytest.fixture
def probe(ledger: MemoryLedger, mirror: dict[str, Any], clusters: InMemory) -> Callable[..., OutageProbe]:
    """A target whose ledger knows mirror m; how its tail is, a test says."""

    def made(*, unhealthy: bool = False, lost_after_s: float = 60.0, plan: str = "p", **tail: Any) -> OutageProbe:
        active = ActiveTail(mirror=mirror, plan=plan, inputs="i", directory="/there", **tail)
        ledger.decide(lambda _: {"active/m": active.value()})
        return OutageProbe("dst", "m", lost_after_s, unhealthy)

    return made


def noted(state: MemoryState, age_s: float, *, missed: bool = False) -> int:
    """Note that the source was last seen so long ago; return when, in milliseconds."""
    at_ms = int((time.time() - age_s) * 1000)
    seen = SourceEnds(at_ms=0).after({TopicPartition("t", 0): (9, 9)}, [TopicPartition("t", 0)], at_ms)
    state.write(dict(replace(seen, missed_ms=at_ms + 900 if missed else None).dump("m")))
    return at_ms


def says(state: MemoryState, unseen_s: float | None, status: str = "RUNNING", job: str = "j") -> None:
    """Have the tail say when it has seen the source."""
    follows = {"source": {"seen": None if unseen_s is None else time.time() - unseen_s, "at": time.time()}}
    Heartbeat(state, cast("Any", SimpleNamespace(name="m", job=job, said_as=None))).give(
        status, phase="copying", follows=follows
    )


def test_source_is_lost_when_its_tail_and_the_notes_have_not_seen_it_for_so_long(
    probe: Callable[..., OutageProbe], state: MemoryState
) -> None:
    at_ms = noted(state, 100.0, missed=True)
    says(state, 100.0)
    found = probe(job="j").look()
    assert found is not None and (found.what, found.since_ms) == (SOURCE_LOST, at_ms)
    assert re.fullmatch(
        r"the source was last seen at \S+, and did not answer at \S+; its tail on host '.*' is RUNNING", found.evidence
    )
    again = probe(job="j").look()
    assert again is not None and again.since_ms == at_ms, "an outage that goes on keeps its name"
    assert probe(job="j", lost_after_s=120.0).look() is None, "not for that long"
    says(state, 3.0)
    assert probe(job="j").look() is None, "what the tail says comes first"


def test_source_that_was_seen_just_now_is_not_listened_for(
    probe: Callable[..., OutageProbe], state: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watching costs a target nothing but reading."""
    noted(state, 9.0)
    monkeypatch.setattr(outage, "tail_of", lambda *_: pytest.fail("it was listened for"))
    assert probe(job="j").look() is None


@pytest.mark.parametrize(
    ("said", "missed", "lost"),
    [("SUCCEEDED", False, False), ("FAILED", False, False), ("FAILED", True, True), ("LOST", False, True)],
)
def test_tail_that_was_ended_says_nothing_of_its_source(
    probe: Callable[..., OutageProbe], state: MemoryState, said: str, missed: bool, lost: bool
) -> None:
    """One that is lost may have gone with it, and one that had missed it has said so."""
    noted(state, 100.0, missed=missed)
    if said == "LOST":
        found = probe(job="j", pid=2**22 + 1, started=1).look()
    else:
        says(state, 100.0, said)
        found = probe(job="j").look()
    assert (found is not None) == lost


@pytest.mark.parametrize(("made_s", "lost"), [(50.0, False), (300.0, True)])
def test_what_was_missed_before_the_tails_plan_was_made_is_an_outage_of_before(
    probe: Callable[..., OutageProbe], state: MemoryState, ledger: MemoryLedger, made_s: float, lost: bool
) -> None:
    """The plan has read the source since, which was lost and returned."""
    made_at = datetime.fromtimestamp(time.time() - made_s, UTC).isoformat(timespec="seconds")
    ledger_store.keep(replace(THE_PLAN, created_at=made_at), state, ledger)
    at_ms = noted(state, 100.0, missed=True)
    says(state, None, "FAILED")
    assert (probe(job="j", plan=PLAN).look() is not None) is lost
    says(state, None)
    found = probe(job="j", plan=PLAN).look()
    assert found is not None and found.since_ms == (at_ms if lost else 0)
    assert found.evidence.startswith("the source was last seen" if lost else "nobody has noted that the source was seen")


def test_outage_of_a_tail_whose_plan_a_newer_version_made_is_told(
    probe: Callable[..., OutageProbe], state: MemoryState
) -> None:
    newer = json.dumps({**json.loads(THE_PLAN.to_json()), "version": 99})
    state.write(in_pieces(f"plan/m/{PLAN}", newer.encode()))
    at_ms = noted(state, 100.0, missed=True)
    says(state, None, "FAILED")
    found = probe(job="j", plan=PLAN).look()
    assert found is not None and found.since_ms == at_ms


def test_source_that_was_never_seen_is_lost_without_a_time(probe: Callable[..., OutageProbe], state: MemoryState) -> None:
    says(state, None)
    found = probe(job="j").look()
    assert found is not None and found.since_ms == 0
    assert found.evidence.startswith("nobody has noted that the source was seen")


def test_mirror_that_is_over_or_unknown_has_no_outage(
    probe: Callable[..., OutageProbe], state: MemoryState, ledger: MemoryLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted(state, 100.0)
    says(state, 100.0)
    with pytest.raises(InputError, match="the target knows no mirror 'm': it knows none"):
        OutageProbe("dst", "m", 60.0, False).look()
    one = probe(job="j", unhealthy=True)
    monkeypatch.setattr(outage, "ended_by", lambda *_: "ended by cutover")
    monkeypatch.setattr("airflow_mirror.plan.owned.ended_by", lambda *_: "ended by cutover")
    assert one.look() is None
    ledger.decide(lambda _: {"active/m": None, "plan/m": {"hash": "p", "v": 1}})
    assert OutageProbe("dst", "m", 60.0, True).look() is None, "no tail, and so nothing that could be lost"


def test_unhealthy_is_what_the_tail_says_or_what_became_of_it(
    probe: Callable[..., OutageProbe], state: MemoryState
) -> None:
    noted(state, 9.0)
    says(state, 1.0)
    assert probe(job="j", unhealthy=True).look() is None
    says(state, 1.0, "FAILED")
    found = probe(job="j", unhealthy=True).look()
    assert found is not None and found.what == UNHEALTHY and "it ended with an error" in found.evidence
    assert probe(job="j").look() is None, "on request alone"


# --- what is news ----------------------------------------------------------------------------------------------------


def test_an_outage_is_told_once_until_the_source_was_seen_again() -> None:
    told = Told(ill_after_s=60.0)
    later = replace(LOST, since_ms=9_000)
    looks = [LOST, LOST, None, LOST, later, ILL, later]
    assert [told.news(one, 10_000) for one in looks] == [LOST, None, None, None, later, None, None]


def test_a_last_look_that_is_noted_behind_the_telling_is_no_other_loss() -> None:
    """Nor for the triggerer that takes over. A source that was seen after the telling was back, and is lost again."""
    told, noted_later, again = Told(ill_after_s=60.0), replace(LOST, since_ms=108_000), replace(LOST, since_ms=140_001)
    assert told.news(replace(LOST, since_ms=100_000), 140_000) is not None and told.news(noted_later, 141_000) is None
    told = Told.of(told.kept(), 60.0, 150_000)
    assert told.news(noted_later, 151_000) is None and told.news(again, 172_000) == again


def test_loss_within_which_a_tail_is_started_again_is_told_once() -> None:
    """Until that one has missed the source, a look finds no loss; its last look is the one that was noted late."""
    told, noted_later = Told(ill_after_s=60.0), replace(LOST, since_ms=108_000)
    assert told.news(replace(LOST, since_ms=100_000), 140_000) is not None
    looks = [(noted_later, 141_000), (None, 150_000), (noted_later, 180_000)]
    assert [told.news(*look) for look in looks] == [None, None, None]


def test_illness_is_told_when_it_lasts_and_again_when_the_mirror_was_well_between() -> None:
    told, now_ms = Told(ill_after_s=60.0), 5_000
    found = []
    for after_s, one in [(0, ILL), (30, None), (30, ILL), (65, ILL), (90, ILL), (99, ILL), (120, None), (130, ILL)]:
        at_ms = now_ms + 1000 * after_s
        found.append(told.news(None if one is None else replace(one, since_ms=at_ms), at_ms))
    assert [one and one.since_ms for one in found] == [None, None, None, None, 35_000, None, None, None]
    assert told.news(LOST, 200_000) == LOST, "a loss is worse, and is told although somebody was called"


# --- the trigger -----------------------------------------------------------------------------------------------------


class Over(BaseException):
    """There are no more looks."""


class Store(dict[str, Any]):
    """As Airflow keeps what a trigger says of its asset."""

    async def aget(self, key: str) -> Any:
        return self.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What each look finds; ``probes`` has those that are open."""
    values: Any = SimpleNamespace(found=[], open=0, made=[])

    class Probe:
        def __init__(self, *given: Any) -> None:
            values.made.append(given)
            values.open += 1

        def look(self) -> Outage | None:
            if not values.found:
                raise Over
            one = values.found.pop(0)
            if isinstance(one, Exception):
                raise one
            return cast("Outage | None", one)

        def close(self) -> None:
            values.open -= 1

    monkeypatch.setattr("airflow_mirror.hooks.outage.OutageProbe", Probe)
    return values


def events(store: Any = None, **how: Any) -> list[dict[str, Any]]:
    """What a triggerer that makes the trigger of what Airflow keeps is told, until there are no more looks."""
    path, kwargs = MirrorOutageTrigger("dst", "m", **{"interval_s": 0.0, **how}).serialize()
    assert path == "airflow_mirror.triggers.outage.MirrorOutageTrigger"
    trigger = MirrorOutageTrigger(**json.loads(json.dumps(kwargs)))
    trigger.asset_state_store = store
    found: list[dict[str, Any]] = []

    async def watch() -> None:
        with suppress(Over):
            async for event in trigger.run():
                found.append(event.payload)

    asyncio.run(watch())
    return found


def test_another_triggerer_does_not_tell_an_outage_that_goes_on(looks: Any) -> None:
    store, later = Store(), replace(LOST, since_ms=2_000)
    looks.found = [None, LOST, LOST]
    assert events(store) == [
        {"mirror": "m", "target": "dst", "what": "source lost", "since_ms": 1_000, "evidence": "gone"}
    ]
    looks.found = [LOST, None, LOST, later]
    assert [one["since_ms"] for one in events(store, unhealthy=True)] == [2_000]
    assert looks.made[-1] == ("dst", "m", 60.0, True) and looks.open == 0


def test_what_the_store_did_not_take_once_is_kept_with_the_next_look(
    looks: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every later triggerer told it again, for as long as the outage went on."""

    class Away(Store):
        fails = 2

        async def aset(self, key: str, value: Any) -> None:
            self.fails -= 1
            if self.fails >= 0:
                raise OSError("away")
            await super().aset(key, value)

    store = Away()
    looks.found = [LOST, LOST, LOST, LOST]
    assert len(events(store)) == 1 and store.fails == -1, "and is not written again"
    looks.found = [LOST]
    assert events(store) == []
    assert capsys.readouterr().out.count("is not kept: away") == 1


def test_what_the_store_did_not_give_once_is_overwritten(looks: Any) -> None:
    """An illness that was told, and is over, kept every later triggerer from telling the next one."""

    class Away(Store):
        async def aget(self, key: str) -> Any:
            raise OSError("away")

    store = Away()
    store["told"] = {"lost": None, "ill": 1, "found": 1}
    looks.found = [None]
    assert events(store, unhealthy=True) == [] and store["told"]["ill"] is None


def test_illness_keeps_its_name_for_another_triggerer(looks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that it starts is named by when it began; each look says when it was found itself."""
    store, now_s = Store(), [5.0]
    monkeypatch.setattr("airflow_mirror.triggers.outage.time", SimpleNamespace(time=lambda: now_s[0]))
    looks.found = [ILL]
    assert events(store, unhealthy=True) == []
    now_s[0] = 70.0
    looks.found = [replace(ILL, since_ms=70_000)]
    assert [one["since_ms"] for one in events(store, unhealthy=True)] == [5_000]
    looks.found = [replace(ILL, since_ms=80_000), None]
    assert events(store, unhealthy=True) == []
    assert store["told"] == {"lost": None, "told": None, "ill": None, "found": None}


def test_hours_in_which_nobody_looked_make_no_illness(looks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow was in maintenance, and its tail with it: the first look behind it told of an outage of the whole night."""
    store, now_s = Store(), [5.0]
    monkeypatch.setattr("airflow_mirror.triggers.outage.time", SimpleNamespace(time=lambda: now_s[0]))
    looks.found = [ILL]
    assert events(store, unhealthy=True) == []
    now_s[0] = 30_000.0
    looks.found = [replace(ILL, since_ms=30_000_000)]
    assert events(store, unhealthy=True) == []
    now_s[0] = 30_070.0
    looks.found = [replace(ILL, since_ms=30_070_000)]
    assert [one["since_ms"] for one in events(store, unhealthy=True)] == [30_000_000]


def test_hours_of_looks_in_vain_make_no_illness(looks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5.0, 5.0, 30_000.0, 30_070.0])
    monkeypatch.setattr("airflow_mirror.triggers.outage.time", SimpleNamespace(time=lambda: next(times)))
    looks.found = [ILL, ClusterUnreachable("target", "x:1", "refused"), replace(ILL, since_ms=30_000_000), ILL]
    assert [one["since_ms"] for one in events(unhealthy=True)] == [30_000_000]


def test_target_that_is_away_is_no_outage_and_said_once(looks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Also whatever else goes wrong: the watch goes on, with new connections."""
    away = [ClusterUnreachable("target", "x:1", f"refused {n}") for n in range(2)]
    looks.found = [None, *away, RuntimeError("Airflow has no answer"), LOST, away[0], LOST]
    assert [one["what"] for one in events()] == ["source lost"]
    said = re.findall(r"mirror m can't be watched for now: (\w+): ", capsys.readouterr().out)
    assert said == ["ClusterUnreachable", "RuntimeError", "ClusterUnreachable"]
    assert len(looks.made) == 5 and looks.open == 0


def test_without_a_store_an_outage_is_told_all_the_same(looks: Any) -> None:
    """Two DAGs that give the same watch other assets have no one store."""

    async def broken(*_: Any) -> Any:
        raise ValueError("Task has 2 concrete inlets and outlets")

    looks.found = [LOST, LOST]
    assert len(events(SimpleNamespace(aget=broken, aset=broken))) == 1


def test_no_shorter_time_than_a_failovers_own() -> None:
    with pytest.raises(InvalidField, match=r"lost_after_s=29: a failover would be refused\. Give seconds from 30 on"):
        MirrorOutageTrigger("dst", "m", lost_after_s=29)


# --- the run ---------------------------------------------------------------------------------------------------------


def payload(mirror: str = "orders", **changed: Any) -> dict[str, Any]:
    return {"target": "kafka_dc2", "mirror": mirror, "what": SOURCE_LOST, "since_ms": 7, "evidence": "e", **changed}


def told(*payloads: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """The events of a run, as Airflow's own code makes them of what a trigger has told."""
    extras: list[Any] = []
    monkeypatch.setattr(
        "airflow.models.trigger.AssetManager.register_asset_change", lambda **given: extras.append(given["extra"])
    )
    for one in payloads:
        found = SimpleNamespace(assets=[SimpleNamespace(to_serialized=lambda: "asset")], callback=None)
        session = Mock()
        session.scalars.side_effect = [[], Mock(one_or_none=Mock(return_value=found))]
        Trigger.submit_event(7, TriggerEvent(one), session=session)  # type: ignore[no-untyped-call]
    return {"asset": [SimpleNamespace(extra=json.loads(json.dumps(extra))) for extra in extras]}


def test_each_mirror_of_a_disaster_gets_one_run_of_its_own(
    context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow starts one run for all events that wait; an outage that was told before has had its run."""
    dag = failover("dc2_failover", WATCHED, source="kafka_dc1")
    assert [task.task_id for task in dag.topological_sort()][:4] == [
        "outages", "start_failover", "is_mirror_in_form", "check",
    ]  # fmt: skip
    outages, by_form = (dag.get_task(name) for name in ("outages", "is_mirror_in_form"))
    found = cast("Any", outages).python_callable(
        told(payload(), payload("pay"), payload(evidence="again"), monkeypatch=monkeypatch)
    )
    assert [one["conf"] for one in found] == [
        {"target": "kafka_dc2", "name": "orders"}, {"target": "kafka_dc2", "name": "pay"},
    ]  # fmt: skip
    assert all(re.fullmatch(r"[A-Za-z0-9_.~:+-]+", one["trigger_run_id"]) for one in found), "as Airflow takes ids"
    assert cast("Any", by_form).python_callable(found) is False, "the run itself fails nothing over"
    starts = [cast("Any", dag.get_task("start_failover")).unmap(one) for one in found]
    for start, one in zip(starts, found, strict=True):
        with pytest.raises(DagRunTriggerException) as asked:
            start.execute(context)
        run = cast("Any", asked.value)
        assert (run.trigger_dag_id, run.dag_run_id, run.conf) == ("dc2_failover", one["trigger_run_id"], one["conf"])
        assert run.skip_when_already_exists and run.logical_date is None and run.wait_for_completion is False
        assert run.conf.keys() <= dag.params.keys(), "a parameter that the form does not have would fail the run"
    assert dag.params["approval"] is True and dag.params["force"] is False, "nobody is left out by an event"
    (ill,) = cast("Any", outages).python_callable(told(payload(what=UNHEALTHY), monkeypatch=monkeypatch))
    assert ill["conf"]["approval"] is True, "its source may live, and the form of a DAG may ask nobody"
    assert cast("Any", outages).python_callable({}) == [] and cast("Any", by_form).python_callable([]) is True


def test_another_outage_has_another_run() -> None:
    ids = {run_id_of(payload(**one)) for one in ({}, {"since_ms": 8}, {"what": UNHEALTHY}, {"target": "t"})}
    assert len(ids | {run_id_of(payload("pay"))}) == 5 and run_id_of(payload(evidence="x")) in ids


@pytest.mark.parametrize(
    "extra",
    [
        {}, {"from_rest_api": True, "payload": payload()}, {"from_trigger": True},
        {"from_trigger": True, "payload": payload(target="elsewhere")},
        {"from_trigger": True, "payload": payload("unwatched")},
        {"from_trigger": True, "payload": payload(mirror=["orders"])},
        {"from_trigger": True, "payload": payload(since_ms="7")},
    ],
)  # fmt: skip
def test_what_is_no_event_of_a_watched_mirror_fails_the_run_and_starts_nothing(
    extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    outages = cast("Any", failover("dc2_failover", WATCHED).get_task("outages")).python_callable
    forged = SimpleNamespace(extra=extra)
    with pytest.raises(AirflowFailException, match=r"(?s)tells of no outage.*orders on kafka_dc2, pay on kafka_dc2"):
        outages({"asset": [forged]})
    (real,) = told(payload(), monkeypatch=monkeypatch)["asset"]
    assert outages_in([forged, real], WATCHED) == [payload()], "and keeps no real one from being heard"


def test_dag_takes_runs_by_events_where_it_watches(tmp_path: Path) -> None:
    """By Airflow's own code, in a file that is made of the page's block."""
    page = (Path(__file__).parents[2] / "docs" / "operators.md").read_text(encoding="utf-8")
    (block,) = (
        one for one in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "kafka_failover import failover" in one
    )
    (tmp_path / "watches.py").write_text(block)
    bag = DagBag(str(tmp_path))
    assert bag.import_errors == {} and set(bag.dags) == {"dc2_failover"}
    dag: Any = bag.dags["dc2_failover"]
    assert {"asset_triggered", "manual", "operator_triggered"} == {one.value for one in dag.allowed_run_types}
    encoded = json.dumps(DagSerialization.to_dict(dag))
    assert set(re.findall(r'"name": "(kafka_outage\.[\w.]+)"', encoded)) == {
        "kafka_outage.kafka_dc2.orders", "kafka_outage.kafka_dc2.payments",
    }  # fmt: skip
    watchers = [w for a in dag.timetable.asset_condition.objects for w in a.watchers]
    assert len(watchers) == 2 and all(isinstance(w.trigger, BaseEventTrigger) for w in watchers)
    again: Any = DagSerialization.from_dict(json.loads(encoded))
    assert set(again.task_dict) == set(dag.task_dict)
    assert dag.params["source"] == "kafka_dc1" and dag.params["approval"] is True
    with pytest.raises(TypeError, match="no form has a field aproval"):
        failover("x", WATCHED, aproval=False)
    assert failover("x", WATCHED, approval=False).params["approval"] is False
