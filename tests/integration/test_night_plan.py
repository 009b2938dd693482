"""The plan for the night of real clusters, with clients that are not ours."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import scratch_topic
from airflow_mirror.console.main import main
from airflow_mirror.errors import TryAgain
from airflow_mirror.extras.clients.commits import AT, Commits
from airflow_mirror.extras.clients.inventory import members_of
from airflow_mirror.extras.readiness import trial
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.integration.copying import config, copy, create, properties_of, ranges_of, wait_until, write

HOUR_MS = 3_600_000


@contextmanager
def consuming(cluster: Cluster, group: str, topic: str, **settings: str) -> Iterator[None]:
    """A member of a group, until the block ends; it has committed when it begins."""
    common = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(common | {key.replace("_", "."): value for key, value in settings.items()})
    consumer.subscribe([topic])
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            consumer.poll(0.1)

    thread = threading.Thread(target=poll)
    try:
        thread.start()
        with ClusterAdmin(config(cluster)) as admin:
            wait_until(lambda: bool(admin.group_offsets(group)), f"{group} has committed")
        yield
    finally:
        stop.set()
        thread.join()
        consumer.close()


@contextmanager
def writing(cluster: Cluster, topic: str) -> Iterator[None]:
    """Records of a producer that does not number its batches, until the block ends."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": False})
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.05):
            producer.produce(topic, b"plain", timestamp=round(time.time() * 1000))
            producer.flush()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def in_a_transaction(cluster: Cluster, name: str, *topics: str, at_ms: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    for topic in topics:
        for number in range(50):
            producer.produce(topic, b"%d" % number, timestamp=at_ms + number)
    producer.commit_transaction(60)  # it returns before the markers are written, and until then nothing of it is copied
    tps = [TopicPartition(topic, 0) for topic in topics]
    with WireCluster(config(cluster)) as wire:
        wait_until(lambda: wire.last_stable(tps) == wire.high_watermarks(tps), "the markers are there")


def test_it_tells_waves_retention_producers_and_kinds_of_groups(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders, pay, users = (f"{topic_name}-{name}" for name in ("orders", "pay", "users"))
    group, other = f"{topic_name}-g", f"{topic_name}-h"
    changelog = f"{group}-counts-changelog"
    now_ms = round(time.time() * 1000)
    create(source_cluster, orders, retention_ms=str(3 * HOUR_MS), segment_bytes="1048576")
    for topic in (pay, users, changelog):
        create(source_cluster, topic)
    in_a_transaction(source_cluster, f"{topic_name}-tx", orders, users, at_ms=now_ms - 2 * HOUR_MS)
    in_a_transaction(source_cluster, f"{topic_name}-one", pay, at_ms=now_ms)
    with ClusterAdmin(config(source_cluster)) as admin:
        admin.commit_group_offsets(
            group, {TopicPartition(topic, 0): GroupPosition(1) for topic in (orders, pay)}, unfenced
        )
    page = tmp_path / "night.html"
    words = [
        "readiness", *properties_of(tmp_path, source_cluster, target_cluster), "--name", topic_name,
        "--include", f"{topic_name}-(orders|pay|users)", "--groups", f"{topic_name}-.*",
    ]  # fmt: skip
    with consuming(source_cluster, other, users, group_protocol="consumer"), writing(source_cluster, users):
        assert main([*words, "--json", "--html", str(page)]) == 0
        failed = list[str]()
        found = members_of(config(source_cluster), [other, group], failed)[other]
        assert found.topics == {users} and not failed
        assert found.clients[0].startswith("rdkafka at 127.0.0.1"), "of a group by the consumer protocol (KIP-848)"
        with ClusterAdmin(config(source_cluster)) as admin:
            last, why = Commits().of(admin, admin.groups_offsets([group]), 0)
        assert not why and last[group].word == AT and now_ms - 1000 <= last[group].ms <= time.time() * 1000 + 1000
    night: dict[str, Any] = json.loads(capsys.readouterr().out)

    assert [(one["topics"], one["groups"]) for one in night["waves"]] == [([users], [other]), ([orders, pay], [group])]
    assert night["waves"][1]["ties"] == {group: [orders, pay]}
    races = {one["topic"]: one for one in night["races"]}
    assert races[orders]["left_s"] == pytest.approx(3600, rel=0.3) and races[orders]["verdict"] == "near"
    assert races[users]["produced_per_s"] > 1 and races[users]["left_s"] is None  # of HELD_OPEN
    assert races[orders]["behind"] == 51  # the marker counts
    writers = {one["transactional_id"]: one for one in night["producers"]}
    assert writers[f"{topic_name}-tx"]["partitions"] == [f"{orders}-0", f"{users}-0"]
    assert writers[f"{topic_name}-tx"]["waves"] == [1, 2] and writers[f"{topic_name}-one"]["waves"] == [2]
    kinds = {one["name"]: (one["kind"], one["alive"]) for one in night["groups"]}
    assert kinds[group] == ("Kafka Streams", False) and kinds[other] == ("consumer protocol", True)
    (kept,) = (one for one in night["elsewhere"] if one["owner"] == group)
    assert kept["topics"] == kept["missing"] == [changelog]
    told = {(one["level"], one["check"], one["object"]) for one in night["findings"]}
    assert told == {
        ("warn", "retention_race", f"topic {orders!r}"), ("warn", "producers", "1 producer"),
        ("warn", "elsewhere", f"Kafka Streams {group}"),
    }  # fmt: skip
    assert page.read_text(encoding="utf-8").count("<h2>") == 9


def test_a_running_copy_is_measured_and_a_loss_blocks(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(source_cluster, topic_name)
    create(target_cluster, topic_name)
    in_a_transaction(source_cluster, f"{topic_name}-tx", topic_name, at_ms=round(time.time() * 1000))
    tp = TopicPartition(topic_name, 0)
    copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name), mirror=topic_name)
    words = [
        "readiness", *properties_of(tmp_path, source_cluster, target_cluster), "--name", topic_name,
        "--include", topic_name, "--json",
    ]  # fmt: skip

    def look() -> Any:
        main(words)  # it blocks by the plan: without a ledger the target's data are somebody's
        return json.loads(capsys.readouterr().out)

    assert look()["races"][0]["verdict"] == "wins"
    in_a_transaction(source_cluster, f"{topic_name}-tx", topic_name, at_ms=round(time.time() * 1000))
    with ClusterAdmin(config(source_cluster)) as admin:
        admin.delete_records({tp: 60}, unfenced)
    (race,) = look()["races"]
    assert (race["lost"], race["verdict"], race["behind"]) == (9, "lost", 42)


@pytest.mark.nights
def test_a_trial_copy_tells_how_long_it_takes_and_leaves_nothing(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is copied. Of two topics the larger one's partition is what decides."""
    large, small = f"{topic_name}-large", f"{topic_name}-small"
    for topic, partitions, count in ((large, 1, 40_000), (small, 2, 100)):
        create(source_cluster, topic, partitions)
        producer = Producer({"bootstrap.servers": source_cluster.bootstrap})
        for number in range(count):
            producer.produce(topic, b"%d" % number * 200, partition=number % partitions)
            producer.poll(0)
        assert producer.flush(120) == 0
    words = [
        "readiness", *properties_of(tmp_path, source_cluster, target_cluster), "--name", topic_name,
        "--include", f"{topic_name}-.*", "--groups", f"{topic_name}-.*",
    ]  # fmt: skip
    assert main([*words, "--json", "--trial", "2", "--tasks", "4"]) == 0
    night: dict[str, Any] = json.loads(capsys.readouterr().out)
    tried = night["trial"]
    assert (tried["alone"], set(tried["together"])) == (f"{large}-0", {f"{large}-0", f"{small}-1"})
    assert tried["copied_bytes"] > 10_000 and tried["waits_for"] in ("core", "source", "target")
    slow = next(one for one in night["estimates"] if one["topic"] == large)
    assert slow["seconds"] is not None and 0 < slow["seconds"] <= night["whole_s"] < 600
    assert [one for one in night["unseen"] if "trial" in one] == []
    with ClusterAdmin(config(target_cluster)) as there:
        assert [name for name in there.topic_names() if "probe" in name or topic_name in name] == []
    assert main(words) == 0 and "A trial copied" not in capsys.readouterr().out
    assert main([*words, "--trial", "1"]) == 0 and f"{large}-0 alone with" in capsys.readouterr().out


@pytest.mark.nights
def test_a_trial_that_is_not_possible_is_said_and_the_rest_is_told(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 10, seed=1)

    def refused(*_: object) -> None:
        raise TryAgain("no coordinator answers")

    monkeypatch.setattr(trial, "lease", SimpleNamespace(take=refused))
    words = ["--name", topic_name, "--include", topic_name, "--trial", "1", "--json"]
    assert main(["readiness", *properties_of(tmp_path, source_cluster, target_cluster), *words]) == 0
    night: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert night["trial"] is None and night["waves"]
    assert "how fast a trial copy is: no coordinator answers" in night["unseen"]
    with ClusterAdmin(config(target_cluster)) as there:
        assert scratch_topic(topic_name) not in there.topic_names()
