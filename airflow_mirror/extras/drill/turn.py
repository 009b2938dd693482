"""Whose drill runs: Airflows that drill the same target have one mirror for that, and must leave each other's alone.

Two of them, with the default schedule, begin in the same second, with the same run and the same topic. So whoever
begins a drill decides that it is its own, by a name that nobody else has. Any other stands back until that one has
cleaned up, or is dead: as old as what the next drill deletes (`clean_up.DEAD_AFTER_S`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mirror.errors import InputError
from airflow_mirror.extras.drill.clean_up import DEAD_AFTER_S
from airflow_mirror.ledger.records import DRILLING
from airflow_mirror.wording import minute

if TYPE_CHECKING:
    from airflow_mirror.ledger.decisions import Decisions, Values


def another(ledger: Decisions, values: Values, mirror: str, owner: str, now_s: float) -> str:
    """Return which drill of somebody else runs, for people; "" if none does.

    :param values: what is decided. :param owner: of who asks; "": it has begun none.
    :raises LedgerNewer: a newer version of the package wrote it.
    """
    there, begun_s = DRILLING.get(values, mirror), ledger.time_ms(DRILLING.key(mirror)) / 1000
    if there is None or there["owner"] == owner or now_s - begun_s >= DEAD_AFTER_S:
        return ""
    return (
        f"drill {there['run']} of mirror {mirror!r} runs since {minute(begun_s)}, and is another Airflow's: this one "
        "stands back. "
        f"If nothing of it runs any more, 'airflow-mirror drills --clean-up {there['run']}' ends it; a day after it "
        "began it counts as dead"
    )


def is_of(values: Values, mirror: str, run: str) -> bool:
    """Return whether the drill that runs is a run's, of whichever Airflow. Errors as :func:`another`."""
    there = DRILLING.get(values, mirror)
    return there is not None and there["run"] == run


def unrecognised(values: Values, mirror: str, run: str) -> InputError | None:
    """Return the error for a run that was cleared, and does not know whether the drill that runs is its own.

    :param values: what is decided. :param run: its own. None: it is another run's.
    """
    if not is_of(values, mirror, run):
        return None
    return InputError(
        f"drill {run} of mirror {mirror!r} has not ended",
        "it was begun by an earlier try of this run, of which Airflow has kept nothing, or by another Airflow with the "
        "same schedule. Nothing was touched",
        f"If nothing of it runs any more, type 'airflow-mirror drills --clean-up {run}', and clear this run again.",
    )


def begin(ledger: Decisions, mirror: str, run: str, owner: str, now_s: float) -> str:
    """Decide that the mirror's drill is this one's; where another one's runs, return what :func:`another` says instead.

    Dies behind it: the next try has the same name, and goes on.
    """
    found = ""

    def change(values: Values) -> Values | None:
        nonlocal found
        found = another(ledger, values, mirror, owner, now_s)
        there = DRILLING.get(values, mirror)
        if found or (there is not None and there["owner"] == owner):
            return None
        return DRILLING.put({"run": run, "owner": owner}, mirror)

    ledger.decide(change)
    return found


def end(ledger: Decisions, mirror: str, one: str) -> None:
    """Decide that a drill of the mirror has ended, if it is this one. :param one: its owner, or its run."""

    def change(values: Values) -> Values | None:
        there = DRILLING.get(values, mirror)
        return {DRILLING.key(mirror): None} if there is not None and one in (there["owner"], there["run"]) else None

    ledger.decide(change)
