"""What must be so of target topics before a mirror touches them, by what is decided in the target's ledger.

Nothing is decided here; whoever writes asks (:mod:`.ownership` decides, :mod:`.owned` has the values).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_mirror.errors import InputError, MirrorCutOver, TopicsOwned, TopicsShared
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.ledger.records import TOPIC
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.plan.owned import Owned, begun_otherwise, decided, former_ids, mirrors, target_ids
from airflow_mirror.wording import some


def require_planned_clusters(plan: Plan, source: ClusterAdmin | None, target: ClusterAdmin) -> None:
    """Return if these are the clusters of a plan. What another one says, or proves, would count for the mirror.

    A connection, or a name in it, may lead elsewhere by now: where both lead to one cluster, all is equal.

    :param source: None: it is lost, and says nothing. :raises InputError: one is another.
    """
    for admin, planned in ((source, plan.source_cluster_id), (target, plan.target_cluster_id)):
        if admin is not None and (its := admin.cluster_id()) != planned:
            raise InputError(
                f"{admin.role} cluster", f"it is {its}, and mirror {plan.mirror.name!r} was planned for {planned}",
                f"Correct what leads there: --{admin.role}, or the Mirror's {admin.role} connection.",
            )  # fmt: skip


def require_active(ledger: Decisions, plan: Plan, target: ClusterAdmin) -> None:
    """Refuse to write to, or to hold, topics that this mirror has handed over, or that belong to another one.

    :raises MirrorCutOver: :raises TopicsOwned: each names the topics.
    """
    values = ledger.values()
    if any(TOPIC.key(topic) in values for topic in target_topics(plan)):
        require_free(values, plan, target_ids(plan, target))


def recreated(ledger: Decisions, plan: Plan, target: ClusterAdmin) -> dict[str, str]:
    """Return target topics that were created again since it was decided whose they are; the plan knew of none of them.

    :return: by name, the id that is decided about.
    """
    topic_ids = target_ids(plan, target)
    former = former_ids(ledger.values(), target_topics(plan), topic_ids)
    return {t: i for t, i in former.items() if t in topic_ids and plan.superseded.get(t) != i}


def require_planned_ids(ledger: Decisions, plan: Plan, target: ClusterAdmin) -> None:
    """Refuse target topics that were created again since it was decided whose they are, unless the plan knew of that.

    :raises InputError: names them.
    """
    if again := sorted(recreated(ledger, plan, target)):
        raise InputError(
            f"mirror {plan.mirror.name!r} does not take target topics {some(again)}",
            "they were deleted and created again since they were a mirror's: whose they are by now nobody has decided. "
            "Nothing was touched",
            "Plan again to copy into them; exclude them, or mirror under other names, if they are somebody else's.",
        )


def require_owned(ledger: Decisions, plan: Plan, target: ClusterAdmin) -> None:
    """Refuse what is about topics that belong to another mirror, or that this one gives up. They may be in production.

    :raises TopicsOwned: names the topics.
    """
    values = ledger.values()
    if any(TOPIC.key(topic) in values for topic in target_topics(plan)):
        require_mine(decided(values, target_ids(plan, target)), plan)


def require_exclusive_topics(plan: Plan, what: str) -> None:
    """Refuse what a mirror can do with topics of its own only.

    :raises TopicsShared: the mirror shares its target topics.
    """
    if plan.mirror.shares:
        raise TopicsShared(plan.mirror.name, what)


def require_opened(ledger: Decisions, plan: Plan) -> None:
    """Refuse to let applications write to topics that a cutover of this mirror has not handed over.

    A topic that was handed over and created again since is its new owner's matter.

    :raises InputError: names the topics. :raises LedgerNewer: a newer version of the package decided about one of them.
    """
    us, values = (plan.mirror.name, plan.source_cluster_id), ledger.values()
    owned = {t: Owned.of(t, values[key]) for t in target_topics(plan) if (key := TOPIC.key(t)) in values}
    opened = {t for t, one in owned.items() if one.opened_by is not None and (one.mirror, one.source_id) == us}
    closed = [t for t in target_topics(plan) if t not in opened]
    if closed:
        raise InputError(
            f"mirror {plan.mirror.name!r} has not handed over target topics {some(closed)}",
            "who writes to them now stops their copy. Nothing was touched",
            "Run CutoverOperator first, or phase='early', which gives nobody rights to write.",
        )


def not_ours(ledger: Decisions, plan: Plan, target: ClusterAdmin) -> dict[str, str]:
    """Return those of the plan's target topics that this mirror may not write to, each with the reason."""
    owned = decided(ledger.values(), target_ids(plan, target))
    opened = {
        topic: f"target topic {topic!r} was handed over to applications ({one.opened_at})"
        for topic, one in owned.items()
        if one.opened_by is not None
    }
    return opened | {t: f"target topic {t!r} belongs to {one.owner}" for t, one in others_among(owned, plan).items()}


