from __future__ import annotations

import pytest

from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.plan.configs import HELD_OPEN, goal, is_carried, overrides, same_value
from airflow_mirror.sync.configs import diff
from tests.unit.plan.builders import configs


@pytest.mark.parametrize(
    ("key", "entry", "carried"),
    [
        ("retention.ms", ConfigEntry("5", source="DYNAMIC_TOPIC_CONFIG"), True),
        ("retention.ms", ConfigEntry("5", source="DYNAMIC_DEFAULT_BROKER_CONFIG"), True),
        ("retention.ms", ConfigEntry("5", source="STATIC_BROKER_CONFIG"), False),
        ("retention.ms", ConfigEntry("5", is_default=True, source="DEFAULT_CONFIG"), True),
        ("retention.ms", ConfigEntry(None, is_sensitive=True, source="DYNAMIC_TOPIC_CONFIG"), False),
        ("retention.ms", ConfigEntry("5", is_read_only=True, source="DYNAMIC_TOPIC_CONFIG"), False),
        ("min.insync.replicas", ConfigEntry("2", source="DYNAMIC_TOPIC_CONFIG"), False),
        ("leader.replication.throttled.replicas", ConfigEntry("*", source="DYNAMIC_TOPIC_CONFIG"), False),
        ("unclean.leader.election.enable", ConfigEntry("true", source="DYNAMIC_TOPIC_CONFIG"), False),
        ("remote.storage.enable", ConfigEntry("true", source="DYNAMIC_TOPIC_CONFIG"), False),
    ],
)
def test_what_goes_over_follows_mirrormakers_rule(key, entry, carried):
    assert is_carried(key, entry) is carried


def test_while_held_the_sources_retention_waits_but_its_segments_go_over():
    source = configs(retention_ms="60000", cleanup_policy="compact", segment_bytes="5000000")
    held = overrides(source, hold=True)
    assert held == {**HELD_OPEN, "max.message.bytes": "1048588", "segment.bytes": "5000000"}


def test_afterwards_only_what_the_source_has_set_remains():
    source = configs(retention_ms="60000", cleanup_policy="compact", message_timestamp_type="LogAppendTime")
    assert overrides(source, hold=False) == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "60000",
    }


def held_target(**extra):
    return configs(**{k.replace(".", "_"): v for k, v in overrides(configs(), hold=True).items()}, **extra)


def test_a_held_target_needs_no_change_while_held():
    assert not diff(configs(retention_ms="60000"), held_target(), hold=True)


def test_a_target_created_by_hand_is_opened_without_touching_what_is_open_already():
    change = diff(configs(), configs(retention_ms="60000", compression_type="zstd"), hold=True)
    assert dict(change.set) == {
        "compression.type": "producer",
        "message.timestamp.after.max.ms": "9223372036854775807",
        "retention.ms": "-1",
    }
    assert change.delete == ()


def test_letting_go_restores_the_sources_values_and_removes_the_rest():
    change = diff(configs(retention_ms="60000"), held_target(), hold=False)
    assert dict(change.set) == {"retention.ms": "60000"}
    assert set(change.delete) == {*HELD_OPEN, "max.message.bytes"} - {"retention.ms"}
    after = configs(retention_ms="60000")
    assert not diff(configs(retention_ms="60000"), after, hold=False)


def test_letting_go_removes_the_hold_also_where_the_source_has_a_static_broker_value():
    change = diff(configs(static={"retention.ms": "60000"}), held_target(), hold=False)
    assert "retention.ms" in change.delete and "retention.ms" not in change.set


def test_what_is_default_on_the_source_is_removed_from_the_target():
    assert diff(configs(), held_target(segment_bytes="5000000"), hold=True).delete == ("segment.bytes",)


def test_an_excluded_key_of_the_target_is_left_alone():
    target = held_target(min_insync_replicas="2")
    assert not diff(configs(min_insync_replicas="3"), target, hold=True)


def test_a_key_to_keep_is_kept_at_the_end_but_held_open_before():
    target = configs(retention_ms="1234")
    assert "retention.ms" in diff(configs(), target, hold=True, keep=["retention.ms"]).set
    assert "retention.ms" not in diff(configs(), target, hold=False, keep=["retention.ms"]).delete


def test_a_chosen_value_that_equals_the_targets_default_is_chosen_there_too():
    assert dict(diff(configs(retention_ms="604800000"), configs(), hold=False).set) == {"retention.ms": "604800000"}


def test_a_readable_line_per_change_says_what_was_a_default():
    lines = diff(configs(retention_ms="60000"), configs(segment_bytes="7"), hold=False).lines("orders")
    assert lines == [
        "orders: retention.ms: 604800000 (default) -> 60000",
        "orders: segment.bytes: 7 -> the target's default",
    ]


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [("compact,delete", "delete, compact", True), ("1", "2", False), (None, None, True), (None, "", False)],
)
def test_values_are_compared_as_kafka_means_them(a, b, same):
    assert same_value(a, b) is same


def test_nothing_that_is_held_open_is_missing_from_the_goal():
    assert set(HELD_OPEN) <= set(goal(configs(), hold=False)) & set(goal(configs(), hold=True))
