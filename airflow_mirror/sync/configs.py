"""Keep the target's topic settings in line: on hold while the mirror writes, equal to the source's afterwards.

``diff`` (:mod:`airflow_mirror.plan.config_diff`) decides; ``sync_configs`` applies and reads back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_mirror.errors import RequestRefused
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.plan.config_diff import Change, ConfigDiff, diff
from airflow_mirror.plan.configs import MIN_INSYNC, Rules
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.target_configs import read_own_configs
from airflow_mirror.sync.topics import Going, settle, still


class TopicConfigs(Protocol):
    """What tells the settings of topics."""

    def topic_configs(self, names: Collection[str]) -> Mapping[str, Mapping[str, ConfigEntry]]:
        """Return the effective settings of each topic, by key."""


@dataclass(frozen=True, kw_only=True)
class ConfigsReport:
    """The differences between the target's topics and the rules.

    :param applied: the differences were removed, and that was read back; False for a dry run that found some.
    :param refused: settings that the target refuses, with its words. :param unfit: settings of the source that would keep
        every producer from writing.
    :param left: settings of topics in production that differ, one line each: they are their owners' to set.
    """

    hold: bool
    changes: tuple[Change, ...]
    applied: bool
    refused: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def drift(self) -> tuple[str, ...]:
        """One line per difference."""
        return tuple(map(str, self.changes))

    @property
    def remarks(self) -> tuple[str, ...]:
        """One line per setting that stays as it is, and why."""
        return (
            *(f"refused: {line}" for line in self.refused),
            *(f"left out: {line}" for line in self.unfit),
            *(f"left alone, since it is in production: {line}" for line in self.left),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        lists = {"drift": self.drift, "refused": self.refused, "unfit": self.unfit, "left": self.left}
        return {"hold": self.hold, "applied": self.applied, **{name: list(lines) for name, lines in lists.items()}}


def sync_configs(
    plan: Plan, source: TopicConfigs, target: ClusterAdmin, permit: Permit, hold: bool = True, dry_run: bool = False,
    going: Going = still,
) -> ConfigsReport:  # fmt: skip
    """Bring the target's topic settings in line with the source's current ones, and read them back.

    :param source: the source, or what was last seen of it.
    :param permit: says that the topics are still as who calls has seen them: the mirror's, or in production.
    :param hold: see ``diff``. False once the mirror has stopped writing: restores retention, compaction, timestamp
        rules. A setting that the target refuses keeps no other one from being set then: it is in the report.
    :param dry_run: only report. :param going: see :func:`settle`.
    :raises NotKept: a change is not visible when read back.
    :raises RequestRefused: the target refuses one of the hold.
    """
    sides = _Sides(plan, source, target, hold)
    found = sides.diffs()
    changes = tuple(one for topic, d in sorted(found.items()) for one in d.changes(topic))
    if dry_run:
        return ConfigsReport(hold=hold, changes=changes, applied=not changes, unfit=tuple(sides.unfit))
    for topic, d in found.items():
        sides.alter(topic, d, permit)
    if found:
        settle(sides.left, "topic configs", going=going)
    done = tuple(one for one in changes if one.key not in sides.refused.get(one.topic, {}))
    refused = tuple(line for its in sides.refused.values() for line in its.values())
    return ConfigsReport(hold=hold, changes=done, applied=True, refused=refused, unfit=tuple(sides.unfit))


def unfit_in_sync(target: ClusterAdmin, wished: Mapping[str, int]) -> dict[str, str]:
    """Return the topics that have fewer replicas than are wished in sync, with a line for each: nobody could write there.

    :param wished: ``min.insync.replicas`` by target topic.
    """
    several = {topic: number for topic, number in wished.items() if number > 1}
    return {
        topic: f"{topic}: {MIN_INSYNC} is {several[topic]} on the source, replicas here are {info.replication_factor}"
        for topic, info in (target.topics(list(several)) if several else {}).items()
        if several[topic] > info.replication_factor
    }


class _Sides:
    """What differs between the two sides, and what was not taken.

    :ivar refused: a line for each setting, by topic. :ivar unfit: as of the last look.
    """

    def __init__(self, plan: Plan, source: TopicConfigs, target: ClusterAdmin, hold: bool) -> None:
        self._plan, self._source, self._target, self._hold = plan, source, target, hold
        self._own, self._rules = read_own_configs(target), Rules.of(plan.mirror)
        self.refused: dict[str, dict[str, str]] = {}
        self.unfit: list[str] = []

    def diffs(self) -> dict[str, ConfigDiff]:
        """Return what is to be set, by target topic."""
        here = self._source.topic_configs([t.source_topic for t in self._plan.topics])
        there = self._target.topic_configs([t.target_topic for t in self._plan.topics])
        found = {
            t.target_topic: diff(
                here[t.source_topic], there[t.target_topic], self._hold, self._own, self._rules, t.configs
            )
            for t in self._plan.topics
        }
        for topic, its in self.refused.items():
            found[topic] = found[topic].without(its)
        unfit = unfit_in_sync(self._target, {topic: int(d.set.get(MIN_INSYNC, 0)) for topic, d in found.items()})
        for topic in unfit:
            found[topic] = found[topic].without([MIN_INSYNC])
        self.unfit = list(unfit.values())
        return {topic: d for topic, d in found.items() if d}

    def alter(self, topic: str, d: ConfigDiff, permit: Permit) -> None:
        """Set a topic's settings: together, and where the target refuses them, one by one."""
        try:
            self._target.alter_topic_configs(topic, permit, d.set, d.delete)
        except RequestRefused as e:
            # Without the hold nothing may be copied. Its end is not to wait for one value that a policy does not take:
            # behind an opening applications write into what nobody deletes.
            if self._hold:
                raise
            keys = [*d.set, *d.delete]
            for key in keys if len(keys) > 1 else ():
                self.alter(topic, d.without([one for one in keys if one != key]), permit)
            if len(keys) == 1:
                self.refused.setdefault(topic, {})[keys[0]] = f"{d.changes(topic)[0]}: {e.name}: {e.detail}"

    def left(self) -> list[str]:
        """Return what still differs."""
        return [str(one) for topic, d in self.diffs().items() for one in d.changes(topic)]
