"""What may happen to source and target while they are mirrored: the partition stops and says where, the others go on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop import source_side, watch
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.source_side import SourceSide
from airflow_mirror.copy.loop.watch import Watch
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.copy.writer import lease
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire import fetch
from airflow_mirror.wire.batch import CONTROL
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.integration import segments
from tests.integration.copying import (
    Seen,
    assert_equal,
    config,
    copy,
    create,
    ends,
    named,
    properties_of,
    ranges_of,
    read,
    wait_until,
    write,
    write_transactions,
)
from tests.integration.test_spark_jobs import end_job, stop, submit, summary_of

pytestmark = pytest.mark.faults


class Tail:
    """A copy that follows in a thread, and can be held between two fetches as a slow or frozen one would be."""

    def __init__(self) -> None:
        self.stop, self.held, self.holds = threading.Event(), threading.Event(), threading.Event()
        self.result: Future[list[PartitionResult]]
        self.loop: CopyLoop

    def hold(self) -> None:
        """Hold it; return when no fetch is under way."""
        self.holds.clear()
        self.held.set()
        self.holds.wait(60)  # from here on the loop sends nothing
        wait_until(lambda: not any(lane.busy for lane in self.loop._in._lanes.values()), "the long polls end")

    def copy_of(self, topic: str) -> PartitionCopy:
        """Return the copy of a topic's only partition."""
        return next(p for p in self.loop.partitions if p.range.source_topic == topic)

    def await_stop(self, topic: str) -> None:
        """Wait until the copy of a topic was given up."""
        wait_until(lambda: self.copy_of(topic).error is not None, f"{topic} stops", 60)

    def end(self) -> dict[str, PartitionResult]:
        """Stop it cleanly and return what it reported, by source topic."""
        self.stop.set()
        return {result.topic: result for result in self.result.result(60)}


@contextmanager
def following(
    source: Cluster, target: Cluster, topics: Sequence[str], patch: pytest.MonkeyPatch, with_ids: bool = True
) -> Iterator[Tail]:
    ranges = [replace(r, end_offset=None) for topic in topics for r in ranges_of(source, topic)]
    ranges = named(target, ranges) if with_ids else [replace(r, source_topic_id=None) for r in ranges]
    tail = Tail()
    run = CopyLoop.run

    def known(self: CopyLoop, should_stop: Callable[[], bool]) -> list[PartitionCopy]:
        tail.loop = self
        return run(self, should_stop)

    patch.setattr(CopyLoop, "run", known)
    for owner, name in ((SourceSide, "_ask_if_idle"), (Watch, "look")):  # what wants an answer is noted all the same
        hold_in(owner, name, tail, patch)
    patch.setattr(watch, "_EVERY_S", 0.5)
    patch.setenv("TEST_SOURCE", config(source).dump())
    patch.setenv("TEST_TARGET", config(target).dump())
    with WireCluster(config(target)) as wire, ThreadPoolExecutor(1) as pool:
        token = lease.take(wire, topics[0])
        work = CopyWork(
            source="env:TEST_SOURCE", target="env:TEST_TARGET", options=CopyOptions(mirror=topics[0]), lease=token
        )
        tail.result = pool.submit(copy_ranges, work, ranges, None, tail.stop.is_set)
        try:
            yield tail
        finally:
            tail.stop.set()
            lease.release(wire, token)


def hold_in(owner: type, name: str, tail: Tail, patch: pytest.MonkeyPatch) -> None:
    original = getattr(owner, name)

    def held(self: object, *arguments: object, **options: bool) -> None:
        if tail.held.is_set():
            tail.holds.set()
        else:
            original(self, *arguments, **options)

    patch.setattr(owner, name, held)


@pytest.fixture
def two(source_cluster: Cluster, target_cluster: Cluster, topic_name: str) -> tuple[str, str]:
    """A topic that something happens to, and one beside it that must not suffer."""
    topics = topic_name, f"{topic_name}-beside"
    for seed, topic in enumerate(topics):
        create(source_cluster, topic)
        create(target_cluster, topic)
        write(source_cluster, topic, 90, seed)
    return topics


def at(cluster: Cluster, topic: str, offset: int) -> None:
    wait_until(lambda: ends(cluster, topic)[0][2] == offset, f"{topic} reaches {offset}")


def end_of(tail: Tail, source: Cluster, target: Cluster, hit: str, beside: str) -> str:
    """Check that the other topic goes on and ends well; return the error that stopped the one that was hit."""
    write(source, beside, 50, 8)
    at(target, beside, 140)
    tail.await_stop(hit)
    results = tail.end()
    assert results[hit].final and results[beside].error is None
    assert_equal(source, target, beside)
    return str(results[hit].error)


