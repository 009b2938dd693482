"""Select the Spark that runs a job: the one installed here, or the cluster that an Airflow Spark connection names.

Either way the job is a detached ``spark-submit`` with a job directory, so that it survives its task and is found again.
For a cluster the Spark provider's hook builds the command: master, queue, namespace, keytab, deploy mode and binary come
from the connection, as everywhere else in Airflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_mirror.errors import InvalidField
from airflow_mirror.hooks.extra import extra_of
from airflow_mirror.hooks.home import mirror_home
from airflow_mirror.jobs.runner.client import ThisHost
from airflow_mirror.jobs.runner.command import SCRIPT, spark_missing
from airflow_mirror.jobs.runner.local import LocalRunner

if TYPE_CHECKING:
    from airflow_mirror.jobs.runner.command import Submission, Submit
    from airflow_mirror.jobs.runner.place import Place
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.mirror import Mirror

LOCAL_MASTER = "local[*]"


def runner_for(mirror: Mirror, spark_conn_id: str | None = None) -> LocalRunner:
    """Return the runner of a mirror's jobs; the caller closes it.

    :param spark_conn_id: an Airflow connection of type ``spark``; None, or one with a ``local...`` master, means here.
    :raises InvalidField: Spark has no such deploy mode there. :raises InputError: the extra is no JSON object.
    """
    return LocalRunner(mirror_home(mirror), _place(mirror, spark_conn_id))


def _place(mirror: Mirror, spark_conn_id: str | None) -> Place:
    """Return where the drivers of the mirror's jobs run."""
    if spark_conn_id is None or (master := master_of(spark_conn_id)).startswith("local"):
        return ThisHost()
    extra = extra_of(BaseHook.get_connection(spark_conn_id), f"connection {spark_conn_id!r}")
    mode = extra.get("deploy-mode") or "client"
    if mode == "client":
        return ThisHost(provider_submit(spark_conn_id))

    def target() -> ClusterAdmin:
        from airflow_mirror.hooks.kafka import MirrorKafkaHook

        return MirrorKafkaHook(mirror.target, "target").admin()

    if mode == "cluster" and master.startswith("yarn"):
        from airflow_mirror.jobs.runner.yarn import Yarn

        return Yarn(provider_submit(spark_conn_id), target)
    if mode == "cluster" and master.startswith("k8s://"):
        from airflow_mirror.jobs.runner.kubernetes import Kubernetes

        return Kubernetes(provider_submit(spark_conn_id), target, master, extra.get("namespace") or "default")
    raise InvalidField(
        "deploy-mode", mode, f"of connection {spark_conn_id!r}: Spark runs no Python driver so on {master!r}",
        "Use client mode there, or cluster mode on YARN or Kubernetes.",
    )  # fmt: skip


def master_of(spark_conn_id: str | None) -> str:
    """Return the Spark master that a connection names; ``local[*]`` for None.

    :raises InvalidField: the connection does not exist. The provider's hook would use YARN instead.
    """
    if spark_conn_id is None:
        return LOCAL_MASTER
    try:
        connection = BaseHook.get_connection(spark_conn_id)
    except AirflowNotFoundException:
        raise InvalidField(
            "spark_conn_id", spark_conn_id, "no such connection", "Create one of type 'spark', or leave it out."
        ) from None
    host, port = connection.host or "local", f":{connection.port}" if connection.port else ""
    if connection.conn_type == "spark" and ("://" in host or not connection.port):
        return f"{host}{port}"
    return f"{connection.conn_type}://{host}{port}"


def provider_submit(spark_conn_id: str) -> Submit:
    """Return a function that builds command lines for the cluster of a Spark connection."""

    def submit(submission: Submission) -> list[str]:
        try:
            from airflow.providers.apache.spark.hooks import spark_submit
        except ImportError:
            raise spark_missing() from None
        if submission.master.startswith("k8s") and getattr(spark_submit, "kube_client", None) is None:
            raise InvalidField(
                "spark_conn_id", spark_conn_id, "the Spark provider names no Kubernetes without that of Kubernetes",
                "Install apache-airflow-providers-cncf-kubernetes.",
            )  # fmt: skip
        hook = spark_submit.SparkSubmitHook(
            conn_id=spark_conn_id,
            conf=dict(submission.conf),
            py_files=submission.py_files,
            files=submission.files,
            name=submission.name,
            application_args=submission.arguments,
        )
        # Only this step of the hook is needed. Its submit() would end the job with this task.
        command: list[str] = hook._build_spark_submit_command(str(SCRIPT))
        return command

    return submit
