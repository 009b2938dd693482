"""What the target says about topic settings: which it knows, and what they are there."""

from __future__ import annotations

from typing import Any

from airflow_mirror.errors import BrokerError, MirrorError, MissingRight, RequestRefused
from airflow_mirror.kafka.model import ConfigEntry, NewTopicSpec
from airflow_mirror.plan.configs import HELD_OPEN
from airflow_mirror.plan.target_configs import read_own_configs, try_configs
from airflow_mirror.wire.errors import refusal
from tests.unit.plan.builders import DEFAULTS, configs


class Target:
    """A cluster that knows the keys of ``DEFAULTS`` and keeps nothing for longer than a day."""

    def __init__(self, **topics: Any) -> None:
        self.topics, self.created = topics, list[str]()

    def broker_count(self) -> int:
        return 3

    def topic_names(self) -> list[str]:
        return sorted(self.topics)

    def topic_configs(self, names: list[str]) -> dict[str, dict[str, ConfigEntry]]:
        found = {name: self.topics[name] for name in names}
        for entries in found.values():
            if isinstance(entries, Exception):
                raise entries
        return found

    def refused_topics(self, specs: list[NewTopicSpec]) -> dict[str, MirrorError]:
        (spec,) = specs
        self.created.append(spec.name)
        if spec.name == "theirs":
            return {spec.name: refusal("create", 29, "Create", spec.name, "User:mirror")}
        if unknown := set(spec.configs) - set(DEFAULTS):
            words = f"Unknown topic config name: {unknown.pop()}"
            return {spec.name: RequestRefused("create", 40, "INVALID_CONFIG", words)}
        if int(spec.configs.get("retention.ms", "1")) > 86_400_000:
            return {spec.name: RequestRefused("create", 44, "POLICY_VIOLATION", "at most a day")}
        return {}


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
    assert try_configs(target, [configs()], "theirs") is None
    assert set(target.created) == {"scratch", "theirs"}  # a topic for which the principal has CREATE


def test_settings_of_the_hold_are_asked_for_that_an_old_source_does_not_have() -> None:
    old = {key: e for key, e in configs().items() if not key.startswith("message.timestamp")}
    known = try_configs(Target(), [old], "scratch")
    assert known is not None and known.keys() >= HELD_OPEN.keys() and "message.timestamp.difference.max.ms" not in known
