"""What a cutover waits for behind its fence, on real brokers: groups that read on, and open transactions."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover import quiet
from airflow_mirror.cutover.request import Additions
from airflow_mirror.errors import DrainTimedOut, GroupActive, GroupsStillMoving, TransactionsOpen
from airflow_mirror.kafka.admin import GroupPosition
from airflow_mirror.kafka.permit import unfenced
from tests.integration.cutover_world import Member, Tail, World
from tests.integration.cutovers import caught_up, cut_over, on_disk, opened_by
from tests.waiting import wait_until

pytestmark = [pytest.mark.usefixtures("unhurried"), pytest.mark.nights]


def test_group_that_reads_on_is_awaited_then_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its consumer has stopped, a second cutover moves its exact position."""
    world.write(4000)
    group = f"{world.topic}-slow"
    with Tail(world):
        caught_up(world)
        with Member(world, group, crawl_s=0.1) as member, monkeypatch.context() as patched:
            ask = world.source.groups_offsets

            def ask_later(groups: Collection[str]) -> dict[str, dict[TopicPartition, GroupPosition]]:
                # It moves between any two looks, however slow the machine is. Two commits, because the first may have
                # been made, though not answered, at the look before.
                goal = member.commits + 2
                wait_until(lambda: member.commits >= goal)
                return ask(groups)

            patched.setattr(world.source, "groups_offsets", ask_later)
            with pytest.raises(GroupsStillMoving, match=group):
                cut_over(world, wait_groups_s=3)
        wait_until(lambda: world.source.group_states([group]) == {group: "Empty"})
        assert world.acls() == [] and world.positions(group) == {}
        assert on_disk(world)["groups"] == []  # at no look was it taken to be at rest
        # Its consumer is stopped: now it is at rest, and its exact position moves.
        report = cut_over(world)
    assert {g.group: g.settled for g in report.groups} == {group: "empty"}
    assert world.positions(group) == world.positions(group, "source")
    row = report.groups[0].positions[0]
    assert row["lag"] == 2000 - row["source_offset"] > 0


def test_live_group_without_position_in_trimmed_partition_settles(world: World) -> None:
    """Asking for records below the log start would be an error, and take the cutover down with it."""
    world.write(40)
    with Tail(world):
        caught_up(world)
    for admin in (world.source, world.target):
        admin.delete_records(dict.fromkeys(world.tps, 7), unfenced)
    # It commits in partition 0 only, and once.
    group = f"{world.topic}-half"
    with Member(world, group, crawl_s=3600):
        wait_until(lambda: world.positions(group, "source") == {0: 1})
        report = cut_over(world, accept_still_groups=[group])
    assert [g.settled for g in report.groups] == ["stood still"]
    assert "expired" in report.groups[0].positions[0]["note"] and world.positions(group) == {0: 7}


def test_group_active_on_the_target_is_refused_before_fencing(world: World) -> None:
    world.write(6)
    group = world.group("g", {0: 1})
    with Tail(world):
        caught_up(world)
        consumer = Consumer(
            {**world.target_cluster.admin_properties(), "group.id": group, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([world.topic])
        wait_until(lambda: consumer.poll(0.2) is not None)
        with pytest.raises(GroupActive, match=group):
            cut_over(world)
        consumer.close()
    assert not (world.run_dir / "report.json").exists()
    assert world.acls() == []


def test_groups_get_their_positions_on_the_target_back(world: World) -> None:
    world.write(20)
    had = world.group("had", {0: 2}, "target")
    world.group("had", {0: 5, 1: 7})
    new = world.group("new", {1: 9})
    elsewhere = TopicPartition("elsewhere", 0)
    with Tail(world):
        caught_up(world)

        def refuse(_: object) -> dict[str, Any]:
            """Fail at the last moment: what else was to be decided with the opening."""
            assert world.positions(had) == {0: 5, 1: 7} and world.positions(new) == {1: 9}
            raise RuntimeError("its direction is another one")

        with pytest.raises(RuntimeError, match="direction"):
            cut_over(world, additions=Additions(decide_with=refuse))
    assert opened_by(world) is None
    assert world.positions(had) == {0: 2} and world.positions(new) == {}
    assert elsewhere not in world.target.group_offsets(had)
    assert world.acls() == []
    undone = [(u["step"], u["ok"]) for u in on_disk(world)["undone"]]
    assert undone == [(name, True) for name in ("fence", "commit_groups", "stop_writers", "decision")]


def transactional(world: World) -> Producer:
    settings = {"transactional.id": world.topic, "transaction.timeout.ms": "600000"}
    producer = Producer({**world.source_cluster.properties("alice"), **settings})
    producer.init_transactions(120)
    return producer


def test_transaction_open_at_the_fence_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker that ends it behind the fence is no leak."""
    producer = transactional(world)
    producer.begin_transaction()
    for p in (0, 1):
        producer.produce(world.topic, b"inside", partition=p)
    assert producer.flush(120) == 0
    moves, looks = quiet.moves, list[float]()
    committed = False

    def commit_in_time(before: Any, after: Any) -> Any:
        """End it while the proof looks on, at the first look after four times ``quiet_s``."""
        nonlocal committed
        looks.append(time.monotonic())
        if not committed and looks[-1] - looks[0] > 2:
            producer.commit_transaction(120)
            committed = True
            wait_until(lambda: world.target.offsets(world.tps) == dict.fromkeys(world.tps, 1))
        return moves(before, after)

    monkeypatch.setattr(quiet, "moves", commit_in_time)
    # The record tail can't copy a marker, so the drain is as far as this goes: behind by exactly the marker.
    with pytest.raises(DrainTimedOut) as caught, Tail(world):
        cut_over(world, drain_timeout_s=2)
    assert caught.value.behind == {f"{world.topic}-0": 1, f"{world.topic}-1": 1}
    proof = next(s for s in on_disk(world)["steps"] if s["name"] == "prove_fence")
    assert committed and proof["evidence"]["markers_after_fence"] == 2
    assert world.acls() == []


def test_transaction_that_never_ends_is_named(world: World) -> None:
    producer = transactional(world)
    producer.begin_transaction()
    producer.produce(world.topic, b"inside", partition=0)
    assert producer.flush(120) == 0
    with pytest.raises(TransactionsOpen, match=f"{world.topic}-0: stable to 0 of 1"):
        cut_over(world, transactions_timeout_s=1.0)
    producer.abort_transaction(120)
    assert world.acls() == []
