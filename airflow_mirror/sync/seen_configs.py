"""The last that was seen of the source's topic settings: what a target gets when its source is lost.

Settings on hold apply when the hold ends, with the values of that moment: they are read from the source then. In a
disaster there is no source. So whoever lets settings follow notes in the target's state what a topic would get, if it is
no longer what the plan says. A note that is older than the plan says nothing: the plan has read the source later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.ledger.records import CONFIGS
from airflow_mirror.plan.model import Plan

prefix = CONFIGS.below  # of a mirror; the name of the target topic follows


def dump(configs: Mapping[str, str], at_ms: int) -> bytes:
    """Return a note as JSON: the overrides that a target topic would get, seen at that time."""
    return CONFIGS.encode({"at": at_ms, "configs": configs})


def last_seen(plan: Plan, noted: Mapping[str, bytes]) -> dict[str, Mapping[str, str]]:
    """Return the overrides that each target topic gets in the end, as far as is known.

    :param noted: values of the target's state.
    :raises LedgerNewer: a newer version of the package wrote a note: what its topic gets is not known.
    """
    planned_ms = datetime.fromisoformat(plan.created_at).timestamp() * 1000
    found = dict(plan.final_configs)
    for topic in found:
        note = CONFIGS.get(noted, plan.mirror.name, topic)
        if note is not None and note["at"] >= planned_ms:
            found[topic] = note["configs"]
    return found


class LastSeen:
    """Stands for a source that is lost; see :class:`airflow_mirror.sync.configs.TopicConfigs`.

    :param noted: values of the target's state.
    """

    def __init__(self, plan: Plan, noted: Mapping[str, bytes]) -> None:
        seen = last_seen(plan, noted)
        self._seen = {t.source_topic: seen[t.target_topic] for t in plan.topics}

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        """Return the settings that somebody chose, as far as is known. All others are defaults there."""
        return {name: {key: _chosen(value) for key, value in self._seen[name].items()} for name in names}


def _chosen(value: str) -> ConfigEntry:
    return ConfigEntry(value=value, source="DYNAMIC_TOPIC_CONFIG")
