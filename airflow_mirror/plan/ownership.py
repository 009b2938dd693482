"""Which mirror a target topic belongs to, and whether it was handed over to applications: decided in the target's ledger.

A target topic has one writer. So it belongs to one mirror, from its creation on: two mirrors in one topic would overwrite
each other's offsets. Once it was handed over it is in production. A task of a finished migration may be cleared at any
time, on any worker; it must then neither turn retention off nor copy into the topic again, and neither may a new plan.

A topic that was deleted and created again has another id: it belongs to nobody. A plan that knew of that takes it; an
older one, whose tasks know it by name alone, does not.

Mirrors that write in transactions may share a topic if all of them want to (``ownership="shared"``): each one's committed
progress says where it goes on, not the log's end. Such a topic is never handed over.

The cutover calls :func:`mark_cut_over` *before* anybody writes: after a crash behind that, tasks refuse to continue
instead of overwriting data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import islice

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import (
    LedgerMissing,
    MirrorCutOver,
)
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Change, Decisions, Ledger, Values
from airflow_mirror.ledger.records import TOPIC
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.plan.owned import (
    Owned,
    copied_as,
    decided,
    of_mirror,
    owners,
    target_ids,
)
from airflow_mirror.plan.requirements import (
    others_among,
    require_begun_so,
    require_exclusive_topics,
    require_free,
    require_mine,
    require_planned_counts,
    target_topics,
    unreleased,
)

_AT_ONCE = 1000  # topics in a decision; with longest names it stays below what a broker takes (1 MiB)


def begin(plan: Plan, target: ClusterAdmin) -> Ledger:
    """Return the target's ledger; create it for a first plan, whose topics are all empty.

    :raises LedgerMissing: there is none, and topics hold data. :raises LedgerLost: see :class:`Ledger`.
    """
    ledger = Ledger(target)
    try:
        ledger.values()
    except LedgerMissing:  # also one whose creation was cut short
        if hold_data(plan, target):
            raise
        ledger.create()
    return ledger


def hold_data(plan: Plan, target: ClusterAdmin) -> bool:
    """Return whether anybody has written into the plan's target topics: without a ledger nobody knows who."""
    topics = target_topics(plan)
    return _empty(topics, target) != set(topics)


