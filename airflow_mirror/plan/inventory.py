"""The inventory of both clusters, read once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import BrokerError, MissingRight
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.groups import UNSEEN_COORDINATORS
from airflow_mirror.kafka.held import holders
from airflow_mirror.kafka.model import ConfigEntry, GroupPosition, TopicInfo
from airflow_mirror.kafka.quotas import QuotaEntity, limits_of
from airflow_mirror.mirror import Mirror, time_ms
from airflow_mirror.plan.finite_hold import TO_BEGIN, too_old
from airflow_mirror.plan.ledger_writers import Writer
from airflow_mirror.plan.owned import Owned
from airflow_mirror.plan.start_offsets import Begun
from airflow_mirror.plan.target_configs import read_own_configs
from airflow_mirror.plan.targets import KINDS, Managed, kind_of
from airflow_mirror.plan.upstream import Upstream
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ApiNotServed, acl_missing
from airflow_mirror.wire.served import Without
from airflow_mirror.wording import some


@dataclass(frozen=True, kw_only=True)
class TopicState:
    """A topic of a cluster. Offsets by partition.

    :param starts: log start offset.
    :param ends: high watermark.
    :param stable_ends: end for a read_committed consumer; below ``ends`` while a transaction is open.
    :param begins: where the mirror begins to copy (its ``start``); by default the log start offset.
    :param too_old: partitions whose records a finite hold would not keep; see :mod:`airflow_mirror.plan.finite_hold`.
    """

    info: TopicInfo
    configs: Mapping[str, ConfigEntry]
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    stable_ends: Mapping[int, int] = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)
    too_old: tuple[int, ...] = ()

    def config(self, key: str) -> str | None:
        """Return the effective value of a config."""
        entry = self.configs.get(key)
        return entry.value if entry else None

    @property
    def tiered(self) -> bool:
        """Whether brokers have the newest part of its log alone; see :func:`is_tiered`."""
        return is_tiered(self.configs)

    @property
    def compacts(self) -> bool:
        """Whether its log is compacted."""
        return "compact" in (self.config("cleanup.policy") or "")


class Refusal(NamedTuple):
    """Why the target would not take a topic as it is planned.

    :param code: of the broker; None: it did not say whether it would.
    :param words: its name and what else it says, on hold as well if that is something else.
    :param hold: the settings that it would have on hold only, if the topic would be taken without them.
    :param on_hold: it is refused on hold, whether afterwards as well or not: nothing can be copied.
    """

    code: int | None
    words: str
    hold: Mapping[str, str] = {}
    on_hold: bool = True


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """One cluster, as far as a mirror uses it.

    :param broker_configs: by broker; None if the principal may not read them. Of the target only.
    :param groups: committed positions by group; of the source only.
    :param own_configs: the topic configs that the cluster knows, and their values there without an override (None: not
        seen); of the target only, None if it could not be queried.
    :param other_topics: topics that the mirror does not select; of the source only.
    :param other_groups: groups with positions in these topics that the mirror does not select; of the source only.
    :param hides_groups: it may have groups that it does not list; of the source only, as is the next.
    :param sees_coordinators: whether it can be seen that groups are missing in its list: their coordinator is.
    :param upstream: where records of its topics come from; of the source only.
    :param returning: topics that the mirror selects and that come from its target under another name; not in ``topics``.
    :param traces: topics that the mirror selects and that hold traces of mirrors into the source; not in ``topics``.
    :param displaced: topics that the mirror's patterns select, and in whose place it writes its own heartbeats.
    :param unfit_traces: topics on the target that can't hold the mirror's traces, and why; of the target only.
    :param again: topics that were created again while the target holds the old one's records, each with its target
        topic; of the source only, not in ``topics``.
    :param registries: topics that are the store of a schema registry; of the source only. :param unread_stores: topics
        of which nobody knows whether they are one, and why; likewise.
    :param sizes: bytes of each topic's logs at their leaders; None if the principal may not ask.
    :param local_sizes: topics in tiered storage of which ``sizes`` has what lies on brokers alone, sorted; of the source
        only.
    :param usable_bytes: free disk by broker, None where it is not told; of the target only, empty if the principal may
        not ask.
    :param names: all topics there are; empty: not read. Of the source only, as are the next four.
    :param gone: names that the mirror gives, of topics that only the target has.
    :param absent: topics of the last plan that the mirror still selects and the source does not list, each with what
        became of it (:func:`.selection.absent_topics`). :param goes_on: whether a copy goes on without hidden ones.
    :param group_ids: all groups there are.
    :param holders: whose open transactions keep a partition's end from read_committed readers; of the source only.
    :param owned: its topics that are this mirror's, by its ledger; of the target only.
    :param ledger_writers: who may write to its ledger beside the mirror; of the target only.
    :param refused: why it would not take topics as planned; of the target only.
    :param refused_ledger: why it would not take topics of its ledger; of the target only.
    :param quotas: client quotas that may limit the mirror; None if they can't be read.
    :param kind: which managed cluster it is, a key of :data:`.targets.KINDS`; None: none. Of the target only.
    :param kind_by_address: likewise, as its addresses alone say.
    :param served: names of the requests that its brokers serve; of the target only.
    :param lost: what its brokers are too old to report; of the source only. :param drops_old_clients: likewise.
    """

    cluster_id: str
    brokers: int
    topics: Mapping[str, TopicState]
    broker_configs: Mapping[int, Mapping[str, ConfigEntry]] | None = None
    groups: Mapping[str, Mapping[TopicPartition, GroupPosition]] = field(default_factory=dict)
    own_configs: Mapping[str, str | None] | None = None
    other_topics: tuple[str, ...] = ()
    registries: tuple[str, ...] = ()
    unread_stores: Mapping[str, str] = field(default_factory=dict)
    other_groups: tuple[str, ...] = ()
    hides_groups: bool = False
    sees_coordinators: bool = True
    upstream: Upstream = Upstream()
    returning: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    displaced: tuple[str, ...] = ()
    unfit_traces: Mapping[str, str] = field(default_factory=dict)
    again: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] | None = None
    local_sizes: tuple[str, ...] = ()
    usable_bytes: Mapping[int, int | None] = field(default_factory=dict)
    owned: Mapping[str, Owned] = field(default_factory=dict)
    ledger_writers: tuple[Writer, ...] = ()
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    refused_ledger: Mapping[str, Refusal] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] | None = None
    holders: Mapping[TopicPartition, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    goes_on: bool = False
    group_ids: tuple[str, ...] = ()
    kind: str | None = None
    kind_by_address: str | None = None
    served: frozenset[str] = frozenset()
    lost: Sequence[Without] = ()
    drops_old_clients: bool = False

    @property
    def managed(self) -> Managed | None:
        """What is known of its kind; None: it is of none."""
        return KINDS.get(self.kind or "")

    @property
    def unlike(self) -> list[str]:
        """What it answers that no cluster of its kind answers; see :meth:`.targets.Managed.unlike`."""
        return [] if self.managed is None else self.managed.unlike(self.brokers, self.served, self.own_configs or {})

    @property
    def fixed_replicas(self) -> int | None:
        """The replication factor that each of its topics has; None: as it is wished."""
        return None if self.managed is None else self.managed.replicas

    def of_each_broker(self, key: str) -> dict[int, str | None]:
        """Return a setting by broker, sorted; None where it is hidden. Empty: the principal may not read any."""
        every = ((broker, configs.get(key)) for broker, configs in sorted((self.broker_configs or {}).items()))
        return {broker: None if one is None else one.value for broker, one in every}

    def of_brokers(self, key: str, holds: Callable[[str], bool]) -> tuple[dict[int, str], str]:
        """Return a setting of the brokers that have such a value, and who they are: empty if all are.

        Brokers have files of their own: one that was forgotten is found by the first client that meets it.
        """
        every = self.of_each_broker(key)
        found = {broker: value for broker, value in every.items() if value is not None and holds(value)}
        return found, "" if len(found) == len(every) else f" on {some(f'broker {broker}' for broker in found)}"

    def unread(self, key: str) -> str:
        """Return that a setting of brokers can't be read, and of which ones or why; empty: all of them tell it."""
        every = self.of_each_broker(key)
        hidden = [f"broker {broker}" for broker, value in every.items() if value is None]
        if every and not hidden:
            return ""
        return f"{key} can't be read {f'of {some(hidden)}' if hidden else '(no DESCRIBE_CONFIGS on the cluster)'}"


