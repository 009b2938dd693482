"""Submitting to Kubernetes: the names of Secrets, and never what is in them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.runner.command import Submission, local_submit
from airflow_mirror.jobs.runner.directory import open_generation
from airflow_mirror.jobs.runner.kubernetes import Kubernetes, pod_of
from airflow_mirror.jobs.runner.spec import JobSpec

SECRETS = {
    role: ClientConfig({"bootstrap.servers": "x:1", "sasl.password": f"hunter2-{role}"}, role)
    for role in ("source", "target")
}
DRIVER, EXECUTOR = (f"spark.kubernetes.{of}.secretKeyRef.AIRFLOW_MIRROR_" for of in ("driver", "executor"))
CONF = {
    "spark.kubernetes.container.image": "registry/spark:1",
    "spark.kubernetes.file.upload.path": "s3a://bucket/jobs",
    f"{DRIVER}SOURCE": "kafka-src:settings",
    f"{DRIVER}TARGET": "kafka-dst:settings",
}


def spec(**changed: str | None) -> JobSpec:
    conf = {key: value for key, value in {**CONF, **changed}.items() if value is not None}
    mirror = {"name": "m", "source": "a", "target": "b"}
    return JobSpec(kind="bulk_copy", mirror=mirror, master="k8s://https://api:6443", spark_conf=conf)


@pytest.fixture
def place() -> Kubernetes:
    return Kubernetes(local_submit, lambda: None, "k8s://https://api:6443", "mirrors")  # type: ignore


def test_driver_gets_its_settings_by_reference_to_secrets(place: Kubernetes, tmp_path: Path) -> None:
    directory = open_generation(tmp_path / "job", spec())
    launch = place.launch(spec(), directory, SECRETS)
    command = " ".join(launch.command)
    assert f"{DRIVER}SOURCE=kafka-src:settings" in command and f"{DRIVER}TARGET=kafka-dst:settings" in command
    asked = json.loads((directory / "request.json").read_text())
    assert (asked["source"], asked["target"]) == ("env:AIRFLOW_MIRROR_SOURCE", "env:AIRFLOW_MIRROR_TARGET")
    assert asked["settings_from"] == "driver", "executors get them from the driver"
    assert launch.descriptors == () and "hunter2" not in command + str(dict(launch.environment))
    assert not [file for file in directory.rglob("*") if file.is_file() and b"hunter2" in file.read_bytes()]


def test_executors_with_secrets_of_their_own_read_those(place: Kubernetes) -> None:
    assert not place.has_settings(spec(**{f"{EXECUTOR}SOURCE": "a:b"})), "one is not enough"
    both = spec(**{f"{EXECUTOR}SOURCE": "a:b", f"{EXECUTOR}TARGET": "c:d"})
    assert place.has_settings(both)


def test_pod_is_named_after_the_job_and_found_by_that(place: Kubernetes) -> None:
    settings = place.settings(spec(), "abc")
    assert settings["spark.kubernetes.driver.pod.name"] == pod_of("abc") == "airflow-mirror-abc"
    assert settings["spark.kubernetes.submission.waitAppCompletion"] == "false"
    assert place.kill_command("abc")[1:] == [
        "--master", "k8s://https://api:6443", "--kill", "mirrors:airflow-mirror-abc",
    ]  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], set[str]]:
    """What was asked of Kubernetes, and the jobs that have a pod there."""
    actions, pods = list[str](), set[str]()

    def run(command: list[str], **_: Any) -> Any:
        actions.append(command[3])
        is_there = command[4].removeprefix("mirrors:airflow-mirror-") in pods
        said = "phase: Running" if is_there or command[3] == "--kill" else "Application not found."
        return SimpleNamespace(returncode=0, stdout="", stderr=f"Submitting a request ...\n{said}\n")

    monkeypatch.setattr(subprocess, "run", run)
    return actions, pods


@pytest.mark.parametrize("is_there", [False, True])
def test_pod_that_is_not_there_is_not_killed(
    place: Kubernetes, is_there: bool, asked: tuple[list[str], set[str]]
) -> None:  # fmt: skip
    """To Spark that is a success: a tail on another host copied on while its task was green."""
    actions, pods = asked
    pods.update({"abc"} if is_there else ())
    assert place.kill("abc") is is_there
    assert actions == ["--status", *(["--kill"] if is_there else [])]


def test_pod_of_a_task_that_is_killed_is_deleted_by_the_first_request(
    place: Kubernetes, asked: tuple[list[str], set[str]], tmp_path: Path
) -> None:
    """Each costs the start of a JVM, and the task has five seconds for all of them."""
    place.clean_up({"id": "abc", "dir": str(tmp_path), "where": "elsewhere"}, ended_well=False)
    assert asked[0] == ["--kill"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({f"{DRIVER}SOURCE": None}, "secretKeyRef.AIRFLOW_MIRROR_SOURCE=None.*from a Secret.*librdkafka's names"),
        ({f"{DRIVER}TARGET": "kafka-dst"}, "secretKeyRef.AIRFLOW_MIRROR_TARGET='kafka-dst'.*NAME:KEY"),
        ({"spark.kubernetes.driverEnv.AIRFLOW_MIRROR_SOURCE": "hunter2"}, "driverEnv.*would see the password"),
        ({"spark.kubernetes.container.image": None}, "container.image=None.*no image"),
        ({"spark.kubernetes.file.upload.path": None}, "file.upload.path=None.*job's files"),
        ({"spark.kubernetes.namespace": "other"}, "namespace='other'.*names 'mirrors'"),
        ({"spark.kubernetes.driver.pod.name": "mine"}, "pod.name='mine'.*Leave it out"),
    ],
)
def test_what_can_not_work_is_refused_by_name(place: Kubernetes, changed: dict[str, str | None], message: str) -> None:
    with pytest.raises(InvalidField, match=message) as caught:
        place.settings(spec(**changed), "abc")
    assert "hunter2" not in str(caught.value)


def test_drivers_own_image_is_enough_to_begin(place: Kubernetes) -> None:
    """Spark itself says that executors have none."""
    image = {"spark.kubernetes.container.image": None, "spark.kubernetes.driver.container.image": "d:1"}
    assert "spark.kubernetes.driver.container.image" in place.settings(spec(**image), "abc")


def test_submission_carries_nothing_that_the_manager_does_not_need(tmp_path: Path) -> None:
    seen: list[Submission] = []

    def submit(submission: Submission) -> list[str]:
        seen.append(submission)
        return []

    place = Kubernetes(submit, lambda: None, "k8s://https://api:6443")  # type: ignore
    place.launch(spec(), open_generation(tmp_path / "job", spec()), SECRETS)
    assert not [key for key in seen[0].conf if key.startswith("spark.yarn") or "python" in key]
