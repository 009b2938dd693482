"""How a target topic's settings differ from what they must be, while a mirror writes and afterwards.

Pure. Who applies the difference is in :mod:`airflow_mirror.sync`; a plan asks beforehand whether the target takes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from airflow_mirror.kafka.model import ConfigEntry, NewConfigs
from airflow_mirror.plan.configs import LIMITS, Rules, goal, same_value, stays_compacted

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
class ConfigDiff(NewConfigs):
    """The changes to one target topic's settings.

    :param before: the effective values that these replace, by key; for display.
    """

    before: Mapping[str, str] = field(default_factory=dict)

    def without(self, keys: Collection[str]) -> ConfigDiff:
        """Return the rest of it."""
        to_set = {key: value for key, value in self.set.items() if key not in keys}
        return replace(self, set=to_set, delete=tuple(key for key in self.delete if key not in keys))

    def changes(self, topic: str) -> list[Change]:
        """Return what changes, one by one."""
        wanted = {**dict(sorted(self.set.items())), **dict.fromkeys(self.delete)}
        return [Change(topic, key, self.before.get(key), value) for key, value in wanted.items()]


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
        if rules.keeps(key) and not (hold and key in rules.held_keys):
            if not overridden or not rules.is_on_hold(key, target[key].value):
                continue
            value = (planned or {}).get(key)
        if hold and key == "cleanup.policy" and stays_compacted(source, target, rules):
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