def read_source(mirror: Mirror, source: ClusterAdmin, names: Collection[str], begun: Begun | None = None) -> Inventory:
    """Read the named topics and the selected groups of the source.

    :param begun: where the mirror has begun already, if that is a moment's (``Mirror.begins_once``).
    """
    topics = read_topics(source, names, mirror.start, begun if mirror.begins_once else None)
    everyone = source.groups_offsets([g.group_id for g in source.groups()])
    groups = {group: positions for group, positions in everyone.items() if mirror.selects_group(group)}
    held = [TopicPartition(n, p) for n, t in topics.items() for p, end in t.ends.items() if t.stable_ends[p] < end]
    left = {group: positions for group, positions in everyone.items() if mirror.leaves_behind(group)}
    others = tuple(group for group, positions in left.items() if any(tp.topic in topics for tp in positions))
    return Inventory(
        cluster_id=source.cluster_id(),
        brokers=source.broker_count(),
        topics=topics,
        groups=groups,
        group_ids=tuple(everyone),
        names=tuple(source.topic_names()),
        other_groups=others,
        sizes=_sizes(source, topics),
        quotas=_quotas(source),
        holders=holders(source, held) if held else {},
    )


def hides_groups(cluster: ClusterAdmin) -> bool:
    """Return whether a cluster may have groups that it does not list to us: Kafka leaves them out, without an error."""
    return bool(unlisted(cluster, [uuid.uuid4().hex]))  # no rule names it: who may describe it may describe all


