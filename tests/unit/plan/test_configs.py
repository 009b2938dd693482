from __future__ import annotations

from typing import Any

import pytest

from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.config_diff import diff
from airflow_mirror.plan.configs import HELD_OPEN, Rules, goal, kept, left_out, overrides, same_value
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic, configs
from tests.unit.plan.test_checks import NOW

KEEPING = a_mirror(keep_configs=["retention.ms"])


def there(**configs: str) -> Any:
    return a_topic(spans=((0, 0), (0, 0), (0, 0)), **configs)


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
    assert Rules().carries(key, entry) is carried


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


KEEPS = Rules.of(a_mirror(keep_configs=["retention.ms", "segment.*"]))


def test_kept_key_is_held_open_and_gets_its_own_value_back() -> None:
    source, target = configs(retention_ms="9", segment_ms="8"), configs(retention_ms="1234")
    change = diff(source, target, hold=True, own=OWN, rules=KEEPS)
    assert change.set["retention.ms"] == "-1" and "segment.ms" not in change.set
    plan = kept(overrides(source, False, OWN, KEEPS), target, KEEPS)
    assert plan == {"retention.ms": "1234"}
    after = diff(source, held_target(), hold=False, own=OWN, rules=KEEPS, planned=plan)
    assert dict(after.set) == {"retention.ms": "1234"} and "retention.ms" not in after.delete
    back = diff(source, held_target(), hold=False, own=OWN, rules=KEEPS, planned={})
    assert "retention.ms" in back.delete  # it had none
    assert not diff(source, configs(retention_ms="77"), hold=False, own=OWN, rules=KEEPS, planned=plan)


def test_later_plan_knows_what_a_kept_key_was_before_the_hold() -> None:
    source, held = configs(retention_ms="9"), held_target(segment_bytes="7")
    assert kept({}, held, KEEPS, {"retention.ms": "1234", "segment.bytes": "1"}) == {
        "retention.ms": "1234", "segment.bytes": "7",
    }  # fmt: skip
    assert kept({}, held, KEEPS, {}) == {"segment.bytes": "7"}  # it was a default
    assert kept({"segment.bytes": "1"}, configs(), KEEPS) == {}
    first = decide(KEEPING, a_cluster(a_topic(retention_ms="9")), a_cluster(there(retention_ms="55")), (), NOW)
    earlier = first.final_configs
    assert earlier["orders"]["retention.ms"] == "55" and first.topics[0].held_configs["retention.ms"] == "-1"
    again = decide(
        KEEPING, a_cluster(a_topic(retention_ms="9")), a_cluster(there(retention_ms="-1")), (), NOW, earlier=earlier
    )
    assert again.final_configs == earlier
    new = decide(KEEPING, a_cluster(a_topic(retention_ms="9")), a_cluster(cluster_id="c2"), (), NOW)
    assert new.final_configs["orders"]["retention.ms"] == "9"  # a topic that the mirror creates begins like the source's
    assert source["retention.ms"].is_override


@pytest.mark.parametrize("hold", [True, False])
def test_excluded_key_is_not_carried_over_but_held_all_the_same(hold: bool) -> None:
    rules = Rules.of(a_mirror(exclude_configs=["retention[.].*", "max.message.bytes", "segment.ms"]))
    source = configs(retention_ms="9", segment_ms="8", segment_bytes="7000000", max_message_bytes="5")
    found = overrides(source, hold, OWN, rules)
    assert found == {"segment.bytes": "7000000", **(HELD_OPEN if hold else {})}
    assert left_out(source, None, rules) == {"max.message.bytes": "5", "retention.ms": "9", "segment.ms": "8"}


@pytest.mark.parametrize(
    ("defaults_from", "expected"),
    [
        ("auto", {"min.insync.replicas": "2", "retention.ms": "604800000"}),
        ("source", {"flush.ms": "60", "min.insync.replicas": "2", "retention.ms": "604800000"}),
        ("target", {}),
    ],
)
def test_defaults_are_the_sources_or_the_targets_as_asked(defaults_from: str, expected: dict[str, str]) -> None:
    """MirrorMaker 2's use.defaults.from, and between its two answers: what keeps and accepts records survives."""
    rules = Rules.of(a_mirror(use_defaults_from=defaults_from))
    source = configs(static={"min.insync.replicas": "2"})
    source["flush.ms"] = ConfigEntry(value="60", is_default=True, source="DEFAULT_CONFIG")
    own = {**OWN, "retention.ms": "3600000", "flush.ms": "30"}
    assert overrides(source, False, own, rules) == expected
    target = configs(retention_ms="5")
    assert ("retention.ms" in diff(source, target, hold=False, own=own, rules=rules).delete) is (
        defaults_from == "target"
    )


def test_limits_of_size_are_only_raised_while_held() -> None:
    """Batches that were written when the source accepted more may not be copied yet."""
    lower, higher = ({"max_message_bytes": size, "segment_bytes": size} for size in ("5000000", "9000000"))
    assert not diff(configs(**lower), held_target_with(higher), hold=True, own=OWN)
    assert set(diff(configs(**higher), held_target_with(lower), hold=True, own=OWN).set.values()) == {"9000000"}
    assert diff(configs(**lower), held_target_with(higher), hold=False, own=OWN).set["segment.bytes"] == "5000000"
    small = {**OWN, "segment.bytes": "1000000"}
    assert "segment.bytes" not in diff(configs(), held_target_with(lower), hold=True, own=small).delete


def held_target_with(values: dict[str, str]) -> dict[str, ConfigEntry]:
    return {**held_target(), **{key: e for key, e in configs(**values).items() if e.is_override}}


def test_chosen_value_equal_to_the_default_is_set_too() -> None:
    assert dict(diff(configs(retention_ms="604800000"), configs(), hold=False).set) == {"retention.ms": "604800000"}


def test_a_readable_line_per_change_says_what_was_a_default() -> None:
    changes = diff(configs(retention_ms="60000"), configs(segment_bytes="7"), hold=False, own=OWN).changes("orders")
    assert [str(one) for one in changes] == [
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
