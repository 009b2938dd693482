"""Target topics: what is created is read back whole; what was there is compared, and only grown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.errors import NotKept, TargetTopicsDiffer
from airflow_mirror.kafka.model import ConfigEntry, NewTopicSpec, TopicInfo
from airflow_mirror.plan.configs import HELD_OPEN
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync import topics
from airflow_mirror.sync.topics import create_target_topics
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

    def create_topics(self, specs: list[NewTopicSpec]) -> None:
        for spec in specs:
            self.there[spec.name] = (spec.partitions, spec.configs)

    def grow_partitions(self, topic: str, total: int) -> None:
        if not self.deaf:
            self.there[topic] = (total, self.there[topic][1])


@pytest.fixture
def plan() -> Plan:
    plan = a_plan("orders", "users")
    planned = tuple(replace(t, partitions=3, held_configs=HELD_OPEN) for t in plan.topics)
    return replace(plan, topics=planned, known_topics={"orders": "", "users": ""})


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = topics.settle
    monkeypatch.setattr(topics, "settle", lambda wrong, what: settle(wrong, what, within_s=0))


def test_a_grown_topic_is_judged_by_its_partitions_not_by_settings_nobody_set(plan: Plan) -> None:
    target = FakeTarget({"orders": (1, BY_AGE)})
    report = create_target_topics(plan, target)
    assert (report.grown, report.created, report.existing) == (("orders",), ("users",), ("orders",))
    assert report.differences == ("orders: retention.ms=604800000, planned -1",)
    assert target.there["orders"] == (3, BY_AGE), "settings are left to SyncTopicConfigs"


def test_a_topic_that_does_not_grow_is_an_error(plan: Plan) -> None:
    with pytest.raises(NotKept, match="orders: 1 partitions, planned 3"):
        create_target_topics(plan, FakeTarget({"orders": (1, BY_AGE)}, deaf=True))


def test_a_topic_of_somebody_else_is_not_grown(plan: Plan) -> None:
    target = FakeTarget({"orders": (1, BY_AGE)})
    with pytest.raises(TargetTopicsDiffer, match="orders: 1 partitions, 3 needed"):
        create_target_topics(replace(plan, known_topics={}), target)
    assert target.there == {"orders": (1, BY_AGE)}
