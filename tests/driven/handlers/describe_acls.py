"""DescribeAcls 0 to 3: the rules that a filter matches. Without an authorizer (`cluster.rules`): none is configured."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeAclsResponse as Response

from tests.driven.handlers import acls
from tests.driven.handlers.common import Refusal, check
from tests.driven.refused import Refused
from tests.memory.rules import matches

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 29, (0, 3)
_Resource = Response.DescribeAclsResource
_resource = attrgetter("resource_type", "name", "pattern_type")


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """The broker's own view of the rules."""
    try:
        check(refusal)
        rules = acls.rules_of(broker).at(broker.node_id, broker.cluster.clock.now_ms)
    except Refused as e:
        return Response(throttle_time_ms=0, error_code=e.code, error_message=e.message, resources=[])
    found = sorted((one for one in rules if matches(one, **acls.fields_of(message))), key=_resource)
    resources = [
        _Resource(**acls.resource(of[0]), acls=[_Resource.AclDescription(**acls.entry(one)) for one in of])
        for of in (list(some) for _, some in groupby(found, _resource))
    ]
    return Response(throttle_time_ms=0, error_code=0, error_message=None, resources=resources)
