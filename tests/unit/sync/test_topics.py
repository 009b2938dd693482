"""Target topics: what is created is read back whole; what was there is compared, and only grown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.errors import BrokerError, InputError, NotKept, TryAgain
from airflow_mirror.kafka.model import ConfigEntry, NewTopicSpec, TopicInfo
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.plan.configs import HELD_OPEN
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync import topics
from airflow_mirror.sync.topics import create_target_topics, settle
from tests.unit.cutover.builders import a_plan

BY_AGE = {**HELD_OPEN, "retention.ms": "604800000"}


class FakeTarget:
    """Topics: name -> (partitions, settings). ``deaf`` grows nothing."""

    def __init__(self, there: dict[str, tuple[int, dict[str, Any]]], deaf: bool = False) -> None:
        self.there, self.deaf = dict(there), deaf

    def topics(self, names: Any) -> dict[str, TopicInfo]:
        return {n: TopicInfo(n, f"id-{n}", self.there[n][0], 1) for n in names if n in self.there}

    def topic_configs(self, names: dict[str, TopicInfo]) -> dict[str, dict[str, ConfigEntry]]:
        return {n: {k: ConfigEntry(value=v) for k, v in self.there[n][1].items()} for n in names}

    def create_topics(self, specs: list[NewTopicSpec], permit: Permit) -> None:
        permit()
        for spec in specs:
            self.there[spec.name] = (spec.partitions, spec.configs)

    def grow_partitions(self, topic: str, total: int, permit: Permit) -> None:
        permit()
        if not self.deaf:
            self.there[topic] = (total, self.there[topic][1])


@pytest.fixture
def plan() -> Plan:
    plan = a_plan("orders", "users")
    planned = tuple(replace(t, partitions=3, held_configs=HELD_OPEN) for t in plan.topics)
    return replace(plan, topics=planned, known_topics={"orders": "", "users": ""})


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "settle", lambda wrong, what, going: settle(wrong, what, within_s=0, going=going))


def test_setting_that_a_cluster_takes_and_never_shows_is_no_difference(plan: Plan) -> None:
    """Redpanda: min.insync.replicas. What the hold is made of has to be seen all the same."""
    unseen = {**HELD_OPEN, "min.insync.replicas": "2"}
    planned = replace(plan, topics=tuple(replace(t, held_configs=unseen) for t in plan.topics))
    target = FakeTarget({"orders": (3, dict(HELD_OPEN)), "users": (3, {**HELD_OPEN, "min.insync.replicas": "1"})})
    report = create_target_topics(planned, target, unfenced)
    assert report.differences == ("users: min.insync.replicas=1, planned 2",)


def test_a_topic_is_created_by_the_permit_of_its_caller(plan: Plan) -> None:
    def permit() -> None:
        raise TryAgain("taken over")

    target = FakeTarget({})
    with pytest.raises(TryAgain, match="taken over"):
        create_target_topics(plan, target, permit)
    assert target.there == {}


def test_grown_topic_is_judged_by_partitions_not_settings(plan: Plan) -> None:
    target = FakeTarget({"orders": (1, BY_AGE)})
    report = create_target_topics(plan, target, unfenced)
    assert (report.grown, report.created, report.existing) == (("orders",), ("users",), ("orders",))
    assert report.differences == ("orders: retention.ms=604800000, planned -1",)
    assert target.there["orders"] == (3, BY_AGE), "settings are left to SyncTopicConfigs"


def test_a_topic_that_does_not_grow_is_an_error(plan: Plan) -> None:
    with pytest.raises(NotKept, match="orders: 1 partitions, planned 3"):
        create_target_topics(plan, FakeTarget({"orders": (1, BY_AGE)}, deaf=True), unfenced)


def test_a_topic_of_somebody_else_is_not_grown(plan: Plan) -> None:
    target = FakeTarget({"orders": (1, BY_AGE)})
    with pytest.raises(InputError, match="orders: 1 partitions, 3 needed"):
        create_target_topics(replace(plan, known_topics={}), target, unfenced)
    assert target.there == {"orders": (1, BY_AGE)}


def test_topic_created_meanwhile_by_another_run_is_compared(plan: Plan) -> None:
    class Raced(FakeTarget):
        def create_topics(self, specs: Any, permit: Permit) -> None:
            super().create_topics(specs, permit)
            (spec,) = specs
            if spec.name == "orders":
                self.there["orders"] = (3, BY_AGE)
                raise BrokerError("create", 36, "TOPIC_ALREADY_EXISTS")

    report = create_target_topics(plan, Raced({}), unfenced)
    assert (report.created, report.existing) == (("users",), ("orders",))
    assert report.differences == ("orders: retention.ms=604800000, planned -1",)


@pytest.mark.parametrize("raced", [False, True])
def test_who_must_not_wait_stops_reading_back(plan: Plan, monkeypatch: pytest.MonkeyPatch, raced: bool) -> None:
    class Slow(FakeTarget):
        """Whose brokers don't show a new topic."""

        def create_topics(self, specs: Any, permit: Permit) -> None:
            if raced:
                raise BrokerError("create", 36, "TOPIC_ALREADY_EXISTS")

    def going() -> None:
        raise TryAgain("the job ends")

    monkeypatch.setattr(topics, "settle", settle)
    with pytest.raises(TryAgain, match="the job ends"):
        create_target_topics(plan, Slow({}), unfenced, going)


