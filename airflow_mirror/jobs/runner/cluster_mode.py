"""Cluster deploy mode: the driver runs on a host of the cluster, as an application with an id of ours.

What submits it is a short process of this host. After that two can say what became of the job: the job itself, by its
report in the target's state (:mod:`.reports`), which is copied to the job directory's ``status.json`` for all who read
that; and the cluster's manager, which knows the application by the job's id. The manager is asked only while the job
says nothing: before it begins, and when it falls silent. Neither needs anything of this host but the handle, so that a
job is found again, and ended, from any worker.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import MirrorError, TryAgain
from airflow_mirror.jobs.runner import process, reports
from airflow_mirror.jobs.runner.active import SILENCE_S, ask_to_stop
from airflow_mirror.jobs.runner.client import is_here, is_running
from airflow_mirror.jobs.runner.command import REQUEST, Submission, Submit, cluster_conf, environment, py_files
from airflow_mirror.jobs.runner.directory import read_json, write_json
from airflow_mirror.jobs.runner.place import Launch
from airflow_mirror.jobs.runner.spec import JobSpec
from airflow_mirror.jobs.runner.state import FINAL, RUNNING
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.state import State, state_of

log = logging.getLogger(__name__)

_ASK_EVERY_S = 15.0  # asking costs a second of CPU time
Handle = Mapping[str, Any]


def silent(manager: str, cause: str) -> TryAgain:
    """Return the error where what runs the driver of a job can't be asked."""
    what = f"{manager} can't be asked what became of a job"
    return TryAgain(what, cause, "Try again when it answers; a running job goes on.")


