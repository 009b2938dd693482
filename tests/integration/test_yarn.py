"""Drivers on YARN: started by operators, watched and ended from here, with passwords that nobody sees."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-mirror-yarn-"))
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_mirror.config import ClientConfig
from airflow_mirror.hooks.home import plans_of
from airflow_mirror.hooks.kafka import configs_of
from airflow_mirror.hooks.spark import runner_for
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.spec import JobSpec
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.jobs.runner.yarn import tag_of
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.mirror import StartMirrorOperator, StopMirrorOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.topics import CreateTargetTopicsOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator
from airflow_mirror.triggers.job import JobTrigger
from sandbox import Cluster, clusters
from sandbox.settings import USERS
from sandbox.yarn import YarnCluster, processes_below
from tests.integration.copying import assert_equal, create, ends, wait_until, write, write_transactions

pytestmark = pytest.mark.spark

PARTITIONS = 2
SECRET = USERS["mirror"].encode()


@pytest.fixture(scope="module")
def yarn() -> Iterator[YarnCluster]:
    with YarnCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def guarded() -> Iterator[list[Cluster]]:
    """Source and target on which the jobs have to log in; the referee uses their open listeners."""
    with clusters("source", "target", authorizer=True, ready_timeout_s=240) as both:
        yield both


class FakeTI:
    task_id, run_id, map_index, try_number, max_tries = "t", "manual__1", -1, 1, 0
    stats_tags: dict[str, str] = {}

    def __init__(self, dag_id: str) -> None:
        self.dag_id = dag_id

    def xcom_push(self, key: str, value: object) -> None:
        pass


class FakeStore(dict[str, Any]):
    def set(self, key: str, value: Any, **_: Any) -> None:
        self[key] = json.loads(json.dumps(value))

    def delete(self, key: str) -> None:
        self.pop(key, None)


class World:
    """A mirror of one topic, planned, with its target topic; its tasks as a DAG runs them."""

    def __init__(self, yarn: YarnCluster, both: list[Cluster], topic: str, home: Path) -> None:
        self.yarn, (self.source, self.target), self.topic, self.home = yarn, both, topic, home
        self.mirror = Mirror(name=f"m-{topic[-8:]}", source="src", target="dst", topics=[topic], groups=[])
        self.store = FakeStore()
        create(self.source, topic, PARTITIONS)
        write(self.source, topic, 700, seed=1, codec="lz4")
        write_transactions(self.source, topic, seed=2, transactions=4, partitions=PARTITIONS)
        planned = self.run(PlanMirrorOperator)
        self.plan = planned["hash"]
        self.run = partial(self.run, plan=self.plan)  # type: ignore[method-assign]
        self.run(CreateTargetTopicsOperator)

    @property
    def context(self) -> Any:
        return {"ti": FakeTI(self.topic), "task_state_store": self.store}

    def run(self, operator: Any, **kwargs: Any) -> Any:
        return operator(task_id="t", **{"mirror": self.mirror, **kwargs}).execute(self.context)

    def deferred(self, operator: Any, **kwargs: Any) -> TaskDeferred:
        """Run a task until it waits in the triggerer."""
        with pytest.raises(TaskDeferred) as e:
            self.run(operator, deferrable=True, **kwargs)
        return e.value

    def run_deferred(self, operator: Any, another: Path, **kwargs: Any) -> Any:
        """Run a task that waits in the triggerer, and goes on at a worker with this home."""
        wait = self.deferred(operator, **kwargs)
        os.environ["AIRFLOW__MIRROR__HOME"] = str(another)
        task = operator(task_id="t", mirror=self.mirror, plan=self.plan, deferrable=True, **kwargs)
        while True:
            event = asyncio.run(first_event(trigger_of(wait)))
            try:
                return task.resume(self.context, event, **json.loads(json.dumps(wait.kwargs)))
            except TaskDeferred as e:  # it was silent while it waited for a container
                wait = e

    @property
    def spark(self) -> dict[str, Any]:
        return {"spark_conn_id": "yarn", "spark_conf": {**self.yarn.spark_conf, **self.events}}

    @property
    def events(self) -> dict[str, str]:
        """Settings for an event log, of which one could read."""
        folder = self.yarn.directory / "events"
        folder.mkdir(exist_ok=True)
        off = {"spark.eventLog.compress": "false"}
        return off | {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder.as_uri()}

    def state(self, job: str) -> str:
        """What YARN says of a job: its application's state and final state, ``none`` for no application."""
        found = self.yarn.applications(tag_of(job))
        return f"{found[0]['state']} {found[0]['finalStatus']}" if found else "none"

    def job_of_tail(self) -> str:
        with ClusterAdmin(self._config()) as admin:
            return str(Ledger(admin).values()[f"active/{self.mirror.name}"]["job"])

    def is_copied(self) -> bool:
        return ends(self.source, self.topic, PARTITIONS) == ends(self.target, self.topic, PARTITIONS)

    def stop(self, home: Path, grace_s: float) -> Any:
        """Stop the mirror's writers on a worker with this home."""
        os.environ["AIRFLOW__MIRROR__HOME"] = str(home)
        context: Any = {"ti": FakeTI(self.topic), "task_state_store": self.store}
        return StopMirrorOperator(task_id="t", mirror=self.mirror, spark_conn_id="yarn", grace_s=grace_s).execute(context)

    # --- who sees the password ---

    def files_with_the_secret(self) -> list[Path]:
        """Of YARN, with staging, its caches and logs, and of the worker."""
        files = [file for folder in (self.yarn.directory, self.home) for file in folder.rglob("*") if file.is_file()]
        assert len(files) > 10 and list((self.yarn.directory / "events").rglob("*")), "nothing was looked at"
        return [file for file in files if SECRET in _bytes_of(file)]

    def processes_with_the_secret(self) -> list[int]:
        """In their arguments; those of YARN and of Spark also in their environment."""
        running = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        found = [pid for pid in running if SECRET in _bytes_of(Path(f"/proc/{pid}/cmdline"))]
        below = processes_below(self.yarn.directory)
        assert len([pid for pid in below if is_driver(pid)]) == 1
        return found + [pid for pid in below if SECRET in _bytes_of(Path(f"/proc/{pid}/environ"))]

    def pages_with_the_secret(self) -> list[str]:
        """Of ResourceManager, Spark and NodeManager; the latter shows the script that starts a container."""
        (application,) = self.yarn.applications(tag_of(self.job_of_tail()))
        spark = self.yarn.web(f"/proxy/{application['id']}")
        pages = [self.yarn.web(f"/ws/v1/cluster/apps/{application['id']}"), application["amContainerLogs"]]
        pages += [f"{spark}/{page}/" for page in ("environment", "executors", "SQL")]
        pages.append(f"{spark}/api/v1/applications/{application['id']}/environment")
        pages.append(f"{application['amContainerLogs']}/launch_container.sh/?start=0")
        shown = {page: fetched(page) for page in pages}
        assert b"spark.yarn.tags" in shown[pages[-2]] and b"HADOOP_TOKEN_FILE_LOCATION" in shown[pages[-1]], shown
        return [page for page, content in shown.items() if SECRET in content]

    def _config(self) -> ClientConfig:
        return ClientConfig(self.target.properties("mirror"), "target")


