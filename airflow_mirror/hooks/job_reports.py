"""What a job says whose driver runs on a cluster, and how it is ended, from any host that reaches the target."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow_mirror.hooks.kafka import MirrorKafkaHook
from airflow_mirror.hooks.spark import runner_for
from airflow_mirror.jobs.runner import reports
from airflow_mirror.jobs.runner.cluster_mode import said_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mirror.mirror import Mirror

_GRACE_S = 2.0


class JobReports:
    """Reads a job's reports. Keep it while listening; not for two threads at once.

    :param handle: of :class:`.local.LocalRunner`.
    """

    def __init__(self, mirror: Mirror, handle: Mapping[str, Any]) -> None:
        self._admin = MirrorKafkaHook(mirror.target, "target").admin()
        self._state, self._key = said_by(self._admin, handle), reports.report_key(mirror.name, str(handle["id"]))

    def look(self) -> dict[str, Any]:
        """Return the last report; {}: there is none yet. :raises TryAgain: nobody knows."""
        return reports.read(self._state, self._key) or {}

    def close(self) -> None:
        """Close its connections."""
        self._admin.close()


def end_job(mirror: Mirror, spark_conn_id: str | None, handle: dict[str, Any]) -> None:
    """End a job. Errors as :meth:`.LocalRunner.cancel`; the cluster's manager has to be reached from here."""
    with closing(runner_for(mirror, spark_conn_id)) as runner:
        runner.cancel(handle, grace_s=_GRACE_S)
