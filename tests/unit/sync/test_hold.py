"""Settings that have to stay while a mirror writes, against somebody who changes them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.errors import AuthenticationFailed, BrokerError, LeaseLost, LeaseUnconfirmed, MirrorError, NeedsHuman
from airflow_mirror.kafka.model import ConfigEntry, TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.hold import EVERY_S, HoldWatch
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic, configs
from tests.unit.plan.test_checks import NOW

AWAY = BrokerError("describe", 7, "REQUEST_TIMED_OUT")


class Target:
    """Topics with settings; ``away`` fails every call; ``is_young``: the broker that is asked first lists none."""

    def __init__(self, plan: Plan) -> None:
        self.entries = {t.target_topic: dict(configs(**_named(t.held_configs))) for t in plan.topics}
        self.away: MirrorError | None = None
        self.is_young = False
        self.wire: Any = SimpleNamespace(refresh_present=lambda names: set(names) - self.entries.keys())
        self.set = list[Any]()

    def topics(self, names: dict[str, dict[str, str]]) -> dict[str, Any] | None:
        if self.away:
            raise self.away
        return {n: TopicInfo(n, f"id-{n}", 1, 1) for n in names if n in self.entries and not self.is_young}

    def topic_configs(self, names: dict[str, Any]) -> dict[str, dict[str, ConfigEntry]]:
        return {n: self.entries[n] for n in names}

    def alter_topic_configs(self, topic: str, permit: Permit, wanted: dict[str, str]) -> None:
        permit()
        self.set.append((topic, dict(wanted)))
        for key, value in wanted.items():
            self.change(topic, key, value)

    def change(self, topic: str, key: str, value: str) -> None:
        self.entries[topic][key] = ConfigEntry(value=value, source="DYNAMIC_TOPIC_CONFIG")


def _named(values: dict[str, str]) -> dict[str, str]:
    return {key.replace(".", "_"): value for key, value in values.items()}


class World:
    def __init__(self) -> None:
        self.plan = decide(a_mirror(), a_cluster(a_topic("a"), a_topic("b")), a_cluster(cluster_id="c2"), (), NOW)
        self.target, self.now, self.lost = Target(self.plan), 0.0, None
        self.watch = HoldWatch(self.plan, self.target, self.may_write, lambda: self.now)

    def may_write(self) -> None:
        if self.lost:
            raise self.lost

    def look(self) -> bool | None:
        self.now += EVERY_S
        return self.watch.look_in_turn()


@pytest.fixture
def world() -> World:
    return World()


def test_topics_that_are_held_are_left_alone(world: World) -> None:
    assert not world.look() and world.target.set == [] and world.watch.notes == []


def test_retention_that_somebody_set_is_set_back_and_said(world: World) -> None:
    world.target.change("b", "retention.ms", "604800000")
    world.target.change("b", "segment.bytes", "7")  # nobody's business: it deletes nothing
    assert world.look()
    assert world.target.set == [("b", {"retention.ms": "-1"})]
    assert world.watch.notes == ["b: retention.ms was changed to 604800000, set back to -1 (1 of 3 times)"]
    assert not world.look()


@pytest.mark.parametrize("ours", ["id-b", "", None, "id-then"])
def test_settings_of_a_topic_that_was_created_again_are_left_alone(world: World, ours: str | None) -> None:
    """It is nobody's, or another mirror's."""
    world.watch.follow(world.plan, {} if ours is None else {"b": ours})
    world.target.change("b", "retention.ms", "604800000")
    assert world.look() == (ours != "id-then")
    assert bool(world.target.set) == (ours != "id-then")


def test_topic_that_joins_the_plan_is_held_from_then_on(world: World) -> None:
    everything, world.watch = (
        world.plan,
        HoldWatch(replace(world.plan, topics=world.plan.topics[:1]), world.target, world.may_write, lambda: world.now),
    )
    world.target.change("b", "retention.ms", "604800000")
    assert not world.look()
    world.watch.follow(everything)
    assert world.look() and world.target.set == [("b", {"retention.ms": "-1"})]
    assert world.watch.restored == {"a": 0, "b": 1}


def test_compaction_that_came_back_is_on_hold_as_well() -> None:
    """Only of a topic that the source compacts, and whose offsets stay the same."""
    planned = decide(
        a_mirror(), a_cluster(a_topic("a"), a_topic("b", cleanup_policy="compact")), a_cluster(cluster_id="c2"), (), NOW
    )  # fmt: skip
    target = Target(planned)
    for topic in ("a", "b"):
        target.change(topic, "cleanup.policy", "delete, compact")
    HoldWatch(planned, target, lambda: None, lambda: 0.0).look_in_turn()
    assert target.set == [("a", {"cleanup.policy": "delete"})]
    target.change("b", "cleanup.policy", "compact")  # records could not be deleted by offset
    now = 100.0
    watch = HoldWatch(planned, target, lambda: None, lambda: now)
    assert not watch.look_in_turn()
    now = 200.0
    assert watch.look_in_turn()
    assert target.set[1:] == [("b", {"cleanup.policy": "delete"})]


def test_policy_that_is_on_its_way_to_compaction_is_left_alone() -> None:
    """Some clusters take it by way of `compact`, which another thread sets; other settings need not wait for that."""
    world = World()
    world.plan = decide(
        a_mirror(), a_cluster(a_topic("b", cleanup_policy="compact")), a_cluster(cluster_id="c2"), (), NOW
    )
    world.watch.follow(world.plan)
    for _ in range(4):
        world.target.change("b", "cleanup.policy", "compact")
        assert not world.look() and world.watch.intact == {"b": True}
        world.target.change("b", "cleanup.policy", "compact,delete")
        assert not world.look()
    world.target.change("b", "cleanup.policy", "compact")
    world.target.change("b", "retention.ms", "1")
    assert world.look() and world.target.set == [("b", {"retention.ms": "-1"})]
    assert world.look() and world.target.set[1:] == [("b", {"cleanup.policy": "delete"})]


def test_state_of_the_hold_is_known_by_topic(world: World) -> None:
    """For who watches from outside: the last look's finding, and how often settings were set back."""
    assert (world.watch.intact, world.watch.restored) == ({}, {"a": 0, "b": 0})
    world.look()
    assert world.watch.intact == {"a": True, "b": True}
    world.target.change("b", "retention.ms", "1")
    world.target.change("b", "retention.bytes", "1")
    world.look()
    assert (world.watch.intact, world.watch.restored) == ({"a": True, "b": False}, {"a": 0, "b": 2})
    world.look()
    assert (world.watch.intact, world.watch.restored) == ({"a": True, "b": True}, {"a": 0, "b": 2})
    world.target.away = AWAY
    world.look()
    assert world.watch.intact == {}  # nobody knows
    world.target.away = None
    world.look()
    assert world.watch.intact == {"a": True, "b": True}
    world.target.away = AuthenticationFailed("target", "b:1", "no such user")
    with pytest.raises(AuthenticationFailed):
        world.look()
    assert world.watch.intact == {}


