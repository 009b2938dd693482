"""Keep the target's topic settings in line: on hold while the mirror writes, equal to the source's afterwards.

``diff`` (:mod:`airflow_mirror.plan.config_diff`) decides; ``sync_configs`` applies and reads back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.plan.config_diff import Change, ConfigDiff, diff
from airflow_mirror.plan.configs import Rules
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.target_configs import OwnConfigs, read_own_configs
from airflow_mirror.sync.topics import settle


class TopicConfigs(Protocol):
    """What tells the settings of topics."""

    def topic_configs(self, names: Collection[str]) -> Mapping[str, Mapping[str, ConfigEntry]]:
        """Return the effective settings of each topic, by key."""


@dataclass(frozen=True)
class ConfigsReport:
    """The differences between the target's topics and the rules.

    :param applied: the differences were removed, and that was read back; False for a dry run that found some.
    """

    hold: bool
    changes: tuple[Change, ...]
    applied: bool

    @property
    def drift(self) -> tuple[str, ...]:
        """One line per difference."""
        return tuple(map(str, self.changes))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {"hold": self.hold, "drift": list(self.drift), "applied": self.applied}


def sync_configs(
    plan: Plan, source: TopicConfigs, target: ClusterAdmin, permit: Permit, hold: bool = True, dry_run: bool = False
) -> ConfigsReport:
    """Bring the target's topic settings in line with the source's current ones, and read them back.

    :param source: the source, or what was last seen of it.
    :param permit: says that the topics are still as who calls has seen them: the mirror's, or in production.
    :param hold: see ``diff``. False once the mirror has stopped writing: restores retention, compaction, timestamp
        rules.
    :param dry_run: only report.
    :raises NotKept: a change is not visible when read back.
    """
    own = read_own_configs(target)
    found = _diffs(plan, source, target, hold, own)
    changes = tuple(one for topic, d in sorted(found.items()) for one in d.changes(topic))
    if dry_run:
        return ConfigsReport(hold, changes, applied=not changes)
    for topic, d in found.items():
        target.alter_topic_configs(topic, permit, d.set, d.delete)
    if found:
        settle(lambda: _left(plan, source, target, hold, own), "topic configs")
    return ConfigsReport(hold, changes, applied=True)


def _diffs(
    plan: Plan, source: TopicConfigs, target: ClusterAdmin, hold: bool, own: OwnConfigs | None
) -> dict[str, ConfigDiff]:
    here = source.topic_configs([t.source_topic for t in plan.topics])
    there = target.topic_configs([t.target_topic for t in plan.topics])
    rules = Rules.of(plan.mirror)
    found = {
        t.target_topic: diff(here[t.source_topic], there[t.target_topic], hold, own, rules, t.configs)
        for t in plan.topics
    }
    return {topic: d for topic, d in found.items() if d}


def _left(plan: Plan, source: TopicConfigs, target: ClusterAdmin, hold: bool, own: OwnConfigs | None) -> list[str]:
    return [str(one) for topic, d in _diffs(plan, source, target, hold, own).items() for one in d.changes(topic)]
