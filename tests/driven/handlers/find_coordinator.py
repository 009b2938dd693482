"""FindCoordinator 0 to 3: one broker for all groups, one for all transactional ids. Left out: batches (4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.metadata import FindCoordinatorResponse as Response

from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 10, (0, 3)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """COORDINATOR_NOT_AVAILABLE while there is none."""
    node_id = broker.cluster.coordinators.get(message.key_type, -1)
    code = refusal(None)
    if message.key_type not in broker.cluster.coordinators:
        code = code or ErrorCode.INVALID_REQUEST
    found = broker.cluster.brokers.get(node_id)
    if found is None or not found.running:
        code = code or ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code or found is None:
        return Response(throttle_time_ms=0, error_code=code, error_message=None, node_id=-1, host="", port=-1)
    host, port = found.address
    return Response(throttle_time_ms=0, error_code=0, error_message="NONE", node_id=node_id, host=host, port=port)
