"""The plan for the night as part of the plan task."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.log import mask_secret

from airflow_mirror.cutover.request import CutoverRequest
from airflow_mirror.extras.readiness.build import decide
from airflow_mirror.extras.readiness.look import ReadinessFacts
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.refusals import Refusals
from airflow_mirror.plan import Plan
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.refused import PLANNING, PREVIEW, UNKEPT
from tests.builders import plan_of, topic_plan
from tests.memory.admin import MemoryAdmin
from tests.provider.conftest import DAGS, InMemory
from tests.unit.plan.builders import a_mirror

BLOCK = Finding("block", "retention_race", "topic 't'", "lost")
MIRROR = {"name": "m", "source": "src", "target": "dst", "topics": ["t"]}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, clusters: InMemory, home: Path) -> SimpleNamespace:
    """What the task plans, and what it has kept on the target."""
    plan = plan_of(a_mirror(name="m", source="src", target="dst"), topic_plan("t", {0: 0}, source_topic_id="id"))
    made = SimpleNamespace(plan=plan, night=decide(plan, ReadinessFacts(at_ms=1)), looked=0, kept=list[Plan](), home=home)

    def night_plan(*_: Any, trial_s: float, tasks: int) -> Any:
        made.looked += 1
        made.tried = trial_s, tasks
        return made.night

    def keep_on(_: object, plan: Plan, *more: object, dag: str) -> None:
        assert dag == "kafka_migration", "whose readers see the mirror"
        made.kept.append(plan)

    monkeypatch.setattr("airflow_mirror.jobs.planning.planned", lambda *_, **__: (made.plan, None))
    monkeypatch.setattr("airflow_mirror.plan.ownership.begin", lambda *_: None)
    monkeypatch.setattr("airflow_mirror.plan.requirements.require_active", lambda *_: None)
    monkeypatch.setattr("airflow_mirror.plan.ledger_store.keep_on", keep_on)
    monkeypatch.setattr("airflow_mirror.extras.readiness.build.night_plan", night_plan)
    return made


def run(context: dict[str, Any], mirror: Any = MIRROR, **options: Any) -> Any:
    return PlanMirrorOperator(task_id="plan", mirror=mirror, **options).execute(context)


def test_it_lies_beside_the_plan_only_where_it_is_wanted(world: SimpleNamespace, context: dict[str, Any]) -> None:
    path = Path(run(context)["path"])
    assert world.looked == 0 and [f.name for f in path.parent.glob("*.night.*")] == []
    returned = run(context, night="True", trial_s="2.5", tasks="4")
    assert world.tried == (2.5, 4)
    assert returned["path"] == str(path) and returned["waves"] == 1
    assert returned["night"] == str(path.with_suffix(".night.html"))
    assert json.loads(path.with_suffix(".night.json").read_text())["waves"][0]["topics"] == ["t"]
    assert path.with_suffix(".night.html").read_text().startswith("<!doctype html>")
    assert path.with_suffix(".night.md").read_text().startswith("# The night of mirror m")


def test_its_page_is_linked_also_where_it_blocks(
    world: SimpleNamespace, context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("AIRFLOW__MIRROR__FILES_URL", "https://files.example.com/mirror")
    pushed: dict[str, str] = {}
    context["ti"].xcom_push = lambda key, value: pushed.update({key: value})
    run(context)
    assert pushed == {}, "nobody asked for one"
    world.night = replace(world.night, findings=[BLOCK])
    with pytest.raises(AirflowFailException):
        run(context, night=True)
    (page,) = world.home.glob("m/plans/*.night.html")
    assert pushed.pop("_link_NightLink") == f"https://files.example.com/mirror/m/plans/{page.name}"
    assert [*pushed] == [UNKEPT]


def test_what_blocks_a_first_plan_is_left_to_the_page_without_secrets(
    world: SimpleNamespace, context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ledger knows the mirror, and none is made for it."""
    pushed: dict[str, Any] = {}
    context["ti"].xcom_push = lambda key, value: pushed.update({key: json.loads(json.dumps(value))})
    mask_secret("kept-from-everybody")
    world.plan = replace(world.plan, findings=(replace(BLOCK, evidence="kept-from-everybody"),))
    with pytest.raises(AirflowFailException):
        run(context)
    told = pushed[UNKEPT]
    assert (told["mirror"], told["source"], told["target"]) == ("m", "src", "dst")
    (finding,) = told["refusal"]["findings"]
    assert (finding["check"], finding["evidence"]) == ("retention_race", "***")
    pushed.clear()
    world.plan = replace(world.plan, findings=())
    run(context)
    assert UNKEPT not in pushed


def test_page_of_first_plans_is_told_of_no_other_refusal(
    world: SimpleNamespace, context: dict[str, Any], clusters: InMemory
) -> None:
    """It would say of a preview whose ledger is lost that a plan was refused."""
    pushed: dict[str, Any] = {}
    context["ti"].xcom_push = lambda key, value: pushed.update({key: value})
    task = PlanMirrorOperator(task_id="plan", mirror=MIRROR)
    for kind, told in ((PREVIEW, []), (PLANNING, [UNKEPT])):
        Refusals(task, context, world.plan.mirror, MemoryAdmin(clusters.target)).keep(kind, [BLOCK])  # type: ignore[arg-type]
        assert [*pushed] == told


