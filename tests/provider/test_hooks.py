"""Connections become client settings; errors become outcomes."""

from __future__ import annotations

import base64
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_mirror.common.oauth import methods
from airflow_mirror.config import ClientConfig
from airflow_mirror.console.clusters import config_of
from airflow_mirror.errors import (
    ClusterUnreachable,
    InputError,
    InvalidField,
    MirrorError,
    MissingSetting,
    NeedsHuman,
    TryAgain,
    UnknownConnection,
)
from airflow_mirror.hooks import home as homes
from airflow_mirror.hooks import spark
from airflow_mirror.hooks.kafka import MirrorKafkaHook
from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.jobs.runner.client import ThisHost
from airflow_mirror.jobs.runner.directory import open_generation
from airflow_mirror.jobs.runner.kubernetes import Kubernetes
from airflow_mirror.jobs.runner.spec import JobSpec
from airflow_mirror.mirror import Mirror

SECRETS = {
    "source": ClientConfig({"bootstrap.servers": "s:1", "sasl.password": "hunter2-source"}, "source"),
    "target": ClientConfig({"bootstrap.servers": "t:1", "sasl.password": "hunter2-target"}, "target"),
}


def test_settings_come_from_the_connections_extra(connections: Callable[..., None]) -> None:
    config = MirrorKafkaHook("src", "source").config()
    assert (config.bootstrap, config.role) == ("127.0.0.1:1", "source")
    assert config.properties["sasl.password"] == "hunter2-src"


