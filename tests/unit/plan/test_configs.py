from __future__ import annotations

from typing import Any

import pytest

from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.plan.configs import HELD_OPEN, goal, is_carried, left_out, overrides, same_value
from airflow_mirror.sync.configs import diff
from tests.unit.plan.builders import configs


@pytest.mark.parametrize(
    ("key", "entry", "carried"),
    [
        ("retention.ms", ConfigEntry(value="5", source="DYNAMIC_TOPIC_CONFIG"), True),
        ("retention.ms", ConfigEntry(value="5", source="DYNAMIC_DEFAULT_BROKER_CONFIG"), True),
        ("retention.ms", ConfigEntry(value="5", source="STATIC_BROKER_CONFIG"), True),
        ("preallocate", ConfigEntry(value="true", source="STATIC_BROKER_CONFIG"), False),
        ("retention.ms", ConfigEntry(value="5", is_default=True, source="DEFAULT_CONFIG"), True),
        ("retention.ms", ConfigEntry(value=None, is_sensitive=True, source="DYNAMIC_TOPIC_CONFIG"), False),
        ("retention.ms", ConfigEntry(value="5", is_read_only=True, source="DYNAMIC_TOPIC_CONFIG"), False),
        ("min.insync.replicas", ConfigEntry(value="2", source="STATIC_BROKER_CONFIG"), True),
        ("message.timestamp.difference.max.ms", ConfigEntry(value="5", source="DYNAMIC_TOPIC_CONFIG"), False),
        ("leader.replication.throttled.replicas", ConfigEntry(value="*", source="DYNAMIC_TOPIC_CONFIG"), False),
        ("unclean.leader.election.enable", ConfigEntry(value="true", source="DYNAMIC_TOPIC_CONFIG"), False),
        ("remote.storage.enable", ConfigEntry(value="true", source="DYNAMIC_TOPIC_CONFIG"), False),
    ],
)
def test_what_keeps_records_goes_over_and_the_rest_follows_mirrormaker(
    key: str, entry: ConfigEntry, carried: bool
) -> None:
    assert is_carried(key, entry) is carried


def test_source_retention_waits_while_held_but_segments_go_over() -> None:
    source = configs(retention_ms="60000", cleanup_policy="compact", segment_bytes="5000000")
    assert overrides(source, hold=True, own=OWN) == {
        **HELD_OPEN,
        "max.message.bytes": "1048588",
        "segment.bytes": "5000000",
    }


# A target whose owner chose nothing.
OWN = {key: entry.value for key, entry in configs().items()}


def test_released_target_gets_only_settings_it_lacks_by_default() -> None:
    source = configs(retention_ms="60000", cleanup_policy="compact", message_timestamp_type="LogAppendTime")
    assert overrides(source, hold=False, own=OWN) == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "60000",
    }


@pytest.mark.parametrize("hold", [True, False])
def test_what_the_source_takes_by_default_the_target_takes_too(hold: bool) -> None:
    """10 MB in the source's broker file against 1 MB in the target's: large records would be refused."""
    source = configs(static={"max.message.bytes": "10485760"})
    assert overrides(source, hold, OWN)["max.message.bytes"] == "10485760"


def test_what_the_source_keeps_by_default_the_target_keeps_too() -> None:
    """720 h in the source's broker file against 168 h in the target's: history would be deleted after the cutover."""
    source = configs(static={"retention.ms": "2592000000", "cleanup.policy": "compact", "min.insync.replicas": "2"})
    assert overrides(source, hold=False, own=OWN) == {
        "cleanup.policy": "compact",
        "min.insync.replicas": "2",
        "retention.ms": "2592000000",
    }


def test_source_default_wins_over_the_target_owners_choice() -> None:
    own = {**OWN, "retention.ms": "3600000", "max.message.bytes": "1000"}
    assert overrides(configs(), hold=False, own=own) == {"max.message.bytes": "1048588", "retention.ms": "604800000"}


def test_default_that_could_not_be_seen_is_written_down() -> None:
    assert overrides(configs(), hold=False, own={**OWN, "retention.ms": None}) == {"retention.ms": "604800000"}


def test_keys_the_target_lacks_are_left_out_and_listed() -> None:
    source = configs(retention_ms="5", vendor_placement="rack-1", message_format_version="2.8")
    own = {**OWN}
    assert set(overrides(source, hold=False, own=own)) == {"retention.ms"}
    assert left_out(source, own) == {"message.format.version": "2.8", "vendor.placement": "rack-1"}
    assert left_out(source) == {}


def test_one_limit_for_times_of_an_old_source_becomes_two() -> None:
    source = configs(message_timestamp_difference_max_ms="86400000")
    del source["message.timestamp.before.max.ms"], source["message.timestamp.after.max.ms"]
    assert overrides(source, hold=False, own=OWN) == {
        "message.timestamp.after.max.ms": "86400000",
        "message.timestamp.before.max.ms": "86400000",
    }


