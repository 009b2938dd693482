"""Client mode: the driver is a child process of this host, whatever cluster its executors are on."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import TryAgain
from airflow_mirror.jobs.runner import directory, process
from airflow_mirror.jobs.runner.command import (
    SOURCE_VARIABLE,
    TARGET_VARIABLE,
    Submission,
    Submit,
    environment,
    local_submit,
    py_files,
    spark_conf,
    store_request,
)
from airflow_mirror.jobs.runner.place import Launch
from airflow_mirror.jobs.runner.spec import JobSpec

_SHUTDOWN_S = 10.0  # from a job's final state to the end of its JVM


class ThisHost:
    """See the module and :class:`.place.Place`. The driver finds its clusters' settings in its environment.

    :param submit: makes the command line; default: the installed Spark.
    """

    name = "client"

    def __init__(self, submit: Submit = local_submit) -> None:
        self._submit = submit

    def launch(self, spec: JobSpec, directory: Path, secrets: Mapping[str, ClientConfig]) -> Launch:
        """See :class:`.place.Place`."""
        submission = Submission(
            kind=spec.kind, master=spec.master, request=str(store_request(spec, directory)),
            conf=spark_conf(spec, directory), py_files=py_files(spec, directory),
        )  # fmt: skip
        settings = {SOURCE_VARIABLE: secrets["source"].dump(), TARGET_VARIABLE: secrets["target"].dump()}
        return Launch(command=self._submit(submission), environment=environment(directory, os.environ) | settings)

    def reaches(self, handle: Mapping[str, Any]) -> bool:
        """See :class:`.place.Place`."""
        return is_here(handle) and handle.get("place", self.name) == self.name

    def is_alive(self, handle: Mapping[str, Any]) -> bool | None:
        """See :class:`.place.Place`. A job ends with its driver: the JVM that has submitted it takes longer."""
        if not self.reaches(handle):
            return None
        driver = directory.read_json(Path(handle["dir"], "driver.json"))
        has_driver = driver is None or process.is_alive(int(driver["pid"]), driver["started"])
        return is_running(handle) and has_driver

    def is_away(self, handle: Mapping[str, Any]) -> bool:
        """See :class:`.place.Place`."""
        return False

    def stop(self, handle: Mapping[str, Any], grace_s: float) -> bool:
        """See :class:`.place.Place`.

        The driver gets SIGTERM first and may finish its requests in flight; then every remaining process is ended.
        """
        job_dir = Path(handle["dir"])
        driver = directory.read_json(job_dir / "driver.json") or {}
        clean = False
        if process.is_alive(int(driver.get("pid", 0)), driver.get("started")):
            process.end([int(driver["pid"])], signal.SIGTERM)
            # Only the driver may take that long: processes that outlive it get no more time than Spark takes to end.
            clean = process.wait_until_dead(int(driver["pid"]), driver["started"], grace_s) and process.wait_until_gone(
                job_dir, min(grace_s, _SHUTDOWN_S)
            )
        ended = process.end_job(job_dir, grace_s=0.0 if driver else min(grace_s, 5.0), known=process.own(handle))
        return clean or ended

    def kill(self, job: str) -> bool:
        """See :class:`.place.Place`: a process has no id that means anything on another host."""
        return False

    def clean_up(self, handle: Mapping[str, Any], ended_well: bool) -> None:
        """See :class:`.place.Place`."""
        job_dir = Path(handle["dir"])
        if ended_well:
            process.wait_until_gone(job_dir, _SHUTDOWN_S)
        # A killed driver's Python workers may live on for seconds, possibly in the middle of a write.
        process.end_job(job_dir, grace_s=2.0)

    def close(self) -> None:
        """See :class:`.place.Place`."""


def elsewhere(handle: Mapping[str, Any]) -> TryAgain:
    """Return the error where a job's pid means nothing here, so that the job can't be seen or stopped from here."""
    name, wait = handle["name"], "wait: a job that reports nothing for five minutes counts as lost."
    if handle["host"] == process.hostname():
        return TryAgain(
            f"job {name!r} was started on this host before its last boot, or in another container of its name (directory "
            f"{handle['dir']})",
            "what became of it only its reports say",
            wait.capitalize(),
        )
    return TryAgain(
        f"job {name!r} runs on host {handle['host']!r} (directory {handle['dir']}). It can be stopped only there", "",
        f"Run the mirror's tasks on that host's queue, or {wait}",
    )  # fmt: skip


def is_here(handle: Mapping[str, Any]) -> bool:
    """Return whether the job's pid means something here."""
    return bool(handle["where"] == process.here())


def is_running(handle: Mapping[str, Any]) -> bool:
    """Return whether the process that submitted a job of this host still runs."""
    return is_here(handle) and bool(handle["pid"]) and process.is_alive(int(handle["pid"]), handle["started"])
