"""Access rules follow a mirror: those of readers early, those of writers at the cutover.

``diff`` decides; ``sync_acls`` applies and reads back. :mod:`airflow_mirror.sync.acl_rules` has the rules. The order of
writing is the mirror's own rights, what denies, what allows, and then what is removed: at no moment does a rule of this
mirror allow what the source denies. All of it is a difference between two clusters, so a run that was killed anywhere is
completed by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from airflow_mirror.common.policy import FENCES, LEDGER, NOBODY, OWN_IDS
from airflow_mirror.errors import InvalidField, NoAuthorizer, RulesOfAnotherFence, TryAgain
from airflow_mirror.kafka.acls import unless_none_is_enforced
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import Acl, TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.kafka.principal import own_principal
from airflow_mirror.plan.ledger_writers import is_open_by_default
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.requirements import require_exclusive_topics
from airflow_mirror.sync.acl_rules import (
    CUTOVER,
    EARLY,
    LeftOut,
    Wanted,
    could_be_ours,
    may_be_a_fences,
    own_patterns,
    rewrite,
    writers_of,
)
from airflow_mirror.sync.acl_scope import GROUP, TOPIC, TRANSACTIONAL_ID, Scope, is_pattern, others
from airflow_mirror.sync.own_rights import closing
from airflow_mirror.sync.topics import settle

PHASES = (EARLY, CUTOVER)
Granted = Callable[[], AbstractContextManager[Permit]]
Kept = Callable[[Mapping[str, TopicInfo]], AbstractSet[str]]
_BEYOND = "it also covers {!r}; remove it by hand if the source has taken it back"
_IN_PRODUCTION = "another mirror's topics are in production, and may rest on it; remove it by hand if nobody does"
_NONE_ENFORCED = "the source has no authorizer: everybody may do everything there, and there is no rule"
_READINGS = 5  # a fence changes four times in its life: up, opened, swapped, lifted


class OfFence(NamedTuple):
    """Rules of a source that are as they are only while a cutover's fence stands there.

    :param added: by the fence, which names applications. :param taken: of others, taken away until it is lifted.
    :param decided: what is decided about that fence; another one where anything of it may have changed.
    :param name: its name there.
    """

    added: frozenset[Acl] = frozenset()
    taken: frozenset[Acl] = frozenset()
    decided: str = ""
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class AclDiff:
    """What a phase changes on the target.

    :param own: rights of the mirror's own principal, where the first rule closes what was open.
    :param deny: rules that deny; ``allow``: rules that allow.
    :param kept: rules of the phase that the target has.
    :param later: rules of the cutover that the target lacks, in the phase before it.
    :param drift: rules of the target that the mirror could have written and that the source does not have.
    :param stays: such rules that only a person may remove: patterns that also cover names of others, and, beside another
        mirror's topics in production, what is about groups or ids.
    :param left_out: rules of the source that are not copied.
    :param written_out: patterns of the source that are literal rules on the target.
    :param lost: who loses access.
    """

    own: tuple[Acl, ...]
    deny: tuple[Acl, ...]
    allow: tuple[Acl, ...]
    kept: tuple[Acl, ...]
    later: tuple[Acl, ...]
    drift: tuple[Acl, ...]
    stays: tuple[LeftOut, ...]
    left_out: tuple[LeftOut, ...]
    written_out: tuple[LeftOut, ...]
    lost: tuple[str, ...]

    @property
    def granted(self) -> tuple[Acl, ...]:
        """Every rule to add, in the order of writing."""
        return (*self.own, *self.deny, *self.allow)


@dataclass(frozen=True, kw_only=True)
class AclReport:
    """The verdict: what was (or, in a dry run, would be) changed.

    :param open_by_default: whether resources without rules are open to everybody on the target; None: unknown.
    :param removed: rules that are gone on the source and were removed from the target.
    :param applied: the target has been read back; False for a dry run that found something to do.
    :param is_enforced: the source has an authorizer; where it has none, whose rights are left for later is not known.
    """

    phase: str
    diff: AclDiff
    open_by_default: bool | None
    removed: tuple[Acl, ...]
    applied: bool
    is_enforced: bool = True
    notes: tuple[str, ...] = ()

    @property
    def changes(self) -> int:
        """Number of rules that are added and removed."""
        return len(self.diff.granted) + len(self.removed)

    def lines(self) -> list[str]:
        """Return the changes, what a person has to remove, who loses access, and what to know, as text."""
        own = [f"+ {rule} (the mirror's own)" for rule in self.diff.own]
        added = [f"+ {rule}" for rule in (*self.diff.deny, *self.diff.allow)]
        return (
            own
            + added
            + [f"- {rule}" for rule in self.removed]
            + [f"! {one.rule} is not on the source, and stays: {one.reason}" for one in self.diff.stays]
            + [f"! {line}" for line in (*self.diff.lost, *self.notes)]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values: rules as text, reasons with the rules that they are about."""
        texts = {name: [str(rule) for rule in getattr(self.diff, name)] for name in ("kept", "later", "drift")}
        reasons = {
            name: [{"rule": str(one.rule), "reason": one.reason} for one in getattr(self.diff, name)]
            for name in ("stays", "left_out", "written_out")
        }
        return {
            "phase": self.phase, "applied": self.applied, "changes": self.changes,
            "open_by_default": self.open_by_default, "granted": [str(rule) for rule in self.diff.granted],
            "removed": [str(rule) for rule in self.removed], "lost": list(self.diff.lost), "notes": list(self.notes),
            **texts, **reasons,
        }  # fmt: skip


