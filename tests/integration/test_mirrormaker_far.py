"""What the pages say that MirrorMaker 2 does where a network is slow, is cut, or loses an answer."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from airflow_mirror.kafka.admin import ClusterAdmin
from sandbox import Cluster
from sandbox.process import Child
from tests.faults import ProxiedCluster
from tests.integration.copying import config, create, ends, wait_until, write
from tests.integration.mirrormaker_once import LISTED, running, settings_of, write_file

pytestmark = [pytest.mark.parity, pytest.mark.in_order]

WAIT_S = 300.0
AWAY_S = 130.0  # above the two minutes after which a producer of its own defaults gives a record up
DELAY_S, MEGABYTES = 0.1, 3
LOST_MS = "2500"  # how long a lost worker's tasks are left alone


class World(NamedTuple):
    """A flow to a cluster behind a proxy, and one from there."""

    source: Cluster
    target: ProxiedCluster
    name: str
    child: Child
    log: Path

    def topic(self, flow: str) -> str:
        return f"{flow}-{self.name}"

    def arrived(self, flow: str) -> int:
        name, there = f"{flow}{self.name}.{self.topic(flow)}", self.source if flow == "back" else self.target
        with ClusterAdmin(config(there)) as admin:
            return ends(there, name)[0][2] if name in admin.topics([name]) else 0

    def arrive(self, flow: str, least: int) -> None:
        wait_until(lambda: self.arrived(flow) >= least, f"{least} of {flow}: {self.log.read_text()[-2000:]}", WAIT_S, 0.2)


@pytest.fixture(scope="module")
def world(source_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    name, directory = f"{random.randrange(10**6):06}", tmp_path_factory.mktemp("mm2")
    with ProxiedCluster("far", ready_timeout_s=240) as target:
        settings = dict[str, str]()
        for flow, here, there in (("there", source_cluster, target), ("back", target, source_cluster)):
            settings |= settings_of(f"{flow}{name}", f"{flow}-.*", here, there, f"of{flow}{name}")
        create(source_cluster, f"there-{name}")
        write(source_cluster, f"there-{name}", 10, seed=1)
        every = [f"{of}{flow}{name}" for flow in ("there", "back") for of in ("", "of")]
        settings |= {
            "clusters": ", ".join(every), "emit.checkpoints.enabled": "false",
            **dict.fromkeys(("emit.heartbeats.enabled", "heartbeats.replication.enabled"), "false"),
            f"ofthere{name}.scheduled.rebalance.max.delay.ms": LOST_MS,
            **{f"{alias}.{LISTED[0]}": LISTED[1] for alias in every},
        }  # fmt: skip
        with running(write_file(settings, directory)) as child:
            yield World(source_cluster, target, name, child, directory / "mirrormaker.log")


def test_a_request_whose_answer_is_lost_is_written_twice(world: World) -> None:
    """As when the target's broker restarts between the two."""
    world.arrive("there", 10)
    proxy = world.target.proxy
    proxy.hold()
    write(world.source, world.topic("there"), 5, seed=2)
    time.sleep(5)  # it has sent them, and waits
    proxy.cut_clients()
    proxy.release()
    wait_until(lambda: world.arrived("there") > 15, "some of five came twice", WAIT_S, 0.5)


def test_it_writes_over_a_long_way_more_slowly_than_it_reads(world: World) -> None:
    """The same process, the same delay, the same records: what is far is once its target, once its source."""
    took = {}
    world.arrive("there", 10)
    world.target.proxy.delay_s = DELAY_S
    for flow, cluster in (("there", world.source), ("back", world.target)):
        begun = world.arrived(flow)
        if flow == "back":
            create(cluster, world.topic(flow))
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for _ in range(MEGABYTES << 10):
            producer.produce(world.topic(flow), b"x" * 1024, partition=0)
        assert producer.flush(240) == 0
        world.arrive(flow, begun + 1)
        first = time.monotonic()
        world.arrive(flow, begun + (MEGABYTES << 10))
        took[flow] = time.monotonic() - first
    world.target.proxy.heal()
    assert took["there"] > took["back"] + 10, took


def test_a_target_that_is_away_is_waited_for_and_then_its_own_tasks_for_a_while(world: World) -> None:
    """The last one. Its worker has left the group by then, and waits for itself as for a lost one: 5 minutes, usually."""
    world.arrive("there", 10)
    proxy, before, said = world.target.proxy, world.arrived("there"), len(world.log.read_text())
    there, proxy.upstream = proxy.upstream, ("127.0.0.1", 1)
    proxy.cut()
    write(world.source, world.topic("there"), 20, seed=3)
    time.sleep(AWAY_S)
    assert world.child.alive()
    proxy.upstream = there
    delay = f"with rebalance delay: {LOST_MS}"
    wait_until(lambda: delay in world.log.read_text()[said:], "it leaves its tasks alone", WAIT_S, 0.5)
    world.arrive("there", before + 20)
