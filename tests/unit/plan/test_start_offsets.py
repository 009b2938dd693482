"""What ``latest`` means to a mirror that has begun before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.kafka.model import ConfigEntry, TopicInfo
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.inventory import read_source
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.start_offsets import Begun
from tests.unit.plan.builders import a_mirror, configs
from tests.unit.plan.test_model import a_plan

LATEST = a_mirror(start="latest", topics=["ord.*"], groups=["none"])


class FakeSource:
    """Topics whose partitions span [log start, end)."""

    role, principal = "source", None

    has_ids = True

    def __init__(self, **spans: Any) -> None:
        self.spans, self.wire = spans, self

    def log_sizes(self, tps: list[TP]) -> dict[TP, int]:
        return dict.fromkeys(tps, 1)

    def quotas(self) -> dict[Any, Any]:
        return {}

    def topic_names(self) -> list[str]:
        return list(self.spans)

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {n: TopicInfo(n, f"id-of-{n}" * self.has_ids, len(self.spans[n]), 1) for n in names}

    def topic_configs(self, names: dict[str, TopicInfo]) -> dict[str, dict[str, ConfigEntry]]:
        return {n: configs() for n in names}

    def offsets(self, partitions: list[TP], spec: str) -> dict[TP, int]:
        side = 0 if spec == "earliest" else 1
        return {tp: self.spans[tp.topic][tp.partition][side] for tp in partitions}

    def groups(self) -> list[Any]:
        return []

    def groups_offsets(self, ids: list[Any]) -> dict[str, Any]:
        return {group: {} for group in ids}

    def cluster_id(self) -> str:
        return "A"

    def broker_count(self) -> int:
        return 1


def begins(begun: Begun, **spans: Any) -> dict[str, dict[int, int]]:
    return {n: dict(t.begins) for n, t in read_source(LATEST, FakeSource(**spans), list(spans), begun).topics.items()}


def last_plan(**starts: Any) -> Plan:
    plan = a_plan()
    topics = tuple(
        replace(plan.topics[0], source_topic=name, source_topic_id=f"id-of-{name}", starts=of, ends=of)
        for name, of in starts.items()
    )
    return replace(plan, mirror=LATEST, topics=topics)


def test_latest_is_the_log_end_for_a_new_mirror() -> None:
    assert begins(Begun(), orders=[(0, 100), (7, 9)]) == {"orders": {0: 100, 1: 9}}


def test_a_second_plan_begins_where_the_first_one_did() -> None:
    begun = Begun.of_plan(last_plan(orders={0: 100, 1: 9}), LATEST)
    assert begins(begun, orders=[(0, 200), (7, 9)]) == {"orders": {0: 100, 1: 9}}


def test_what_retention_took_since_is_not_asked_for() -> None:
    begun = Begun.of_plan(last_plan(orders={0: 100}), LATEST)
    assert begins(begun, orders=[(150, 200)]) == {"orders": {0: 150}}


def test_partition_or_topic_created_since_begins_at_its_beginning() -> None:
    begun = Begun.of_plan(last_plan(orders={0: 100}), LATEST)
    found = begins(begun, orders=[(0, 200), (3, 50)], orders_eu=[(0, 20)])
    assert found == {"orders": {0: 100, 1: 3}, "orders_eu": {0: 0}}


def test_topic_added_to_the_mirror_begins_at_its_end() -> None:
    last = last_plan(orders={0: 100})
    begun = Begun.of_plan(replace(last, mirror=replace(LATEST, topics=["orders"])), LATEST)
    assert begins(begun, orders_eu=[(0, 20)]) == {"orders_eu": {0: 20}}


def test_a_source_topic_that_was_created_again_is_copied_whole() -> None:
    last = last_plan(orders={0: 100})
    again = replace(last, topics=(replace(last.topics[0], source_topic_id="another"),))
    assert begins(Begun.of_plan(again, LATEST), orders=[(0, 20)]) == {"orders": {0: 0}}


@pytest.mark.parametrize("has_ids", [False, True])
def test_topics_of_brokers_without_ids_are_told_apart_by_name(has_ids: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also once those brokers have been upgraded, and have ids."""
    monkeypatch.setattr(FakeSource, "has_ids", has_ids)
    last = last_plan(orders={0: 100}, orders_eu={0: 7})
    begun = Begun.of_plan(replace(last, topics=tuple(replace(t, source_topic_id="") for t in last.topics)), LATEST)
    found = begins(begun, orders=[(0, 200)], orders_eu=[(0, 20)], orders_us=[(3, 30)])
    assert found == {"orders": {0: 100}, "orders_eu": {0: 7}, "orders_us": {0: 3}}


@pytest.mark.parametrize("now", [replace(LATEST, start="earliest"), replace(LATEST, start="2026-01-01T00:00:00+00:00")])
def test_other_beginnings_are_looked_up_each_time(now: Mirror) -> None:
    assert Begun.of_plan(last_plan(orders={0: 100}), now) == Begun.of_plan(None, LATEST)
    assert "id-of-orders" not in Begun.of_plan(last_plan(orders={0: 100}), now).starts