def diff(source: AbstractSet[Acl], scope: Scope, phase: str, open_by_default: bool | None) -> AclDiff:
    """Return what ``phase`` changes on the target.

    :param source: the source's rules; the target's are in ``scope``.
    :raises InvalidField: the map of principals is ambiguous.
    """
    found = rewrite(source, scope)
    due = list(dict.fromkeys(w.rule for w in found.wanted if _is_due(w, phase, scope.there)))
    missing = [rule for rule in due if rule not in scope.there]
    every = {w.rule for w in found.wanted}
    writers = writers_of((*scope.there, *every), scope)
    gone = sorted(rule for rule in scope.there - every if could_be_ours(rule, scope, writers, phase))
    stays = {rule: why for rule in gone if (why := _why_it_stays(rule, scope))}
    closed = closing({*missing}, scope.there & every, scope, open_by_default)
    return AclDiff(
        own=closed.own,
        deny=tuple(rule for rule in missing if rule.permission == "DENY"),
        allow=tuple(rule for rule in missing if rule.permission == "ALLOW"),
        kept=tuple(rule for rule in due if rule in scope.there),
        later=tuple(sorted(every - scope.there - set(due) if phase == EARLY else ())),
        drift=tuple(rule for rule in gone if rule not in stays),
        stays=tuple(LeftOut(rule, why) for rule, why in stays.items()),
        left_out=found.left_out,
        written_out=found.written_out,
        lost=closed.lost,
    )


def _why_it_stays(rule: Acl, scope: Scope) -> str:
    """Return why a rule that the source lacks is not the mirror's to remove; empty if it is."""
    if is_pattern(rule) and (its := scope.strangers(rule)):
        return _BEYOND.format(its[0])
    return _IN_PRODUCTION if scope.beside_production and rule.resource_type in (GROUP, TRANSACTIONAL_ID) else ""


def _is_due(wanted: Wanted, phase: str, there: AbstractSet[Acl]) -> bool:
    """Return whether a rule belongs to a phase. Nobody needs what stands in for a rule that is there, or comes now."""
    if wanted.instead_of is not None and (phase == CUTOVER or wanted.instead_of in there):
        return wanted.rule in there
    return wanted.phase == EARLY or phase == CUTOVER


@dataclass(frozen=True, kw_only=True)
class AclOptions:
    """How ACLs are brought to the target.

    :param phase: ``early`` for those of readers, ``cutover`` for all.
    :param remove: also remove rules that the mirror could have written and that are gone on the source. Where the source
        has no authorizer, nothing is.
    :param cluster_wide: also copy rules about the cluster, delegation tokens and users.
    :param open_to_all: whether resources without rules are open to everybody on the target; None asks its brokers, which
        seldom say it.
    :param own: the mirror's own principal on the ``source`` and on the ``target``, where the connection does not say it.
    :param beside_production: other topics of the source are in production: see :class:`.Scope`.
    :param dry_run: only report.
    """

    phase: str = EARLY
    remove: bool = False
    cluster_wide: bool = False
    open_to_all: bool | None = None
    own: Mapping[str, str] = field(default_factory=dict)
    beside_production: bool = False
    dry_run: bool = False


