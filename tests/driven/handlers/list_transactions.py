"""ListTransactions 0: a coordinator's transactional ids, by state. Left out: filters by duration (1) and pattern (2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import ListTransactionsResponse as Response

from tests.driven.handlers.common import Refusal, check
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 66, (0, 0)
_STATES = frozenset(
    {
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    }
)  # fmt: skip


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """None of a broker that coordinates none. Filters narrow; none at all let everything through."""
    cluster = broker.cluster
    try:
        check(refusal)
    except Refused as e:
        return Response(throttle_time_ms=0, error_code=e.code, unknown_state_filters=[], transaction_states=[])
    asked = set(message.state_filters)
    states = [
        Response.TransactionState(
            transactional_id=txn.transactional_id, producer_id=txn.producer_id, transaction_state=txn.state
        )
        for txn in cluster.transactions.known.values()
        if cluster.coordinators[1] == broker.node_id
        and (not asked or txn.state in asked)
        and (not message.producer_id_filters or txn.producer_id in message.producer_id_filters)
    ]
    unknown = sorted(asked - _STATES)
    return Response(throttle_time_ms=0, error_code=0, unknown_state_filters=unknown, transaction_states=states)
