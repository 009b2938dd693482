"""Settings of target topics: what differs is written and read back, or only told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from airflow_mirror.errors import NotKept, RequestRefused, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry, TopicInfo
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.plan.configs import HELD_OPEN
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import Owned
from airflow_mirror.sync import configs, holding
from airflow_mirror.sync.configs import ConfigsReport, sync_configs
from airflow_mirror.sync.seen_configs import dump, prefix
from airflow_mirror.sync.topics import settle
from tests.unit.cutover.builders import a_plan
from tests.unit.ledger.memory import MemoryLedger, MemoryState

OVERRIDE, DEFAULT = "DYNAMIC_TOPIC_CONFIG", "DEFAULT_CONFIG"
DEFAULTS = {
    **HELD_OPEN, "retention.ms": "604800000", "cleanup.policy": "delete", "segment.bytes": "1073741824",
    "min.insync.replicas": "1",
}  # fmt: skip


class Cluster:
    """Topics with overrides, over the same defaults. ``deaf``: takes changes and keeps none."""

    def __init__(self, overrides: Mapping[str, Mapping[str, str]], deaf: bool = False) -> None:
        self.overrides = {name: dict(of) for name, of in overrides.items()}
        self.deaf, self.changes = deaf, 0
        self.refuses = ""  # a value

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, "", 1, 1) for name in names}

    def topic_names(self) -> list[str]:
        return sorted(self.overrides)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        return {
            name: {key: ConfigEntry(value=value, source=DEFAULT, is_default=True) for key, value in DEFAULTS.items()}
            | {key: ConfigEntry(value=value, source=OVERRIDE) for key, value in self.overrides[name].items()}
            for name in names
        }

    def alter_topic_configs(
        self, name: str, permit: Permit, set: Mapping[str, str], delete: Collection[str]
    ) -> None:  # fmt: skip
        permit()
        if self.refuses in set.values():
            raise RequestRefused("AlterConfigs", 44, "POLICY_VIOLATION", "not that long")
        self.changes += 1
        if not self.deaf:
            self.overrides[name] |= set
            for key in delete:
                del self.overrides[name][key]


def synced(source: Cluster, target: Cluster, **options: Any) -> ConfigsReport:
    both = cast("ClusterAdmin", source), cast("ClusterAdmin", target)
    return sync_configs(a_plan("orders", "users"), *both, unfenced, **options)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = configs.settle  # type: ignore[attr-defined]
    monkeypatch.setattr(configs, "settle", lambda wrong, what, going: settle(wrong, what, within_s=0, going=going))


@pytest.fixture
def source() -> Cluster:
    return Cluster({"orders": {"retention.ms": "86400000", "segment.bytes": "5000000"}, "users": {}})


def test_target_is_held_open_then_gets_source_settings(source: Cluster) -> None:
    target = Cluster({"orders": {}, "users": {"retention.ms": "1000"}})
    found = synced(source, target)
    assert found.applied and "users: retention.ms: 1000 -> -1" in found.drift
    for topic in ("orders", "users"):
        held = target.topic_configs([topic])[topic]
        assert {key: held[key].value for key in HELD_OPEN} == HELD_OPEN
    assert synced(source, target).drift == (), "nothing is left to do"
    changes = target.changes
    assert synced(source, target, hold=False, dry_run=True).drift and target.changes == changes
    assert synced(source, target, hold=False).applied
    here, there = source.topic_configs(["orders", "users"]), target.topic_configs(["orders", "users"])
    assert {t: {k: e.value for k, e in of.items()} for t, of in here.items()} == {
        t: {k: e.value for k, e in of.items()} for t, of in there.items()
    }
    assert synced(source, target, hold=False).drift == ()


def test_topic_that_is_compacted_again_is_left_so_while_held(source: Cluster) -> None:
    """Its backlog has arrived. Another one with that policy, as somebody has set it, is not on hold yet."""
    both = {"cleanup.policy": "compact,delete"}
    source.overrides["orders"]["cleanup.policy"] = source.overrides["users"]["cleanup.policy"] = "compact"
    target = Cluster({"orders": {**HELD_OPEN, **both}, "users": both})
    synced(source, target)
    assert [target.overrides[topic]["cleanup.policy"] for topic in ("orders", "users")] == ["compact,delete", "delete"]
    source.overrides["orders"]["cleanup.policy"] = "delete"
    synced(source, target)
    assert target.overrides["orders"]["cleanup.policy"] == "delete", "the source compacts it no longer"


def test_dry_run_tells_the_drift_and_changes_nothing(source: Cluster) -> None:
    target = Cluster({"orders": {}, "users": {}})
    told = synced(source, target, dry_run=True)
    assert not told.applied and any(line.startswith("orders: retention.ms: 604800000 (default)") for line in told.drift)
    assert target.changes == 0
    synced(source, target)
    assert synced(source, target, dry_run=True).applied, "there is none any more"


def test_change_that_does_not_show_is_an_error(source: Cluster) -> None:
    with pytest.raises(NotKept, match="topic configs: .*\n(.*\n)*  - orders: retention.ms"):
        synced(source, Cluster({"orders": {}, "users": {}}, deaf=True))


def test_who_must_not_wait_stops_reading_back(source: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def going() -> None:
        raise TryAgain("the job ends")

    monkeypatch.setattr(configs, "settle", settle)
    with pytest.raises(TryAgain, match="the job ends"):
        synced(source, Cluster({"orders": {}, "users": {}}, deaf=True), going=going)


def test_value_that_the_target_refuses_keeps_no_other_on_hold(source: Cluster) -> None:
    """A policy takes a year less than the source has: whoever waits for that has all topics in production on hold."""
    target = Cluster({"orders": {}, "users": {}})
    synced(source, target)
    target.refuses = "86400000"
    found = synced(source, target, hold=False)
    assert found.refused == ("orders: retention.ms: -1 -> 86400000: POLICY_VIOLATION: not that long",)
    assert target.overrides["orders"] == {"retention.ms": "-1", "segment.bytes": "5000000"}
    assert target.overrides["users"] == {"retention.ms": "604800000"}
    assert not any("orders: retention" in one for one in found.drift)
    target.refuses = "-1"
    with pytest.raises(RequestRefused):  # without its hold nothing is copied
        synced(source, target)


@pytest.mark.parametrize("hold", [True, False])
def test_more_replicas_in_sync_than_a_topic_has_are_left_out(source: Cluster, hold: bool) -> None:
    """The follower leaves them out while it copies, and each producer would be refused behind the opening."""
    target = Cluster({"orders": {}, "users": {}})
    source.overrides["users"]["min.insync.replicas"] = "2"
    found = synced(source, target, hold=hold)
    assert found.unfit == ("users: min.insync.replicas is 2 on the source, replicas here are 1",)
    assert "min.insync.replicas" not in target.overrides["users"]


@pytest.fixture
def of_source(monkeypatch: pytest.MonkeyPatch) -> MemoryLedger:
    ledger = MemoryLedger()
    monkeypatch.setattr(holding, "Ledger", lambda _: ledger)
    return ledger


def ended(plan: Plan, source: Cluster, target: Cluster, noted: Mapping[str, bytes] | None = None) -> ConfigsReport:
    """End the hold behind an opening of all that the plan has."""
    both, state = (cast("ClusterAdmin", source), cast("ClusterAdmin", target)), MemoryState()
    state.write(noted or {})
    return holding.end_hold(plan, *both, state, unfenced, dict.fromkeys(plan.final_configs, "monday"))


def copied_back(plan: Plan, **fields: Any) -> dict[str, Any]:
    one = Owned(topic_id="", mirror="flow-back", source_id=plan.target_cluster_id, **fields)
    return {f"topic/{t.source_topic}": one.value() for t in plan.topics}


def test_hold_of_a_way_back_is_not_the_sources_settings(source: Cluster, of_source: MemoryLedger) -> None:
    """A mirror that copies back holds the old source: taken for its settings, neither side would know them any more."""
    plan, target = a_plan("orders", "users"), Cluster({"orders": {}, "users": {}})
    synced(source, target)
    noted = {f"{prefix(plan.mirror.name)}orders": dump({"retention.ms": "86400000", "segment.bytes": "5000000"}, 2**60)}
    for topic in ("orders", "users"):
        source.overrides[topic] |= HELD_OPEN
    of_source.decide(lambda _: copied_back(plan))
    assert not [one for one in synced(source, target, hold=False, dry_run=True).drift if "retention.ms" in one]
    found = ended(plan, source, target, noted)
    assert target.overrides["orders"] == {"retention.ms": "86400000", "segment.bytes": "5000000"}
    assert "users: retention.ms: -1 -> the target's default" in found.drift and target.overrides["users"] == {}
    source.overrides["orders"] = {"retention.ms": "1000", "segment.bytes": "5000000"}  # not on hold: as it is
    assert ended(plan, source, target, noted).drift == ("orders: retention.ms: 86400000 -> 1000",)


EVER, YEAR = {"retention.ms": "-1"}, {"retention.ms": "31536000000"}


@pytest.mark.parametrize("back", [None, {"opened_by": "rollback monday", "opened_at": "noon"}], ids=["nobody", "over"])
@pytest.mark.parametrize(
    "now",
    [EVER, {**EVER, "cleanup.policy": "delete"}, {**YEAR, "retention.bytes": "-1"}, {**HELD_OPEN}],
    ids=["for ever", "and a policy", "a year, and any size", "as on hold"],
)
def test_settings_of_who_keeps_all_are_not_taken_for_a_hold(
    source: Cluster, of_source: MemoryLedger, now: dict[str, str], back: dict[str, str] | None
) -> None:
    """What was planned is stale, if no tail has followed the settings: brokers delete by it what the source keeps."""
    plan, target = a_plan("orders"), Cluster({"orders": dict(HELD_OPEN)})
    plan = replace(plan, topics=tuple(replace(t, configs={"retention.ms": "604800000"}) for t in plan.topics))
    source.overrides["orders"] = now
    if back is not None:  # it copied back, and a return has opened the topic for applications
        of_source.decide(lambda _: copied_back(plan, **back))
    ended(plan, source, target)
    there = target.topic_configs(["orders"])["orders"]
    assert {key: there[key].value for key in now} == now
