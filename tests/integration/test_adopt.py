"""Take over a target that holds another tool's copies, some of them twice, and go on by a tail: the quick way through it.

What MirrorMaker 2 itself leaves behind is in ``test_adopt_mirrormaker.py``. Here its copies are made by hand.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.console.main import main
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan.owned import owned_topics
from airflow_mirror.sync.maps import MapSource
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionPair
from sandbox import Cluster
from tests.integration.copying import (
    Seen,
    config,
    copy,
    create,
    properties_of,
    ranges_of,
    read,
    write,
    write_transactions,
)


def send_copies(target: Cluster, topic: str, records: list[Seen]) -> None:
    """Write records as MirrorMaker 2 does: other batches and offsets, the same times."""
    producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 5, "enable.idempotence": False})
    for _, (_, timestamp), key, value, headers in records:
        producer.produce(topic, value, key, partition=0, timestamp=timestamp, headers=headers or [])
    assert producer.flush(240) == 0


def leave_offsets(target: Cluster, alias: str, topic: str, offset: int) -> None:
    """Write what Connect's worker does when it commits."""
    create(target, f"mm2-offsets.{alias}.internal", cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": target.bootstrap})
    key = json.dumps(["MirrorSourceConnector", {"cluster": alias, "partition": 0, "topic": topic}])
    producer.produce(f"mm2-offsets.{alias}.internal", json.dumps({"offset": offset}), key)
    assert producer.flush(240) == 0


def alias_of(topic: str) -> str:
    """Each test has a source of its own name, and with it MirrorMaker's topics."""
    return f"A{topic[-8:]}"


def mirror_of(topic: str) -> str:
    return f"adopts-{topic[-8:]}"


@pytest.fixture
def adopted(source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path) -> list[str]:
    """A topic of which the target has most records, those before a crash twice; the arguments of the command."""
    alias = alias_of(topic_name)
    there = f"{alias}.{topic_name}"
    create(source_cluster, topic_name)
    create(target_cluster, there)
    write(source_cluster, topic_name, 300, seed=1)
    write_transactions(source_cluster, topic_name, seed=2, transactions=2)
    every = read(source_cluster, topic_name)
    send_copies(target_cluster, there, every[:200])
    send_copies(target_cluster, there, every[150:260])
    leave_offsets(target_cluster, alias, topic_name, every[149][0])
    with ClusterAdmin(config(target_cluster)) as admin:
        Ledger(admin).create()
    return [
        "adopt", *properties_of(tmp_path, source_cluster, target_cluster), "--name", mirror_of(topic_name),
        "--include", topic_name, "--groups", f"{topic_name}.*", "--policy", "prefix", "--source-alias", alias,
        "--watch", "0.2",
    ]  # fmt: skip


def told(arguments: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_half_filled_target_is_taken_over_and_goes_on_where_it_ended(
    adopted: list[str], source_cluster: Cluster, target_cluster: Cluster, topic_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    name, there = mirror_of(topic_name), f"{alias_of(topic_name)}.{topic_name}"
    every = read(source_cluster, topic_name)
    at, on_target = TopicPartition(topic_name, 0), TopicPartition(there, 0)
    with ClusterAdmin(config(source_cluster)) as source, ClusterAdmin(config(target_cluster)) as target:
        source.commit_group_offsets(f"{topic_name}-behind", {at: GroupPosition(every[170][0])}, unfenced)
        target.commit_group_offsets(f"{topic_name}-behind", {on_target: GroupPosition(120)}, unfenced)
        source.commit_group_offsets(f"{topic_name}-beyond", {at: GroupPosition(every[40][0])}, unfenced)
        target.commit_group_offsets(f"{topic_name}-beyond", {on_target: GroupPosition(90)}, unfenced)

        dry = told(adopted, capsys)
        assert not dry["done"] and dry["sum"]["repeated"] == 50 and dry["sum"]["copies"] == 310
        assert dry["partitions"][0]["replicated"] == every[149][0]
        assert f"topic/{there}" not in Ledger(target).values()
        assert target.group_offsets(f"{topic_name}-behind")[on_target].offset == 120

        done = told([*adopted, "--yes"], capsys)
        assert done["done"] and not done["refusals"]
        assert owned_topics(Ledger(target))[there].mirror == name
        # Its last copy is the 21st of the second run; the other one stays, because it may have read on the target.
        assert target.group_offsets(f"{topic_name}-behind")[on_target].offset == 220
        assert target.group_offsets(f"{topic_name}-beyond")[on_target].offset == 90
        moves = {move["group"]: move for move in done["groups"]["moves"]}
        assert moves[f"{topic_name}-beyond"]["action"] == "kept" and moves[f"{topic_name}-beyond"]["target_offset"] == 40

    ranges = [replace_target(one, there) for one in ranges_of(source_cluster, topic_name)]
    copy(source_cluster, target_cluster, ranges, mirror=name)
    contents = [one[1:] for one in every]
    expected = contents[:200] + contents[150:]
    assert [one[1:] for one in read(target_cluster, there)] == expected, "0 lost, and nothing twice beyond what was"
    pair = PartitionPair(source_topic=topic_name, target_topic=there, partition=0, mapped=True)
    (verdict,) = compare_partitions(
        [pair], config(source_cluster), config(target_cluster), maps=MapSource(name, True)
    )  # fmt: skip
    assert verdict.equal, verdict.first_difference
    assert verdict.records == len(every)

    again = told([*adopted, "--yes", "--allow-rewind"], capsys)  # its groups are corrected again, nothing else
    assert again["adopted_before"] == [there] and not again["partitions"]
    with ClusterAdmin(config(target_cluster)) as target:
        assert target.group_offsets(f"{topic_name}-beyond")[on_target].offset == 40


def replace_target(one: Any, topic: str) -> Any:
    return replace(one, target_topic=topic, mode=MAPPED)


@pytest.mark.parity
def test_records_that_are_not_the_sources_are_named_and_refused(
    adopted: list[str], target_cluster: Cluster, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there = f"{alias_of(topic_name)}.{topic_name}"
    write(target_cluster, there, 3, seed=9)
    found = told([*adopted, "--yes"], capsys, status=1)
    assert not found["done"] and found["sum"]["unknown"] == 3
    assert "at target offsets [310, 313); 0 may be (--max-unknown)" in found["refusals"][0]
    with ClusterAdmin(config(target_cluster)) as target:
        assert f"topic/{there}" not in Ledger(target).values()
    assert told([*adopted, "--yes", "--max-unknown", "3"], capsys)["done"]


@pytest.mark.parity
def test_a_target_that_still_grows_is_refused(
    adopted: list[str], target_cluster: Cluster, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there, over = f"{alias_of(topic_name)}.{topic_name}", threading.Event()

    def grow() -> None:
        while not over.wait(0.05):
            write(target_cluster, there, 1, seed=3)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        assert main([*adopted, "--watch", "5", "--yes"]) == 2
    finally:
        over.set()
        thread.join()
    assert f"target topics grew within 5 s: {there}-0 by" in capsys.readouterr().err


@pytest.mark.parity
def test_a_topic_of_identical_records_is_refused(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    alias, one = alias_of(topic_name), (0, (1, 1_600_000_000_000), b"k", b"v", None)
    create(source_cluster, topic_name)
    create(target_cluster, f"{alias}.{topic_name}")
    send_copies(source_cluster, topic_name, [one] * 100)
    send_copies(target_cluster, f"{alias}.{topic_name}", [one] * 60)
    leave_offsets(target_cluster, alias, topic_name, 59)
    with ClusterAdmin(config(target_cluster)) as target:
        Ledger(target).create()
    arguments = [
        "adopt", *properties_of(tmp_path, source_cluster, target_cluster), "--name", mirror_of(topic_name),
        "--include", topic_name, "--policy", "prefix", "--source-alias", alias, "--watch", "0.2", "--yes",
    ]  # fmt: skip
    found = told(arguments, capsys, status=1)
    assert not found["done"] and found["sum"]["ambiguous"] == 60
    assert "60 records ambiguous, at target offsets [0, 60); they are 100.000% of its copies" in found["refusals"][0]
