"""DescribeAcls 0 to 3: what a cluster without an authorizer answers. Left out: ACLs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeAclsResponse as Response

from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 29, (0, 3)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Always the same."""
    code = refusal(None) or ErrorCode.SECURITY_DISABLED
    text = "No Authorizer is configured on the broker"
    return Response(throttle_time_ms=0, error_code=code, error_message=text, resources=[])