def test_secrets_that_airflow_does_not_know_are_masked_too(
    connections: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    masked: list[Any] = []
    monkeypatch.setattr("airflow_mirror.hooks.kafka.mask_secret", masked.append)
    MirrorKafkaHook("src", "source").config()
    assert set(masked) == {"hunter2-src", "PEM-of-src"}


def test_an_unknown_connection_is_named_with_its_role(connections: Callable[..., None]) -> None:
    with pytest.raises(UnknownConnection, match=r"'nowhere' \(the target cluster\) does not exist.*AIRFLOW_CONN_NOWHERE"):
        MirrorKafkaHook("nowhere", "target").config()


def test_a_cluster_of_a_command_is_a_file_or_a_connection(connections: Callable[..., None]) -> None:
    assert config_of("src", "source") == MirrorKafkaHook("src", "source").config()
    with pytest.raises(InputError, match="source cluster: 'nowhere' is neither a file here nor .* create a connection"):
        config_of("nowhere", "source")


def test_a_connection_without_bootstrap_servers_is_named(connections: Callable[..., None]) -> None:
    with pytest.raises(MissingSetting, match=r"connection 'bare' \(the source cluster\): 'bootstrap.servers' is not set"):
        MirrorKafkaHook("bare", "source").config()


NO_OBJECTS = ['{"sasl.password": "hunter2",}', '"{}"', "[]", "null", "hunter2"]


@pytest.mark.parametrize("text", NO_OBJECTS)
def test_extra_that_is_no_json_object_is_refused_and_not_quoted(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Airflow takes what it can't parse for an empty one."""
    monkeypatch.setenv("AIRFLOW_CONN_SRC", json.dumps({"conn_type": "kafka", "extra": text}))
    with pytest.raises(
        InputError, match=r"connection 'src' \(the source cluster\): its extra is no JSON object"
    ) as caught:
        MirrorKafkaHook("src", "source").config()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("extra", ["", None, {}, "{}"])
def test_connection_may_have_no_extra(monkeypatch: pytest.MonkeyPatch, extra: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SRC", json.dumps({"conn_type": "kafka", "extra": extra}))
    with pytest.raises(MissingSetting):
        MirrorKafkaHook("src", "source").config()


def test_extra_of_google_that_does_not_parse_is_no_login_as_the_host(
    connections: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    connections("g", **GOOGLE)
    broken = {"conn_type": "google_cloud_platform", "extra": '{"key_path": "/k.json",}'}
    monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps(broken))
    with pytest.raises(InputError, match="connection 'google_cloud_default': its extra is no JSON object"):
        MirrorKafkaHook("g").config()


def test_extra_of_spark_that_does_not_parse_is_no_client_mode(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    mirror = connect(monkeypatch, "yarn", **{"deploy-mode": "cluster"})
    broken = {"conn_type": "spark", "host": "yarn", "extra": '{"deploy-mode": "cluster",}'}
    monkeypatch.setenv("AIRFLOW_CONN_SP", json.dumps(broken))
    with pytest.raises(InputError, match="connection 'sp': its extra is no JSON object"):
        spark.runner_for(mirror, "sp")


@pytest.mark.parametrize(
    "extra",
    [
        {"linger.mss": "5"}, {"linger.ms": "soon"}, {"sasl.jaas.config": "nonsense"}, {"bootstrap.servers": "b:x"},
        {"security.protocol": "SSL", "ssl.providers": "x"},
    ],
    ids=lambda extra: list(extra)[-1],
)  # fmt: skip
def test_wrong_setting_is_named_with_its_connection_and_its_role(
    connections: Callable[..., None], extra: dict[str, str]
) -> None:
    """Two of a kind may be source and target of several mirrors."""
    connections("src", **{"bootstrap.servers": "b:1", **extra})
    with pytest.raises(InputError, match=r"connection 'src' \(the target cluster\)") as caught:
        MirrorKafkaHook("src", "target").admin()
    assert list(extra)[-1] in str(caught.value) and "nonsense" not in str(caught.value)


def test_function_of_the_allow_list_stays_a_name_that_jobs_can_call(
    connections: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connections("code", **{"bootstrap.servers": "x:1", "oauth_cb": "os.path.join", "error_cb": "os.path.split"})
    monkeypatch.setenv("AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST", "os.path.join")
    caplog.set_level("INFO")
    assert MirrorKafkaHook("code", "source").config().properties["oauth_cb"] == "os.path.join"
    assert "connection code: a mirror does not call error_cb" in caplog.text


@pytest.mark.parametrize("allowed", ["", "os.path.join", "os.path.nothing"])
def test_function_that_airflow_does_not_allow_or_have_is_refused(
    connections: Callable[..., None], monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    connections("code", **{"bootstrap.servers": "x:1", "oauth_cb": "os.path.nothing"})
    monkeypatch.setenv("AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST", allowed)
    with pytest.raises(InvalidField, match="oauth_cb='os.path.nothing'.*connection 'code'.*callback_allowlist"):
        MirrorKafkaHook("code", "source").config()


MSK = {"bootstrap.servers": "b-1.x.c2.kafka.eu-west-1.amazonaws.com:9098", "sasl.mechanism": "OAUTHBEARER"}
GOOGLE = {"bootstrap.servers": "b.x.europe-west1.managedkafka.p.cloud.goog:9092", "sasl.mechanism": "OAUTHBEARER"}


@pytest.mark.parametrize("extra", [MSK, GOOGLE], ids=["msk", "google"])
def test_connection_of_a_cloud_reaches_a_job_as_text_and_names_its_method_by_its_address(
    connections: Callable[..., None], extra: dict[str, str]
) -> None:
    """The provider puts a function into it, which can't go to a job."""
    connections("cloud", **extra)
    config = MirrorKafkaHook("cloud", "source").config()
    assert json.loads(config.dump()) == extra
    assert methods.method_of(config.properties) == ("msk" if extra is MSK else "gcp")


def test_account_of_google_is_the_one_that_the_provider_takes(
    connections: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    masked: list[Any] = []
    monkeypatch.setattr("airflow_mirror.hooks.kafka.mask_secret", masked.append)
    connections("cloud", **GOOGLE)

    def google(**extra: Any) -> dict[str, str]:
        monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps({"conn_type": "x", "extra": extra}))
        return dict(MirrorKafkaHook("cloud", "source").config().properties)

    assert google(key_path="/k.json")["sasl.gcp.key"] == "/k.json"
    of_dict, of_text = google(keyfile_dict={"a": 1}), google(extra__google_cloud_platform__keyfile_dict='{"a": 1}')
    assert of_dict == of_text and base64.b64decode(of_text["sasl.gcp.key.base64"]) == b'{"a": 1}'
    assert of_text["sasl.gcp.key.base64"] in masked
    assert google() == GOOGLE
    with pytest.raises(InvalidField, match="impersonation_chain.*'google_cloud_default' logs in by it.*key_path"):
        google(impersonation_chain="x@y")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(InputError("a"), AirflowFailException), (NeedsHuman("b"), AirflowFailException), (TryAgain("c"), AirflowException)],
)
def test_the_branch_of_an_error_decides_about_a_retry(error: Any, outcome: Any) -> None:
    with pytest.raises(outcome) as caught, task_outcome():
        raise error
    assert (type(caught.value), caught.value.__cause__) == (outcome, None)
    assert caught.value.__suppress_context__, "no traceback of ours hides what it says"


def test_an_unreachable_cluster_is_retried_with_its_message() -> None:
    message = "ClusterUnreachable: source cluster: no broker at x:1"
    with pytest.raises(AirflowException, match=message) as caught, task_outcome():
        raise ClusterUnreachable("source", "x:1", "refused")
    assert not isinstance(caught.value, AirflowFailException)


def test_a_bug_is_no_outcome() -> None:
    with pytest.raises(ZeroDivisionError), task_outcome():
        1 / 0  # noqa: B018
    assert not issubclass(ZeroDivisionError, MirrorError)


def test_home_is_below_airflow_home_unless_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AIRFLOW__MIRROR__HOME", raising=False)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    assert homes.mirror_home("m") == tmp_path / "mirror" / "m"
    monkeypatch.setenv("AIRFLOW__MIRROR__HOME", "/shared/x")
    assert str(homes.mirror_home("m")) == "/shared/x/m"
    monkeypatch.setenv("AIRFLOW__MIRROR__HOME", "s3://bucket/x")
    with pytest.raises(InvalidField, match="not a path"):
        homes.mirror_home("m")


def test_a_spark_connection_names_the_cluster(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SP", "spark://master:7077")
    assert spark.master_of("sp") == "spark://master:7077"
    assert spark.master_of(None) == "local[*]"
    with pytest.raises(InvalidField, match="spark_conn_id='nope': no such connection"):
        spark.master_of("nope")


def test_for_a_cluster_the_providers_hook_makes_the_command(
    monkeypatch: pytest.MonkeyPatch, home: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SP", "spark://master:7077")
    spec = JobSpec(kind="bulk_copy", mirror={"name": "m"}, master="spark://master:7077")
    command = ThisHost(spark.provider_submit("sp")).launch(spec, tmp_path, SECRETS).command
    shipped = command[command.index("--py-files") + 1]
    assert shipped == str(tmp_path / "airflow_mirror.zip") and zipfile.is_zipfile(shipped)
    assert command[:3] == ["spark-submit", "--master", "spark://master:7077"]
    assert "spark.speculation=false" in command
    assert command[-2:] == ["bulk_copy", str(tmp_path / "request.json")]


def connect(monkeypatch: pytest.MonkeyPatch, host: str, **extra: str) -> Mirror:
    connection = {"conn_type": "spark", "host": host, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SP", json.dumps(connection))
    return Mirror(name="m", source="src", target="dst", topics=["t"])


def test_deploy_mode_of_the_connection_decides_where_drivers_run(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    def place(host: str, **extra: str) -> str:
        return spark.runner_for(connect(monkeypatch, host, **extra), "sp").place.name

    assert place("yarn") == place("yarn", **{"deploy-mode": "client"}) == place("k8s://https://api:6443") == "client"
    assert place("yarn", **{"deploy-mode": "cluster"}) == "yarn"
    assert place("k8s://https://api:6443", **{"deploy-mode": "cluster"}) == "kubernetes"
    assert spark.runner_for(connect(monkeypatch, "yarn")).place.name == "client"


@pytest.mark.parametrize(("host", "mode"), [("spark://h:7077", "cluster"), ("yarn", "clutser")])
def test_deploy_mode_that_spark_lacks_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, home: Path, host: str, mode: str
) -> None:
    mirror = connect(monkeypatch, host, **{"deploy-mode": mode})
    with pytest.raises(InvalidField, match=f"deploy-mode='{mode}'.*'sp'.*{host}.*Use client mode"):
        spark.runner_for(mirror, "sp")


def test_command_for_yarn_names_queue_tag_and_references(
    monkeypatch: pytest.MonkeyPatch, home: Path, tmp_path: Path
) -> None:
    """With what the connection says; the passwords are not in it."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    mirror = connect(monkeypatch, "yarn", **{"deploy-mode": "cluster", "queue": "copies"})
    job = JobSpec(kind="bulk_copy", mirror={"name": "m"}, master="yarn")
    directory = open_generation(tmp_path / "job", job)
    launch = spark.runner_for(mirror, "sp").place.launch(job, directory, SECRETS)
    for descriptor in launch.descriptors:
        os.close(descriptor)
    command = " ".join(launch.command)
    assert "--master yarn" in command and "--queue copies --deploy-mode cluster" in command
    assert "spark.yarn.tags=airflow-mirror-" in command
    asked = json.loads((directory / "request.json").read_text())
    assert asked["source"] == "hadoop:airflow-mirror.source"
    assert f"--files {directory}/request.json" in command and "hunter2" not in command


def on_kubernetes(monkeypatch: pytest.MonkeyPatch, directory: Path) -> list[str]:
    """Return the command for a job on Kubernetes."""
    mirror = connect(monkeypatch, "k8s://https://api:6443", **{"deploy-mode": "cluster", "namespace": "mirrors"})
    driver = "spark.kubernetes.driver.secretKeyRef.AIRFLOW_MIRROR_"
    conf = {
        "spark.kubernetes.container.image": "spark:1", "spark.kubernetes.file.upload.path": "s3a://bucket/jobs",
        f"{driver}SOURCE": "src:settings", f"{driver}TARGET": "dst:settings",
    }  # fmt: skip
    job = JobSpec(kind="bulk_copy", mirror={"name": "m"}, master=spark.master_of("sp"), spark_conf=conf)
    return spark.runner_for(mirror, "sp").place.launch(job, open_generation(directory, job), SECRETS).command


def test_command_for_kubernetes_names_namespace_pod_and_secrets(
    monkeypatch: pytest.MonkeyPatch, home: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", object(), raising=False)
    command = " ".join(on_kubernetes(monkeypatch, tmp_path / "job"))
    assert "--master k8s://https://api:6443" in command and "--deploy-mode cluster" in command
    assert "spark.kubernetes.namespace=mirrors" in command and "pod.name=airflow-mirror-" in command
    assert "secretKeyRef.AIRFLOW_MIRROR_SOURCE=src:settings" in command and "hunter2" not in command


def test_pod_is_looked_for_in_the_namespace_of_the_connection(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    mirror = connect(monkeypatch, "k8s://https://api:6443", **{"deploy-mode": "cluster", "namespace": "mirrors"})
    place = spark.runner_for(mirror, "sp").place
    assert isinstance(place, Kubernetes) and place.kill_command("1")[-1] == "mirrors:airflow-mirror-1"


def test_kubernetes_without_its_provider_is_refused(monkeypatch: pytest.MonkeyPatch, home: Path, tmp_path: Path) -> None:
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", None, raising=False)
    with pytest.raises(InvalidField, match="'sp'.*Install apache-airflow-providers-cncf-kubernetes"):
        on_kubernetes(monkeypatch, tmp_path / "job")
