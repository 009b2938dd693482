"""D1 to D3: the file of the dedicated driver, run by ``airflow-mirror run``: on one node, and on three."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_mirror.common.policy import STATE, WISHES
from airflow_mirror.jobs.runner import process
from airflow_mirror.kafka.admin import ClusterAdmin
from sandbox import Cluster
from tests.integration import plain
from tests.integration.copying import config, create, wait_until
from tests.integration.parity import applications as apps
from tests.integration.parity.flow import TOPICS_S, client, within

pytestmark = pytest.mark.parity

IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"


class Node:
    """A host that runs the file, with a home of its own."""

    def __init__(self, file: Path, home: Path) -> None:
        self.file, self.home, self.runs = file, home, 0
        self.start()

    def start(self) -> None:
        """Start it, with what the file says now."""
        self.runs += 1
        where = ["--home", str(self.home), "--engine", "plain"]
        self.home.mkdir(exist_ok=True)
        with self.log.open("w") as out:
            self.child = subprocess.Popen(
                plain.command("run", str(self.file), *where), env={**os.environ, "PYTHONPATH": str(plain.ROOT)},
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip

    @property
    def log(self) -> Path:
        return self.home / f"run-{self.runs}.log"

    def has_the_tail(self) -> bool:
        """Whether a tail copies here: one that finds another at work comes no further than its lease."""
        files = [one / "status.json" for one in self.home.glob("*/jobs/tail/*") if process.members(one)]
        return any(json.loads(file.read_text()).get("phase") == "copying" for file in files if file.exists())

    def stop(self) -> None:
        """Ask it to end, with its tail."""
        self.child.send_signal(signal.SIGTERM)
        assert self.child.wait(240) == 0, self.log.read_text()

    def kill(self) -> None:
        """End it at once with all of its processes, as when the host goes down."""
        self.child.kill()
        self.child.wait()
        for one in self.home.glob("*/jobs/tail/*"):
            process.end_job(one, 0.0)


class World:
    """A file for one flow from an alias to another, and the nodes that run it."""

    def __init__(self, clusters: tuple[Cluster, Cluster], directory: Path, alias: str) -> None:
        self.clusters, self.directory, self.alias, self.name = clusters, directory, alias, f"p{uuid.uuid4().hex[:8]}"
        self.source, self.target = map(client, clusters)
        self.file, self.nodes = directory / "mm2.properties", list[Node]()

    def write_file(self, refresh_s: int, more: str = "") -> None:
        """Write it as users of the driver do."""
        a, b, flow = self.alias, f"{self.name}b", f"{self.alias}->{self.name}b"
        self.file.write_text(
            f"clusters = {a}, {b}\n"
            f"{a}.bootstrap.servers = {self.clusters[0].bootstrap}\n"
            f"{b}.bootstrap.servers = {self.clusters[1].bootstrap}\n"
            f"{flow}.enabled = true\n{flow}.topics = {self.name}-.*\n"
            f"replication.factor = 1\nsync.topic.acls.enabled = false\n"
            f"refresh.topics.interval.seconds = {refresh_s}\n{more}"
        )

    def start(self, nodes: int = 1) -> None:
        """Start nodes."""
        self.nodes += [Node(self.file, self.directory / f"node-{i}") for i in range(nodes)]

    def create(self, topic: str) -> str:
        """Create a topic of one partition on the source."""
        create(self.clusters[0], f"{self.name}-{topic}")
        return f"{self.name}-{topic}"

    def append(self, topic: str, count: int, seed: int) -> None:
        apps.append(self.source, topic, [count], seed)

    def arrives(self, topic: str, there: str, limit_s: float = TOPICS_S) -> None:
        """Wait until a topic is on the target; it has the source's records, each once."""
        here = apps.log_of(self.source, topic)

        def arrived() -> bool:
            for node in self.nodes:
                assert node.child.poll() is None, node.log.read_text()
            return there in self.topics(1) and apps.ends(self.target, there) == apps.ends(self.source, topic)

        within(limit_s, arrived, f"{topic} arrives as {there}")
        assert apps.log_of(self.target, there) == here

    def topics(self, side: int) -> set[str]:
        with ClusterAdmin(config(self.clusters[side]), 120) as admin:
            return set(admin.topic_names())

    def holder(self, *others: Node) -> Node:
        """Wait until a node has the tail; return it."""
        found: list[Node] = []

        def there() -> bool:
            found[:] = [node for node in self.nodes if node not in others and node.has_the_tail()]
            return len(found) == 1

        wait_until(there, "one node has the tail, and no other one", poll_s=0.2)
        return found[0]


