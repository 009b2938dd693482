"""A whole cutover with its own lease, its own tail and real logs; only groups and the fence are stood in for."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover import heartbeat, platform, report_store, steps
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.lifting import Assurance, lift_leftover_fence
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.request import Additions
from airflow_mirror.errors import (
    CutoverBlocked,
    JobNotRunning,
    SchemasDiffer,
    TryAgain,
)
from airflow_mirror.extras.schemas.proof import prove
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.chain import digest, links
from airflow_mirror.sync.schemas.registry import Registry
from tests.driven import records
from tests.driven.cluster import DrivenCluster
from tests.driven.content import TIME_MS
from tests.driven.copying import ends
from tests.driven.records import Row
from tests.driven.script import Fault
from tests.unit.driven.cutting import (
    JUST_TAKEN,
    PLAN,
    World,
    chain_of,
    kill,
)
from tests.unit.schemas.registries import driven


@pytest.fixture
def world(
    source: DrivenCluster, target: DrivenCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> World:  # fmt: skip
    monkeypatch.setattr(Platform, "guarded", lambda *_, **__: nullcontext(lambda: None))
    for name, seconds in {"CONFIRM_EVERY_S": 0.1, "VALID_S": 0.4, "HANDOVER_S": 0.6}.items():
        monkeypatch.setattr(lease, name, seconds)
    return World(source, target, tmp_path / "run")


def test_a_source_that_a_tail_follows_is_cut_over(world: World) -> None:
    with world.tail():
        world.write(5)
        report = world.cut_over()
    assert (report.outcome, world.calls) == (reports.DONE, ["on"])
    assert [s.name for s in report.steps] == [step.name for step in steps.STEPS]
    assert world.target.topics["t"].logs[0].rows() == world.log.rows() and len(world.log.rows()) == 15
    world.write(3)
    assert ends(world.target) == [15]


def test_schemas_are_proven_before_the_fence(world: World) -> None:
    """What is missing, and a registry that is away, refuse; once it is there, the report has what was proven."""
    value = b"\0" + (7).to_bytes(4, "big") + b"payload"
    with world.source.changing():
        world.log.lay(records.encode([Row(world.log.end, TIME_MS, None, value, ())], leader_epoch=world.log.epoch))
    with driven() as here, driven() as there, ClusterAdmin(world.source.config) as source, world.tail():
        here.register(7, '"string"', "t-value", 3)
        sides = {
            side: Registry(role, {"url": one.url})
            for side, role, one in (("here", "source", here), ("there", "target", there))
        }
        schemas = partial(prove, PLAN, source, here=sides["here"], there=sides["there"], each=200)
        with pytest.raises(CutoverBlocked, match=r"(?s)topic 't': id 7 of the value \(t-value version 3\) is not there"):
            world.cut_over(schemas=schemas)
        there.register(7, '"int"', "t-value", 3)
        with pytest.raises(CutoverBlocked, match="id 7 of the value .* is another schema"):
            world.cut_over(schemas=schemas)
        there.status = 503
        with pytest.raises(CutoverBlocked, match="schemas: .*not known: .*target's schema registry"):
            world.cut_over(schemas=schemas)
        assert world.calls == [], "no fence was raised"
        there.status = 0
        there.register(7, '"string"', "t-value", 3)
        report = world.cut_over(schemas=schemas)
    assert (report.outcome, world.calls) == (reports.DONE, ["on"])
    row = {"topic": "t", "part": "value", "id": 7, "subjects": ["t-value version 3"], "verdict": "same"}
    assert report.schemas == world.report().schemas == [row]


@pytest.mark.parametrize("follows", [False, True])
def test_schema_that_came_behind_the_look_is_proven_behind_the_fence(world: World, follows: bool) -> None:
    """The report said that all is the same, and no tail came behind it that could have brought that schema."""

    def writes_with(schema_id: int) -> None:
        value = b"\0" + schema_id.to_bytes(4, "big") + b"payload"
        with world.source.changing():
            world.log.lay(records.encode([Row(world.log.end, TIME_MS, None, value, ())], leader_epoch=world.log.epoch))

    def last_writes(call: str) -> None:
        if call == "on":
            here.register(8, '"int"', "t-value", 4)
            writes_with(8)
            there.modes["t-value"] = "IMPORT"  # as a tail leaves it that is killed by now

    with driven() as here, driven() as there, ClusterAdmin(world.source.config) as source, world.tail():
        for one in (here, there):
            one.register(7, '"string"', "t-value", 3)
        writes_with(7)
        world.when_called = last_writes
        mirror = replace(PLAN.mirror, source_registry=here.url, target_registry=there.url, sync_schemas=follows)
        both = [Registry(role, {"url": one.url}) for role, one in (("source", here), ("target", there))]
        schemas = partial(prove, PLAN, source, here=both[0], there=both[1], each=200, follows=follows)
        if not follows:
            with pytest.raises(SchemasDiffer, match="id 8 of the value .* is not there on the target"):
                world.cut_over(schemas=schemas, mirror=mirror)
            assert world.calls == ["on", "off"] and there.wrote == []
            return
        for n in range(50):
            here.register(100 + n, f'{{"type":"fixed","name":"F","size":{n + 1}}}', f"other-{n}", 1)
        report = world.cut_over(schemas=schemas, mirror=mirror)
    assert (report.outcome, world.calls, there.subjects["t-value", 4]) == (reports.DONE, ["on"], 8)
    assert not [subject for subject, _ in there.subjects if subject != "t-value"], "producers wait for no more"
    assert there.modes == {"": "READWRITE"} and [row["id"] for row in report.schemas] == [7, 8]


def test_report_has_who_was_there_before_the_fence_and_who_has_come_since(world: World) -> None:
    """Looked at where no fence is up, and again by each later call; the chain of reports has what was seen last."""
    looks: list[str] = []

    def clients(report: CutoverReport) -> dict[str, Any]:
        looks.append("before" if report.fence is None else "fenced" if report.opened_at is None else "open")
        return {"at_ms": len(looks)}

    with world.tail():
        report = world.cut_over(additions=Additions(clients=clients))
    assert looks == ["before", "open"] and report.clients == {"before": {"at_ms": 1}, "since": {"at_ms": 2}}
    assert world.report().clients == report.clients and report.seal is not None
    world.cut_over(additions=Additions(clients=clients))
    there = world.report()
    assert looks == ["before", "open", "open"] and there.clients == {"before": {"at_ms": 1}, "since": {"at_ms": 3}}
    with world.ledger() as ledger:
        last = list(links(ledger.values(), PLAN.mirror.name))[-1]
    assert last.report == digest(json.loads(there.to_json()))


def test_who_has_come_is_added_to_what_a_lifting_has_written_meanwhile(world: World) -> None:
    """Written over, the report would say that the fence is kept, which somebody has lifted since."""

    def clients(report: CutoverReport) -> dict[str, Any]:
        if report.opened_at is not None:
            with world.platform() as on:
                fence = CallableFence(lambda: None, lambda: None)
                known = Assurance(listened=True)
                lift_leftover_fence(on, PLAN.mirror.name, fence, include_retained=True, known=known)
        return {"at_ms": 1}

    with world.tail():
        report = world.cut_over(additions=Additions(clients=clients))
    assert report.clients.keys() == {"before", "since"}
    assert report.fence is not None and report.fence.lifted is not None
    assert report.to_json() == world.report().to_json() and report.seal is not None


@pytest.mark.parametrize("when", ["before", "since"])
def test_no_cutover_fails_because_its_clients_can_not_be_asked(world: World, when: str) -> None:
    """A library that gives up has errors of its own; and one that is done is done."""

    def clients(report: CutoverReport) -> dict[str, Any]:
        if (report.opened_at is None) is (when == "before"):
            raise TimeoutError
        return {"at_ms": 1}

    with world.tail():
        report = world.cut_over(additions=Additions(clients=clients))
    assert report.outcome == reports.DONE and report.clients == {"since" if when == "before" else "before": {"at_ms": 1}}
    assert world.report().seal is not None


def test_retry_after_kill_with_lease_asks_for_the_tail_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No report says that the tail is gone; the lease does."""
    with world.tail():
        kill(world, monkeypatch, JUST_TAKEN)
    left = world.report()
    assert (left.outcome, left.lease) == (reports.RUNNING, None)
    assert left.steps[-1].name == "stop_writers"

    world.write(4)
    with pytest.raises(JobNotRunning, match=r"t-0 by 4.*start the tail"):
        world.cut_over()
    assert world.calls == ["on", "off"], "the old fence is lifted, no new one was raised"
    with world.tail():
        again = world.cut_over()
    assert (again.outcome, again.attempt) == (reports.DONE, 2)
    assert world.target.topics["t"].logs[0].rows() == world.log.rows()


