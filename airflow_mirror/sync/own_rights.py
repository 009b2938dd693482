"""The first rule of a resource ends that it is open to everybody: who loses access, and the mirror's own rights.

Where ``allow.everyone.if.no.acl.found`` is true, a topic without any rule is open to everybody; so are groups,
transactional ids and the cluster. The first rule for one principal closes it to all others, the mirror included. So the
mirror's principal gets its literal rights before that, and nobody else does.

A rule may close what comes later: ``*`` a topic that joins, and a literal one a group that does not exist yet. So rules
that the target has already count as well, if the mirror wants them; any other one is somebody else's, who has closed it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from airflow_mirror.common.policy import LEDGER, OWN_IDS
from airflow_mirror.kafka.model import Acl
from airflow_mirror.sync.acl_scope import (
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    Pattern,
    Scope,
    covers,
    is_pattern,
    pattern_of,
)

CLUSTER = "CLUSTER"
# What a mirror does on its target (docs/mirror.md).
_RIGHTS = {
    TOPIC: ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    GROUP: ("READ", "DELETE"),
    TRANSACTIONAL_ID: ("WRITE",),
    CLUSTER: ("CREATE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS"),
}
# Where a mirror works besides its topics and groups.
_ALWAYS = (
    *((TOPIC, ("LITERAL", name)) for name in sorted(LEDGER)), (TOPIC, ("PREFIXED", "__airflow-mirror.")),
    (GROUP, ("PREFIXED", OWN_IDS[0])), (TRANSACTIONAL_ID, ("PREFIXED", OWN_IDS[0])),
    (CLUSTER, ("LITERAL", "kafka-cluster")),
)  # fmt: skip


@dataclass(frozen=True)
class Closing:
    """What is closed to everybody by new rules.

    :param own: rules for the mirror's principal, to be written first.
    :param lost: a line for each resource: who keeps access. Everybody else loses it.
    """

    own: tuple[Acl, ...] = ()
    lost: tuple[str, ...] = ()


def closing(new: AbstractSet[Acl], kept: AbstractSet[Acl], scope: Scope, open_by_default: bool | None) -> Closing:
    """Return what rules of the target close.

    :param new: rules that it gets.
    :param kept: those that it has and that the mirror wants.
    :param open_by_default: whether a resource without rules is open to everybody; None: unknown, so it may be.
    """
    if open_by_default is False:
        return Closing()
    by_name, patterns = _index(new | kept)
    there, there_patterns = _index(scope.there - kept)
    own: list[Acl] = []
    lost: list[str] = []
    for place in _places(scope):
        closed_by = _applying(place, by_name, patterns)
        before = _applying(place, there, there_patterns)
        rights = _rights(place, scope.own_target)
        # A run that was killed in the middle of its own rights is completed by the next one.
        if not closed_by or not set(before) <= set(rights):
            continue
        own += [rule for rule in rights if rule not in before]
        if not new.isdisjoint(closed_by):
            lost.append(_line(place, closed_by, open_by_default))
    return Closing(tuple(rule for rule in own if rule not in scope.there), tuple(lost))


def _places(scope: Scope) -> Iterator[tuple[str, Pattern]]:
    """Return where the mirror works on the target, and will."""
    topics = sorted({*scope.target_topics, *scope.joining, *scope.mirror.trace_topics})
    yield from ((TOPIC, ("LITERAL", name)) for name in topics)
    yield from ((GROUP, ("LITERAL", name)) for name in sorted(scope.groups))
    yield from _ALWAYS


def _rights(place: tuple[str, Pattern], principal: str) -> list[Acl]:
    kind, (pattern_type, name) = place
    return [
        Acl(
            resource_type=kind, name=name, pattern_type=pattern_type, principal=principal, host="*", operation=operation,
            permission="ALLOW",
        )
        for operation in _RIGHTS[kind]
    ]  # fmt: skip


def _index(rules: Iterable[Acl]) -> tuple[dict[tuple[str, str], list[Acl]], list[Acl]]:
    """Return literal rules by type and name, and patterns."""
    literal: dict[tuple[str, str], list[Acl]] = {}
    patterns = []
    for rule in rules:
        if is_pattern(rule):
            patterns.append(rule)
        else:
            literal.setdefault((rule.resource_type, rule.name), []).append(rule)
    return literal, patterns


def _applying(
    place: tuple[str, Pattern], literal: dict[tuple[str, str], list[Acl]], patterns: Collection[Acl]
) -> list[Acl]:
    kind, pattern = place
    found = [rule for rule in patterns if rule.resource_type == kind and covers(pattern_of(rule), pattern)]
    return found + (literal.get((kind, pattern[1]), []) if pattern[0] == "LITERAL" else [])


def _line(place: tuple[str, Pattern], added: Iterable[Acl], open_by_default: bool | None) -> str:
    kind, (pattern_type, name) = place
    keep = sorted({rule.principal for rule in added if rule.permission == "ALLOW"})
    what = f"{kind} {name!r}" + (" (PREFIXED)" if pattern_type == "PREFIXED" else "")
    state = "open to everybody" if open_by_default else "open to everybody, if allow.everyone.if.no.acl.found is true,"
    return f"{what}: was {state} and is now for {', '.join(keep) or 'nobody'} and the mirror alone"
