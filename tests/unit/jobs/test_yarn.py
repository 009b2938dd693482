"""Submitting to YARN: settings, tags, credentials; and asking it, with a stand-in for its command."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from airflow_mirror.common import tokens
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import ClusterUnreachable, InvalidField, TryAgain
from airflow_mirror.jobs.runner.directory import open_generation
from airflow_mirror.jobs.runner.spec import JobSpec
from airflow_mirror.jobs.runner.yarn import Yarn, run_yarn, tag_of
from airflow_mirror.kafka.admin import ClusterAdmin

SECRETS = {
    role: ClientConfig({"bootstrap.servers": "x:1", "sasl.password": f"hunter2-{role}"}, role)
    for role in ("source", "target")
}
# As Hadoop 3.5.0 prints it: a line of totals, then columns with tabs between them.
_TOTAL = "Total number of applications (application-types: [], states: [NEW, RUNNING] and tags: [airflow-mirror-1]):1\n"
_COLUMNS = ("Application-Id", "Application-Name", "Application-Type", "User", "Queue", "State", "Final-State", "Progress")
_ROW = ("application_17_0001", "airflow-mirror bulk_copy", "SPARK", "root", "root.default", "{state}", "{final}", "10%")
LISTED = _TOTAL + "".join("\t".join(f"{field:>20}" for field in row).lstrip() + "\n" for row in (_COLUMNS, _ROW))
STATUS = """Application Report :
\tApplication-Id : application_17_0001
\tDiagnostics : User application exited with status 1
second line
\tUnmanaged Application : false
\tApplication Node Label Expression : <Not set>
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Yarn:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.delenv(tokens.FILE_VARIABLE, raising=False)
    return asking(run_yarn)


def asking(run: Callable[..., str]) -> Yarn:
    def open_target() -> ClusterAdmin:
        raise ClusterUnreachable("target", "x:1", "refused")

    return Yarn(lambda submission: [f"{k}={v}" for k, v in submission.conf.items()], open_target, run)


def spec(**conf: str) -> JobSpec:
    mirror = {"name": "m", "source": "a", "target": "b"}
    return JobSpec(
        kind="bulk_copy", mirror=mirror, master="yarn", spark_conf={k.replace("_", "."): v for k, v in conf.items()}
    )


def test_application_has_one_attempt_and_a_tag_of_its_own(place: Yarn) -> None:
    settings = place.settings(spec(spark_yarn_tags="team-a", spark_executor_memory="1g"), "abc")
    assert settings["spark.yarn.tags"] == "team-a,airflow-mirror-abc" and settings["spark.yarn.maxAppAttempts"] == "1"
    assert settings["spark.executor.memory"] == "1g" and settings["spark.pyspark.python"] == sys.executable
    assert place.settings(spec(spark_pyspark_python="/opt/python"), "abc")["spark.pyspark.python"] == "/opt/python"
    assert tag_of("abc").islower(), "YARN would change it"


def test_second_attempts_are_refused(place: Yarn) -> None:
    with pytest.raises(InvalidField, match="spark.yarn.maxAppAttempts='2'"):
        place.settings(spec(spark_yarn_maxAppAttempts="2"), "abc")


def test_worker_that_does_not_know_where_yarn_is_is_refused(place: Yarn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR")
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(InvalidField, match="HADOOP_CONF_DIR.*yarn-site.xml"):
        place.settings(spec(), "abc")


def test_credentials_reach_the_submitter_in_an_open_file_alone(place: Yarn, tmp_path: Path) -> None:
    """Neither its arguments, nor its environment, nor a file of the job has the password."""
    directory = open_generation(tmp_path / "job", spec())
    launch = place.launch(spec(), directory, SECRETS)
    (descriptor,) = launch.descriptors
    try:
        named = launch.environment[tokens.FILE_VARIABLE]
        assert named == f"/proc/self/fd/{descriptor}" and stat.S_ISREG(os.stat(named).st_mode)
        for _ in range(2):  # a launcher may read it before the JVM does
            found = tokens.decode(Path(named).read_bytes())
        assert [f"hadoop:{name}" for name in found] == list(place.references)
        assert "hunter2-source" in found["airflow-mirror.source"] and "hunter2-target" in found["airflow-mirror.target"]
    finally:
        os.close(descriptor)
    assert "hunter2" not in str(launch.command) + str(dict(launch.environment))
    assert not [file for file in directory.rglob("*") if file.is_file() and b"hunter2" in file.read_bytes()]


def test_credentials_of_the_worker_itself_are_not_replaced(place: Yarn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tokens.FILE_VARIABLE, "/its/own")
    with pytest.raises(InvalidField, match="HADOOP_TOKEN_FILE_LOCATION='/its/own'.*keytab"):
        place.hand_over(SECRETS)


class Command:
    """``yarn application`` with these answers; what it was asked, and where jobs run by it."""

    def __init__(self, state: str = "RUNNING", final: str = "UNDEFINED") -> None:
        self.asked: list[tuple[str, ...]] = []
        self._listed = LISTED.format(state=state, final=final) if state else LISTED.splitlines()[0]
        self.place = asking(self._run)

    def _run(self, *arguments: str) -> str:
        self.asked.append(arguments)
        return {"-list": self._listed, "-status": STATUS, "-kill": ""}[arguments[0]]


@pytest.mark.parametrize(
    ("state", "runs"),
    [("ACCEPTED", True), ("RUNNING", True), ("FINISHED", False), ("FAILED", False), ("KILLED", False), ("", False)],
)
def test_application_runs_until_yarn_says_it_ended(state: str, runs: bool) -> None:
    command = Command(state)
    assert command.place.ask("1") is runs
    assert command.asked == [("-list", "-appTags", "airflow-mirror-1", "-appStates", "ALL")]


def test_only_an_application_that_runs_is_killed() -> None:
    command = Command()
    assert command.place.kill("1") and command.asked[-1] == ("-kill", "application_17_0001")
    for state in ("KILLED", ""):
        command = Command(state)
        assert not command.place.kill("1") and len(command.asked) == 1


def test_why_an_application_ended_is_what_yarn_says() -> None:
    said = Command("FAILED", "FAILED").place.why("1")
    assert "application_17_0001 is FAILED (FAILED)" in said and "exited with status 1\nsecond line. Its log" in said
    assert Command("").place.why("1") == ""


@pytest.mark.parametrize("program", ["exit 3", "sleep 60"])
def test_yarn_that_does_not_answer_is_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho no ResourceManager >&2; exec {program}\n" if "sleep" in program else
                    f"#!/bin/sh\necho no ResourceManager >&2; {program}\n")  # fmt: skip
    java.chmod(0o755)
    place = asking(partial(run_yarn, java=java, patience_s=1.0))
    with pytest.raises(TryAgain, match="YARN can't be asked .*(no ResourceManager|no answer within 1 s)"):
        place.ask("1")
