"""FailoverOperator and its DAG: what they take, and how a refusal ends."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.standard.exceptions import HITLTriggerEventError
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_mirror.cutover.failover import check, returned, run
from airflow_mirror.errors import InputError, TryAgain
from airflow_mirror.example_dags.kafka_failover import failover
from airflow_mirror.operators.failover import FailoverOperator, FenceReturnedSourceOperator
from airflow_mirror.page import approvals
from tests.provider.conftest import DAGS, InMemory
from tests.provider.tasks import by_airflow, the_time_is_over


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, clusters: InMemory) -> list[Any]:
    """What the core was asked for."""
    calls: list[Any] = []

    def answer(what: str) -> Any:
        def found(target: Any, name: str, **how: Any) -> Any:
            assert target.admin.cluster is clusters.target
            calls.append((what, name, how.get("force"), how["unattended"]))
            return SimpleNamespace(to_dict=lambda: {"text": [what]}, lines=lambda: [what])

        return found

    monkeypatch.setattr(check, "check", answer("check"))
    monkeypatch.setattr(run, "run", answer("run"))
    return calls


def operator(**how: Any) -> FailoverOperator:
    return FailoverOperator(task_id="failover", target="dst", mirror_name="m", **how)


def test_only_the_target_and_a_name_are_needed(asked: list[Any]) -> None:
    """Rendered fields may be text, or a number where the name is one."""
    assert operator(check_only="True").execute({}) == {"text": ["check"]}
    one = operator(force="true", unattended="True")
    one.mirror_name = 7  # type: ignore[assignment]
    assert one.execute({}) == {"text": ["run"]}
    assert asked == [("check", "m", None, False), ("run", "7", True, True)]


@pytest.mark.parametrize("unattended", [False, True])
def test_failover_knows_when_what_was_approved_was_seen(
    clusters: InMemory, monkeypatch: pytest.MonkeyPatch, unattended: bool
) -> None:
    """Without an approval nobody has read it, and the night on which the scheduler is slow must not end by that."""
    given: dict[str, Any] = {}

    def ran(*_: Any, **how: Any) -> Any:
        given.update(how)
        return SimpleNamespace(to_dict=dict, lines=list)

    monkeypatch.setattr(run, "run", ran)
    dag: Any = failover("site_failover")
    one = dag.get_task("failover")
    one.target, one.mirror_name, one.force, one.unattended = "dst", "m", False, unattended
    one.approval_valid_s = "900"
    seen = {"check": {"mirror": "m", "at": 7.0, "text": []}}
    one.execute({"ti": SimpleNamespace(xcom_pull=lambda task_ids: seen.get(task_ids))})
    assert (given["shown_at"], given["approval_valid_s"]) == (None if unattended else 7.0, 900.0)


def test_a_refusal_is_not_tried_again_and_an_absent_broker_is(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_with(error: Exception) -> None:
        def fail(*_: Any, **__: Any) -> Any:
            raise error

        monkeypatch.setattr(run, "run", fail)

    fails_with(InputError("mirror 'm'", "its tail sees it: cut off from here is not gone"))
    with pytest.raises(AirflowFailException, match="cut off from here is not gone"):
        operator().execute({})
    fails_with(TryAgain("no broker"))
    with pytest.raises(AirflowException) as raised:
        operator().execute({})
    assert not isinstance(raised.value, AirflowFailException)


def test_nothing_is_done_before_somebody_has_seen_the_check() -> None:
    dag: Any = DagBag(str(DAGS)).dags["kafka_failover"]
    assert [task.task_id for task in dag.topological_sort()] == [
        "check", "is_approval_wanted", "approve_failover", "failover", "is_source_named", "fence_returned",
    ]  # fmt: skip
    assert dag.params["approval"] is True and dag.params["force"] is False
    assert dag.get_task("check").check_only is True and dag.get_task("failover").check_only is False
    branch = dag.get_task("is_approval_wanted").python_callable
    assert [branch(params={"approval": wanted}) for wanted in (True, False)] == ["approve_failover", "failover"]
    assert dag.get_task("check").unattended == dag.get_task("failover").unattended == "{{ not params.approval }}"
    used = " ".join(str(getattr(task, name)) for task in dag.tasks for name in task.template_fields)
    for name in dag.params:
        assert dag.params.get_param(name).schema["description_md"], name
        assert re.search(rf"params\.{name}\b", used), name
    is_named = dag.get_task("is_source_named").python_callable
    assert [is_named(params={"source": source}) for source in ("src", None, "")] == [True, False, False]


@pytest.mark.parametrize("watched", [[], [("dst", f"m{n}") for n in range(100)]])
def test_no_mirror_waits_for_the_run_of_another_one(watched: list[tuple[str, str]]) -> None:
    """A run waits for an answer, and stands by, for days. Airflow itself lets 16 of a DAG run at once."""
    assert failover("site_failover", watched).max_active_runs == 1000


def test_an_approval_that_nobody_answers_fails_the_run(context: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A no that nobody has said would end it green, and the outage was told. A retry would wait for another day."""
    asked: Any = failover("site_failover").get_task("approve_failover")
    assert asked.defaults is None and asked.response_timeout == timedelta(days=1)
    with pytest.raises(AirflowFailException, match=r"nobody has answered in time: Fail .* Clear 'check' to be asked"):
        asked.execute_complete(context, {"error": "no response", "error_type": "timeout"})
    with pytest.raises(HITLTriggerEventError):
        asked.execute_complete(context, {"error": "a broken answer", "error_type": "unknown"})
    skipped: list[str] = []
    monkeypatch.setattr(asked, "skip", lambda ti, tasks: skipped.extend(task.task_id for task in tasks))
    answer = {"params_input": {}, "responded_at": datetime.now(UTC), "responded_by_user": {"id": "1", "name": "ann"}}
    for option, goal in (("Approve", []), ("Reject", ["failover"])):
        assert asked.execute_complete({**context, "task": asked}, {**answer, "chosen_options": [option]})
        assert skipped == goal


