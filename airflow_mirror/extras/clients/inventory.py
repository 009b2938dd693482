"""Who reads and writes a mirror's topics on the source, and who of them has come to the target.

Brokers list neither connections nor clients that they refused. What there is: groups with their members and committed
offsets, and the producers that partition leaders remember, for a day after their last record. Who reads without a group,
and who writes without numbering its batches, nobody lists: :data:`UNTOLD` says so in every inventory. Only reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.report import CutoverReport, GroupRecord
from airflow_mirror.cutover.request import Clusters
from airflow_mirror.errors import BrokerError, ClusterUnreachable, MirrorError
from airflow_mirror.extras.drill.clients import check_logins
from airflow_mirror.extras.readiness.groups import groups
from airflow_mirror.extras.readiness.look import ask_groups, said, transactional_ids
from airflow_mirror.extras.readiness.producers import Producer, producers
from airflow_mirror.extras.readiness.waves import Wave
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NO_MEMBERS, GroupInfo, GroupPosition
from airflow_mirror.plan.findings import Questions
from airflow_mirror.plan.model import Plan
from airflow_mirror.wording import some

UNTOLD = (
    "no broker lists: clients that read without a group, producers without enable.idempotence (the default before 3.0), "
    "clients that were refused, and who is behind a proxy. A broker's metrics or request log tell more: --broker-file"
)
_PATIENCE_S = 15.0
# What the target says of a client of the source.
READS, COMMITTED, WRITES, NOT_YET = "is a member", "has committed since", "has written", "not yet"


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A consumer group with committed offsets in the mirror's topics.

    :param kind: a key of :data:`airflow_mirror.extras.readiness.groups.TO_DO`. :param state: Kafka's, on the source.
    :param clients: its members on the source, each as ``client id at host``. :param topics: of the source, sorted.
    :param on_target: what the target says of it; "": before the target is open nobody has to be there.
    """

    group: str
    kind: str
    state: str
    clients: Sequence[str]
    topics: Sequence[str]
    on_target: str = ""

    @property
    def waiting(self) -> str:
        """Why it has not moved yet; "": it has."""
        if self.state not in NO_MEMBERS:
            return f"group {self.group!r} has members on the source: {some(self.clients, 3) or 'nobody says who'}"
        return f"group {self.group!r} has not come to the target" if self.on_target == NOT_YET else ""


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A producer of the source.

    :param name: its transactional id, or ``producer ID``. :param transactional: only then it is known on the target.
    :param topics: that it has written to, sorted. :param last_ms: newest time among its records.
    :param since_opening: it has written to the source after the target was opened, or has a transaction open there.
    :param on_target: as of :class:`Reader`; "" also of one without a transactional id.
    """

    name: str
    transactional: bool
    topics: Sequence[str]
    last_ms: int
    since_opening: bool = False
    on_target: str = ""

    @property
    def waiting(self) -> str:
        """Why it has not moved yet; "": it has, or nobody can tell."""
        if self.since_opening:
            return f"{self.name} has written to the source since the target was opened"
        return f"{self.name} has not come to the target" if self.on_target == NOT_YET else ""


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Who is there.

    :param at_ms: when it was looked, by our clock. :param opened_ms: when the target was opened; 0: it was not.
    :param newcomers: producers without a transactional id that have written to the target: whose they are nobody tells.
    :param unseen: what could not be read, each with its reason.
    """

    mirror: str
    at_ms: int
    opened_ms: int
    readers: Sequence[Reader]
    writers: Sequence[Writer]
    newcomers: int
    unseen: Sequence[str]

    @property
    def waiting(self) -> list[str]:
        """Who has not moved yet, a line each; empty before the target is open."""
        lines = [*(one.waiting for one in self.readers), *(one.waiting for one in self.writers)]
        return [line for line in lines if line] if self.opened_ms else []

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self) | {"waiting": self.waiting, "untold": UNTOLD}


def look(plan: Plan, source: ClusterAdmin, target: ClusterAdmin, report: CutoverReport | None) -> Inventory:
    """Ask both clusters.

    :param report: of the mirror's last cutover; None: there was none.
    :raises ClusterUnreachable: one of them does not answer.
    """
    to, at_ms = Questions(ClusterUnreachable), round(time.time() * 1000)
    wave = Wave(topics=tuple(t.source_topic for t in plan.topics), ties={})
    hidden = list[str]()
    every, offsets = ask_groups(to, source, hidden)
    reads = {group: {tp.topic for tp in its} for group, its in offsets.items()}
    known = [one for one in groups(every, (), reads, [wave]) if one.topics]
    who = to.ask("clients of groups", lambda: members_of(source.config, [one.name for one in known if one.alive])) or {}
    states = to.ask("producers (since Kafka 2.8)", lambda: source.wire.describe_producers(plan.routes))
    # A producer whose id is hidden looks like one without, and nobody waits for it on the target.
    ids = to.ask("transactional ids of producers (since Kafka 3.0)", lambda: transactional_ids(source, hidden)) or {}
    wrote = producers(states or {}, ids, [wave])
    opened_ms = opened_at(report)
    listed = {one.group_id for one in every}
    # A source forgets a group some days after it was left, whether it has come to the target or not.
    forgotten = [one for one in report.groups if one.group not in listed] if report is not None and opened_ms else []
    inventory = Inventory(
        mirror=plan.mirror.name, at_ms=at_ms, opened_ms=opened_ms, newcomers=0, unseen=(),
        readers=[
            Reader(group=one.name, kind=one.kind, state=one.state, clients=who.get(one.name, ()), topics=one.topics)
            for one in known
        ] + [_forgotten(one) for one in forgotten],
        writers=[_writer(one, opened_ms) for one in wrote if not one.is_mirror],
    )  # fmt: skip
    if opened_ms:
        inventory = _with_target(inventory, plan, target, report, to, hidden)
    return replace(inventory, unseen=[*said(to.unknown), *hidden])


