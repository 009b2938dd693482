"""ApiVersions 0 to 3: what this broker serves. Left out: features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.metadata import ApiVersionsResponse as Response

from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, check
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 18, (0, 3)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Answer in version 0 and with an error, as brokers do, when the version that was asked for is not served."""
    code = ErrorCode.NONE
    try:
        check(refusal)
    except Refused as e:
        code = e.code
    keys = [
        Response.ApiVersion(api_key=key, min_version=lowest, max_version=highest)
        for key, (lowest, highest) in sorted(broker.served.items())
    ]
    return Response(error_code=code, api_keys=keys)