def sync_acls(
    plan: Plan,
    source: ClusterAdmin,
    target: ClusterAdmin,
    how: AclOptions | None = None,
    *,
    granted: Granted,
    fence: Callable[[], OfFence] = OfFence,
    kept: Kept | None = None,
) -> AclReport:
    """Bring the target's rules in line with the source's, and read them back.

    :param fence: tells what a fence has changed on the source; asked on both sides of the reading of its rules.
    :param kept: see :func:`read_scope`.
    :param granted: returns what each write is done in, which gives its permit; it raises where nothing may be written.
    :raises InvalidField: a phase that does not exist, a principal that nobody knows, or an ambiguous map of principals.
    :raises TopicsShared: readers of one source's records would be given another's.
    :raises NoAuthorizer: the target has none.
    :raises NotKept: a change is not visible when read back.
    :raises MissingRight: the principal lacks DESCRIBE on the cluster, or on the target ALTER.
    :raises TryAgain: a fence is raised, swapped or lifted on the source all the time.
    :raises RulesOfAnotherFence: rules there may be another fence's.
    """
    how = how or AclOptions()
    phase, dry_run = how.phase, how.dry_run
    if phase not in PHASES:
        raise InvalidField("phase", phase, "unknown", f"Use one of {', '.join(PHASES)}.")
    require_exclusive_topics(plan, "let ACLs follow")
    rules, is_enforced = _rules_without_fence(source, fence, {t.source_topic for t in plan.topics})
    notes = [] if is_enforced else [_NONE_ENFORCED]
    remove = how.remove and is_enforced  # a source that has lost its authorizer has not taken any right back
    scope = read_scope(
        plan, source, target, rules, how.own, kept,
        cluster_wide=how.cluster_wide, beside_production=how.beside_production,
    )  # fmt: skip
    is_open = is_open_by_default(target) if how.open_to_all is None else how.open_to_all
    found = diff(rules, scope, phase, is_open)
    if is_open is None and found.own:
        notes.append(
            "nobody knows whether topics without ACLs are open to everybody on the target (its brokers hide "
            "allow.everyone.if.no.acl.found); it was taken for true. State it with open_by_default."
        )
    removed = found.drift if remove else ()
    applied = not dry_run or not (found.granted or removed)
    report = AclReport(
        phase=phase, diff=found, open_by_default=is_open, removed=removed, applied=applied, is_enforced=is_enforced,
        notes=tuple(notes),
    )  # fmt: skip
    if dry_run:
        return report
    for some in (found.own, found.deny, found.allow):
        create_rules(target, some, granted)
    if removed:
        with granted() as permit:
            target.delete_acls(removed, permit)
        settle(lambda: _left(target, removed), "ACLs")
    return report


def read_scope(
    plan: Plan,
    source: ClusterAdmin | None,
    target: ClusterAdmin,
    rules: AbstractSet[Acl],
    own: Mapping[str, str],
    kept: Kept | None,
    *,
    cluster_wide: bool = False,
    beside_production: bool = False,
) -> Scope:
    """Read what of the two clusters is the mirror's.

    :param source: None: it is lost. The mirrors' own ledger and ids count as others' then, and own principals may be
        unknown. :param rules: the source's.
    :param kept: returns, of the target's topics, those that are the mirror's: :func:`.kept_topics` of its ledger.
        None: the plan's alone. :param beside_production: see :class:`.Scope`; only with a source.
    :raises NoAuthorizer: the target has none.
    """
    mirror = plan.mirror
    selected = {g.group_id for g in (source or target).groups() if mirror.selects_group(g.group_id)}
    groups = frozenset({*plan.groups, *selected})
    claimed = _with_positions(plan, source, groups) if beside_production and source else groups
    scope = Scope(
        mirror=mirror,
        topics={t.source_topic: t.target_topic for t in plan.topics},
        groups=claimed,
        own_source=own_principal(source, own) if source else "",
        own_target=own_principal(target, own) if source else own.get(target.role) or target.principal or "",
        joining=_joining(plan, source) if source else frozenset(),
        there=_rules_of_target(target),
        cluster_wide=cluster_wide,
        beside_production=beside_production,
        unclaimed=groups - claimed,
    )
    there = target.topics()
    topics = there.keys() - scope.target_topics - scope.joining - (kept(there) if kept else set())
    groups_there = (g.group_id for g in target.groups())
    strangers = others(scope, topics, (*groups_there, *scope.unclaimed), own_patterns(rules, scope))
    own_memory = {(TOPIC, ("LITERAL", name)) for name in LEDGER} | {(GROUP, ("LITERAL", OWN_IDS[0]))}
    return replace(scope, others=strangers if source else strangers | own_memory)


