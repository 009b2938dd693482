"""Which topics a Mirror selects, and which it leaves out: by name, by where their records come from, by who has them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from airflow_mirror.common.patterns import is_name
from airflow_mirror.common.policy import is_internal, is_reserved, is_topic_name
from airflow_mirror.errors import MissingRight, NothingMatches, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.upstream import Upstream, read_upstream
from airflow_mirror.wording import some

HIDDEN, DELETED = "hidden", "deleted"  # what became of a topic that is not listed any more


def select_topics(mirror: Mirror, source: ClusterAdmin) -> list[str]:
    """Return the names of the source's topics that belong to the mirror, sorted.

    :raises NothingMatches: there is none.
    """
    available = source.topic_names()
    selected = [name for name in available if mirror.selects_topic(name)]
    if not selected:
        known = [name for name in available if not is_internal(name, mirror.separator)]
        raise NothingMatches(mirror.topics, mirror.exclude_topics, known, internal=internal_topics(mirror, available))
    return selected


def without_returning(
    mirror: Mirror, names: Collection[str], upstream: Upstream, target_id: str
) -> tuple[list[str], tuple[str, ...]]:
    """Return which selected topics are copied, and which would return to the target under another name.

    Patterns find these, and nobody means them; nor traces of mirrors, which are in neither. Those that return and keep
    their name are not left out: a check blocks them.

    :raises NothingMatches: none is left.
    """
    renamed = _renamed(mirror, names, upstream, target_id)
    kept = [name for name in names if name not in renamed and name not in upstream.traces]
    if not kept:
        raise NothingMatches(mirror.topics, mirror.exclude_topics, names, renamed)
    return kept, renamed


def internal_topics(mirror: Mirror, available: Collection[str]) -> list[str]:
    """Return the topics that a mirror leaves out for their names alone, though its patterns are for them."""
    found = (n for n in available if mirror.names_topic(n) and not mirror.selects_topic(n) and not mirror.is_displaced(n))
    return sorted(name for name in found if name in mirror.topics or not is_reserved(name))


def gone_topics(mirror: Mirror, available: Collection[str], target: ClusterAdmin) -> tuple[str, ...]:
    """Return the names that a mirror gives of topics that the source does not have, and the target does.

    A topic that the principal may not see there is none that it has copied: to whom only the mirror's topics are granted,
    a misspelt name would be a missing right.
    """
    lacking = [n for n in mirror.topics if is_name(n) and is_topic_name(n) and n not in available]
    routes = {mirror.naming.target_topic(name): name for name in lacking if mirror.selects_topic(name)}
    try:
        return tuple(routes[name] for name in target.topics(routes)) if routes else ()
    except MissingRight:
        return tuple(routes[route] for route in _one_by_one(routes, target)[0])


def absent_topics(
    mirror: Mirror, selected: Collection[str], before: Collection[str], source: ClusterAdmin
) -> dict[str, str]:  # fmt: skip
    """Return the topics of an earlier plan that a mirror still selects and its source does not list, with the reason.

    A list of all topics lacks what may not be described, without an error. Who asks by name is told: of one that was
    deleted, too, if no rule lets the principal describe it.

    :param selected: what is listed and selected. :param before: the source topics of that plan.
    :raises TryAgain: the source has one all the same: a broker that has just started may not list it yet.
    """
    lacking = sorted(name for name in {*before}.difference(selected) if mirror.selects_topic(name))
    hidden = set[str]()
    try:
        there = [*source.topics(lacking)] if lacking else []
    except MissingRight:
        there, hidden = _one_by_one(lacking, source)
    if there:
        raise TryAgain(
            f"mirror {mirror.name!r}: a broker of the source does not list {some(sorted(there), 3)}, and has them",
            "one that has just started may not know all topics yet; or they were created again at this moment",
        )
    return {name: HIDDEN if name in hidden else DELETED for name in lacking}


def _one_by_one(names: Iterable[str], cluster: ClusterAdmin) -> tuple[list[str], set[str]]:
    """Return which topics there are, and which are hidden: asked for together a hidden one is an error for all."""
    there, hidden = list[str](), set[str]()
    for name in names:
        try:
            there += cluster.topics([name])
        except MissingRight:
            hidden.add(name)
    return there, hidden


def other_topics(mirror: Mirror, available: Collection[str]) -> tuple[str, ...]:
    """Return the names of the source's topics that the mirror leaves out, in their order; without internal ones."""
    names = (name for name in available if not is_internal(name, mirror.separator))
    return tuple(name for name in names if not mirror.selects_topic(name))


def missing_topics(plan: Plan, source: ClusterAdmin) -> list[str]:
    """Return the source's topics that match the plan's mirror but are not in the plan, sorted: they appeared later.

    Nothing copies them, so a cutover would lose them. One that came from the target when the plan was made is among them
    once applications write to it.
    """
    planned = {t.source_topic for t in plan.topics}
    found = sorted(n for n in source.topic_names() if n not in planned and plan.mirror.selects_topic(n))
    if not found:
        return []
    upstream = read_upstream(source, found)
    left_out = upstream.traces.union(_renamed(plan.mirror, found, upstream, plan.target_cluster_id))
    return [name for name in found if name not in left_out]


def _renamed(mirror: Mirror, names: Collection[str], upstream: Upstream, target_id: str) -> tuple[str, ...]:
    """Return the topics that would return to the target under another name."""
    return tuple(n for n in upstream.returning(names, target_id) if mirror.naming.target_topic(n) != n)
