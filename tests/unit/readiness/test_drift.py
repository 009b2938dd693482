"""What changed since an earlier plan for the night."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.errors import InputError
from airflow_mirror.extras.readiness.build import decide
from airflow_mirror.extras.readiness.drift import drift
from airflow_mirror.extras.readiness.look import ReadinessFacts
from airflow_mirror.extras.readiness.model import NightPlan
from airflow_mirror.plan.model import TopicPlan
from tests.builders import plan_of, topic_plan
from tests.unit.plan.builders import a_mirror
from tests.unit.readiness.test_build import at, log

READS: Mapping[str, Sequence[str]] = {"billing": ["orders", "pay"], "mail": ["users"]}


def topic(name: str, partitions: int = 1, **fields: Any) -> TopicPlan:
    return topic_plan(name, dict.fromkeys(range(partitions), 0), **{"source_topic_id": f"id-{name}", **fields})


TOPICS = (topic("orders"), topic("pay"), topic("raw"), topic("users"))


def night(*topics: TopicPlan, reads: Mapping[str, Sequence[str]] = READS, **seen: Any) -> NightPlan:
    positions = {group: at(*its) for group, its in reads.items()}
    return decide(plan_of(a_mirror(), *(topics or TOPICS)), ReadinessFacts(at_ms=1, positions=positions, **seen))


def found(now: NightPlan, before: NightPlan | None = None) -> list[tuple[str, str]]:
    changes = drift((before or night()).to_json(), now)
    assert all(one.level == "block" and one.check == "drift" for one in changes)
    return [(one.object, one.evidence) for one in changes]


def test_progress_is_no_drift() -> None:
    logs = {next(iter(at("orders"))): log(end=9_000)}
    assert found(night(logs=logs, unseen=["a right"], topics=["new and left out"])) == []


def test_topics_that_changed_are_drift() -> None:
    now = night(topic("orders", 2), topic("pay", source_topic_id="other"), topic("fresh"), topic("users"))
    assert found(now) == [
        ("topic 'fresh'", "it is new"), ("topic 'orders'", "it had 1 partitions, and has 2"),
        ("topic 'pay'", "it was created again"), ("topic 'raw'", "it is gone"),
    ]  # fmt: skip
    ageless = [replace(one, source_topic_id="") for one in TOPICS]
    assert found(night(*ageless)) == [], "brokers before 2.8 have no ids"


def test_groups_that_tie_otherwise_are_drift() -> None:
    tied = {**READS, "audit": ["pay", "users"]}
    assert found(night(reads=tied)) == [
        ("wave 1", "2 waves hang together now, by audit, billing"), ("wave 1", "groups are new: audit")
    ]  # fmt: skip
    assert found(night(), night(reads=tied)) == [
        ("groups", "they are gone, or read nothing of the mirror any more: audit")
    ]  # fmt: skip


def test_first_reader_of_a_topic_is_drift() -> None:
    """No other topic of those that nobody reads has to do with it."""
    before = night(reads={"mail": ["users"]})
    now = night(reads={"mail": ["users"], "lake": ["raw", "users"]})
    assert found(now, before) == [("wave 1", "groups are new: lake")]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"v": 1, "mirror": "another"}', '{"v": 9, "mirror": "dc1-to-dc2"}'])
def test_what_is_no_plan_of_this_mirror_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        drift(text, night())
