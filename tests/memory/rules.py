"""ACLs and what an authorizer makes of them, as Kafka's StandardAuthorizer does."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from airflow_mirror.kafka.model import Acl

_IMPLIED = {
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"}, "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
}  # fmt: skip
# What there is to ask about, by kind of resource (AclEntry.supportedOperations).
OPERATIONS = {
    "TOPIC": ("READ", "WRITE", "CREATE", "DESCRIBE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "GROUP": ("READ", "DESCRIBE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "CLUSTER": (
        "CREATE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "ALTER", "DESCRIBE",
    ),
}  # fmt: skip


def is_for(rule: Acl, kind: str, name: str) -> bool:
    """Return whether a rule applies to a resource."""
    if rule.resource_type != kind:
        return False
    return name.startswith(rule.name) if rule.pattern_type == "PREFIXED" else rule.name in ("*", name)


def matches(rule: Acl, **fields: str | None) -> bool:
    """Return whether a rule has these fields; see :meth:`.ClusterAdmin.describe_acls`."""
    pattern, name = fields.pop("pattern_type", None), fields.pop("name", None)
    if pattern == "MATCH":
        named = name is None or is_for(rule, rule.resource_type, name)
    else:
        named = name in (None, rule.name) and pattern in (None, "ANY", rule.pattern_type)
    return named and all(value in (None, "ANY", getattr(rule, key)) for key, value in fields.items())


def is_allowed(
    rules: Iterable[Acl], principal: str, operation: str, kind: str, name: str, *, open_by_default: bool = False
) -> bool:
    """Return whether a principal may do something with a resource.

    A DENY wins. Without any rule for the resource the default counts, and with one no more.
    """
    found = [rule for rule in rules if is_for(rule, kind, name)]
    mine = [rule for rule in found if rule.principal in (principal, "User:*")]
    if any(rule.permission == "DENY" and rule.operation in (operation, "ALL") for rule in mine):
        return False
    enough = {operation, "ALL", *_IMPLIED.get(operation, ())}
    if any(rule.permission == "ALLOW" and rule.operation in enough for rule in mine):
        return True
    return open_by_default and not found


@dataclass
class Rules:
    """The rules of a cluster, and what each broker knows of them.

    :param news_s: how long a broker takes to hear of a change, by its id; the others hear of it at once.
    :param supers: principals that may do everything.
    """

    open_by_default: bool = False
    supers: Collection[str] = ()
    news_s: dict[int, float] = field(default_factory=dict)
    now: frozenset[Acl] = frozenset()
    _before: list[tuple[int, frozenset[Acl]]] = field(default_factory=list)  # until when, in ms

    def change(self, to: frozenset[Acl], at_ms: int) -> None:
        """Replace the rules."""
        self._before.append((at_ms, self.now))
        self.now = to

    def at(self, broker: int, now_ms: int) -> frozenset[Acl]:
        """Return the rules by which a broker goes."""
        behind_ms = self.news_s.get(broker, 0.0) * 1000
        if behind_ms:
            return next((rules for until_ms, rules in self._before if now_ms - behind_ms < until_ms), self.now)
        return self.now

    def allows(self, principal: str, operation: str, kind: str, name: str, broker: int = 0, now_ms: int = 0) -> bool:
        """Return what a broker's authorizer says."""
        if principal in self.supers:
            return True
        rules = self.at(broker, now_ms)
        return is_allowed(rules, principal, operation, kind, name, open_by_default=self.open_by_default)
