"""What refused a mirror's last plan, preview or cutover: a record for people, by which nothing goes.

A plan that is blocked is kept nowhere, and what a cutover refuses before its fence is in no report: a mirror whose
preview refuses looked well to everybody but the readers of that task's log. A record is kept for each kind of task, and
is removed by the next task of its kind that is not refused.

Nothing is created for it, and nothing is written of a mirror that the ledger does not know: its retirement would not find
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields

from airflow_mirror.common.policy import STATE
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger import decisions, state
from airflow_mirror.ledger.kinds import known
from airflow_mirror.ledger.records import REFUSED
from airflow_mirror.ledger.state import State
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.ledger_store import last_hash

UNKEPT = "kafka_mirror_refused"  # key of the XCom that a task leaves where no ledger knows its mirror
PLANNING, PREVIEW, CUTOVER = KINDS = ("plan", "preview", "cutover")
MOST = 20  # findings
_LONGEST = 600  # of a text in them
_PARTS = {one.name for one in fields(Finding)}
_END_S = 253_402_300_800  # of the year 9999
_PATIENCE_S = 5.0  # of a task that has something else to say


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """What refused a task.

    :param by: the task, for people. :param at: seconds since the epoch, by its clock.
    :param findings: what blocks, as fields of a :class:`.Finding`. :param left: how many more there were.
    """

    by: str
    at: float
    findings: tuple[Mapping[str, str], ...]
    left: int = 0

    def __post_init__(self) -> None:
        """Refuse what no task writes, and no page or console could show."""
        if not 0 <= self.at < _END_S or any({*one} != _PARTS for one in self.findings):
            raise ValueError("no refusal")

    @classmethod
    def of(cls, findings: Iterable[Finding], by: str, at: float) -> Refusal:
        """Return one of findings, small enough for a record."""
        every = list(findings)
        cut = tuple({key: str(value)[:_LONGEST] for key, value in asdict(one).items()} for one in every[:MOST])
        return cls(by=by, at=at, findings=cut, left=len(every[MOST:]))


def note(state: State, mirror: str, kind: str, refusal: Refusal) -> None:
    """Keep what refused a task. :param kind: of :data:`KINDS`."""
    state.write(REFUSED.put(asdict(refusal), mirror, kind))


def forget(state: State, mirror: str, kind: str) -> None:
    """Remove what refused the task before: one of its kind was not refused. Writes nothing where there is nothing."""
    if REFUSED.at(state.read(), mirror, kind) is not None:
        state.write({REFUSED.key(mirror, kind): None})


def refusals(values: Mapping[str, bytes], mirror: str) -> dict[str, Refusal]:
    """Return what is kept of a mirror, by kind. :raises LedgerNewer: a newer version of the package wrote it."""
    found = {kind: REFUSED.load(known(Refusal), values, mirror, kind) for kind in KINDS}
    return {kind: one for kind, one in found.items() if one is not None}


def keep_on(target: ClusterAdmin, mirror: str, kind: str, refusal: Refusal | None) -> bool:
    """Note what refused a task on its target, or forget it (None); nothing where the ledger does not know the mirror.

    :return: whether it knows it.
    """
    if STATE not in target.topics([STATE]) or last_hash(decisions.Ledger(target).values(), mirror) is None:
        return False
    kept = state.state_of(target, REFUSED.below(mirror), patience_s=_PATIENCE_S)
    if refusal is None:
        forget(kept, mirror, kind)
    else:
        note(kept, mirror, kind, refusal)
    return True
