"""What a job whose files nobody sees says about itself, and who reads it."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mirror.errors import InvalidField, NeedsHuman, TryAgain
from airflow_mirror.jobs.driver import entry, presence
from airflow_mirror.jobs.driver.reporting import reporting
from airflow_mirror.jobs.request import JobRequest
from airflow_mirror.jobs.runner import reports
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.ledger.kinds import MOST_BYTES
from tests.builders import request
from tests.driven.ledger import LedgerCluster
from tests.unit.ledger.memory import MemoryState
from tests.waiting import wait_until

KEY = reports.report_key("m", "abc")


def report(state: str = "RUNNING", **content: Any) -> dict[str, Any]:
    return {"state": state, "updated": 1.5, "phase": "copying", **content}


def test_newest_report_replaces_the_one_before() -> None:
    state = MemoryState()
    assert reports.read(state, KEY) is None
    for phase in ("starting", "copying"):
        reports.write(state, KEY, report(phase=phase))
        assert (reports.read(state, KEY) or {})["phase"] == phase
    assert len(state.read()) == 1


def test_last_report_larger_than_a_record_comes_back_whole() -> None:
    state, summary = MemoryState(), {"end_offsets": {f"topic-{n}": n for n in range(60_000)}}
    reports.write(state, KEY, report())
    reports.write(state, KEY, report("SUCCEEDED", summary=summary))
    assert len(state.read()) > 1 and max(map(len, state.read().values())) <= MOST_BYTES
    assert (reports.read(state, KEY) or {})["summary"] == summary


def test_half_of_a_last_report_ends_no_job() -> None:
    """The job dies between two pieces."""
    state = MemoryState(fails_at=2)
    reports.write(state, KEY, report())
    with pytest.raises(KeyboardInterrupt):
        reports.write(state, KEY, report("SUCCEEDED", summary={"text": "x" * 2 * MOST_BYTES}))
    assert (reports.read(state, KEY) or {})["state"] == "RUNNING"


def test_reports_of_the_last_jobs_are_kept() -> None:
    state = MemoryState()
    for job in ("one", "two", "three"):
        reports.write(state, reports.report_key("m", job), report("FAILED"))
    reports.write(state, reports.report_key("another", "one"), report())
    reports.forget_old(state, "m", keep=2)
    left = {key.rsplit("/", 3)[0] if "/last/" in key else key for key in state.read()}
    assert left == {"run/m/two", "run/m/three", "run/another/one/now"}


# --- the job's side ---------------------------------------------------------------------------------------------------


class Target:
    """A target in whose state a job reports."""

    def __init__(self, ledger_target: LedgerCluster) -> None:
        self.cluster, self.state = ledger_target, ledger_target.state

    @property
    def said(self) -> dict[str, Any]:
        return reports.read(self.state, KEY) or {}

    def run(self, work: Any, key: str = KEY) -> int:
        target = self.cluster.reference
        told = entry.Told(target=target, report=key)
        return entry.carry_out(lambda: request(JobRequest, target=target, report=key), work, told)


@pytest.fixture
def target(ledger_target: LedgerCluster) -> Target:
    return Target(ledger_target)


def test_summary_of_a_job_is_its_last_report(target: Target) -> None:
    assert target.run(lambda *_: ({"records": 7}, None)) == 0
    assert (target.said["state"], target.said["summary"], target.said["error"]) == ("SUCCEEDED", {"records": 7}, None)


class Failing(StatusFile):
    """One of which nothing can be told a few times."""

    failures = 3

    def content(self) -> dict[str, Any]:
        if self.failures:
            self.failures -= 1
            raise TryAgain("no broker answered")
        return super().content()


def test_last_report_is_tried_until_it_is_written(target: Target) -> None:
    status = Failing(None)
    with reporting(KEY, target.cluster.reference, status, again_s=0.0):
        status.succeed({"records": 7})
    assert not status.failures and target.said["summary"] == {"records": 7}


def test_error_of_a_job_is_reported_with_its_blame(target: Target) -> None:
    assert target.run(lambda *_: ({"records": 7}, NeedsHuman("t-0: foreign data"))) == 1
    said = target.said
    assert (said["state"], said["blame"], said["error"], said["summary"]) == (
        "FAILED", "human", "t-0: foreign data", {"records": 7},
    )  # fmt: skip


def test_bug_in_a_job_is_reported_before_it_ends(target: Target) -> None:
    with pytest.raises(ZeroDivisionError):
        target.run(lambda *_: 1 / 0)  # type: ignore[arg-type, return-value]
    assert (target.said["state"], target.said["error"]) == ("FAILED", "division by zero")


def test_running_job_reports_its_phase_without_partitions(target: Target) -> None:
    status = StatusFile(None)
    with reporting(KEY, target.cluster.reference, status, every_s=0.01):
        wait_until(lambda: target.said)
        status.update("copying", partitions=[{"topic": "t"}])
        wait_until(lambda: target.said.get("phase") == "copying")
        assert "partitions" not in target.said


def test_job_without_a_key_reports_nothing(target: Target) -> None:
    assert target.run(lambda *_: ({}, None), key=None) == 0
    assert target.state.read() == {}


@pytest.mark.parametrize(
    ("container", "application"),
    [
        ("container_1795420333967_0001_01_000001", "application_1795420333967_0001"),
        ("container_e17_1795420333967_0012_01_000001", "application_1795420333967_0012"),  # after a restart of YARN
        ("", ""),
    ],
)
def test_application_of_a_driver_is_that_of_its_container(container: str, application: str) -> None:
    assert presence._application({"CONTAINER_ID": container}) == application


def test_request_that_is_refused_is_the_last_report_too(target: Target) -> None:
    """A driver on another host may lack what the Mirror names: without a report its job would be taken for lost."""
    wrong = InvalidField("policy", "company:Names", "can't be imported", "Install it on the cluster.")

    def refuse() -> JobRequest:
        raise wrong

    assert entry.carry_out(refuse, lambda *_: ({}, None), entry.Told(target=target.cluster.reference, report=KEY)) == 2
    assert (target.said["state"], target.said["error"], target.said["blame"]) == ("FAILED", str(wrong), "input")