class Elsewhere:
    """What all cluster managers have in common; see the module, and :class:`.place.Place` for what is not said here.

    :param submit: makes the command line.
    :param open_target: opens connections to the target, for the reports.
    """

    name = ""

    def __init__(self, submit: Submit, open_target: Callable[[], ClusterAdmin]) -> None:
        self._submit, self._open = submit, open_target
        self._target: ClusterAdmin | None = None
        self._states: dict[str, State] = {}
        self._heard: dict[str, tuple[object, float]] = {}  # job -> its last report, and when that was a new one
        self._asked: dict[str, float] = {}  # job -> when the manager said that it runs

    # --- what each manager answers for itself ---

    references = "", ""  # by which the driver finds the settings of source and target
    look_every_s, silence_s = 1.0, SILENCE_S
    shutdown_s = 30.0  # from a job's last report to the end of its application

    def has_settings(self, spec: JobSpec) -> bool:
        """Return whether executors find the clusters' settings themselves, so that the driver need not send them."""
        raise NotImplementedError

    def settings(self, spec: JobSpec, job: str) -> dict[str, str]:
        """Return the Spark settings that the manager needs, user's included. Errors as :meth:`.place.Place.launch`."""
        raise NotImplementedError

    def hand_over(self, secrets: Mapping[str, ClientConfig]) -> tuple[dict[str, str], tuple[int, ...]]:
        """Return variables of the submitting process, and open files for it, by which the driver gets the settings."""
        raise NotImplementedError

    def ask(self, job: str) -> bool | None:
        """Return whether the job has an application that has not ended; None if the manager can't be asked."""
        raise NotImplementedError

    def kill(self, job: str) -> bool:
        """End the job's application, if it has one; return whether it had."""
        raise NotImplementedError

    def end(self, job: str) -> None:
        """End the job's application, if it has one, by no more questions than that takes."""
        self.kill(job)

    def why(self, job: str) -> str:
        """Return what the manager says of the job's application, which has ended; empty if there is none."""
        raise NotImplementedError

    # --- the place ---

    def launch(self, spec: JobSpec, directory: Path, secrets: Mapping[str, ClientConfig]) -> Launch:
        """See :class:`.place.Place`."""
        job = str((read_json(directory / "spec.json") or {})["id"])
        source, target = self.references
        asked = spec.request(
            source, target, report=reports.report_key(str(spec.mirror["name"]), job),
            plan=Path(spec.plan).stem,  # its hash: the driver fetches it from the target
            settings_from="executor" if self.has_settings(spec) else "driver",
        )  # fmt: skip
        write_json(directory / REQUEST, asked)
        files = [str(directory / REQUEST), *filter(None, [spec.spark_conf.get("spark.files")])]
        submission = Submission(
            kind=spec.kind, master=spec.master, request=REQUEST, conf=cluster_conf() | self.settings(spec, job),
            py_files=py_files(spec, directory), files=",".join(files),
        )  # fmt: skip
        command = self._submit(submission)
        if spec.metrics:
            log.warning("%s is not written: the driver runs on another host", spec.metrics)
        write_json(directory / "status.json", {"state": RUNNING, "phase": "submitting", "updated": time.time()})
        variables = environment(directory, os.environ)
        more, descriptors = self.hand_over(secrets)  # last: nothing must fail while nobody knows of open files
        return Launch(command=command, environment=variables | more, descriptors=descriptors)

    def reaches(self, handle: Handle) -> bool:
        """See :class:`.place.Place`."""
        return True

    def is_alive(self, handle: Handle) -> bool | None:
        """See :class:`.place.Place`."""
        job, path = str(handle["id"]), Path(handle["dir"], "status.json")
        known = read_json(path) or {}
        if known.get("state") in FINAL or known.get("gone"):
            return False
        try:
            report = self._copy(self._state_of(handle), handle)
        except TryAgain as e:
            if self.ask(job):
                log.warning("what the job says is not known: %s", e)
                return True
            raise
        if report.get("state") in FINAL:
            return False
        if is_running(handle) or self._is_heard(job, report) or self._is_there(job):
            return True
        found = self.ask(job)
        if found:
            self._asked[job] = time.monotonic()
            return True
        report = self._copy(self._state_of(handle), handle)  # it may have ended since it was read
        if found is False and report.get("state") not in FINAL:
            why = self.why(job)
            if not why and not is_here(handle):
                return None  # another host may be submitting it just now
            write_json(path, {**report, "gone": True, "error": why or None})
        return found

    def is_away(self, handle: Handle) -> bool:
        """See :class:`.place.Place`: what submits it has to end first."""
        return not is_running(handle)

    def stop(self, handle: Handle, grace_s: float) -> bool:
        """See :class:`.place.Place`. A tail is asked to stop in the target's state; other jobs have nothing to finish."""
        asked = time.monotonic()
        try:
            # Connections of its own: a task that is killed may be using the others this very moment.
            with self._open() as target:
                state = state_of(target, _key(handle))
                if handle["kind"] == "streaming_tail" and self._copy(state, handle).get("state") not in FINAL:
                    ask_to_stop(state, str(handle["mirror"]), str(handle["id"]), f"a task on host {process.hostname()}")
                    while self._copy(state, handle).get("state") not in FINAL and time.monotonic() - asked < grace_s:
                        time.sleep(self.look_every_s)
                clean = self._copy(state, handle).get("state") in FINAL
        except MirrorError as e:
            log.warning("the job can't be asked to stop: %s", e)
            clean = False
        self.clean_up(handle, ended_well=clean)
        return clean

    def clean_up(self, handle: Handle, ended_well: bool) -> None:
        """See :class:`.place.Place`."""
        if is_here(handle):
            process.end_job(Path(handle["dir"]), grace_s=0.0, known=process.own(handle))  # what may submit it still
        job = str(handle["id"])
        # Else at once: a task that is killed has five seconds, and managers need some of them for each question.
        if not (ended_well and self._ends(job)):
            self.end(job)
        path = Path(handle["dir"], "status.json")
        known = read_json(path) or {}
        if known.get("state") not in FINAL:
            write_json(path, {**known, "gone": True})  # whatever it has said lately

    def close(self) -> None:
        """See :class:`.place.Place`."""
        if self._target is not None:
            self._target.close()
        self._target, self._states = None, {}

    # --- inside -------------------------------------------------------------------------------------------------------

    def _state_of(self, handle: Handle) -> State:
        key = _key(handle)
        if key not in self._states:
            self._target = self._target or self._open()
            self._states[key] = said_by(self._target, handle)
        return self._states[key]

    def _copy(self, state: State, handle: Handle) -> dict[str, Any]:
        """Copy the job's report to its status file, and return it; what the file says if there is none."""
        path = Path(handle["dir"], "status.json")
        report = reports.read(state, _key(handle))
        if report is None:
            return read_json(path) or {}
        write_json(path, report)
        return report

    def _ends(self, job: str) -> bool:
        """Return whether a job's application is gone within ``shutdown_s``, or the manager can't tell."""
        deadline = time.monotonic() + self.shutdown_s
        while (alive := self.ask(job)) and time.monotonic() < deadline:
            time.sleep(self.look_every_s)
        return not alive

    def _is_heard(self, job: str, report: Mapping[str, Any]) -> bool:
        """Return whether the job has said something new since we look, and lately."""
        said, (before, at) = report.get("updated"), self._heard.get(job, (None, float("-inf")))
        if said != before:
            at = time.monotonic() if before is not None else at  # an old report may be its last one
            self._heard[job] = said, at
        return time.monotonic() - at < self.silence_s

    def _is_there(self, job: str) -> bool:
        return time.monotonic() - self._asked.get(job, float("-inf")) < _ASK_EVERY_S


def said_by(target: ClusterAdmin, handle: Handle) -> State:
    """Return the state that holds a job's report, for :func:`.reports.read`."""
    return state_of(target, f"{_key(handle)}/")


def _key(handle: Handle) -> str:
    return reports.report_key(str(handle["mirror"]), str(handle["id"]))