def test_looks_are_some_time_apart(world: World) -> None:
    world.look()
    world.target.change("b", "retention.ms", "1")
    world.now += EVERY_S / 2
    assert not world.watch.look_in_turn()
    assert world.look()


def test_hold_gives_up_after_three_changes_of_a_key(world: World) -> None:
    """The error has topic, key and values; each topic is counted by itself."""
    for _ in range(3):
        world.target.change("a", "cleanup.policy", "compact")
        assert world.look()
    world.target.change("b", "cleanup.policy", "compact")
    assert world.look()  # another topic's count is its own
    world.target.change("a", "cleanup.policy", "compact")
    with pytest.raises(NeedsHuman) as caught:
        world.look()
    assert len(world.target.set) == 4
    assert str(caught.value) == (
        "target topic 'a': cleanup.policy is compact again, after it was set back to delete 3 times. While the "
        "mirror writes, "
        "this value would delete, change or refuse records. Find out who sets it (a GitOps tool, an operator of the "
        "cluster), "
        "make them leave this topic alone, then start the copy again and compare."
    )


@pytest.mark.parametrize("days, gives_up", [(30, False), (1, True)])
def test_hold_counts_a_setting_anew_that_had_stayed(world: World, days: int, gives_up: bool) -> None:
    """A tail lives for years, and a monthly run is nobody who sets back what was set; a nightly one is."""
    for month in range(5):
        world.target.change("a", "retention.ms", "1")
        if gives_up and month == 3:
            with pytest.raises(NeedsHuman, match="retention.ms is 1 again"):
                world.look()
            break
        assert world.look() and world.watch.notes[-1].endswith(f"({month + 1 if gives_up else 1} of 3 times)")
        assert world.watch.restored["a"] == month + 1
        world.now += days * 24 * 3600.0


def test_job_that_lost_the_lease_touches_no_setting(world: World) -> None:
    """After a cutover the topics are production, and their own retention is right."""
    world.target.change("a", "retention.ms", "604800000")
    world.lost = LeaseLost("airflow-mirror.m", 3, "epoch 5")
    with pytest.raises(LeaseLost):
        world.look()
    assert world.target.set == []


def test_cluster_that_can_not_be_asked_is_asked_again(world: World) -> None:
    world.target.change("a", "retention.ms", "1")
    world.target.away = AWAY
    assert not world.look()
    world.target.away = None
    assert world.look()


def test_settings_wait_while_nobody_knows_who_is_the_writer(world: World) -> None:
    """A coordinator that is away is no reason to end a tail."""
    world.target.change("a", "retention.ms", "1")
    world.lost = LeaseUnconfirmed("airflow-mirror.m", 3, 7.0, None)
    assert not world.look() and world.target.set == [] and world.watch.intact == {"a": False, "b": True}
    world.lost = None
    assert world.look() and world.target.set == [("a", {"retention.ms": "-1"})]


def test_topic_that_is_gone_keeps_nobody_from_watching_the_others(world: World) -> None:
    del world.target.entries["a"]
    world.target.change("b", "retention.bytes", "1")
    assert world.look()


def test_topics_that_a_broker_does_not_list_yet_are_not_said_to_be_intact(world: World) -> None:
    world.target.change("b", "retention.ms", "1000")
    world.target.is_young = True
    assert not world.look() and world.watch.intact == {}
    world.target.is_young = False
    assert world.look() and world.watch.intact == {"a": True, "b": False}
