"""LocalRunner: Spark jobs that are submitted from this host and outlive the task that started them.

What submits a job runs in its own process session, so the signals that end a task don't reach it; a later attempt finds
the job again by its directory. Where its driver runs is the matter of a :class:`.place.Place`: as that very process
(:mod:`.client`), or elsewhere. The rules, each of which has a test:

- A job that runs with the same spec is returned, not started again. With another spec that is refused.
- A mirror has one live writer: another writing job of the mirror is a :class:`WriterRuns`.
- An ended job is not changed; the next start is a new generation. Processes that it left running are ended first. The
  directories of the last hundred jobs that ended are kept, and of the last hundred starts of the tail.
- A starter may die at any moment. Until job.json is written, the child is found by the launch lock that it inherited.
- A job on another host is never judged by a pid, but by its status, which is there before the job is. What became of a
  tail there, the target's ledger says (:mod:`.active`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_mirror.common.files import is_locked, lock
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InputError, WriterRuns
from airflow_mirror.jobs.runner import directory, process, state
from airflow_mirror.jobs.runner.client import ThisHost, elsewhere, is_here
from airflow_mirror.jobs.runner.place import Place
from airflow_mirror.jobs.runner.spec import WRITERS, JobSpec
from airflow_mirror.jobs.runner.status import error_of

Handle = dict[str, Any]
TAIL = "tail"  # the name of a mirror's tail job: one per mirror, whatever task or run started it
KEEP_JOBS = 100  # directories of ended jobs; hourly windows would leave 17,000 in a year
_LAUNCH_S = 10.0  # limit from fork to exec; far longer than it ever takes


class LocalRunner:
    """Starts, finds, watches and stops the Spark jobs of one mirror that are submitted from this host.

    :param mirror_home: the mirror's directory; jobs live in ``<mirror_home>/jobs/<name>/<generation>/``.
    :param place: where their drivers run; default: on this host, with the installed Spark.
    :param keep: how many directories of jobs that have ended are kept.

    A *handle* is the JSON content of job.json: ``name, generation, dir, kind, id, mirror, place, pid, started, host,
    where, spec``. It survives a trip through XCom or a state store.
    """

    def __init__(self, mirror_home: str | Path, place: Place | None = None, keep: int = KEEP_JOBS) -> None:
        self.jobs, self._keep = Path(mirror_home).resolve() / "jobs", keep
        self._here = ThisHost()
        self.place = place or self._here

    # --- start --------------------------------------------------------------------------------------------------------

    def ensure_started(self, name: str, spec: JobSpec, secrets: Mapping[str, ClientConfig]) -> Handle:
        """Return the handle of the running job ``name``; start it if it isn't running. Safe to repeat at any moment.

        :param secrets: settings of ``source`` and ``target``, passed to the job in its environment.
        :raises InputError: it runs with another spec.
        :raises WriterRuns: another writer of this mirror runs.
        :raises TryAgain: it runs on another host.
        """
        with lock(self.jobs / "lock"):
            self._refuse_second_writer(name, spec)
            handle = self.find(name)
            if handle is not None and not self._is_tail_elsewhere(handle):
                if self.status(handle) == state.RUNNING:
                    return self._reattach(handle, spec)
                self._clean_up(handle)
            handle = self._launch(name, spec, secrets)
            self._forget_old()
            return handle

    def _forget_old(self) -> None:
        """Remove the directories of the oldest jobs that ended, beyond those that are kept."""
        ended = [h for job in self.jobs.iterdir() if job.is_dir() and (h := self.find(job.name)) is not None]
        ended = [h for h in ended if h["name"] != TAIL and self.status(h) != state.RUNNING]
        # By where they are: a handle names where it was before the home was moved.
        by_age = sorted(ended, key=lambda h: (self.jobs / h["name"] / str(h["generation"])).stat().st_mtime)
        for handle in by_age[: -self._keep]:
            shutil.rmtree(self.jobs / handle["name"], ignore_errors=True)
        for job_dir in self._old_tails():
            shutil.rmtree(job_dir, ignore_errors=True)

    def _old_tails(self) -> list[Path]:
        """Return the directories of the tail's oldest starts, likewise: each start of it has one."""
        old = [self.jobs / TAIL / str(number) for number in directory.generations(self.jobs / TAIL)[: -self._keep]]
        known = {job_dir: directory.read_json(job_dir / "job.json") for job_dir in old}
        # Another host that shares the home may run an older one: what its status says is as new as that file.
        return [job_dir for job_dir, handle in known.items() if not handle or self.status(handle) != state.RUNNING]

    def _reattach(self, handle: Handle, spec: JobSpec) -> Handle:
        if handle["spec"] != spec.hash:
            raise InputError(
                f"job {handle['name']!r} is already running with another specification",
                f"{handle['spec']} runs, {spec.hash} was requested; directory {handle['dir']}",
                "Stop it first (StopMirrorOperator), or wait until it ends.",
            )
        if not self.reaches(handle):
            raise elsewhere(handle)
        return handle

    def _refuse_second_writer(self, name: str, spec: JobSpec) -> None:
        for other in self.running() if spec.writes else ():
            if other["name"] != name and other["kind"] in WRITERS and not self._is_tail_elsewhere(other):
                raise WriterRuns(other["name"], other["dir"], other["kind"], spec.kind)

    def _clean_up(self, handle: Handle) -> None:
        if self.reaches(handle):
            handle = self._located(handle)
            self._place_of(handle).clean_up(handle, ended_well=self.status(handle) in state.FINAL)
            shutil.rmtree(Path(handle["dir"], directory.SPARK), ignore_errors=True)  # of one elsewhere it may be in use

    def _launch(self, name: str, spec: JobSpec, secrets: Mapping[str, ClientConfig]) -> Handle:
        job_dir = directory.open_generation(self.jobs / name, spec)
        launch = self.place.launch(spec, job_dir, secrets)
        if not (status := job_dir / "status.json").exists():
            # Another host judges the job by this file alone, and would start it again before its first word.
            directory.write_json(status, {"state": state.RUNNING, "phase": "starting", "updated": time.time()})
        try:
            with open(job_dir / "log.txt", "ab") as log, lock(job_dir / directory.LAUNCH_LOCK) as held:
                child = subprocess.Popen(
                    launch.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=launch.environment, cwd=job_dir,
                    start_new_session=True, pass_fds=(held.fileno(), *launch.descriptors),
                )  # fmt: skip
        finally:
            for descriptor in launch.descriptors:
                os.close(descriptor)
        # It outlives this process by design; as long as we live somebody has to hear that it has ended.
        threading.Thread(target=child.wait, name="job", daemon=True).start()
        return self._record(job_dir, child.pid)

    def _record(self, job_dir: Path, pid: int) -> Handle:
        spec = directory.read_json(job_dir / "spec.json") or {}
        handle = {
            "name": job_dir.parent.name, "generation": int(job_dir.name), "dir": str(job_dir),
            "kind": str(spec.get("kind", "")), "id": str(spec.get("id", "")),
            "mirror": str((spec.get("mirror") or {}).get("name", "")), "place": self.place.name,
            "pid": pid, "started": process.started_at(pid), "host": process.hostname(), "where": process.here(),
            "spec": str(spec.get("hash", "")),
        }  # fmt: skip
        directory.write_json(job_dir / "job.json", handle)
        return handle

    # --- find ---------------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Handle | None:
        """Return the handle of the last start of job ``name``, or None if it was never started."""
        job_dir = directory.latest(self.jobs / name)
        if job_dir is None:
            return None
        if found := directory.read_json(job_dir / "job.json"):
            return found
        # One without a spec is no start: whoever waits here for another host's job keeps its status there.
        return self._recover(job_dir) if (job_dir / "spec.json").exists() else None

    def running(self) -> list[Handle]:
        """Return the handles of all running jobs of this mirror."""
        if not self.jobs.is_dir():
            return []
        handles = (self.find(job.name) for job in sorted(self.jobs.iterdir()) if job.is_dir())
        return [h for h in handles if h is not None and self.status(h) == state.RUNNING]

    def _recover(self, job_dir: Path) -> Handle:
        """Build the handle of a start whose starter died before it wrote job.json. One that lives still writes it."""
        found, written = list[int](), job_dir / "job.json"
        deadline = time.monotonic() + _LAUNCH_S
        # The lock is held from before the fork; the mark in the environment exists from the exec on.
        while is_locked(job_dir / directory.LAUNCH_LOCK) and not found and time.monotonic() < deadline:
            if known := directory.read_json(written):
                return known
            found = process.members(job_dir)
            time.sleep(0 if found else 0.05)
        return directory.read_json(written) or self._record(job_dir, found[0] if found else 0)

    # --- watch --------------------------------------------------------------------------------------------------------

    def status(self, handle: Handle) -> str:
        """Return RUNNING, SUCCEEDED, FAILED or LOST (its process is gone without a final state)."""
        handle = self._located(handle)
        path = Path(handle["dir"], "status.json")
        alive = self._place_of(handle).is_alive(handle)
        # Read after checking the process: a job that ends between the two has written its final state.
        return state.decide(directory.read_json(path), alive, time.time())

    def progress(self, handle: Handle) -> dict[str, Any]:
        """Return the job's last report (see :mod:`.status`); ``{}`` where it has no status."""
        return directory.read_json(Path(self._located(handle)["dir"], "status.json")) or {}

    def summary(self, handle: Handle) -> dict[str, Any]:
        """Return the job's own summary: counts, seconds, end offsets."""
        return dict(self.progress(handle).get("summary") or {})

    def raise_for(self, handle: Handle) -> None:
        """Raise if a job ended without success; the error's branch is that of the job's error.

        :raises InputError: its input was wrong.
        :raises JobNeedsHuman: data are not what they must be.
        :raises JobFailed: anything else.
        """
        status = self.status(handle)
        if state.is_active(status) or state.is_succeeded(status):
            return
        report = self.progress(handle)
        name, log = f"{handle['name']}/{handle['generation']}", str(Path(self._located(handle)["dir"], "log.txt"))
        cause = str(report.get("error") or f"its process is gone; its log ends with: {self.log_tail(handle)}")
        raise error_of(name, status, report.get("blame"), cause, log)

    def log_tail(self, handle: Handle, max_bytes: int = 2000) -> str:
        """Return the end of the job's log."""
        try:
            with open(Path(self._located(handle)["dir"], "log.txt"), "rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - max_bytes))
                return log.read().decode("utf-8", errors="replace").strip()
        except OSError:
            return ""

    # --- stop ---------------------------------------------------------------------------------------------------------

    def cancel(self, handle: Handle, grace_s: float = 30.0) -> bool:
        """Stop a job and all its processes; return whether it stopped by itself within ``grace_s``. Safe to repeat.

        :raises TryAgain: it runs on another host.
        """
        if not self.reaches(handle):
            if self.status(handle) == state.RUNNING:
                raise elsewhere(handle)
            return True
        return self._place_of(handle).stop(self._located(handle), grace_s)

    def cancel_all(self, grace_s: float = 10.0) -> None:
        """Stop every running job of this mirror that can be ended from this host."""
        for handle in self.running():
            if self.reaches(handle):
                self.cancel(handle, grace_s)

    def close(self) -> None:
        """Give up connections. The runner can still be used."""
        self.place.close()

    def reaches(self, handle: Handle) -> bool:
        """Return whether the job can be judged and ended from this host."""
        return self._place_of(handle).reaches(handle)

    def is_away(self, handle: Handle) -> bool:
        """Return whether the job needs no process of this host any more, and may be waited for anywhere."""
        return self._place_of(handle).is_away(handle)

    def _located(self, handle: Handle) -> Handle:
        """Return a handle with the job's directory as this host has it: others may have mounted the home elsewhere.

        One of this host keeps its own, by which the job's processes are found; so does one whose own can be read here, as
        when the home has another path since.
        """
        if is_here(handle) or directory.read_json(Path(handle["dir"], "job.json")) == handle:
            return handle
        return {**handle, "dir": str(self.jobs / handle["name"] / str(handle["generation"]))}

    def _place_of(self, handle: Handle) -> Place:
        """Return where the job runs: another place than the next ones if the connection was changed meanwhile.

        To a process of this host a driver elsewhere is as unknown as one on another host.
        """
        return self.place if handle.get("place", self._here.name) == self.place.name else self._here

    def _is_tail_elsewhere(self, handle: Handle) -> bool:
        """Return whether the target's ledger says what became of the job, not this directory."""
        return handle["name"] == TAIL and not self.reaches(handle)
