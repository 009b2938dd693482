"""The operators and DAGs of the way back: what they take, and what they hand on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException

from airflow_mirror.errors import NoWayBack
from airflow_mirror.hooks import kafka
from airflow_mirror.operators.rollback import ArmReverseMirrorOperator
from airflow_mirror.rollback import arm
from airflow_mirror.rollback.arm import Armed
from tests.provider.test_dags import DAGS
from tests.unit.rollback.world import REVERSE

FIELDS = {"name": "flow", "source": "old", "target": "new"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, connections: Callable[..., Any]) -> list[Any]:
    """What the core was asked for; clusters are the names of connections."""
    calls: list[Any] = []

    def armed(report_of: Any, plan: Any, source: Any, target: Any, *, check_only: bool) -> Armed:
        calls.append((report_of, plan, source, target, check_only))
        return Armed(plan=REVERSE, direction=None, fence=["DENY"])

    monkeypatch.setattr(kafka, "admins_of", lambda mirror: nullcontext((mirror.source, mirror.target)))
    monkeypatch.setattr(arm, "cutover_of", lambda name, target: (f"report of {name}", SimpleNamespace(name=name)))
    monkeypatch.setattr(arm, "arm", armed)
    return calls


def test_armed_way_back_hands_its_mirror_and_plan_on(asked: list[Any]) -> None:
    found = ArmReverseMirrorOperator(task_id="arm", mirror=FIELDS, check_only="True").execute({})
    assert asked == [("report of flow", SimpleNamespace(name="flow"), "old", "new", True)]
    assert (found["mirror"], found["hash"], found["fields"]) == ("flow-reverse", REVERSE.hash, REVERSE.mirror.to_dict())


def test_no_way_back_is_not_tried_again(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise NoWayBack("flow", ["the fence was not kept"])

    monkeypatch.setattr(arm, "arm", refused)
    with pytest.raises(AirflowFailException, match="no way back after opening"):
        ArmReverseMirrorOperator(task_id="arm", mirror=FIELDS).execute({})


@pytest.mark.parametrize("dag_id", ["kafka_reverse_mirror"])
def test_every_field_of_the_form_is_explained_and_used(dag_id: str) -> None:
    dag: Any = DagBag(str(DAGS)).dags[dag_id]
    used = " ".join(str(getattr(task, name)) for task in dag.tasks for name in task.template_fields)
    for name in dag.params:
        assert dag.params.get_param(name).schema["description_md"], name
        assert name == "approval" or f"params.{name} " in used, name


def test_reverse_tail_starts_once_its_way_back_is_armed_and_held() -> None:
    dag: Any = DagBag(str(DAGS)).dags["kafka_reverse_mirror"]
    assert [task.task_id for task in dag.topological_sort()] == ["arm", "hold", "start_tail"]
    assert all("['fields']" in str(dag.get_task(name).mirror) for name in ("hold", "start_tail"))
