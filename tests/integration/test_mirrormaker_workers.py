"""What the pages say that several processes of MirrorMaker 2 do: share, wait for each other, freeze, and disagree."""

from __future__ import annotations

import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_mirror.kafka.admin import ClusterAdmin
from sandbox import Cluster
from sandbox.ports import reserve
from sandbox.process import Child
from tests.integration.copying import config, create, ends, wait_until, write
from tests.integration.mirrormaker_once import running, settings_of, write_file

pytestmark = [pytest.mark.parity, pytest.mark.in_order]

WAIT_S = 300.0
PARTITIONS = 4


class Node:
    """One process, the listener at which others reach it, and its log."""

    def __init__(self, settings: dict[str, str], directory: Path, close: ExitStack) -> None:
        directory.mkdir()
        self._port, self._close = reserve(directory.name), close
        close.callback(self._port.release)
        self.address, self.log = self._port.address, directory / "mirrormaker.log"
        self.file = write_file(settings | {"listeners": f"http://{self.address}"}, directory)

    def start(self) -> Child:
        self.child = self._close.enter_context(running(self.file))
        return self.child

    def says(self, words: str) -> bool:
        return self.log.exists() and re.search(words, self.log.read_text()) is not None

    def asked(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as e:
            return e.code


class World:
    def __init__(self, source: Cluster, target: Cluster, name: str, directory: Path, close: ExitStack) -> None:
        self.source, self.target, self.name = source, target, name
        create(source, f"{name}-shared", PARTITIONS)
        create(source, f"{name}-other")
        for partition in range(PARTITIONS):
            write(source, f"{name}-shared", 10, seed=partition, partition=partition)
        write(source, f"{name}-other", 10, seed=1)
        self.alias = f"W{name[-6:]}".replace("-", "").replace("_", "")
        self.nodes = [
            Node(self._settings(topics), directory / f"{self.alias}-{number}", close)
            for number, topics in enumerate(("shared", "shared", "other"))
        ]

    def _settings(self, topics: str) -> dict[str, str]:
        to = f"of{self.alias}"
        return settings_of(self.alias, f"{self.name}-{topics}", self.source, self.target, to) | {
            "tasks.max": str(PARTITIONS), "dedicated.mode.enable.internal.rest": "true",
            "emit.heartbeats.enabled": "false", "emit.checkpoints.enabled": "false",
            f"{to}.scheduled.rebalance.max.delay.ms": "1000",
        }  # fmt: skip

    def there(self, topic: str = "shared") -> list[int]:
        name, partitions = f"{self.alias}.{self.name}-{topic}", PARTITIONS if topic == "shared" else 1
        with ClusterAdmin(config(self.target)) as admin:
            if name not in admin.topics([name]):
                return [0] * partitions
        return [one[2] for one in ends(self.target, name, partitions).values()]

    def write(self, count: int) -> None:
        for partition in range(PARTITIONS):
            write(self.source, f"{self.name}-shared", count, seed=partition, partition=partition)


@pytest.fixture(scope="module")
def world(source_cluster: Cluster, target_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("workers")
    with ExitStack() as close:
        world = World(source_cluster, target_cluster, f"w{time.time_ns() // 1000 % 10**9:09}", directory, close)
        for node in world.nodes[:2]:
            node.start()
        yield world
    # Who is killed is a member for as long as its session lasts: for a later module it would be one that still copies.
    group = f"{world.alias}-mm2"
    with ClusterAdmin(config(target_cluster)) as admin:
        wait_until(lambda: admin.describe_groups([group])[group].state in ("Empty", "Dead"), "its group is empty", WAIT_S)


def test_two_processes_of_one_file_share_its_work(world: World) -> None:
    wait_until(lambda: world.there() == [10] * PARTITIONS, f"all arrive: {world.nodes[0].log}", WAIT_S, 0.5)
    for node in world.nodes[:2]:
        wait_until(lambda n=node: n.says("Starting task MirrorSourceConnector"), "it has tasks", WAIT_S, 0.5)


def test_they_speak_in_clear_text_and_tell_nobody_their_state(world: World) -> None:
    for node in world.nodes[:2]:
        assert {node.asked(path) for path in ("/", "/connectors", "/connectors/MirrorSourceConnector/status")} == {404}


def test_the_partitions_of_a_lost_process_wait_and_when_it_thaws_it_writes_on(world: World) -> None:
    """It is taken for lost after ten seconds, and its partitions are given to the other one a second after that."""
    wait_until(lambda: world.there() == [10] * PARTITIONS, "all arrive", WAIT_S, 0.5)
    frozen = world.nodes[1].child
    frozen.send(signal.SIGSTOP)
    world.write(10)
    wait_until(lambda: sorted(world.there())[2:] == [20, 20], "the other one goes on", WAIT_S, 0.1)
    assert sorted(world.there()) == [10, 10, 20, 20]
    wait_until(lambda: min(world.there()) >= 20, "the other one takes over", WAIT_S, 0.5)
    time.sleep(3)
    taken_over = world.there()
    frozen.send(signal.SIGCONT)
    wait_until(lambda: sum(world.there()) >= sum(taken_over) + 20, "all of it comes again", WAIT_S, 0.5)


def test_of_two_files_that_of_the_leader_counts(world: World) -> None:
    wait_until(lambda: min(world.there()) >= 10, "all arrive", WAIT_S, 0.5)
    other = world.nodes[2]
    other.start()
    wait_until(lambda: other.says("Joined group at generation"), "it is one of three", WAIT_S, 0.5)
    time.sleep(15)
    assert world.there("other") == [0]
    for node in world.nodes[:2]:
        node.child.kill()
    wait_until(lambda: world.there("other") == [10], "its file counts now", WAIT_S, 0.5)
