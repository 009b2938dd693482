"""Access rules of one cluster: find, add, remove."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from airflow_mirror.errors import MissingRight
from airflow_mirror.kafka.model import Acl

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_mirror.kafka.session import AdminSession


def describe_acls(session: AdminSession, **match: str | None) -> list[Acl]:
    """Return the rules that match, sorted. See ``ClusterAdmin.describe_acls`` for the fields.

    :raises MissingRight: when the principal may not see rules.
    :raises RequestRefused: with code 54 (SECURITY_DISABLED) when the cluster has no authorizer.
    """
    binding_filter = _filter(**match)
    found = session.call("describe ACLs", lambda c, t: c.describe_acls(binding_filter, request_timeout=t))
    if not found:
        _check_that_none_means_none(session)
    return sorted(_acl(b) for b in found)


def _check_that_none_means_none(session: AdminSession) -> None:
    """Find out why there are no rules.

    librdkafka 2.16 drops the error of a refused DescribeAcls and returns an empty list: "no rules", "you may not know"
    and "no authorizer" look alike, and a fence that stands would seem lifted.
    """
    cluster = session.call(
        "describe cluster", lambda c, t: c.describe_cluster(include_authorized_operations=True, request_timeout=t)
    )
    if AclOperation.DESCRIBE not in (cluster.authorized_operations or ()):
        raise MissingRight(
            f"{session.config.role} cluster: describe ACLs", "CLUSTER_AUTHORIZATION_FAILED", session.principal
        )
    try:
        # Errors of a deletion do come through, and a rule for this principal can't exist.
        delete_acls(session, [Acl("TOPIC", "?", "LITERAL", f"User:?{uuid.uuid4()}", "*", "READ", "DENY")])
    except MissingRight:
        pass  # it may look but not delete: so there is an authorizer


def create_acls(session: AdminSession, acls: Collection[Acl]) -> None:
    """Add rules; one that exists stays as it is."""
    bindings = [_binding(a) for a in sorted(set(acls))]
    if bindings:
        session.call_each(
            lambda b: f"create ACL {_text(_acl(b))}", lambda c, t: c.create_acls(bindings, request_timeout=t)
        )


def delete_acls(session: AdminSession, acls: Collection[Acl]) -> list[Acl]:
    """Remove exactly these rules; return those that existed."""
    filters = [_exact(a) for a in sorted(set(acls))]
    if not filters:
        return []
    deleted = session.call_each(
        lambda f: f"delete ACL on {f.restype.name} {f.name!r}", lambda c, t: c.delete_acls(filters, request_timeout=t)
    )
    return sorted({_acl(b) for bindings in deleted.values() for b in bindings})


def _filter(
    resource_type: str | None = None,
    name: str | None = None,
    pattern_type: str | None = None,
    principal: str | None = None,
    host: str | None = None,
    operation: str | None = None,
    permission: str | None = None,
) -> Any:
    return AclBindingFilter(
        ResourceType[resource_type or "ANY"],
        name,
        ResourcePatternType[pattern_type or "ANY"],
        principal,
        host,
        AclOperation[operation or "ANY"],
        AclPermissionType[permission or "ANY"],
    )


def _exact(a: Acl) -> Any:
    return _filter(a.resource_type, a.name, a.pattern_type, a.principal, a.host, a.operation, a.permission)


def _binding(a: Acl) -> Any:
    return AclBinding(
        ResourceType[a.resource_type],
        a.name,
        ResourcePatternType[a.pattern_type],
        a.principal,
        a.host,
        AclOperation[a.operation],
        AclPermissionType[a.permission],
    )


def _acl(b: Any) -> Acl:
    return Acl(
        b.restype.name,
        b.name,
        b.resource_pattern_type.name,
        b.principal,
        b.host,
        b.operation.name,
        b.permission_type.name,
    )


def _text(a: Acl) -> str:
    where = f"{a.resource_type} {a.name!r} ({a.pattern_type})"
    return f"{a.permission} {a.operation} for {a.principal} from {a.host} on {where}"
