"""Settings of target topics: what differs is written and read back, or only told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

import pytest

from airflow_mirror.errors import NotKept
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.plan.configs import HELD_OPEN
from airflow_mirror.sync import configs
from airflow_mirror.sync.configs import ConfigsReport, sync_configs
from tests.unit.cutover.builders import a_plan

OVERRIDE, DEFAULT = "DYNAMIC_TOPIC_CONFIG", "DEFAULT_CONFIG"
DEFAULTS = {**HELD_OPEN, "retention.ms": "604800000", "cleanup.policy": "delete", "segment.bytes": "1073741824"}


class Cluster:
    """Topics with overrides, over the same defaults. ``deaf``: takes changes and keeps none."""

    def __init__(self, overrides: Mapping[str, Mapping[str, str]], deaf: bool = False) -> None:
        self.overrides = {name: dict(of) for name, of in overrides.items()}
        self.deaf, self.changes = deaf, 0

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
    monkeypatch.setattr(configs, "settle", lambda wrong, what: settle(wrong, what, within_s=0))


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
