"""``airflow-mirror retire``: what it takes away, in which order, and what keeps it from beginning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.console import retire
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.decision import CLOSED, LIFTED, OPENED, UP, FenceState, fence_state, go_up, note_copy
from airflow_mirror.cutover.failover.record import STEPS, Record
from airflow_mirror.cutover.platform import Side
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.errors import PlanNotKept
from airflow_mirror.jobs import retire as core
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger import chain
from airflow_mirror.plan import ledger_store, ownership
from airflow_mirror.plan.direction import FAILOVER, Direction, turn
from airflow_mirror.plan.mm2_topics import mark, marked
from airflow_mirror.plan.owned import Owned
from tests.builders import plan_of, topic_plan
from tests.unit.console.retiring import (
    PLANNED,
    Maps,
    Target,
    fenced,
    own,
    run,
    state_of,
)
from tests.unit.plan.builders import a_mirror


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    one = Target()

    @contextmanager
    def target_of(_: Any) -> Iterator[Target]:
        yield one

    monkeypatch.setattr(retire, "target_of", target_of)
    monkeypatch.setattr(retire, "Ledger", lambda _: one.ledger)
    monkeypatch.setattr(retire, "state_of", lambda *_, **__: one.state)
    monkeypatch.setattr(retire, "MapStore", lambda mirror: Maps(one, mirror))
    monkeypatch.setattr(Side, "end_writing", lambda _, mirror: one.end_writing(mirror))
    monkeypatch.setattr(lease, "is_anybody_writing", lambda *_: one.held)
    return one


def test_nothing_of_another_mirror_is_touched(target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither of one whose name begins alike, nor a topic that has the mirror's name."""
    own(target, "m", "t")
    own(target, "m2", "m", "u")
    target.ledger.decide(lambda _: {"active/m2": {"v": 9}, "plan/m2": {"v": 9}})
    for mirror in ("m", "m2"):
        target.state.write(state_of(mirror))
    before = dict(target.ledger.values()), target.state.read(), dict(target.positions)
    assert run(tmp_path) == 0
    assert (target.ledger.values(), target.state.read(), target.positions) == before and target.log == []
    assert capsys.readouterr().out.splitlines()[-1] == "nothing was changed (--yes does it)"
    assert run(tmp_path, "--yes") == 0
    assert set(target.ledger.values()) == {"topic/m", "topic/u", "active/m2", "plan/m2"}
    assert target.state.read() == state_of("m2")
    assert target.positions == {"airflow-mirror:m:progress": 0, "airflow-mirror:m2:progress": 1} and target.maps == []
    assert target.log == ["writing of m ends, topics are given up", "forget airflow-mirror:m:progress"]
    assert run(tmp_path, "--yes") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nothing is left of mirror 'm'" and len(target.log) == 2


def test_topics_of_traces_stay_and_stay_marked(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may write there too; and a mirror from the target must never copy them."""
    plan = replace(PLANNED, mirror=a_mirror(name="m", source_alias="A", traces="heartbeats"))
    monkeypatch.setattr(ledger_store, "fetch", lambda *_: plan)
    monkeypatch.setattr(core, "sync_configs", lambda *_, **__: SimpleNamespace(drift=()))
    there = {*plan.mirror.trace_topics_of("heartbeats"), *plan.mirror.trace_topics_of("checkpoints")}
    monkeypatch.setattr(target, "topics", lambda names: {n: TopicInfo(n, "x", 1, 1) for n in there.intersection(names)})
    own(target, "m", "t")
    target.ledger.decide(lambda _: {"plan/m": {"v": 1, "hash": plan.hash}})
    mark(target.ledger, ["heartbeats", "A.heartbeats", "B.heartbeats", "A.checkpoints.internal"])
    assert run(tmp_path, "--yes") == 0
    said = capsys.readouterr().out
    for topic in ("heartbeats", "A.heartbeats", "A.checkpoints.internal"):
        assert f"{topic}: traces for Java clients" in said, said
    assert "B.heartbeats" not in said and "mm2-offset-syncs" not in said
    assert len(marked(target.ledger.values())) == 4


NEWER = {"v": 9, "all": "different"}


def test_newer_decision_about_another_mirrors_topic_is_no_obstacle(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own plan never had that topic. It is listed, and stays as it is."""
    monkeypatch.setattr(ledger_store, "fetch", lambda *_: PLANNED)
    monkeypatch.setattr(core, "sync_configs", lambda *_, **__: SimpleNamespace(drift=()))
    own(target, "m", "t")
    target.ledger.decide(lambda _: {"topic/theirs": NEWER, "active/other": NEWER, "plan/m": {"v": 1, "hash": "h"}})
    assert run(tmp_path, "--yes") == 0
    assert "theirs: decided by a newer version of airflow-mirror (version 9)" in capsys.readouterr().out
    assert {key: value for key, value in target.ledger.values().items() if value is not None} == {
        "topic/theirs": NEWER, "active/other": NEWER,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "has_plan"),
    [
        ("topic/t", True), ("topic/before", True), ("active/m", True), ("plan/m", True), ("fence/m", True),
        ("direction/m", True), ("topic/theirs", False),
    ],
)  # fmt: skip
def test_newer_decision_that_may_be_the_mirrors_keeps_it(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, key: str,
    has_plan: bool,
) -> None:  # fmt: skip
    """Without a plan nobody can tell."""
    monkeypatch.setattr(ledger_store, "fetch", lambda *_: PLANNED)
    own(target, "m", "u")
    target.ledger.decide(lambda _: {"plan/m": {"v": 1, "hash": "h"}} if has_plan else {"future/y": 1})
    target.ledger.decide(lambda _: {key: NEWER})
    before = dict(target.ledger.values())
    assert run(tmp_path, "--yes") == 2
    assert "that this version can't read" in capsys.readouterr().err
    assert target.ledger.values() == before and not target.log


