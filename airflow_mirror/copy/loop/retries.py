"""Decide what an error means for a partition, and when a failed partition is opened again. The clock is an argument."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.errors import (
    AuthenticationFailed,
    LeaseLost,
    LeaseUnconfirmed,
    MirrorError,
    MissingRight,
    SourceGone,
    TargetMoved,
    TryAgain,
)

log = logging.getLogger(__name__)

PATIENCE_S = 120.0  # how long a partition may make no progress while its brokers fail; elections take seconds
FORGIVEN_S = 60.0  # after being open this long, a partition's earlier failures no longer count
# The short ones for a leader that is being elected, the long ones for brokers that are down: each opening is seven to
# nine requests for them.
BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Verdict(Enum):
    """What an error of one partition leads to."""

    END_TASK = "end the task"
    STOP = "stop the partition"
    RETRY = "read the target's end again"
    WAIT = "the same, once the lease is confirmed; the partition itself has not failed"


def verdict(error: MirrorError, *, opened: bool = False) -> Verdict:
    """Decide what an error leads to.

    A moved end is retried: opening finds out if another copier of ours wrote (continue) or a foreign writer (stop).

    :param opened: the partition was open before. A right that it had then may be back in a moment: whoever replaces a
        rule deletes it first. One that it never had is missing until somebody grants it. Likewise a password, or a
        client's secret, that is refused: the next turn reads the settings again. And TLS: a certificate is renewed at
        its broker.
    """
    if isinstance(error, LeaseLost):
        return Verdict.END_TASK
    if isinstance(error, LeaseUnconfirmed):
        return Verdict.WAIT
    # Of `Fenced`, too, which is a TryAgain: who took the partition over either holds the lease, and ours ends with the
    # next check, or was an earlier copier of ours, and the opening takes it back.
    away = opened and isinstance(error, MissingRight | AuthenticationFailed)
    passes = isinstance(error, TryAgain | TargetMoved) or away
    return Verdict.RETRY if passes else Verdict.STOP


def ends_all(options: CopyOptions, error: MirrorError) -> bool:
    """Return whether one partition's error ends the task. A topic that is gone is no failure to send."""
    if isinstance(error, TryAgain):
        return options.aborts_when_given_up
    return options.abort_on_send_failure and not isinstance(error, SourceGone)


@dataclass
class _Record:
    """A partition's failures so far, in seconds of the clock. ``open_since`` is None while it is not open."""

    open_since: float | None = None
    failing_since: float = 0.0


class Retries:
    """Keeps the partitions that wait to be opened.

    :param clock: monotonic, in seconds.
    :param patience_s: how long a partition may make no progress.
    """

    def __init__(self, clock: Callable[[], float], patience_s: float = PATIENCE_S) -> None:
        self._clock, self._patience_s = clock, patience_s
        self._records: dict[PartitionCopy, _Record] = {}
        self._due: dict[PartitionCopy, float] = {}  # when each waiting partition is opened

    def opened(self, p: PartitionCopy) -> None:
        """Record that ``p`` is open."""
        self._record(p).open_since = self._clock()

    def again(self, p: PartitionCopy, cause: Exception | str) -> TryAgain | None:
        """Open ``p`` again after a growing pause; return an error if it has failed for too long.

        Call it before ``p`` drops what is in flight.
        """
        record, now = self._record(p), self._clock()
        if record.open_since is not None:
            open_s = now - record.open_since
            if open_s > FORGIVEN_S:
                p.failures = 0  # progress resets this too, but there may have been nothing to write
            elif _is_level(p):
                record.failing_since += open_s  # a rolling restart may take less than that for each broker
        record.open_since = None
        p.failures += 1
        if p.failures == 1:
            record.failing_since = now
        failing_s = now - record.failing_since
        # An error that is tried again: the next turn of the tail, or the next job, begins with the same look at the
        # logs.
        if failing_s > self._patience_s:
            return TryAgain(f"{p.range.source}: no progress for {failing_s:.0f} s", str(cause))
        level = logging.INFO if p.failures < 3 else logging.WARNING
        log.log(level, "%s: reading the target's end again (attempt %d): %s", p.range.source, p.failures, cause)
        # In memory alone: the next process opens each partition at once, and finds out for itself.
        self._due[p] = now + BACKOFF_S[min(p.failures, len(BACKOFF_S)) - 1]
        return None

    def now(self, partitions: Iterable[PartitionCopy]) -> None:
        """Open partitions at the next turn."""
        for p in partitions:
            self._due[p] = self._clock()

    def forgive(self, seconds: float) -> None:
        """Exclude a pause of the whole task from the patience for partitions that were failing before it."""
        for record in self._records.values():
            # Otherwise a pause of ten minutes would end each partition that had failed once before it.
            record.failing_since += seconds

    def take_due(self, may: Callable[[PartitionCopy], bool]) -> list[PartitionCopy]:
        """Remove and return the partitions whose pause is over, longest overdue first.

        :param may: returns whether a partition may be opened now; if not, it stays.
        """
        now = self._clock()
        due = sorted((p for p, at in self._due.items() if at <= now and may(p)), key=self._due.__getitem__)
        for p in due:
            del self._due[p]
        return due

    def pauses(self) -> Iterator[float]:
        """Yield each partition's remaining pause in seconds; 0 or less: no pause."""
        now = self._clock()
        return (at - now for at in self._due.values())

    def drop(self, p: PartitionCopy) -> None:
        """Forget ``p``, which has stopped."""
        self._records.pop(p, None)
        self._due.pop(p, None)

    def _record(self, p: PartitionCopy) -> _Record:
        return self._records.setdefault(p, _Record())


def _is_level(p: PartitionCopy) -> bool:
    """Return whether an open partition has all that its source's leader has, as that one has said since it is open."""
    return p.is_open and not p.is_behind and not p.is_unsettled
