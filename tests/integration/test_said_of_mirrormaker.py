"""What the pages say that MirrorMaker 2 does, asked of MirrorMaker 2: a real one runs, and each claim is looked up.

The pages are old-tools.md, from-mirrormaker.md, mirrormaker-keys.md and adopt.md. A claim that a later release does not
fulfil any more fails here.
"""

from __future__ import annotations

import json
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.codec import LZ4, NONE
from benchmarks import mirrormaker
from sandbox import Cluster
from sandbox.process import Child
from tests.faults import ProxiedCluster
from tests.integration.copying import abort_transaction, config, create, ends, read, wait_until, write
from tests.integration.mirrormaker_once import running, settings_of, stop, write_file
from tests.integration.raw_batches import stored

pytestmark = [pytest.mark.parity, pytest.mark.in_order("the last of those of one MirrorMaker ends its task")]

A, B = "A", "B"
WAIT_S = 240.0


class World(NamedTuple):
    """Two clusters, a MirrorMaker 2 between them, and its log."""

    source: Cluster
    target: Cluster
    name: str
    child: Child
    here: ClusterAdmin
    there: ClusterAdmin
    log: Path

    def there_of(self, topic: str) -> str:
        return f"{A}.{self.name}-{topic}"

    def arrives(self, topic: str, records: int, partition: int = 0) -> None:
        """Wait until so many records are on the target."""
        name = self.there_of(topic)
        wait_until(
            lambda: name in self.there.topics([name]) and self.end(topic, partition) >= records,
            f"{records} records of {topic} arrive: {self.log.read_text()[-2000:]}", WAIT_S, 0.5,
        )  # fmt: skip

    def end(self, topic: str, partition: int = 0) -> int:
        tp = TopicPartition(self.there_of(topic), partition)
        return self.there.offsets([tp])[tp]


