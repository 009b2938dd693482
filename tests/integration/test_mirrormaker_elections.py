"""What the pages say that MirrorMaker 2 does where brokers die: partitions without a leader, and an unclean election."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sandbox import Cluster
from sandbox.process import Child
from tests.integration.copying import HELD_OPEN, create, ends, read, wait_until, write
from tests.integration.mirrormaker_once import LISTED, running, settings_of, write_file

pytestmark = [pytest.mark.parity, pytest.mark.in_order]

WAIT_S = 300.0
LED, LEADERLESS = 0, 1  # partitions
ONE, TWO, THREE = 1, 2, 3  # nodes


class World(NamedTuple):
    """A flow into the three nodes, and one out of them."""

    source: Cluster
    target: Cluster
    nodes: Cluster
    name: str
    child: Child
    log: Path

    def ends(self, cluster: Cluster, topic: str, partitions: int = 1) -> list[int]:
        with suppress(Exception):  # while it has no leader
            return [one[2] for one in ends(cluster, topic, partitions).values()]
        return []


def place(cluster: Cluster, topic: str, replicas: list[list[int]], **more: str) -> None:
    """Create a topic with replicas on those nodes, the leader's first."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # must live until its requests are answered
    settings = HELD_OPEN | {"min.insync.replicas": "1"} | {key.replace("_", "."): value for key, value in more.items()}
    admin.create_topics([NewTopic(topic, len(replicas), replica_assignment=replicas, config=settings)])[topic].result()


@pytest.fixture(scope="module")
def world(source_cluster: Cluster, target_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    name, directory = f"{random.randrange(10**6):06}", tmp_path_factory.mktemp("mm2")
    with Cluster("elections", nodes=3, heap_mb=384, ready_timeout_s=240) as nodes:
        into, out = f"into{name}", f"out{name}"
        create(source_cluster, f"into-{name}", 2)
        place(nodes, f"{into}.into-{name}", [[ONE], [THREE]])
        place(nodes, f"out-{name}", [[ONE, TWO]], unclean_leader_election_enable="true")
        for partition in (LED, LEADERLESS):
            write(source_cluster, f"into-{name}", 10, seed=partition, partition=partition)
        write(nodes, f"out-{name}", 100, seed=1)
        settings = settings_of(into, f"into-{name}", source_cluster, nodes, f"of{into}")
        settings |= settings_of(out, f"out-{name}", nodes, target_cluster, f"of{out}")
        every = [into, f"of{into}", out, f"of{out}"]
        settings |= {
            "clusters": ", ".join(every), "emit.checkpoints.enabled": "false",
            **dict.fromkeys(("emit.heartbeats.enabled", "heartbeats.replication.enabled"), "false"),
            **{f"of{into}.{kind}.storage.replication.factor": "3" for kind in ("offset", "status", "config")},
            f"of{into}.producer.buffer.memory": "100000",
            **{f"{alias}.{LISTED[0]}": LISTED[1] for alias in every},
        }  # fmt: skip
        settings["offset-syncs.topic.replication.factor"] = "1"
        with running(write_file(settings, directory)) as child:
            yield World(source_cluster, target_cluster, nodes, name, child, directory / "mirrormaker.log")


def test_a_partition_without_a_leader_holds_up_the_others_once_the_buffer_is_full(world: World) -> None:
    topic = f"into-{world.name}"
    there = f"into{world.name}.{topic}"
    wait_until(lambda: world.ends(world.nodes, there, 2) == [10, 10], f"they arrive: {world.log}", WAIT_S, 0.5)
    world.nodes.kill(THREE)

    def arrive(count: int) -> None:
        wait_until(lambda: world.ends(world.nodes, there) == [count], f"{count} arrive", WAIT_S, 0.5)

    try:
        write(world.source, topic, 10, seed=3, partition=LEADERLESS)
        write(world.source, topic, 10, seed=3, partition=LED)
        arrive(20)
        write(world.source, topic, 3000, seed=4, partition=LEADERLESS)
        time.sleep(5)
        write(world.source, topic, 10, seed=5, partition=LED)
        time.sleep(30)
        held = world.ends(world.nodes, there)
    finally:
        world.nodes.restart(THREE)
    arrive(30)
    wait_until(lambda: world.ends(world.nodes, there, 2)[1:] == [3020], "it goes on", WAIT_S, 0.5)
    assert held == [20]


def test_what_an_unclean_election_took_from_the_source_stays_on_the_target(world: World) -> None:
    topic, nodes = f"out-{world.name}", world.nodes
    there = f"out{world.name}.{topic}"
    wait_until(lambda: world.ends(world.target, there) == [100], "they arrive", WAIT_S, 0.5)
    nodes.kill(TWO)  # it does not get what follows, and will lead all the same
    try:
        write(nodes, topic, 50, seed=2)
        wait_until(lambda: world.ends(world.target, there) == [150], "these, too", WAIT_S, 0.5)
        nodes.kill(ONE)
        nodes.restart(TWO)
        wait_until(lambda: world.ends(nodes, topic) == [100], "its new leader lacks fifty", WAIT_S, 0.5)
        write(nodes, topic, 70, seed=9)
        wait_until(lambda: world.ends(world.target, there) == [220], "they come behind the fifty", WAIT_S, 0.5)
        time.sleep(5)
        here, copies = ([row[1:] for row in read(*one)] for one in ((nodes, topic), (world.target, there)))
        assert (len(here), len(copies)) == (170, 220)
        assert copies == here[:100] + copies[100:150] + here[100:]
        assert world.child.alive()
    finally:
        nodes.restart(ONE)