@pytest.fixture
def world(clusters: tuple[Cluster, Cluster], tmp_path: Path) -> Iterator[Callable[[str], World]]:
    made: list[World] = []

    def make(alias: str) -> World:
        made.append(World(clusters, tmp_path, alias))
        return made[-1]

    try:
        yield make
    finally:
        for node in (node for one in made for node in one.nodes):
            node.kill()


def test_d1_a_topic_that_comes_after_the_start(world: Callable[[str], World]) -> None:
    """All of its records, not all but one."""
    w = world(f"a{uuid.uuid4().hex[:8]}")
    w.write_file(1)
    w.append(w.create("test-topic-0"), 1, 1)
    w.start()
    w.arrives(f"{w.name}-test-topic-0", f"{w.alias}.{w.name}-test-topic-0")
    w.append(w.create("test-topic-1"), 11, 2)
    w.arrives(f"{w.name}-test-topic-1", f"{w.alias}.{w.name}-test-topic-1")
    w.nodes[0].stop()
    assert apps.ends(w.target, f"{w.alias}.{w.name}-test-topic-1") == {0: 11}


def test_d2_without_offset_syncs(world: Callable[[str], World]) -> None:
    """No topic of them on either side, nothing else on the source either; on the target copies and other traces."""
    w = world(f"a{uuid.uuid4().hex[:8]}")
    w.write_file(1, f"{w.alias}->{w.name}b.emit.offset-syncs.enabled = false\n")
    w.append(w.create("test-topic-1"), 11, 1)
    before = [w.topics(side) for side in (0, 1)]
    w.start()
    copy = f"{w.alias}.{w.name}-test-topic-1"
    w.arrives(f"{w.name}-test-topic-1", copy)
    w.nodes[0].stop()
    new = [w.topics(side) - known for side, known in enumerate(before)]
    assert new[0] == set()
    traces = {"heartbeats", f"{w.alias}.heartbeats", f"{w.alias}.checkpoints.internal"}
    traces |= {
        f"{w.alias}.{name}" for name in before[0] if name.endswith(".heartbeats")
    }  # as MirrorMaker carries them on
    assert {name for name in new[1] if not name.startswith("__")} <= {copy, STATE, WISHES, *traces}


def test_d3_three_nodes_and_a_rolling_restart(world: Callable[[str], World]) -> None:
    """Whoever goes, by the power or for a restart, another one goes on, with each record once; then the file is new.

    The alias has what means something in a URL: three nodes of MirrorMaker 2 call each other by such. Ours don't.
    """
    w = world(f"a+b/c?d&e%{uuid.uuid4().hex[:8]}")
    often = f"{IDENTITY}{w.name}b.exactly.once.source.support = enabled\ndedicated.mode.enable.internal.rest = true\n"
    w.write_file(3600, often)
    first = w.create("test-topic-1")
    w.append(first, 100, 1)
    w.start(3)
    w.arrives(first, first)
    unseen = w.create("test-topic-2")
    w.append(unseen, 10, 2)
    w.write_file(1, often)
    holder = w.holder()
    for seed, node in enumerate([holder, *(node for node in w.nodes if node is not holder)], 10):
        w.append(first, 10, seed)
        w.arrives(first, first)
        if node is holder:
            assert unseen not in w.topics(1), "the old interval is an hour"
            node.kill()
            w.append(first, 10, 2 * seed)
            w.holder(node)
        else:
            node.stop()
        node.start()
    w.arrives(first, first)
    later = w.create("test-topic-3")
    w.append(later, 10, 3)
    for topic in (unseen, later):
        w.arrives(topic, topic)
    w.holder()
