"""DeleteGroups 0 to 2: forget groups without members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DeleteGroupsResponse as Response

from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, check, coordinates
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 42, (0, 2)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each group for itself."""
    codes = {group: _delete(broker, group, refusal) for group in message.groups_names}
    results = [Response.DeletableGroupResult(group_id=group, error_code=code) for group, code in codes.items()]
    return Response(throttle_time_ms=0, results=results)


def _delete(broker: Broker, group: str, refusal: Refusal) -> ErrorCode:
    groups = broker.cluster.groups
    try:
        check(refusal)
        coordinates(broker, 0)
        if groups.state(group) == "Dead":
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
        if groups.members.get(group):
            raise Refused(ErrorCode.NON_EMPTY_GROUP)
    except Refused as e:
        return e.code
    groups.committed.pop(group, None)
    groups.members.pop(group, None)
    return ErrorCode.NONE
