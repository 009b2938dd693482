"""SaslHandshake 1: PLAIN and nothing else. Version 0, whose tokens have no frame of a request, is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.sasl import SaslHandshakeResponse as Response

from tests.driven.handlers.common import Refusal

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 17, (1, 1)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Whatever is asked for; the next request is `sasl_authenticate`."""
    return Response(error_code=refusal(None), mechanisms=["PLAIN"])
