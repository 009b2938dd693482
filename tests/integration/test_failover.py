"""A source that dies under load, and a target that is promoted by a process that has never seen the mirror."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import build, ledger_store
from airflow_mirror.plan.ownership import begin, claim
from airflow_mirror.plan.store import write as write_plan
from airflow_mirror.sync.ends import notes
from airflow_mirror.sync.topics import create_target_topics
from sandbox import Cluster
from tests.integration.copying import config, create, ends, properties_of, read, wait_until, write
from tests.integration.test_spark_jobs import end_job

pytestmark = pytest.mark.faults

ROOT = Path(__file__).parents[2]
PARTITIONS = 2


# Written faster than the slow tail may copy, also where small batches that wait for it are merged.
_PADDING = b"." * 200


class Load:
    """Producers that write until they are stopped, and what the source acknowledged, by topic and partition.

    :param plain: gets single records. :param moved: gets transactions of ten.
    """

    def __init__(self, cluster: Cluster, plain: str, moved: str) -> None:
        self.acked: dict[TopicPartition, list[int]] = {}
        self._stop = threading.Event()
        settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "message.timeout.ms": 5000}
        self._threads = [
            threading.Thread(target=self._plainly, args=(settings, plain), daemon=True),
            threading.Thread(target=self._in_transactions, args=(settings, moved), daemon=True),
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def lacking(self, ends: Mapping[TopicPartition, int]) -> int:
        """How many acknowledged records lie at or behind these ends."""
        return sum(offset >= ends[tp] for tp, offsets in list(self.acked.items()) for offset in list(offsets))

    def _noted(self, into: list[tuple[TopicPartition, int]]) -> Any:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                into.append((TopicPartition(message.topic(), message.partition()), message.offset()))

        return delivered

    def _count(self, rows: list[tuple[TopicPartition, int]]) -> None:
        for tp, offset in rows:
            self.acked.setdefault(tp, []).append(offset)

    def _plainly(self, settings: dict[str, Any], topic: str) -> None:
        producer, number = Producer(settings), 0
        while not self._stop.wait(0.005):
            rows: list[tuple[TopicPartition, int]] = []
            value = b"v%d" % number + _PADDING
            producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=self._noted(rows))
            producer.flush(5)
            self._count(rows)
            number += 1

    def _in_transactions(self, settings: dict[str, Any], topic: str) -> None:
        producer = Producer({**settings, "transactional.id": topic, "transaction.timeout.ms": 60_000})
        producer.init_transactions()
        try:
            while not self._stop.is_set():
                rows: list[tuple[TopicPartition, int]] = []
                producer.begin_transaction()
                for number in range(10):
                    producer.produce(topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._noted(rows))
                    time.sleep(0.01)
                producer.commit_transaction(5)
                self._count(rows)  # what was not committed is not lost
        except Exception:
            self._stop.wait()


class World:
    """Two topics, the mirror of them, and its tail.

    :param by_hand: ``airflow-mirror follow`` is the tail, and nobody has planned or created anything before it.
    """

    def __init__(
        self, source: Cluster, target: Cluster, topic: str, directory: Path, close: ExitStack, rate: int | None,
        by_hand: bool,
    ) -> None:  # fmt: skip
        self.rate, self.by_hand = rate, by_hand
        self.source_cluster, self.target_cluster, self.directory = source, target, directory
        self.plain, self.moved, self.name = f"{topic}-plain", f"{topic}-tx", f"m-{topic[-8:]}"
        for one in (self.plain, self.moved):
            create(source, one, PARTITIONS, retention_ms="900000000000")
        self.target = close.enter_context(ClusterAdmin(config(target), timeout_s=120))
        mirror = Mirror(
            name=self.name, source="src", target="dst", topics=[f"{topic}.*"], groups=[f"{topic}.*"], group_interval_s=1,
            sync_topics=False, max_bytes_per_second=rate,
        )  # fmt: skip
        (directory / "mirror.json").write_text(json.dumps(mirror.to_dict()))
        if by_hand:
            return
        with ClusterAdmin(config(source), timeout_s=120) as admin:
            plan = build(mirror, admin, self.target, probe_target=False)
            create_target_topics(plan, self.target, unfenced)
            ledger = begin(plan, self.target)
            claim(ledger, plan, self.target)
            ledger_store.keep_on(self.target, plan, ledger)
        write_plan(plan, directory / "plan.json")

    def tail(self, log: Path) -> subprocess.Popen[bytes]:
        files = [str(self.directory / name) for name in ("mirror.json", "plan.json")]
        env = os.environ | {
            "TEST_SOURCE": config(self.source_cluster).dump(), "TEST_TARGET": config(self.target_cluster).dump(),
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        command = [sys.executable, str(Path(__file__).with_name("tail_main.py")), *files]
        if self.by_hand:
            clusters = "--source", "env:TEST_SOURCE", "--target", "env:TEST_TARGET"
            command = [sys.executable, "-m", "airflow_mirror.console.main", "follow", "--mirror", files[0], *clusters]
        with log.open("wb") as out:
            return subprocess.Popen(command, env=env, stdout=out, stderr=out, start_new_session=True)

    def seen(self) -> notes.SourceEnds | None:
        return notes.load(self.name, state_of(self.target, notes.prefix(self.name)).read())

    def at(self, group: str) -> dict[TopicPartition, int]:
        return {tp: p.offset for tp, p in self.target.group_offsets(group).items()}

    def target_ends(self) -> dict[TopicPartition, int]:
        return {
            TopicPartition(topic, p): row[2]
            for topic in (self.plain, self.moved)
            for p, row in ends(self.target_cluster, topic, PARTITIONS).items()
        }

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command in a process that knows the target and the mirror's name alone, on an empty disk."""
        home = self.directory / "empty"
        home.mkdir(exist_ok=True)
        file = home / "dst.properties"
        file.write_text(f"bootstrap.servers={self.target_cluster.bootstrap}\n")
        words = [sys.executable, "-m", "airflow_mirror.console.main", "failover", "--target", str(file), self.name]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(home)}
        return subprocess.run([*words, *arguments], env=env, cwd=home, capture_output=True, text=True, timeout=300)


