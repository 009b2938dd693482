"""DescribeTransactions 0: what the coordinator knows of transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeTransactionsResponse as Response

from airflow_mirror.wire.topology import by_topic
from tests.driven.handlers.common import Refusal, check, coordinates
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 65, (0, 0)
_State = Response.TransactionState


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each id for itself."""
    return Response(
        throttle_time_ms=0,
        transaction_states=[_state(broker, transactional_id, refusal) for transactional_id in message.transactional_ids],
    )


def _state(broker: Broker, transactional_id: str, refusal: Refusal) -> Any:
    try:
        check(refusal)
        coordinates(broker, 1)
        txn = broker.cluster.transactions.described(transactional_id)
    except Refused as e:
        return _State(
            error_code=e.code, transactional_id=transactional_id, transaction_state="", transaction_timeout_ms=0,
            transaction_start_time_ms=0, producer_id=0, producer_epoch=0, topics=[],
        )  # fmt: skip
    running = sorted(txn.partitions) if txn.state in ("Ongoing", "PrepareCommit", "PrepareAbort") else []
    return _State(
        error_code=0, transactional_id=transactional_id, transaction_state=txn.state,
        transaction_timeout_ms=txn.timeout_ms, transaction_start_time_ms=txn.started_ms, producer_id=txn.producer_id,
        producer_epoch=txn.epoch, topics=[_State.TopicData(topic=t, partitions=p) for t, p in by_topic(running).items()],
    )  # fmt: skip
