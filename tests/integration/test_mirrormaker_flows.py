"""What the pages say that MirrorMaker 2 does with a setting: one runs many flows, each with its own."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from sandbox import Cluster
from sandbox.process import Child
from tests.integration.copying import TILL_FLUSH, config, create, ends, read, wait_until, write
from tests.integration.mirrormaker_once import LISTED, running, settings_of, write_file
from tests.integration.raw_batches import stored
from tests.integration.segments import segment

pytestmark = [pytest.mark.parity, pytest.mark.in_order]

WAIT_S = 240.0
TRANSFORMS = "org.apache.kafka.connect.transforms."
# By alias of the source: what a flow has beside the topics ``ALIAS-.*``.
FLOWS = {
    "shrunk": {},
    "changed": {
        "transforms": "bare, filled",
        "transforms.bare.type": f"{TRANSFORMS}DropHeaders", "transforms.bare.headers": "h",
        "transforms.filled.type": f"{TRANSFORMS}Filter", "transforms.filled.predicate": "empty",
        "predicates": "empty", "predicates.empty.type": f"{TRANSFORMS}predicates.RecordIsTombstone",
    },
    "lax": {"errors.tolerance": "all"},
    "damaged": {},
    "latest": {},
}  # fmt: skip


class World(NamedTuple):
    source: Cluster
    target: Cluster
    older: Cluster
    name: str
    start: Callable[[], None]
    running: list[Child]
    log: Path

    def topic(self, alias: str, *more: str) -> str:
        return "-".join((alias, self.name, *more))

    def there(self, alias: str, *more: str) -> str:
        return f"{self.of(alias)}.{self.topic(alias, *more)}"

    def of(self, alias: str) -> str:
        """The alias in the file: no other test's."""
        return f"{alias}{self.name}"

    def arrived(self, alias: str, *more: str, cluster: Cluster | None = None) -> int:
        name, there = self.there(alias, *more), cluster or self.target
        with ClusterAdmin(config(there)) as admin:
            return ends(there, name)[0][2] if name in admin.topics([name]) else 0

    def arrive(self, alias: str, least: int, *more: str, cluster: Cluster | None = None) -> None:
        wait_until(
            lambda: self.arrived(alias, *more, cluster=cluster) >= least,
            f"{least} records of {alias} arrive: {self.log.read_text()[-2000:]}", WAIT_S, 0.5,
        )  # fmt: skip


