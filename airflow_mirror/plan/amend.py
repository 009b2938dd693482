"""What a plan's rule selects by now and the plan does not have, decided as a plan decides, topic by topic.

A topic with a finding that would block a plan is left out alone, with the reason: the others need not wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import TopicInfo, same_topic
from airflow_mirror.ledger.decisions import Values
from airflow_mirror.plan import holes
from airflow_mirror.plan.build import decide, owned_there
from airflow_mirror.plan.checks import TOLD_ONCE
from airflow_mirror.plan.findings import WARN, Finding
from airflow_mirror.plan.holes import HoleSamples
from airflow_mirror.plan.inventory import (
    Inventory,
    TopicState,
    need_keys,
    read_target,
    read_topics,
    with_age,
)
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.plan.recreated_topics import created_again, sentence
from airflow_mirror.plan.refusals import refusals
from airflow_mirror.plan.upstream import Upstream, read_upstream


@dataclass(frozen=True, kw_only=True)
class Changes:
    """How the source's topics differ from a plan's; all sorted.

    :param new: selected by the rule, and not in the plan.
    :param grown: in the plan, and with more partitions than there.
    :param gone: in the plan, and not seen on the source.
    :param again: in the plan, and created again on the source since.
    """

    new: tuple[str, ...]
    grown: tuple[str, ...]
    gone: tuple[str, ...]
    again: tuple[str, ...]


def changes(plan: Plan, there: Mapping[str, TopicInfo]) -> Changes:
    """Compare a plan with the topics of its source.

    :param there: all that the source shows.
    """
    planned = {t.source_topic: t for t in plan.topics}
    same = {name for name, t in planned.items() if name in there and same_topic(t.source_topic_id, there[name].topic_id)}
    return Changes(
        new=tuple(sorted(name for name in there.keys() - planned.keys() if plan.mirror.selects_topic(name))),
        grown=tuple(sorted(name for name in same if there[name].partitions > planned[name].partitions)),
        gone=tuple(sorted(planned.keys() - there.keys())),
        again=tuple(sorted((planned.keys() & there.keys()) - same)),
    )


@dataclass(kw_only=True)
class Draft:
    """What could be added to a plan.

    :ivar topics: may be added. :ivar findings: warnings, by source topic.
    :ivar left_out: may not, and why, by source topic.
    :ivar upstream: where their records come from.
    """

    topics: list[TopicPlan] = field(default_factory=list)
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    upstream: Upstream = Upstream()


def draft(
    plan: Plan, source: ClusterAdmin, target: ClusterAdmin, names: Collection[str], now: datetime, decisions: Values
) -> Draft:
    """Read these topics of the source, and decide about each of them. Nothing is written.

    :param names: new and grown ones; see :class:`Changes`.
    :param decisions: the target's.
    :raises MirrorError: they can't be read.
    """
    mirror = plan.mirror
    # All of a topic that appeared since is later than the moment at which the mirror began.
    planned = {t.source_topic for t in plan.topics}
    upstream = read_upstream(source, [name for name in names if name not in planned])
    names = [name for name in names if name in planned or name not in upstream.traces]
    returning = returning_topics(plan, upstream, [name for name in names if name not in planned])
    kept = [name for name in names if name not in returning]
    if not kept:
        return Draft(left_out=returning, upstream=upstream)
    here = read_topics(source, kept, "earliest" if mirror.begins_once else mirror.start)
    new = {name: state for name, state in here.items() if name not in planned}
    there = read_target(mirror, target, [mirror.naming.target_topic(name) for name in new])
    again = created_again(mirror, plan.source_cluster_id, new, there, decisions)
    here, new = ({name: state for name, state in some.items() if name not in again} for some in (here, new))
    here = with_age(here, source, mirror, now)
    keyed = need_keys(mirror, new)
    samples = holes.sample(source.config, new, committed=mirror.isolation == "read_committed", keyed=keyed)
    there = replace(there, owned=owned_there(mirror, plan.source_cluster_id, there, decisions))
    found = decide_each(plan, here, there, samples, now)
    added = [t for t in found.topics if t.source_topic in new]
    if refused := refusals(target, mirror, added, new, there):
        found = decide_each(plan, here, replace(there, refused=refused), samples, now)
    replaced = {name: ". ".join(sentence(topic)) for name, topic in again.items()}
    return replace(found, left_out=found.left_out | returning | replaced, upstream=upstream)


def returning_topics(plan: Plan, upstream: Upstream, names: Collection[str]) -> dict[str, str]:
    """Return those new topics whose records may come from the target, each with the reason.

    A plan is blocked by one that would keep its name. Here it is left out: the others need not wait for it.
    """
    if upstream.unreadable:
        return dict.fromkeys(names, f"it is not known whether its records come from the target: {upstream.unreadable}")
    back = upstream.returning(names, plan.target_cluster_id)
    return {name: f"its records come from the target; on the source it belongs to {by}" for name, by in back.items()}


def decide_each(
    plan: Plan, here: Mapping[str, TopicState], there: Inventory, samples: HoleSamples, now: datetime
) -> Draft:
    """Decide from what was read, without querying a cluster.

    :param here: topics of the source; those that the plan has already got partitions.
    """
    found, planned = Draft(), {t.source_topic: t for t in plan.topics}
    names = {t.target_topic: t.source_topic for t in plan.topics}
    for name, state in sorted(here.items()):
        if name in planned:
            found.topics.append(grown(plan, planned[name], state))
            continue
        if (other := names.setdefault(plan.mirror.naming.target_topic(name), name)) != name:
            found.left_out[name] = f"its name on the target is that of topic {other!r}. Change the policy, or exclude one"
            continue
        source = Inventory(cluster_id=plan.source_cluster_id, brokers=0, topics={name: state})
        words = {t: why for t, why in there.refused.items() if t == plan.mirror.naming.target_topic(name)}
        its = replace(there, refused=words)
        one = decide(plan.mirror, source, its, plan.known_topics, now, samples.of(name), plan.capabilities)
        if one.blocks:
            found.left_out[name] = "; ".join(map(str, one.blocks))
            continue
        if lacking := _lacks_brokers(plan, one):
            found.left_out[name] = lacking
            continue
        found.topics += one.topics
        found.findings[name] = [f for f in one.findings if f.level == WARN and f.check not in TOLD_ONCE]
    return found


def _lacks_brokers(plan: Plan, one: Plan) -> str:
    """Return why a topic would get fewer replicas for good than it may have in a moment; empty: it would not.

    :param one: of this topic alone.
    """
    few = next((f.evidence for f in one.findings if f.check == "replication" and f.level == WARN), "")
    most = max((t.replication_factor for t in plan.topics), default=0)
    if not few or one.topics[0].replication_factor >= most:  # the target had no more when the mirror was planned
        return ""
    return f"{few}, and topics of the plan have {most}. It joins once that many are back; else plan again"


def grown(plan: Plan, topic: TopicPlan, state: TopicState) -> TopicPlan:
    """Return the plan of a topic that got partitions; its first ones stay as planned."""
    new = range(topic.partitions, state.info.partitions)
    ends = state.stable_ends if plan.mirror.isolation == "read_committed" else state.ends
    fill = {p: state.begins[p] for p in new if state.begins[p] > 0 and topic.mode == "identical"}
    return replace(
        topic,
        partitions=state.info.partitions,
        starts={**topic.starts, **{p: state.begins[p] for p in new}},
        ends={**topic.ends, **{p: ends[p] for p in new}},
        prime={**topic.prime, **fill},
    )
