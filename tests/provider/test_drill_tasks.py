"""Tasks of a drill: what they may create, lose and delete, and how it is judged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_mirror.errors import TryAgain
from airflow_mirror.extras.drill.canaries import Canaries
from airflow_mirror.extras.drill.clean_up import Cleaned, Own
from airflow_mirror.extras.drill.failback import FailbackReport
from airflow_mirror.extras.drill.groups import GroupOutlook, Outlook
from airflow_mirror.extras.drill.page import render
from airflow_mirror.extras.drill.rehearsal import planned
from airflow_mirror.extras.drill.report import DrillReport
from airflow_mirror.extras.drill.store import Drill, Drills
from airflow_mirror.hooks.home import report_dir
from airflow_mirror.hooks.tail import TailView
from airflow_mirror.jobs.health.judging import TailFacts
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.drill import (
    CleanUpDrillOperator,
    FailBackDrillOperator,
    FailOverDrillOperator,
    LoseSourceOperator,
    OpenDrillOperator,
    RehearseFaultsOperator,
    RehearseGroupsOperator,
)
from airflow_mirror.plan import Plan
from tests.provider.conftest import PLAN, InMemory, store_plan
from tests.unit.ledger.memory import MemoryLedger, MemoryState


def test_drill_with_mapped_offsets_is_refused_beforehand(
    context: dict[str, Any], connections: Callable[..., None], mirror: dict[str, Any], plan: Plan, home: Path
) -> None:
    """Nothing has been lost by then."""
    with pytest.raises(
        AirflowFailException, match=r"offsets='mapped'\n  why: a drill reads the same positions on both sides"
    ):
        OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"], "offsets": "mapped"}).execute(context)
    mapped = store_plan(home, replace(plan, topics=(replace(plan.topics[0], mode="mapped"),)))
    with pytest.raises(AirflowFailException, match="the plan maps the offsets of t"):
        LoseSourceOperator(plan=mapped.hash, task_id="t", mirror=mirror).execute(context)


def test_tail_on_another_host_makes_no_disaster(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be killed from here, and no canary is written."""
    monkeypatch.setattr("airflow_mirror.extras.drill.disaster.warm_up", lambda *_: pytest.fail("canaries were written"))
    job = Path(tail["dir"], "job.json")
    job.write_text(json.dumps({**tail, "host": "another", "where": "another"}))
    monkeypatch.setattr(LocalRunner, "status", lambda *_: "RUNNING")
    with pytest.raises(AirflowException, match="TryAgain: job 'tail' runs on host 'another'"):
        LoseSourceOperator(plan=PLAN, task_id="t", mirror=mirror).execute(context)
    monkeypatch.undo()
    job.write_text(json.dumps(tail))


def test_tail_that_died_before_its_disaster_is_no_measurement(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], state: MemoryState, clusters: InMemory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Else its own fault would be the disaster's loss."""
    opened(state, clusters, "t")
    statuses = iter(["RUNNING", "FAILED"])
    monkeypatch.setattr("airflow_mirror.extras.drill.disaster.warm_up", lambda *_: 0.0)
    monkeypatch.setattr("airflow_mirror.extras.drill.disaster.write_canaries", lambda *_, disaster, **__: disaster())
    monkeypatch.setattr(LocalRunner, "status", lambda *_: next(statuses))
    with pytest.raises(
        AirflowFailException,
        match=r"the drill did not show what it is for\n  why: the tail was FAILED before it was killed",
    ):
        LoseSourceOperator(plan=PLAN, task_id="t", mirror=mirror).execute(context)
    monkeypatch.undo()