def test_what_blocks_the_night_fails_the_task_before_anything_is_kept(
    world: SimpleNamespace, context: dict[str, Any]
) -> None:  # fmt: skip
    world.night = replace(world.night, findings=[BLOCK])
    with pytest.raises(AirflowFailException, match="retention_race: topic 't': lost"):
        run(context, night=True)
    (page,) = world.home.glob("m/plans/*.night.html")
    assert world.kept == [] and "retention_race" in page.read_text()


def test_a_plan_that_is_blocked_is_told_at_once(world: SimpleNamespace, context: dict[str, Any]) -> None:
    world.plan = replace(world.plan, findings=(replace(BLOCK, check="another"),))
    with pytest.raises(AirflowFailException, match="another"):
        run(context, night=True)
    assert world.looked == 0 and world.kept == []


def test_log_tells_what_is_wrong_in_lines_and_counts_what_passed(
    world: SimpleNamespace, context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of forty checks that passed were one long line."""
    well = [Finding("pass", f"check{i}", "1 topic", "all is well") for i in range(30)]
    world.plan = replace(world.plan, findings=(Finding("warn", "disk", "b1", "nearly full", "Free some."), *well))
    said: list[str] = []
    log = SimpleNamespace(
        warning=lambda *_: None,  # Airflow says that nothing of its own runs the task
        info=lambda text, *values: said.append(text % values),
        log=lambda _, text, *values: said.append(text % values),
    )
    monkeypatch.setattr(PlanMirrorOperator, "log", log)
    path = Path(run(context)["path"])
    assert said[:2] == ["warn  disk: b1\n  why: nearly full\n  do:  Free some.", "30 checks passed"]
    assert said[-1].endswith(f"{path.with_suffix('.md')} lists every check")
    assert "check7" in path.with_suffix(".md").read_text() and "check7" not in " ".join(said)


def test_what_the_cutover_to_come_would_refuse_blocks_the_plan(
    world: SimpleNamespace, context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """It was said after the whole copy, and the form had to be filled in again."""
    asked: list[CutoverRequest] = []

    def foreseen(request: CutoverRequest, *_: Any) -> list[Finding]:
        asked.append(request)
        return [Finding("block" if request.open_by_default is None else "warn", "cutover_fence", "m", "it is hidden")]

    monkeypatch.setattr("airflow_mirror.cutover.foreseen.foreseen", foreseen)
    with pytest.raises(AirflowFailException, match="it is hidden"):
        run(context, fence="acl")
    assert world.kept == []
    assert run(context)["hash"] == world.kept[0].hash and len(asked) == 1, "who plans no cutover is not asked"
    run(context, fence="acl", open_by_default="False", accept_ledger_writers="User:etl")
    assert (asked[1].open_by_default, asked[1].accept_ledger_writers) == (False, ["User:etl"])
    assert [f.check for f in world.kept[1].findings if f.level == "warn"] == ["cutover_fence"], "it stands in the plan"
    run(context, fence="acl", cutover_wanted="False")
    assert [f.check for f in world.kept[2].findings if f.level == "warn"] == ["cutover_fence"], "nobody asked for it yet"


@pytest.mark.parametrize(("mode", "is_wanted"), [("plan", False), ("copy", False), ("migrate", True)])
def test_a_run_that_cuts_nothing_over_is_not_blocked_by_its_cutover(mode: str, is_wanted: bool) -> None:
    """On a source without authorizer, mode ``copy`` was refused for the sake of a fence that nobody had asked for."""
    plan: Any = DagBag(str(DAGS)).dags["kafka_migration"].get_task("plan")
    assert plan.render_template(plan.cutover_wanted, {"params": {"mode": mode}}) is is_wanted


def test_rights_that_are_to_follow_need_to_know_the_mirrors_own_before_anything_is_planned(
    world: SimpleNamespace, context: dict[str, Any], clusters: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a certificate, a token or rules of Kerberos the first task that needs them failed, and no field had them."""
    admin = clusters.admin
    monkeypatch.setattr("airflow_mirror.hooks.kafka.ClusterAdmin", lambda *given: nameless(admin(*given)))
    own = {"source": "User:CN=m", "target": "User:CN=m"}
    for given in ({}, {"target": "User:CN=m"}):
        with pytest.raises(AirflowFailException, match=r'(?s)own_principals.*\{"source": "User:\.\.\."\}'):
            run(context, parts=["acls"], mirror={**MIRROR, "own_principals": given})
    assert world.kept == []
    run(context, parts=["acls"], mirror={**MIRROR, "own_principals": own})
    run(context)
    assert len(world.kept) == 2, "nothing is to follow"


def nameless(admin: Any) -> Any:
    """Have a connection not say which principal the brokers make of it."""
    admin.principal = None
    return admin


def test_form_of_a_migration_names_the_mirrors_own_principals(bag: Any) -> None:
    dag = bag.dags["kafka_migration"]
    plan, own = dag.get_task("plan"), {"target": "User:CN=m"}
    assert dag.params["own_principals"] == {}
    shown = plan.render_template(plan.mirror["own_principals"], {"params": {"own_principals": own}})
    assert (shown, plan.render_template(plan.mirror["own_principals"], {"params": {"own_principals": None}})) == (own, {})
    given = [plan.render_template(plan.parts, {"params": {"follow": follow}}) for follow in (["quotas"], None)]
    assert given == [["quotas"], []]
