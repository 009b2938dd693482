"""What the handlers of ACLs share: rules, in the numbers of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mirror.kafka.acls import OPERATIONS
from airflow_mirror.kafka.model import Acl
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker
    from tests.memory.rules import Rules

# As org.apache.kafka.common.resource.ResourceType, PatternType and AclPermissionType number them.
_RESOURCES = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
_PATTERNS = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_PERMISSIONS = ("UNKNOWN", "ANY", "DENY", "ALLOW")


def rules_of(broker: Broker) -> Rules:
    """Return the rules of a cluster.

    :raises Refused: it has no authorizer.
    """
    if broker.cluster.rules is None:
        raise Refused(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    return broker.cluster.rules


def fields_of(asked: Any) -> dict[str, str | None]:
    """Return what a filter asks for, by the names of :class:`Acl`."""
    return {
        "resource_type": _RESOURCES[asked.resource_type_filter], "name": asked.resource_name_filter,
        "pattern_type": _PATTERNS[asked.pattern_type_filter], "principal": asked.principal_filter,
        "host": asked.host_filter, "operation": OPERATIONS[asked.operation],
        "permission": _PERMISSIONS[asked.permission_type],
    }  # fmt: skip


def created(asked: Any) -> Acl:
    """Return a rule that is to be created."""
    return Acl(
        resource_type=_RESOURCES[asked.resource_type], name=asked.resource_name,
        pattern_type=_PATTERNS[asked.resource_pattern_type], principal=asked.principal, host=asked.host,
        operation=OPERATIONS[asked.operation], permission=_PERMISSIONS[asked.permission_type],
    )  # fmt: skip


def resource(rule: Acl) -> dict[str, Any]:
    """Return the fields that say what a rule is about."""
    return {
        "resource_type": _RESOURCES.index(rule.resource_type), "resource_name": rule.name,
        "pattern_type": _PATTERNS.index(rule.pattern_type),
    }  # fmt: skip


def entry(rule: Acl) -> dict[str, Any]:
    """Return the fields that say who may do what."""
    return {
        "principal": rule.principal, "host": rule.host, "operation": OPERATIONS.index(rule.operation),
        "permission_type": _PERMISSIONS.index(rule.permission),
    }  # fmt: skip
