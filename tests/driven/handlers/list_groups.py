"""ListGroups 0 to 5: the groups that a broker coordinates, with their states. Left out: filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import ListGroupsResponse as Response

from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 16, (0, 5)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Of who coordinates no group, none."""
    groups = broker.cluster.groups
    known = sorted(groups.committed.keys() | groups.members.keys()) if _coordinates(broker) else []
    listed = [
        Response.ListedGroup(
            group_id=group, protocol_type=groups.protocol(group), group_state=groups.state(group), group_type="classic"
        )
        for group in known
    ]
    code = refusal(None)
    return Response(throttle_time_ms=0, error_code=code or ErrorCode.NONE, groups=[] if code else listed)


def _coordinates(broker: Broker) -> bool:
    return broker.cluster.coordinators[0] == broker.node_id
