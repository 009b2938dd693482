"""Links of tasks: what the UI reads, by Airflow's own code, while a task runs, at its end, and after it failed early."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk import DAG, TaskInstanceState
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time import task_runner
from airflow.serialization.definitions import operatorlink
from airflow.serialization.serialized_objects import DagSerialization

from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.errors import InputError
from airflow_mirror.hooks.home import url_of
from airflow_mirror.operators.cutover import CutoverOperator
from airflow_mirror.operators.mirror import StartMirrorOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator
from tests.provider.conftest import PLAN

URL = "https://files.example.com/mirror"
PAGE = f"{URL}/m/runs/manual__1/report.html"


@pytest.fixture
def served(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW__MIRROR__FILES_URL", f"{URL}/")
    return home


class Pushed(dict[str, str]):
    """What is in the XComs of one task instance; as the UI finds it."""

    dag_id, task_id, run_id, map_index = "d", "t", "manual__1", -1

    def shown_by(self, task: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
        """The links, from a serialized DAG and XComs: the API server has no operator of ours, and no file of a worker."""
        dag = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(task.dag))
        there = dag.get_task(task.task_id)

        class Model:
            @staticmethod
            def get_many(key: str, **_: Any) -> Any:
                return SimpleNamespace(with_only_columns=lambda _: key)

            value = None

        @contextmanager
        def session() -> Iterator[Any]:
            def execute(key: str) -> Any:
                rows = [SimpleNamespace(value=json.dumps(self[key]))] if key in self else []
                return SimpleNamespace(first=lambda: rows[0] if rows else None)

            yield SimpleNamespace(execute=execute)

        monkeypatch.setattr(operatorlink, "XComModel", Model)
        monkeypatch.setattr(operatorlink, "create_session", session)
        return {name: there.get_extra_links(SimpleNamespace(key=self), name) or None for name in there.extra_links}


def finish(task: Any, pushed: Pushed, monkeypatch: pytest.MonkeyPatch, state: TaskInstanceState) -> None:
    """What Airflow does with a task's links when it has ended, however it did."""
    monkeypatch.setattr(task_runner, "_xcom_push_to_db", lambda _, key, value: pushed.update({key: value}))
    ti = SimpleNamespace(task=task, start_date=None, end_date=None)
    task_runner.finalize(ti, state, {}, task_runner.log)  # type: ignore[arg-type]


def cutover_of(mirror: dict[str, Any]) -> CutoverOperator:
    with DAG("d"):
        return CutoverOperator(task_id="t", mirror=mirror, plan=PLAN)


def test_page_of_a_cutover_is_linked_while_it_runs_and_afterwards(
    served: Path,
    context: dict[str, Any],
    mirror: dict[str, Any],
    cut_over_by: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pushed, task, seen = Pushed(), cutover_of(mirror), []
    context["ti"].xcom_push = lambda key, value: pushed.update({key: value})

    def cut_over(_request: Any, _clusters: Any, store: ReportStore, **_: Any) -> None:
        seen.append(pushed.shown_by(task, monkeypatch))
        assert store.directory == served / "m" / "runs" / "manual__1"
        raise InputError("far enough")

    cut_over_by(cut_over)
    with pytest.raises(AirflowFailException, match="far enough"):
        task.execute(context)
    finish(task, pushed, monkeypatch, TaskInstanceState.FAILED)
    assert [*seen, pushed.shown_by(task, monkeypatch)] == [{"Report": PAGE}] * 2


def test_task_that_never_began_has_links_without_an_address(
    mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed, task = Pushed(), cutover_of(mirror)
    assert pushed.shown_by(task, monkeypatch) == {"Report": None}
    finish(task, pushed, monkeypatch, TaskInstanceState.SKIPPED)
    assert pushed.shown_by(task, monkeypatch) == {"Report": None}


@pytest.mark.parametrize("operator", [StartMirrorOperator, VerifyMirrorOperator])
def test_log_and_state_of_a_job_are_linked_as_soon_as_it_runs(
    operator: Any, served: Path, context: dict[str, Any], mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that an earlier try has started: it is found, and waited for."""
    pushed, links = Pushed(), list[dict[str, str | None]]()
    context["ti"].xcom_push = lambda key, value: pushed.update({key: value})
    with DAG("d"):
        task = operator(task_id="t", mirror=mirror, plan=PLAN)

    def status(_: object) -> str:
        links.append(pushed.shown_by(task, monkeypatch))
        return "SUCCEEDED"

    task._runner = SimpleNamespace(status=status, raise_for=lambda _: None, summary=lambda _: {})
    monkeypatch.setattr(operator, "get_job_result", lambda *_: None)
    task.poll_until_complete({"dir": str(served / "m" / "jobs" / "bulk é" / "3")}, context)
    finish(task, pushed, monkeypatch, TaskInstanceState.SUCCESS)
    where = f"{URL}/m/jobs/bulk%20%C3%A9/3"
    expected = {"Job log": f"{where}/log.txt", "Live state": f"{where}/status.json"}
    assert [*links, pushed.shown_by(task, monkeypatch)] == [expected] * 2


def test_files_are_served_by_the_page_unless_a_server_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative, because Airflow may be served below a path."""
    assert url_of(home / "m" / "report.html") == "mirrors/files/m/report.html"
    monkeypatch.setenv("AIRFLOW__MIRROR__FILES_URL", URL)
    assert url_of(home / "m" / "report.html") == f"{URL}/m/report.html"
    assert url_of(Path("/elsewhere/m/report.html")) == "", "a tail on a host whose home is another one"


def test_airflow_knows_the_classes_of_the_links() -> None:
    there = [name for name in ProvidersManager().extra_links_class_names if name.startswith("airflow_mirror.")]
    names = sorted(name.rpartition(".")[2] for name in there)
    assert names == ["DrillLink", "JobLogLink", "LiveStateLink", "NightLink", "ReportLink"]