class Overtaken(FakeTarget):
    """Somebody else creates each topic right before, with one partition."""

    def create_topics(self, specs: Any, permit: Permit) -> None:
        self.there |= {spec.name: (1, BY_AGE) for spec in specs}
        raise BrokerError("create", 36, "TOPIC_ALREADY_EXISTS")


def test_topic_created_meanwhile_gets_the_partitions_that_it_lacks(plan: Plan) -> None:
    target = Overtaken({})
    report = create_target_topics(plan, target, unfenced)
    assert (report.created, report.grown) == ((), ("orders", "users"))
    assert {name: count for name, (count, _) in target.there.items()} == {"orders": 3, "users": 3}


def test_topic_with_key_partitioning_gets_the_partitions_among_which_keys_are_dealt_out(plan: Plan) -> None:
    """More do no harm; a plan of before does not say how many."""
    planned = tuple(replace(t, key_partitions=count) for t, count in zip(plan.topics, (2, None), strict=True))
    keyed = replace(plan, topics=planned, mirror=replace(plan.mirror, partitioning="by_key", offsets="mapped"))
    held = dict[str, Any](HELD_OPEN)
    there = {"orders": (1, held), "users": (1, held)}
    assert create_target_topics(keyed, target := FakeTarget(there), unfenced).grown == ("orders",)
    assert target.there["orders"][0] == 2 and target.there["users"][0] == 1
    more = FakeTarget({**there, "orders": (5, held)})
    report = create_target_topics(keyed, more, unfenced)
    assert not report.grown and "orders: 5 partitions, planned 2" in report.differences
    assert create_target_topics(keyed, none := FakeTarget({}), unfenced).created and none.there["orders"][0] == 2


def test_topic_that_somebody_else_creates_meanwhile_is_not_grown(plan: Plan) -> None:
    target = Overtaken({})
    with pytest.raises(InputError, match=r"they were created meanwhile:\n  - orders: 1 partitions, 3 needed"):
        create_target_topics(replace(plan, known_topics={"users": ""}), target, unfenced)
    assert target.there["orders"] == (1, BY_AGE)


def test_a_topic_that_is_refused_is_an_error(plan: Plan) -> None:
    class Refusing(FakeTarget):
        def create_topics(self, specs: Any, permit: Permit) -> None:
            raise BrokerError("create", 44, "POLICY_VIOLATION")

    with pytest.raises(BrokerError, match="POLICY_VIOLATION"):
        create_target_topics(plan, Refusing({}), unfenced)


def test_a_created_topic_that_reads_back_otherwise_is_named(plan: Plan) -> None:
    class Altering(FakeTarget):
        def create_topics(self, specs: Any, permit: Permit) -> None:
            for spec in specs:
                self.there[spec.name] = (spec.partitions + 1, {})

        def topics(self, names: Any) -> Any:
            return {n: replace(info, replication_factor=3) for n, info in super().topics(names).items()}

    with pytest.raises(NotKept) as caught:
        create_target_topics(plan, Altering({}), unfenced)
    assert {"orders: 4 partitions, planned 3", "orders: 3 replicas, planned 1"} <= set(caught.value.differences)
    assert any(line.startswith("orders: retention.ms=None, planned -1") for line in caught.value.differences)


def test_topic_unknown_to_some_brokers_is_waited_for(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "settle", settle)

    class Young(FakeTarget):
        looks = 0

        def topic_configs(self, names: Any) -> Any:
            self.looks += 1
            if self.looks == 1:
                raise BrokerError("describe", 3, "UNKNOWN_TOPIC_OR_PARTITION")
            return super().topic_configs(names)

    report = create_target_topics(plan, Young({}), unfenced)
    assert report.to_dict()["created"] == ("orders", "users")