def why_hidden(role: str, *, hides: bool, sees_coordinators: bool) -> list[str]:
    """Return why a cluster may have groups that it does not list, as lines for people: Kafka says no error.

    :param hides: as :func:`hides_groups` says. :param sees_coordinators: as `ClusterAdmin.sees_group_coordinators` says.
    """
    why = ["the principal lacks Describe on group *"] if hides else []
    why += [] if sees_coordinators else [UNSEEN_COORDINATORS[1]]
    return [f"some groups of the {role}, perhaps: {one}" for one in why]


def hidden_groups(cluster: ClusterAdmin, groups: Collection[str]) -> list[MissingRight]:
    """Return the right that is missing for each of ``groups`` that a cluster would not list to us if it was there."""
    return [not_listed(cluster, group) for group in unlisted(cluster, groups)]


def unlisted(cluster: ClusterAdmin, groups: Collection[str]) -> list[str]:
    """Return those of ``groups`` that a cluster would not list to us if they were there."""
    try:
        # Who may describe the cluster is told of each group.
        if not groups or any("DESCRIBE" in one for one in cluster.allowed_on_cluster().values()):
            return []
    except ApiNotServed:  # brokers before 2.3
        return []
    return cluster.unseen_groups(groups)


def not_listed(cluster: ClusterAdmin, group: str) -> MissingRight:
    """Return what is raised where a cluster does not list a group to us, or all (``*``)."""
    code, principal = ErrorCode.GROUP_AUTHORIZATION_FAILED, cluster.wire.settings.principal
    return acl_missing(f"{cluster.role} cluster: list group {group!r}", code, principal, "Describe", "group", group)


def read_target(mirror: Mirror, target: ClusterAdmin, names: Collection[str]) -> Inventory:
    """Read the named topics that exist on the target, and of which kind of managed cluster it is."""
    cluster_id, brokers = target.cluster_id(), target.broker_count()
    try:
        by_broker: Mapping[int, Mapping[str, ConfigEntry]] | None = target.broker_configs()
    except MissingRight:
        by_broker = None
    own = read_own_configs(target)
    try:
        usable = target.usable_bytes()
    except MissingRight:
        usable = {}
    topics, bootstrap = read_topics(target, names), target.config.bootstrap
    return Inventory(
        cluster_id=cluster_id, brokers=brokers, topics=topics, broker_configs=by_broker, own_configs=own,
        sizes=_sizes(target, topics), usable_bytes=usable, quotas=_quotas(target),
        kind=kind_of(mirror.target_kind, bootstrap), kind_by_address=kind_of("auto", bootstrap),
    )  # fmt: skip


