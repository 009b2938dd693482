"""InitProducerId 0 to 4: an id without a name, or the next epoch of a transactional id. Left out: two-phase commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import InitProducerIdResponse as Response

from tests.driven.handlers.common import Refusal, check, coordinates
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 22, (0, 4)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """-1 and -1 with an error."""
    code, producer_id, epoch = 0, -1, -1
    try:
        check(refusal)
        if message.transactional_id is not None:
            coordinates(broker, 1)
        producer_id, epoch = broker.cluster.transactions.init(
            message.transactional_id, message.transaction_timeout_ms, message.producer_id, message.producer_epoch
        )
    except Refused as e:
        code = e.code
    return Response(throttle_time_ms=0, error_code=code, producer_id=producer_id, producer_epoch=epoch)
