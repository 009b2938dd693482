"""A MirrorMaker 2 file, run as MirrorMaker runs it: flows both ways by prefix, on real brokers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from airflow_mirror.console.main import main
from airflow_mirror.jobs.runner import process
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from sandbox import Cluster
from tests.integration.copying import config, create, read, wait_until, write

ROOT = Path(__file__).parents[2]
# Everything once a second: MirrorMaker's own defaults wait for minutes.
QUICK = """
replication.factor = 1
refresh.topics.interval.seconds = 1
sync.topic.configs.interval.seconds = 1
"""


@dataclass
class Run:
    """A file with flows both ways between two clusters, and the process that runs it.

    :ivar one: alias of the source cluster. :ivar two: of the target.
    """

    directory: Path
    clusters: dict[str, Cluster]
    topic: str
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.file = self.directory / "mm2.properties"
        self.home = self.directory / "home"
        self.one, self.two = self.clusters
        self.write_file((self.one, self.two), (self.two, self.one))

    def write_file(self, *flows: tuple[str, str]) -> None:
        """Write the file anew, with these flows of the topic enabled."""
        addresses = "".join(f"{alias}.bootstrap.servers = {c.bootstrap}\n" for alias, c in self.clusters.items())
        enabled = "".join(f"{a}->{b}.enabled = true\n{a}->{b}.topics = (.*[.])?{self.topic}\n" for a, b in flows)
        self.file.write_text(f"clusters = {', '.join(self.clusters)}\n{addresses}{enabled}{QUICK}")

    def start(self, *arguments: str, engine: str = "plain") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "airflow_mirror.console.main", "run", str(self.file), "--home", str(self.home)]
        command += ["--engine", engine]
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        log = self.directory / f"run-{len(self.processes)}.log"
        with log.open("w") as out:
            child = subprocess.Popen([*command, *arguments], env=env, stdout=out, stderr=out, text=True)
        self.processes.append(child)
        return child

    def log(self, number: int = -1) -> str:
        return (self.directory / f"run-{range(len(self.processes))[number]}.log").read_text()

    def jobs(self) -> list[int]:
        """The processes of all tails that were ever started."""
        return [pid for one in self.home.glob("*/jobs/tail/*") for pid in process.members(one)]

    def topics(self, alias: str) -> set[str]:
        with ClusterAdmin(config(self.clusters[alias])) as admin:
            return {name for name in admin.topic_names() if self.topic in name}

    def status(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        capsys.readouterr()
        status = main(["status", "--config", str(self.file), "--json", *arguments])
        return status, json.loads(capsys.readouterr().out)

    def tails(self, capsys: pytest.CaptureFixture[str]) -> list[str]:
        return [row["tail"] for row in self.status(capsys)[1]]

    def close(self) -> None:
        for child in self.processes:
            child.kill()
            child.wait()
        for one in self.home.glob("*/jobs/tail/*"):
            process.end_job(one, 0.0)


@pytest.fixture
def run(source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path) -> Iterator[Run]:
    aliases = [f"{alias}{uuid.uuid4().hex[:6]}" for alias in ("one", "two")]
    both = dict(zip(aliases, (source_cluster, target_cluster), strict=True))
    for alias, cluster in both.items():
        create(cluster, topic_name)
        write(cluster, topic_name, 20, seed=ord(alias[0]))
        with ClusterAdmin(config(cluster)) as admin:
            Ledger(admin).create()  # what other tests have left there would be the traces of one that was lost
    one = Run(tmp_path, both, topic_name)
    yield one
    one.close()


def arrived(run: Run, count: int) -> bool:
    """Whether all records of each side are on the other one, under the prefixed name."""
    for here, there in ((run.one, run.two), (run.two, run.one)):
        name = f"{here}.{run.topic}"
        if name not in run.topics(there) or len(read(run.clusters[there], name)) < count:
            return False
    return True


def copied(run: Run) -> dict[str, float]:
    """How many records each mirror has copied, as Prometheus is told."""
    address = re.findall(r" figures: (http:\S+)", run.log())[-1]
    with urllib.request.urlopen(address, timeout=60) as answer:
        text = answer.read().decode()
    families = {one.name: one.samples for one in text_string_to_metric_families(text)}
    samples = families.get("airflow_mirror_topic_records", [])
    return {one.labels["mirror"]: one.value for one in samples if one.labels["topic"].endswith(run.topic)}


@pytest.mark.parametrize("engine", ["plain", pytest.param("spark", marks=pytest.mark.parity)])
def test_flows_run_both_ways_until_sigterm(run: Run, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, rows = run.status(capsys)
    assert (status, [row["tail"] for row in rows]) == (1, ["never started", "never started"])
    assert [row["flow"] for row in rows] == [f"{run.one}->{run.two}", f"{run.two}->{run.one}"]
    child = run.start("--metrics-port", "0", engine=engine)
    wait_until(lambda: arrived(run, 20), "what was there has arrived")
    for alias, cluster in run.clusters.items():
        write(cluster, run.topic, 15, seed=ord(alias[1]))
    wait_until(lambda: arrived(run, 35), "what came later has arrived")
    for here, there in ((run.one, run.two), (run.two, run.one)):
        assert read(run.clusters[there], f"{here}.{run.topic}") == read(run.clusters[here], run.topic)
        assert run.topics(there) == {run.topic, f"{here}.{run.topic}"}  # nothing returned
    both = {f"{run.one}-to-{run.two}": 35, f"{run.two}-to-{run.one}": 35}
    wait_until(lambda: copied(run) == both, "the figures of both flows are at one port")
    status, rows = run.status(capsys)
    assert (status, [row["tail"] for row in rows]) == (0, ["running", "running"])
    child.send_signal(signal.SIGTERM)
    assert child.wait(240) == 0, run.log()
    assert run.log().count("ended cleanly") == 2
    assert run.jobs() == []
    assert run.tails(capsys) == ["succeeded", "succeeded"]
    assert run.status(capsys)[0] == 1
    assert len(read(run.clusters[run.two], f"{run.one}.{run.topic}")) == 35


@pytest.mark.parity
def test_only_flows_into_the_named_clusters_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    child = run.start("--clusters", run.two)
    wait_until(lambda: run.tails(capsys)[0] == "running", "the flow into the named cluster runs")
    assert run.tails(capsys) == ["running", "never started"]
    assert run.status(capsys, "--clusters", run.two)[0] == 0
    assert run.status(capsys)[0] == 1
    child.send_signal(signal.SIGINT)
    assert child.wait(240) == 0, run.log()
    assert main(["run", str(run.file), "--clusters", "nowhere"]) == 2
    assert "no enabled flow leads there" in capsys.readouterr().err


@pytest.mark.parity
def test_flows_into_several_named_clusters_run_and_end_together(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster("third", ready_timeout_s=240) as third:
        there = {run.two: run.clusters[run.two], f"third{uuid.uuid4().hex[:6]}": third}
        run.clusters |= there
        wanted = [(run.one, alias) for alias in there]
        run.write_file(*wanted, (run.two, run.one))
        flows = [f"{a}->{b}" for a, b in (*wanted, (run.two, run.one))]

        def tails() -> tuple[int, dict[str, str]]:
            status, rows = run.status(capsys)
            return status, {row["flow"]: row["tail"] for row in rows}

        assert tails() == (1, dict.fromkeys(flows, "never started"))
        child = run.start("--clusters", *there)
        name = f"{run.one}.{run.topic}"
        for alias, cluster in there.items():
            wait_until(lambda alias=alias: name in run.topics(alias), "the topic is there")
            wait_until(lambda cluster=cluster: len(read(cluster, name)) == 20, "its records are there")
        assert tails() == (1, dict(zip(flows, ["running", "running", "never started"], strict=True)))
        assert run.status(capsys, "--clusters", *there)[0] == 0
        child.send_signal(signal.SIGTERM)
        assert child.wait(240) == 0, run.log()
        assert run.log().count("ended cleanly") == 2 and run.jobs() == []
        assert tails() == (1, dict(zip(flows, ["succeeded", "succeeded", "never started"], strict=True)))
        assert run.topics(run.one) == {run.topic}


@pytest.mark.parity
def test_a_killed_tail_is_started_again_and_nothing_is_twice(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    child = run.start()
    wait_until(lambda: arrived(run, 20), "what was there has arrived")
    for pid in run.jobs():
        os.kill(pid, signal.SIGKILL)
    for alias, cluster in run.clusters.items():
        write(cluster, run.topic, 15, seed=ord(alias[1]))
    wait_until(lambda: arrived(run, 35), "tails that were started again copy")
    assert run.log().count("started again in") >= 2
    child.send_signal(signal.SIGTERM)
    assert child.wait(240) == 0, run.log()
    for here, there in ((run.one, run.two), (run.two, run.one)):
        assert read(run.clusters[there], f"{here}.{run.topic}") == read(run.clusters[here], run.topic)
    assert run.jobs() == []


@pytest.mark.parity
def test_two_that_run_one_file_share_and_one_goes_on_without_the_other(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """Two hosts run the same file, as people do for load and availability: here two directories."""
    first, one_home = run.start(), run.home
    wait_until(lambda: run.tails(capsys) == ["running"] * 2, "the first one runs")
    run.home = run.directory / "other"
    second = run.start()

    def phases(home: Path) -> list[str]:
        return [json.loads(one.read_text()).get("phase", "") for one in home.glob("*/jobs/tail/*/status.json")]

    wait_until(lambda: len([one for one in phases(run.home) if "the tail on host" in one]) == 2, "the second one shares")
    for alias, cluster in run.clusters.items():
        write(cluster, run.topic, 15, seed=ord(alias[1]))
    wait_until(lambda: arrived(run, 35), "what came has arrived")
    assert "started again" not in run.log(0) + run.log(1)
    first.send_signal(signal.SIGTERM)
    assert first.wait(240) == 0, run.log(0)
    for alias, cluster in run.clusters.items():
        write(cluster, run.topic, 10, seed=ord(alias[2]))
    wait_until(lambda: arrived(run, 45), "the second one takes over")
    assert run.tails(capsys) == ["running"] * 2
    second.send_signal(signal.SIGTERM)
    assert second.wait(240) == 0, run.log()
    for here, there in ((run.one, run.two), (run.two, run.one)):
        assert read(run.clusters[there], f"{here}.{run.topic}") == read(run.clusters[here], run.topic)
    for one in one_home.glob("*/jobs/tail/*"):
        assert process.members(one) == []


@pytest.mark.parity
def test_whoever_runs_the_file_again_finds_the_tails_that_a_killed_one_left(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run.start()
    wait_until(lambda: run.tails(capsys) == ["running"] * 2, "both run")
    first.kill()
    first.wait()
    before = set(run.jobs())
    assert before
    second = run.start()
    wait_until(lambda: run.log().count("its tail runs;") == 2, "they are found")
    assert len(list(run.home.glob("*/jobs/tail/*"))) == 2, "none was started again"
    second.send_signal(signal.SIGTERM)
    assert second.wait(240) == 0, run.log()
    assert run.jobs() == []
