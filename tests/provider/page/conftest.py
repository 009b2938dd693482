"""Airflow's own auth manager and database, and targets on the driven broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from airflow.api_fastapi.app import _AuthManagerState
from airflow.models.connection import Connection
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from sqlalchemy import delete

from airflow_mirror.page.looks import Looks
from tests.driven.cluster import DrivenCluster
from tests.page.world import World
from tests.provider.page.asking import ACTING, DAGS, PerDag, another, connect

if TYPE_CHECKING:
    from fastapi.testclient import TestClient


@pytest.fixture(scope="session", autouse=True)
def database() -> None:
    initdb()
    _AuthManagerState.instance = manager = PerDag()
    manager.init()
    with create_session() as session:
        session.add(DagBundleModel(name="b"))
        session.flush()
        session.add_all(DagModel(dag_id=one, bundle_name="b") for one in (*DAGS, *ACTING))


@pytest.fixture
def ledger() -> None:
    """The real ones, on the driven broker."""


@pytest.fixture
def state() -> None:
    """Likewise."""


@pytest.fixture
def world() -> Iterator[World]:
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        one = World(source, target)
        connect(dc1=source, dc2=target)
        yield one
        one.close()
    with create_session() as session:
        session.execute(delete(Connection))


@pytest.fixture(autouse=True)
def _as_in_the_api_server(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Its own program says so (airflow.api_fastapi.main)."""
    monkeypatch.setitem(os.environ, "_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setattr("airflow_mirror.jobs.health.gathering.BETWEEN_S", 0.01)


@pytest.fixture
def looking() -> Looks:
    """What the page has seen, for as long as it is in production."""
    return Looks()


@pytest.fixture
def page(world: World, looking: Looks) -> Iterator[TestClient]:
    """It waits for what it is asked for."""
    with another(looking) as client:
        yield client


@pytest.fixture
def page_anew(world: World) -> Iterator[TestClient]:
    """One that looks again for whoever asks."""
    with another(Looks(fresh_s=0.0, closely_fresh_s=0.0)) as client:
        yield client
