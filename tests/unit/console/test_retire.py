"""``airflow-mirror retire``: what it takes away, in which order, and what keeps it from beginning."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_mirror.common.policy import STATE
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.decision import LIFTED, OPENED, UP, FenceState, fence_state, go_up
from airflow_mirror.cutover.failover.record import STEPS, Record
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.errors import PlanNotKept
from airflow_mirror.jobs.runner.active import ActiveTail
from airflow_mirror.ledger import chain
from airflow_mirror.ledger.records import ACTIVE, PLAN
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.direction import FAILOVER, Direction, turn
from airflow_mirror.plan.mm2_topics import mark, marked
from airflow_mirror.plan.owned import Owned
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster
from tests.driven.script import Fault, Request
from tests.unit.console.conftest import Time
from tests.unit.console.retiring import PLANNED, Target, before, fenced, is_fenced, kept_fence, own, run, state_of
from tests.unit.plan.builders import a_mirror


@pytest.fixture
def target(dst: LedgerCluster, time: Time) -> Target:
    return Target(dst, time)


def test_nothing_of_another_mirror_is_touched(target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither of one whose name begins alike, nor a topic that has the mirror's name."""
    own(target, "m", "t")
    own(target, "m2", "m", "u")
    target.ledger.decide(lambda _: {"active/m2": {"v": 9}, "plan/m2": {"v": 9}})
    for mirror in ("m", "m2"):
        target.state.write(state_of(mirror))
    found = *target.said, target.positions
    assert run(target, tmp_path) == 0
    assert (*target.said, target.positions) == found and not target.changed
    assert capsys.readouterr().out.splitlines()[-1] == "nothing was changed (--yes does it)"
    assert run(target, tmp_path, "--yes") == 0
    assert set(target.decided()) == {"topic/m", "topic/u", "active/m2", "plan/m2"}
    assert target.state.read() == state_of("m2")
    assert target.positions == {"airflow-mirror:m:progress": 0, "airflow-mirror:m2:progress": 1} and target.maps == []
    assert target.ended == [True], "its topics are given up before"
    asked = len(target.cluster.asked("OffsetDelete"))
    assert run(target, tmp_path, "--yes") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nothing is left of mirror 'm'"
    assert len(target.ended) == 1 and len(target.cluster.asked("OffsetDelete")) == asked
    target.cluster.delete(STATE)  # in the end it is asked for the rows of its keys, and "future" has none


