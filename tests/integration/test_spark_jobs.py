"""The Spark jobs as people run them without Airflow: by spark-submit, with properties files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.jobs.runner.command import JVM_OPTIONS, spark_home
from airflow_mirror.jobs.runner.java import java_home_for_spark
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
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

ROOT = Path(__file__).parents[2]
PARTITIONS = 3


@pytest.fixture
def properties(source_cluster: Cluster, target_cluster: Cluster, tmp_path: Path) -> list[str]:
    return properties_of(tmp_path, source_cluster, target_cluster)


@pytest.fixture
def hostile(source_cluster: Cluster, topic_name: str) -> str:
    """Codecs, old timestamps, and enough transactions that the copy takes a while: holes are padded one by one."""
    create(source_cluster, topic_name, PARTITIONS)
    for seed, codec in enumerate(("lz4", "none", "zstd")):
        write(source_cluster, topic_name, 2000, seed, codec, partition=seed)
        write_transactions(source_cluster, topic_name, seed=seed, transactions=60, partitions=PARTITIONS)
    return topic_name


def submit(job: str, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
    env = os.environ | {
        "JAVA_HOME": str(java_home_for_spark()),
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]", "--driver-java-options", JVM_OPTIONS]
    command += ["--conf", "spark.ui.enabled=false"]
    with log.open("wb") as out:
        return subprocess.Popen(
            [*command, str(ROOT / "spark_jobs" / job), *arguments],
            env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip


def end_job(job: subprocess.Popen[bytes]) -> None:
    """End a job that still runs."""
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def stop(tail: subprocess.Popen[bytes], log: Path) -> None:
    """Ask a tail to stop, as its user would; it does so cleanly."""
    os.kill(driver_of(tail.pid), signal.SIGTERM)
    assert tail.wait(300) == 0, log.read_text()[-3000:]


def summary_of(log: Path) -> dict[str, object]:
    return dict(json.loads(log.read_text().strip().splitlines()[-1]))


@pytest.mark.spark
def test_bulk_copy_killed_and_run_again_is_equal(
    source_cluster: Cluster, target_cluster: Cluster, properties: list[str], hostile: str, tmp_path: Path
) -> None:
    """No record is there twice."""
    arguments = [*properties, "--include", hostile, "--name", hostile]
    total = sum(end for _, _, end in ends(source_cluster, hostile, PARTITIONS).values())
    slowly = ["--max-bytes-per-second", "40000"]  # or it could be done before it is killed
    killed = submit("bulk_copy.py", *arguments, *slowly, log=tmp_path / "killed.log")
    try:
        wait_until(lambda: copied(target_cluster, hostile) > 0, "the job copies", 300, 0.2)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    assert 0 < copied(target_cluster, hostile) < total, "killed too late to prove anything"
    again = submit("bulk_copy.py", *arguments, log=tmp_path / "again.log")
    assert again.wait(600) == 0, (tmp_path / "again.log").read_text()[-3000:]
    summary = summary_of(tmp_path / "again.log")
    assert summary["partitions"] == PARTITIONS and summary["errors"] == []
    assert_equal(source_cluster, target_cluster, hostile, PARTITIONS)
    verified = submit("verify.py", *arguments, "--end", "latest", "--level", "records", log=tmp_path / "verify.log")
    assert verified.wait(600) == 0, (tmp_path / "verify.log").read_text()[-3000:]
    summary = summary_of(tmp_path / "verify.log")
    checked: Any = summary["spot_check"]
    assert summary["differences"] == checked["differences"] == checked["left_out"] == [] and checked["records"] > 0


def copied(cluster: Cluster, topic: str) -> int:
    try:
        return sum(end for _, _, end in ends(cluster, topic, PARTITIONS).values())
    except Exception:  # the job creates the topic
        return 0


# Retention that somebody sets, and that deletes nothing before the tail has set it back.
NO_HARM_MS = "9000000000000"


@pytest.mark.spark
def test_tail_follows_over_many_leases_and_stops_cleanly(
    source_cluster: Cluster, target_cluster: Cluster, properties: list[str], topic_name: str, tmp_path: Path
) -> None:
    create(source_cluster, topic_name, PARTITIONS)
    write(source_cluster, topic_name, 500, 1, "zstd")
    log, job_dir = tmp_path / "tail.log", tmp_path / "job"
    arguments = ["--include", topic_name, "--name", topic_name, "--turn-s", "4", "--job-dir", str(job_dir)]
    tail = submit("streaming_tail.py", *properties, *arguments, log=log)
    try:
        wait_until(lambda: copied(target_cluster, topic_name) == 500, "the tail copies what was there", 300, 0.5)
        with ClusterAdmin(config(target_cluster), timeout_s=120) as there:
            there.alter_topic_configs(
                topic_name, unfenced, set={"retention.ms": NO_HARM_MS}
            )  # a tool that owns the topics, too
        for seed in range(6):
            write(source_cluster, topic_name, 100, seed, "lz4", partition=seed % PARTITIONS)
            write_transactions(source_cluster, topic_name, seed=seed, transactions=2, partitions=PARTITIONS)
            time.sleep(1.5)
        total = sum(end for _, _, end in ends(source_cluster, topic_name, PARTITIONS).values())
        wait_until(lambda: copied(target_cluster, topic_name) == total, "the tail has caught up", 300, 0.5)
        caught_up = {"states": {"following": PARTITIONS}, "lag": 0}
        wait_until(lambda: shown(job_dir) == caught_up, "its status says so", 300, 0.5)
        told = f"0 offsets behind in {PARTITIONS} partitions; "
        wait_until(lambda: len(lines := progress_of(log)) >= 3 and told in lines[-1], "its log says so, too", 300, 0.5)
        note = f"{topic_name}: retention.ms was changed to {NO_HARM_MS}, set back to -1 (1 of 3 times)"
        wait_until(
            lambda: json.loads((job_dir / "status.json").read_text())["notes"] == [note],
            "retention is off again",
            300,
            0.5,
        )
        with ClusterAdmin(config(target_cluster), timeout_s=120) as there:
            assert there.topic_configs([topic_name])[topic_name]["retention.ms"].value == "-1"
        stop(tail, log)
    finally:
        end_job(tail)
    assert json.loads((job_dir / "status.json").read_text())["state"] == "SUCCEEDED"
    assert int(str(summary_of(log)["records"])) > 600
    rows = json.loads((job_dir / "status.json").read_text())["partitions"]
    # Told by one task after another, lease by lease; what the last second of a lease brought may be missing.
    assert 600 < sum(row["records"] for row in rows) <= int(str(summary_of(log)["records"]))
    assert_equal(source_cluster, target_cluster, topic_name, PARTITIONS)


def shown(job_dir: Path) -> dict[str, object]:
    """What a running tail says of itself."""
    summary = json.loads((job_dir / "status.json").read_text())["summary"]
    return {"states": summary.get("states"), "lag": summary.get("lag")}


def progress_of(log: Path) -> list[str]:
    """What a running tail has written to its log about how far it is."""
    return [line for line in log.read_text().splitlines() if " INFO " in line and " offsets behind in " in line]


@pytest.mark.spark
def test_a_partition_that_is_new_joins_the_tasks_that_run(
    source_cluster: Cluster, target_cluster: Cluster, properties: list[str], topic_name: str, tmp_path: Path
) -> None:
    for cluster in (source_cluster, target_cluster):
        create(cluster, topic_name, PARTITIONS)
    write(source_cluster, topic_name, 100, 1)
    log = tmp_path / "tail.log"
    tail = submit("streaming_tail.py", *properties, "--include", topic_name, "--name", topic_name, log=log)
    try:
        wait_until(lambda: copied(target_cluster, topic_name) == 100, "the tail copies what was there", 300, 0.5)
        for cluster in (target_cluster, source_cluster):
            with ClusterAdmin(config(cluster)) as admin:
                admin.grow_partitions(topic_name, PARTITIONS + 1, unfenced)
        write(source_cluster, topic_name, 100, 2, partition=PARTITIONS)
        wait_until(lambda: ends(target_cluster, topic_name, PARTITIONS + 1)[PARTITIONS][2] == 100, "it joins", 300, 0.5)
        assert f"1 partition joined: {topic_name}-{PARTITIONS}" in log.read_text()
        assert "dealt out anew" not in log.read_text(), "the others have gone on"
        stop(tail, log)
    finally:
        end_job(tail)
    assert_equal(source_cluster, target_cluster, topic_name, PARTITIONS + 1)


# spark_jobs/streaming_tail.py on a machine that took too long, once, to start a worker.
SLOW_AT_FIRST = """
import sys
from airflow_mirror.errors import TryAgain
from airflow_mirror.jobs.driver import supervision, tail
watch, starts = supervision.Supervisor.watch, []
def slow(self, stream):
    starts.append(stream)
    if len(starts) == 1:
        raise TryAgain("the streaming query ended: [STREAM_FAILED] Python worker failed to connect back.")
    watch(self, stream)
