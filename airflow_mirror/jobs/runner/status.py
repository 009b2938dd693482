"""The status file: how a running job reports its progress. Written by the job, read by the runner.

``status.json`` has the keys state, phase, updated, summary, partitions, left_out, notes, follows, metrics, error and
blame. A job writes its final state last. ``blame`` carries the branch of an error across the process boundary:
``input``, ``human`` or ``retry``. ``left_out`` is the number of partitions that are not listed: of more than a thousand,
only stopped ones and those with lag are listed (`jobs.progress.figures`), so that the file stays below half a megabyte.
``follows`` has a report for each kind of thing that follows the data, as ``groups``: its ``error``, if it fails now, in
``said`` what a person should know, and in ``at`` when its last pass ended, of which there is one every ``every_s``.
Before the first has ended, ``took_s`` is null, and ``at`` says when it began.
``metrics`` is the address at which Prometheus finds the job's figures, or null.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow_mirror.common.files import lock
from airflow_mirror.errors import InputError, JobFailed, JobNeedsHuman, MirrorError, NeedsHuman, TryAgain
from airflow_mirror.jobs.runner.complaints import Complaints
from airflow_mirror.jobs.runner.directory import read_json, write_json, write_text
from airflow_mirror.jobs.runner.state import FAILED, FINAL, RUNNING, SUCCEEDED

log = logging.getLogger(__name__)


class StatusFile:
    """The status file of one job. Holds an exclusive lock on ``<job_dir>/lock`` until the process ends.

    :param job_dir: the generation's directory; None for a job started by hand without one: nothing is written.
    :raises TryAgain: another process holds the lock. :raises OSError: the file can't be written.
    """

    def __init__(self, job_dir: str | Path | None) -> None:
        self._dir = Path(job_dir) if job_dir else None
        self._content: dict[str, Any] = {
            "phase": "starting",
            "summary": {},
            "partitions": [],
            "left_out": 0,
            "notes": [],
            "follows": {},
            "metrics": None,
            "error": None,
        }
        self._turn = threading.RLock()  # progress is written from another thread
        self._state = RUNNING
        self._complaints = Complaints(log, "status.json not written, and the job goes on: %s")
        if self._dir is not None:
            try:
                with lock(self._dir / "lock", wait_s=0.0) as file:
                    os.dup(file.fileno())  # nobody closes it before the process ends
            except BlockingIOError:
                raise TryAgain(
                    f"another process holds {self._dir}/lock", "this job is running already", "Stop it, or let it finish."
                ) from None
            self._save()  # a job that can't report from the start must not begin

    def update(
        self, phase: str | None = None, partitions: Sequence[dict[str, Any]] | None = None,
        summary: dict[str, Any] | None = None, left_out: int | None = None, notes: Sequence[str] | None = None,
        metrics: str | None = None,
    ) -> None:  # fmt: skip
        """Report that the job is alive, and what changed since the last call. Does nothing after the final state.

        What can't be written is said in the log, and comes with the next call.

        :param notes: notes for operators; the last 20 are shown.
        :param metrics: host and port of the job's figures for Prometheus.
        """
        shown = None if notes is None else list(notes)[-20:]
        changed = {
            "phase": phase, "partitions": partitions, "left_out": left_out, "summary": summary, "notes": shown,
            "metrics": metrics,
        }  # fmt: skip
        self._write(RUNNING, {k: v for k, v in changed.items() if v is not None})

    def report(self, kind: str, found: dict[str, Any]) -> None:
        """Report how one kind of thing follows the data, as ``groups``."""
        with self._turn:  # each kind has a thread of its own
            self._write(RUNNING, {"follows": {**self._content["follows"], kind: found}})

    def brief(self) -> dict[str, Any]:
        """Return phase, summary, notes and what follows, as they are now."""
        with self._turn:
            return {key: self._content[key] for key in ("phase", "summary", "notes", "follows")}

    def content(self) -> dict[str, Any]:
        """Return what the file holds now, without its rows for partitions."""
        with self._turn:
            brief = {key: value for key, value in self._content.items() if key not in ("partitions", "left_out")}
            return {"state": self._state, "updated": time.time(), **brief}

    def succeed(self, summary: dict[str, Any]) -> None:
        """Write the final state of a successful job. :raises OSError: it can't be written."""
        self._write(SUCCEEDED, {"phase": "done", "summary": summary})

    def fail(self, error: BaseException | str, summary: dict[str, Any] | None = None) -> None:
        """Write the final state of a failed job. ``error`` names the object, the cause and the remedy."""
        changed = {"error": words(error), "blame": blame(error), "summary": summary or self._content["summary"]}
        self._write(FAILED, changed)

    def _write(self, state: str, changed: dict[str, Any]) -> None:
        with self._turn:
            if self._state in FINAL:
                return
            self._state = state
            self._content |= changed
            try:
                self._save()
            except OSError as e:  # a full disk is no reason to stop a copy, which needs none; how it ended must be there
                if state in FINAL:
                    raise
                self._complaints.of(e)

    def _save(self) -> None:
        if self._dir is not None:
            content = {"state": self._state, "updated": time.time(), **self._content}
            write_text(self._dir / "status.json", _to_text(content))


def _to_text(content: dict[str, Any]) -> str:
    """Return JSON with one line per partition: people read it too, and one line per number would double its size."""
    rows = ",\n  ".join(json.dumps(row, default=str) for row in content["partitions"])
    others = json.dumps({k: v for k, v in content.items() if k != "partitions"}, indent=1, default=str)
    return f'{others[:-2]},\n "partitions": [{rows}]\n}}\n'


def blame(error: BaseException | str | None) -> str:
    """Return what the error calls for: ``input`` (correct it), ``human`` (an operator has to look) or ``retry``."""
    if isinstance(error, InputError):
        return "input"
    return "human" if isinstance(error, NeedsHuman) else "retry"


def words(error: BaseException | str) -> str:
    """Return what an error says; its class if it says nothing, as a MemoryError does: no text would pass for no error."""
    return str(error) or type(error).__name__


def error_of(name: str, state: str, blamed: str | None, cause: str, log: str) -> MirrorError:
    """Return the error for a job that ended in ``state`` without success; its branch is that of the job's own error."""
    if state == FAILED and blamed == "input":
        return InputError(f"job {name!r}", f"{cause} (log: {log})")
    if state == FAILED and blamed == "human":
        return JobNeedsHuman(name, cause, log)
    return JobFailed(name, state, cause, log)


def ensure_final(job_dir: Path, exit_code: int, error: BaseException | None) -> None:
    """Write a final state for a job that ended without one, so that a failure is never mistaken for a disappearance."""
    status = read_json(job_dir / "status.json") or {}
    if status.get("state") in FINAL:
        return
    state = SUCCEEDED if exit_code == 0 else FAILED
    final: dict[str, Any] = {"state": state, "updated": time.time()}
    if exit_code != 0:
        known = blame(error) if error else {2: "input"}.get(exit_code, "retry")  # 2: the command line was wrong
        final |= {"error": words(error) if error else f"exit code {exit_code}", "blame": known}
    write_json(job_dir / "status.json", {**status, **final})
