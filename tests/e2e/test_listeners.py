"""The sandbox's Airflow is for this machine alone."""

from __future__ import annotations

import os
from typing import Any

import psutil

from sandbox.airflow import AirflowStandalone
from tests.listening import listeners


def family(airflow: Any) -> Any:
    """Return the processes of an Airflow: its session, and what its processes have started."""
    leader = airflow._process.pid
    session = {pid for pid in psutil.pids() if _session_of(pid) == leader}
    return session | {child.pid for child in psutil.Process(leader).children(recursive=True)}


def _session_of(pid: Any) -> Any:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def test_no_part_of_airflow_listens_beyond_this_machine(airflow: AirflowStandalone) -> None:
    found = listeners(family(airflow))
    assert airflow.port in {listener.port for listener in found}, "the API server is among them"
    assert [listener for listener in found if not listener.is_local] == []