@pytest.mark.usefixtures("connections")
def test_groups_of_a_real_mirror_are_in_the_drills_report(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def look(name: str, source: ClusterAdmin, target: ClusterAdmin) -> Outlook:
        asked.append(f"{name} from {source.role} to {target.role}")
        one = GroupOutlook(group="app", partitions=1, reread=5, unplaced=["t-0: why"])
        return Outlook(mirror=name, at_ms=7, groups=(one,), left_behind=(), hidden=("some, perhaps",))

    monkeypatch.setattr("airflow_mirror.extras.drill.groups.look", look)
    assert RehearseGroupsOperator(task_id="t", mirror=mirror, groups_of="").execute(context) == {}
    assert RehearseGroupsOperator(task_id="t", mirror=mirror, groups_of=None).execute(context) == {}  # type: ignore[arg-type]
    assert asked == [] and state.read() == {}
    found = RehearseGroupsOperator(task_id="t", mirror=mirror, groups_of=7).execute(context)  # type: ignore[arg-type]
    assert found == {"mirror": "7", "count": 1, "reread": 5, "skipped": 0, "unplaced": 1, "hidden": ["some, perhaps"]}
    assert asked == ["7 from source to target"]
    (drill,) = Drills(state, "m").all()
    assert drill.groups["rows"][0]["group"] == "app"
    assert json.loads((home / "m" / "runs" / drill.run / "drill.json").read_text())["groups"] == drill.groups


@pytest.mark.usefixtures("connections")
def test_what_a_drill_measured_is_kept_before_it_fails(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = DrillReport(
        topic="t", acknowledged=9, on_target=8, lost=1, rpo_s=6.0, rto_s=2.0, first_read_s=1.0, first_write_s=2.0,
        skipped=0, reread=0,
    )  # fmt: skip
    monkeypatch.setattr("airflow_mirror.extras.drill.failover.fail_over", lambda *_: figures)
    Canaries(topic="t", group="t").save(report_dir(Mirror.coerce(mirror), context["ti"].run_id) / "canaries.json")
    note(state, Drill(run="manual__1", at_ms=7, wanted={"rpo_s": 5.0, "rto_s": 120.0}))
    assert FailOverDrillOperator(task_id="t", mirror=mirror).execute(context)["rpo_s"] == 6.0
    (drill,) = Drills(state, "m").all()
    assert drill.figures == figures.to_dict() and drill.missed is None, "nothing fails before the clean-up"


def note(state: MemoryState, drill: Drill) -> None:
    Drills(state, "m").save(drill)


def opened(state: MemoryState, clusters: InMemory, topic: str, **noted: Any) -> None:
    """Have the source a topic, and the drill's record say that the drill has created it; or what else is noted."""
    there = {"topics": [topic], "ids": {topic: clusters.source.create(topic).topic_id}}
    note(state, Drill(run="manual__1", at_ms=7, **{**there, **noted}))


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize("noted", [{"topics": [], "ids": {}}, {"ids": {"t": "of before"}}, {"ids": {}}])
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (LoseSourceOperator, {"plan": PLAN}), (FailBackDrillOperator, {}),
        (RehearseFaultsOperator, {"rehearse": ["recreate_topic", "kill_tail"]}),
    ],
)  # fmt: skip
def test_topic_that_the_drill_has_not_created_is_left_alone(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, clusters: InMemory, kind: Any,
    how: dict[str, Any], noted: dict[str, Any], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its opening has failed because the topic exists, and was marked as successful: somebody's topic was deleted."""
    opened(state, clusters, "t", **noted)
    Canaries(topic="t", group="t").save(report_dir(Mirror.coerce(mirror), context["ti"].run_id) / "canaries.json")
    monkeypatch.setattr("airflow_mirror.operators.drill.killer", lambda _: lambda: pytest.fail("its tail was killed"))
    monkeypatch.setattr("airflow_mirror.operators.drill.health_of", lambda *_: [])
    for touches in ("disaster.warm_up", "failback.fail_back", "failback.create_again"):
        monkeypatch.setattr(f"airflow_mirror.extras.drill.{touches}", lambda *_: pytest.fail("the topic was touched"))
    before = state.read()
    with pytest.raises(AirflowFailException, match=r"(?s)topics='t'.*it is not\s+the drill's.*Clear the whole run"):
        kind(task_id="t", mirror=mirror, **how).execute(context)
    assert state.read() == before


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Topics that were deleted, on either side."""
    topics: list[str] = []

    def clean_up(_clusters: Any, topic: str, group: str, own: Own) -> Cleaned:
        assert topic == group and own.mirror == "m"
        topics.append(topic)
        return Cleaned(["target: no broker answered"] if topic.endswith("stuck") else [], [])

    monkeypatch.setattr("airflow_mirror.extras.drill.clean_up.clean_up", clean_up)
    return topics


GOOD = {"rpo_s": 1.0, "rto_s": 2.0, "lost": 3, "skipped": 0, "reread": 0, "acknowledged": 9, "first_read_s": 1.0,
        "first_write_s": 2.0}  # fmt: skip
WANTED = {"rpo_s": 5.0, "rto_s": 30.0}
BACK = {"surplus": 3, "nowhere": 0, "records": 9, "differing": [], "skipped": 0, "reread": 0, "took_s": 3.0}


_MISSED = r"DrillMissed: the drill did not show what it is for\n  why: "


@pytest.mark.usefixtures("connections", "home")
@pytest.mark.parametrize(
    ("figures", "error"),
    [
        ({}, _MISSED + r"nothing was measured"),
        ({**GOOD, "rpo_s": 6.5}, _MISSED + r"RPO 6.50 s \(3 records lost\), wanted at most 5 s"),
        ({**GOOD, "reread": 7}, _MISSED + r"the group skipped 0 and re-read 7 records"),
    ],
)  # fmt: skip
def test_a_drill_is_judged_after_its_clean_up(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cleaned: list[str], figures: Any, error: str
) -> None:
    """Whatever ended it: a run that is marked as failed runs its teardowns, and must not turn green by them."""
    note(state, Drill(run="manual__1", at_ms=7, topics=["drill-1"], figures=figures, wanted=WANTED, failback=BACK))
    with pytest.raises(AirflowFailException, match=error):
        CleanUpDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)
    (drill,) = Drills(state, "m").all()
    assert cleaned == ["drill-1"] and drill.topics == [] and drill.missed


@pytest.mark.usefixtures("connections", "home")
def test_a_drill_that_measured_nothing_is_red_where_it_failed(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cleaned: list[str]
) -> None:
    """And nowhere else; one that was ended has no task that failed. What was measured is judged all the same."""
    drills, context["ti"].states = (
        {**mirror, "topics": ["drill-1"]},
        {"plan": "failed", "create_topics": "upstream_failed"},
    )
    note(state, Drill(run="manual__1", at_ms=7, topics=["drill-1"], wanted=WANTED))
    assert CleanUpDrillOperator(task_id="t", mirror=drills).execute(context)["deleted"] == ["drill-1"]
    (drill,) = Drills(state, "m").all()
    assert cleaned == ["drill-1"] and drill.missed
    note(state, Drill(run="manual__1", at_ms=7, figures={**GOOD, "rpo_s": 6.5}, wanted=WANTED, failback=BACK))
    with pytest.raises(AirflowFailException, match="RPO"):
        CleanUpDrillOperator(task_id="t", mirror=drills).execute(context)


@pytest.mark.usefixtures("connections", "home", "cleaned")
def test_cleared_run_is_not_judged_by_what_it_measured_before(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, clusters: InMemory
) -> None:
    """Whatever ends it on its second way: figures of the first one would say that it met its objectives."""
    drills = {**mirror, "topics": ["drill-1"]}
    rows = [{"fault": "kill_tail", "at_ms": 1, "noticed_s": 2.0, "how": "tail: lost"}]
    before = Drill(run="manual__1", at_ms=7, figures=GOOD, wanted=WANTED, failback=BACK, rehearsal=rows, missed=[])
    note(state, before)
    OpenDrillOperator(task_id="t", mirror=drills, rehearse=["kill_tail"]).execute(context)
    OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1.faults"]}).execute(context)
    assert list(clusters.source.topics) == ["drill-1", "drill-1.faults"]
    (drill,) = Drills(state, "m").all()
    assert drill.ids == {name: topic.topic_id for name, topic in clusters.source.topics.items()}
    assert drill.at_ms > 7 and drill.missed is None and drill.topics == ["drill-1", "drill-1.faults"]
    with pytest.raises(AirflowFailException, match="nothing was measured(.|\n)*no failback(.|\n)*it was not injected"):
        CleanUpDrillOperator(task_id="t", mirror=drills).execute(context)


@pytest.mark.usefixtures("connections")
@pytest.mark.parametrize("wanted", ["True", "False"])
def test_way_back_is_kept_and_can_be_left_out(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, home: Path, wanted: str,
    clusters: InMemory, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A source before 3.0 can't be a target."""
    opened(state, clusters, "t")
    monkeypatch.setattr("airflow_mirror.extras.drill.failback.fail_back", lambda *_: FailbackReport(**BACK))  # type: ignore[arg-type]
    Canaries(topic="t", group="t").save(report_dir(Mirror.coerce(mirror), context["ti"].run_id) / "canaries.json")
    expected = BACK if wanted == "True" else {"left_out": True}
    assert FailBackDrillOperator(task_id="t", mirror=mirror, failback=wanted).execute(context) == expected
    (drill,) = Drills(state, "m").all()
    assert drill.failback == expected
    drill.figures = GOOD
    page = render(drill, [])
    assert ("9 records copied back" in page) is (wanted == "True")


@pytest.mark.usefixtures("connections", "home")
def test_faults_that_were_planned_and_never_injected_fail_the_drill(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cleaned: list[str]
) -> None:
    rows = planned(["kill_tail"])
    note(state, Drill(run="manual__1", at_ms=7, figures=GOOD, wanted=WANTED, failback=BACK, rehearsal=rows))
    with pytest.raises(AirflowFailException, match="rehearsal of kill_tail: it was not injected"):
        CleanUpDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)


