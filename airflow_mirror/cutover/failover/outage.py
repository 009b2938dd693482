"""Is the source of a mirror lost? By the rule that keeps a failover from being done, for whoever watches a mirror.

What is told, and when it is told again, is decided by :class:`Told`, from what one look found. No clock there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from airflow_mirror.cutover.failover.tail_seen import tail_of
from airflow_mirror.cutover.platform import Side
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.runner.active import ActiveTail, active_tail
from airflow_mirror.jobs.runner.state import LOST, RUNNING
from airflow_mirror.ledger.state import State
from airflow_mirror.plan.owned import ended_by, mirrors
from airflow_mirror.sync.ends import notes

SOURCE_LOST, UNHEALTHY = "source lost", "mirror unhealthy"
KINDS = (SOURCE_LOST, UNHEALTHY)


@dataclass(frozen=True, kw_only=True)
class Outage:
    """Something that a person may want to fail a mirror over for.

    :param what: of :data:`KINDS`.
    :param since_ms: when the source was last seen, as the target's ledger has it (0: never); of a mirror that is
        unhealthy, when it was first found so. An outage that goes on keeps it, and a later one has another.
    :param evidence: for people.
    """

    what: str
    since_ms: int
    evidence: str


def source_lost(on: Side, noted: State, mirror: str, lost_after_s: float) -> Outage | None:
    """Return the outage if nobody has seen a mirror's source for ``lost_after_s``; None: it was seen, or nobody looks.

    A tail that was stopped, or has failed, says nothing of its source, unless it has missed it before. It may listen for
    half a minute.

    :param on: the target. :param noted: its state, of :func:`.notes.prefix`.
    :param lost_after_s: at least :data:`.active.SILENCE_S`, after which a failover is not refused.
    :raises InputError: the target knows no such mirror. :raises LedgerMissing: :raises LedgerLost: it has no ledger.
    """
    values = on.ledger.values()
    if mirror not in (known := mirrors(values)):
        raise InputError(
            f"the target knows no mirror {mirror!r}",
            f"it knows {', '.join(sorted(known)) or 'none'}",
            "Correct the name.",
        )
    tail = active_tail(values, mirror)
    # Cut over, failed over or retired behind this look: told once, in vain, and the failover finds it.
    if tail is None or ended_by(values, mirror):
        return None
    seen = notes.load(mirror, noted.read())
    # By the clocks of two hosts: good enough to call somebody, who decides by what the failover itself asks
    # (`Check.refusal`).
    age_s = None if seen is None else max(0.0, on.clock.time() - seen.at_ms / 1000)
    if age_s is not None and age_s < lost_after_s:
        return None  # whatever the tail says, and so without listening for it
    said = tail_of(on, tail)
    if seen is not None:  # only now: to find a plan all of the state is read
        seen = _of_this_round(on, tail, seen)
    missed_ms = None if seen is None else seen.missed_ms
    if said.saw(age_s, lost_after_s) or (said.status not in (RUNNING, LOST) and missed_ms is None):
        return None
    since_ms = 0 if seen is None else seen.at_ms
    last = f"the source was last seen at {_at(since_ms)}" if since_ms else "nobody has noted that the source was seen"
    missed = "" if missed_ms is None else f", and did not answer at {_at(missed_ms)}"
    return Outage(
        what=SOURCE_LOST, since_ms=since_ms, evidence=f"{last}{missed}; its tail on host {said.host!r} is {said.status}"
    )


def _of_this_round(on: Side, tail: ActiveTail, seen: notes.SourceEnds) -> notes.SourceEnds | None:
    try:
        # As it was made, which is read once.
        return notes.since(seen, on.plan(tail.name, tail.plan, tail.plan).created_at)
    except InputError:  # it is gone, or a newer version's: nobody knows, and an outage is told rather than not
        return seen


@dataclass(kw_only=True)
class Told:
    """Which outages were told, so that each is told once.

    :param ill_after_s: for so long a mirror has to be unhealthy.
    :ivar lost: ``since_ms`` of the last loss that was told, as it was found last. :ivar told: when that was told, until a
        look has found no loss; None: one has. :ivar ill: ``since_ms`` of an outage that was told, until the mirror was
        well again; None: it was. :ivar found: that of the first look that has found it unhealthy since it was well.
    """

    ill_after_s: float
    lost: int | None = None
    told: int | None = None
    ill: int | None = None
    found: int | None = None
    _looked_ms: int | None = field(default=None, repr=False)

    @classmethod
    def of(cls, kept: Mapping[str, Any], ill_after_s: float, now_ms: int) -> Told:
        """Return it as :meth:`kept` has it; older versions knew no ``found``, and no ``told``."""
        told = cls(ill_after_s=ill_after_s, **{key: kept.get(key) for key in ("lost", "told", "ill", "found")})
        told._begin_anew(told.found, now_ms)
        return told

    def _begin_anew(self, looked_ms: int | None, now_ms: int) -> None:
        # Nobody has looked for a while, or in vain, and it may have been well: of what was not told by then the time
        # begins anew.
        if self.ill is None and looked_ms is not None and now_ms - looked_ms > 2000 * self.ill_after_s:
            self.found = None

    def kept(self) -> dict[str, int | None]:
        """Return what another observer has to know, as JSON has it."""
        return {"lost": self.lost, "told": self.told, "ill": self.ill, "found": self.found}

    def news(self, found: Outage | None, now_ms: int) -> Outage | None:
        """Return what is to be told of what a look has found (None: the mirror is well).

        A loss is told although the mirror was unhealthy before: it is worse, and somebody may have decided not to act.
        """
        self._begin_anew(self._looked_ms, now_ms)
        self._looked_ms = now_ms
        if found is None or found.what != SOURCE_LOST:
            self.told = None
        if found is None:
            self.ill = self.found = None
            return None
        if found.what == SOURCE_LOST:
            # The tail notes its last look once it misses the source, perhaps behind the telling. Seen after the telling,
            # the source was back, also while nobody was looking.
            goes_on = self.told is not None and found.since_ms <= self.told
            if found.since_ms == self.lost or goes_on:
                # A tail that is started again within the outage ends `told`, since it may see the source: from then on
                # the loss is known by its last look alone.
                self.lost = found.since_ms
                return None
            self.lost = self.ill = found.since_ms
            self.told = now_ms
            return found
        if self.found is None:
            self.found = found.since_ms
        if self.ill is not None or now_ms - self.found < 1000 * self.ill_after_s:
            return None
        self.ill = self.found
        return replace(found, since_ms=self.ill)


def _at(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
