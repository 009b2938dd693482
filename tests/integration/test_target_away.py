"""The target is away for longer than any bound of a turn: a tail waits, and is level within a minute of its return."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Cluster
from tests.integration.copying import assert_equal, create, ends, properties_of, wait_until, write
from tests.integration.test_spark_jobs import PARTITIONS, copied, end_job, stop, submit

pytestmark = pytest.mark.parity


@pytest.fixture
def own_target() -> Iterator[Cluster]:
    """Others share the session's: nobody may kill that one."""
    with Cluster("away") as cluster:
        yield cluster


AWAY_S, BOUND_S, LEVEL_WITHIN_S = 130.0, 10.0, 60.0


def test_tail_outlives_a_target_that_is_away_and_is_level_within_a_minute(
    source_cluster: Cluster, own_target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Its turns give the partitions up after ten seconds, not two minutes: in two minutes it is as after half an hour."""
    create(source_cluster, topic_name, PARTITIONS)
    write(source_cluster, topic_name, 200, 1, "lz4")
    log, job_dir = tmp_path / "tail.log", tmp_path / "job"
    arguments = ["--include", topic_name, "--name", topic_name, "--no-probe", "--job-dir", str(job_dir)]
    arguments += ["--give-up-after-s", f"{BOUND_S:g}", *properties_of(tmp_path, source_cluster, own_target)]
    tail = submit("streaming_tail.py", *arguments, log=log)
    try:
        wait_until(lambda: copied(own_target, topic_name) == 200, "the tail copies what was there", 300, 0.5)
        own_target.kill(1)
        gone = time.monotonic()
        for seed in range(2, 6):  # more comes while it is away
            write(source_cluster, topic_name, 100, seed, "zstd", partition=seed % PARTITIONS)
        while time.monotonic() - gone < AWAY_S:  # what is tested is time itself
            assert tail.poll() is None, log.read_text()[-3000:]
            time.sleep(1.0)
        own_target.restart(1)
        back = time.monotonic()
        total = sum(end for _, _, end in ends(source_cluster, topic_name, PARTITIONS).values())
        wait_until(lambda: copied(own_target, topic_name) == total, "the tail is level", 300, 0.2)
        level_s = time.monotonic() - back
        stop(tail, log)
    finally:
        end_job(tail)
    said = log.read_text()
    assert said.count("no progress for") + said.count("could not be confirmed") > 1, "it was given up, and more than once"
    assert json.loads((job_dir / "status.json").read_text())["state"] == "SUCCEEDED"
    assert_equal(source_cluster, own_target, topic_name, PARTITIONS)
    print(f"level {level_s:.1f} s after the target's return")
    assert level_s < LEVEL_WITHIN_S
