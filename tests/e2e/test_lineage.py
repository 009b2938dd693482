"""Topics in OpenLineage: what its own provider, in a real Airflow, sends of a copy and of a comparison.

Wherever the provider is installed it looks at every task. So it has a directory of its own, which is on the path of this
module's Airflow alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Cluster
from sandbox.airflow import REPOSITORY, AirflowStandalone
from tests.e2e.conftest import PATIENCE
from tests.e2e.records import create, fill
from tests.e2e.test_migration import explain
from tests.waiting import wait_until

pytestmark = pytest.mark.drills

DAG = "kafka_window_backfill"
DAY_MS = 1_772_323_200_000  # 2026-03-01T00:00:00Z
_PROVIDER = Path(sys.prefix) / "openlineage"


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file into which the provider writes its events, a line each."""
    return tmp_path_factory.mktemp("lineage") / "events.jsonl"


@pytest.fixture(scope="module")
def traced(world: tuple[Cluster, Cluster], sent: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    assert _PROVIDER.exists(), "OpenLineage's provider has no directory: make .venv/.openlineage"
    source, target = world
    transport = {"type": "file", "log_file_path": str(sent), "append": True}
    running = AirflowStandalone(
        tmp_path_factory.mktemp("airflow"),
        connections={"e2e_source": source.admin_properties(), "e2e_target": target.admin_properties()},
        env={
            **PATIENCE, "AIRFLOW__MIRROR__POLL_INTERVAL": "1",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(_PROVIDER)]),
        },
    )  # fmt: skip
    try:
        yield running.start(900)
    finally:
        running.stop()


def datasets_of(sent: Path, task: str) -> dict[str, set[tuple[str, str]]] | None:
    """What the end of a task was said to read and to write: (namespace, name) each. None before it is said."""
    for line in sent.read_text(encoding="utf-8").splitlines() if sent.exists() else ():
        event = json.loads(line)
        if event["eventType"] == "COMPLETE" and event["job"]["name"] == f"{DAG}.{task}":
            return {key: {(one["namespace"], one["name"]) for one in event[key]} for key in ("inputs", "outputs")}
    return None


def test_openlineage_is_told_of_the_topics(traced: AirflowStandalone, world: tuple[Cluster, Cluster], sent: Path) -> None:
    source, target = world
    create(source.admin_properties(), "traced", 1, **{"retention.ms": "-1"})
    fill(source.properties("alice"), "traced", 100, at_ms=DAY_MS + 3_600_000)
    traced.turn_on(DAG)
    conf = {"name": "traced", "topics": ["traced"], "source": "e2e_source", "target": "e2e_target"}
    day = {"data_interval_start": "2026-03-01T00:00:00+00:00", "data_interval_end": "2026-03-02T00:00:00+00:00"}
    run = traced.trigger(DAG, conf, logical_date=day["data_interval_start"], **day)
    assert traced.wait(DAG, run, timeout_s=900) == "success", explain(traced, run, DAG)
    here, there = (
        (f"kafka://{cluster.admin_properties()['bootstrap.servers'].partition(',')[0]}", "traced")
        for cluster in (source, target)
    )
    wait_until(lambda: datasets_of(sent, "copy_window") and datasets_of(sent, "verify_window"), timeout_s=60)
    assert datasets_of(sent, "copy_window") == {"inputs": {here}, "outputs": {there}}
    assert datasets_of(sent, "verify_window") == {"inputs": {here, there}, "outputs": set()}
    secrets = {cluster.admin_properties()["sasl.password"] for cluster in world}
    assert not any(secret in sent.read_text(encoding="utf-8") for secret in secrets)