supervision.Supervisor.watch = slow
sys.exit(tail.main(sys.argv[1:]))
"""


@pytest.mark.spark
def test_tail_restarts_when_spark_gives_up_on_its_python_worker(
    source_cluster: Cluster, target_cluster: Cluster, properties: list[str], topic_name: str, tmp_path: Path
) -> None:
    create(source_cluster, topic_name, PARTITIONS)
    write(source_cluster, topic_name, 100, 1)
    script, log = tmp_path / "streaming_tail.py", tmp_path / "tail.log"
    script.write_text(SLOW_AT_FIRST)
    tail = submit(str(script), *properties, "--include", topic_name, "--name", topic_name, log=log)
    try:
        wait_until(lambda: "start 1 of 5" in log.read_text(), "the first start fails", 300, 0.5)
        wait_until(lambda: copied(target_cluster, topic_name) == 100, "the tail copies what was there", 300, 0.5)
        write(source_cluster, topic_name, 50, 2)
        wait_until(lambda: copied(target_cluster, topic_name) == 150, "and follows", 300, 0.5)
        stop(tail, log)
    finally:
        end_job(tail)
    assert_equal(source_cluster, target_cluster, topic_name, PARTITIONS)


def driver_of(jvm: int, job: str = "streaming_tail.py") -> int:
    """Return the Python driver below spark-submit's JVM: the process that stops cleanly on SIGTERM."""
    children = Path(f"/proc/{jvm}/task/{jvm}/children").read_text().split()
    named = [int(c) for c in children if job.encode() in Path(f"/proc/{c}/cmdline").read_bytes()]
    if named:
        return named[0]
    # Java starts children from any of its threads.
    for task in Path(f"/proc/{jvm}/task").iterdir():
        for child in (task / "children").read_text().split():
            if job.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise AssertionError("no driver")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--include", "no-such-topic"], 2, "match no topic on the source"),
        (["--include", "orders("], 2, "not a valid regular expression"),
        (["--start", "yesterday"], 2, "not a point in time"),
    ],
    ids=["nothing-matches", "bad-regex", "bad-start"],
)
def test_bad_arguments_end_with_status_2_and_name_the_field(
    properties: list[str], arguments: list[str], code: int, said: str
) -> None:
    # Spark is not started for arguments that can't be right, so plain Python shows the same.
    command = [sys.executable, str(ROOT / "spark_jobs" / "bulk_copy.py"), *properties, *arguments]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_pyspark_and_its_client_agree() -> None:
    """Both wheels install the same files; at unequal versions every Python task fails, those of this module too."""
    import pyspark

    assert pyspark.__version__ == version("pyspark") == version("pyspark-client")
