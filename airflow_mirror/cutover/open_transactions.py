"""No transaction holds a fenced partition: the marker of one that does would land behind the proven ends.

A transaction that has registered a partition and written nothing there does not hold back the last stable offset, so ends
and stable offsets agree. Its marker comes all the same, minutes later, and moves the source's log one offset beyond the
target's: nothing is lost, but a mirror back could not go on at identical offsets.

Registering a partition is authorised at the coordinator's broker. So a look counts only after every live broker lists
the fence (:mod:`.proof`), and only where no transaction can be hidden from us. Elsewhere the largest transaction timeout
would have to be waited for, which is 15 minutes by default; the report says instead that there is no identical way back.

Nothing here writes or changes anything: a process that dies leaves nothing to undo.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.fence import AclFence, Fence
from airflow_mirror.errors import TransactionsOpen
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.wording import some


def unseen_because(fence: Fence, source: ClusterAdmin) -> str:
    """Return why transactions may hold a partition unseen; "" if none can."""
    if isinstance(fence, AclFence):
        return source.transactions_hidden()
    return "the fence is callable: nobody knows whether it keeps transactions from registering partitions"


def look_for_unseen(attempt: Attempt) -> str:
    """As :func:`unseen_because`, right before the fence is raised, and warn of it."""
    if unseen := unseen_because(attempt.fence, attempt.source):
        attempt.log.warning("a transaction may end behind the fence, so there is no identical way back: %s", unseen)
    return unseen


def require_none_held(attempt: Attempt) -> None:
    """Return if no open transaction that is seen holds a fenced partition.

    :raises TransactionsOpen: one does, although every broker refuses to register more.
    """
    # Asked once more right before the opening: a look says what was open at its moment, and no more.
    if held := holders(attempt):
        raise TransactionsOpen(0.0, {}, held)


def holders(attempt: Attempt) -> list[str]:
    """Return the open transactions that have registered a fenced partition, as readable lines; none where any is unseen.

    :raises BrokerError: a coordinator does not answer.
    """
    assert attempt.report.fence is not None
    # Not "none": nobody can tell. It is in the report, and no way back is armed on it.
    if attempt.report.fence.unseen:
        return []
    lines = []
    # Asked of all coordinators; one that does not answer is an error, and no empty list.
    for txn in attempt.source.open_transactions():
        if held := sorted(txn.partitions & attempt.routes.keys()):
            since = datetime.fromtimestamp(txn.started_ms / 1000, UTC).isoformat(timespec="seconds")
            lines.append(
                f"transactional id {txn.transactional_id!r} (producer {txn.producer_id}, epoch {txn.epoch}, {txn.state} "
                f"since {since}) holds {some(map(str, held))}"
            )
    return lines