@pytest.fixture
def world(
    yarn: YarnCluster, guarded: list[Cluster], topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    for name, cluster in (("SRC", guarded[0]), ("DST", guarded[1])):
        extra = cluster.properties("mirror")
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps({"conn_type": "kafka", "extra": extra}))
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW__MIRROR__HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AIRFLOW__MIRROR__POLL_INTERVAL", "1")
    for key, value in yarn.client_env.items():
        monkeypatch.setenv(key, value)
    there = World(yarn, guarded, topic_name, tmp_path / "home")
    try:
        yield there
    finally:
        with closing(runner_for(there.mirror, "yarn")) as runner:
            runner.cancel_all(grace_s=0.0)
        wait_until(lambda: processes_below(yarn.directory / "target") == [], "no container is left", 60, 0.5)


def test_bulk_copy_and_comparison_run_on_yarn_with_equal_records(world: World, tmp_path: Path) -> None:
    """The summaries of the drivers come back, although nothing of this host is theirs; also past the triggerer."""
    copied = world.run(StartMirrorOperator, **world.spark)
    assert copied["partitions"] == PARTITIONS and copied["records"] > 700, copied
    assert_equal(world.source, world.target, world.topic, PARTITIONS)
    verified = world.run_deferred(VerifyMirrorOperator, tmp_path / "another", level="records", **world.spark)
    assert verified["differences"] == [] and verified["records"] == copied["records"], verified


