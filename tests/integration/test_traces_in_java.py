"""Applications in Java go on by RemoteClusterUtils and read nothing again; a tail that is killed leads none astray."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.store import write as write_plan
from airflow_mirror.sync.following.deciding import goal_of
from airflow_mirror.sync.following.reading import Reading
from sandbox import Cluster
from tests.integration.copying import config, read, wait_until, write, write_transactions
from tests.integration.cutover_once import LEASE_TIMES
from tests.integration.java_clients import JavaClient, compiled, java_client, output
from tests.integration.traces_world import PARTITIONS, World, world

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(tmp_path_factory.mktemp("classes"))


def by_partition(lines: list[list[str]]) -> dict[int, list[str]]:
    """Return the values that a consumer showed, in their order."""
    found = defaultdict(list)
    for partition, _offset, value in lines:
        found[int(partition)].append(value)
    return dict(found)


@pytest.mark.parametrize("policy", ["prefix", "identity"])
def test_a_java_consumer_that_fails_over_reads_each_record_once(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, classpath: str, policy: str
) -> None:
    """At lag 0 and behind, in a topic with the same offsets and in one with a map, with markers and aborted records."""
    with world(source_cluster, target_cluster, topic_name, policy=policy) as w:
        for topic in (w.kept, w.mapped):
            for p in range(PARTITIONS):
                write(source_cluster, topic, 400, seed=p, partition=p)
            write_transactions(source_cluster, topic, seed=5, transactions=6, partitions=PARTITIONS)
            write(source_cluster, topic, 50, seed=9)
        w.copy()
        all_of = {
            topic: {p: [(row[3] or b"").hex() for row in read(source_cluster, topic, p)] for p in range(PARTITIONS)}
            for topic in (w.kept, w.mapped)
        }
        before: dict[tuple[str, int], dict[int, list[str]]] = {}
        with java_client(classpath, target_cluster.bootstrap, w.policy()) as client:
            for topic, values in all_of.items():
                count = sum(map(len, values.values()))
                for lag in (0, 300):
                    group = f"{topic}-{lag}"
                    lines = client.ask("consume", source_cluster.bootstrap, group, topic, count - lag)
                    before[topic, lag] = by_partition(lines)
            w.follow()
            for (topic, lag), seen in before.items():
                there = by_partition(client.ask("fail over", w.alias, f"{topic}-{lag}"))
                for p, whole in all_of[topic].items():
                    assert seen.get(p, []) + there.get(p, []) == whole, (topic, lag, p)
                assert lag > 0 or there == {}
            require_same_places(w, client, [f"{topic}-{lag}" for topic, lag in before])


def test_the_example_of_the_documentation_prints_what_is_shown_there(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, classpath: str
) -> None:
    """The file itself is compiled and run. ``payments`` there has a map: a transaction of it was aborted."""
    page = (Path(__file__).parents[2] / "docs" / "java-clients.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```\n\$ java FailOver dc2:9092 dc1 orders-app\n(.*?)```", page, re.DOTALL)
    with world(source_cluster, target_cluster, topic_name, policy="prefix") as w:
        for topic, noun in ((w.kept, "order"), (w.mapped, "payment")):
            say(source_cluster, topic, noun, [0, 1, 2, 3], commits=True)
            say(source_cluster, topic, noun, [90, 91], commits=False)
            say(source_cluster, topic, noun, [4, 5, 6, 7], commits=True)
        w.copy()
        group = w.put("app", kept=[2, 8], mapped=[3, 6])  # one is at the end, one at the aborted record
        w.follow()
        found = output(classpath, "FailOver", target_cluster.bootstrap, w.alias, group)
        orders, payments = w.there({"policy": "prefix"})
        assert sorted(found) == sorted(shown.replace("dc1.orders", orders).replace("dc1.payments", payments).splitlines())


def say(cluster: Cluster, topic: str, noun: str, numbers: list[int], *, commits: bool) -> None:
    """Write a transaction of numbered records, by turns to each partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(120)
    producer.begin_transaction()
    for number in numbers:
        producer.produce(topic, f"{noun} {number}", partition=number % PARTITIONS)
    producer.flush(120)  # before it is aborted: the log has the records
    producer.commit_transaction(120) if commits else producer.abort_transaction(120)


