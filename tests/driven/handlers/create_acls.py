"""CreateAcls 0 to 3: add rules. Nobody goes by them here: see `describe_acls`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import CreateAclsResponse as Response

from tests.driven.handlers import acls
from tests.driven.handlers.common import Refusal, check
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 30, (0, 3)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """All of them, or none."""
    code, text = 0, None
    try:
        check(refusal)
        rules = acls.rules_of(broker)
        rules.change(rules.now | {acls.created(one) for one in message.creations}, broker.cluster.clock.now_ms)
    except Refused as e:
        code, text = e.code, e.message
    results = [Response.AclCreationResult(error_code=code, error_message=text) for _ in message.creations]
    return Response(throttle_time_ms=0, results=results)
