"""Drivers on another host: what their reports and the cluster's manager say decides, not a process of this one."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import ClusterUnreachable, InputError, JobFailed, JobNeedsHuman, TryAgain, WriterRuns
from airflow_mirror.jobs.runner import process, reports
from airflow_mirror.jobs.runner.client import ThisHost
from airflow_mirror.jobs.runner.cluster_mode import Elsewhere
from airflow_mirror.jobs.runner.command import Submission
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.jobs.runner.spec import JobSpec
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.records import SIGN
from tests.driven.ledger import LedgerCluster
from tests.driven.script import Fault, Request
from tests.waiting import wait_until

SECRETS = {role: ClientConfig({"bootstrap.servers": "x:1"}, role) for role in ("source", "target")}


class Manager(Elsewhere):
    """A cluster in which every job runs until somebody says otherwise; what submits one sleeps."""

    name = "manager"
    references = "hadoop:s", "hadoop:t"
    look_every_s, shutdown_s = 0.01, 0.0

    def __init__(self, target: LedgerCluster) -> None:
        super().__init__(self._sleep, self._reach)
        self.target, self.state, self.sleeps = target, target.state, True
        self.is_target_away = False
        self.submitted: list[Submission] = []
        self.applications: dict[str, bool | None] = {}
        self.asked = 0
        self.killed: list[str] = []
        self.silent = False

    def _reach(self) -> ClusterAdmin:
        if self.is_target_away:
            raise ClusterUnreachable("target", "b:1", "refused")
        return ClusterAdmin(self.target.config)

    def _sleep(self, submission: Submission) -> list[str]:
        self.submitted.append(submission)
        return [sys.executable, "-c", f"import time; time.sleep({60 * self.sleeps})"]

    def has_settings(self, spec: JobSpec) -> bool:
        return True

    def settings(self, spec: JobSpec, job: str) -> dict[str, str]:
        self.applications[job] = True
        return dict(spec.spark_conf)

    def hand_over(self, secrets: Mapping[str, ClientConfig]) -> tuple[dict[str, str], tuple[int, ...]]:
        return {"HANDED": "over"}, ()

    def ask(self, job: str) -> bool | None:
        self.asked += 1
        if self.silent:
            raise TryAgain("the manager does not answer")
        return self.applications.get(job, False)

    def kill(self, job: str) -> bool:
        self.killed.append(job)
        return bool(self.applications.pop(job, False))

    def why(self, job: str) -> str:
        return "out of memory" if job in self.applications else ""


@pytest.fixture
def manager(ledger_target: LedgerCluster) -> Iterator[Manager]:
    one = Manager(ledger_target)
    yield one
    one.close()


@pytest.fixture
def runner(manager: Manager, tmp_path: Path) -> Any:
    runner = LocalRunner(tmp_path / "m", manager)
    yield runner
    for job_dir in (tmp_path / "m" / "jobs").glob("*/*"):
        process.end_job(job_dir, grace_s=0)


def spec(kind: str = "bulk_copy", **values: Any) -> JobSpec:
    return JobSpec(kind=kind, mirror={"name": "m", "source": "a", "target": "b"}, master="yarn", **values)


def say(manager: Manager, handle: Mapping[str, Any], state: str, **content: Any) -> None:
    """Report as the job does."""
    said = {"state": state, "updated": len(manager.state.read()), "phase": "copying", **content}
    reports.write(manager.state, reports.report_key("m", handle["id"]), said)


def submitter_is_gone(handle: Mapping[str, Any]) -> None:
    process.end([handle["pid"]], signal.SIGKILL)
    wait_until(lambda: not process.is_alive(handle["pid"], handle["started"]))


def test_driver_gets_references_and_the_hash_of_its_plan(runner: LocalRunner, manager: Manager) -> None:
    """No path of this host means anything to it."""
    handle = runner.ensure_started(
        "bulk",
        spec(plan="/home/x/plans/abc.json", options={"end": "latest"}),
        SECRETS,
    )
    (submission,) = manager.submitted
    assert submission.arguments == ["bulk_copy", "request.json"]
    asked = json.loads(Path(handle["dir"], "request.json").read_text())
    assert asked == {
        "mirror": dict(spec().mirror), "report": f"run/m/{handle['id']}", "source": "hadoop:s", "target": "hadoop:t",
        "plan": "abc", "settings_from": "executor", "end": "latest",
    }  # fmt: skip
    assert submission.files == f"{handle['dir']}/request.json" and str(submission.py_files).endswith("airflow_mirror.zip")
    environment = Path(f"/proc/{handle['pid']}/environ").read_bytes()
    wait_until(lambda: b"HANDED=over" in Path(f"/proc/{handle['pid']}/environ").read_bytes())
    assert b"AIRFLOW_MIRROR_SOURCE" not in environment


def test_job_runs_while_it_is_submitted_and_while_the_manager_has_it(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    assert runner.status(handle) == "RUNNING" and manager.asked == 0, "somebody submits it"
    assert runner.progress(handle)["phase"] == "submitting"
    submitter_is_gone(handle)
    assert runner.status(handle) == "RUNNING" and manager.asked == 1
    assert runner.ensure_started("bulk", spec(), SECRETS) == handle
    assert manager.asked == 1, "asked a moment ago"


def test_last_report_of_the_job_is_its_state_and_summary(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    say(manager, handle, "RUNNING")
    assert runner.status(handle) == "RUNNING" and runner.progress(handle)["phase"] == "copying"
    say(manager, handle, "SUCCEEDED", summary={"records": 7})
    assert (runner.status(handle), runner.summary(handle)) == ("SUCCEEDED", {"records": 7})
    runner.raise_for(handle)


def test_error_in_the_last_report_keeps_its_branch(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    say(manager, handle, "FAILED", error="t-0: foreign data", blame="human")
    with pytest.raises(JobNeedsHuman, match="foreign data"):
        runner.raise_for(handle)


def test_job_that_speaks_is_not_asked_for(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    submitter_is_gone(handle)
    say(manager, handle, "RUNNING")
    assert runner.status(handle) == "RUNNING" and manager.asked == 1, "what it said may be old"
    manager._asked.clear()
    say(manager, handle, "RUNNING", more=1)
    assert runner.status(handle) == "RUNNING" and manager.asked == 1


def test_application_that_ended_without_a_report_is_lost(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    submitter_is_gone(handle)
    manager.applications[handle["id"]] = False
    assert runner.status(handle) == "LOST"
    with pytest.raises(JobFailed, match="LOST.*out of memory"):
        runner.raise_for(handle)
    asked = manager.asked
    assert runner.running() == [] and manager.asked == asked, "that is final"
    assert runner.ensure_started("bulk", spec(), SECRETS)["generation"] == 2


def test_submission_that_failed_is_lost_with_its_log(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    submitter_is_gone(handle)
    manager.applications.clear()
    with pytest.raises(JobFailed, match="its process is gone; its log ends with"):
        runner.raise_for(handle)


def test_report_that_came_while_the_manager_was_asked_counts(runner: LocalRunner, manager: Manager) -> None:
    """The job ends between the two questions."""
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    submitter_is_gone(handle)

    def ask(job: str) -> bool:
        say(manager, handle, "SUCCEEDED", summary={"records": 7})
        return False

    manager.ask = ask  # type: ignore[method-assign]
    assert (runner.status(handle), runner.summary(handle)) == ("SUCCEEDED", {"records": 7})


def test_job_is_known_to_a_worker_that_has_only_its_handle(runner: LocalRunner, manager: Manager, tmp_path: Path) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    there = {**handle, "dir": str(tmp_path / "other" / "jobs" / "bulk" / "1"), "where": "another host"}
    other = LocalRunner(tmp_path / "other", Manager(manager.target))
    other.place.applications[handle["id"]] = True  # type: ignore[attr-defined]
    assert other.status(there) == "RUNNING"
    say(manager, handle, "SUCCEEDED", summary={"records": 7})
    assert (other.status(there), other.summary(there)) == ("SUCCEEDED", {"records": 7})
    other.place.close()


def test_another_hosts_submission_is_not_taken_for_a_failed_one(runner: LocalRunner, manager: Manager) -> None:
    """The two share their directories; the manager has no application yet."""
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    manager.applications.clear()
    assert runner.status({**handle, "where": "another host"}) == "RUNNING"


def test_neither_source_that_answers_is_no_verdict(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    submitter_is_gone(handle)
    manager.close()
    manager.is_target_away = True
    assert runner.status(handle) == "RUNNING", "the manager has it"
    manager.silent = True
    with pytest.raises(TryAgain):
        runner.status(handle)


def test_tail_that_ends_when_asked_is_not_killed(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("tail", spec("streaming_tail"), SECRETS)
    asked = f"{SIGN.below('m')}{handle['id']}/stop"

    def obey(_: Request) -> None:
        if asked in manager.state.read():
            ended.fault = Fault()
            manager.applications[handle["id"]] = False
            say(manager, handle, "SUCCEEDED")

    ended = manager.target.script.on("Produce", Fault(after=obey), times=None)
    assert runner.cancel(handle, grace_s=60) and manager.killed == []
    assert process.members(Path(handle["dir"])) == [], "nobody submits it any more"


def test_tail_that_does_not_listen_is_killed(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("tail", spec("streaming_tail"), SECRETS)
    assert not runner.cancel(handle, grace_s=0.05)
    assert manager.killed == [handle["id"]] and runner.status(handle) == "LOST"


def test_other_jobs_are_killed_at_once(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    assert not runner.cancel(handle, grace_s=600)
    assert manager.killed == [handle["id"]]
    assert manager.asked == 0, "YARN takes seconds to answer, and so many has a task that is killed"


def test_application_that_outlives_its_jobs_end_is_killed(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    say(manager, handle, "SUCCEEDED")
    assert runner.cancel(handle, grace_s=600)
    assert manager.asked and manager.killed == [handle["id"]]


def test_killed_job_is_over_although_it_spoke_a_moment_ago(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    submitter_is_gone(handle)
    for at in range(2):
        say(manager, handle, "RUNNING", at=at)
        assert runner.status(handle) == "RUNNING"
    runner.cancel(handle)
    assert runner.status(handle) == "LOST"


def test_job_of_a_manager_that_can_not_be_asked_is_judged_by_its_age(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    submitter_is_gone(handle)
    manager.applications[handle["id"]] = None
    assert runner.status(handle) == "RUNNING", "it was submitted a moment ago"
    say(manager, handle, "RUNNING")  # in 1970
    assert runner.status(handle) == "RUNNING", "that is news"
    manager.silence_s = 0.0
    assert runner.status(handle) == "LOST"
    assert runner.ensure_started("bulk", spec(), SECRETS)["generation"] == 2
    assert manager.killed == [handle["id"]], "it may live"


def test_two_writers_and_another_spec_are_refused_elsewhere_too(runner: LocalRunner, manager: Manager) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    submitter_is_gone(handle)
    with pytest.raises(InputError, match="another specification"):
        runner.ensure_started("bulk", spec(options={"end": "latest"}), SECRETS)
    with pytest.raises(WriterRuns):
        runner.ensure_started("tail", spec("streaming_tail"), SECRETS)
    assert runner.ensure_started("check", spec("verify"), SECRETS)["id"] != handle["id"]


def test_driver_elsewhere_is_unknown_to_a_runner_of_this_host(runner: LocalRunner, tmp_path: Path) -> None:
    """The connection was changed to client mode while a job ran: the end of its submitter says nothing about it."""
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    submitter_is_gone(handle)
    here = LocalRunner(tmp_path / "m", ThisHost(lambda _: []))
    assert here.status(handle) == "RUNNING" and not here.reaches(handle)


def test_process_of_this_host_is_judged_as_one_after_a_change(runner: LocalRunner, tmp_path: Path) -> None:
    """The other way round: a job in client mode, and a connection in cluster mode."""
    client = LocalRunner(tmp_path / "m", ThisHost(lambda _: [sys.executable, "-c", "import time; time.sleep(60)"]))
    handle = client.ensure_started("bulk", spec(), SECRETS)
    assert runner.status(handle) == "RUNNING" and runner.reaches(handle)
    assert runner.cancel(handle, grace_s=5) and runner.status(handle) == "LOST"
