"""How one decides: append, read up to the own record, and make sure when an answer is lost.

An append without an answer may have happened, may happen later (a frozen process, a request that a proxy holds), or not
at all. A decision applies at its versions only. So whoever moves one of them, and has read that, knows: the decision was
read by now, or will never apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from airflow_mirror.errors import DecidedLate, LedgerLost, TryAgain, Undecided
from airflow_mirror.ledger.fold import Decision, Fold, Verdict, decode


class Log(Protocol):
    """The log of decisions, as one reader and writer sees it."""

    def append(self, value: bytes) -> int | None:
        """Append a record and return its offset; None when nobody knows whether it was appended, or will be."""

    def read(self, start: int) -> Iterable[tuple[int, bytes | None, int]]:
        """Yield offset, value and time (the broker's, in ms) of each record from ``start`` to what can't be lost any more
        at the moment."""


def catch_up(log: Log, fold: Fold) -> None:
    """Apply what was appended since, after a look at the last decision that was read: it must still be there.

    A log that can't be read that far at the moment proves nothing: a new leader may show its newest records late.

    :raises LedgerLost: another decision is in its place, or the log can't have been the one that was read.
    """
    for offset, value, appended_ms in log.read(max(fold.head.offset, 0)):
        # The first record that comes is the last decision that was read. A log that lost its end, and grew again, has
        # another one there: who went on would decide on what is no longer so.
        if offset >= fold.end:
            fold.apply(offset, value, appended_ms)
        elif offset == fold.head.offset:
            found = decode(value)
            if found is None or found.claim != fold.head.claim:
                raise LedgerLost(f"the decision {fold.head.claim} that was read at offset {offset} is not there any more")


def decide(
    log: Log,
    fold: Fold,
    change: Callable[[Mapping[str, Any]], Mapping[str, Any] | None],
    again: Callable[[], bool],
    until_ms: int | None = None,
) -> Mapping[str, Any] | None:
    """Decide on the newest state, again and again until nobody else was faster. Return what was set.

    :param change: the new values by key, from the present ones; None when there is nothing to change (any more). What
        it has looked up by ``get`` must be so still where the decision is appended; what it has walked through, only if
        it is set: there may be ten thousand topics.
    :param again: called before each further try; may wait. False: give up.
    :param until_ms: void if the broker appends it at this time of its clock, or later.
    :raises DecidedLate: it did. Nothing was changed.
    :raises Undecided: given up. A change that was on its way may still be applied.
    :raises TryAgain: of another type: what was decided until now can't be read. Nothing was changed.
    """
    while True:
        catch_up(log, fold)
        seen = _Seen(fold)
        # From here on others may append. What `change` has looked up is pinned by its version, so a decision that rests
        # on what was overtaken is refused where it is appended, however long this process was frozen in between.
        sets = change(seen)
        if sets is None:
            return None
        # Whoever dies before its record is appended has decided nothing; behind that the decision counts, whether this
        # process hears of it or not. So nothing that depends on it may be done before it was read back.
        verdict = settle(log, fold, fold.decision(sets, seen.versions, until_ms), again)
        if verdict is Verdict.APPLIED:
            return sets
        # For good: its deadline is the broker's time at the append, and its claim is spent. A frozen writer learns it
        # here.
        if verdict is Verdict.LATE:
            raise DecidedLate(sorted(sets))
        # Each try was refused, none is on its way: but that others go on being faster, a person should hear.
        if not again():
            raise Undecided(sorted(sets), "others were faster each time")


class _Seen(Mapping[str, Any]):
    """What is decided, and the versions of what was looked up in it by ``get``."""

    def __init__(self, fold: Fold) -> None:
        self._fold, self.versions = fold, dict[str, int]()

    def get(self, key: str, default: Any = None) -> Any:
        """See Mapping."""
        # Also of a key that is not there: whoever sets it first moves version 0.
        self.versions[key] = self._fold.version(key)
        return self._fold.values.get(key, default)

    def __getitem__(self, key: str) -> Any:
        # Not noted: `items` comes here for each key. Who rests a decision on one looks it up by `get`, or sets it.
        return self._fold.values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fold.values)

    def __len__(self) -> int:
        return len(self._fold.values)


def settle(log: Log, fold: Fold, decision: Decision, again: Callable[[], bool]) -> Verdict:
    """Append a decision and return whether it was applied, refused or late, for good.

    :param again: as for :func:`decide`.
    :raises Undecided: nobody knows; it may still be applied.
    """
    _append(log, fold, decision, again)
    while True:
        # By its claim, not by its offset: a proxy may have sent it twice, and a leader may answer one of two.
        verdict = fold.verdict(decision.claim)
        if verdict is not None:
            return verdict
        if not fold.can_still_apply(decision):
            return Verdict.REFUSED  # at whatever offset it comes
        if not again():
            raise Undecided(sorted(decision.sets), "no broker said whether the decision was appended")
        # Any key does, and one is enough. Dies before this: the decision may still be applied, and the next process
        # reads what became of it before it does anything. Behind it: it is read by now, or can't apply. Frozen here and
        # sent late, the bump itself is a compare-and-set on a value that stays.
        key = min(decision.sets)
        _append(log, fold, fold.decision({key: fold.values.get(key)}), again)  # the same value, the next version


def _append(log: Log, fold: Fold, decision: Decision, again: Callable[[], bool]) -> None:
    """Append a decision and read up to it; without an answer, as far as can be read."""
    offset = log.append(decision.encode())
    # Not appended again without an answer: it would be a second record of one claim. Reading tells whether it is there.
    while True:
        try:
            catch_up(log, fold)
            if offset is None or fold.end > offset:
                return
            cause = f"it is at offset {offset}, and what can be read ends at {fold.end}"  # a new leader shows it later
        except TryAgain as e:
            cause = str(e)
        if not again():
            raise Undecided(sorted(decision.sets), cause)
