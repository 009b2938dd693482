"""Plain processes: the tail is what ``airflow-mirror follow`` runs, a child of this host without Spark and Java."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_mirror.config import ClientConfig
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.client import ThisHost
from airflow_mirror.jobs.runner.command import SCRIPT, SOURCE_VARIABLE, TARGET_VARIABLE, store_request, without_airflow
from airflow_mirror.jobs.runner.place import PLAIN, Launch
from airflow_mirror.jobs.runner.spec import JobSpec


class PlainProcesses(ThisHost):
    """See the module and :class:`.place.Place`. The process that is started is the driver itself."""

    name = PLAIN

    def launch(self, spec: JobSpec, directory: Path, secrets: Mapping[str, ClientConfig]) -> Launch:
        """See :class:`.place.Place`."""
        settings = {SOURCE_VARIABLE: secrets["source"].dump(), TARGET_VARIABLE: secrets["target"].dump()}
        return Launch(
            command=[sys.executable, str(SCRIPT), "plain", str(store_request(spec, directory))],
            environment=without_airflow(directory, os.environ) | settings,
        )

    def stop(self, handle: Mapping[str, Any], grace_s: float) -> bool:
        """See :class:`.place.Place`. What it has started ends with it."""
        pid, started, job_dir = int(handle["pid"]), handle["started"], Path(handle["dir"])
        clean = not process.is_alive(pid, started)
        if not clean:
            process.end([pid], signal.SIGTERM)
            clean = process.wait_until_dead(pid, started, grace_s)
        return process.end_job(job_dir, grace_s=5.0, known=process.own(handle)) and clean
