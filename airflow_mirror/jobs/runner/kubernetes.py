"""Cluster deploy mode on Kubernetes: the driver is a pod, named after the job's id.

The pod gets the clusters' settings from Kubernetes Secrets. The command line has their names only
(``spark.kubernetes.driver.secretKeyRef.*``); the values in Airflow's connections do not leave the worker.

What became of a job is known from its reports alone: one that is silent for five minutes counts as lost, and its pod is
deleted before another one is started.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.runner.cluster_mode import Elsewhere, silent
from airflow_mirror.jobs.runner.command import SOURCE_VARIABLE, TARGET_VARIABLE, Submit, spark_home
from airflow_mirror.jobs.runner.spec import JobSpec
from airflow_mirror.kafka.admin import ClusterAdmin

_VARIABLES = (SOURCE_VARIABLE, TARGET_VARIABLE)
_NAMESPACE, _POD = "spark.kubernetes.namespace", "spark.kubernetes.driver.pod.name"
_IMAGES = ("spark.kubernetes.driver.container.image", "spark.kubernetes.container.image")
_UPLOADS = "spark.kubernetes.file.upload.path"
_PATIENCE_S = 120.0
_NOT_FOUND = "Application not found."  # Spark's words for a pod that is not there


class Kubernetes(Elsewhere):
    """See the module, :class:`.cluster_mode.Elsewhere` and :class:`.place.Place`.

    :param master: ``k8s://...``. :param namespace: of the pods.
    """

    name = "kubernetes"
    references = f"env:{SOURCE_VARIABLE}", f"env:{TARGET_VARIABLE}"

    def __init__(
        self, submit: Submit, open_target: Callable[[], ClusterAdmin], master: str, namespace: str = "default"
    ) -> None:
        super().__init__(submit, open_target)
        self._master, self._namespace = master, namespace

    def has_settings(self, spec: JobSpec) -> bool:
        """See :class:`.cluster_mode.Elsewhere`. They read their own Secrets if they have some."""
        return all(_reference("executor", variable) in spec.spark_conf for variable in _VARIABLES)

    def settings(self, spec: JobSpec, job: str) -> dict[str, str]:
        """See :class:`.cluster_mode.Elsewhere`.

        :raises InvalidField: a setting is missing, would show a password, or would hide the pod.
        """
        conf = spec.spark_conf
        for variable in _VARIABLES:
            key, shown = _reference("driver", variable), f"spark.kubernetes.driverEnv.{variable}"
            if shown in conf:
                raise InvalidField(shown, "...", "everybody who sees the pod would see the password", f"Use {key}.")
            if len([part for part in conf.get(key, "").split(":") if part]) != 2:
                raise InvalidField(
                    key, conf.get(key), "the driver gets its settings from a Secret",
                    "Store them in one, as a JSON object with librdkafka's names, user and password too, and set this to "
                    "NAME:KEY in spark_conf.",
                )  # fmt: skip
        if not any(image in conf for image in _IMAGES):
            raise InvalidField(_IMAGES[1], None, "no image", "Name one with what executors must have, in spark_conf.")
        if _UPLOADS not in conf:
            raise InvalidField(
                _UPLOADS, None, "the pod gets the job's files from a file system that both reach",
                "Set it in spark_conf, for example to a bucket.",
            )  # fmt: skip
        if conf.get(_NAMESPACE, self._namespace) != self._namespace:
            raise InvalidField(
                _NAMESPACE, conf[_NAMESPACE], f"the connection names {self._namespace!r}", "Set it in the connection."
            )
        if _POD in conf:
            raise InvalidField(_POD, conf[_POD], "a job is found by the name of its pod", "Leave it out.")
        return {"spark.kubernetes.submission.waitAppCompletion": "false"} | dict(conf) | {_POD: pod_of(job)}

    def hand_over(self, secrets: Mapping[str, ClientConfig]) -> tuple[dict[str, str], tuple[int, ...]]:
        """See :class:`.cluster_mode.Elsewhere`: the values stay here."""
        return {}, ()

    def ask(self, job: str) -> bool | None:
        """See :class:`.cluster_mode.Elsewhere`."""
        return None

    def kill(self, job: str) -> bool:
        """See :class:`.cluster_mode.Elsewhere`. Deletes the pod; its executors follow.

        :raises TryAgain: Kubernetes does not answer, or refuses.
        """
        # To Spark it is a success to kill what is not there: a tail that runs elsewhere would be taken for ended.
        if _NOT_FOUND in self._answer(self._command("--status", job)):
            return False
        self.end(job)
        return True

    def end(self, job: str) -> None:
        """See :class:`.cluster_mode.Elsewhere`. :raises TryAgain: Kubernetes does not answer, or refuses."""
        self._answer(self.kill_command(job))

    def _answer(self, command: list[str]) -> str:
        env = {**os.environ, "SPARK_HOME": str(spark_home())}
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S, env=env)
        except subprocess.TimeoutExpired:
            raise silent("Kubernetes", f"no answer within {_PATIENCE_S:.0f} s") from None
        if done.returncode:
            raise silent("Kubernetes", (done.stderr.strip() or done.stdout.strip())[-1000:])
        return f"{done.stdout}{done.stderr}"

    def kill_command(self, job: str) -> list[str]:
        """Return the command that deletes the driver's pod of a job."""
        return self._command("--kill", job)

    def _command(self, action: str, job: str) -> list[str]:
        submit = str(spark_home() / "bin" / "spark-submit")
        return [submit, "--master", self._master, action, f"{self._namespace}:{pod_of(job)}"]

    def why(self, job: str) -> str:
        """See :class:`.cluster_mode.Elsewhere`."""
        return ""


def pod_of(job: str) -> str:
    """Return the name of a job's driver pod, from its id."""
    return f"airflow-mirror-{job}"


def _reference(of: str, variable: str) -> str:
    return f"spark.kubernetes.{of}.secretKeyRef.{variable}"
