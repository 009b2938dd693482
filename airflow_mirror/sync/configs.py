"""Keep the target's topic settings in line: on hold while the mirror writes, equal to the source's afterwards.

``diff`` decides; ``sync_configs`` applies and reads back. The rules are in :mod:`airflow_mirror.plan.configs`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.plan.configs import HELD_OPEN, LIMITS, Rules, goal, is_on_hold, same_value, stays_compacted
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.target_configs import OwnConfigs, read_own_configs
from airflow_mirror.sync.topics import settle

_NOBODYS = ConfigEntry(value=None, is_default=True)
_USUAL = Rules()


class Change(NamedTuple):
    """A setting of a target topic that differs. As text, one readable line.

    :param before: the effective value that this replaces; ``after`` None: the target's own default applies.
    """

    topic: str
    key: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        """One readable line."""
        return f"{self.topic}: {self.key}: {self.before} -> {shown(self.after)}"


def shown(value: str | None) -> str:
    """Return the value of an override for people; None: there is none."""
    return "the target's default" if value is None else value


@dataclass(frozen=True)
class ConfigDiff:
    """The changes to one target topic's settings.

    :param set: overrides to write.
    :param delete: overrides to remove, so that the target's own default applies.
    :param before: the effective values that this replaces, by key; for display.
    """

    set: Mapping[str, str] = field(default_factory=dict)
    delete: tuple[str, ...] = ()
    before: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.set or self.delete)

    def changes(self, topic: str) -> list[Change]:
        """Return what changes, one by one."""
        wanted = {**dict(sorted(self.set.items())), **dict.fromkeys(self.delete)}
        return [Change(topic, key, self.before.get(key), value) for key, value in wanted.items()]


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


def diff(
    source: Mapping[str, ConfigEntry],
    target: Mapping[str, ConfigEntry],
    hold: bool,
    own: Mapping[str, str | None] | None = None,
    rules: Rules = _USUAL,
    planned: Mapping[str, str] | None = None,
) -> ConfigDiff:
    """Return the changes that bring ``target`` in line with ``source``.

    :param hold: True while the mirror writes: retention, compaction and timestamp rules are off.
    :param own: values that apply on the target without an override, as seen on another topic.
    :param planned: the overrides that the topic gets in the end, by the plan: what settings that it keeps were before
        the hold.
    """
    to_set, to_delete = {}, []
    for key, value in sorted(goal(source, hold, own_values(target, own), rules).items()):
        there = target.get(key)
        overridden = there is not None and there.is_override
        if rules.keeps(key) and not (hold and key in HELD_OPEN):
            if not overridden or not is_on_hold(key, target[key].value):
                continue
            value = (planned or {}).get(key)
        if hold and key == "cleanup.policy" and stays_compacted(source, target):
            continue
        if hold and key in LIMITS and _lowers(there, value or (own or {}).get(key)):
            continue
        if value is None:
            # An override with the source's value needs no change, even if it is also the target's default.
            survives = rules.default_survives(key) and not rules.keeps(key)
            needless = survives and key in source and same_value(target[key].value, source[key].value)
            if overridden and not needless:
                to_delete.append(key)
        elif there is None or not same_value(there.value, value):
            to_set[key] = value
        elif not hold and not overridden and not source.get(key, _NOBODYS).is_default:
            to_set[key] = value  # equal only by chance: the target's default may change, but a chosen value must not
    before = {key: _shown(target[key]) for key in (*to_set, *to_delete) if key in target}
    return ConfigDiff(to_set, tuple(to_delete), before)


def own_values(target: Mapping[str, ConfigEntry], own: Mapping[str, str | None] | None) -> dict[str, str | None]:
    """Return the keys that a target topic knows, with the values that apply there without an override; None: not seen.

    :param own: as seen on another topic.
    """
    return {key: (own or {}).get(key) if e.is_override else e.value for key, e in target.items()}


def _lowers(there: ConfigEntry | None, wanted: str | None) -> bool:
    """Return whether a limit would accept less, as far as is known."""
    return there is not None and there.value is not None and (wanted is None or int(wanted) < int(there.value))


def _shown(entry: ConfigEntry) -> str:
    return str(entry.value) if entry.is_override else f"{entry.value} (default)"


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