def _sizes(admin: ClusterAdmin, topics: Mapping[str, TopicState]) -> dict[str, int] | None:
    partitions = [TopicPartition(name, p) for name, state in topics.items() for p in range(state.info.partitions)]
    found: dict[str, int] = {}
    try:
        for tp, size in admin.wire.log_sizes(partitions).items():
            found[tp.topic] = found.get(tp.topic, 0) + size
    except (ApiNotServed, MissingRight, BrokerError):  # brokers of managed clusters may list no logs, whoever asks
        return None
    return found


def need_keys(mirror: Mirror, topics: Mapping[str, TopicState]) -> list[str]:
    """Return the topics that compact on the target while it is written: brokers refuse records without a key there."""
    return [name for name, state in topics.items() if mirror.compacted_hold == "lag" and state.compacts]


def is_tiered(configs: Mapping[str, ConfigEntry]) -> bool:
    """Return whether a topic with these settings is in tiered storage: log directories hold only the local part of it."""
    entry = configs.get("remote.storage.enable")
    return entry is not None and entry.value == "true"


def with_remote(source: Inventory, sampled: Mapping[str, int]) -> Inventory:
    """Return the source with the sizes of topics in tiered storage as they were sampled: brokers count what is local.

    :param sampled: bytes to copy, by topic; of those that are missing only the local part is known.
    """
    if source.sizes is None:
        return source
    tiered = [name for name, state in source.topics.items() if state.tiered]
    remote = {name: sampled[name] for name in tiered if name in sampled}
    local = (
        n
        for n in tiered
        if n not in sampled and any(source.topics[n].ends[p] > at for p, at in source.topics[n].begins.items())
    )
    return replace(source, sizes={**source.sizes, **remote}, local_sizes=tuple(sorted(local)))


def _quotas(admin: ClusterAdmin) -> Mapping[QuotaEntity, Mapping[str, float]] | None:
    principal = admin.principal
    try:
        return limits_of(admin.quotas(), principal and principal.removeprefix("User:"))
    except (ApiNotServed, MissingRight):
        return None


def read_topics(
    admin: ClusterAdmin, names: Collection[str], start: str = "earliest", begun: Begun | None = None
) -> dict[str, TopicState]:
    """Read the named topics that exist.

    :param start: ``earliest``, ``latest`` or an ISO 8601 time: where a copy of them begins, unless it has ``begun``.
    """
    infos = admin.topics(names)
    configs = admin.topic_configs(infos)
    partitions = [TopicPartition(i.name, p) for i in infos.values() for p in range(i.partitions)]
    starts = _by_topic(admin.offsets(partitions, "earliest"))
    # The stable end last: read first, records that arrive in between would look like an open transaction.
    ends = _by_topic(admin.offsets(partitions, "latest"))
    stable_ends = _by_topic(admin.offsets(partitions, "latest_committed"))
    begins = {"earliest": starts, "latest": stable_ends}.get(start)
    if begins is None:
        found = _by_topic(admin.offsets(partitions, time_ms("start", start)))
        begins = {t: {p: stable_ends[t][p] if o < 0 else o for p, o in offsets.items()} for t, offsets in found.items()}
    if begun is not None:
        begins = {
            t: {p: begun.begin(infos[t], p, starts[t][p], at) for p, at in offsets.items()}
            for t, offsets in begins.items()
        }
    return {
        name: TopicState(
            info=info,
            configs=configs[name],
            starts=starts[name],
            ends=ends[name],
            stable_ends=stable_ends[name],
            begins=begins[name],
        )
        for name, info in infos.items()
    }


def with_age(
    topics: Mapping[str, TopicState], source: ClusterAdmin, mirror: Mirror, now: datetime
) -> dict[str, TopicState]:
    """Return the source's topics with what a hold that ends would not keep of them."""
    if mirror.hold_retention_ms is None:
        return dict(topics)
    begins = {TopicPartition(name, p): begin for name, state in topics.items() for p, begin in state.begins.items()}
    old = too_old(source, begins, mirror.hold_retention_ms, TO_BEGIN, int(now.timestamp() * 1000))
    by_topic = {name: tuple(tp.partition for tp in old if tp.topic == name) for name in topics}
    return {name: replace(state, too_old=by_topic[name]) for name, state in topics.items()}


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for tp, offset in sorted(offsets.items()):
        found.setdefault(tp.topic, {})[tp.partition] = offset
    return found