def test_topics_of_traces_stay_and_stay_marked(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others may write there too; and a mirror from the target must never copy them."""
    plan = replace(PLANNED, mirror=a_mirror(name="m", source_alias="A", traces="heartbeats"))
    for topic in (*plan.mirror.trace_topics_of("heartbeats"), *plan.mirror.trace_topics_of("checkpoints")):
        target.topic(topic)
    own(target, "m", "t")
    ledger_store.keep(plan, target.state, target.ledger)
    mark(target.ledger, ["heartbeats", "A.heartbeats", "B.heartbeats", "A.checkpoints.internal"])
    assert run(target, tmp_path, "--yes") == 0
    said = capsys.readouterr().out
    for topic in ("heartbeats", "A.heartbeats", "A.checkpoints.internal"):
        assert f"{topic}: traces for Java clients" in said, said
    assert "B.heartbeats" not in said and "mm2-offset-syncs" not in said
    assert len(marked(target.ledger.values())) == 4


NEWER = {"v": 9, "all": "different"}


def test_newer_decision_about_another_mirrors_topic_is_no_obstacle(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own plan never had that topic. It is listed, and stays as it is."""
    ledger_store.keep(PLANNED, target.state, target.ledger)
    own(target, "m", "t")
    target.ledger.decide(lambda _: {"topic/theirs": NEWER, "active/other": NEWER})
    assert run(target, tmp_path, "--yes") == 0
    assert "theirs: decided by a newer version of airflow-mirror (version 9)" in capsys.readouterr().out
    assert target.decided() == {"topic/theirs": NEWER, "active/other": NEWER}


@pytest.mark.parametrize(
    ("key", "has_plan"),
    [
        ("topic/t", True), ("topic/before", True), ("active/m", True), ("plan/m", True), ("fence/m", True),
        ("direction/m", True), ("topic/theirs", False),
    ],
)  # fmt: skip
def test_newer_decision_that_may_be_the_mirrors_keeps_it(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, has_plan: bool
) -> None:
    """Without a plan nobody can tell."""
    own(target, "m", "u")
    if has_plan:
        ledger_store.keep(PLANNED, target.state, target.ledger)
    target.ledger.decide(lambda _: {key: NEWER})
    found = target.said
    assert run(target, tmp_path, "--yes") == 2
    assert "that this version can't read" in capsys.readouterr().err
    assert target.said == found and not target.changed


def test_chain_that_proves_reports_outlives_its_mirror(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files of its cutovers may have to be proven in years, and a mirror of the same name goes on with its numbers."""
    own(target, "m", "t")
    for number in range(2):
        chain.add(target.ledger, "m", "run", str(number))
    found = chain.links(target.ledger.values(), "m")
    assert run(target, tmp_path, "--yes", "--json") == 0
    assert chain.links(target.ledger.values(), "m") == found
    assert "the chain that proves the reports of its cutovers: 2 links" in json.loads(capsys.readouterr().out)["left"]


def test_what_was_handed_over_stays_decided(target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own(target, "m", "live", opened="noon")
    assert run(target, tmp_path, "--yes", "--json") == 0
    assert "topic/live" in target.ledger.values() and not target.ended
    assert target.positions["airflow-mirror:m:progress"] == 0
    left = json.loads(capsys.readouterr().out)["left"]
    assert left[0] == "live: in production since noon. That stays decided: no task of the mirror may write there"


def test_a_shared_topic_stays_with_the_others_and_on_hold(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic_id = target.topic("t", retention_ms="-1")
    sharers = [Owned(topic_id=topic_id, mirror=name, source_id="A") for name in ("m", "m2")]
    target.ledger.decide(lambda _: {"topic/t": Owned.shared(*sharers).value()})
    plan = plan_of(a_mirror(name="m"), topic_plan("t", {0: 0}, source_topic_id="s", configs={"retention.ms": "5"}))
    ledger_store.keep(plan, target.state, target.ledger)
    assert run(target, tmp_path, "--yes") == 0
    said = capsys.readouterr().out
    assert "stays      t: on hold, because others share it" in said and "settings" not in said
    assert target.decided() == {"topic/t": Owned.shared(sharers[1]).value()}
    assert target.settings("t") == {"retention.ms": "-1"}


def test_copy_of_a_topic_that_later_plans_lack_is_taken_off_hold(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    for topic in ("stays", "goes"):
        own(target, "m", topic, topic_id=target.topic(topic, retention_ms="-1"))
    assert run(target, tmp_path, "--yes") == 0
    assert [target.settings(topic) for topic in ("stays", "goes")] == [{"retention.ms": "5"}, {"retention.ms": "4"}]
    assert "no plan that is kept" not in capsys.readouterr().out


def test_topics_that_are_somebody_elses_by_now_keep_their_settings(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another mirror holds them: with the source's own retention, the old records that it copies would be deleted."""
    topic_id = target.topic("t", retention_ms="-1")
    mine, theirs = (Owned(topic_id=topic_id, mirror=name, source_id="A") for name in ("m", "m2"))
    target.ledger.decide(lambda _: {"topic/t": mine.value()})
    plan = plan_of(a_mirror(name="m"), topic_plan("t", {0: 0}, source_topic_id="s", configs={"retention.ms": "5"}))
    ledger_store.keep(plan, target.state, target.ledger)

    def frozen(_: Request) -> None:
        target.ledger.decide(lambda _: {"topic/t": theirs.value()})

    def looks(request: Request) -> bool:
        return bool(target.ended) and [one.resource_name for one in request.message.resources] == ["t"]

    looked = target.cluster.script.on(
        "DescribeConfigs", Fault(before=frozen), nth=2, when=looks
    )  # 1: what there is to do
    assert run(target, tmp_path, "--yes") != 0 and looked.hits and target.settings("t") == {"retention.ms": "-1"}
    assert "decided anew meanwhile\n  do:  Retire the mirror again" in capsys.readouterr().err


def test_settings_that_no_plan_knows_are_named(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own(target, "m", "t")
    assert run(target, tmp_path) == 0
    assert "stays      t: its settings; no plan that is kept says what they were to be" in capsys.readouterr().out


def test_last_plan_that_can_not_be_loaded_keeps_no_mirror(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else ends a mirror that can't be planned again. What its plan alone knows is named before that."""
    own(target, "m", "t")
    ledger_store.keep(PLANNED, target.state, target.ledger)
    older = PLANNED.to_json().replace('"version": 2', '"version": 1')
    target.state.write(PLAN.pieces(older, "m", PLANNED.hash))
    assert run(target, tmp_path) == 0 and "t: its settings; no plan that is kept" in capsys.readouterr().out
    assert run(target, tmp_path, "--yes") == 0
    assert not [key for key in target.state.read() if key.startswith("plan/")]


def test_long_lists_are_cut_for_people_only(target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own(target, "m", *(f"t{number}" for number in range(23)))
    assert run(target, tmp_path) == 0
    assert "topics     and 3 more (--json lists all)" in capsys.readouterr().out
    assert run(target, tmp_path, "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["steps"][0]["lines"]) == 23


def test_held_lease_is_ended_only_when_told(target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lease.take(target.cluster.admin.wire, "m")
    assert run(target, tmp_path, "--yes") == 2
    assert "mirror 'm' is still active\n  why: a job holds its writer lease" in capsys.readouterr().err and target.maps
    assert run(target, tmp_path, "--yes", "--end-writing") == 0
    assert target.ended == [True] and not target.maps


def test_fence_of_a_killed_cutover_keeps_the_mirror(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(target, UP)
    assert run(target, tmp_path, "--yes", "--source", "src") == 2
    assert (
        "is up, raised from host w-3. Nothing was changed\n  do:  Lift it ('airflow-mirror lift-fence')"
        in capsys.readouterr().err
    )
    assert target.maps and not target.changed


def test_cutover_that_died_behind_its_opening_keeps_the_mirror(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its next process goes on from there; nobody has kept that fence on purpose."""
    fenced(target, OPENED)
    ReportStore(target.state, "m", "monday", None).save(CutoverReport(mirror="m", plan_hash="x", id="i"))
    found = target.said
    for options in (["--yes"], ["--yes", "--source", "src"]):
        assert run(target, tmp_path, *options) == 2
        assert "cutover monday has opened the target, and its report does not say" in capsys.readouterr().err
    assert target.said == found and not target.changed and target.maps


@pytest.mark.parametrize(("done", "status"), [((), 2), (STEPS[:-1], 2), (STEPS, 0)])
def test_failover_that_is_not_complete_keeps_the_mirror(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], done: tuple[str, ...], status: int
) -> None:
    """The source is gone: what its writers may do, and where groups stand, only this ledger says."""
    own(target, "m", "t", opened="failover x")
    one = Direction(generation=1, primary="B", by=FAILOVER, attempt="x", plan="h", at="noon")
    target.ledger.decide(lambda _: turn("m", one))
    for name in done:
        Record(target.state, "m", "x").write_done(name, {"count": 0, "lines": []})
    found = target.said
    assert run(target, tmp_path, "--yes") == status
    said = capsys.readouterr().err
    if status:
        missing = ", ".join(STEPS[len(done) :])
        assert f"its failover of noon is not complete: {missing}. Nothing was changed" in said
        assert target.said == found and not target.changed and target.maps


@pytest.mark.parametrize("has_tail", [True, False])
def test_failover_of_a_mirror_that_was_started_over_since_is_not_completed(
    target: Target, tmp_path: Path, has_tail: bool
) -> None:
    """The same command again would fail over its new topics, and their source lives."""
    own(target, "m", "t")
    plan = replace(PLANNED, source_cluster_id="A")
    ledger_store.keep(plan, target.state, target.ledger)
    one = Direction(generation=1, primary="B", by=FAILOVER, attempt="x", plan="h", at="noon")
    tail = ActiveTail(mirror={"name": "m"}, plan=plan.hash, inputs="", directory="", host="far", where="far")
    begun = {ACTIVE.key("m"): tail.value()} if has_tail else {}  # what only bulk copies have begun has none
    target.ledger.decide(lambda _: {**turn("m", one), **begun})
    assert run(target, tmp_path, "--yes") == 0


@pytest.mark.parametrize("when", ["while writing is waited for", "while maps go", "behind the decisions"])
def test_what_lifts_a_fence_that_goes_up_meanwhile_stays(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    """A cutover has looked for ten seconds when the mirror is retired. Or it can't raise its fence any more."""
    own(target, "m", "t")
    ledger_store.keep(PLANNED, target.state, target.ledger)
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

    steps = {"while maps go": "groups", "behind the decisions": "state"}  # what comes next
    if when in steps:
        listening: AbstractContextManager[object] = before(steps[when], goes_up)
    else:
        target.meanwhile, listening = goes_up, nullcontext()
    with listening:
        done = run(target, tmp_path, "--yes")
    if when == "behind the decisions":
        assert done == 0 and refused and not target.state.read()
        assert target.ledger.values().get("fence/m") is None
        return
    assert done == 1 and "a cutover went on meanwhile" in capsys.readouterr().err
    assert fence_state(target.ledger.values(), "m") == up and report.load() is not None
    assert ledger_store.plan_in(target.state.read(), "m", PLANNED.hash) == PLANNED
    assert bool(target.maps) is (when == "while writing is waited for")


def test_fence_of_a_finished_cutover_is_lifted_on_request(
    target: Target, src: DrivenCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything else, because its plan says how. Until then its report stays: it says what the fence changed."""
    kept_fence(target, src)
    target.state.write({"plan/m/earlier/0/1": b"{}"})
    assert run(target, tmp_path, "--yes") == 0
    assert (
        "the fence of cutover monday, kept on purpose, its plan and its report: --source lifts it"
        in capsys.readouterr().out
    )
    plan = f"plan/m/{PLANNED.hash}"
    assert sorted({"/".join(key.split("/")[:3]) for key in target.state.read()}) == [plan, "report/m/monday"]
    assert set(target.decided()) == {"fence/m"} and is_fenced(src)
    target.begin_map()
    maps: list[int] = []
    src.script.on("DeleteAcls", Fault(before=lambda _: maps.append(len(target.maps))))
    src.cluster_id = "another"
    assert run(target, tmp_path, "--source", "src", "--yes") == 2 and set(target.decided()) == {"fence/m"}
    assert "the source is cluster another" in capsys.readouterr().err and is_fenced(src) and not maps
    src.cluster_id = "s"
    assert run(target, tmp_path, "--source", "src", "--yes") == 0
    assert maps == [1] and not is_fenced(src)
    assert "names a rule that comes late" in capsys.readouterr().out
    for _ in range(2):
        assert {"/".join(key.split("/")[:3]) for key in target.state.read()} == {plan}
        assert set(target.decided()) == {"fence/m"}
        assert run(target, tmp_path, "--yes") == 0


def test_nothing_stays_of_a_fence_that_no_rule_of_can_come_late(target: Target, tmp_path: Path) -> None:
    fenced(target, LIFTED, kind="callable")
    assert run(target, tmp_path, "--yes") == 0
    assert not target.state.read() and not target.decided()
