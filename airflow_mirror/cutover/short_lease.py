"""The tail's lease is short while a cutover runs (ADR 55): seen here, at its coordinator, and believed of nobody.

What counts is one description that stood for seven seconds: producer id, epoch and mark. Whoever changes the mark takes
an epoch, so that what is the same at both ends was the same in between.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import MirrorError
from airflow_mirror.wire.transactions import TransactionDescription


class ShortLease:
    """What a cutover has seen of the tail's lease. Only reads.

    :param ask: as :func:`.lease.seen_short`, of one mirror.
    :param clock: monotonic, in seconds.
    """

    def __init__(self, ask: Callable[[], TransactionDescription | None], clock: Callable[[], float]) -> None:
        self._ask, self._clock = ask, clock
        self._seen: TransactionDescription | None = None
        self._since = 0.0

    @property
    def is_seen(self) -> bool:
        """Whether the lease was short at the last look."""
        return self._seen is not None

    def look(self) -> None:
        """Note whether it is short, and since when that is known."""
        try:
            seen = self._ask()
        except MirrorError:  # what nobody can see is not short; a right that is missing is a finding of the preview
            seen = None
        if seen != self._seen:
            # Behind the answer: what was true when it was given is true from here on at the latest.
            self._seen, self._since = seen, self._clock()

    def wait(self, pause: Callable[[float], object]) -> None:
        """Wait, before the fence, until a lease that is short was so for long enough; not for one that is not.

        It costs nobody anything: producers write meanwhile.

        :param pause: waits so many seconds; what it raises ends this.
        """
        self.look()
        # A tail that begins a turn, or renews by another epoch, makes it begin anew: once, rather than for ever.
        until = self._clock() + 2 * lease.HANDOVER_S
        while self.is_seen and (left_s := self._since + lease.HANDOVER_S - self._clock()) > 0 and self._clock() < until:
            pause(left_s)
            self.look()

    @property
    def ripe(self) -> TransactionDescription | None:
        """The description behind which a taking waits for less: the one that was seen long enough ago."""
        # How it is now is looked at by the taking itself, right before its request.
        return self._seen if self.is_seen and self._clock() - self._since >= lease.HANDOVER_S else None