def clients_of(plan: Plan, clusters: Clusters) -> Callable[[CutoverReport], dict[str, Any]]:
    """Return what looks for a cutover's report: before its fence, and when it has finished.

    What can't be asked is said in it, because no cutover fails by that.
    """

    def asked(report: CutoverReport) -> dict[str, Any]:
        on = clusters.on
        try:
            return look(plan, on.source.admin, on.target.admin, report).to_dict()
        except MirrorError as e:
            return {"at_ms": round(time.time() * 1000), "readers": [], "writers": [], "unseen": [str(e)], "waiting": []}

    return asked


def opened_at(report: CutoverReport | None) -> int:
    """Return when a finished cutover opened the target, in ms since the epoch; 0: none did."""
    opened = None if report is None else report.opened_at
    return 0 if opened is None else round(opened * 1000)


def _with_target(
    inventory: Inventory, plan: Plan, target: ClusterAdmin, report: CutoverReport | None, to: Questions,
    hidden: list[str],
) -> Inventory:  # fmt: skip
    names = [one.group for one in inventory.readers]
    states = to.ask("groups of the target", lambda: target.group_states(names))
    offsets = to.ask("committed offsets on the target", lambda: target.groups_offsets(names))
    there = to.ask("producers of the target", lambda: target.wire.describe_producers(plan.routes.values()))
    ids = to.ask("transactional ids of the target", lambda: transactional_ids(target, hidden, "the target"))
    given = {} if report is None else {one.group: one for one in report.groups}
    wrote = producers(there or {}, ids or {}, ())
    came = {one.transactional_id for one in wrote}
    readers = [
        replace(one, on_target=_arrived(one.group, states, offsets, given)) for one in inventory.readers
    ] if states is not None and offsets is not None else inventory.readers  # fmt: skip
    writers = [
        replace(one, on_target=(WRITES if one.name in came else NOT_YET) if one.transactional else "")
        for one in inventory.writers
    ] if there is not None and ids is not None else inventory.writers  # fmt: skip
    newcomers = sum(not one.transactional_id and not one.is_mirror for one in wrote)
    return replace(inventory, readers=readers, writers=writers, newcomers=newcomers)


def _arrived(
    group: str, states: Mapping[str, str], offsets: Mapping[str, Mapping[TopicPartition, GroupPosition]],
    given: Mapping[str, GroupRecord],
) -> str:  # fmt: skip
    if GroupInfo(group, states.get(group, "Dead"), "").has_members:
        return READS
    now, then = offsets.get(group, {}), given.get(group)
    moved = then.has_moved(now) if then is not None and then.positions else bool(now)
    return COMMITTED if moved else NOT_YET


def _forgotten(one: GroupRecord) -> Reader:
    """Return a group that a cutover has moved, and that the source does not list any more."""
    return Reader(
        group=one.group,
        kind="positions only",
        state="Dead",
        clients=(),
        topics=sorted({tp.topic for tp in one.on_source}),
    )


def _writer(one: Producer, opened_ms: int) -> Writer:
    return Writer(
        name=one.name, transactional=bool(one.transactional_id), last_ms=one.last_ms,
        topics=sorted({tp.rpartition("-")[0] for tp in one.partitions}),
        since_opening=bool(opened_ms) and (one.last_ms > opened_ms or one.in_transaction),
    )  # fmt: skip


def members_of(config: ClientConfig, groups: Sequence[str]) -> dict[str, list[str]]:
    """Return the members of groups of all protocols, KIP-848 too, each as ``client id at host``.

    By confluent-kafka: the schemas of our own connection have no ConsumerGroupDescribe.

    :raises BrokerError: a group can't be described. :raises InvalidField: this login is none of librdkafka's wheels.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    if not groups:
        return {}
    check_logins([config])
    client = AdminClient(config.common())  # kept alive: garbage collected too early, it would lose its results
    found = {}
    for group, future in client.describe_consumer_groups(list(groups), request_timeout=_PATIENCE_S).items():
        try:
            members = future.result(timeout=2 * _PATIENCE_S).members
        except KafkaException as e:
            raise BrokerError(f"describe group {group!r}", e.args[0].code(), e.args[0].name()) from e
        found[group] = sorted(f"{one.client_id} at {one.host.lstrip('/')}" for one in members)
    return found
