"""How often settings were set that somebody else may set back.

A topic may have another owner: Strimzi, Terraform or another tool that keeps it as a file says. It can be recognised by
one thing alone, that a setting does not stay. Nobody wins that race, so who sets a setting stops after some times, and
names it.
"""

from __future__ import annotations

from collections import Counter

TIMES = 3


class SetAgain:
    """Counts, for each setting of a topic, how often it was set to its value; for another value from 0 on again."""

    def __init__(self) -> None:
        self._set: dict[tuple[str, str], tuple[str | None, int]] = {}

    def times(self, topic: str, key: str, value: str | None) -> int:
        """Return how often it was set to this value; None stands for no override."""
        there, times = self._set.get((topic, key), (value, 0))
        return times if there == value else 0

    def count(self, topic: str, key: str, value: str | None) -> int:
        """Count that it was set, and return how often by now."""
        times = self.times(topic, key, value) + 1
        self._set[topic, key] = value, times
        return times

    def by_topic(self) -> Counter[str]:
        """Return the sum over a topic's settings. Another thread may ask."""
        found: Counter[str] = Counter()
        for (topic, _), (_, times) in self._set.copy().items():
            found[topic] += times
        return found