@pytest.fixture
def lost_cluster() -> Iterator[Cluster]:
    with Cluster("lost-source", ready_timeout_s=240) as cluster:
        yield cluster


@pytest.fixture(params=[(None, False), (5000, False), (None, True)], ids=["in time", "behind", "by hand"])
def world(
    lost_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[World]:
    """A mirror whose tail is as fast as it can be, or that copies less than the producers write."""
    with ExitStack() as close:
        yield World(lost_cluster, target_cluster, topic_name, tmp_path, close, *request.param)


def test_source_dies_under_load_and_the_target_is_promoted(world: World, lost_cluster: Cluster, tmp_path: Path) -> None:
    """The true loss lies in the interval, groups go on exactly, and nothing is copied over once the source returns."""
    group, behind = f"{world.plain}-g", TopicPartition(world.plain, 0)
    reading, ahead, positions = f"{world.plain}-r", TopicPartition(world.plain, 1), list[int]()
    write(lost_cluster, world.plain, 200, seed=1)
    log = tmp_path / "tail.log"
    tail = world.tail(log)
    try:
        with ClusterAdmin(config(lost_cluster), timeout_s=120) as source:
            source.commit_group_offsets(group, {behind: GroupPosition(77, "kept")}, unfenced)

        def follows() -> bool:
            assert tail.poll() is None, log.read_text()[-3000:]
            return world.at(group) == {behind: 77}

        wait_until(follows, "the tail copies, and groups follow", 300, 0.5)
        with Load(lost_cluster, world.plain, world.moved) as load, ClusterAdmin(config(lost_cluster), 120) as source:

            def moves_until_looks_are_noted() -> bool:
                positions.append(len(load.acked.get(ahead, ())))
                source.commit_group_offsets(reading, {ahead: GroupPosition(positions[-1])}, unfenced)
                return (seen := world.seen()) is not None and len(seen.rates) > 1

            wait_until(moves_until_looks_are_noted, "looks are noted", 120, 0.5)
            if world.rate is not None:
                wait_until(lambda: load.lacking(world.target_ends()) > 200, "the tail is behind", 240, 0.5)
            refused = world.command("--yes")
            assert refused.returncode == 2 and "cut off from here is not gone" in refused.stderr, refused
            assert "direction/" + world.name not in Ledger(world.target).values()
            died = time.monotonic()
            for node in range(1, lost_cluster.node_count + 1):
                lost_cluster.kill(node)
        wait_until(
            lambda: world.command("--yes").returncode == 0, "the source counts as gone, and is failed over", 240, 1
        )
        rto_s = time.monotonic() - died
        assert tail.wait(120) is not None
    finally:
        end_job(tail)
    report = json.loads(world.command("--yes", "--json").stdout)
    assert list(report["steps"]) == ["writing", "groups", "settings", "grants"]
    copied = world.target_ends()
    lost = load.lacking(copied)
    taken = sum(map(len, load.acked.values()))
    print(f"promoted {rto_s:.1f} s after the source died; lost {lost} of {taken}: {report['lost']}")
    assert report["lost"]["at_least"] <= lost <= report["lost"]["at_most"], log.read_text()[-2000:]
    if world.rate is not None:
        assert lost > 0
    assert world.at(group) == {behind: 77}
    assert positions[0] <= world.at(reading)[ahead] <= min(positions[-1], copied[ahead])  # nothing is skipped
    entries = world.target.topic_configs([world.plain])[world.plain]
    assert entries["retention.ms"].value == "900000000000"

    write(world.target_cluster, world.plain, 50, seed=2)  # production
    after = world.target_ends()
    for node in range(1, lost_cluster.node_count + 1):
        lost_cluster.restart(node)
    lost_cluster.wait_ready()
    write(lost_cluster, world.plain, 20, seed=3)  # a producer that nobody has told
    again = tmp_path / "again.log"
    returned = world.tail(again)
    try:
        assert returned.wait(240) == 2 and "are in production" in again.read_text(), again.read_text()[-2000:]
    finally:
        end_job(returned)
    assert world.target_ends() == after
    assert len(read(world.target_cluster, world.plain, first=77)) == after[behind] - 77
    properties_of(tmp_path, lost_cluster, world.target_cluster)
    file = tmp_path / "source.properties"
    listed = json.loads(world.command("--after", "--source", str(file), "--json").stdout)
    source_ends = {p: row[2] for p, row in ends(lost_cluster, world.plain, PARTITIONS).items()}
    found = {row["partition"]: row for row in listed["partitions"]}
    for partition, end in source_ends.items():
        tp = TopicPartition(world.plain, partition)
        assert found.get(str(tp), {"offsets": 0})["offsets"] == end - copied[tp]
    assert found[str(behind)]["offsets"] >= 20
