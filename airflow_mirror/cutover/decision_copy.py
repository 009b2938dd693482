"""What is decided about a fence, kept in another ledger for the day on which the deciding one is lost."""

from __future__ import annotations

from airflow_mirror.cutover.decision import FenceState, fence_state, value_of
from airflow_mirror.errors import InputError
from airflow_mirror.ledger.decisions import Decisions, Values


def note_copy(there: Decisions, mirror: str, state: FenceState, older: FenceState | None = None) -> None:
    """Keep in another cluster's ledger what is decided about a fence, for the day on which the deciding one is lost.

    :param older: a copy of an earlier attempt's, which this one replaces.
    :raises InputError: what is there about a mirror of this name is decided there.
    """

    # A copy: nobody decides anything by it while the deciding ledger is there. It is written again at each change that
    # matters there, so a death before this leaves an older one, which names no rule that was never this fence's.
    def change(values: Values) -> Values | None:
        require_no_namesake(values, mirror, state, older)
        return None if fence_state(values, mirror) == state else value_of(mirror, state)

    there.decide(change)


def require_no_namesake(values: Values, mirror: str, state: FenceState, older: FenceState | None) -> None:
    """Return unless another mirror of this name has a fence where a copy of a fence is to be kept; see :func:`note_copy`.

    :raises InputError: it has.
    """
    found = fence_state(values, mirror)
    # Mirrors of one name in opposite directions: written over, the other one's fence would be nobody's.
    if found is not None and not found.is_over and found.id != state.id and found != older:
        raise InputError(
            f"mirror {mirror!r}: another mirror of this name, in the opposite direction, has a fence there",
            f"the fence of its cutover {found.run!r} {found.text}",
            "Lift that one ('airflow-mirror lift-fence', with --target that cluster); name mirrors differently.",
        )
