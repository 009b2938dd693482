"""How an access rule of the source is written on the target, or why it is not. Pure: values in, values out.

No rule may let anybody do more on the target than on the source:

- Names follow the mirror's naming, principals its map. Hosts and operations stay.
- A pattern (``*``, or PREFIXED) becomes the same pattern of target names: with the prefix ``dc1.``, ``*`` on topics
  becomes PREFIXED ``dc1.``. Names that a class gives follow no pattern: it becomes a rule for each topic. Where it would
  also cover names on the target that are not the mirror's, it is written out: a literal rule for each of the mirror's
  names that it covers. A rule that the target has already is not doubted.
- A DENY that is written out is also put on whatever the mirror allows in its reach, so that it denies no less.
- ALLOW of reading is of the phase ``early``, everything else of the phase ``cutover``; until then ALLOW ALL has
  stand-ins for reading. DENY is early. Only what would stop the mirror itself waits, and is written before anything
  of its phase is allowed: DENY of changes for everybody.
- Beside topics of another mirror that are in production, a rule about a group needs one that has a position in this
  mirror's topics: what was taken back in production is not granted again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain

from airflow_mirror.common.policy import EVERYBODY, OWN_IDS
from airflow_mirror.kafka.acls import OPERATIONS
from airflow_mirror.kafka.model import Acl
from airflow_mirror.sync.acl_scope import (
    ALL_NAMES,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    Pattern,
    Scope,
    covers,
    covers_name,
    is_pattern,
    pattern_of,
)

EARLY, CUTOVER = "early", "cutover"
READING = {
    TOPIC: ("READ", "DESCRIBE", "DESCRIBE_CONFIGS"),
    GROUP: ("READ", "DESCRIBE"),
    "CLUSTER": ("DESCRIBE", "DESCRIBE_CONFIGS"),
}
# About no topic and no group: copied only when asked, never removed.
CLUSTER_WIDE = ("CLUSTER", "DELEGATION_TOKEN", "USER")
_KNOWN, _PATTERNS = OPERATIONS[2:], ("LITERAL", "PREFIXED")
_ANY = ALL_NAMES[1]  # a group may be called so, and a rule that names it is about all groups
_UNNAMED = "a group of the mirror is called '*': no rule can name it alone, and one for all would be about others' groups"
_UNCLAIMED = "topics of another mirror are in production, and this one's know no position of the group"


@dataclass(frozen=True)
class Wanted:
    """A rule that the target shall have, from ``phase`` on.

    :param instead_of: the rule with ``ALL`` whose place it takes until the cutover.
    """

    rule: Acl
    phase: str
    instead_of: Acl | None = None


@dataclass(frozen=True)
class LeftOut:
    """A rule of the source that is not copied, or one of the target that is not removed, and why."""

    rule: Acl
    reason: str


@dataclass(frozen=True)
class Rewritten:
    """What becomes of the source's rules.

    :param written_out: rules of the source whose patterns became literal rules, and names that they would have covered.
    """

    wanted: tuple[Wanted, ...]
    left_out: tuple[LeftOut, ...]
    written_out: tuple[LeftOut, ...]


def rewrite(rules: AbstractSet[Acl], scope: Scope) -> Rewritten:
    """Return what the target shall have, in both phases.

    :raises InvalidField: the map of principals is ambiguous, or makes everybody of somebody.
    """
    renamed, left_out = _concerned(rules, scope)
    wanted: list[Wanted] = []
    written_out: list[LeftOut] = []
    reach: set[tuple[str, Pattern]] = set()
    for rule, new in sorted(renamed.items(), key=lambda pair: (pair[0].permission, pair[0])):  # ALLOW first
        if _is_productions(new, scope):
            left_out.append(LeftOut(rule, _UNCLAIMED))
            continue
        found = _written_out(new, scope)
        if found != [new]:
            strangers = scope.strangers(new)
            if rule.permission == "DENY":
                found += _within(new, reach)
            text = f"the target has others of its names, such as {strangers[0]!r}"
            if is_unnamed := _ANY in scope.target_names(new.resource_type) and covers_name(new, _ANY):
                left_out.append(LeftOut(rule, _UNNAMED))
            if found:
                written_out.append(LeftOut(rule, text))
            elif not is_unnamed:
                left_out.append(LeftOut(rule, f"{text}, and none of the mirror's is known: name them one by one"))
        if rule.permission == "ALLOW":
            reach |= {(one.resource_type, pattern_of(one)) for one in found}
        wanted += [w for one in found for w in _phased(one)]
    return Rewritten(tuple(dict.fromkeys(wanted)), tuple(sorted(left_out, key=lambda one: one.rule)), tuple(written_out))


def grantable(noted: Collection[Acl], scope: Scope) -> tuple[list[Acl], list[Acl]]:
    """Return what a failover grants of noted rules, written for the mirror's names alone, and what it leaves out.

    A note is a record: who may write there could name any rule. None is granted that is about topics or groups of others,
    the whole cluster, or the mirrors' own ledger, ids or principal.
    """
    found = {rule: _for_ours(rule, scope) for rule in noted}
    writers = writers_of((*scope.there, *chain.from_iterable(found.values())), scope)
    for rule in found:
        if rule.resource_type == TRANSACTIONAL_ID and not _concerns(rule.principal, writers):
            found[rule] = []
    return [*dict.fromkeys(chain.from_iterable(found.values()))], [rule for rule, its in found.items() if not its]


def _for_ours(rule: Acl, scope: Scope) -> list[Acl]:
    kind = rule.resource_type
    known = rule.permission in ("ALLOW", "DENY") and rule.operation in _KNOWN and rule.pattern_type in _PATTERNS
    if not known or rule.principal == scope.own_target or not scope.principals.yields(rule.principal):
        return []
    if kind == TRANSACTIONAL_ID:
        reaches_own = rule.name.startswith(OWN_IDS) or (rule.permission == "DENY" and covers_name(rule, OWN_IDS[0]))
        return [] if reaches_own else _written_out(rule, scope)
    names = scope.target_names(kind)
    if is_pattern(rule):
        return _written_out(rule, scope) if any(covers_name(rule, name) for name in names) else []
    selected = kind == GROUP and scope.mirror.selects_group(rule.name)
    return [rule] if rule.name in names or selected else []


def own_patterns(rules: AbstractSet[Acl], scope: Scope) -> set[tuple[str, Pattern]]:
    """Return what the mirror's rules would name on the target if nothing was written out."""
    return {(rule.resource_type, pattern_of(rule)) for rule in _concerned(rules, scope)[0].values()}


