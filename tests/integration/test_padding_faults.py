"""Holes are filled exactly while coordinators die, leaders move, and markers arrive late."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import padding
from airflow_mirror.copy.writer.padding import Filling, Padder
from airflow_mirror.errors import TryAgain
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import Fenced
from airflow_mirror.wire.transactions import coordinator_epoch_of, write_txn_markers
from sandbox import Cluster
from tests.faults import ProxiedCluster
from tests.integration.copying import (
    HELD_OPEN,
    config,
    create,
    ends,
)

pytestmark = pytest.mark.faults


def taken(padder: Padder, tp: TopicPartition) -> Any:
    """Take a partition over and return what the padder holds of it."""
    padder._take_over(tp)
    return padder._holds[tp]


def ended_at(cluster: Cluster, tp: TopicPartition) -> int:
    with WireCluster(config(cluster), timeout_s=60) as wire:
        return wire.log_ends([tp])[tp]


@pytest.fixture
def replicated(three_nodes: Cluster, topic_name: str) -> TopicPartition:
    """An empty partition on three replicas, led by node 1."""
    admin = AdminClient({"bootstrap.servers": three_nodes.bootstrap})
    new = NewTopic(topic_name, 1, replica_assignment=[[1, 2, 3]], config=HELD_OPEN | {"min.insync.replicas": "2"})
    admin.create_topics([new])[topic_name].result()
    return TopicPartition(topic_name, 0)


def fill_patiently(padder: Padder, tp: TopicPartition, start: int, end: int) -> None:
    """Fill a hole as the task loop does: what passes is tried again, anything else is not."""
    deadline = time.monotonic() + 90
    while True:
        try:
            padder.fill(tp, start, end)
            return
        except TryAgain:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def coordinator_of(padder: Padder, tp: TopicPartition) -> int:
    (node_id,) = taken(padder, tp).client._coordinators.values()
    return node_id


def padder_with_a_coordinator_of_its_own(wire: WireCluster, tp: TopicPartition) -> Padder:
    """One whose coordinator does not lead the partition: only then it can die between a marker and its note."""
    for number in range(50):
        padder = Padder(target=wire, mirror=f"{tp.topic}-{number}", check=lambda: None)
        if coordinator_of(padder, tp) != wire.leader(tp).node_id:
            return padder
    raise AssertionError("all coordinators on one node")


def test_holes_are_filled_exactly_while_the_coordinator_dies(three_nodes: Cluster, replicated: TopicPartition) -> None:
    """A dying coordinator repeats its last marker, and the next one begins a new term: neither may show in the log."""
    tp, rng, end = replicated, random.Random(5), 0
    with WireCluster(config(three_nodes)) as wire:
        padder = padder_with_a_coordinator_of_its_own(wire, tp)
        dying = coordinator_of(padder, tp)
        killer = threading.Timer(rng.uniform(0.05, 0.3), three_nodes.kill, [dying])
        killer.start()
        for _ in range(150):
            hole = rng.choice([1, 1, 1, 1, 1, 1, 2, 30])
            fill_patiently(padder, tp, end, end + hole)
            end += hole
            assert wire.log_ends([tp]) == {tp: end}
        killer.join()
        fill_patiently(padder, tp, end, end + 40)
        end += 40
        three_nodes.restart(dying)
        assert coordinator_epoch_of(wire, tp, taken(padder, tp).producer_id) > 0, "the coordinator never moved"
        padder.release()
    assert ends(three_nodes, tp.topic)[0] == (0, end, end)


def test_zombie_markers_over_a_leader_change_do_not_overrun_holes(
    three_nodes: Cluster, replicated: TopicPartition
) -> None:
    """They arrive after the new copier's first marker; for the moment before it see ``test_padding.py``."""
    tp, end = replicated, 60
    with WireCluster(config(three_nodes)) as old_wire, WireCluster(config(three_nodes)) as new_wire:
        old = Padder(target=old_wire, mirror=tp.topic, check=lambda: None)
        hold = taken(old, tp)
        hold.client.write_marker(tp, hold.producer_id, hold.epoch)
        leader = old_wire.leader(tp).node_id
        three_nodes.kill(leader)
        checks: list[None] = []
        errors: list[Fenced] = []

        def thaw() -> None:
            checks.append(None)
            if len(checks) == 3:  # the take-over, then each time after a look at the log end
                try:
                    old_wire.refresh([tp.topic])
                    known = coordinator_epoch_of(old_wire, tp, hold.producer_id)
                    write_txn_markers(old_wire, tp, hold.producer_id, hold.epoch, end - 2, known)
                except Fenced as e:
                    errors.append(e)

        fill_patiently(Padder(target=new_wire, mirror=tp.topic, check=thaw), tp, 0, end)
        assert len(errors) == 1
        assert new_wire.log_ends([tp]) == {tp: end}
        with pytest.raises(Fenced):
            hold.client.write_marker(tp, hold.producer_id, hold.epoch)
        three_nodes.restart(leader)
    assert ends(three_nodes, tp.topic)[0] == (0, end, end)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_own_markers_that_arrive_late_do_not_overrun_the_hole(
    proxied: ProxiedCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """The proxy keeps a request of 98 markers, the client gives up and begins again, then the request arrives."""
    create(proxied, topic_name)
    tp, end, proxy = TopicPartition(topic_name, 0), 100, proxied.proxy
    kept: list[int] = []
    checks_left = -1

    def kept_once(*arguments: Any, **named: Any) -> None:
        if not kept:
            kept.append(arguments[4])
            proxy.hold()
            threading.Timer(0.3, proxy.cut_clients).start()
        write_txn_markers(*arguments, **named)

    def check() -> None:
        nonlocal checks_left
        checks_left -= 1
        if checks_left == 0:  # the second take-over, then after a look at the log end
            proxy.release()
            time.sleep(0.2)

    monkeypatch.setattr(padding, "write_txn_markers", kept_once)
    with WireCluster(config(proxied)) as wire:
        padder = Padder(target=wire, mirror=tp.topic, check=check)
        with pytest.raises(TryAgain):
            padder.fill(tp, 0, end)
        assert kept == [98]
        checks_left = 1 + steps
        fill_patiently(padder, tp, 0, end)
        assert checks_left <= 0
        proxy.heal()
        time.sleep(0.3)
        assert wire.log_ends([tp]) == {tp: end}


def test_partition_not_released_rests_before_its_next_owner_fills(target_cluster: Cluster, topic_name: str) -> None:
    """The old owner asks before its last marker, and is fenced."""
    create(target_cluster, topic_name)
    tp = TopicPartition(topic_name, 0)
    with WireCluster(config(target_cluster)) as wire:

        def taken_over() -> tuple[float, Padder]:
            padder = Padder(target=wire, mirror=tp.topic, check=lambda: None)
            return padder.step(Filling(tp=tp, start=0, end=1)), padder

        fresh, first = taken_over()
        held, second = taken_over()
        first.release()  # not its to give back any more
        again, third = taken_over()
        time.sleep(padding._QUIET_S)  # before that it is not given back
        third.release()
        given_back, _ = taken_over()
        assert (fresh, held, again, given_back) == (0.0, padding._QUIET_S, padding._QUIET_S, 0.0)
        time.sleep(padding._FRESH_S)
        # The one before it still believes that the partition is its own, but asks before the last marker.
        with pytest.raises(Fenced):
            second.fill(tp, 0, 1)
    assert ended_at(target_cluster, tp) == 0