@pytest.mark.usefixtures("connections", "home")
def test_unknown_fault_is_named_before_anything_is_done(context: dict[str, Any], mirror: dict[str, Any]) -> None:
    opens = OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}, rehearse="pull_the_plug")
    with pytest.raises(AirflowFailException, match=r"rehearse=\['pull_the_plug'\]\n  why: no such fault"):
        opens.execute(context)


@pytest.mark.usefixtures("connections", "home")
def test_drill_begins_the_ledger_of_a_fresh_target_before_it_notes_anything(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, clusters: InMemory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its note alone looked like what a lost ledger leaves: nothing could be begun on that target any more."""
    begun = list[object]()

    def begin(_: MemoryLedger) -> None:
        begun.append((dict(state.read()), list(clusters.source.topics)))

    monkeypatch.setattr(MemoryLedger, "begin", begin)
    topic = OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)["topic"]
    assert begun == [({}, [])] and list(clusters.source.topics) == [topic]
    assert any(key.startswith("drill/") for key in state.read())


def test_faults_are_injected_and_what_notices_them_is_kept(
    context: dict[str, Any], tail: Any, mirror: dict[str, Any], state: MemoryState, clusters: InMemory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A tail that is killed is found to be lost; a look that fails has found nothing."""
    opened(state, clusters, "drill-1")
    looks = iter(["RUNNING", TryAgain("no broker answered"), "LOST"])

    def look(_view: object, _mirror: object) -> TailFacts:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return TailFacts(active=_tail(), status=found)

    def _tail() -> Any:
        return SimpleNamespace(host="h", differing=())

    statuses = iter(["RUNNING", "RUNNING"])
    monkeypatch.setattr(TailView, "look", look)
    monkeypatch.setattr(LocalRunner, "status", lambda *_: next(statuses))
    task = RehearseFaultsOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}, rehearse=["kill_tail"])
    (noticed,) = task.execute(context).values()
    monkeypatch.undo()
    (drill,) = Drills(state, "m").all()
    (row,) = drill.rehearsal
    assert noticed == row["noticed_s"] is not None and row["how"].startswith("tail: ") and "not known" not in row["how"]
    assert process.members(Path(tail["dir"])) == [], "it was killed"