def _is_productions(new: Acl, scope: Scope) -> bool:
    """Return whether a rule that the target lacks is about a group that applications in production may be."""
    if not scope.beside_production or new.resource_type != GROUP or is_pattern(new) or new in scope.there:
        return False
    # Of a group that nobody has on the target nothing was taken back there, so what denies it is in nobody's way.
    return new.name not in scope.groups and (new.permission == "ALLOW" or bool(scope.strangers(new)))


def could_be_ours(rule: Acl, scope: Scope, writers: Collection[str], phase: str) -> bool:
    """Return whether the mirror could have written this rule of the target for a rule of the source, up to a phase.

    Also where it covers names of others by now: those may have come since.

    :param writers: the target's principals that may write to a topic of the mirror.
    """
    if rule.principal == scope.own_target or not scope.principals.yields(rule.principal):
        return False
    if looks_like_fence(rule, scope.there) or _denies_writing(rule):
        return False
    if rule.resource_type == TRANSACTIONAL_ID:
        # No id is the mirror's by its name. One that is allowed before the cutover was allowed by somebody else.
        is_written = any(wanted.phase in (EARLY, phase) for wanted in _phased(rule))
        return is_written and not rule.name.startswith(OWN_IDS) and _concerns(rule.principal, writers)
    names = scope.selected_groups if rule.resource_type == GROUP else scope.target_names(rule.resource_type)
    if is_pattern(rule):
        return _is_written_as_pattern(rule, scope) and any(covers_name(rule, name) for name in names)
    return rule.name in names  # not every group that the mirror would select: the target has groups of others


def _is_written_as_pattern(rule: Acl, scope: Scope) -> bool:
    """Return whether a pattern of the source may become this one: those of topics begin with the names' prefix."""
    prefix = scope.mirror.naming.target_prefix("") if rule.resource_type == TOPIC else ""
    return prefix is not None and (not prefix or (pattern_of(rule) != ALL_NAMES and rule.name.startswith(prefix)))


