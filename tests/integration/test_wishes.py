"""A tail that is paused, resumed and slowed down by others, while it runs and while it does not."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from airflow_mirror.console.main import main
from sandbox import Cluster
from tests.integration.copying import assert_equal, create, ends, properties_of, wait_until, write
from tests.integration.test_spark_jobs import end_job, stop, submit, summary_of
from tests.integration.warm_jobs import WarmJobs

pytestmark = pytest.mark.spark


def test_a_paused_mirror_copies_nothing_until_it_is_resumed(
    source_cluster: Cluster,
    target_cluster: Cluster,
    topic_name: str,
    tmp_path: Path,
    warm_jobs: WarmJobs,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither the tail that ran, nor one that is started meanwhile, nor a bulk copy. Nothing is lost or doubled."""
    create(source_cluster, topic_name, 2)
    write(source_cluster, topic_name, 200, 1)
    clusters = properties_of(tmp_path, source_cluster, target_cluster)
    arguments = [*clusters, "--include", topic_name, "--name", topic_name]
    log = {name: tmp_path / f"{name}.log" for name in ("first", "second", "bulk")}

    def wish(verb: str, *rest: str) -> dict[str, object]:
        assert main([verb, *clusters[2:], "--mirror", topic_name, "--json", *rest]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    def copied() -> int:
        try:
            return sum(end for _, _, end in ends(target_cluster, topic_name, 2).values())
        except Exception:  # the job creates the topic
            return 0

    job_dir = tmp_path / "job"
    first = submit("streaming_tail.py", *arguments, "--job-dir", str(job_dir), log=log["first"])
    second = None
    try:
        wait_until(lambda: copied() == 200, "the tail copies", 300, 0.2)
        assert wish("pause")["tail"] == "rests"
        write(source_cluster, topic_name, 100, 2)
        assert warm_jobs.run("bulk", *arguments, "--no-probe", log=log["bulk"]) == 1
        assert f"mirror '{topic_name}' is paused by " in log["bulk"].read_text()
        assert copied() == 200 and first.poll() is None
        states = json.loads((job_dir / "status.json").read_text())["summary"]["states"]
        assert "stopped" not in states, "its tasks have lost the lease, and no partition has failed"
        assert wish("resume")["pause"] is None
        wait_until(lambda: copied() == 300, "the tail goes on", 120, 0.2)

        wish("pause")
        stop(first, log["first"])
        write(source_cluster, topic_name, 100, 3)
        second = submit("streaming_tail.py", *arguments, log=log["second"])
        wait_until(lambda: wish("pause")["tail"] == "rests", "the second tail is there", 300, 0.5)
        assert copied() == 300
        wish("resume")
        wait_until(lambda: copied() == 400, "the second tail goes on", 120, 0.2)
        stop(second, log["second"])
    finally:
        end_job(first)
        if second is not None:
            end_job(second)
    assert_equal(source_cluster, target_cluster, topic_name, 2)


def test_a_lowered_rate_slows_the_running_tail_down(
    source_cluster: Cluster,
    target_cluster: Cluster,
    topic_name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its stream goes on: the rate is that of the next turn, which begins at once. Lifted again, it catches up."""
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 100, 1)
    clusters = properties_of(tmp_path, source_cluster, target_cluster)
    log, job_dir = tmp_path / "tail.log", tmp_path / "job"
    tail = submit(
        "streaming_tail.py", *clusters, "--include", topic_name, "--name", topic_name, "--job-dir", str(job_dir), log=log
    )

    def rate(value: str) -> None:
        assert main(["rate", *clusters[2:], "--mirror", topic_name, value]) == 0

    def copied() -> int:
        try:
            return ends(target_cluster, topic_name)[0][1]
        except Exception:  # the job creates the topic
            return 0

    try:
        wait_until(lambda: copied() == 100, "the tail copies", 300, 0.2)
        rate("2000")
        wait_until(lambda: "rate set to 2,000 bytes per second by" in log.read_text(), "the tail heard it", 60, 0.2)
        written, slow = 100, 100
        while slow == written:  # the turn that ends takes whatever comes before its tasks hear of it
            assert written < 50_000, "some 200,000 bytes take minutes now"
            write(source_cluster, topic_name, 5000, 2)
            before, written = written, written + 5000
            wait_until(lambda least=before: copied() > least, "it copies at the rate", 60, 0.2)
            time.sleep(1.0)  # in which the turn that ends would take all
            slow = copied()
        rate("none")
        wait_until(lambda: copied() == written, "no limit holds it back", 60, 0.2)
        assert log.read_text().count("Started streaming query") <= 1, "one stream all the time"
        stop(tail, log)
    finally:
        end_job(tail)
    assert "rate set to no limit" in capsys.readouterr().out
    assert_equal(source_cluster, target_cluster, topic_name)


def test_a_running_bulk_copy_rests_and_takes_another_rate(
    source_cluster: Cluster,
    target_cluster: Cluster,
    topic_name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is the same job from begin to end, and no record is there twice."""
    create(source_cluster, topic_name, 3)
    for partition in range(3):
        write(source_cluster, topic_name, 5000, partition, partition=partition)
    clusters, log = properties_of(tmp_path, source_cluster, target_cluster), tmp_path / "bulk.log"
    arguments = [*clusters, "--include", topic_name, "--name", topic_name, "--max-bytes-per-second", "4000"]
    bulk = submit("bulk_copy.py", *arguments, log=log)

    def wish(verb: str, *rest: str) -> dict[str, object]:
        assert main([verb, *clusters[2:], "--mirror", topic_name, "--json", *rest]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    def copied() -> int:
        try:
            return sum(end for _, _, end in ends(target_cluster, topic_name, 3).values())
        except Exception:  # the job creates the topic
            return 0

    try:
        wait_until(lambda: copied() > 0, "the bulk copy has begun", 300, 0.2)
        paused = wish("pause")
        assert [one["state"] for one in paused["bulk_copies"]] == ["rests"]  # type: ignore[attr-defined]
        before = copied()
        assert 0 < before < 15_000 and wish("rate", "none")["pause"] and copied() == before
        wish("resume")
        assert bulk.wait(300) == 0, log.read_text()[-3000:]
    finally:
        end_job(bulk)
    assert summary_of(log)["records"] == copied() == 15_000
    assert wish("rate", "default")["bulk_copies"] == []
    assert_equal(source_cluster, target_cluster, topic_name, 3)
