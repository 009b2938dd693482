"""DeleteAcls 0 to 3: remove the rules that a filter matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DeleteAclsResponse as Response

from tests.driven.handlers import acls
from tests.driven.handlers.common import Refusal, check
from tests.driven.refused import Refused
from tests.memory.rules import matches

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 31, (0, 3)
_Result = Response.DeleteAclsFilterResult


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each filter for itself."""
    return Response(throttle_time_ms=0, filter_results=[_delete(broker, one, refusal) for one in message.filters])


def _delete(broker: Broker, asked: Any, refusal: Refusal) -> Any:
    try:
        check(refusal)
        rules = acls.rules_of(broker)
    except Refused as e:
        return _Result(error_code=e.code, error_message=e.message, matching_acls=[])
    found = sorted(one for one in rules.now if matches(one, **acls.fields_of(asked)))
    rules.change(rules.now - set(found), broker.cluster.clock.now_ms)
    matching = [
        _Result.DeleteAclsMatchingAcl(error_code=0, error_message=None, **acls.resource(one), **acls.entry(one))
        for one in found
    ]
    return _Result(error_code=0, error_message=None, matching_acls=matching)
