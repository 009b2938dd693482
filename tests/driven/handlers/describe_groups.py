"""DescribeGroups 0 to 5: a group's state and the client ids of its members. Left out: assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeGroupsResponse as Response

from tests.driven.handlers.common import NOT_ASKED, ON_GROUPS, Refusal, check, coordinates
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 15, (0, 5)
_Group = Response.DescribedGroup


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each group for itself; one that nobody knows is dead."""
    allowed = ON_GROUPS if getattr(message, "include_authorized_operations", False) else NOT_ASKED
    found = [_group(broker, group, refusal) for group in message.groups]
    for one in found:
        one.authorized_operations = allowed
    return Response(throttle_time_ms=0, groups=found)


def _group(broker: Broker, group: str, refusal: Refusal) -> Any:
    groups = broker.cluster.groups
    try:
        check(refusal)
        coordinates(broker, 0)
    except Refused as e:
        return _described(group, e.code, "", "")
    members = [
        _Group.DescribedGroupMember(
            member_id=f"{one}-1", group_instance_id=None, client_id=one, client_host="/127.0.0.1", member_metadata=b"",
            member_assignment=b"",
        )
        for one in groups.members.get(group, ())
    ]  # fmt: skip
    return _described(group, 0, groups.state(group), groups.protocol(group), members)


def _described(group: str, code: int, state: str, protocol: str, members: list[Any] | None = None) -> Any:
    return _Group(
        error_code=code, error_message=None, group_id=group, group_state=state, protocol_type=protocol, protocol_data="",
        members=members or [], authorized_operations=NOT_ASKED,
    )  # fmt: skip
