"""Jobs for Kubernetes: the real ``spark-submit`` tells a stand-in for its API server what the driver's pod is.

No pod is started: what a node does with it nobody has tried.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import TryAgain
from airflow_mirror.hooks import spark
from airflow_mirror.jobs.runner.directory import open_generation
from airflow_mirror.jobs.runner.kubernetes import Kubernetes, pod_of
from airflow_mirror.jobs.runner.spec import JobSpec
from airflow_mirror.mirror import Mirror
from tests.kubernetes_api import Api, kubernetes

pytestmark = pytest.mark.spark

DRIVER = "spark.kubernetes.driver.secretKeyRef.AIRFLOW_MIRROR_"
SECRETS = {
    role: ClientConfig({"bootstrap.servers": "x:1", "sasl.password": f"hunter2-{role}"}, role)
    for role in ("source", "target")
}


@pytest.fixture
def api() -> Iterator[Api]:
    with kubernetes() as server:
        yield server


def place(monkeypatch: pytest.MonkeyPatch, url: str) -> Kubernetes:
    """Where a Spark connection has drivers run, with the command of the Spark provider."""
    # That of Kubernetes is not installed here; only the class of its errors would be used.
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", object(), raising=False)
    extra = {"deploy-mode": "cluster", "namespace": "mirrors"}
    monkeypatch.setenv("AIRFLOW_CONN_K8S", json.dumps({"conn_type": "spark", "host": f"k8s://{url}", "extra": extra}))
    found = spark.runner_for(Mirror(name="m", source="a", target="b", topics=["t"]), "k8s").place
    assert isinstance(found, Kubernetes)
    return found


def test_driver_is_a_pod_with_names_of_secrets_and_is_deleted_by_its_name(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = tmp_path / "uploads"
    conf = {
        "spark.kubernetes.container.image": "registry/spark-mirror:1",
        "spark.kubernetes.file.upload.path": f"file://{uploads}",
        f"{DRIVER}SOURCE": "kafka-source:settings", f"{DRIVER}TARGET": "kafka-target:settings",
    }  # fmt: skip
    spec = JobSpec(
        kind="bulk_copy", mirror={"name": "m", "source": "a", "target": "b"}, master=f"k8s://{api.url}", spark_conf=conf
    )
    on, directory = place(monkeypatch, api.url), open_generation(tmp_path / "job", spec)
    launch = on.launch(spec, directory, SECRETS)
    done = subprocess.run(
        launch.command, env=dict(launch.environment), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, (api.asked, done.stderr[:3000])

    ((name, pod),) = api.of("pods").items()
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "registry/spark-mirror:1" and name == pod_of(name.removeprefix("airflow-mirror-"))
    by_reference = {
        e["name"]: e["valueFrom"]["secretKeyRef"] for e in container["env"] if "secretKeyRef" in e.get("valueFrom", {})
    }
    assert by_reference == {
        "AIRFLOW_MIRROR_SOURCE": {"name": "kafka-source", "key": "settings"},
        "AIRFLOW_MIRROR_TARGET": {"name": "kafka-target", "key": "settings"},
    }
    assert container["args"][0] == "driver" and "org.apache.spark.deploy.PythonRunner" in container["args"]
    program = next(word for word in container["args"] if word.endswith(".py"))
    sent = {file.name for file in uploads.rglob("*") if file.is_file()}
    assert Path(program).name in sent and "request.json" in sent and any(name.endswith(".zip") for name in sent)
    assert "hunter2" not in str(api.objects) + done.stderr + done.stdout
    assert not [file for file in uploads.rglob("*") if file.is_file() and b"hunter2" in file.read_bytes()]

    assert on.kill(name.removeprefix("airflow-mirror-"))
    assert api.of("pods") == {}
    assert not on.kill(name.removeprefix("airflow-mirror-")), "nothing is there any more"


def test_api_server_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with kubernetes() as server:
        gone = server.url
    with pytest.raises(TryAgain, match="Kubernetes"):
        place(monkeypatch, gone).kill("abc")