@pytest.mark.usefixtures("connections")
def test_good_drill_is_cleaned_up_once_and_its_page_is_linked(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cleaned: list[str], home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("AIRFLOW__MIRROR__FILES_URL", "https://files.example.com/mirror")
    note(state, Drill(run="manual__1", at_ms=7, topics=["drill-1"], figures=GOOD, wanted=WANTED, failback=BACK))
    for deleted in (["drill-1"], []):
        task = CleanUpDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]})
        assert task.execute(context) == {"deleted": deleted}
    assert cleaned == ["drill-1"] and list(task.shown_links.values()) == [
        "https://files.example.com/mirror/m/runs/manual__1/drill.html"
    ]
    assert "Met its objectives." in (home / "m" / "runs" / "manual__1" / "drill.html").read_text()


@pytest.mark.usefixtures("connections", "home")
def test_what_could_not_be_deleted_is_tried_again(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cleaned: list[str]
) -> None:
    """A broker that is away for a minute leaves no topic behind; and what is left stays noted."""
    note(
        state,
        Drill(run="manual__1", at_ms=7, topics=["drill-1.stuck", "drill-1"], figures=GOOD, wanted=WANTED, failback=BACK),
    )
    for _ in range(2):
        with pytest.raises(
            AirflowException, match=r"could not delete .*\n.* 'drill-1.stuck' on the target: no broker answered"
        ) as e:
            CleanUpDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)
        assert not isinstance(e.value, AirflowFailException)
    (drill,) = Drills(state, "m").all()
    assert drill.topics == ["drill-1.stuck"]
    assert drill.missed == ["left behind: 'drill-1.stuck' on the target: no broker answered"]
    assert cleaned == ["drill-1.stuck", "drill-1", "drill-1.stuck"]


