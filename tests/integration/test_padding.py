"""Padding under rivalry: markers have no compare-and-set; the order of the steps keeps a hole from overflowing."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer.padding import Padder
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import Fenced
from airflow_mirror.wire.transactions import TransactionClient, write_txn_markers
from sandbox import Cluster
from tests.integration.copying import config, create, ends

START, END = 10, 60


@pytest.fixture
def tp(target_cluster: Cluster, topic_name: str) -> TopicPartition:
    """A partition with ten records, behind which offsets up to 60 are to be padded."""
    create(target_cluster, topic_name)
    producer = Producer({"bootstrap.servers": target_cluster.bootstrap})
    for i in range(START):
        producer.produce(topic_name, b"v%d" % i, partition=0)
    producer.flush()
    return TopicPartition(topic_name, 0)


@pytest.mark.parametrize("hole", [1, 2, 3, 50])
def test_a_hole_of_any_size_is_filled_exactly(target_cluster: Cluster, tp: TopicPartition, hole: int) -> None:
    with WireCluster(config(target_cluster)) as wire:
        assert Padder(target=wire, mirror=tp.topic, check=lambda: None).fill(tp, START, START + hole) == hole
    assert ends(target_cluster, tp.topic)[0] == (0, START + hole, START + hole)


@pytest.mark.parametrize("hole", [1, 2, 3, 50])
def test_coordinator_writing_markers_twice_does_not_overrun_a_hole(
    target_cluster: Cluster, tp: TopicPartition, hole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that dies before it noted that it wrote a marker is followed by one that writes it again."""
    once = TransactionClient.write_marker

    def twice(client: TransactionClient, to: TopicPartition, producer_id: int, epoch: int) -> None:
        once(client, to, producer_id, epoch)
        write_txn_markers(client._cluster, to, producer_id, epoch, 1)

    monkeypatch.setattr(TransactionClient, "write_marker", twice)
    with WireCluster(config(target_cluster)) as wire:
        Padder(target=wire, mirror=tp.topic, check=lambda: None).fill(tp, START, START + hole)
    assert ends(target_cluster, tp.topic)[0] == (0, START + hole, START + hole)


def test_frozen_padders_late_markers_do_not_overrun_the_hole(target_cluster: Cluster, tp: TopicPartition) -> None:
    """They land between the new one's look and its step."""
    with WireCluster(config(target_cluster)) as old_wire, WireCluster(config(target_cluster)) as new_wire:
        old = Padder(target=old_wire, mirror=tp.topic, check=lambda: None)
        old._take_over(tp)
        hold = old._holds[tp]
        client, producer_id, epoch = hold.client, hold.producer_id, hold.epoch
        client.write_marker(tp, producer_id, epoch)
        interior = END - (START + 1) - 1  # what the old one is about to send when it freezes

        checks: list[Any] = []

        def thaw() -> None:
            checks.append(None)
            if len(checks) == 2:  # after the new one has read the log end, before its first step
                write_txn_markers(old_wire, tp, producer_id, epoch, interior)

        Padder(target=new_wire, mirror=tp.topic, check=thaw).fill(tp, START, END)
        assert len(checks) >= 2
        assert ends(target_cluster, tp.topic)[0] == (0, END, END)
        with pytest.raises(Fenced):
            write_txn_markers(old_wire, tp, producer_id, epoch, 1)
        with pytest.raises(Fenced):
            client.write_marker(tp, producer_id, epoch)
    assert ends(target_cluster, tp.topic)[0] == (0, END, END)
