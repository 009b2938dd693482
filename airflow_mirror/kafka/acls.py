"""ACLs of one cluster: find, add, remove.

Brokers before 2.0 do not support resource patterns: each rule applies to one name or to ``*``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from airflow_mirror.errors import RequestRefused
from airflow_mirror.kafka.model import Acl, ConfigEntry
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.kafka.session import AdminSession, Reply
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.error_codes import ErrorCode

T = TypeVar("T")

# Kafka's names, indexed by its numbers (ResourceType, PatternType, AclOperation, AclPermissionType).
_RESOURCES = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
_PATTERNS = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
OPERATIONS = (
    "UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
)  # fmt: skip
_PERMISSIONS = ("UNKNOWN", "ANY", "DENY", "ALLOW")
_WITH_PATTERNS = 1
# A KRaft controller takes at most 10,000 records in one operation. With ZooKeeper, 1,000 rules take it a second.
RULES_A_REQUEST = 500
# A KRaft controller compares each filter with every rule: 1,000 filters beside 10,000 rules take it a second.
FILTERS_A_REQUEST = 200
EVERYBODY = "User:*"
_WRITES = ("WRITE", "ALL")
OPEN_BY_DEFAULT = "allow.everyone.if.no.acl.found"


def describe_acls(session: AdminSession, **match: str | None) -> list[Acl]:
    """Return the rules with these fields of an :class:`Acl`, sorted; fields that are not named match anything.

    :param match: ``pattern_type="MATCH"`` takes all rules that apply to ``name``.
    :raises RequestRefused: with code 54 (SECURITY_DISABLED) if the cluster has no authorizer.
    """
    return session.one("describe ACLs", lambda: _described(session, session.anywhere(), **match), "Describe")


def unless_none_is_enforced(describe: Callable[[], T]) -> T | None:
    """Return what is described of ACLs; None: the cluster has no authorizer, so that everybody may do everything."""
    try:
        return describe()
    except RequestRefused as e:
        if e.code != ErrorCode.SECURITY_DISABLED:
            raise
        return None


def describe_acls_each(session: AdminSession, **match: str | None) -> dict[int, list[Acl]]:
    """Return the rules that match as each live broker knows them, by its id.

    Each broker goes by the rules that it has heard of, and hears of a new one a moment after the controller. Errors
    as for :func:`describe_acls`.
    """

    def ask(connection: Connection) -> Reply[str, list[Acl]]:
        return _described(session, connection, **match)

    return session.one("describe ACLs at each broker", lambda: session.at_each_broker(ask), "Describe")


def _described(session: AdminSession, connection: Connection, **match: str | None) -> Reply[str, list[Acl]]:
    from kafka.protocol.admin import DescribeAclsRequest as Request

    version = connection.newest(Request.API_KEY, 0, 3)
    fields = _filter(**match)
    if version < _WITH_PATTERNS:
        fields["resource_name_filter"] = None
    answer = session.request(connection, Request(**fields, version=version), version)
    found = [_acl(resource, rule) for resource in answer.resources for rule in resource.acls]
    if version < _WITH_PATTERNS:
        found = [rule for rule in found if _is_named(rule, match.get("name"), match.get("pattern_type"))]
    return Reply("", answer.error_code, answer.error_message, sorted(found))


def create_acls(session: AdminSession, rules: Collection[Acl], permit: Permit) -> None:
    """Add rules; an existing rule stays as it is."""
    from kafka.protocol.admin import CreateAclsRequest as Request

    def ask(some: list[Acl]) -> Iterator[Reply[Acl, bool]]:
        creations = [Request.AclCreation(**_creation(rule)) for rule in some]
        answer = session.newest(session.anywhere(), Request, (_lowest(some), 3), permit, creations=creations)
        for rule, result in zip(some, answer.results, strict=True):
            yield Reply(rule, result.error_code, result.error_message, True)

    session.each(lambda rule: f"create ACL {rule}", sorted(set(rules)), ask, "Alter", chunk=RULES_A_REQUEST)


def delete_acls(session: AdminSession, rules: Collection[Acl], permit: Permit) -> list[Acl]:
    """Remove exactly these rules; return those that existed.

    If a response is lost, the rules may already be gone; the result then lacks them.
    """
    from kafka.protocol.admin import DeleteAclsRequest as Request

    def ask(some: list[Acl]) -> Iterator[Reply[Acl, list[Acl]]]:
        filters = [Request.DeleteAclsFilter(**_exact(rule)) for rule in some]
        answer = session.newest(session.anywhere(), Request, (_lowest(some), 3), permit, filters=filters)
        for rule, result in zip(some, answer.filter_results, strict=True):
            failed = next((one for one in result.matching_acls if one.error_code), result)
            yield Reply(rule, failed.error_code, failed.error_message, [_acl(one, one) for one in result.matching_acls])

    deleted = session.each(lambda rule: f"delete ACL {rule}", sorted(set(rules)), ask, "Alter", chunk=FILTERS_A_REQUEST)
    return sorted({rule for found in deleted.values() for rule in found})


def letting_write(listed: Iterable[Acl], topic: str, own: str) -> list[Acl]:
    """Return the ACLs that let anybody but ``own`` write to a topic, as they stand together."""
    on_it = [acl for acl in listed if is_write(acl, topic)]
    denied = {acl.principal for acl in on_it if (acl.permission, acl.host) == ("DENY", "*")}
    if EVERYBODY in denied:
        return []
    return [acl for acl in on_it if acl.permission == "ALLOW" and acl.principal not in {own, *denied}]


def covers(acl: Acl, topic: str) -> bool:
    """Return whether an ACL on topics is about this one."""
    if acl.pattern_type == "PREFIXED":
        return topic.startswith(acl.name)
    return acl.name in (topic, "*")


def is_write(acl: Acl, topic: str) -> bool:
    """Return whether an ACL on topics is about writing to this one."""
    return acl.operation in _WRITES and covers(acl, topic)


def open_by_default(brokers: Mapping[int, Mapping[str, ConfigEntry]]) -> bool | None:
    """Return whether brokers of these settings open to everybody what has no rule; None: they don't say.

    The setting belongs to the authorizer's plug-in, so brokers treat it as a secret. Its value may be false. Where none
    has it, an authorizer's own default is false.
    """
    values = {configs[OPEN_BY_DEFAULT].value for configs in brokers.values() if OPEN_BY_DEFAULT in configs}
    return None if None in values else "true" in values


def _filter(
    resource_type: str | None = None,
    name: str | None = None,
    pattern_type: str | None = None,
    principal: str | None = None,
    host: str | None = None,
    operation: str | None = None,
    permission: str | None = None,
) -> dict[str, Any]:
    """Return the fields of a filter for DescribeAcls and DeleteAcls."""
    return {
        "resource_type_filter": _RESOURCES.index(resource_type or "ANY"),
        "resource_name_filter": name,
        "pattern_type_filter": _PATTERNS.index(pattern_type or "ANY"),
        "principal_filter": principal,
        "host_filter": host,
        "operation": OPERATIONS.index(operation or "ANY"),
        "permission_type": _PERMISSIONS.index(permission or "ANY"),
    }


def _exact(rule: Acl) -> dict[str, Any]:
    return _filter(**asdict(rule))


def _creation(rule: Acl) -> dict[str, Any]:
    fields = {key.removesuffix("_filter"): value for key, value in _exact(rule).items()}
    pattern = fields.pop("pattern_type")  # only CreateAcls uses another name
    return {**fields, "resource_pattern_type": pattern}


def _acl(resource: Any, rule: Any) -> Acl:
    """Decode a rule; values that only a newer broker knows become UNKNOWN."""
    return Acl(
        resource_type=_named(_RESOURCES, resource.resource_type),
        name=resource.resource_name,
        pattern_type=_named(_PATTERNS, resource.pattern_type),
        principal=rule.principal,
        host=rule.host,
        operation=_named(OPERATIONS, rule.operation),
        permission=_named(_PERMISSIONS, rule.permission_type),
    )


def _named(names: Sequence[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else names[0]


def _lowest(rules: Iterable[Acl]) -> int:
    """Return the lowest version that can express these rules. Without patterns, a prefix would be read as a name."""
    return _WITH_PATTERNS if any(rule.pattern_type != "LITERAL" for rule in rules) else 0


def _is_named(rule: Acl, name: str | None, pattern_type: str | None) -> bool:
    """Return whether a rule of a broker without patterns matches a filter's name and pattern."""
    if pattern_type == "PREFIXED":
        return False
    return name is None or rule.name == name or (pattern_type == "MATCH" and rule.name == "*")
