"""How often settings were set that somebody else may set back.

A topic may have another owner: Strimzi, Terraform or another tool that keeps it as a file says. It can be recognised by
one thing alone, that a setting does not stay. Nobody wins that race, so who sets a setting stops after some times, and
names it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

TIMES = 3
# What is set back nightly is counted on, whenever in the night that is. What has stayed for longer was changed once: by a
# monthly run, say, in a tail that lives for years.
STAYED_S = 2 * 24 * 3600.0


class SetAgain:
    """Counts, for each setting of a topic, how often it was set to its value.

    It counts from 0 on again for another value, and where the value had stayed for :data:`STAYED_S`, unless it had been
    set more than :data:`TIMES` times: who has given it up goes on so.

    :param clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._set: dict[tuple[str, str], tuple[str | None, int, float]] = {}
        self._of_topic: Counter[str] = Counter()

    def times(self, topic: str, key: str, value: str | None) -> int:
        """Return how often it was set to this value; None stands for no override."""
        there, times, at = self._set.get((topic, key), (value, 0, 0.0))
        stayed = times <= TIMES and self._clock() - at >= STAYED_S
        return times if there == value and not stayed else 0

    def count(self, topic: str, key: str, value: str | None) -> int:
        """Count that it was set, and return how often by now."""
        times = self.times(topic, key, value) + 1
        self._set[topic, key] = value, times, self._clock()
        self._of_topic[topic] += 1
        return times

    def by_topic(self) -> Counter[str]:
        """Return for each topic how often settings of it were set, ever. Another thread may ask."""
        return self._of_topic.copy()
