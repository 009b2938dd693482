"""EndTxn 0 to 2: commit or abort. Left out: the epoch that version 5 raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import EndTxnResponse as Response

from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, check, coordinates
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 26, (0, 2)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """The markers are there when this answers, unless a test holds them; a real broker's come a little later."""
    code = ErrorCode.NONE
    try:
        check(refusal)
        coordinates(broker, 1)
        broker.cluster.transactions.end(
            message.transactional_id, message.producer_id, message.producer_epoch, commit=message.committed
        )
    except Refused as e:
        code = e.code
        if code == ErrorCode.PRODUCER_FENCED and message.API_VERSION is not None and message.API_VERSION < 2:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
    return Response(throttle_time_ms=0, error_code=code)
