"""The hold by the compaction lag: what a compacted topic has meanwhile and afterwards, and what it can't do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.config_diff import diff
from airflow_mirror.plan.configs import (
    BY_LAG,
    HELD_OPEN,
    Rules,
    cleaned_sides,
    cleaned_unplanned,
    held_values,
    is_held,
    may_compact,
    not_held,
)
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.holes import HoleSamples
from airflow_mirror.plan.inventory import need_keys
from airflow_mirror.plan.model import Capabilities, Plan
from tests.unit.plan.builders import DEFAULTS, a_cluster, a_mirror, a_topic, configs

NOW = datetime(2026, 11, 28, tzinfo=UTC)
LAGS = {"min.compaction.lag.ms": "0", "max.compaction.lag.ms": "9223372036854775807"}
OWN = {**DEFAULTS, **LAGS}
BOTH = "compact,delete"
HELD_LAG = BY_LAG["min.compaction.lag.ms"]
WORDS = "POLICY_VIOLATION: no"


def planned(policy: str, hold: str = "lag", spans: Any = ((0, 9),), own: dict[str, str] = OWN, **asked: str) -> Plan:
    source = a_topic(spans=spans, cleanup_policy=policy, min_compaction_lag_ms="5")
    target = a_cluster(cluster_id="c2", own_configs=own)
    return decide(a_mirror(compacted_hold=hold), a_cluster(source), target, (), NOW, None, Capabilities(**asked))


def found(plan: Plan) -> list[Finding]:
    return [finding for finding in plan.blocks if finding.check == "compacted"]


@pytest.mark.parametrize("policy", ["compact", BOTH])
def test_compacted_topic_keeps_its_policy_and_nothing_is_old_enough_for_the_cleaner(policy: str) -> None:
    (topic,) = planned(policy).topics
    held = {**HELD_OPEN, **BY_LAG, "cleanup.policy": policy}
    assert topic.held_configs.items() >= held.items()
    assert topic.configs["cleanup.policy"] == policy and topic.configs["min.compaction.lag.ms"] == "5"
    assert held_values(topic) == {key: (value,) for key, value in held.items()} and not may_compact(topic)
    there = configs(**{key.replace(".", "_"): value for key, value in topic.held_configs.items()})
    assert is_held(there, Rules(by_lag=True)) and not not_held(topic, there)
    changed = {**there, "min.compaction.lag.ms": ConfigEntry(value="5", source="DYNAMIC_TOPIC_CONFIG")}
    assert not_held(topic, changed) == [f"min.compaction.lag.ms is 5, must be {BY_LAG['min.compaction.lag.ms']}"]
    assert is_held(changed, Rules(by_lag=True)) is (policy == BOTH)


def test_hold_ends_with_the_lag_alone_and_the_policy_is_never_touched() -> None:
    source = configs(cleanup_policy="compact", min_compaction_lag_ms="5") | {
        "max.compaction.lag.ms": ConfigEntry(value=LAGS["max.compaction.lag.ms"], is_default=True)
    }
    new = {**configs(), **{key: ConfigEntry(value=value, is_default=True) for key, value in LAGS.items()}}
    rules = Rules(by_lag=True)
    on_hold = diff(source, new, True, OWN, rules).set
    assert on_hold["cleanup.policy"] == "compact" and on_hold["min.compaction.lag.ms"] == BY_LAG["min.compaction.lag.ms"]
    held = {**new, **{key: ConfigEntry(value=value, source="DYNAMIC_TOPIC_CONFIG") for key, value in on_hold.items()}}
    assert not diff(source, held, True, OWN, rules)
    ended = diff(source, held, False, OWN, rules)
    assert ended.set["min.compaction.lag.ms"] == "5" and "cleanup.policy" not in {*ended.set, *ended.delete}


def test_topic_that_only_deletes_is_held_as_ever() -> None:
    plan, usual = planned("delete"), planned("delete", hold="delete")
    assert plan.topics[0].held_configs == usual.topics[0].held_configs
    assert held_values(plan.topics[0]) == held_values(usual.topics[0])


def test_target_that_keeps_a_policy_blocks_the_hold_that_needs_a_change() -> None:
    (block,) = found(planned("compact", hold="delete", keeps_policy=WORDS))
    assert f"cleanup.policy change ({WORDS})" in block.evidence and "compacted_hold='lag'" in block.remedy
    assert not found(planned("compact", hold="delete")) and not found(planned("delete", "delete", keeps_policy=WORDS))
    assert not found(planned("compact", keeps_policy=WORDS))


def test_log_start_above_0_needs_a_policy_that_deletes() -> None:
    (block,) = found(planned("compact", spans=((5, 9),)))
    assert "DeleteRecords" in block.evidence and "orders" in block.evidence
    assert not found(planned(BOTH, spans=((5, 9),)))


def test_target_that_knows_no_lag_would_compact_while_history_arrives() -> None:
    (block,) = found(planned("compact", own=DEFAULTS))
    assert "knows no min.compaction.lag.ms" in block.evidence


def test_records_without_a_key_block_the_hold_that_compacts_meanwhile() -> None:
    """The copy met INVALID_RECORD at the first of them, after hours perhaps."""
    topics = {"orders": a_topic(cleanup_policy="compact"), "log": a_topic("log")}
    assert need_keys(a_mirror(compacted_hold="lag"), topics) == ["orders"] and not need_keys(a_mirror(), topics)
    samples = HoleSamples(keyless={"orders": 3})
    source, target = a_cluster(topics["orders"]), a_cluster(cluster_id="c2", own_configs=OWN)
    (block,) = found(decide(a_mirror(compacted_hold="lag"), source, target, (), NOW, samples))
    assert "INVALID_RECORD" in block.evidence and block.evidence.endswith("orders (3 records of a sample)")
    assert "as 'delete' (compacted_hold)" in block.remedy


@pytest.mark.parametrize("hold", ["delete", "lag"])
def test_target_without_policies_is_planned_for_all_the_same(hold: str) -> None:
    plan = planned("compact", hold, own={key: value for key, value in OWN.items() if key != "cleanup.policy"})
    assert "cleanup.policy" not in plan.topics[0].held_configs and not found(plan)


@pytest.mark.parametrize(
    ("policy", "hold", "there", "sides"),
    [
        ("delete", "delete", {"cleanup_policy": "compact"}, None),
        ("compact", "delete", {"cleanup_policy": "delete"}, ("source",)),
        ("compact", "delete", {"cleanup_policy": BOTH}, ("source", "target")),
        ("compact", "lag", {"cleanup_policy": "compact", "min_compaction_lag_ms": HELD_LAG}, ("source",)),
        ("compact", "lag", {"cleanup_policy": "compact", "min_compaction_lag_ms": "5"}, ("source", "target")),
    ],
    ids=["not compacted by plan", "on hold", "backlog arrived", "held by lag", "hold ended"],
)  # fmt: skip
def test_only_a_cleaner_that_may_run_by_plan_excuses_what_the_target_lacks(
    policy: str, hold: str, there: dict[str, str], sides: tuple[str, ...] | None
) -> None:
    plan = planned(policy, hold)
    (topic,) = plan.topics
    found = cleaned_sides(plan, {topic.target_topic: configs(**there)})
    assert found == ({} if sides is None else {topic.target_topic: sides})


def test_target_that_is_to_be_compacted_alone_is_cleaned_alone() -> None:
    """By its owner's choice (``keep_configs``), or by the target's default where the source's don't count."""
    plan = planned("delete", "delete")
    (topic,) = plan.topics
    name, both = topic.target_topic, ("source", "target")
    kept = replace(plan, topics=(replace(topic, configs={"cleanup.policy": "compact"}),))
    assert cleaned_sides(kept, {name: configs(cleanup_policy="compact")}) == {name: both}
    default = replace(plan, topics=(replace(topic, configs={}),))
    by_default = {"cleanup.policy": ConfigEntry(value="compact", is_default=True)}
    assert cleaned_sides(default, {name: by_default}) == {name: both}
    assert cleaned_sides(default, {name: configs(cleanup_policy="compact")}) == {}, "somebody has set it"


@pytest.mark.parametrize(("policy", "sides"), [("compact", ("source", "target")), ("delete", None)])
def test_target_that_shows_no_policies_may_have_been_cleaned_as_planned(
    policy: str, sides: tuple[str, ...] | None
) -> None:  # fmt: skip
    plan = planned(policy, "delete")
    (topic,) = plan.topics
    assert cleaned_sides(plan, {topic.target_topic: {}}) == ({} if sides is None else {topic.target_topic: sides})
    assert cleaned_unplanned(plan, {topic.target_topic: {}}) == set()
