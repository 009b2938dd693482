"""What access rules are about: patterns of names, and which names of the two clusters are the mirror's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from airflow_mirror.common.policy import OWN_IDS, Principals, is_internal
from airflow_mirror.kafka.model import Acl
from airflow_mirror.mirror import Mirror

TOPIC, GROUP, TRANSACTIONAL_ID = "TOPIC", "GROUP", "TRANSACTIONAL_ID"
Pattern = tuple[str, str]  # (pattern type, name)
Patterns = frozenset[tuple[str, Pattern]]  # with the resource type
ALL_NAMES: Pattern = ("LITERAL", "*")


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What of the two clusters is the mirror's.

    :param topics: source topic -> target topic, of the plan.
    :param groups: of the mirror, on the source.
    :param own_source: the principal of the mirror itself on the source; ``own_target``: on the target.
    :param joining: target topics that will be the mirror's.
    :param there: the target's rules.
    :param others: what on the target is not the mirror's, see :func:`others`.
    :param cluster_wide: rules about the cluster, delegation tokens and users are copied as well.
    :param beside_production: other topics of the source are in production. What names a group or a transactional id may
        be about their applications as well, and is theirs to decide by now.
    :param unclaimed: groups of the source that the mirror selects, and that are not among ``groups`` for that.
    """

    mirror: Mirror
    topics: Mapping[str, str]
    groups: frozenset[str]
    own_source: str
    own_target: str
    joining: frozenset[str] = frozenset()
    there: frozenset[Acl] = frozenset()
    others: Patterns = frozenset()
    cluster_wide: bool = False
    beside_production: bool = False
    unclaimed: frozenset[str] = frozenset()

    @cached_property
    def principals(self) -> Principals:
        """The map of principals."""
        return Principals(self.mirror.principals)

    @cached_property
    def target_topics(self) -> frozenset[str]:
        """The mirror's topics on the target."""
        return frozenset(self.topics.values())

    @cached_property
    def selected_groups(self) -> frozenset[str]:
        """All groups that the mirror selects."""
        return self.groups | self.unclaimed

    @cached_property
    def _others_of(self) -> dict[str, list[Pattern]]:
        found: dict[str, list[Pattern]] = {}
        for kind, pattern in sorted(self.others):
            found.setdefault(kind, []).append(pattern)
        return found

    def target_names(self, resource_type: str) -> frozenset[str]:
        """Return the mirror's names on the target."""
        return {TOPIC: self.target_topics, GROUP: self.groups}.get(resource_type, frozenset())

    def strangers(self, rule: Acl) -> list[str]:
        """Return the names on the target that a rule covers and that are not the mirror's.

        A prefix is no stranger to itself: the mirror may have written it for a rule that is gone on the source.
        """
        own = pattern_of(rule)
        found = [other for other in self._others_of.get(rule.resource_type, ()) if covers(own, other)]
        return [other[1] for other in found if other != own or not is_pattern(rule)]


def pattern_of(rule: Acl) -> Pattern:
    """Return the names that a rule is about."""
    return rule.pattern_type, rule.name


def is_pattern(rule: Acl) -> bool:
    """Return whether a rule is about more than one name."""
    return rule.pattern_type == "PREFIXED" or pattern_of(rule) == ALL_NAMES


def covers(one: Pattern, other: Pattern) -> bool:
    """Return whether every name of ``other`` is one of ``one``."""
    if one == ALL_NAMES:
        return True
    if one[0] == "PREFIXED":
        return other != ALL_NAMES and other[1].startswith(one[1])
    return one == other


def covers_name(rule: Acl, name: str) -> bool:
    """Return whether a rule applies to the resource ``name`` of its type."""
    return covers(pattern_of(rule), ("LITERAL", name))


def others(
    scope: Scope, topics: Iterable[str], groups: Iterable[str], ours: AbstractSet[tuple[str, Pattern]]
) -> Patterns:
    """Return the names, and prefixes of names, that the target uses for what is not this mirror's.

    The mirror's principal may not see every topic and group of the target. So what the target's rules name counts as
    well: what others use on a cluster with an authorizer has rules.

    :param topics: visible on the target; ``groups`` likewise.
    :param ours: what the source's rules name, in the target's names: on the target it is taken for the same.
    """
    found: set[tuple[str, Pattern]] = {(TOPIC, ("LITERAL", name)) for name in topics}
    found |= {(GROUP, ("LITERAL", name)) for name in groups}
    named = {(r.resource_type, pattern_of(r)) for r in scope.there if r.principal != scope.own_target}
    return frozenset(one for one in found | (named - ours) if not _is_ours(one[0], one[1], scope))


def _is_ours(resource_type: str, pattern: Pattern, scope: Scope) -> bool:
    if pattern == ALL_NAMES or pattern[1].startswith(OWN_IDS) or (resource_type == TOPIC and is_internal(pattern[1])):
        return True
    return any(covers(pattern, ("LITERAL", name)) for name in scope.target_names(resource_type))
