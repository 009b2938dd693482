"""What a running job shows: its status file and its bar on a terminal, read while it copies."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_mirror.jobs.runner.command import spark_home
from airflow_mirror.jobs.runner.java import java_home_for_spark
from sandbox import Cluster
from tests.integration.copying import assert_equal, create, ends, flow_of, properties_of, wait_until, write
from tests.integration.test_spark_jobs import driver_of, end_job, submit
from tests.listening import listeners

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
TIERS = ("passed", "reencoded", "merged", "dropped", "padded", "primed")
Status = dict[str, Any]
# The partition with the transactions has some 39,000 bytes, more than the others together: 5 s for one of the two tasks.
BYTES_PER_S = 16_000
# spark_jobs/bulk_copy.py, but its status is written more often, and each one is kept.
JOB = """
import json, sys
from airflow_mirror.jobs.driver import bulk
from airflow_mirror.jobs.progress import keeper
from airflow_mirror.jobs.runner import status
keeper._EVERY_S = keeper._STATUS_EVERY_S = 0.3
write = status.write_text
def write_and_keep(path, text):
    write(path, text)
    with open(path.with_name("every-status"), "a") as file:
        print(json.dumps(json.loads(text)), file=file)
status.write_text = write_and_keep
sys.exit(bulk.main(sys.argv[1:]))
"""


def test_running_bulk_copy_shows_its_position_and_work(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    holes, stamped = f"{topic_name}-holes", f"{topic_name}-stamped"
    create(source_cluster, holes, 2)
    create(source_cluster, stamped, message_timestamp_type="LogAppendTime")
    write(source_cluster, holes, 150, 1, "zstd", partition=1)
    write(source_cluster, stamped, 100, 5, "lz4")  # one batch: two small ones would be merged as well
    _write_small_transactions(source_cluster, holes, 600)
    end = ends(source_cluster, holes)[0][1]

    seen, screen, exit_code = _run_on_a_terminal(source_cluster, target_cluster, topic_name, tmp_path)

    assert exit_code == 0, screen[-3000:]
    running = [s for s in seen if s["state"] == "RUNNING" and s["phase"] == "copying"]
    way = [row["position"] for s in running for row in s["partitions"] if (row["topic"], row["partition"]) == (holes, 0)]
    way = [position for position in way if position is not None]
    assert way == sorted(way) and len(set(way)) >= 3 and any(0 < p < end for p in way), way
    half_way = [s["summary"] for s in running if s["summary"].get("tiers", {}).get("padded", 0) > 0]
    on_the_way = [s["summary"] for s in running if (s["summary"].get("lag") or 0) > 0]
    assert any(s["eta_s"] and f"{holes}-0" in [one["partition"] for one in s["slowest"]] for s in on_the_way), on_the_way
    assert any(s["bytes_per_s"] > 0 and s["records_per_s"] > 0 for s in half_way), half_way

    final = seen[-1]
    summary = final["summary"]
    assert final["state"] == "SUCCEEDED" and {row["state"] for row in final["partitions"]} == {"done"}
    assert {t: sum(row[t] for row in final["partitions"]) for t in (*TIERS, "records", "bytes")} == {
        t: summary[t] for t in (*TIERS, "records", "bytes")
    }
    assert all(summary[t] > 0 for t in ("passed", "reencoded", "dropped", "padded")), summary
    # The last running status had it all, too: what tasks said as they ended, not only what they returned.
    assert {t: running[-1]["summary"]["tiers"][t] for t in TIERS} == {t: summary[t] for t in TIERS}
    assert "3 partitions" in screen and "━" in screen and f"{stamped}-0"[:33] in screen and "re-encoded" in screen
    assert " INFO SparkContext: Starting job" not in screen  # it would run through the bar
    assert_equal(source_cluster, target_cluster, holes, 2)


@pytest.mark.parametrize(("options", "ports"), [((), 2), (("--no-progress",), 1)])
def test_driver_listens_for_its_tasks_unless_told_not_to(
    options: tuple[str, ...], ports: int, source_cluster: Cluster, target_cluster: Cluster, topic_name: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    """One port is Spark's own, for its accumulators."""
    create(source_cluster, topic_name, 1)
    for seed in range(10):
        write(source_cluster, topic_name, 50, seed)
    log, job_dir = tmp_path / "log", tmp_path / "job"
    arguments = flow_of(tmp_path, source_cluster, target_cluster, topic_name)
    arguments += ["--job-dir", str(job_dir), "--max-bytes-per-second", str(BYTES_PER_S), *options]
    job = submit("bulk_copy.py", *arguments, log=log)
    listening = []
    try:
        wait_until(lambda: job.poll() is not None or _copies(job_dir), "it copies", 300, 0.1)
        while job.poll() is None and _copies(job_dir):
            listening.append(len(listeners([driver_of(job.pid, "bulk_copy.py")])))
            time.sleep(0.2)
        assert job.wait(300) == 0, log.read_text()[-3000:]
    finally:
        end_job(job)
    assert max(listening) == ports, listening
    row = json.loads((job_dir / "status.json").read_text())["partitions"][0]
    assert (row["state"], row["records"], row["error"]) == ("done", 500, None)
    assert_equal(source_cluster, target_cluster, topic_name)


def _copies(job_dir: Path) -> bool:
    try:
        now = json.loads((job_dir / "status.json").read_text())
    except FileNotFoundError:
        return False
    return now["state"] == "RUNNING" and now["phase"] == "copying"


def _write_small_transactions(cluster: Cluster, topic: str, count: int) -> None:
    """Fill partition 0 with transactions of a record or two: each marker is a hole; each takes some milliseconds."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions()
    for number in range(count):
        producer.begin_transaction()
        for _ in range(1 + number % 2):
            producer.produce(topic, b"%d" % number, partition=0)
        producer.flush()
        producer.abort_transaction() if number % 7 == 0 else producer.commit_transaction()
    wait_until(lambda: (e := ends(cluster, topic)[0])[1] == e[2], "the last transaction ends")


def _run_on_a_terminal(
    source: Cluster, target: Cluster, include: str, tmp_path: Path
) -> tuple[list[Status], str, int | None]:
    """Run a bulk copy by spark-submit on a terminal; return each status that it wrote, its screen and its exit status."""
    script = tmp_path / "bulk_copy.py"
    script.write_text(JOB)
    arguments = ["--include", f"{include}.*", "--name", include, "--job-dir", str(tmp_path / "job")]
    arguments += ["--max-bytes-per-second", str(BYTES_PER_S)]
    arguments += properties_of(tmp_path, source, target)
    env = os.environ | {
        "JAVA_HOME": str(java_home_for_spark()), "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT), "TERM": "xterm",
    }  # fmt: skip
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    master, slave = pty.openpty()
    job = subprocess.Popen(
        [*command, str(script), *arguments],
        env=env, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    screen = bytearray()
    reader = threading.Thread(target=_read_all, args=(master, screen), daemon=True)
    reader.start()
    try:
        job.wait(600)
    finally:
        end_job(job)
        reader.join(60)
        os.close(master)
    kept = (tmp_path / "job" / "every-status").read_text().splitlines()
    return [json.loads(line) for line in kept], screen.decode(errors="replace"), job.returncode


def _read_all(terminal: int, into: bytearray) -> None:
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the last process of the terminal has ended
            return
        if not data:
            return
        into += data
