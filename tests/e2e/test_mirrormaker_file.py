"""A file of MirrorMaker 2 in a real Airflow, as its users have it: connections made of it, flows run, and stopped."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from airflow_mirror.console.main import main
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.local import LocalRunner
from sandbox import Cluster
from sandbox.airflow import AirflowStandalone
from tests.e2e.records import create, fill, read_all
from tests.e2e.test_migration import explain, wait_for

pytestmark = pytest.mark.drills

START, STOP = "kafka_mirrormaker", "kafka_mirrormaker_stop"
THERE, BACK = "near-to-far", "far-to-near"
FLOWS = """\
clusters = near, far
near->far.enabled = true
near->far.topics = flows.there
far->near.enabled = true
far->near.topics = flows.back
replication.factor = 1
"""
TASKS = ("is_start_wanted", "plan", "create_topics", "sync_configs", "start_tail")
DONE, LEFT_ALONE = dict.fromkeys(TASKS, "success"), dict.fromkeys(TASKS, "skipped")
NOT_PLANNED = dict.fromkeys(TASKS, "upstream_failed") | {"is_start_wanted": "success", "plan": "failed"}


@pytest.fixture
def file(airflow: AirflowStandalone, world: tuple[Cluster, Cluster], tmp_path: Path) -> Path:
    """Two flows between the two clusters, whose connections were made as the docs say."""
    path = tmp_path / "connect-mirror-maker.properties"
    ends = zip(("near", "far"), world, strict=True)
    path.write_text(FLOWS + "".join(_of_java(alias, cluster.admin_properties()) for alias, cluster in ends))
    assert main(["import-mm2", str(path), "--out", str(tmp_path / "brought")]) == 0
    command = ["airflow", "connections", "import", str(tmp_path / "brought" / "connections.json")]
    env = airflow.environment()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return path


def _of_java(alias: str, settings: Mapping[str, str]) -> str:
    """Return the lines about a cluster; who logs in with a password does so by Java's login module."""
    lines = {key: value for key, value in settings.items() if key not in ("sasl.username", "sasl.password")}
    if "sasl.username" in settings:
        who = f'username="{settings["sasl.username"]}" password="{settings["sasl.password"]}"'
        lines["sasl.jaas.config"] = f"org.apache.kafka.common.security.plain.PlainLoginModule required {who};"
    return "".join(f"{alias}.{key} = {value}\n" for key, value in lines.items())


def test_a_flow_that_fails_keeps_no_other_one_from_running_and_stop_ends_all(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster], file: Path
) -> None:
    """The topic that one flow would fill holds somebody's records at first; then that flow alone has a tail to start."""
    near, far = (cluster.admin_properties() for cluster in world)
    for settings, topic, count in ((near, "flows.there", 300), (far, "flows.back", 200), (near, "far.flows.back", 5)):
        create(settings, topic, 2, **{"retention.ms": "-1"})
        fill(settings, topic, count)
    airflow.turn_on(START)

    first, state = _run(airflow, START, file)
    flows = _flows(airflow, first)
    assert flows == {THERE: DONE, BACK: NOT_PLANNED}, explain(airflow, first, START)
    assert state == "failed"
    wait_for(lambda: _is_level(near, far, "flows.there", "near.flows.there"))
    assert _jobs(airflow, BACK) == [] != _jobs(airflow, THERE)
    assert len(read_all(near, "far.flows.back")) == 5

    _delete(near, "far.flows.back")
    fill(near, "flows.there", 100)
    second, state = _run(airflow, START, file)
    assert _flows(airflow, second) == {THERE: LEFT_ALONE, BACK: DONE}, explain(airflow, second, START)
    assert state == "success"
    wait_for(lambda: _is_level(far, near, "flows.back", "far.flows.back"))
    wait_for(lambda: _is_level(near, far, "flows.there", "near.flows.there"))

    airflow.turn_off(START)
    assert all(_jobs(airflow, name) for name in (THERE, BACK))
    stopped, state = _run(airflow, STOP, file)
    assert state == "success", explain(airflow, stopped, STOP)
    assert set(airflow.map_labels(STOP, stopped).values()) == {THERE, BACK}
    assert [_jobs(airflow, name) for name in (THERE, BACK)] == [[], []]


def _run(airflow: AirflowStandalone, dag: str, file: Path) -> tuple[str, str]:
    """Run a DAG with the file; return the run's id and its state."""
    run = airflow.trigger(dag, {"files": [str(file)]})
    return run, airflow.wait(dag, run, timeout_s=1200)


def _flows(airflow: AirflowStandalone, run: str) -> dict[str, dict[str, str]]:
    """Return the states of each flow's tasks, by what the UI calls the flow and without the group's name."""
    labels = {(_index(task), label) for task, label in airflow.map_labels(START, run).items()}
    assert len(labels) == len(dict(labels)) == 2, f"each flow has one name: {labels}"
    flows: dict[str, dict[str, str]] = {name: {} for _, name in labels}
    for task, state in airflow.task_states(START, run).items():
        if "[" in task:
            flows[dict(labels)[_index(task)]][task.removeprefix("flow.").partition("[")[0]] = state
    return flows


def _index(task: str) -> str:
    return task.partition("[")[2]


def _jobs(airflow: AirflowStandalone, mirror: str) -> list[int]:
    """Return the processes of a mirror's tails."""
    jobs = LocalRunner(airflow.mirror_home / mirror).jobs
    return [pid for job in jobs.glob("*/*") for pid in process.members(job)]


def _is_level(source: Mapping[str, str], target: Mapping[str, str], topic: str, copy: str) -> bool:
    return read_all(target, copy) == read_all(source, topic)


def _delete(settings: Mapping[str, str], topic: str) -> None:
    admin = AdminClient(dict(settings))
    for future in admin.delete_topics([topic]).values():
        future.result(timeout=120)
    wait_for(lambda: topic not in admin.list_topics(timeout=60).topics)