def test_chain_that_proves_reports_outlives_its_mirror(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files of its cutovers may have to be proven in years, and a mirror of the same name goes on with its numbers."""
    own(target, "m", "t")
    for number in range(2):
        chain.add(target.ledger, "m", "run", str(number))
    before = chain.links(target.ledger.values(), "m")
    assert run(tmp_path, "--yes", "--json") == 0
    assert chain.links(target.ledger.values(), "m") == before
    assert "the chain that proves the reports of its cutovers: 2 links" in json.loads(capsys.readouterr().out)["left"]


def test_what_was_handed_over_stays_decided(target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own(target, "m", "live", opened="noon")
    assert run(tmp_path, "--yes", "--json") == 0
    assert "topic/live" in target.ledger.values() and target.log == ["forget airflow-mirror:m:progress"]
    left = json.loads(capsys.readouterr().out)["left"]
    assert left[0] == "live: in production since noon. That stays decided: no task of the mirror may write there"


def test_a_shared_topic_stays_with_the_others_and_on_hold(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sharers = [Owned(topic_id="x", mirror=name, source_id="A") for name in ("m", "m2")]
    target.ledger.decide(lambda _: {"topic/t": Owned.shared(*sharers).value()})
    plan = plan_of(a_mirror(name="m"), topic_plan("t", {0: 0}, source_topic_id="s"))
    target.topics = lambda names: {name: TopicInfo(name, "x", 1, 1) for name in names}  # type: ignore[method-assign]
    monkeypatch.setattr(target, "delete_topics", lambda *_: None, raising=False)
    monkeypatch.setattr(core.Retirement, "_plans", [plan])
    monkeypatch.setattr(
        core, "sync_configs", lambda plan, *_, **__: SimpleNamespace(drift=[t.target_topic for t in plan.topics])
    )
    assert run(tmp_path, "--yes") == 0
    said = capsys.readouterr().out
    assert "stays      t: on hold, because others share it" in said and "settings" not in said
    assert target.ledger.values() == {"topic/t": Owned.shared(sharers[1]).value()}


def test_copy_of_a_topic_that_later_plans_lack_is_taken_off_hold(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted at the source, and planned without: what it was to be the last plan that had it says."""
    plans = [
        plan_of(
            a_mirror(name="m"),
            *(topic_plan(t, {0: 0}, source_topic_id="s", configs={"retention.ms": ms}) for t, ms in of.items()),
        )
        for of in ({"stays": "1", "goes": "2"}, {"stays": "3", "goes": "4"}, {"stays": "5"})
    ]
    for plan in plans:
        ledger_store.keep(plan, target.state, target.ledger)
    whole = {plan.hash: plan for plan in plans}
    monkeypatch.setattr(ledger_store, "fetch", lambda plan_hash, *_: whole[plan_hash])
    monkeypatch.setattr(target, "delete_topics", lambda *_: None, raising=False)
    target.topics = lambda names: {name: TopicInfo(name, "x", 1, 1) for name in names}  # type: ignore[method-assign]
    set_to: list[str] = []

    def sync(plan: Any, source: Any, _: object, _permit: Any, *, hold: bool, dry_run: bool) -> Any:
        rows = source.topic_configs([t.source_topic for t in plan.topics])
        lines = [f"{topic}: {key}={entry.value}" for topic, row in rows.items() for key, entry in row.items()]
        set_to.extend([] if dry_run else lines)
        return SimpleNamespace(drift=lines)

    monkeypatch.setattr(core, "sync_configs", sync)
    own(target, "m", "stays", "goes")
    assert run(tmp_path, "--yes") == 0
    assert set_to == ["stays: retention.ms=5", "goes: retention.ms=4"]
    assert "no plan that is kept" not in capsys.readouterr().out


def test_topics_that_are_somebody_elses_by_now_keep_their_settings(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another mirror holds them: with the source's own retention, the old records that it copies would be deleted."""
    mine, theirs = (Owned(topic_id="x", mirror=name, source_id="A") for name in ("m", "m2"))
    target.ledger.decide(lambda _: {"topic/t": mine.value()})
    plan = plan_of(a_mirror(name="m"), topic_plan("t", {0: 0}, source_topic_id="s"))
    target.topics = lambda names: {name: TopicInfo(name, "x", 1, 1) for name in names}  # type: ignore[method-assign]
    monkeypatch.setattr(core.Retirement, "_plans", [plan])
    applied = []

    def sync_configs(plan: Any, seen: Any, admin: Any, permit: Permit, *, dry_run: bool, **_: Any) -> Any:
        if not dry_run:
            target.ledger.decide(lambda _: {"topic/t": theirs.value()})  # it was frozen
            permit()
            applied.append(plan)
        return SimpleNamespace(drift=[t.target_topic for t in plan.topics])

    monkeypatch.setattr(core, "sync_configs", sync_configs)
    assert run(tmp_path, "--yes") != 0 and not applied
    assert "decided anew meanwhile; retire the mirror again" in capsys.readouterr().err


def test_settings_that_no_plan_knows_are_named(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own(target, "m", "t")
    assert run(tmp_path) == 0
    assert "stays      t: its settings; no plan that is kept says what they were to be" in capsys.readouterr().out


def test_long_lists_are_cut_for_people_only(target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own(target, "m", *(f"t{number}" for number in range(23)))
    assert run(tmp_path) == 0
    assert "topics     and 3 more (--json lists all)" in capsys.readouterr().out
    assert run(tmp_path, "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["steps"][0]["lines"]) == 23


def test_held_lease_is_ended_only_when_told(target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target.held = True
    assert run(tmp_path, "--yes") == 2
    assert "mirror 'm' is still active\n  why: a job holds its writer lease" in capsys.readouterr().err and target.maps
    assert run(tmp_path, "--yes", "--end-writing") == 0
    assert target.log[0] == "writing of m ends, topics are given up" and not target.maps


def test_fence_of_a_killed_cutover_keeps_the_mirror(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(target, UP)
    assert run(tmp_path, "--yes", "--source", "src") == 2
    assert (
        "is up, raised from host w-3. Nothing was changed\n  do:  Lift it ('airflow-mirror lift-fence')"
        in capsys.readouterr().err
    )
    assert target.maps and target.log == []


def test_cutover_that_died_behind_its_opening_keeps_the_mirror(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its next process goes on from there; nobody has kept that fence on purpose."""
    fenced(target, OPENED)
    ReportStore(target.state, "m", "monday", None).save(CutoverReport(mirror="m", plan_hash="x", id="i"))
    before = dict(target.ledger.values()), target.state.read()
    for options in (["--yes"], ["--yes", "--source", "src"]):
        assert run(tmp_path, *options) == 2
        assert "cutover monday has opened the target, and its report does not say" in capsys.readouterr().err
    assert (target.ledger.values(), target.state.read()) == before and target.log == [] and target.maps


@pytest.mark.parametrize(("done", "status"), [((), 2), (STEPS[:-1], 2), (STEPS, 0)])
def test_failover_that_is_not_complete_keeps_the_mirror(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], done: tuple[str, ...], status: int
) -> None:
    """The source is gone: what its writers may do, and where groups stand, only this ledger says."""
    own(target, "m", "t", opened="failover x")
    one = Direction(generation=1, primary="B", by=FAILOVER, attempt="x", plan="h", at="noon")
    target.ledger.decide(lambda _: turn("m", one))
    Record(target.state, "m", "x").write_done({name: {"count": 0, "lines": []} for name in done})
    before = dict(target.ledger.values()), target.state.read()
    assert run(tmp_path, "--yes") == status
    said = capsys.readouterr().err
    if status:
        missing = ", ".join(STEPS[len(done) :])
        assert f"its failover of noon is not complete: {missing}. Nothing was changed" in said
        assert (target.ledger.values(), target.state.read()) == before and target.log == [] and target.maps


@pytest.mark.parametrize("when", ["while writing is waited for", "while maps go", "behind the decisions"])
def test_what_lifts_a_fence_that_goes_up_meanwhile_stays(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A cutover has looked for ten seconds when the mirror is retired. Or it can't raise its fence any more."""
    own(target, "m", "t")
    ledger_store.keep(PLANNED, target.state, target.ledger)
    monkeypatch.setattr(core.Retirement, "_plans", [])
    up = FenceState(
        run="r", attempt=1, id="A", plan=PLANNED.hash, revision=PLANNED.hash, owner="A", max_fence_s=60.0,
    )  # fmt: skip
    report = ReportStore(target.state, "m", "r", None)
    refused: list[PlanNotKept] = []

    def goes_up() -> None:
        try:
            go_up(target.ledger, "m", up, None, None)
            report.save(CutoverReport(mirror="m", plan_hash=PLANNED.hash))
        except PlanNotKept as e:
            refused.append(e)

    at = {
        "while writing is waited for": (target, "end_writing"), "while maps go": (Maps, "remove_all"),
        "behind the decisions": (ownership, "free"),
    }  # fmt: skip
    where, name = at[when]
    do = getattr(where, name)
    monkeypatch.setattr(where, name, lambda *given, **named: (do(*given, **named), goes_up()))
    done = run(tmp_path, "--yes")
    if when == "behind the decisions":
        assert done == 0 and refused and not target.state.read()
        assert target.ledger.values().get("fence/m") is None
        return
    assert done == 1 and "a cutover went on meanwhile" in capsys.readouterr().err
    assert fence_state(target.ledger.values(), "m") == up and report.load() is not None
    assert ledger_store.plan_in(target.state.read(), "m", PLANNED.hash) == PLANNED
    assert bool(target.maps) is (when == "while writing is waited for")


def test_fence_of_a_finished_cutover_is_lifted_on_request(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything else, because its plan says how. Until then its report stays: it says what the fence changed."""
    fenced(target, OPENED)
    target.state.write({"plan/m/x/0/1": b"{}", "plan/m/earlier/0/1": b"{}"})

    def lift(arguments: Any, where: Target, fence: FenceState) -> str:
        assert (arguments.source, arguments.fence, arguments.include_retained) == ("src", "acl", True)
        target.log.append(f"lift {fence.run}, {len(where.maps)} map")
        note_copy(target.ledger, "m", replace(fence, phase=CLOSED))
        return "lifted"

    monkeypatch.setattr(retire, "lift", lift)
    assert run(tmp_path, "--yes") == 0
    assert (
        "the fence of cutover monday, kept on purpose, its plan and its report: --source lifts it"
        in capsys.readouterr().out
    )
    assert sorted({"/".join(key.split("/")[:3]) for key in target.state.read()}) == ["plan/m/x", "report/m/monday"]
    assert set(target.ledger.values()) == {"fence/m"}
    target.maps, target.log = ["m/t/t-0"], []
    assert run(tmp_path, "--source", "src", "--yes") == 0
    assert target.log[0] == "lift monday, 1 map"
    assert "names a rule that comes late" in capsys.readouterr().out
    for _ in range(2):
        assert set(target.state.read()) == {"plan/m/x/0/1"} and set(target.ledger.values()) == {"fence/m"}
        assert run(tmp_path, "--yes") == 0


def test_nothing_stays_of_a_fence_that_no_rule_of_can_come_late(target: Target, tmp_path: Path) -> None:
    fenced(target, LIFTED, kind="callable")
    assert run(tmp_path, "--yes") == 0
    assert not target.state.read() and not target.ledger.values()
