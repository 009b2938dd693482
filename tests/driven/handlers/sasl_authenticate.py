"""SaslAuthenticate 0 to 2: everybody is let in. Left out: passwords, and that a session ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.sasl import SaslAuthenticateResponse as Response

from tests.driven.handlers.common import Refusal

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 36, (0, 2)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Under any name and password."""
    return Response(error_code=refusal(None), error_message=None, auth_bytes=b"", session_lifetime_ms=0)