def _with_positions(plan: Plan, source: ClusterAdmin, groups: Collection[str]) -> frozenset[str]:
    """Return those groups that have positions in the plan's topics, or had when it was made."""
    topics = {t.source_topic for t in plan.topics}
    planned = {group for group, its in plan.positions.items() if not topics.isdisjoint(its)}
    # One that can't be read now is looked at again by the next run, and loses nothing until then.
    found, _ = source.groups_offsets_apart(groups, stable=False)
    return frozenset(planned.union(g for g, its in found.items() if any(tp.topic in topics for tp in its)))


def _joining(plan: Plan, source: ClusterAdmin) -> frozenset[str]:
    """Return the target's names of topics that the mirror will take in."""
    # Rights come before the topic: one that is created and can't be described does not become the plan's.
    mirror, planned = plan.mirror, {t.source_topic for t in plan.topics}
    found = set()
    for name in source.topic_names() if mirror.sync_topics else ():
        if name not in planned and mirror.selects_topic(name):
            with suppress(InvalidField):  # whoever looks at topics says that it can't join
                found.add(mirror.naming.target_topic(name))
    return frozenset(found.difference(plan.known_topics))


def _rules_without_fence(
    source: ClusterAdmin, fence: Callable[[], OfFence], topics: Collection[str]
) -> tuple[frozenset[Acl], bool]:
    """Return the source's rules as they are when no fence is up, and whether it has an authorizer."""
    # A fence decides before it changes the first rule, and decides that it is over behind the last. So what is decided
    # before and behind the reading is the same, or the rules may be of neither: those of a fence that was lifted in
    # between would pass for the site's. By its record and not by their form: who denies writing to an application by
    # name may be the site.
    before = fence()
    for _ in range(_READINGS):
        there = unless_none_is_enforced(source.describe_acls)
        if (behind := fence()) == before:
            rules = (frozenset(there or ()) - before.added) | before.taken
            _require_no_other(source.role, rules, before, topics)
            return rules, there is not None
        before = behind
    raise TryAgain(
        f"{source.role} cluster",
        f"its fence changed {_READINGS} times while the ACLs were read",
        "Try again once no cutover raises or lifts one.",
    )


def _require_no_other(cluster: str, rules: AbstractSet[Acl], ours: OfFence, topics: Collection[str]) -> None:
    """Refuse rules that may be those of another fence, which is decided in a ledger that nobody here can ask.

    :raises RulesOfAnotherFence: they may.
    """
    # By names: they are there before a fence's first rule and behind its last, so the list that has a rule has them too.
    names = {r.name for r in rules if (r.resource_type, r.principal) == (GROUP, NOBODY) and r.name.startswith(FENCES)}
    # Which topics a fence is about its name does not say. One of other topics may stand for weeks behind its cutover:
    # that must not keep the writers of this mirror's out.
    doubtful = sorted(rule for rule in rules if rule.name in topics and may_be_a_fences(rule, rules))
    if (others := sorted(names - {ours.name})) and doubtful:
        raise RulesOfAnotherFence(cluster, [one.removeprefix(FENCES) for one in others], list(map(str, doubtful)))


def _rules_of_target(target: ClusterAdmin) -> frozenset[Acl]:
    if (rules := unless_none_is_enforced(target.describe_acls)) is None:
        raise NoAuthorizer(target.role, "no ACL can be written", "Configure an authorizer there, or leave ACLs out.")
    return frozenset(rules)


def create_rules(target: ClusterAdmin, rules: Collection[Acl], granted: Granted) -> None:
    """Create rules on the target, and read them back. One that is there is no error.

    :param granted: as for :func:`sync_acls`. :raises NotKept: a rule is not visible when read back.
    """
    if rules:
        with granted() as permit:
            target.create_acls(rules, permit)
        settle(lambda: _missing(target, rules), "ACLs")


def _missing(target: ClusterAdmin, rules: Iterable[Acl]) -> list[str]:
    there = set(target.describe_acls())
    return [f"missing: {rule}" for rule in rules if rule not in there]


def _left(target: ClusterAdmin, rules: Iterable[Acl]) -> list[str]:
    there = set(target.describe_acls())
    return [f"still there: {rule}" for rule in rules if rule in there]
