"""Jobs run by hand, one after the other: nothing is skipped, lost by retention, or proven by comparing nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.plan.configs import HELD_OPEN
from sandbox import Cluster
from tests.integration import plain
from tests.integration.copying import (
    config,
    create,
    ends,
    lose,
    map_keys,
    properties_of,
    read,
    write,
    write_transactions,
)
from tests.integration.test_spark_jobs import summary_of
from tests.integration.warm_jobs import WarmJobs

pytestmark = pytest.mark.nights


@pytest.fixture
def run(
    source_cluster: Cluster, target_cluster: Cluster, warm_jobs: WarmJobs, topic_name: str, tmp_path: Path
) -> Callable[..., str]:
    """Run a job to its end and return its log, whose last line is the summary if it has one."""
    properties = properties_of(tmp_path, source_cluster, target_cluster)

    def run(job: str, *arguments: str, status: int = 0) -> str:
        log = tmp_path / "job.log"
        common = [*properties, "--include", topic_name, "--name", topic_name, "--no-probe"]
        assert warm_jobs.run(job, *common, *arguments, log=log) == status, log.read_text()[-3000:]
        return log.read_text()

    return run


@pytest.fixture
def target(target_cluster: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(config(target_cluster)) as admin:
        yield admin


@pytest.mark.parametrize("before", [0, 30], ids=["empty-source", "source-with-history"])
def test_latest_run_twice_by_hand_copies_what_came_in_between(
    source_cluster: Cluster,
    target_cluster: Cluster,
    topic_name: str,
    run: Callable[..., str],
    tmp_path: Path,
    before: int,
) -> None:
    summary = lambda: summary_of(tmp_path / "job.log")  # noqa: E731
    create(source_cluster, topic_name)
    if before:
        write(source_cluster, topic_name, before, 1, "lz4")
    run("bulk", "--start", "latest")
    assert summary()["records"] == 0
    compared = run("verify", "--start", "latest", status=1 if before else 0)
    assert ("nothing is proven" if before else "nothing to compare: the source holds no record") in compared
    write(source_cluster, topic_name, 100, 2, "lz4")
    run("bulk", "--start", "latest")
    assert summary()["records"] == 100
    run("verify", "--start", "latest", "--level", "records")
    assert (summary()["records"], summary()["proven"]) == (100, [[topic_name, 0, before, before + 100]])
    assert ends(target_cluster, topic_name)[0] == (before, before + 100, before + 100)


@pytest.mark.spark
def test_old_records_survive_a_target_with_short_retention(
    source_cluster: Cluster, target_cluster: Cluster, target: ClusterAdmin, topic_name: str, run: Callable[..., str]
) -> None:
    """The copy holds retention open while it writes, and alters message.timestamp.after.max.ms with --hold alone."""
    create(source_cluster, topic_name)
    create(target_cluster, topic_name, retention_ms="604800000")
    write(source_cluster, topic_name, 50, 1, "zstd")
    assert "changed while the mirror writes" in run("bulk")
    there = target.topic_configs([topic_name])[topic_name]
    assert {key: there[key].value for key in HELD_OPEN} == dict(HELD_OPEN)
    assert len(read(target_cluster, topic_name)) == 50
    target.alter_topic_configs(topic_name, unfenced, {"message.timestamp.after.max.ms": "3600000"})
    assert "message.timestamp.after.max.ms is 3600000, must be" in run("bulk", status=2)
    unchanged = target.topic_configs([topic_name])[topic_name]
    assert unchanged["message.timestamp.after.max.ms"].value == "3600000", "nothing was touched"
    run("bulk", "--hold")
    held = target.topic_configs([topic_name])[topic_name]
    assert held["message.timestamp.after.max.ms"].value == HELD_OPEN["message.timestamp.after.max.ms"]


def test_verify_fails_on_an_empty_target_and_writes_nothing(
    source_cluster: Cluster, target_cluster: Cluster, target: ClusterAdmin, topic_name: str, run: Callable[..., str]
) -> None:
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 10, 1, "none")
    assert "the target has no topic" in run("verify", status=1)
    create(target_cluster, topic_name)
    assert "the target none of them yet" in run("verify", status=1)
    assert ends(target_cluster, topic_name)[0] == (0, 0, 0)
    assert target.group_offsets(f"airflow-mirror:{topic_name}:starts") == {}


def verifier(source: Cluster, target: Cluster, topic: str, directory: Path) -> Callable[[str], tuple[int, str]]:
    """Copy ten records, and return what compares both sides at a level: its status, and what it says."""
    sides, log = properties_of(directory, source, target), directory / "job.log"
    create(source, topic)
    write(source, topic, 10, 1)
    assert plain.copy(*sides, "--include", topic, "--name", topic, "--no-probe", log=log) == 0, log.read_text()

    def verify(level: str) -> tuple[int, str]:
        command = plain.command("verify", *sides, "--mirror", topic, "--level", level)
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stderr

    return verify


def test_target_that_others_have_written_to_is_not_equal(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Up to the source's end it is; what lies behind is nobody's copy, and applications would read it."""
    verify = verifier(source_cluster, target_cluster, topic_name, tmp_path)
    for level in ("batches", "offsets"):
        assert verify(level)[0] == 0
    write(target_cluster, topic_name, 3, 2)
    for level in ("batches", "offsets"):
        status, said = verify(level)
        assert status == 1 and f"{topic_name}-0: the target's log ends at 13, the source's at 10" in said


