"""Faults that are injected on a topic of the drill's own, and whether anybody notices.

What counts as noticed is a finding of the mirror's health (:mod:`.jobs.health.judging`), as a person gets it by
CheckMirrorOperator and ``airflow-mirror status``, that was not there before the fault, and that can be the fault's. That
nobody could be asked is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from airflow_mirror.errors import InvalidField, MirrorError
from airflow_mirror.plan.findings import Finding, Unknown

RECREATE_TOPIC, KILL_TAIL = "recreate_topic", "kill_tail"
FAULTS = (RECREATE_TOPIC, KILL_TAIL)  # in this order: a tail that is dead notices nothing
NOTICE_S = 180.0  # a tail that fell silent is lost after thirty seconds, a topic is looked at every thirty
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault.

    :param inject: does it. :param shows: whether a finding can be this fault's.
    """

    name: str
    inject: Callable[[], object]
    shows: Callable[[Finding], bool]


def names_of(value: Any) -> list[str]:
    """Return the faults that a rendered argument names, in the order in which they are injected.

    :raises InvalidField: one is unknown.
    """
    wanted = [] if not value else [value] if isinstance(value, str) else list(value)
    if unknown := [name for name in wanted if name not in FAULTS]:
        raise InvalidField("rehearse", unknown, "no such fault", f"Use some of {', '.join(FAULTS)}.")
    return [name for name in FAULTS if name in wanted]


def kill_tail(inject: Callable[[], object]) -> Fault:
    """Return the fault of a tail that is killed with all its processes."""
    return Fault(name=KILL_TAIL, inject=inject, shows=lambda finding: finding.check == "tail" and _is_known(finding))


def recreate_topic(topic: str, inject: Callable[[], object]) -> Fault:
    """Return the fault of a source topic that is deleted and created again."""
    return Fault(
        name=RECREATE_TOPIC, inject=inject, shows=lambda finding: topic in finding.evidence and _is_known(finding)
    )


def _is_known(finding: Finding) -> bool:
    return not isinstance(finding, Unknown)


def planned(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of faults that nobody has injected yet: a drill that doesn't come to them has missed them."""
    return [{"fault": name, "at_ms": None, "noticed_s": None, "how": "it was not injected"} for name in names]


def rehearse(
    faults: Iterable[Fault],
    look: Callable[[], list[Finding]],
    timeout_s: float = NOTICE_S,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> list[dict[str, Any]]:
    """Inject one fault after the other, and wait each time until it is noticed; return a row for each.

    :param look: returns what is wrong with the mirror now.
    :param timeout_s: for one fault.
    :return: ``fault``; ``at_ms``, when it was injected; ``noticed_s``, after how long it was noticed, None if it was
        not; ``how``: the finding, or why there is none.
    """
    rows = []
    for fault in faults:
        (row,) = planned([fault.name])
        rows.append(row)
        known = {str(one) for one in look()}
        row["at_ms"], began = time.time_ns() // 1_000_000, clock()
        try:
            fault.inject()
        except MirrorError as e:
            row["how"] = f"it could not be injected: {e}"
            continue
        row["how"] = f"it was not noticed within {timeout_s:.0f} s"
        while row["noticed_s"] is None and clock() - began < timeout_s:
            new = [str(f) for f in look() if str(f) not in known and fault.shows(f)]
            if new:
                row["noticed_s"], row["how"] = round(clock() - began, 1), new[0]
            else:
                pause(_LOOK_EVERY_S)
    return rows