@pytest.mark.parametrize("dag_id", ["kafka_failback", "kafka_failover"])
def test_an_approval_of_another_dag_stands_on_the_mirror_that_its_form_names(dag_id: str) -> None:
    """Asked with what the form itself has, so that a field of another name is noticed."""
    dag: Any = DagBag(str(DAGS)).dags[dag_id]
    form = dict(dag.params)
    target = form["target"]
    its, other = (
        {"target_id": target, "target": target, "mirror": name, "dag": "planned"} for name in (form["name"], "another")
    )
    waits = approvals.Approval(
        dag=dag_id, run="r", task="approve", map_index=-1, subject="Go?", since=0.0, conf=form,
        ours=approvals.TAG in dag.tags,
    )  # fmt: skip
    assert approvals.by_mirror([waits], [its, other], lambda dag: True) == {(its["target_id"], its["mirror"]): [waits]}


def test_standing_by_ends_when_the_source_is_fenced(clusters: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def watch(source: Any, target: Any, name: str, *, fence: str, open_by_default: Any, signer: Any, log: Any) -> Any:
        assert target.cluster is clusters.target
        calls.append((source.role, name, fence, open_by_default, signer))
        return SimpleNamespace(to_dict=lambda: {"text": ["fenced"]}, lines=lambda: ["fenced"])

    monkeypatch.setattr(returned, "watch", watch)
    monkeypatch.setattr("airflow_mirror.operators.failover.report_signer", lambda: "a key")
    one = FenceReturnedSourceOperator(task_id="f", target="dst", source="src", mirror_name="m", open_by_default="False")
    assert one.execute({}) == {"text": ["fenced"]}
    assert calls == [("source", "m", "acl", False, "a key")]


def test_source_that_does_not_return_in_time_is_not_waited_for_again(
    clusters: InMemory, context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow tries again what its timeout has ended: a week in a slot became six of them."""
    monkeypatch.setattr(returned, "watch", the_time_is_over)
    monkeypatch.setattr("airflow_mirror.operators.failover.report_signer", lambda: None)
    one = FenceReturnedSourceOperator(
        task_id="f", target="dst", source="src", mirror_name="m", execution_timeout=timedelta(days=7)
    )
    with pytest.raises(AirflowFailException, match=r"of mirror 'm' was not fenced within 7 days, .* Clear this task"):
        by_airflow(one, context)