@pytest.fixture(scope="module")
def world(source_cluster: Cluster, target_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """MirrorMaker's own defaults, but for replication factors and for how often it looks; one key is misspelt."""
    name, directory = f"said-{random.randrange(10**6)}", tmp_path_factory.mktemp("mm2")
    for topic, partitions in (("plain", 3), ("aborted", 1), ("trimmed", 1), ("filled", 1), ("narrow", 3), ("gone", 1)):
        create(source_cluster, f"{name}-{topic}", partitions)
        write(source_cluster, f"{name}-{topic}", 100, seed=partitions)
    create(source_cluster, f"{name}-packed")
    write(source_cluster, f"{name}-packed", 30, seed=6, codec="lz4")
    create(source_cluster, f"{name}-brokers-time", message_timestamp_type="LogAppendTime")
    write(source_cluster, f"{name}-brokers-time", 20, seed=5)
    abort_transaction(source_cluster, f"{name}-aborted")
    create(target_cluster, f"{A}.{name}-filled")
    write(target_cluster, f"{A}.{name}-filled", 7, seed=9)
    create(target_cluster, f"{A}.{name}-narrow")
    with ClusterAdmin(config(source_cluster)) as here, ClusterAdmin(config(target_cluster)) as there:
        here.delete_records({TopicPartition(f"{name}-trimmed", 0): 60}, unfenced)
        here.commit_group_offsets(f"{name}-readers", {TopicPartition(f"{name}-plain", 0): GroupPosition(50)}, unfenced)
        settings = settings_of(A, f"{name}-.*", source_cluster, target_cluster, B, group__id=f"{name}-mm2")
        for key in (
            f"{A}->{B}.sync.topic.configs.enabled", "sync.topic.acls.enabled", f"{B}->{A}.emit.heartbeats.enabled",
        ):  # fmt: skip
            del settings[key]
        # What has heartbeats written on the source is its worker for the way back, enabled or not.
        settings |= {f"{A}.{kind}.storage.replication.factor": "1" for kind in ("offset", "status", "config")}
        settings |= {"sync.topic.configs.interval.seconds": "1", "sync.topic.acls.interval.seconds": "1"}
        settings |= {"refresh.topix.interval.seconds": "5", "emit.checkpoints.interval.seconds": "1"}
        with running(write_file(settings, directory)) as child:
            yield World(source_cluster, target_cluster, name, child, here, there, directory / "mirrormaker.log")


def test_every_record_gets_a_new_offset_and_keeps_what_readers_see(world: World) -> None:
    world.arrives("plain", 100)
    here, there = (
        read(side, topic)
        for side, topic in ((world.source, f"{world.name}-plain"), (world.target, world.there_of("plain")))
    )
    assert [row[1:] for row in here] == [row[1:] for row in there]
    world.arrives("trimmed", 40)
    assert [row[0] for row in read(world.target, world.there_of("trimmed"))] == [*range(40)]


def test_batches_are_compressed_anew_as_its_producer_says(world: World) -> None:
    world.arrives("packed", 30)
    sides = ((world.source, f"{world.name}-packed"), (world.target, world.there_of("packed")))
    codecs = [{one.header.codec for one in stored(side, topic) if one.header} for side, topic in sides]
    assert codecs == [{LZ4}, {NONE}]


def test_timestamps_are_those_that_the_sources_brokers_have_set(world: World) -> None:
    world.arrives("brokers-time", 20)
    times = [
        [row[1][1] for row in read(side, topic)]
        for side, topic in ((world.source, f"{world.name}-brokers-time"), (world.target, world.there_of("brokers-time")))
    ]
    assert times[0] == times[1]


def test_aborted_records_are_copied_as_if_they_were_committed(world: World) -> None:
    world.arrives("aborted", 103)
    assert len(read(world.source, f"{world.name}-aborted")) == 100
    assert [row[3] for row in read(world.target, world.there_of("aborted"))][-3:] == [b"never seen"] * 3


def test_a_topic_that_is_there_is_filled_whatever_it_holds_and_grown_whoever_made_it(world: World) -> None:
    world.arrives("filled", 107)
    world.arrives("narrow", 100)
    wait_until(
        lambda: world.there.topics([world.there_of("narrow")])[world.there_of("narrow")].partitions == 3, "it grows"
    )


def test_new_topics_and_partitions_are_found_at_its_interval(world: World) -> None:
    create(world.source, f"{world.name}-late")
    write(world.source, f"{world.name}-late", 10, seed=3)
    world.arrives("late", 10)
    world.here.grow_partitions(f"{world.name}-late", 2, unfenced)
    wait_until(
        lambda: world.there.topics([world.there_of("late")])[world.there_of("late")].partitions == 2, "they follow"
    )


def test_what_the_owner_of_the_target_sets_is_set_back_and_retention_is_the_sources(world: World) -> None:
    world.arrives("plain", 100)
    name = world.there_of("plain")
    world.here.alter_topic_configs(f"{world.name}-plain", unfenced, {"retention.ms": "360000000000"})

    def retention() -> str | None:
        return world.there.topic_configs([name])[name]["retention.ms"].value

    wait_until(lambda: retention() == "360000000000", "the source's retention applies on the target", WAIT_S, 0.5)
    world.there.alter_topic_configs(name, unfenced, {"retention.ms": "370000000000"})
    wait_until(lambda: retention() == "360000000000", "it is set back", WAIT_S, 0.5)


def test_deleted_records_and_topics_stay_on_the_target(world: World) -> None:
    world.arrives("narrow", 100)
    world.arrives("gone", 100)
    world.here.delete_records({TopicPartition(f"{world.name}-narrow", 0): 50}, unfenced)
    world.here.delete_topics([f"{world.name}-gone"], unfenced)
    write(world.source, f"{world.name}-plain", 10, seed=4)
    world.arrives("plain", 110)
    time.sleep(5)
    assert ends(world.target, world.there_of("narrow"))[0][0] == 0
    assert world.end("gone") == 100


def test_it_writes_to_the_source_and_keeps_topics_of_its_own_on_the_target(world: World) -> None:
    world.arrives("plain", 100)
    wait_until(lambda: {f"mm2-offset-syncs.{B}.internal", "heartbeats"} <= {*world.here.topic_names()}, "on the source")
    wanted = {f"mm2-{kind}.{A}.internal" for kind in ("configs", "offsets", "status")} | {f"{A}.checkpoints.internal"}
    wait_until(lambda: wanted <= {*world.there.topic_names()}, f"{wanted} on the target", WAIT_S)


def test_groups_do_not_move_unless_they_are_asked_to(world: World) -> None:
    world.arrives("plain", 100)
    time.sleep(5)  # five passes over checkpoints
    assert world.there.group_offsets(f"{world.name}-readers") == {}


def test_without_an_authorizer_acls_are_left_out_with_a_line_in_its_log(world: World) -> None:
    world.arrives("plain", 100)
    wait_until(lambda: "No ACL authorizer is configured" in world.log.read_text(), "it says so", WAIT_S, 0.5)


def test_a_key_that_nobody_knows_is_dropped_without_an_error(world: World) -> None:
    world.arrives("plain", 100)
    assert world.child.alive()
    assert not [line for line in world.log.read_text().splitlines() if "topix" in line and "ERROR" in line]


def test_a_record_above_max_request_size_ends_its_task(world: World) -> None:
    """The last one: what its task copies stands still from here on."""
    world.arrives("plain", 100)
    topic = f"{world.name}-large"
    world.here.create_topics([NewTopicSpec(topic, 1, 1, {"max.message.bytes": "3000000"})], unfenced)
    wait_until(lambda: topic in world.here.topics([topic]), "the topic is there")
    producer = Producer({"bootstrap.servers": world.source.bootstrap, "message.max.bytes": 3_000_000})
    producer.produce(topic, b"x" * 1_500_000, partition=0)
    assert producer.flush(60) == 0
    wait_until(lambda: "RecordTooLargeException" in world.log.read_text(), "the task ends", WAIT_S, 0.5)


def test_too_few_brokers_for_two_replicas_are_an_error_in_its_log(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Two are the default; a mirror takes as many as there are."""
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 5, seed=1)
    settings = settings_of("C", topic_name, source_cluster, target_cluster, "D")
    del settings["replication.factor"]
    with running(write_file(settings, tmp_path)) as child:
        log = tmp_path / "mirrormaker.log"
        wait_until(lambda: "InvalidReplicationFactorException" in log.read_text(), "it says so", WAIT_S, 0.5)
        with ClusterAdmin(config(target_cluster)) as there:
            assert f"C.{topic_name}" not in there.topic_names()
        assert child.alive()


def test_two_flows_with_unchanged_names_copy_in_a_circle(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 5, seed=1)
    settings = settings_of("E", topic_name, source_cluster, target_cluster, "F") | {
        "F->E.enabled": "true", "F->E.topics": topic_name,
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        **{f"E.{kind}.storage.replication.factor": "1" for kind in ("offset", "status", "config")},
    }  # fmt: skip
    with running(write_file(settings, tmp_path)) as child:
        wait_until(lambda: ends(source_cluster, topic_name)[0][2] >= 50, "its five records come back", WAIT_S, 0.5)
        stop(child)


def test_killed_it_sends_again_what_it_has_not_committed(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """At least once: what was written since the last commit of its offsets, a minute at most."""
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 300, seed=1)
    file = write_file(settings_of("G", topic_name, source_cluster, target_cluster, "H"), tmp_path)
    name = f"G.{topic_name}"
    with ClusterAdmin(config(target_cluster)) as there:

        def copied(least: int) -> bool:
            return name in there.topics([name]) and ends(target_cluster, name)[0][2] >= least

        with running(file) as child:
            wait_until(lambda: copied(300), "it has copied all", WAIT_S, 0.1)
            child.send(signal.SIGKILL)
            child.wait(60)
        with running(file) as child:
            wait_until(lambda: copied(301), "it copies again", WAIT_S, 0.5)
            stop(child)
    assert len({json.dumps([str(part) for part in row[1:]]) for row in read(target_cluster, name)}) <= 300


def test_offsets_shift_by_markers_and_a_lost_position_or_a_new_topic_is_no_error(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """With read_committed. In a topic that was created again its position is the old one."""
    cut, again = f"{topic_name}-cut", f"{topic_name}-again"
    for topic in (cut, again):
        create(source_cluster, topic)
        write(source_cluster, topic, 100, seed=1)
    abort_transaction(source_cluster, cut)
    write(source_cluster, cut, 50, seed=2)
    settings = settings_of("I", f"{topic_name}-.*", source_cluster, target_cluster, "J")
    file = write_file(settings | {"I.consumer.isolation.level": "read_committed"}, tmp_path)

    def copied(topic: str, least: int) -> None:
        wait_until(
            lambda: f"I.{topic}" in there.topics([f"I.{topic}"]) and ends(target_cluster, f"I.{topic}")[0][2] >= least,
            f"{least} records of {topic} arrive", WAIT_S, 0.5,
        )  # fmt: skip

    with ClusterAdmin(config(source_cluster)) as here, ClusterAdmin(config(target_cluster)) as there:
        with running(file) as child:
            copied(cut, 150)
            copied(again, 100)
            stop(child)
        assert [row[0] for row in read(target_cluster, f"I.{cut}")] == [*range(150)]
        assert ends(source_cluster, cut)[0][2] == 154, "three aborted records and their marker"
        write(source_cluster, cut, 50, seed=3)
        here.delete_records({TopicPartition(cut, 0): 194}, unfenced)
        here.delete_topics([again], unfenced)
        wait_until(lambda: again not in here.topic_names(), "it is gone")
        create(source_cluster, again)
        write(source_cluster, again, 150, seed=4)
        with running(file) as child:
            copied(cut, 160)
            copied(again, 150)
            time.sleep(5)
            assert child.alive()
            stop(child)
    assert ends(target_cluster, f"I.{cut}")[0][2] == 160, "forty records are missing"
    assert ends(target_cluster, f"I.{again}")[0][2] == 150, "the first hundred of the new topic are missing"


def test_a_source_that_is_away_at_the_start_is_waited_for(
    target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Longer than a call of its clients may take."""
    log, name = tmp_path / "mirrormaker.log", f"K.{topic_name}"
    with ProxiedCluster("away", ready_timeout_s=180) as proxied:
        create(proxied, topic_name)
        write(proxied, topic_name, 20, seed=1)
        there, proxied.proxy.upstream = proxied.proxy.upstream, ("127.0.0.1", 1)
        proxied.proxy.cut()
        with running(write_file(settings_of("K", topic_name, proxied, target_cluster, "L"), tmp_path)) as child:
            lost = re.compile("could not be established|disconnected|terminated")
            wait_until(lambda: lost.search(log.read_text()) is not None, "it finds nobody", WAIT_S, 0.5)
            time.sleep(70)
            assert child.alive()
            proxied.proxy.upstream = there
            with ClusterAdmin(config(target_cluster)) as admin:
                wait_until(
                    lambda: name in admin.topics([name]) and ends(target_cluster, name)[0][2] >= 20,
                    f"its records arrive: {log.read_text()[-2000:]}", WAIT_S, 1,
                )  # fmt: skip


def test_a_target_that_is_away_at_the_start_for_more_than_a_minute_ends_it(tmp_path: Path) -> None:
    nobody = {"bootstrap.servers": "127.0.0.1:1"}
    with running(write_file(mirrormaker.settings("M", "x", nobody, nobody, (1, 1), "N"), tmp_path)) as child:
        wait_until(lambda: not child.alive(), "it has ended", WAIT_S, 0.5)
    assert "Failed to connect to and describe Kafka cluster" in (tmp_path / "mirrormaker.log").read_text()