def require_own_name(values: Values, mirror: str) -> None:
    """Refuse a new mirror whose name can't be told from that of another one.

    :raises InputError: names both.
    """
    known = mirrors(values)
    for other in sorted(known) if mirror not in known else ():
        if mirror.startswith(f"{other}.") or other.startswith(f"{mirror}."):
            raise InputError(
                f"mirror {mirror!r} can't be planned beside mirror {other!r}, which the target's ledger knows",
                "what is named after mirrors, such as a fence at the source, would be taken for the other one's. Nothing "
                "was changed",
                f"Give the new one a name without that beginning, such as {mirror.replace('.', '-')!r}.",
            )


def require_free(values: Values, plan: Plan, topic_ids: Mapping[str, str]) -> None:
    """Refuse target topics that are another mirror's, or in production.

    :param topic_ids: present ids of the target topics, by name. :raises TopicsOwned: :raises MirrorCutOver: names them.
    """
    owned = decided(values, topic_ids)
    require_mine(owned, plan)
    opened = {topic: one for topic, one in owned.items() if one.opened_by is not None}
    if opened:
        raise MirrorCutOver(plan.mirror.name, list(opened), next(iter(opened.values())).opened_at or "")


def require_mine(owned: Mapping[str, Owned], plan: Plan) -> None:
    """Refuse target topics that are another mirror's. :raises TopicsOwned: names them."""
    if others := others_among(owned, plan):
        raise TopicsOwned(plan.mirror.name, {topic: one.owner for topic, one in others.items()})


def _may_own(one: Owned, plan: Plan) -> bool:
    """Return whether a topic is, or may become, also this mirror's."""
    mine = one.of_mirror(plan.mirror.name, plan.source_cluster_id)
    if mine is not None:
        return not mine.released and plan.mirror.shares == bool(one.sharers)
    # One name is one lease, one group of progress, one set of transactional ids.
    return plan.mirror.shares and bool(one.sharers) and all(s.mirror != plan.mirror.name for s in one.sharers)


def others_among(owned: Mapping[str, Owned], plan: Plan) -> dict[str, Owned]:
    """Return those topics that are another mirror's."""
    return {topic: one for topic, one in owned.items() if not _may_own(one, plan)}


def target_topics(plan: Plan) -> list[str]:
    """Return the names of a plan's target topics."""
    return [t.target_topic for t in plan.topics]


def own_part(values: Values, plan: Plan, topic_ids: Mapping[str, str]) -> tuple[Plan, dict[str, str]]:
    """Return a plan of the same hash without the target topics of other mirrors, and those with their owners.

    What its mirror gives up is its own until another mirror has it: for who ends all that the mirror writes.

    :param topic_ids: present ids of the target topics, by name.
    """
    others = others_among(unreleased(decided(values, topic_ids)), plan)
    if not others:
        return plan, {}
    gone = {t.source_topic for t in plan.topics if t.target_topic in others}
    positions = {group: {t: at for t, at in its.items() if t not in gone} for group, its in plan.positions.items()}
    own = replace(
        plan,
        topics=tuple(t for t in plan.topics if t.source_topic not in gone),
        positions={group: its for group, its in positions.items() if its},
        rule=plan.rule or plan,
    )
    return own, {topic: one.owner for topic, one in sorted(others.items())}


def require_planned_counts(others: Mapping[str, int], plan: Plan) -> None:
    """Refuse a plan of before its topics were there, if somebody else has created or grown them since as they please.

    :param others: those without a record that have another count of partitions than planned, by name: which.
    :raises InputError: names the topics.
    """
    planned = {t.target_topic: t.key_partitions for t in plan.topics}
    if others:
        raise InputError(
            f"mirror {plan.mirror.name!r} does not begin to copy into target topics by this plan: keys would be dealt "
            "out among another count of partitions for good",
            [f"{topic}: {planned[topic]} by the plan, {count} on the target" for topic, count in others.items()],
            "Plan again.",
        )


def require_begun_so(held: Owned | None, plan: Plan, topic: TopicPlan) -> None:
    """Refuse a plan of before the first records were copied, if these were copied in another way.

    :param held: what is decided about a target topic with records.
    :raises InputError: names the topic.
    """
    for name, was in (begun_otherwise(held, plan.mirror, topic) if held is not None else {}).items():
        raise InputError(
            f"mirror {plan.mirror.name!r} does not copy into target topic {topic.target_topic!r} by this plan",
            f"its copy began with {name}={was!r} by another one, and would begin anew behind what is there. Nothing was "
            "decided",
            "Plan again.",
        )


def unreleased(owned: Mapping[str, Owned]) -> dict[str, Owned]:
    """Return topics as if no mirror that has one alone gave it up."""
    return {t: replace(one, released=None) for t, one in owned.items()}
