"""Which clusters the records of a topic come from, and whether a mirror would bring them back to one of these.

Whoever owns a target topic says in that cluster's ledger which clusters its records come from: the source, and those that
the source's own ledger names for the source topic. So the plan that would close a ring of any length is refused, by
cluster ids. Names of topics, mirrors and connections don't matter: MirrorMaker 2 goes by names, and two mirrors that keep
them copy in a circle for ever (KAFKA-9914).

The chain ends at a topic that was created again, and at one in production: no mirror writes to it any more. Plans that
are made at the same time don't see each other, so jobs look once more when they start, and tails again and again
(:mod:`airflow_mirror.sync.loops`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from airflow_mirror.errors import LedgerLost, LedgerNewer, MissingRight, NeedsHuman
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger, Values
from airflow_mirror.plan.direction import ARMED, direction
from airflow_mirror.plan.mm2_topics import marked
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import Owned, decided


@dataclass(frozen=True)
class Upstream:
    """Where the records of a source's topics come from.

    :param cluster_id: the source.
    :param owners: what its ledger says about its topics, by name; a topic that is missing there belongs to no mirror.
    :param unreadable: why the ledger, which may be there, can't be read; empty if it was, or if there is none.
    :param is_target: mirrors write to the source, or have.
    :param traces: its topics that hold traces of mirrors (:mod:`.mm2_topics`).
    :param ways_back: of its mirrors, those that are the way back of a cutover, each with when it was armed.
    """

    cluster_id: str = ""
    owners: Mapping[str, Owned] = field(default_factory=dict)
    unreadable: str = ""
    is_target: bool = field(default=False, kw_only=True)
    traces: frozenset[str] = field(default=frozenset(), kw_only=True)
    ways_back: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def of(self, topic: str) -> frozenset[str]:
        """Return the ids of all clusters that records of ``topic`` come from, the source among them."""
        one = self.owners.get(topic)
        return frozenset({self.cluster_id}) | (one.feeds if one else frozenset())

    def returning(self, topics: Iterable[str], target_id: str) -> dict[str, str]:
        """Return those topics whose records come from the target, each with the mirror that brings them, for people."""
        return {t: self.owners[t].owner for t in topics if t in self.owners and target_id in self.of(t)}


def read_upstream(source: ClusterAdmin, topics: Iterable[str]) -> Upstream:
    """Return where records of topics come from; what can't be read is said, not raised."""
    cluster_id = source.cluster_id()
    try:
        values = Ledger(source).peek()
        ids = {name: info.topic_id for name, info in source.topics(list(topics)).items()} if values else {}
        owners = decided(values, ids)
        turned = {one.mirror: direction(values, one.mirror) for one in owners.values() if one.opened_by is None}
        ways_back = {name: one.at for name, one in turned.items() if one is not None and one.by == ARMED}
        return Upstream(cluster_id, owners, is_target=bool(values), traces=marked(values), ways_back=ways_back)
    except (LedgerLost, LedgerNewer, MissingRight) as e:
        return Upstream(cluster_id, unreadable=str(e))


def copied_back(ledger: Ledger, source: ClusterAdmin, topics: Collection[str], target_id: str) -> Collection[str]:
    """Return those topics of a source into which mirrors copy what is written to the target.

    :param ledger: the source's. :param target_id: of the cluster that is the target.
    :raises LedgerNewer: a newer version of the package decided about one of them.
    """
    ids = {name: info.topic_id for name, info in source.topics(topics).items()}
    return Upstream(owners=decided(ledger.peek(), ids)).returning(ids, target_id)


def upstream_of(plan: Plan, values: Values) -> Upstream:
    """Return where the records of a plan come from, none of them from its target.

    :param values: what the source's ledger says.
    :raises NeedsHuman: names the topics that would return to the target.
    """
    ids = {t.source_topic: t.source_topic_id for t in plan.topics}
    found = Upstream(plan.source_cluster_id, decided(values, ids))
    if returning := found.returning(ids, plan.target_cluster_id):
        raise NeedsHuman(
            f"mirror {plan.mirror.name!r} does not copy {len(returning)} topic(s) back to cluster "
            f"{plan.target_cluster_id}, where their records come from. On the source they belong to",
            [f"{topic}: {writer}" for topic, writer in sorted(returning.items())],
            "Exclude the topics from one mirror of the ring, or stop one and give up its topics with 'airflow-mirror "
            "ledger release'. Then start the others again.",
        )
    return found
