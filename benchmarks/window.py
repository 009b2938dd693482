"""Which part of a run is measured. Arithmetic on what was seen: nothing is run or read here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SHORTEST_S = 10.0  # less than this behind the warm-up is the end of a topic, not a pace


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What was seen at one moment.

    :param at: seconds of a monotonic clock. :param records: on the target.
    :param cpu: CPU seconds of the copier by kind of process. :param brokers_s: CPU seconds of the brokers.
    """

    at: float
    records: int
    cpu: Mapping[str, float]
    brokers_s: float

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all processes of the copier."""
        return sum(self.cpu.values())


@dataclass(frozen=True)
class Window:
    """The part of a run that counts, in seconds from the first record on the target.

    :param warm_s: so much is left out first. :param length_s: what follows is measured for so long, or to the end.
    """

    warm_s: float = 0.0
    length_s: float = math.inf

    @property
    def over_s(self) -> float:
        """Seconds from the first record after which nothing more is measured."""
        return self.warm_s + self.length_s

    def of(self, moments: Sequence[Moment]) -> tuple[Moment, Moment]:
        """Return first and last moment of the part that counts.

        A run that ends during its warm-up, or within :data:`SHORTEST_S` behind it, is measured in the second half of its
        time: the warmest part that there is.

        :param moments: two or more, in order; the first is that of the first records, the last is the end.
        """
        first, last = moments[0], moments[-1]
        took = last.at - first.at
        after = self.warm_s if not self.warm_s or took >= self.warm_s + SHORTEST_S else took / 2
        begin = next((m for m in moments[:-1] if m.at - first.at >= after), moments[-2])
        return begin, last


WHOLE = Window()
"""From the first record to the last."""
