"""Watch that target topics stay on hold while a mirror writes to them.

These settings may have another owner too: a GitOps tool that sets ``retention.ms`` back every few minutes would delete
old records as they arrive. The watch sets a changed setting again and logs that. It can't win that race against an
owner who does not stop, so after a few times it raises an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from airflow_mirror.errors import LeaseLost, MirrorError, NeedsHuman, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.plan.configs import HELD_COMPACTED, held_values, same_value
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import require_listed
from airflow_mirror.sync.set_again import TIMES, SetAgain

log = logging.getLogger(__name__)

_POLICY = "cleanup.policy"
EVERY_S = 30.0  # brokers check retention every five minutes (log.retention.check.interval.ms)


class HoldWatch:
    """Checks the settings of a plan's target topics every :data:`EVERY_S`. For one thread.

    :param ids: of target topics, by name, as far as they are known: one that was created again is left alone.
    :param may_write: the permit; raises if this job is no longer the writer: its topics may be in production.
    :param clock: monotonic, in seconds.
    :ivar notes: settings that were set again, one line each.
    :ivar intact: for each target topic, whether its settings were found unchanged at the last look; empty before the
        first one, and when they could not be looked at. Another thread may read it.
    """

    def __init__(
        self, plan: Plan, target: ClusterAdmin, may_write: Callable[[], None],
        clock: Callable[[], float] = time.monotonic, ids: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._target, self._may_write, self._clock = target, may_write, clock
        self.follow(plan, ids)
        self._set_again = SetAgain(clock)
        self._looked = float("-inf")
        self._on_the_way: set[str] = set()  # topics that seemed to be, at the last look
        self.notes: list[str] = []
        self.intact: Mapping[str, bool] = {}

    def follow(self, plan: Plan, ids: Mapping[str, str] | None = None) -> None:
        """Check the topics of this plan from now on."""
        self._ids = ids
        self._held = {t.target_topic: held_values(t) for t in plan.topics}

    def look_in_turn(self) -> bool:
        """Check if it is time, and set changed settings again. Return whether any was changed.

        :raises NeedsHuman: a setting had already been set again :data:`.set_again.TIMES` times, and never stayed.
        :raises LeaseLost: this job is no longer the mirror's writer; nothing was set.
        """
        if self._clock() - self._looked < EVERY_S:
            return False
        self._looked = self._clock()
        try:
            changed = changed_settings(self._held, self._target, self._ids)
        except MirrorError as e:
            self.intact = {}
            if not isinstance(e, TryAgain):
                raise
            log.warning("settings of target topics were not checked: %s", e)
            return False
        changed = self._without_passing(changed)
        self.intact = {topic: topic not in changed for topic in self._held}
        if not changed:
            return False
        try:
            self._may_write()
        except LeaseLost:
            raise
        except TryAgain as e:
            log.warning("settings of target topics not set again: %s", e)
            return False
        for topic, keys in changed.items():
            self._restore(topic, keys)
        return True

    @property
    def restored(self) -> dict[str, int]:
        """For each target topic, how many settings were set back, each counted every time. Another thread may ask."""
        return {**dict.fromkeys(self._held, 0), **self._set_again.by_topic()}

    def _without_passing(self, changed: Mapping[str, Mapping[str, ConfigEntry]]) -> dict[str, dict[str, ConfigEntry]]:
        """Return changed settings without policies that may be on the way from one that is held to the other.

        Some clusters take ``compact,delete`` by way of ``compact`` alone (:mod:`airflow_mirror.kafka.configs`). Who sets
        that is another thread, for a moment: it would be set back amid that, and somebody be blamed.
        """
        # Longer it must not last: records can't be deleted by offset, and those without a key are refused. A cleaner
        # takes nothing meanwhile that it does not take of such a topic anyway.
        before, self._on_the_way = self._on_the_way, {t for t, keys in changed.items() if self._may_pass(t, keys)}
        new = self._on_the_way - before
        found = {t: {k: e for k, e in keys.items() if k != _POLICY or t not in new} for t, keys in changed.items()}
        return {topic: keys for topic, keys in found.items() if keys}

    def _may_pass(self, topic: str, changed: Mapping[str, ConfigEntry]) -> bool:
        return _POLICY in changed and changed[_POLICY].value == "compact" and HELD_COMPACTED in self._held[topic][_POLICY]

    def _restore(self, topic: str, changed: Mapping[str, ConfigEntry]) -> None:
        wanted = {key: self._held[topic][key][0] for key in changed}
        for key, entry in changed.items():
            if self._set_again.times(topic, key, wanted[key]) == TIMES:
                raise NeedsHuman(
                    f"target topic {topic!r}",
                    f"{key} is {entry.value} again, after it was set back to {wanted[key]} {TIMES} times. While the "
                    "mirror "
                    "writes, this value would delete, change or refuse records",
                    "Find out who sets it (a GitOps tool, an operator of the cluster), make them leave this topic alone, "
                    "then start the copy again and compare.",
                )
        try:
            self._target.alter_topic_configs(topic, self._may_write, wanted)
        except LeaseLost:
            raise
        except TryAgain as e:
            log.warning("settings of target topic %s not set again: %s", topic, e)
            return
        for key, entry in changed.items():
            times = self._set_again.count(topic, key, wanted[key])
            line = f"{topic}: {key} was changed to {entry.value}, set back to {wanted[key]}"
            self.notes.append(f"{line} ({times} of {TIMES} times)")
            log.warning("%s. Only a comparison finds what a broker deleted or changed meanwhile", self.notes[-1])


def changed_settings(
    held: Mapping[str, Mapping[str, Sequence[str]]], target: ClusterAdmin, ids: Mapping[str, str] | None = None
) -> dict[str, dict[str, ConfigEntry]]:
    """Return the settings of target topics that are not on hold, as they are there.

    :param held: by topic and key, the values that are. A topic that is not there has no settings.
    :param ids: of topics, by name, as far as they are known. Another topic of that name has no settings, either.
    :raises TryAgain: a broker does not list some that are there.
    """
    listed = target.topics(held)
    require_listed(held.keys(), listed, target)
    # A topic that was deleted, or created again, is reported by the task that copies it.
    there = [name for name, one in listed.items() if one.topic_id == ((ids or {}).get(name) or one.topic_id)]
    found = {
        topic: {
            key: entries[key]
            for key, values in held[topic].items()
            if key in entries and not any(same_value(entries[key].value, value) for value in values)
        }
        for topic, entries in target.topic_configs(there).items()
    }
    return {topic: keys for topic, keys in found.items() if keys}