def claim(
    ledger: Decisions, plan: Plan, target: ClusterAdmin, feeds: Callable[[str], Collection[str]] | None = None,
    ids: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Make a plan's target topics this mirror's, as far as they exist, and say where their records come from.

    Safe to repeat; does nothing where that is decided already. Which source topic a target topic holds, and in which way
    it is copied, stays as it was decided until the target topic is empty: a plan of whatever age does not change what
    its records are.

    :param feeds: returns the ids of all clusters that a source topic's records come from; None: nobody knows, and what
        is decided about it stays.
    :param ids: as which a job has claimed them before, by name: one that was created again since is left to others.
    :raises TopicsOwned: some belong to other mirrors. :raises MirrorCutOver: some are in production. Nothing was decided.
    :raises InputError: some hold records that were copied in another way than the plan's, or the copy of some would
        begin by a count of partitions that they don't have. Nothing was decided.
    """
    name, source = plan.mirror.name, plan.source_cluster_id
    present = target.topics(target_topics(plan))
    topic_ids = {t: now.topic_id for t, now in present.items() if now.topic_id == ((ids or {}).get(t) or now.topic_id)}
    values = ledger.values()
    counts = _counted_otherwise(values, plan, topic_ids, {t: present[t].partitions for t in topic_ids})
    empty = _empty([*_decided_otherwise(values, plan, topic_ids), *counts], target)

    def change(values: Values) -> Values | None:
        require_free(values, plan, topic_ids)
        owned = decided(values, topic_ids)
        require_planned_counts({t: count for t, count in counts.items() if t in empty}, plan)
        wanted = {}
        for topic in plan.topics:
            if (there := topic.target_topic) in topic_ids:
                before = owned[there].of_mirror(name, source) if there in owned else None
                known = before.upstream if before is not None else None
                upstream = tuple(sorted(feeds(topic.source_topic))) if feeds else known
                held = before if there not in empty else None
                require_begun_so(held, plan, topic)
                begins = copied_as(plan.mirror, topic)
                if begins["partitioning"] == "by_key":  # else the next job of a plan without it counts anew
                    begins["key_partitions"] = topic.key_partitions or present[there].partitions
                way = {key: (held and getattr(held, key)) or value for key, value in begins.items()}
                mine = Owned(
                    topic_id=topic_ids[there], mirror=name, source_id=source, upstream=upstream,
                    source_topic_id=(held and held.source_topic_id) or topic.source_topic_id or None, **way,
                )  # fmt: skip
                others = (one for one in owned[there].sharers if one is not before) if there in owned else ()
                wanted[there] = Owned.shared(*others, mine) if plan.mirror.shares else mine
        return _some({t: one for t, one in wanted.items() if owned.get(t) != one})

    _decide_all(ledger, change)


def adopt(
    ledger: Decisions, plan: Plan, target: ClusterAdmin, *, require: Callable[[Values], object], unless: str
) -> None:  # fmt: skip
    """Make a plan's target topics this mirror's, also those in production. Safe to repeat.

    For the old source of a cutover alone: applications write to the other cluster, as was decided there.

    :param require: raises if what is decided here does not permit it. :param unless: by whom they must not be opened.
    :raises MirrorCutOver: they are. :raises TopicsOwned: a mirror that has not handed them over has some. Nothing was
        decided.
    """
    name, source = plan.mirror.name, plan.source_cluster_id
    topic_ids = target_ids(plan, target)

    def change(values: Values) -> Values | None:
        require(values)
        owned = decided(values, topic_ids)
        if opened := {t: one for t, one in owned.items() if one.opened_by == unless}:
            raise MirrorCutOver(name, list(opened), next(iter(opened.values())).opened_at or "")
        require_mine({t: one for t, one in owned.items() if one.opened_by is None}, plan)
        mine = {t: Owned(topic_id=i, mirror=name, source_id=source, upstream=(source,)) for t, i in topic_ids.items()}
        done = {t for t, one in owned.items() if one.opened_by is None}
        return _some({t: one for t, one in mine.items() if t not in done})

    _decide_all(ledger, change)


def mark_cut_over(
    ledger: Decisions, plan: Plan, topic_ids: Mapping[str, str], at: str,
    also: Callable[[Values], Values] = lambda _: {}, until_ms: int | None = None,
) -> None:  # fmt: skip
    """Decide in one record that the plan's target topics are opened. Safe to repeat: what was decided first stays.

    :param topic_ids: current ids of the target topics, by name.
    :param at: ISO 8601.
    :param also: what is decided with it; what it raises ends the call. :param until_ms: as in :meth:`Decisions.decide`.
    :raises TopicsOwned: some belong to other mirrors; nothing was decided.
    :raises MirrorCutOver: others have opened some, as a failover does; likewise.
    :raises TopicsShared: so do all of them.
    """
    require_exclusive_topics(plan, "hand over topics")
    by = plan.hash  # once: to hash a large plan takes seconds
    topic_ids = {t: topic_ids[t] for t in target_topics(plan) if t in topic_ids}

    def change(values: Values) -> Values | None:
        owned = decided(values, topic_ids)
        require_mine(owned, plan)
        if others := [topic for topic, one in owned.items() if one.opened_by not in (None, by)]:
            raise MirrorCutOver(plan.mirror.name, others, owned[others[0]].opened_at or "")
        return {**_values(_handed_over(owned, plan, topic_ids, by, at)), **also(values)} or None

    ledger.decide(change, until_ms)


def opening(values: Values, plan: Plan, topic_ids: Mapping[str, str], by: str, at: str) -> Values | None:
    """Return what decides that the plan's target topics are open, whoever had opened them before; None: it is decided.

    Of so many topics that a decision can't hold them all, the first ones: ask again. What the mirror gives up is opened
    as well: nobody begins to write to it by then, and who takes it over, or frees it, leaves alone what is open.

    :param by: who opens them; a cutover that comes second is told so. :param at: ISO 8601.
    :raises TopicsOwned: :raises TopicsShared: as for :func:`mark_cut_over`.
    """
    require_exclusive_topics(plan, "hand over topics")
    owned = unreleased(decided(values, {t: topic_ids[t] for t in target_topics(plan) if t in topic_ids}))
    require_mine(owned, plan)
    now = _or_ours(owned, plan, [t for t in target_topics(plan) if t in topic_ids])
    return _some(
        {
            t: replace(one, topic_id=topic_ids[t], opened_by=by, opened_at=one.opened_at or at)
            for t, one in now.items()
            if one.opened_by != by
        }
    )


def hand_over(ledger: Decisions, mirror: str, by: str, at: str) -> None:
    """Decide that all that a mirror owns is in production, by whoever's word: no job of it begins to write any more.

    :param by: as for :func:`opening`. :param at: ISO 8601.
    """

    def change(values: Values) -> Values | None:
        return _some({t: replace(one, opened_by=by, opened_at=at) for t, one in _of(values, mirror) if not one.sharers})

    _decide_all(ledger, change)


def hand_over_planned(ledger: Decisions, plan: Plan, target: ClusterAdmin, by: str, at: str) -> None:
    """As :func:`hand_over`, of a plan's target topics, also those that it never had. Other mirrors' stay theirs."""
    topic_ids = target_ids(plan, target)

    def change(values: Values) -> Values | None:
        owned = decided(values, topic_ids)
        others = others_among(owned, plan)
        return _some(_handed_over(owned, plan, {t: i for t, i in topic_ids.items() if t not in others}, by, at))

    _decide_all(ledger, change)


def _or_ours(owned: Mapping[str, Owned], plan: Plan, topics: Collection[str]) -> dict[str, Owned]:
    """Return topics as they are decided; those of which nothing is decided are the plan's mirror's."""
    ours = Owned(topic_id="", mirror=plan.mirror.name, source_id=plan.source_cluster_id)
    return {t: owned.get(t, ours) for t in topics}


def _handed_over(
    owned: Mapping[str, Owned], plan: Plan, topic_ids: Mapping[str, str], by: str, at: str
) -> dict[str, Owned]:  # fmt: skip
    """Return topics as they are once they are handed over, of those that nobody has handed over yet."""
    closed = {t: one for t, one in _or_ours(owned, plan, topic_ids).items() if one.opened_by is None}
    return {t: replace(one, topic_id=topic_ids[t], opened_by=by, opened_at=at) for t, one in closed.items()}


def release(ledger: Decisions, mirror: str, end_writing: Callable[[], object]) -> list[str]:
    """Give up the topics that a mirror owns and has not handed over; return their names. Safe to repeat after a crash.

    First nobody may begin to write into them any more, then who does is stopped, and only then they are nobody's.

    :param end_writing: returns when no job of the mirror can write any more.
    """
    topics = give_up(ledger, mirror)
    if topics:
        end_writing()
        free(ledger, mirror, topics)
    return topics


def give_up(
    ledger: Decisions, mirror: str, only: Collection[str] | None = None,
    require: Callable[[Values], object] = lambda _: None,
) -> list[str]:  # fmt: skip
    """Decide that nobody begins to write into what a mirror owns and has not handed over; return its topics' names.

    What a newer version of the package decided is left alone: see :func:`owners`.

    :param only: not all of its topics, but these.
    :param require: raises if what is decided does not permit it.
    """

    def given_up(values: Values) -> Values | None:
        require(values)
        of_it = ((t, one) for t, one in _of(values, mirror) if only is None or t in only)
        return _some({t: _without(one, mirror) for t, one in of_it})

    _decide_all(ledger, given_up)
    return sorted(topic for topic, _ in _of(ledger.values(), mirror, released=True))


def free(
    ledger: Decisions, mirror: str, topics: Collection[str], require: Callable[[Values], object] = lambda _: None
) -> None:  # fmt: skip
    """Decide that topics are nobody's; of those that were given up.

    :param topics: not what somebody else gives up meanwhile: its writers were not waited for.
    :param require: as for :func:`give_up`.
    """

    def freed(values: Values) -> Values | None:
        require(values)
        ended = ((t, one) for t, one in _of(values, mirror, released=True) if t in topics)
        return _some({t: _without(one, mirror, free=True) for t, one in ended})

    _decide_all(ledger, freed)


def pass_on(ledger: Decisions, mirror: str, to: str, topics: Collection[str]) -> None:
    """Decide that topics are another mirror's, of the same source; of those that were given up. Safe to repeat.

    :param topics: none that is shared; their writers were waited for.
    """

    def passed(values: Values) -> Values | None:
        given_up = ((t, one) for t, one in _of(values, mirror, released=True) if t in topics)
        return _some({t: replace(one, mirror=to, released=None) for t, one in given_up})

    _decide_all(ledger, passed)


def _decided_otherwise(values: Values, plan: Plan, topic_ids: Mapping[str, str]) -> list[str]:
    """Return the plan's target topics that are decided to hold another source topic, or to be copied in another way."""
    ours = of_mirror(values, plan.mirror.name, plan.source_cluster_id, topic_ids)

    def differs(topic: TopicPlan, one: Owned) -> bool:
        return (one.source_topic_id or topic.source_topic_id) != topic.source_topic_id or any(
            getattr(one, key) not in (None, value) for key, value in copied_as(plan.mirror, topic).items()
        )

    return [t.target_topic for t in plan.topics if t.target_topic in ours and differs(t, ours[t.target_topic])]


def _counted_otherwise(
    values: Values, plan: Plan, topic_ids: Mapping[str, str], present: Mapping[str, int]
) -> dict[str, int]:  # fmt: skip
    """Return the target topics that have another count of partitions than the plan deals keys out among, with theirs.

    Without those of which the plan's count is decided: it stays, whatever they have got since.

    :param present: their counts, by name.
    """
    ours = of_mirror(values, plan.mirror.name, plan.source_cluster_id, topic_ids)
    planned = {t.target_topic: t.key_partitions for t in plan.topics if t.key_partitions is not None}
    return {
        t: count
        for t, count in present.items()
        if planned.get(t, count) != count and (t not in ours or ours[t].key_partitions != planned[t])
    }


def _empty(topics: list[str], target: ClusterAdmin) -> set[str]:
    """Return those topics into which nobody has written."""
    if not topics:
        return set()
    partitions = [TopicPartition(name, p) for name, info in target.topics(topics).items() for p in range(info.partitions)]
    return set(topics) - {tp.topic for tp, end in target.offsets(partitions, "latest").items() if end > 0}


def _of(values: Values, mirror: str, *, released: bool = False) -> list[tuple[str, Owned]]:
    """Return the topics of all mirrors of a name that are not in production, and that these give up, or don't."""

    def is_one(one: Owned) -> bool:
        return one.mirror == mirror and one.opened_by is None and bool(one.released) == released

    return [(topic, one) for topic, one in owners(values)[0].items() if any(map(is_one, one.sharers or (one,)))]


def _without(one: Owned, mirror: str, *, free: bool = False) -> Owned | None:
    """Return what a topic is once a mirror gives it up, or (``free``) has; None: nobody's."""
    if not one.sharers:
        return None if free else replace(one, released=True)
    left = [s for s in one.sharers if s.mirror != mirror]
    if not free:
        left += [replace(s, released=True) for s in one.sharers if s.mirror == mirror]
    return Owned.shared(*left) if left else None


def _some(owned: Mapping[str, Owned | None]) -> Values | None:
    """Return the next decision's values, None for a topic that is nobody's; None when there is nothing to decide."""
    return _values(dict(islice(owned.items(), _AT_ONCE))) or None


def _values(owned: Mapping[str, Owned | None]) -> Values:
    return {TOPIC.key(topic): one and one.value() for topic, one in owned.items()}


def _decide_all(ledger: Decisions, change: Change) -> None:
    while ledger.decide(change) is not None:
        pass
