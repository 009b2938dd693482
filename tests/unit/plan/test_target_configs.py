"""What the target says about topic settings: which it knows, what they are there, which it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from airflow_mirror.errors import BrokerError, MissingRight, RequestRefused
from airflow_mirror.kafka.model import ConfigEntry, NewTopicSpec
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.inventory import TopicState
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.plan.target_configs import Refusal, read_own_configs, refusals, try_configs
from tests.unit.plan.builders import DEFAULTS, a_cluster, a_mirror, a_topic, configs
from tests.unit.plan.test_checks import NOW


class Target:
    """A cluster that knows the keys of ``DEFAULTS`` and keeps nothing for longer than a day."""

    def __init__(self, **topics: Any) -> None:
        self.topics, self.created, self.forever = topics, list[str](), False

    def topic_names(self) -> list[str]:
        return sorted(self.topics)

    def topic_configs(self, names: list[str]) -> dict[str, dict[str, ConfigEntry]]:
        found = {name: self.topics[name] for name in names}
        for entries in found.values():
            if isinstance(entries, Exception):
                raise entries
        return found

    def create_topics(self, specs: list[NewTopicSpec], validate_only: bool) -> None:
        assert validate_only
        for refused in self.refused_topics(specs).values():
            raise refused

    def refused_topics(self, specs: list[NewTopicSpec]) -> dict[str, RequestRefused]:
        said: dict[str, tuple[int, str, str]] = {}
        for spec in specs:
            self.created.append(spec.name)
            if unknown := set(spec.configs) - set(DEFAULTS):
                said[spec.name] = 40, "INVALID_CONFIG", f"Unknown topic config name: {unknown.pop()}"
            elif int(spec.configs.get("retention.ms", "1")) > 86_400_000:
                said[spec.name] = 44, "POLICY_VIOLATION", "at most a day"
            elif self.forever and spec.configs.get("retention.ms") == "-1":
                said[spec.name] = 44, "POLICY_VIOLATION", "not for ever"
            elif spec.partitions > 6:
                said[spec.name] = 44, "POLICY_VIOLATION", "at most 6 partitions"
            elif spec.name.replace(".", "_") in self.topics:
                said[spec.name] = 17, "INVALID_TOPIC_EXCEPTION", f"collides with {spec.name.replace('.', '_')}"
        return {name: RequestRefused("create", *words) for name, words in said.items()}


def test_values_without_an_override_are_put_together_from_several_topics() -> None:
    target = Target(a=configs(retention_ms="-1"), b=configs(segment_bytes="7"))
    assert read_own_configs(target) == DEFAULTS


def test_value_that_every_topic_overrides_stays_unseen() -> None:
    own = read_own_configs(Target(a=configs(retention_ms="-1")))
    assert own is not None and own["retention.ms"] is None


def test_topics_that_may_not_be_looked_at_are_passed_over() -> None:
    hidden = MissingRight("read configs", "TOPIC_AUTHORIZATION_FAILED", "me")
    gone = BrokerError("read configs", 3, "UNKNOWN_TOPIC_OR_PART")
    assert read_own_configs(Target(a=hidden, b=gone, c=configs())) == DEFAULTS
    assert read_own_configs(Target(a=hidden)) is None and read_own_configs(Target()) is None


def test_empty_target_is_asked_key_by_key() -> None:
    target = Target()
    known = try_configs(target, [configs(vendor_tier="gold"), configs(retention_ms="604800000")], "scratch")
    assert known == dict.fromkeys(DEFAULTS)  # a value that it refuses belongs to a key that it knows
    assert set(target.created) == {"scratch"}  # a topic for which the principal has CREATE


def planned(*topics: TopicState) -> Sequence[TopicPlan]:
    target = a_cluster(a_topic("d"), cluster_id="c2")
    return decide(a_mirror(topics=[".*"]), a_cluster(*topics), target, (), NOW).topics


def test_each_topic_is_validated_with_its_own_name_and_partitions() -> None:
    """On hold, and as it is afterwards."""
    target = Target(team_orders=configs())
    topics = planned(a_topic("a"), a_topic("team.orders"), a_topic("wide", spans=((0, 0),) * 8))
    assert refusals(target, topics) == {
        "team.orders": Refusal(17, "INVALID_TOPIC_EXCEPTION: collides with team_orders"),
        "wide": Refusal(44, "POLICY_VIOLATION: at most 6 partitions"),
    }
    assert target.created == ["a", "team.orders", "wide"] * 2


def test_what_the_target_has_against_the_hold_is_told_apart() -> None:
    target = Target()
    week = [replace(t, configs={**t.configs, "retention.ms": "604800000"}) for t in planned(a_topic("a"), a_topic("b"))]
    assert refusals(target, week) == dict.fromkeys("ab", Refusal(44, "POLICY_VIOLATION: at most a day"))
    target.forever = True
    (hold,) = refusals(target, planned(a_topic("a", retention_ms="1000"))).values()
    assert hold.words == "POLICY_VIOLATION: not for ever"
    assert hold.hold["retention.ms"] == "-1" and "max.message.bytes" not in hold.hold


def test_topic_that_exists_is_not_created_again() -> None:
    made = decide(a_mirror(), a_cluster(a_topic()), a_cluster(a_topic(spans=((0, 0),) * 3), cluster_id="c2"), (), NOW)
    target = Target()
    assert refusals(target, made.topics) == {} and target.created == []
