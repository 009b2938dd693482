"""The last that was seen of the source's topic settings: what a target gets when its source is lost.

Settings on hold apply when the hold ends, with the values of that moment: they are read from the source then. In a
disaster there is no source. So whoever lets settings follow notes in the target's state what a topic would get, once that
is no longer what the plan says. A note that is older than the plan says nothing: the plan has read the source later.

Once the hold has ended behind an opening the note says of which one. From then on the settings are chosen by whoever has
the topic in production: who ends the hold once more, a task that is cleared weeks later, finds that it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from datetime import datetime

from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.ledger.records import CONFIGS
from airflow_mirror.plan.configs import Rules, is_held
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.configs import TopicConfigs

prefix = CONFIGS.below  # of a mirror; the name of the target topic follows


def dump(configs: Mapping[str, str], at_ms: int, ended: str | None = None) -> bytes:
    """Return a note as JSON: the overrides that a target topic would get, seen at that time.

    :param ended: the opening behind which it has got them (:attr:`airflow_mirror.plan.owned.Owned.opening`).
    """
    return CONFIGS.encode({"at": at_ms, "configs": configs} | ({} if ended is None else {"ended": ended}))


def ended(mirror: str, openings: Mapping[str, str], noted: Mapping[str, bytes]) -> Set[str]:
    """Return the target topics whose hold has ended behind these openings. One that a rollback took back has others."""
    notes = {topic: CONFIGS.get(noted, mirror, topic) for topic in openings}
    return {topic for topic, note in notes.items() if note is not None and note.get("ended") == openings[topic]}


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
        self.overrides = {t.source_topic: seen[t.target_topic] for t in plan.topics}

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        """Return the settings that somebody chose, as far as is known. All others are defaults there."""
        return {name: {key: _chosen(value) for key, value in self.overrides[name].items()} for name in names}


class Released:
    """The source behind an opening: of a topic that a mirror which copies back has put on hold there, what was last seen.

    :param rules: of the mirror, by which its reverse holds topics as well.
    :param copied_back: returns those of some topics that belong to such a mirror. Settings alone don't tell: whoever
        keeps a topic for ever chooses the same ones.
    """

    def __init__(
        self, source: TopicConfigs, seen: LastSeen, rules: Rules,
        copied_back: Callable[[Collection[str]], Collection[str]],
    ) -> None:  # fmt: skip
        self._source, self._seen, self._rules, self._copied_back = source, seen, rules, copied_back

    def topic_configs(self, names: Collection[str]) -> dict[str, Mapping[str, ConfigEntry]]:
        """Return the effective settings of each topic, as they are without that hold."""
        # At each look: the hold may begin between two of them. The settings first: a topic is a mirror's before its hold.
        here = self._source.topic_configs(names)
        held = [name for name in self._copied_back(names) if is_held(here[name], self._rules)]
        return {**here, **self._seen.topic_configs(held)}


def _chosen(value: str) -> ConfigEntry:
    return ConfigEntry(value=value, source="DYNAMIC_TOPIC_CONFIG")