def require_same_places(w: World, client: JavaClient, groups: list[str]) -> None:
    """Java translates as the mirror sets groups."""
    names = {t.source_topic: t.target_topic for t in w.plan.topics}
    with w.follower() as follower:
        for group in groups:
            expected = {}
            here = {group: w.source.group_offsets(group)}
            topics = {t.source_topic: t for t in w.plan.topics}
            standings = Reading(follower._sides, w.plan).standings(topics, here)({group: {}})[group]
            for tp, standing in standings.items():
                goal, why = goal_of(standing)
                assert goal is not None, why
                expected[tp.topic, tp.partition] = (goal.offset, goal.metadata)
            assert expected and {topic for topic, _ in expected} <= {*names.values()}
            assert client.offsets(w.alias, group) == expected


@contextmanager
def tail(w: World, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A tail in a process of its own, which is killed in the end."""
    files = [str(directory / name) for name in ("mirror.json", "plan.json")]
    env = os.environ | {
        "TEST_SOURCE": config(w.clusters[0]).dump(), "TEST_TARGET": config(w.clusters[1]).dump(),
        "PYTHONPATH": str(Path(__file__).parents[2]), "TEST_LEASE_TIMES": json.dumps(LEASE_TIMES),
    }  # fmt: skip
    with (directory / "tail.log").open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("tail_main.py")), *files],
            env=env, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def test_checkpoints_of_a_tail_that_is_killed_never_go_back_nor_beyond_the_copy(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Groups go on all the time, one of them is far beyond every log; the tail is killed among its checkpoints."""
    kills, rng = 5, random.Random(7)
    fields = {"checkpoint_interval_s": 0.1, "heartbeat_interval_s": 0.5, "sync_topics": False, "sync_log_starts": False}
    with world(source_cluster, target_cluster, topic_name, **fields) as w:
        state = state_of(w.target, PLAN.below(w.mirror.name))
        ledger_store.keep(w.plan, state, w.ledger())
        write_plan(w.plan, tmp_path / "plan.json")
        (tmp_path / "mirror.json").write_text(json.dumps(w.mirror.to_dict()))
        stopping = threading.Event()

        def live() -> None:
            at = 0
            while not stopping.is_set():
                for topic in (w.kept, w.mapped):
                    write(source_cluster, topic, 20, seed=at)
                    write_transactions(source_cluster, topic, seed=at, transactions=1)
                at += 20
                w.put("reads", kept=[at], mapped=[at])
                w.put("beyond", kept=[10**6 + at], mapped=[10**6 + at])

        writer = threading.Thread(target=live)
        writer.start()
        try:
            for number in range(kills):
                stood = len(w.checkpoints()) if number else 0
                with tail(w, tmp_path) as process:
                    wait_until(
                        lambda stood=stood, process=process: process.poll() is not None or w.has_more(stood + 5),
                        "checkpoints are written",
                    )
                    assert process.poll() is None, (tmp_path / "tail.log").read_text()[-3000:]
                    time.sleep(rng.random() * 0.3)
                    os.killpg(process.pid, signal.SIGKILL)
        finally:
            stopping.set()
            writer.join()
        rows = w.checkpoints()
        newest: dict[tuple[str, TopicPartition], int] = {}
        for one in rows:
            key = (one.group, one.tp)
            assert newest.get(key, -1) <= one.downstream, f"{one} after {newest[key]}"
            newest[key] = one.downstream
        ends = w.target.offsets([tp for _, tp in newest], "latest_committed")
        assert all(at <= ends[tp] for (_, tp), at in newest.items()), (newest, ends)
        assert len(newest) == 4 and len(rows) > 5 * kills