def test_ends_that_differ_are_not_equal(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    verify = verifier(source_cluster, target_cluster, topic_name, tmp_path)
    write(source_cluster, topic_name, 3, 2)
    status, said = verify("offsets")
    assert status == 1 and f"{topic_name}-0 [0, 10): end at offset 10" in said


@pytest.mark.spark
def test_changed_topics_groups_and_rate_copy_nothing_again(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, run: Callable[..., str], tmp_path: Path
) -> None:
    """The same name goes on where it was, with what is new."""
    more = f"{topic_name}-more"
    for topic in (topic_name, more):
        create(source_cluster, topic)
        write(source_cluster, topic, 50, 1)
    run("bulk")
    assert summary_of(tmp_path / "job.log")["records"] == 50
    write(source_cluster, topic_name, 7, 2)
    changed = ["--include", more, "--groups", "billing.*", "--max-bytes-per-second", "1000000"]
    run("bulk", *changed)
    assert summary_of(tmp_path / "job.log")["records"] == 50 + 7
    run("bulk", "--include", more)
    assert summary_of(tmp_path / "job.log")["records"] == 0


def test_a_second_mirror_of_the_same_topic_is_refused_by_name(
    source_cluster: Cluster, target_cluster: Cluster, target: ClusterAdmin, topic_name: str, run: Callable[..., str]
) -> None:
    """It would continue the first one's offsets with its own records. Nothing is touched: no setting either."""
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 20, 1)
    run("bulk")
    target.alter_topic_configs(
        topic_name, unfenced, {"retention.bytes": "1073741824"}
    )  # not its time: the records are old
    refused = run("bulk", "--name", f"{topic_name}-other", "--hold", status=2)
    assert f"{topic_name}: mirror '{topic_name}' of cluster" in refused
    assert target.topic_configs([topic_name])[topic_name]["retention.bytes"].value == "1073741824"
    run("bulk", "--hold")
    assert len(read(target_cluster, topic_name)) == 20


@pytest.mark.spark
def test_mapped_copy_by_hand_goes_on_as_the_target_says(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, run: Callable[..., str], tmp_path: Path
) -> None:
    """Neither a plan nor a file says that it is mapped. Where the target has lost that as well, nothing is touched."""
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 40, 1, "lz4")
    write_transactions(source_cluster, topic_name, seed=2, transactions=4)
    run("bulk", "--offsets", "mapped")
    copied = len(read(source_cluster, topic_name))
    assert len(read(target_cluster, topic_name)) == copied
    assert ends(target_cluster, topic_name)[0][2] < ends(source_cluster, topic_name)[0][2], "no hole is filled"
    write(source_cluster, topic_name, 10, 3)
    run("bulk")
    run("verify", "--level", "records")
    assert summary_of(tmp_path / "job.log")["records"] == len(read(target_cluster, topic_name)) == copied + 10
    lose(target_cluster, map_keys(target_cluster, topic_name))
    write(source_cluster, topic_name, 10, 4)
    for job, asked in (("bulk", "mapped"), ("verify", "mapped"), ("bulk", "auto")):
        run(job, "--offsets", asked, status=2 if asked == "mapped" else 1)
    assert len(read(target_cluster, topic_name)) == copied + 10