@pytest.mark.usefixtures("connections", "home")
def test_clean_up_of_a_drill_that_was_never_opened_deletes_nothing(
    context: dict[str, Any], mirror: dict[str, Any], cleaned: list[str]
) -> None:
    """Its topic may be somebody else's: that may be just why it was not opened."""
    with pytest.raises(AirflowFailException, match="nothing was measured"):
        CleanUpDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)
    assert cleaned == []


@pytest.mark.usefixtures("connections", "home")
def test_clean_up_is_red_unless_a_task_that_failed_has_turned_the_run_red(
    context: dict[str, Any], mirror: dict[str, Any]
) -> None:
    """Where somebody marks a run as failed, what was running is failed, and what comes behind it is skipped."""
    clean_up = CleanUpDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]})
    context["ti"].states = {"lose_source": "failed", "fail_over": "skipped", "t": "running"}
    with pytest.raises(AirflowFailException, match="nothing was measured"):
        clean_up.execute(context)
    context["ti"].states = {"lose_source": "failed", "fail_over": "upstream_failed", "t": "running"}
    assert clean_up.execute(context)["deleted"] == []


@pytest.mark.usefixtures("connections", "home")
def test_topic_is_noted_as_the_drills_before_it_is_created(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, clusters: InMemory
) -> None:
    """A task that is killed right after its creation leaves a topic that the clean-up knows."""

    class Dies(Exception):
        pass

    def dies() -> None:
        (drill,) = Drills(state, "m").all()
        assert (drill.topics, drill.source_id) == (["drill-1"], clusters.source.cluster_id)
        assert drill.wanted == {"rpo_s": 1.0, "rto_s": 2.0}
        assert [row["fault"] for row in drill.rehearsal] == ["recreate_topic", "kill_tail"]
        raise Dies

    clusters.after["create topics"] = dies
    opens = OpenDrillOperator(
        task_id="t",
        mirror={**mirror, "topics": ["drill-1"]},
        rpo_objective_s="1",
        rto_objective_s=2,
        rehearse=["kill_tail", "recreate_topic"],
    )
    with pytest.raises(Dies):
        opens.execute(context)
    with pytest.raises(AirflowFailException, match="exists on the source already"):
        opens.execute(context)