@pytest.mark.parametrize(("hold", "limit"), [(True, "9223372036854775807"), (False, "86400000")])
def test_two_time_limits_become_the_larger_on_old_targets(hold: bool, limit: str) -> None:
    old = {k: v for k, v in OWN.items() if not k.endswith((".before.max.ms", ".after.max.ms"))}
    old["message.timestamp.difference.max.ms"] = "9223372036854775807"
    source = configs(message_timestamp_before_max_ms="86400000")
    set_ = overrides(source, hold, old)
    assert set_["message.timestamp.difference.max.ms"] == limit
    assert not {"message.timestamp.before.max.ms", "message.timestamp.after.max.ms"} & set(set_)


def held_target(**extra: Any) -> dict[str, ConfigEntry]:
    return configs(**{k.replace(".", "_"): v for k, v in overrides(configs(), hold=True, own=OWN).items()}, **extra)


def test_a_held_target_needs_no_change_while_held() -> None:
    assert not diff(configs(retention_ms="60000"), held_target(), hold=True)


def test_target_made_by_hand_is_opened_without_further_changes() -> None:
    change = diff(configs(), configs(retention_ms="60000", compression_type="zstd"), hold=True)
    assert dict(change.set) == {
        "compression.type": "producer",
        "message.timestamp.after.max.ms": "9223372036854775807",
        "retention.ms": "-1",
    }
    assert change.delete == ()


def test_letting_go_restores_the_sources_values_and_removes_the_rest() -> None:
    change = diff(configs(retention_ms="60000"), held_target(), hold=False, own=OWN)
    assert dict(change.set) == {"retention.ms": "60000"}
    # The other overrides that held it open say what the source says by default; they may stay.
    assert change.delete == ("compression.type", "message.timestamp.after.max.ms")
    after = configs(retention_ms="60000")
    assert not diff(configs(retention_ms="60000"), after, hold=False)


def test_letting_go_sets_what_the_sources_broker_file_says() -> None:
    change = diff(configs(static={"retention.ms": "60000"}), held_target(), hold=False, own=OWN)
    assert dict(change.set) == {"retention.ms": "60000"} and "retention.ms" not in change.delete


def test_release_sets_kafkas_default_if_targets_was_not_seen() -> None:
    """Removing the override would put whatever the target's owner chose into force, before anybody could look."""
    change = diff(configs(), held_target(), hold=False)
    assert change.set["retention.ms"] == "604800000" and "retention.ms" not in change.delete


def test_override_with_the_sources_value_stays_despite_equal_default() -> None:
    """A topic made when the target's own values were not known must not be changed by every later look."""
    target = configs(**{k.replace(".", "_"): v for k, v in overrides(configs(), hold=True).items()})
    assert not diff(configs(), target, hold=True, own=OWN)


def test_nothing_is_left_to_do_after_letting_go() -> None:
    source = configs(static={"retention.ms": "60000"}, cleanup_policy="compact")
    kept = {k.replace(".", "_"): v for k, v in overrides(source, hold=False, own=OWN).items()}
    assert not diff(source, configs(**kept), hold=False, own=OWN)


def test_source_defaults_are_removed_from_the_target() -> None:
    source = configs()
    source["preallocate"] = ConfigEntry(value="false", is_default=True, source="DEFAULT_CONFIG")
    target = held_target(segment_bytes="5000000", preallocate="true")
    assert diff(source, target, hold=True, own=OWN).delete == ("preallocate", "segment.bytes")


def test_an_excluded_key_of_the_target_is_left_alone() -> None:
    target = held_target(unclean_leader_election_enable="true")
    assert not diff(configs(unclean_leader_election_enable="false"), target, hold=True)


def test_kept_key_is_held_open_before_and_kept_after() -> None:
    target = configs(retention_ms="1234")
    assert "retention.ms" in diff(configs(), target, hold=True, keep=["retention.ms"]).set
    assert "retention.ms" not in diff(configs(), target, hold=False, keep=["retention.ms"]).delete


def test_chosen_value_equal_to_the_default_is_set_too() -> None:
    assert dict(diff(configs(retention_ms="604800000"), configs(), hold=False).set) == {"retention.ms": "604800000"}


def test_a_readable_line_per_change_says_what_was_a_default() -> None:
    lines = diff(configs(retention_ms="60000"), configs(segment_bytes="7"), hold=False, own=OWN).lines("orders")
    assert lines == [
        "orders: retention.ms: 604800000 (default) -> 60000",
        "orders: segment.bytes: 7 -> the target's default",
    ]


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [("compact,delete", "delete, compact", True), ("1", "2", False), (None, None, True), (None, "", False)],
)
def test_values_are_compared_as_kafka_means_them(a: str | None, b: str | None, same: bool) -> None:
    assert same_value(a, b) is same


def test_nothing_that_is_held_open_is_missing_from_the_goal() -> None:
    assert set(HELD_OPEN) <= set(goal(configs(), hold=False)) & set(goal(configs(), hold=True))
