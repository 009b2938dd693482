"""Which of two clusters applications write to: decided in the ledger of the one that becomes writable.

``direction/<mirror>`` has a generation, which grows with each change; of two ledgers that differ the higher one is right.
A failover sets it together with ``active/<mirror>`` (no tail is the mirror's any more) and with the topics that are open
from then on, in one record: production follows from it, and every hold and every start of a job asks for that.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import LedgerNewer
from airflow_mirror.jobs.runner.active import ended
from airflow_mirror.plan import life

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mirror.ledger.decisions import Decisions, Values
    from airflow_mirror.plan.model import Plan

_VERSION = 1
FAILOVER = "failover"


@dataclass(frozen=True, kw_only=True)
class Direction:
    """What was decided about a mirror.

    :param primary: id of the cluster that applications write to. :param by: what decided it:
        ``failover``, or ``cutover`` or ``rollback`` (:mod:`airflow_mirror.rollback`); ``armed`` where the other cluster
        is the primary, and a mirror copies here what applications write there.
    :param attempt: names the record of it (:mod:`.record`), or the run. :param plan: hash of the plan whose topics are
        open; by a cutover, of the plan that copies back.
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
        """By whom the topics were opened, as :class:`airflow_mirror.plan.life.Owned` has it."""
        return f"{self.by} {self.attempt}"

    def value(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"v": _VERSION, **asdict(self)}


def direction(values: Values, mirror: str) -> Direction | None:
    """Return what is decided about a mirror; None: its source is what applications write to, as since its beginning.

    :raises LedgerNewer: a newer version of the package wrote it.
    """
    value = values.get(_key(mirror))
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("v") != _VERSION:
        raise LedgerNewer(f"the direction of {mirror!r}", value)
    return Direction(**{key: value[key] for key in Direction.__dataclass_fields__})


def turn(mirror: str, one: Direction) -> Values:
    """Return what decides a mirror's direction, for a decision with more in it."""
    return {_key(mirror): one.value()}


def promote(
    ledger: Decisions, plan: Plan, topic_ids: Mapping[str, str], wanted: Direction, before: Direction | None
) -> Direction:
    """Decide that applications write to the plan's target topics, and that no tail does. Safe to repeat.

    :param topic_ids: of the target topics that are there, by name.
    :param before: what was decided when ``wanted`` was made; ``wanted`` itself, to complete it.
    :return: what is decided, which is what somebody else has if they were faster.
    :raises TopicsOwned: some belong to other mirrors. :raises TopicsShared: so do all of them. Nothing was decided.
    """
    name = plan.mirror.name

    def change(values: Values) -> Values | None:
        found = direction(values, name)
        one = wanted if found is None or found == before else found
        opened = life.opening(values, plan, topic_ids, one.opened_by, one.at)
        if found == one:
            return opened  # more topics than one decision holds
        return {**turn(name, one), **ended(name), **(opened or {})}

    while ledger.decide(change) is not None:
        pass
    found = direction(ledger.values(), name)
    assert found is not None
    return found


def _key(mirror: str) -> str:
    return f"direction/{mirror}"