@pytest.fixture(scope="module")
def older() -> Iterator[Cluster]:
    """A target that does not know what Kafka 3.6 brought: message.timestamp.after.max.ms."""
    with Cluster("older", version="3.4.1", ready_timeout_s=240) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def world(
    source_cluster: Cluster, target_cluster: Cluster, older: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    name, directory = f"{random.randrange(10**6):06}", tmp_path_factory.mktemp("mm2")
    to, elsewhere = f"to{name}", f"older{name}"
    settings, aliases = dict[str, str](), [*FLOWS, "strict", "exact"]
    for alias in aliases:
        target = older if alias == "strict" else target_cluster
        cluster = elsewhere if alias == "strict" else f"exact-{to}" if alias == "exact" else to
        source = f"{alias}{name}"
        settings |= settings_of(source, f"{alias}-.*", source_cluster, target, cluster)
        settings |= {f"{source}->{cluster}.{key}": value for key, value in FLOWS.get(alias, {}).items()}
    every = [*(f"{alias}{name}" for alias in aliases), to, elsewhere, f"exact-{to}"]
    back = f"shrunk{name}"
    settings |= {
        "clusters": ", ".join(every), "emit.heartbeats.enabled": "false", "emit.checkpoints.enabled": "false",
        "sync.group.offsets.enabled": "true",
        # Of each flow; with 30 partitions of a worker's topics, a busy machine is too slow for its half a minute.
        "offset.storage.partitions": "1", "status.storage.partitions": "1",
        f"latest{name}.consumer.auto.offset.reset": "latest", f"{to}.offset.flush.interval.ms": "3600000",
        f"exact-{to}.exactly.once.source.support": "enabled",
        f"{to}->{back}.enabled": "true", f"{to}->{back}.topics": f"back-{name}",
        f"strict{name}->{elsewhere}.sync.topic.configs.enabled": "true", "sync.topic.configs.interval.seconds": "1",
        **{f"{back}.{kind}.storage.replication.factor": "1" for kind in ("offset", "status", "config")},
        **{f"{alias}.{LISTED[0]}": LISTED[1] for alias in every},
    }  # fmt: skip
    file = write_file(settings, directory)
    processes = list[Child]()
    contexts = []

    def start() -> None:
        contexts.append(running(file, "--clusters", to, elsewhere, f"exact-{to}"))
        processes.append(contexts[-1].__enter__())

    world = World(source_cluster, target_cluster, older, name, start, processes, directory / "mirrormaker.log")
    fill(world)
    try:
        start()
        yield world
    finally:
        for context in contexts:
            context.__exit__(None, None, None)


def fill(world: World) -> None:
    """Put into topics what is there before it starts."""
    source, topic = world.source, world.topic
    compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_ms": "100"}
    create(source, topic("shrunk"), max_compaction_lag_ms="100", **compacted)
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": TILL_FLUSH})
    for number in range(200):
        producer.produce(topic("shrunk"), b"%d" % number, b"key %d" % (number % 20))
    assert producer.flush(240) == 0
    create(source, topic("changed"))
    for value, headers in ((b"one", [("h", b"1"), ("k", b"2")]), (None, []), (b"three", [])):
        producer.produce(topic("changed"), value, b"key", headers=headers)
    with ClusterAdmin(config(source)) as admin:
        admin.create_topics([NewTopicSpec(topic("lax"), 1, 1, {"max.message.bytes": "3000000"})], unfenced)
        wait_until(lambda: topic("lax") in admin.topics([topic("lax")]), "the topic is there")
    large = Producer({"bootstrap.servers": source.bootstrap, "message.max.bytes": 3_000_000})
    for value in (b"small", b"x" * 1_500_000, b"behind it"):
        large.produce(topic("lax"), value, partition=0)
        assert large.flush(60) == 0
    for more in ("broken", "whole"):
        create(source, topic("damaged", more))
        for number in range(3):  # batches
            producer.produce(topic("damaged", more), b"value %d" % number)
            assert producer.flush(240) == 0
    with ClusterAdmin(config(source)) as admin:
        admin.commit_group_offsets(f"readers-{world.name}", {TopicPartition(topic("lax"), 0): GroupPosition(1)}, unfenced)
    create(source, topic("latest"))
    write(source, topic("latest"), 5, seed=1)
    unknown = {"retention.ms": "900000000000", "message.timestamp.after.max.ms": "86400000000"}
    settings = {"known": {"retention.ms": "-1"}, "unknown": unknown, "there": unknown}
    with ClusterAdmin(config(source)) as admin:
        admin.create_topics([NewTopicSpec(topic("strict", more), 1, 1, own) for more, own in settings.items()], unfenced)
        names = [topic("strict", more) for more in settings]
        wait_until(lambda: len(admin.topics(names)) == 3, "they are there")
    with ClusterAdmin(config(world.older)) as admin:
        admin.create_topics([NewTopicSpec(world.there("strict", "there"), 1, 1)], unfenced)
    for more in settings:
        write(source, topic("strict", more), 10, seed=2)
    create(source, topic("exact"))
    write(source, topic("exact"), 10, seed=2)
    create(world.target, f"back-{world.name}")
    write(world.target, f"back-{world.name}", 10, seed=2)
    deadline = time.monotonic() + WAIT_S
    while len(read(source, topic("shrunk"))) > 100:
        producer.produce(topic("shrunk"), b"tick", b"tick")  # the cleaner takes no active segment; this one rolls it
        assert producer.flush(240) == 0
        assert time.monotonic() < deadline, "the cleaner did not come"
        time.sleep(0.5)


def test_what_compaction_has_removed_shifts_all_offsets_after_it(world: World) -> None:
    write(world.source, world.topic("shrunk"), 0, seed=1)
    world.arrive("shrunk", 20)
    time.sleep(3)
    here, there = ends(world.source, world.topic("shrunk"))[0][2], world.arrived("shrunk")
    assert here > 200 and there < 100


def test_transforms_change_and_drop_records(world: World) -> None:
    world.arrive("changed", 2)
    time.sleep(3)
    found = read(world.target, world.there("changed"))
    assert [(row[3], row[4]) for row in found] == [(b"one", [("k", b"2")]), (b"three", None)], found


def test_with_errors_tolerance_all_what_fails_is_skipped(world: World) -> None:
    world.arrive("lax", 2)
    assert [row[3] for row in read(world.target, world.there("lax"))] == [b"small", b"behind it"]


def test_a_setting_that_the_target_does_not_know_is_a_line_in_its_log_and_its_task_waits(world: World) -> None:
    """For a topic that is not created for it; one that is there gets none of its settings."""
    there = world.there("strict", "there")
    for words in (
        f"Could not create topic {world.there('strict', 'unknown')}", f"Could not alter configuration of topic {there}",
        "replicating 3 topic-partitions strict",
    ):  # fmt: skip
        wait_until(lambda w=words: w in world.log.read_text(), words, WAIT_S, 0.5)
    others = ("known", "there")
    time.sleep(10)
    before = [world.arrived("strict", more, cluster=world.older) for more in others]
    for more in others:
        write(world.source, world.topic("strict", more), 5, seed=3)
    time.sleep(10)
    assert [world.arrived("strict", more, cluster=world.older) for more in others] == before
    with ClusterAdmin(config(world.older)) as admin:
        assert world.there("strict", "unknown") not in admin.topic_names()
        assert world.there("strict", "known") in admin.topic_names()
        assert admin.topic_configs([there])[there]["retention.ms"].source == "DEFAULT_CONFIG"
    assert world.running[-1].alive()


def test_with_exactly_once_support_records_and_progress_are_one_transaction(world: World) -> None:
    """Without another setting. A transaction has an epoch of its own, and its marker takes an offset."""
    world.arrive("exact", 11)
    name, progress = world.there("exact"), f"mm2-offsets.{world.of('exact')}.internal"
    assert len(read(world.target, name)) == 10 < world.arrived("exact")

    def transactions(topic: str) -> set[tuple[int, int]]:
        headers = [one.header for one in stored(world.target, topic)]
        return {(one.producer_id, one.producer_epoch) for one in headers if one and not one.is_control}

    assert transactions(name) and transactions(name) <= transactions(progress)


def test_groups_do_not_move_where_checkpoints_are_off(world: World) -> None:
    world.arrive("lax", 2)
    wait_until(lambda: "can't run with emit.checkpoints.enabled set to false" in world.log.read_text(), "it says so")
    with ClusterAdmin(config(world.target)) as admin:
        assert admin.group_offsets(f"readers-{world.name}") == {}


def test_only_flows_into_the_named_clusters_are_started(world: World) -> None:
    world.arrive("lax", 2)
    with ClusterAdmin(config(world.source)) as admin:
        assert f"mm2-configs.to{world.name}.internal" not in admin.topic_names()


def test_with_latest_what_comes_while_nothing_runs_before_the_first_commit_is_skipped(world: World) -> None:
    """It kills MirrorMaker, and starts it again."""

    def tick(least: int) -> int:
        def more() -> bool:
            write(world.source, world.topic("latest"), 1, seed=1)
            return world.arrived("latest") >= least

        wait_until(more, f"{least} records arrive", WAIT_S, 0.5)
        time.sleep(3)
        return ends(world.source, world.topic("latest"))[0][2] - world.arrived("latest")

    assert tick(1) >= 5
    world.running[-1].kill()
    before = world.arrived("latest")
    left_out = ends(world.source, world.topic("latest"))[0][2] - before
    write(world.source, world.topic("latest"), 30, seed=1)
    world.start()
    assert tick(before + 1) >= left_out + 30


def test_a_damaged_batch_stops_everything_that_its_task_copies_and_ends_nothing(world: World) -> None:
    """The last one: MirrorMaker tries again without a pause, and each time with a line in its log."""
    topics = [world.topic("damaged", more) for more in ("broken", "whole")]
    producer = Producer({"bootstrap.servers": world.source.bootstrap})
    for more, topic in zip(("broken", "whole"), topics, strict=True):
        producer.produce(topic, b"the last")
        assert producer.flush(240) == 0
        world.arrive("damaged", 4, more)
        name = world.there("damaged", more)
        wait_until(lambda n=name: read(world.target, n)[-1][3] == b"the last", "all is there", WAIT_S, 0.5)
    before = [world.arrived("damaged", more) for more in ("broken", "whole")]
    # As a bad sector does it, while the broker serves what is there.
    log = segment(world.source, topics[0])
    world.running[-1].send(signal.SIGSTOP)
    time.sleep(2)  # no request of its consumer waits at the broker any more
    producer.produce(topics[0], b"what is damaged")
    assert producer.flush(240) == 0
    at = log.read_bytes().index(b"what is damaged")
    with log.open("r+b") as file:
        file.seek(at)
        file.write(b"WHAT")
    world.running[-1].send(signal.SIGCONT)
    wait_until(lambda: world.log.read_text().count("Failure during poll") > 100, "it tries again", WAIT_S, 1)
    write(world.source, topics[1], 5, seed=1)
    time.sleep(10)
    after, alive = [world.arrived("damaged", more) for more in ("broken", "whole")], world.running[-1].alive()
    world.running[-1].kill()
    assert (after, alive) == (before, True)