@pytest.mark.usefixtures("connections", "home")
def test_what_a_drill_of_a_lost_airflow_left_is_deleted_by_the_next_one(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cleaned: list[str],
    clusters: InMemory, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One that began today may still run. What can't be deleted doesn't keep the new drill from being opened."""
    now_ms = int(time.time() * 1000)
    note(
        state, Drill(run="old", at_ms=7, topics=["dr.left", "dr.stuck", "payments"], source_id=clusters.source.cluster_id)
    )
    note(state, Drill(run="forged", at_ms=8, topics=["dr.left"]))
    note(state, Drill(run="running", at_ms=now_ms, topics=["dr.running"], source_id=clusters.source.cluster_id))
    said: list[str] = []
    log = SimpleNamespace(warning=lambda *line: said.append(line[-1]), info=print)
    monkeypatch.setattr(OpenDrillOperator, "log", log)
    opens = OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}, prefix="dr.")
    assert opens.execute(context) == {"topic": "drill-1"}
    assert cleaned == ["dr.left", "dr.stuck"], "a name that no drill has is not deleted, whatever the ledger says"
    assert {one.run: one.topics for one in Drills(state, "m").all()} == {
        "old": ["dr.stuck", "payments"], "forged": ["dr.left"], "running": ["dr.running"], "manual__1": ["drill-1"]
    }  # fmt: skip
    assert said[-4:] == [
        "dr.left of drill old is deleted",
        "drill old: could not delete 'dr.stuck' on the target: no broker answered",
        "drill old: could not delete 'payments' on the clusters: no name of a drill, which begins with 'dr.'",
        "dr.left of drill forged stay: on a source with cluster id ''",
    ]


@pytest.mark.usefixtures("connections", "home")
def test_clean_up_deletes_no_topic_that_only_its_record_names(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cleaned: list[str]
) -> None:
    note(state, Drill(run="manual__1", at_ms=7, topics=["payments"], figures=GOOD, wanted=WANTED, failback=BACK))
    with pytest.raises(AirflowException, match="'payments' on the clusters: no name of a drill"):
        CleanUpDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)
    assert cleaned == []


@pytest.mark.usefixtures("connections", "home")
def test_topic_that_somebody_creates_in_the_last_moment_is_theirs(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, clusters: InMemory
) -> None:
    """Between the look and the creation; the clean-up would delete it."""
    clusters.before["create topics"] = lambda: clusters.source.create("drill-1")
    with pytest.raises(AirflowException, match="TOPIC_ALREADY_EXISTS"):
        OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)
    (drill,) = Drills(state, "m").all()
    assert drill.topics == []


@pytest.mark.usefixtures("connections", "home")
def test_prefix_that_would_fit_any_topic_is_refused(context: dict[str, Any], mirror: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match="(?s)prefix.*what begins with it is deleted"):
        OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}, prefix="").execute(context)


def test_a_drill_deletes_only_a_topic_of_its_own(
    context: dict[str, Any], connections: Callable[..., None], mirror: dict[str, Any], home: Path
) -> None:
    with pytest.raises(AirflowFailException, match="a drill has one topic of its own"):
        OpenDrillOperator(task_id="t", mirror={**mirror, "topics": [".*"]}).execute(context)
