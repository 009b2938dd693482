"""Which of two clusters applications write to: decided in the ledger of the one that becomes writable.

``direction/<mirror>`` has a generation, which grows with each change; of two ledgers that differ the higher one is right.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from airflow_mirror.ledger.decisions import Values
from airflow_mirror.ledger.kinds import known
from airflow_mirror.ledger.records import DIRECTION

FAILOVER, ROLLBACK = "failover", "rollback"
ARMED = "armed"  # as the old source notes it: no way back was armed there
_REVERSE = "-reverse"  # no dot: the names of a mirror's fences are told apart by one


@dataclass(frozen=True, kw_only=True)
class Direction:
    """What was decided about a mirror.

    :param primary: id of the cluster that applications write to. :param by: what decided it:
        ``failover``, or ``cutover`` or ``rollback`` (:mod:`airflow_mirror.cutover.rollback`); ``armed`` where the other
        cluster is the primary, and a mirror copies here what applications write there.
    :param attempt: names the record of it (:mod:`airflow_mirror.cutover.failover.record`), or the run.
    :param plan: hash of the plan whose topics are open; by a cutover, of the plan that copies back.
    :param at: ISO 8601.
    """

    generation: int
    primary: str
    by: str
    attempt: str
    plan: str
    at: str

    @property
    def opened_by(self) -> str:
        """By whom the topics were opened, as :class:`airflow_mirror.plan.owned.Owned` has it."""
        return f"{self.by} {self.attempt}"

    def value(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"v": DIRECTION.version, **asdict(self)}


def direction(values: Values, mirror: str) -> Direction | None:
    """Return what is decided about a mirror; None: its source is what applications write to, as since its beginning.

    :raises LedgerNewer: a newer version of the package wrote it.
    """
    return DIRECTION.load(known(Direction), values, mirror)


def generation(values: Values, mirror: str) -> int:
    """Return how often it was decided, about a mirror, which cluster applications write to; errors as there."""
    found = direction(values, mirror)
    return 0 if found is None else found.generation


def reverse_name(mirror: str) -> str:
    """Return the name of a mirror's reverse; that of a reverse is the mirror's own."""
    # Its own inverse: a rollback of a rollback finds the first mirror, its ledger keys and its lease again.
    return mirror.removesuffix(_REVERSE) if mirror.endswith(_REVERSE) else mirror + _REVERSE


def turn(mirror: str, one: Direction) -> Values:
    """Return what decides a mirror's direction, for a decision with more in it."""
    return {DIRECTION.key(mirror): one.value()}