def writers_of(rules: Iterable[Acl], scope: Scope) -> set[str]:
    """Return the principals that rules of the target allow to write to a topic of the mirror."""
    writing = [rule for rule in rules if rule.resource_type == TOPIC and _may_write(rule)]
    return {r.principal for r in writing if any(covers_name(r, topic) for topic in _candidates(r, scope.target_topics))}


def looks_like_fence(rule: Acl, rules: AbstractSet[Acl]) -> bool:
    """Return whether a cutover's fence consists of such rules (:mod:`airflow_mirror.cutover.fence`).

    That is DENY WRITE for everybody on a topic, and on a topic that had no rule also ALLOW READ and DESCRIBE_CONFIGS.

    :param rules: all rules of the cluster.
    """
    if not _for_everybody(rule):
        return False
    deny = replace(rule, permission="DENY", operation="WRITE")
    if rule == deny:
        return True
    allowed = {replace(rule, permission="ALLOW", operation=operation) for operation in ("READ", "DESCRIBE_CONFIGS")}
    return rule in allowed and {deny} | allowed <= rules


def may_be_a_fences(rule: Acl, rules: AbstractSet[Acl]) -> bool:
    """Return whether a rule is of those that a fence makes, and that would be copied as the site's own.

    That is DENY WRITE by name, of a fence that spares a mirror; and what lets everybody read a topic that was open, where
    DENY WRITE is not beside it (any more).

    :param rules: all rules of the cluster.
    """
    if looks_like_fence(rule, rules):
        return False
    allowed = {replace(rule, permission="ALLOW", operation=operation) for operation in ("READ", "DESCRIBE_CONFIGS")}
    return _denies_writing(rule) or (rule in allowed and allowed <= rules and _for_everybody(rule))


def _for_everybody(rule: Acl) -> bool:
    return rule.resource_type == TOPIC and not is_pattern(rule) and (rule.principal, rule.host) == (EVERYBODY, "*")


def _denies_writing(rule: Acl) -> bool:
    """Return whether a fence that spares a mirror consists of such rules: DENY WRITE on a topic, for whom it names.

    The source's are copied like any other: nobody may do more on the target. But who takes one away from the target may
    let writers in behind a fence there.
    """
    denies = (rule.resource_type, rule.permission, rule.operation, rule.host) == (TOPIC, "DENY", "WRITE", "*")
    return denies and not is_pattern(rule)


def _concerned(rules: AbstractSet[Acl], scope: Scope) -> tuple[dict[Acl, Acl], list[LeftOut]]:
    """Return the rules that concern the mirror, each with what it is called on the target, and the others."""
    renamed: dict[Acl, Acl] = {}
    left_out: list[LeftOut] = []
    for rule in rules:
        if reason := _not_ours(rule, rules, scope):
            left_out.append(LeftOut(rule, reason))
        else:
            renamed |= {one: _renamed(one, scope) for one in _by_name(rule, scope)}
    writers = {new.principal for new in renamed.values() if new.resource_type == TOPIC and _may_write(new)}
    ids = {r: new for r, new in renamed.items() if r.resource_type == TRANSACTIONAL_ID}
    granted = {n.principal for n in ids.values() if n.permission == "ALLOW" and _concerns(n.principal, writers)}
    # What is denied to somebody who writes nothing counts as well where everybody gets it.
    idle = {r for r, n in ids.items() if not _concerns(n.principal, writers if r.permission == "ALLOW" else granted)}
    left_out += [LeftOut(rule, "its principal may write to no topic of the mirror") for rule in idle]
    return {rule: new for rule, new in renamed.items() if rule not in idle}, left_out


