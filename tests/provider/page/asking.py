"""Who asks the page, through Airflow's own auth manager, and whose mirrors there are."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

os.environ["AIRFLOW__API_AUTH__JWT_SECRET"] = "of-these-tests-alone" * 4

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.connection import Connection
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import timezone
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from fastapi.testclient import TestClient
from sqlalchemy import delete, insert

from airflow_mirror.page.actions import ACTIONS
from airflow_mirror.page.app import make_app
from airflow_mirror.page.looks import Looks
from tests.driven.cluster import DrivenCluster
from tests.page.world import World

if TYPE_CHECKING:
    from uuid import UUID

    from httpx import Response


DAGS = ("night_of_orders", "payments")
ACTING = tuple(dict.fromkeys(one.dag for one in ACTIONS))


class PerDag(SimpleAuthManager):
    """Airflow's own, but that somebody may only read, or start, the DAGs that his name lists: ``reader:orders``."""

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        there = super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
        _, only, dags = user.username.partition(":")
        return there and (not only or details is None or details.id in dags.split(","))


def connect(**clusters: DrivenCluster | str) -> None:
    """Create connections in Airflow's database; of text: to an address."""
    with create_session() as session:
        for conn_id, one in clusters.items():
            servers = one if isinstance(one, str) else one.config.bootstrap
            extra = json.dumps(
                {"bootstrap.servers": servers, "security.protocol": "PLAINTEXT", "sasl.password": "hunter2"}
            )
            session.add(Connection(conn_id=conn_id, conn_type="kafka", extra=extra))


@contextmanager
def another(looking: Looks | None = None, wait_s: float = 60.0) -> Iterator[TestClient]:
    """The page of another API server."""
    looking = looking or Looks()
    with TestClient(make_app(looking, wait_s)) as client:
        yield client
    deadline = time.monotonic() + 60
    while looking._looks and time.monotonic() < deadline:
        looking.forget(0)
        time.sleep(0.01)


@contextmanager
def a_task(dag: str, task: str, *, state: str = "deferred", **conf: str) -> Iterator[tuple[UUID, DagRun]]:
    """A task instance of a run of its own; ends with all that hangs on it."""
    ti = uuid4()
    with create_session() as session:
        run = DagRun(
            dag_id=dag, run_id=f"manual__{uuid4().hex[:6]}", run_type="manual", conf=conf, run_after=timezone.utcnow(),
            state=DagRunState.RUNNING,
        )  # fmt: skip
        session.add(run)
        session.flush()
        values = {"id": ti, "dag_id": dag, "run_id": run.run_id, "task_id": task, "map_index": -1, "state": state}
        needed = {"pool": "default_pool", "pool_slots": 1, "queue": "q", "try_number": 1, "max_tries": 0}
        session.execute(insert(TaskInstance).values(**values, **needed))
        session.flush()
        session.expunge(run)
    yield ti, run
    with create_session() as session:
        session.execute(delete(TaskInstance).where(TaskInstance.id == ti))
        session.execute(delete(DagRun).where(DagRun.id == run.id))


def get(page: TestClient, path: str, who: str = "admin", role: str | None = "ADMIN", **query: str) -> Response:
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=who, role=role))
    return page.get(path, params=query or None, headers={"Authorization": f"Bearer {token}"})


def names(answer: Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return sorted(row["mirror"] for row in answer.json()["mirrors"])


def three_mirrors(world: World) -> None:
    """One of each DAG, and one that a person has planned."""
    for name, dag in (("orders", DAGS[0]), ("pay", DAGS[1]), ("byhand", None)):
        world.plan(name, {name: 1}, dag)
        world.own(name, name)