def test_retry_after_kill_with_lease_finishes_on_full_target(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cutover was killed right after it took the lease; the target holds every record."""
    with world.tail():
        kill(world, monkeypatch, JUST_TAKEN)
    again = world.cut_over()
    assert (again.outcome, again.attempt, world.calls) == (reports.DONE, 2, ["on", "off", "on"])


@pytest.fixture
def full(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose target holds every record, after a cutover that was killed; its next one is to be watched."""
    with world.tail():
        kill(world, monkeypatch, JUST_TAKEN)
    world.calls.clear()
    return world


def test_target_that_takes_no_report_lets_producers_in_again(full: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the fence on; nobody waits for it without an end."""
    for module, name in ((report_store, "PATIENCE_S"), (heartbeat, "_PATIENCE_S"), (platform, "PATIENCE_S")):
        monkeypatch.setattr(module, name, 0.3)

    def fall_silent(call: str) -> None:
        if call == "on":
            full.target.script.on("Produce", Fault.not_arrived(), times=None)

    full.when_called = fall_silent
    with pytest.raises(TryAgain, match="could not be written"):
        full.cut_over()
    assert full.calls == ["off", "on", "off"]
    full.target.script.clear()
    full.when_called = lambda _: None
    assert full.report().outcome == reports.RUNNING, "it could not be told"
    again = full.cut_over()
    assert (again.outcome, again.attempt, full.calls[3:]) == (reports.DONE, 3, ["off", "on"])


def test_report_is_written_once_whatever_becomes_of_answers(full: World) -> None:
    every_second = cycle((True, False))
    rule = full.target.script.on("Produce", Fault.lost_answer(), times=None, when=lambda _: next(every_second))
    assert full.cut_over().outcome == reports.DONE and len(rule.hits) > 3
    found = full.report()
    assert found.outcome == reports.DONE and [step.name for step in found.steps] == [step.name for step in steps.STEPS]
    full.target.script.clear()
    undone, link = chain_of(full)  # of the one that was killed, and of this one
    assert found.seal == {"links": [undone.value(), link.value()]}
