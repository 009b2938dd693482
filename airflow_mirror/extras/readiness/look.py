"""What is seen of the clusters before the night. Everything here only reads, with the rights of a plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.fingerprint import decoded
from airflow_mirror.errors import ClusterUnreachable, MirrorError
from airflow_mirror.extras.readiness import external_state, logs
from airflow_mirror.extras.readiness.external_state import REGISTRY_TOPIC
from airflow_mirror.extras.readiness.logs import Limits
from airflow_mirror.extras.readiness.race import Log
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.groups import CONSUMERS
from airflow_mirror.kafka.model import GroupInfo, GroupPosition
from airflow_mirror.plan import Plan, holes
from airflow_mirror.plan.findings import Questions
from airflow_mirror.plan.inventory import hides_groups, is_tiered, read_topics, why_hidden
from airflow_mirror.verify.partition import data_batches
from airflow_mirror.wire.topology import ProducerState

WATCH_S = 5.0

# The questions on which findings depend.
COPY, GROUPS, COMMITTED, CONFIGS = "how far the copy is", "groups", "positions of groups", "settings of topics"
STARTS, EXPIRES, PRODUCERS = "log starts", "what retention deletes", "producers (since Kafka 2.8)"


@dataclass(frozen=True, kw_only=True)
class ReadinessFacts:
    """What was seen, as values.

    :param at_ms: when, by our clock. :param topics: all visible names of the source, with internal ones, sorted.
    :param positions: committed positions by group.
    :param logs: the partitions of the mirror's topics. :param limits: what deletes records, by topic.
    :param sizes: bytes of their logs, with what lies in tiered storage; missing: nobody may know.
    :param producers: that partition leaders remember. :param transactional_ids: by producer id.
    :param modes: of the Schema Registry, by subject.
    :param unknown: errors by their questions. :param unseen: what could not be read, each with its reason.
    """

    at_ms: int
    topics: Sequence[str] = ()
    groups: Sequence[GroupInfo] = ()
    positions: Mapping[str, Mapping[TopicPartition, GroupPosition]] = field(default_factory=dict)
    logs: Mapping[TopicPartition, Log] = field(default_factory=dict)
    limits: Mapping[str, Limits] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    producers: Mapping[TopicPartition, Sequence[ProducerState]] = field(default_factory=dict)
    transactional_ids: Mapping[int, str] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, MirrorError] = field(default_factory=dict)
    unseen: Sequence[str] = ()


def look(
    plan: Plan, source: ClusterAdmin, target: ClusterAdmin, mapped: Callable[[], logs.Offsets], *,
    watch_s: float = WATCH_S, pause: Callable[[float], None] = time.sleep,
) -> ReadinessFacts:  # fmt: skip
    """Ask both clusters. It takes ``watch_s``, because rates are what happens between two looks.

    :param mapped: returns the source offsets up to which partitions with mapped offsets are copied.
    :raises ClusterUnreachable: one of them does not answer.
    """
    to = Questions(ClusterUnreachable)

    def moment() -> logs.Moment:
        copied = to.ask("how far topics with mapped offsets are copied", mapped)
        found = to.ask(COPY, lambda: logs.now(plan, source, target, copied))
        return found or logs.Moment({}, {})

    at_ms, begun_s = round(time.time() * 1000), time.monotonic()
    before = moment()
    hidden = list[str]()
    groups, positions = ask_groups(to, source, hidden)
    configs = to.ask(CONFIGS, lambda: source.topic_configs([t.source_topic for t in plan.topics])) or {}
    limits = {name: logs.limits_of(one) for name, one in configs.items()}
    known = [tp for tp in before.ends if tp.topic in limits]
    ends = {tp: before.ends[tp] for tp in known}
    sizes = to.ask("sizes of logs", lambda: source.wire.log_sizes(known)) or {}
    starts = to.ask(STARTS, lambda: source.offsets(known, "earliest")) or {}
    if tiered := [name for name, one in configs.items() if is_tiered(one)]:
        sampled = to.ask("sizes of topics in tiered storage", lambda: _sampled(source, tiered)) or {}
        sizes = logs.with_remote(sizes, tiered, sampled, starts, ends)
    expires = to.ask(EXPIRES, lambda: logs.expiring(source, ends, limits, at_ms))
    states = to.ask(PRODUCERS, lambda: source.wire.describe_producers(logs.begins(plan))) or {}
    ids = to.ask("transactional ids of producers (since Kafka 3.0)", lambda: transactional_ids(source, hidden)) or {}
    names = source.topic_names()
    modes = to.ask("modes of the Schema Registry", lambda: _modes(source)) if REGISTRY_TOPIC in names else None
    pause(max(0.0, begun_s + watch_s - time.monotonic()))
    after = moment()
    watched_s = time.monotonic() - begun_s
    found = {} if expires is None else logs.logs(plan, before, after, watched_s, starts, limits, expires, sizes)
    return ReadinessFacts(
        at_ms=at_ms, topics=names, groups=groups, positions=positions, logs=found,
        limits=limits, sizes=sizes, producers=states, transactional_ids=ids, modes=modes or {},
        unknown=to.unknown, unseen=[*said(to.unknown), *hidden],
    )  # fmt: skip


def _sampled(source: ClusterAdmin, topics: Sequence[str]) -> Mapping[str, int]:
    """Return the bytes of whole logs, by topic, as samples say; topics of which none could be read are missing."""
    return holes.sample(source.config, read_topics(source, topics), committed=False).bytes


def said(unknown: Mapping[str, MirrorError]) -> list[str]:
    """Return what got no answer, a line each."""
    return [f"{what}: {error}" for what, error in unknown.items()]


def ask_groups(
    to: Questions, cluster: ClusterAdmin, hidden: list[str]
) -> tuple[list[GroupInfo], Mapping[str, Mapping[TopicPartition, GroupPosition]]]:
    """Return the groups of a cluster, of every kind, and committed positions of those that read as consumers do.

    :param hidden: takes a line where some may be missing: Kafka lists what may be described, and says no error.
    """
    groups = to.ask(GROUPS, lambda: cluster.groups(every=True)) or []
    hides = to.ask("rights on groups", lambda: hides_groups(cluster))
    sees = to.ask("coordinators of groups", cluster.sees_group_coordinators)
    hidden += why_hidden(cluster.role, hides=bool(hides), sees_coordinators=sees is not False)
    # What its members say of it: a list has no members.
    peopled = [one.group_id for one in groups if one.protocol_type in CONSUMERS and one.has_members]
    known_by = to.ask("members of groups", lambda: cluster.describe_groups(peopled)) or {}
    groups = [replace(one, application=known_by.get(one.group_id, one).application) for one in groups]
    readers = [one.group_id for one in groups if one.protocol_type in CONSUMERS]
    return groups, to.ask(COMMITTED, lambda: cluster.groups_offsets(readers)) or {}


def transactional_ids(cluster: ClusterAdmin, hidden: list[str], of: str = "producers") -> dict[int, str]:
    """Return the transactional id of each producer id that has one.

    :param hidden: takes a line where some may be missing. :param of: whose, for that line.
    :raises ApiNotServed: brokers before 3.0.
    """
    ids = cluster.transactional_ids()
    if why := cluster.transactions_hidden():
        hidden.append(f"some transactional ids of {of}, perhaps: {why}")
    return ids


def _modes(source: ClusterAdmin) -> Mapping[str, str]:
    tp = TopicPartition(REGISTRY_TOPIC, 0)
    start, end = source.offsets([tp], "earliest")[tp], source.offsets([tp], "latest_committed")[tp]
    batches = data_batches(source.wire, tp, start, end)
    return external_state.modes((record.key, record.value) for raw in batches for record in decoded(raw, tp, source.role))
