"""Whether a cutover of a mirror is at work, as the mirror's tail hears it.

A cutover gives signs of life as a tail does, under the same keys, with a phase of their own. Nothing is decided by them:
while there are any the tail's lease is short (ADR 55), and whoever rests on that reads it at the lease's coordinator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from airflow_mirror.jobs.runner.active import Sign
from airflow_mirror.jobs.runner.state import FINAL
from airflow_mirror.ledger.records import SIGN

PHASE = "cutover"
SILENCE_S = 12.0  # after which a cutover counts as dead; an election takes nine seconds


class CutoverSigns:
    """Belongs to one thread, which looks every second or so.

    :param clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, str] = {}  # last sign by job
        self._heard = float("-inf")
        self._is_new = True

    def look(self, values: Mapping[str, bytes], mirror: str) -> bool:
        """Return whether a cutover has given a sign while we looked, within the last twelve seconds, and not its last.

        :param values: of the target's state, with the keys of the mirror's jobs.
        """
        seen, runs = dict[str, str](), False
        for job in SIGN.under(values, mirror):
            sign = Sign.decode(SIGN.at(values, mirror, job))
            if sign is not None and sign.phase == PHASE and sign.state not in FINAL:
                runs, seen[job] = True, f"{sign.number}/{sign.at}"
        # What stands there at our first look may have been left by one that was killed.
        if seen.items() - self._seen.items() and not self._is_new:
            self._heard = self._clock()
        self._seen, self._is_new = seen, False
        return runs and self._clock() - self._heard < SILENCE_S