def create_again(cluster: Cluster, topic: str) -> None:
    with ClusterAdmin(config(cluster)) as admin:
        admin.delete_topics([topic], unfenced)
        wait_until(lambda: topic not in admin.topics(), f"{topic} is gone")
    create(cluster, topic)


def create_again_unseen(tail: Tail, cluster: Cluster, topic: str, records: int) -> None:
    """Nothing is fetched, and nobody looks, between the old topic and the new one with all its records."""
    tail.hold()
    create_again(cluster, topic)
    write(cluster, topic, records, 7)
    tail.held.clear()


def test_topic_created_again_between_fetches_gives_none_of_its_records(
    source_cluster: Cluster, target_cluster: Cluster, two: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refilled, too, so that no offset is missing, and nobody looks: the broker knows the old one no more."""
    hit, beside = two
    with following(source_cluster, target_cluster, two, monkeypatch) as tail:
        at(target_cluster, hit, 90)
        wait_until(lambda: tail.copy_of(hit).watched == 90, "the topic is looked at")
        monkeypatch.setattr(watch, "_EVERY_S", 1e9)
        create_again_unseen(tail, source_cluster, hit, 140)
        error = end_of(tail, source_cluster, target_cluster, hit, beside)
    assert f"{hit}-0 offsets [0, 90): the source topic was deleted and created again" in error


def test_topic_created_again_between_fetches_by_name_names_doubtful_offsets(
    source_cluster: Cluster, target_cluster: Cluster, two: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a source before 3.1, which takes no ids."""
    monkeypatch.setattr(fetch, "BY_ID", 99)
    hit, beside = two
    with following(source_cluster, target_cluster, two, monkeypatch) as tail:
        at(target_cluster, hit, 90)
        wait_until(lambda: tail.copy_of(hit).watched == 90, "the topic is looked at")
        monkeypatch.setattr(watch, "_EVERY_S", 1e9)
        create_again_unseen(tail, source_cluster, hit, 140)
        at(target_cluster, hit, 140)  # the new topic's records were taken for the old one's
        monkeypatch.setattr(watch, "_EVERY_S", 0.1)
        error = end_of(tail, source_cluster, target_cluster, hit, beside)
    assert f"{hit}-0 offsets [90, 140): the source topic was deleted and created again" in error
    assert "copied since it was last seen unchanged" in error


def test_topic_that_is_deleted_stops_alone(
    source_cluster: Cluster, target_cluster: Cluster, two: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hit, beside = two
    with following(source_cluster, target_cluster, two, monkeypatch) as tail:
        at(target_cluster, hit, 90)
        with ClusterAdmin(config(source_cluster)) as admin:
            admin.delete_topics([hit], unfenced)
        error = end_of(tail, source_cluster, target_cluster, hit, beside)
    assert f"{hit}-0 offsets [0, 90): the source topic is gone" in error
    # And a job that starts now copies the other one all the same.
    gone = CopyRange(source_topic=hit, target_topic=hit, partition=0, start_offset=0, end_offset=90, source_topic_id=None)
    write(source_cluster, beside, 10, 9)
    stopped, fine = copy(source_cluster, target_cluster, [gone, *ranges_of(source_cluster, beside)], mirror=hit)
    assert stopped.final and "the source topic is gone" in str(stopped.error)
    assert (fine.done, fine.records) == (True, 10)


# spark_jobs/streaming_tail.py, but its driver looks for new topics all the time: it must not say that one is gone, since
# it knows no offset.
CURIOUS_TAIL = """
import sys
from airflow_mirror.jobs.driver import supervision, tail
supervision._DISCOVER_EVERY_S = 0.1
sys.exit(tail.main(sys.argv[1:]))
"""


def test_tail_job_goes_on_without_a_topic_that_is_deleted(
    source_cluster: Cluster, target_cluster: Cluster, two: tuple[str, str], tmp_path: Path
) -> None:
    """It says up to where that one was copied, and ends well when it is stopped."""
    hit, beside = two
    script, log = tmp_path / "streaming_tail.py", tmp_path / "log"
    script.write_text(CURIOUS_TAIL)
    arguments = ["--include", f"{hit}.*", "--name", hit, "--job-dir", str(tmp_path / "job")]
    arguments += properties_of(tmp_path, source_cluster, target_cluster)
    job = submit(str(script), *arguments, log=log)
    try:
        for topic in two:
            wait_until(lambda topic=topic: ends(target_cluster, topic)[0][2] == 90, f"{topic} is copied", 200, 0.5)
        with ClusterAdmin(config(source_cluster)) as admin:
            admin.delete_topics([hit], unfenced)
        status_file = tmp_path / "job" / "status.json"
        wait_until(lambda: json.loads(status_file.read_text())["notes"], "it is said", 200, 0.5)
        write(source_cluster, beside, 50, 8)
        wait_until(lambda: ends(target_cluster, beside)[0][2] == 140, "the other one goes on", 200, 0.5)

        def shown() -> list[str]:
            return [row["topic"] for row in json.loads(status_file.read_text())["partitions"]]

        wait_until(lambda: shown() == [beside], "the status shows the other one alone", 200, 0.5)
        (note,) = json.loads(status_file.read_text())["notes"]
        stop(job, log)
    finally:
        end_job(job)
    assert f"{hit}-0 offsets [0, 90): the source topic is gone" in note
    assert summary_of(log)["gone"] == [hit]
    assert ends(target_cluster, hit)[0][2] == 90, "the target keeps it"
    assert_equal(source_cluster, target_cluster, beside)


def test_source_shorter_than_the_position_names_the_missing_offsets(
    source_cluster: Cluster, target_cluster: Cluster, two: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hit, beside = two
    with following(source_cluster, target_cluster, two, monkeypatch, with_ids=False) as tail:
        at(target_cluster, hit, 90)
        create_again_unseen(tail, source_cluster, hit, 40)
        error = end_of(tail, source_cluster, target_cluster, hit, beside)
    assert f"{hit}-0 offsets [40, 90): the source's log ends at 40" in error


def test_retention_that_overtakes_the_copy_names_what_is_lost(
    source_cluster: Cluster, target_cluster: Cluster, two: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hit, beside = two
    with following(source_cluster, target_cluster, two, monkeypatch) as tail:
        at(target_cluster, hit, 90)
        tail.hold()
        write(source_cluster, hit, 80, 7)
        with ClusterAdmin(config(source_cluster)) as admin:
            admin.delete_records({TopicPartition(hit, 0): 133}, unfenced)
        tail.held.clear()
        error = end_of(tail, source_cluster, target_cluster, hit, beside)
    assert f"{hit}-0 offsets [90, 133): the source deleted these offsets" in error
    assert ends(target_cluster, hit)[0][2] == 90


def test_writer_on_the_target_is_found_despite_equal_records(
    source_cluster: Cluster, target_cluster: Cluster, two: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat's records are all equal: shifted by one they still are, but for the one that is foreign."""
    hit, beside = two

    def beat(cluster: Cluster, count: int, value: bytes = b"alive") -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for _ in range(count):
            producer.produce(hit, value, timestamp=1_600_000_000_000)
        producer.flush()

    beat(source_cluster, 30)
    with following(source_cluster, target_cluster, two, monkeypatch) as tail:
        at(target_cluster, hit, 120)
        beat(target_cluster, 1, b"foreign")
        for _ in range(3):
            beat(source_cluster, 5)
            time.sleep(0.3)
        error = end_of(tail, source_cluster, target_cluster, hit, beside)
    assert f"{hit}-0 offsets [120, " in error
    assert "Another writer appended to the target" in error


@pytest.mark.parametrize("seen", [True, False])
def test_target_topic_created_again_gets_nothing(
    source_cluster: Cluster, target_cluster: Cluster, two: tuple[str, str], seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the next look, or refused by the broker where records come before that."""
    hit, beside = two
    with following(source_cluster, target_cluster, two, monkeypatch) as tail:
        at(target_cluster, hit, 90)
        was = tail.copy_of(hit).range.target_topic_id
        if not seen:
            monkeypatch.setattr(watch, "_EVERY_S", 1e9)
            tail.hold()
        create_again(target_cluster, hit)
        if not seen:
            write(source_cluster, hit, 50, 7)
            tail.held.clear()
        error = end_of(tail, source_cluster, target_cluster, hit, beside)
    with ClusterAdmin(config(target_cluster)) as admin:
        now = admin.topics([hit])[hit].topic_id
    assert was and was != now
    assert "was deleted and created again" in error and was in error and now in error
    assert ends(target_cluster, hit)[0][2] == 0


# --- a source whose disk has rotted ------------------------------------------------------------------------------------


class Rotten(NamedTuple):
    """A source, the batch of each topic that is damaged, and what the topic held before."""

    cluster: Cluster
    hit: dict[str, segments.Placed]
    before: dict[str, list[Seen]]


@pytest.fixture(scope="module")
def rotten(target_cluster: Cluster) -> Iterator[Rotten]:
    """A cluster with a flipped bit in a batch of data, in one of a marker, and a length that is too long."""
    with Cluster("rotten-source", ready_timeout_s=180) as cluster:
        for topic in ("rot-data", "rot-marker", "length"):
            create(cluster, topic)
            create(target_cluster, topic)
        create(cluster, "rot-not", partitions=2)
        for seed in range(4):
            write(cluster, "rot-data", 50, seed, "lz4")
            write(cluster, "length", 50, seed)
            write(cluster, "rot-not", 300, seed, "zstd", partition=seed % 2)
        write_transactions(cluster, "rot-marker", seed=3, transactions=6)
        write_transactions(cluster, "rot-not", seed=4, transactions=3, partitions=2)
        before = {topic: read(cluster, topic) for topic in ("rot-data", "rot-marker")}
        cluster.shut_down(1)
        hit = {topic: segments.batches(cluster, topic)[4] for topic in ("rot-data", "length")}
        markers = [b for b in segments.batches(cluster, "rot-marker") if b.attributes & CONTROL]
        hit["rot-marker"] = markers[7]
        segments.flip(cluster, "rot-data", hit["rot-data"].at + 80)
        segments.flip(cluster, "rot-marker", hit["rot-marker"].at + 22, 0x20)  # the control bit itself
        segments.poke(cluster, "length", hit["length"].at + 8, ">i", 100_000_000)
        cluster.restart(1)
        yield Rotten(cluster, hit, before)


def test_batch_of_wrong_length_ends_the_copy(
    rotten: Rotten, target_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be asked for for ever. By empty answers it can't be told from a remote store that fails: that passes."""
    cluster, hit, _ = rotten
    monkeypatch.setattr(source_side, "_DRY_S", 3.0)
    (result,) = copy(cluster, target_cluster, ranges_of(cluster, "length"), duration_s=300, give_up_after_s=8.0)
    assert not result.final
    assert (result.position, result.records) == (hit["length"].base, hit["length"].base)
    assert "length-0: no progress for" in str(result.error)
    assert f"nothing arrives at offset {hit['length'].base} although the log ends at 200" in str(result.error)


@pytest.fixture
def arguments(rotten: Rotten, target_cluster: Cluster, tmp_path: Path) -> list[str]:
    out = ["--include", "rot-.*", "--name", "rotten", "--job-dir", str(tmp_path / "job")]
    return out + properties_of(tmp_path, rotten.cluster, target_cluster)


def test_bulk_job_on_a_rotten_source_copies_the_rest(
    rotten: Rotten, target_cluster: Cluster, arguments: list[str], tmp_path: Path
) -> None:
    """It fails with the offsets; run again, the copy finds the same and writes nothing."""
    cluster = rotten.cluster
    run_to_failure("bulk_copy.py", *arguments, log=tmp_path / "log")
    assert_stopped_where_it_is_broken(rotten, target_cluster, tmp_path)
    assert summary_of(tmp_path / "log")["partitions"] == 4
    # Run again it finds the same, and writes nothing.
    before = {topic: ends(target_cluster, topic) for topic in ("rot-data", "rot-marker")}
    ranges = [r for topic in before for r in ranges_of(cluster, topic)]
    results = copy(cluster, target_cluster, ranges, mirror="rotten")
    assert all(result.final and "does not fit its bytes" in str(result.error) for result in results)
    assert {topic: ends(target_cluster, topic) for topic in before} == before


def test_tail_on_a_rotten_source_stops_the_others_cleanly(
    rotten: Rotten, target_cluster: Cluster, arguments: list[str], tmp_path: Path
) -> None:
    """The job fails."""
    cluster = rotten.cluster
    write(cluster, "rot-not", 100, 9, "lz4")  # something to do, whichever job came first
    run_to_failure("streaming_tail.py", *arguments, log=tmp_path / "log")
    assert_stopped_where_it_is_broken(rotten, target_cluster, tmp_path)


def run_to_failure(*command: str, log: Path) -> None:
    job = submit(*command, log=log)
    try:
        assert job.wait(400) == 1, log.read_text()[-3000:]
    finally:
        end_job(job)


def assert_stopped_where_it_is_broken(rotten: Rotten, target: Cluster, where: Path) -> None:
    status = json.loads((where / "job" / "status.json").read_text())
    assert (status["state"], status["blame"]) == ("FAILED", "human")
    for topic in ("rot-data", "rot-marker"):
        broken = rotten.hit[topic]
        assert f"{topic}-0 offsets [{broken.base}, {broken.next}): its CRC-32C does not fit" in status["error"]
        assert read(target, topic) == [row for row in rotten.before[topic] if row[0] < broken.base]
        start, stable, end = ends(target, topic)[0]
        # A hole right before it is not filled: nobody knows what would have stood behind it.
        assert start == 0 and stable == end <= broken.base
    assert "rot-not" not in status["error"]
    assert_equal(rotten.cluster, target, "rot-not", 2)
