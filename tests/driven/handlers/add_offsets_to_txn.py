"""AddOffsetsToTxn 0 to 1: the group becomes part of the transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import AddOffsetsToTxnResponse as Response

from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, check, coordinates
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 25, (0, 1)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """As AddPartitionsToTxn; version 2 has PRODUCER_FENCED."""
    code = ErrorCode.NONE
    try:
        check(refusal)
        coordinates(broker, 1)
        broker.cluster.transactions.add(
            message.transactional_id, message.producer_id, message.producer_epoch, set(), {message.group_id}
        )
    except Refused as e:
        code = ErrorCode.INVALID_PRODUCER_EPOCH if e.code == ErrorCode.PRODUCER_FENCED else e.code
    return Response(throttle_time_ms=0, error_code=code)