def test_user_who_marks_a_task_that_waits_in_the_triggerer_ends_its_application(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = replace(world.mirror, max_bytes_per_second=2_000)
    wait = world.deferred(StartMirrorOperator, mirror=slow, **world.spark)
    job = (wait.kwargs or {})["external_id"]["id"]
    wait_until(lambda: world.state(job) == "RUNNING UNDEFINED", "it runs", 300, 0.5)
    monkeypatch.setattr(JobTrigger, "_state_of_the_task", lambda _: "failed")
    asyncio.run(trigger_of(wait).on_kill())
    assert world.state(job) == "KILLED KILLED"


def test_tail_on_yarn_follows_unseen_and_stops_when_asked(world: World) -> None:
    """While it runs its password is in files of the NodeManager alone, which only their user can read."""
    world.run(StartMirrorOperator, mode="tail", start_timeout_s=800, **world.spark)
    job = world.job_of_tail()
    assert world.state(job) == "RUNNING UNDEFINED"
    assert world.run(StartMirrorOperator, mode="tail", **world.spark)["job"] == "tail", "it runs already"
    assert world.job_of_tail() == job
    wait_until(world.is_copied, "the tail copies", 300, 0.2)
    write(world.source, world.topic, 300, seed=3, partition=1)
    wait_until(world.is_copied, "the tail follows", 300, 0.2)

    files = world.files_with_the_secret()
    assert {file.name for file in files} and all(is_token_file(file) for file in files), files
    assert not [file for file in files if others_can_read(file, world.yarn.directory)]
    assert world.processes_with_the_secret() == []
    assert world.pages_with_the_secret() == []

    stopped = world.stop(world.home, grace_s=120)
    assert (stopped["tail"], stopped["stopped"]) == ("SUCCEEDED", 1), stopped
    wait_until(lambda: world.state(job) == "FINISHED SUCCEEDED", "its application has ended", 120, 0.5)
    assert_equal(world.source, world.target, world.topic, PARTITIONS)
    wait_until(lambda: world.files_with_the_secret() == [], "nothing is left of its password", 120, 0.5)


def test_frozen_tail_is_killed_by_its_tag_from_another_worker(world: World, tmp_path: Path) -> None:
    """That worker has none of its files, and the tail can't listen any more."""
    world.run(StartMirrorOperator, mode="tail", start_timeout_s=800, **world.spark)
    job = world.job_of_tail()
    (driver,) = [pid for pid in processes_below(world.yarn.directory) if is_driver(pid)]
    os.kill(driver, signal.SIGSTOP)
    stopped = world.stop(tmp_path / "another", grace_s=1)
    assert stopped["tail"] == "LOST", stopped
    assert world.state(job) == "KILLED KILLED"


def test_job_outlives_its_submitter_and_is_found_again(world: World, tmp_path: Path) -> None:
    """The submitter is killed while it waits; another worker that has nothing but the handle sees the job's end."""
    plan = plans_of(world.mirror).load(world.plan)
    assert plan is not None
    spec = JobSpec(
        kind="bulk_copy", mirror={**world.mirror.to_dict(), "max_bytes_per_second": 20_000}, master="yarn",
        spark_conf={**world.yarn.spark_conf, "spark.yarn.submit.waitAppCompletion": "true"}, inputs=plan.digest,
        plan=str(plans_of(world.mirror).path(plan.hash)),
    )  # fmt: skip
    with closing(runner_for(world.mirror, "yarn")) as runner:
        handle = runner.ensure_started("bulk", spec, configs_of(world.mirror))
        wait_until(lambda: world.state(handle["id"]) == "RUNNING UNDEFINED", "it runs", 300, 0.5)
        process.end(process.members(Path(handle["dir"])), signal.SIGKILL)
        process.wait_until_gone(Path(handle["dir"]), 60)
    os.environ["AIRFLOW__MIRROR__HOME"] = str(tmp_path / "another")
    with closing(runner_for(world.mirror, "yarn")) as runner:
        assert runner.status(handle) == RUNNING
        there = {**handle, "dir": str(tmp_path / "another" / "bulk" / "1"), "host": "another", "where": "another"}
        wait_until(lambda: runner.status(there) != RUNNING, "it ends", 600, 1)
        runner.raise_for(there)
        assert runner.summary(there)["errors"] == [] and runner.summary(there)["records"] > 700
    assert_equal(world.source, world.target, world.topic, PARTITIONS)
    assert len(world.yarn.applications(tag_of(handle["id"]))) == 1


def trigger_of(wait: TaskDeferred) -> JobTrigger:
    """Return the trigger as another process makes it."""
    _, kwargs = wait.trigger.serialize()
    return JobTrigger(**json.loads(json.dumps(kwargs)))


async def first_event(trigger: JobTrigger) -> Any:
    async for event in trigger.run():
        return event.payload


def is_token_file(path: Path) -> bool:
    return path.name == "container_tokens" or (path.suffix == ".tokens" and "nmPrivate" in path.parts)


def others_can_read(file: Path, top: Path) -> bool:
    """Whether users outside of its group can; the way to it counts, but for ``top``, which is the sandbox's."""
    folders = [folder for folder in file.parents if folder.is_relative_to(top) and folder != top]
    closed = [folder for folder in folders if not folder.stat().st_mode & stat.S_IXOTH]
    return bool(file.stat().st_mode & stat.S_IROTH) and not closed


def is_driver(pid: int) -> bool:
    """Whether it is the Python process that runs a job."""
    command = _bytes_of(Path(f"/proc/{pid}/cmdline")).split(b"\0")
    return b"python" in command[0] and any(part.endswith(b"run_job.py") for part in command)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it has just ended


def fetched(page: str) -> bytes:
    with urllib.request.urlopen(page, timeout=120) as answer:
        return bytes(answer.read())
