"""What the target's ledger says of target topics: which mirror each belongs to, and whether it is in production.

Values and readings only; who decides, and what is refused by it, is :mod:`.ownership`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_mirror.errors import LedgerNewer, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.ledger.kinds import known
from airflow_mirror.ledger.records import ACTIVE, DIRECTION, FENCE, LAST_PLAN, SHARED_TOPIC, TOPIC
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.direction import FAILOVER, ROLLBACK
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.wording import some


@dataclass(frozen=True, kw_only=True)
class Owned:
    """What is decided about one target topic.

    :param topic_id: its id at that time; empty where brokers have none.
    :param mirror: name of the mirror that it belongs to.
    :param source_id: id of that mirror's source cluster: mirrors of one name and several sources are several mirrors.
    :param opened_by: hash of the plan that handed it over; None while it is the mirror's.
    :param opened_at: when, ISO 8601.
    :param released: the mirror gives it up, and a job of it may still write: nobody may begin to.
    :param upstream: ids of all clusters that its records come from, sorted; None: only the source cluster is known.
    :param source_topic_id: of the source topic whose records it holds, or will; None where nobody wrote that down.
    :param partitioning: as of :class:`Mirror`, when a copy with mapped offsets began; None where nobody wrote that down.
        So are ``delivery`` and ``key_partitions``, the latter as of :class:`TopicPlan`.
    :param sharers: the mirrors that share it, each as if it had the topic alone; ``mirror`` and ``source_id`` are empty.
    """

    topic_id: str
    mirror: str
    source_id: str
    opened_by: str | None = None
    opened_at: str | None = None
    released: bool | None = None
    upstream: tuple[str, ...] | None = None
    source_topic_id: str | None = None
    partitioning: str | None = None
    delivery: str | None = None
    key_partitions: int | None = None
    sharers: tuple[Owned, ...] = ()

    @classmethod
    def of(cls, topic: str, value: Any) -> Owned:
        """Return what a decision says.

        :raises LedgerNewer: a newer version of the package wrote it: "it is free" is not a safe assumption.
        """
        if isinstance(value, dict) and value.get("v") == SHARED_TOPIC.version:
            return cls.shared(*(cls.of(topic, one) for one in SHARED_TOPIC.read(value, topic)["sharers"]))
        return TOPIC.decoded(_owned, value, topic)

    @classmethod
    def shared(cls, *sharers: Owned) -> Owned:
        """Return a topic that these mirrors share."""
        by_name = sorted(sharers, key=lambda one: (one.mirror, one.source_id))
        return cls(topic_id=by_name[0].topic_id, mirror="", source_id="", sharers=tuple(by_name))

    @property
    def owner(self) -> str:
        """Whose it is, for people."""
        if self.sharers:
            return f"shared by {', '.join(one.owner for one in self.sharers)}"
        gives_up = ", which is giving it up" if self.released else ""
        return f"mirror {self.mirror!r} of cluster {self.source_id}{gives_up}"

    @property
    def feeds(self) -> frozenset[str]:
        """The clusters that records come from; none where applications write, because it is in production."""
        if self.sharers:
            return frozenset().union(*(one.feeds for one in self.sharers))
        return frozenset() if self.opened_by is not None else frozenset(self.upstream or (self.source_id,))

    @property
    def opening(self) -> str | None:
        """By whom and when it was opened; None while it is the mirror's."""
        return None if self.opened_by is None else f"{self.opened_by} {self.opened_at}"

    @property
    def is_cut_over(self) -> bool:
        """Whether it was handed over, and not by a failover."""
        return self.opened_by is not None and not self.opened_by.startswith(f"{FAILOVER} ")

    def of_mirror(self, mirror: str, source_id: str) -> Owned | None:
        """Return it as one mirror has it, alone or with others; None if it has not."""
        return next((one for one in self.sharers or (self,) if (one.mirror, one.source_id) == (mirror, source_id)), None)

    def value(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        if self.sharers:
            return {"v": SHARED_TOPIC.version, "sharers": [one.value() for one in self.sharers]}
        return {
            "v": TOPIC.version,
            **{key: found for key, found in vars(self).items() if key != "sharers" and found is not None},
        }


def _owned(fields: dict[str, Any]) -> Owned:
    return known(Owned)({**fields, "sharers": ()})


def owned_topics(ledger: Decisions) -> dict[str, Owned]:
    """Return what is decided, by target topic, as far as :func:`owners` knows; one created again has another id."""
    return owners(ledger.values())[0]


def openings(owned: Mapping[str, Owned], plan: Plan) -> dict[str, str]:
    """Return by whom and when those of a plan's target topics were opened that are in production."""
    there = {t.target_topic: owned[t.target_topic].opening for t in plan.topics if t.target_topic in owned}
    return {topic: opening for topic, opening in there.items() if opening is not None}


def opening_of(ledger: Decisions, plan: Plan) -> str:
    """Return a digest of :func:`openings`; empty if nothing is open."""
    opened = openings(owned_topics(ledger), plan)
    return hashlib.sha256(json.dumps(sorted(opened.items())).encode()).hexdigest() if opened else ""


def owners(values: Values) -> tuple[dict[str, Owned], dict[str, LedgerNewer]]:
    """Return what is decided, by target topic, and what a newer version of the package decided, likewise."""
    found: dict[str, Owned] = {}
    newer: dict[str, LedgerNewer] = {}
    for topic in TOPIC.under(values):
        try:
            found[topic] = Owned.of(topic, values[TOPIC.key(topic)])
        except LedgerNewer as e:
            newer[topic] = e
    return found, newer


def mirrors(values: Values) -> set[str]:
    """Return the names of the mirrors of which anything is decided, as far as this version can read it."""
    named = {name for kind in (LAST_PLAN, ACTIVE, FENCE, DIRECTION) for name in kind.under(values)}
    return named | {one.mirror for _, one in shares(owners(values)[0])}


def shares(owned: Mapping[str, Owned]) -> list[tuple[str, Owned]]:
    """Return target topics, each with one mirror that has it; one that is shared comes several times.

    :param owned: as from :func:`owned_topics`.
    """
    return [(topic, share) for topic, one in owned.items() for share in one.sharers or (one,)]


def ended_by(values: Values, mirror: str) -> str:
    """Return what handed over all that a mirror has here, as ``ended by cutover``; empty: it has something left."""
    by = {one.opened_by for _, one in shares(owners(values)[0]) if one.mirror == mirror}
    if not by or None in by:
        return ""
    # A failover leaves its name and attempt there; a cutover the hash of its plan, and so does a rollback, which is the
    # cutover of what copies back: it turns the direction besides.
    turned = DIRECTION.at(values, mirror) or {}
    hashed = ROLLBACK if turned.get("by") == ROLLBACK else "cutover"
    return f"ended by {next((str(one).split()[0] for one in by if ' ' in str(one)), hashed)}"


def topics_of(ledger: Decisions, mirror: str, source_id: str, target: ClusterAdmin) -> list[str]:
    """Return the target topics that belong to a mirror, in production or not; one that was created again is nobody's."""
    ours = {t: one for t, one in owned_topics(ledger).items() if one.of_mirror(mirror, source_id) is not None}
    there = target.topics(list(ours))
    return [t for t, one in ours.items() if t in there and one.topic_id in ("", there[t].topic_id)]


def decided(values: Values, topic_ids: Mapping[str, str]) -> dict[str, Owned]:
    """Return what is decided about topics as they are now, without those that were created again since.

    :param topic_ids: their present ids, by name.
    """
    found = ((t, Owned.of(t, values[key])) for t in topic_ids if (key := TOPIC.key(t)) in values)
    # Without an id nobody knows whether the topic is a new one.
    return {t: one for t, one in found if one.topic_id in ("", topic_ids[t])}


def of_mirror(values: Values, mirror: str, source_id: str, topic_ids: Mapping[str, str]) -> dict[str, Owned]:
    """Return those topics that a mirror has, each as it has it; see :func:`decided`, also for ``topic_ids``."""
    found = {t: one.of_mirror(mirror, source_id) for t, one in decided(values, topic_ids).items()}
    return {t: one for t, one in found.items() if one is not None}


def began_anew(values: Values, plan: Plan) -> bool:
    """Return whether a mirror has topics of a plan, and none of them is in production: what was opened were others."""
    # By name: who makes a topic anew claims it, and what was decided about the one before is gone. A listing may lack it.
    owned = owners(values)[0]
    there = [owned[t.target_topic] for t in plan.topics if t.target_topic in owned]
    ours = [one for of in there if (one := of.of_mirror(plan.mirror.name, plan.source_cluster_id)) is not None]
    return bool(ours) and all(one.opened_by is None for one in ours)


def copied_as(mirror: Mirror, topic: TopicPlan) -> dict[str, Any]:
    """Return what an offset map depends on, besides the topic: these fields of :class:`Owned`; all None without a map."""
    if topic.mode == "identical":  # the log itself tells how it began
        return {"partitioning": None, "delivery": None, "key_partitions": None}
    return {
        "partitioning": mirror.partitioning, "delivery": mirror.delivery, "key_partitions": topic.key_partitions,
    }  # fmt: skip


def begun_otherwise(one: Owned, mirror: Mirror, topic: TopicPlan) -> dict[str, Any]:
    """Return those fields of :func:`copied_as` that were others when the copy began, each as it was."""
    wanted = {name: value for name, value in copied_as(mirror, topic).items() if value is not None}
    return {name: was for name, value in wanted.items() if (was := getattr(one, name)) not in (None, value)}


def with_key_partitions(plan: Plan, values: Values, target: ClusterAdmin) -> Plan:
    """Return a plan of the same hash that says among how many partitions keys are dealt out, as far as it is decided.

    A plan of before the count was kept does not say so itself.
    """
    silent = plan.mirror.partitioning == "by_key" and [t.target_topic for t in plan.topics if t.key_partitions is None]
    if not silent:
        return plan
    topic_ids = {name: info.topic_id for name, info in target.topics(silent).items()}
    ours = of_mirror(values, plan.mirror.name, plan.source_cluster_id, topic_ids)
    topics = tuple(
        replace(t, key_partitions=ours[t.target_topic].key_partitions) if t.target_topic in ours else t
        for t in plan.topics
    )
    return plan if topics == plan.topics else replace(plan, topics=topics, rule=plan.rule or plan)


def claimed_ids(values: Values, topic_ids: Mapping[str, str]) -> dict[str, str]:
    """Return the ids of topics when it was decided whose they are, by name; the present one where nothing is decided.

    :param topic_ids: their present ids, by name.
    """
    owned = owners(values)[0]
    return {t: (owned[t].topic_id if t in owned else "") or now for t, now in topic_ids.items()}


def former_ids(values: Values, topics: Iterable[str], topic_ids: Mapping[str, str]) -> dict[str, str]:
    """Return those target topics that are gone, or were created again, since it was decided whose they are.

    :param topic_ids: present ids by name, of those that exist.
    :return: by name, the id that is decided about. Brokers without ids have none of these topics.
    """
    owned = owners(values)[0]
    return {
        t: owned[t].topic_id
        for t in topics
        if t in owned and owned[t].topic_id and topic_ids.get(t) not in ("", owned[t].topic_id)
    }


def active_topics(ledger: Decisions, plan: Plan, target: ClusterAdmin) -> set[str]:
    """Return those of the plan's target topics that this mirror may write to: they are its own, and not in production.

    :raises TryAgain: a broker does not list some of its own that are there.
    """
    values, ids = ledger.values(), target_ids(plan, target)
    ours = {t: one.of_mirror(plan.mirror.name, plan.source_cluster_id) for t, one in owners(values)[0].items()}
    active = {t for t, one in ours.items() if one is not None and one.opened_by is None and not one.released}
    require_listed(active & {t.target_topic for t in plan.topics}, ids, target)
    return active & decided(values, ids).keys()


def require_listed(names: Collection[str], listed: Collection[str], target: ClusterAdmin) -> None:
    """Return if those of some target topics that one broker has not listed are gone by the word of several.

    :raises TryAgain: some are there, or it can't be known.
    """
    # A broker that has just started lists no topic: by its word alone all of them would be gone.
    missing = {*names}.difference(listed)
    if missing and (unseen := missing - target.wire.refresh_present(missing)):
        raise TryAgain(
            f"target topics {some(sorted(unseen), 3)}", "a broker does not list them, and others have them",
            "One that has just started may not know them yet.",
        )  # fmt: skip


def kept_topics(values: Values, plan: Plan, there: Mapping[str, TopicInfo]) -> frozenset[str]:
    """Return the topics that a mirror still has on the target and that are not in production, its plan's or not.

    Of those that it once had others may have made their own: by its name alone none is the mirror's.

    :param there: all that may be seen, by name, and not only what the mirror had once: it may have lost the right to ask
        for one of these.
    """
    ours = {t: one.of_mirror(plan.mirror.name, plan.source_cluster_id) for t, one in owners(values)[0].items()}
    ids = {t: one.topic_id for t, one in ours.items() if one and one.opened_by is None and not one.released}
    return frozenset(t for t, one in ids.items() if t in there and one in ("", there[t].topic_id))


def opened_beside(values: Values, plan: Plan) -> frozenset[str]:
    """Return the topics of a plan's source cluster that are in production here and not the plan's: an earlier wave's."""
    planned = {t.target_topic for t in plan.topics}
    every = shares(owners(values)[0])
    opened = {t for t, one in every if one.source_id == plan.source_cluster_id and one.opened_by is not None}
    return frozenset(opened - planned)


def not_active(topic: TopicPlan) -> str:
    """Return why what follows a mirror leaves a topic alone that is not among its :func:`active_topics`, for people."""
    return f"the ledger does not say that {topic.target_topic} is this mirror's and not in production"


def target_ids(plan: Plan, target: ClusterAdmin) -> dict[str, str]:
    """Return the present ids of a plan's target topics, by name, as far as they exist."""
    return {name: info.topic_id for name, info in target.topics([t.target_topic for t in plan.topics]).items()}
