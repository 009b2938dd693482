"""What takes a decision's place where nothing can be decided."""

from __future__ import annotations

from airflow_mirror.cutover import decision
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.errors import (
    MayBeOpen,
    TryAgain,
)
from airflow_mirror.kafka.permit import Permit, unfenced


def alone(raised: Raised, *, opened: bool, by_person: bool = False) -> Permit:
    """Return what takes a decision's place where nothing can be decided: at the source only this fence is named.

    :param opened: also if its opening is announced: the caller knows that it was not decided.
    :param by_person: somebody answers for a fence that has no name there.
    :raises MayBeOpen: nobody does. The permit raises it as well.
    """
    fence, run, role = raised.fence, raised.state.run, raised.on.source.admin.role
    if isinstance(fence, AclFence):
        return fence.alone(raised.mirror, raised.name, opened=opened)
    if by_person:
        return unfenced
    nameless = "nothing there names a callable's attempt"
    if not opened:
        raise MayBeOpen(run, role, nameless)
    decided = decision.permit(raised.on.target.ledger, raised.mirror, raised.state)

    # A callable leaves no name, and its owner may have slept: a guard has lifted it since, and another attempt, whose
    # fence is the same function, has opened the target behind it. A ledger that takes no records may be read yet.
    def still_up() -> None:
        try:
            decided()
        except TryAgain as e:
            raise MayBeOpen(run, role, f"{nameless}, and {e}") from e

    return still_up
