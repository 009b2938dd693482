"""Make a plan: read both clusters, then decide. Only a scratch topic is written, and deleted again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType

from airflow_mirror.common.policy import scratch_topic
from airflow_mirror.errors import MissingRight
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.principal import own_principal
from airflow_mirror.ledger.decisions import Values
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import holes
from airflow_mirror.plan.brokers import check_brokers
from airflow_mirror.plan.checks import one_cluster, run_checks
from airflow_mirror.plan.decide import NOTHING, pairs, plan_topic
from airflow_mirror.plan.holes import HoleSamples
from airflow_mirror.plan.inventory import (
    Inventory,
    hides_groups,
    need_keys,
    read_source,
    read_target,
    with_age,
    with_remote,
)
from airflow_mirror.plan.ledger_writers import ledger_writers
from airflow_mirror.plan.mm2_topics import unfit
from airflow_mirror.plan.model import Capabilities, Plan, blocked
from airflow_mirror.plan.owned import Owned, of_mirror
from airflow_mirror.plan.probe import probe
from airflow_mirror.plan.recreated_topics import created_again
from airflow_mirror.plan.refusals import refusals, refused_ledger
from airflow_mirror.plan.registry_topics import registry_topics
from airflow_mirror.plan.requirements import require_own_name
from airflow_mirror.plan.selection import absent_topics, gone_topics, other_topics, select_topics, without_returning
from airflow_mirror.plan.situation import Situation
from airflow_mirror.plan.start_offsets import Begun
from airflow_mirror.plan.target_configs import try_configs
from airflow_mirror.plan.targets import contradicts
from airflow_mirror.plan.upstream import read_upstream


@dataclass(frozen=True, kw_only=True)
class Before:
    """What a mirror has done before it is planned.

    :param begun: where it has already begun, if that is a moment's (``Mirror.begins_once``).
    :param configs: that target topics get in the end, by its last plan.
    :param topics: that plan's, by their names on the source.
    :param goes_on: a job without a plan copies what it can: nobody may be there to let it see a hidden one, or to
        say that it is not wanted.
    """

    begun: Begun | None = None
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    topics: Collection[str] = ()
    goes_on: bool = False


def build(
    mirror: Mirror,
    source: ClusterAdmin,
    target: ClusterAdmin,
    known_topics: Collection[str] = (),
    *,
    probe_target: bool = True,
    to_copy: bool = True,
    before: Before | None = None,
    decisions: Values = MappingProxyType({}),
) -> Plan:
    """Read both clusters and plan the mirror.

    :param known_topics: ``known_topics`` of this mirror's last plan: target topics whose data are its own.
    :param probe_target: test on a scratch topic of the target what the principal may do there. The topic is deleted
        again; planning writes nothing else.
    :param to_copy: topics will be created, and put on hold: the target says whether it would take that.
    :param before: what the mirror has done before.
    :param decisions: the target's: which source topics its topics hold, and which mirrors there are.
    :raises InputError: the name can't be told from another mirror's.
    :raises ClusterUnreachable: for either side, within 8 s.
    :raises BrokersUnsupported: a broker of either side does not serve the requests that a mirror needs.
    :raises InvalidField: rights are to follow, and nobody says which ones are the mirror's own.
    :raises LedgerNewer: a newer version of the package decided about one of the target topics.
    :raises MissingRight: something that every plan is made of may not be read.
    :raises TryAgain: the source lists not all that it has.
    :raises NothingMatches: no topic is selected. Every other problem is a finding of the plan.
    """
    require_own_name(decisions, mirror.name)
    when, before = datetime.now(UTC), before or Before()
    if mirror.sync_acls:
        for cluster in (source, target):
            own_principal(cluster, mirror.own_principals)
    brokers = check_brokers(source.config, target.config)
    names = select_topics(mirror, source)
    absent = absent_topics(mirror, names, before.topics, source)
    upstream = read_upstream(source, names)
    names, returning = without_returning(mirror, names, upstream, target.cluster_id())
    # The target first: read second, it would seem ahead of the source while a tail is copying.
    there = replace(_at_target(mirror, source, target, names), served=brokers.served)
    is_tried = not _forbids(mirror, there)
    here = replace(
        _at_source(mirror, source, names, before.begun, when if to_copy and is_tried else None),
        lost=brokers.lost, drops_old_clients=brokers.drops_old_clients, upstream=upstream, returning=returning,
        absent=absent, goes_on=before.goes_on,
        traces=tuple(sorted(n for n in upstream.traces if mirror.selects_topic(n))),
    )  # fmt: skip
    here = replace(here, gone=gone_topics(mirror, here.names, target))
    again = created_again(mirror, here.cluster_id, here.topics, there, decisions)
    here = replace(here, again=again, topics={name: state for name, state in here.topics.items() if name not in again})
    there = replace(
        there,
        ledger_writers=ledger_writers(target, mirror), owned=owned_there(mirror, here.cluster_id, there, decisions),
        unfit_traces=unfit(target, mirror.trace_topics, mirror.trace_replication_factor, decisions),
    )  # fmt: skip
    if there.own_configs is None and is_tried:
        wanted = (t.configs for t in here.topics.values())
        there = replace(there, own_configs=try_configs(target, wanted, scratch_topic(mirror.name)))
    keyed = need_keys(mirror, here.topics)
    samples = holes.sample(source.config, here.topics, committed=mirror.isolation == "read_committed", keyed=keyed)
    here, capabilities = with_remote(here, samples.bytes), Capabilities()
    if probe_target and is_tried:
        compacts = any(state.compacts for state in here.topics.values())
        capabilities = probe(target, mirror.name, keeps_offsets=mirror.may_keep_offsets, compacts=compacts)
    draft = decide(mirror, here, there, known_topics, when, samples, capabilities, before.configs)
    if not to_copy or not is_tried:
        return draft
    refused = refusals(target, mirror, draft.topics, here.topics, there)
    there = replace(there, refused=refused, refused_ledger=refused_ledger(target, draft.topics))
    if not refused and not there.refused_ledger:
        return draft
    return decide(mirror, here, there, known_topics, when, samples, capabilities, before.configs)


def _at_target(mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin, names: Collection[str]) -> Inventory:
    """Read what the target has of these source topics. :raises InputError: it is the source, and hides them."""
    try:
        return read_target(mirror, target, [mirror.naming.target_topic(name) for name in names])
    except MissingRight:
        if (it := source.cluster_id()) == target.cluster_id():  # then no right helps
            raise blocked([str(one_cluster(mirror, it))]) from None
        raise


def _forbids(mirror: Mirror, target: Inventory) -> bool:
    """Whether nothing is tried on the target: such a cluster has answers of its own."""
    if target.managed is not None and target.managed.forbids or contradicts(mirror.target_kind, target.kind_by_address):
        return True
    return mirror.target_kind != "auto" and bool(target.unlike)


def _at_source(
    mirror: Mirror, source: ClusterAdmin, names: Collection[str], begun: Begun | None, when: datetime | None
) -> Inventory:
    """Read what the source has, and what of it is left out. :param when: ages are counted to it; None: to nothing."""
    here = read_source(mirror, source, names, begun)
    if here.groups:  # else it is said anyway
        here = replace(here, hides_groups=hides_groups(source), sees_coordinators=source.sees_group_coordinators())
    if when is not None:
        here = replace(here, topics=with_age(here.topics, source, mirror, when))
    stores = registry_topics(source, here.topics)
    left = other_topics(mirror, here.names)
    displaced = tuple(name for name in left if mirror.is_displaced(name))
    return replace(here, registries=stores.stores, unread_stores=stores.unread, other_topics=left, displaced=displaced)


def owned_there(mirror: Mirror, source_id: str, target: Inventory, decisions: Values) -> dict[str, Owned]:
    """Return the target's topics that are this mirror's, as it has them.

    :raises LedgerNewer: a newer version of the package decided about one of them.
    """
    return of_mirror(
        decisions, mirror.name, source_id, {name: state.info.topic_id for name, state in target.topics.items()}
    )  # fmt: skip


def decide(
    mirror: Mirror,
    source: Inventory,
    target: Inventory,
    known_topics: Collection[str],
    now: datetime,
    samples: HoleSamples | None = None,
    capabilities: Capabilities | None = None,
    earlier: Mapping[str, Mapping[str, str]] = NOTHING,
) -> Plan:
    """Plan from what was read, without querying a cluster.

    :param samples: estimated holes of the source's logs; None: nothing was sampled.
    :param capabilities: what the principal may do on the target; None: not tested.
    :param earlier: as in :class:`Before`.
    """
    samples, capabilities = samples or HoleSamples(), capabilities or Capabilities()
    paired = pairs(mirror, source, target, known_topics, earlier)
    topics = [
        plan_topic(
            mirror,
            pair,
            target.brokers,
            samples.holes.get(pair.source.info.name),
            capabilities,
            target.own_configs,
            target.fixed_replicas,
        )  # fmt: skip
        for pair in paired
    ]
    situation = Situation(
        mirror=mirror,
        source=source,
        target=target,
        pairs=paired,
        topics=topics,
        capabilities=capabilities,
        unreadable=samples.unreadable,
        keyless=samples.keyless,
    )
    findings = run_checks(situation)
    known = dict(known_topics) if isinstance(known_topics, Mapping) else dict.fromkeys(known_topics, "")
    if not any(f.level == "block" for f in findings):
        # From now on this mirror may create and fill them. A blocked plan must not adopt anything, or the reason for
        # the block would pass the next time.
        known |= {t.target_topic: t.mode for t in topics}
    return Plan(
        mirror=mirror,
        created_at=now.isoformat(timespec="seconds"),
        source_cluster_id=source.cluster_id,
        target_cluster_id=target.cluster_id,
        topics=tuple(topics),
        positions=_positions(source),
        findings=tuple(findings),
        known_topics=dict(sorted(known.items())),
        capabilities=capabilities,
        returning=(*source.returning, *source.traces),
    )


def _positions(source: Inventory) -> Mapping[str, Mapping[str, Mapping[int, int]]]:
    """Return the positions of groups in planned topics; groups without any are omitted."""
    found: dict[str, dict[str, dict[int, int]]] = {}
    for group, positions in source.groups.items():
        for tp, position in sorted(positions.items()):
            if tp.topic in source.topics:
                found.setdefault(group, {}).setdefault(tp.topic, {})[tp.partition] = position.offset
    return found