def _not_ours(rule: Acl, rules: AbstractSet[Acl], scope: Scope) -> str:
    """Return why a rule of the source does not concern this mirror; empty if it does."""
    if "UNKNOWN" in (rule.resource_type, rule.pattern_type, rule.operation, rule.permission):
        return "this version does not know its kind; add it by hand"
    if rule.principal == scope.own_source or scope.principals.target(rule.principal) == scope.own_target:
        return "it is about the mirror's own principal"
    if looks_like_fence(rule, rules):
        return "it is, or looks like, the fence of a cutover; if it is not, add it by hand once the target is open"
    if rule.resource_type in CLUSTER_WIDE:
        return _not_copied(rule, scope)
    if rule.resource_type == TRANSACTIONAL_ID:
        return "it is about a mirror's own ids" if rule.name.startswith(OWN_IDS) else ""
    if rule.resource_type == TOPIC:
        concerned = any(covers_name(rule, topic) for topic in _candidates(rule, scope.topics))
        return "" if concerned else "it is about no topic of the mirror"
    # A group need not exist yet. A prefix concerns the mirror if it selects the group of just that name.
    concerned = pattern_of(rule) == ALL_NAMES or scope.mirror.selects_group(rule.name)
    concerned = concerned or any(covers_name(rule, group) for group in _candidates(rule, scope.selected_groups))
    return "" if concerned else "it is about no group of the mirror"


def _candidates(rule: Acl, names: Collection[str]) -> Collection[str]:
    """Return the names that a rule may cover: for a literal one a look-up, not a walk."""
    if is_pattern(rule):
        return names
    return [rule.name] if rule.name in names else []


def _not_copied(rule: Acl, scope: Scope) -> str:
    if not scope.cluster_wide:
        return "it is about the whole cluster, not about the mirror's topics or groups"
    if rule.resource_type == "DELEGATION_TOKEN" and not is_pattern(rule):
        return "a delegation token exists on one cluster only"
    return ""


def _by_name(rule: Acl, scope: Scope) -> list[Acl]:
    """Return a rule as it is, or for each topic that it covers if names on the target follow no pattern."""
    if rule.resource_type != TOPIC or not is_pattern(rule) or scope.mirror.naming.target_prefix("") is not None:
        return [rule]
    return [replace(rule, pattern_type="LITERAL", name=topic) for topic in scope.topics if covers_name(rule, topic)]


def _renamed(rule: Acl, scope: Scope) -> Acl:
    principal, name, kind = scope.principals.target(rule.principal), rule.name, rule.pattern_type
    if rule.resource_type == TOPIC and pattern_of(rule) == ALL_NAMES:
        prefix = scope.mirror.naming.target_prefix("")
        kind, name = ("PREFIXED", prefix) if prefix else ALL_NAMES
    elif rule.resource_type == TOPIC:
        name = scope.mirror.naming.target_prefix(name) or name if is_pattern(rule) else scope.topics[name]
    elif rule.resource_type == "USER" and not is_pattern(rule):
        name = scope.principals.target(name)
    return replace(rule, principal=principal, name=name, pattern_type=kind)


def _written_out(rule: Acl, scope: Scope) -> list[Acl]:
    """Return a rule of the target as it is, or its literal ones if it also covers names of others."""
    if rule in scope.there or not scope.strangers(rule):
        return [rule]
    names = sorted(scope.target_names(rule.resource_type) - {_ANY})
    covered = [name for name in names if covers_name(rule, name)]
    return [replace(rule, pattern_type="LITERAL", name=name) for name in covered]


def _within(deny: Acl, reach: Collection[tuple[str, Pattern]]) -> list[Acl]:
    found = sorted(p for kind, p in reach if kind == deny.resource_type and covers(pattern_of(deny), p))
    return [replace(deny, pattern_type=kind, name=name) for kind, name in found]


def _phased(rule: Acl) -> list[Wanted]:
    reading = READING.get(rule.resource_type, ())
    if rule.permission == "DENY":
        # What reads is denied to the mirror on the source as well, unless it is a super user there.
        reads = rule.operation in reading or (rule.operation == "ALL" and rule.resource_type in (TOPIC, GROUP))
        return [Wanted(rule, EARLY if reads or rule.principal != EVERYBODY else CUTOVER)]
    if rule.operation in reading:
        return [Wanted(rule, EARLY)]
    stand_ins = [replace(rule, operation=operation) for operation in reading] if rule.operation == "ALL" else []
    return [*(Wanted(one, EARLY, instead_of=rule) for one in stand_ins), Wanted(rule, CUTOVER)]


def _may_write(rule: Acl) -> bool:
    return rule.permission == "ALLOW" and rule.operation in ("WRITE", "ALL")


def _concerns(principal: str, writers: Collection[str]) -> bool:
    return bool(writers) and (principal in writers or principal == EVERYBODY or EVERYBODY in writers)
