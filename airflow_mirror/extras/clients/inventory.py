"""Who reads and writes a mirror's topics on the source, and who of them has come to the target.

Brokers list neither connections nor clients that they refused. What there is: groups with their members and committed
offsets, and the producers that partition leaders remember, for a day after their last record. Who reads without a group,
and who writes without numbering its batches, nobody lists: :data:`UNTOLD` says so in every inventory. Only reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.report import CutoverReport, GroupRecord
from airflow_mirror.cutover.request import Clusters
from airflow_mirror.errors import ClusterUnreachable, MirrorError
from airflow_mirror.extras.clients.commits import Commit, Commits
from airflow_mirror.extras.clients.since import Since, written_since
from airflow_mirror.extras.drill.clients import check_logins
from airflow_mirror.extras.readiness.external_state import elsewhere, streams
from airflow_mirror.extras.readiness.groups import SHARE, Group, groups, kind_of
from airflow_mirror.extras.readiness.look import GROUPS, ask_groups, said, transactional_ids
from airflow_mirror.extras.readiness.producers import Producer, producers
from airflow_mirror.extras.readiness.waves import reads_of, waves
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.groups import CONSUMERS
from airflow_mirror.kafka.model import NO_MEMBERS, GroupInfo, GroupPosition
from airflow_mirror.plan.findings import Questions
from airflow_mirror.plan.model import Plan
from airflow_mirror.wording import some

UNTOLD = (
    "no broker lists: clients that read without a group, producers without enable.idempotence (the default before 3.0), "
    "clients that were refused, and who is behind a proxy. A broker's metrics or request log tell more: --broker-file"
)
_PATIENCE_S = 15.0
WATCH_S = 2.0  # for people who ask once
_PRODUCERS = "producers (since Kafka 2.8)"
# What the target says of a client of the source.
READS, COMMITTED, WRITES, NOT_YET = "is a member", "has committed since", "has written", "not yet"


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A consumer group that has committed offsets in the mirror's topics, or members that read them.

    :param kind: a key of :data:`airflow_mirror.extras.readiness.groups.TO_DO`. :param state: Kafka's, on the source.
    :param clients: its members on the source, each as ``client id at host``. :param topics: of the source, sorted.
    :param wave: its number, from 1 on, as a plan for the night counts; 0: the mirror does not move it.
    :param commit_ms: its last commit on the source, in ms since the epoch; -1: not told. :param commit_is: ``at`` that
        time, ``by`` it or ``before`` it, as of :class:`.Commit`; "": not told.
    :param on_target: what the target says of it; "": before the target is open nobody has to be there.
    """

    group: str
    kind: str
    state: str
    clients: Sequence[str]
    topics: Sequence[str]
    wave: int = 0
    commit_ms: int = -1
    commit_is: str = ""
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
    :param topics: that it has written to, sorted.
    :param last_ms: newest time among its records, by its own clock unless the topic has LogAppendTime.
    :param writing: it wrote while it was looked.
    :param producer_id: on the source. :param waves: of these topics, as of :class:`Reader`.
    :param since_opening: it has written to the source after the target was opened, or has a transaction open there.
    :param on_target: as of :class:`Reader`; "" also of one without a transactional id.
    """

    name: str
    transactional: bool
    topics: Sequence[str]
    last_ms: int
    producer_id: int = -1
    waves: Sequence[int] = ()
    writing: bool = False
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
    :param readers: by wave, those that move in none last. :param writers: likewise.
    :param unseen: what could not be read, each with its reason. :param untold: what nobody tells, as a sentence.
    :param unanswered: the questions that failed, of which ``unseen`` has the reasons: another look may answer them.
    """

    mirror: str
    at_ms: int
    opened_ms: int
    readers: Sequence[Reader]
    writers: Sequence[Writer]
    newcomers: int
    unseen: Sequence[str]
    untold: str = UNTOLD
    unanswered: Sequence[str] = ()

    @property
    def waiting(self) -> list[str]:
        """Who has not moved yet, a line each; empty before the target is open."""
        lines = [*(one.waiting for one in self.readers), *(one.waiting for one in self.writers)]
        return [line for line in lines if line] if self.opened_ms else []

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self) | {"waiting": self.waiting}


def look(
    plan: Plan, source: ClusterAdmin, target: ClusterAdmin, report: CutoverReport | None, commits: Commits | None = None,
    watch_s: float = 0.0,
) -> Inventory:  # fmt: skip
    """Ask both clusters.

    :param report: of the mirror's last cutover; None: there was none. :param commits: of earlier looks.
    :param watch_s: for how long it is watched who writes, at least.
    :raises ClusterUnreachable: one of them does not answer.
    """
    to, at_ms = Questions(ClusterUnreachable), round(time.time() * 1000)
    begun = time.monotonic()
    hidden = list[str]()
    every, offsets = ask_groups(to, source, hidden)
    topics, names = [t.source_topic for t in plan.topics], {one.group_id for one in every}
    # By the names of topics, as the plan for the night: or else its waves would have other numbers.
    kept = streams(elsewhere(to.ask("names of topics", source.topic_names) or (), topics, names, {}))
    reads = reads_of(names, offsets, kept)
    consumers = [one.group_id for one in every if one.has_members and one.protocol_type in CONSUMERS]
    asked = [name for name in consumers if not reads[name] or reads[name].intersection(topics)]
    who = to.ask("clients of groups", lambda: members_of(source.config, asked, hidden)) or {}
    for group, its in who.items():
        reads[group] |= its.topics  # who keeps positions elsewhere, or has not committed one yet
    ways = waves(topics, {group: its for group, its in reads.items() if plan.mirror.selects_group(group)})
    known = [one for one in groups(every, kept, reads, ways) if one.topics]
    told, why = (commits or Commits()).of(source, {one.name: offsets.get(one.name, {}) for one in known}, at_ms)
    states = to.ask(_PRODUCERS, lambda: source.wire.describe_producers(plan.routes))
    # A producer whose id is hidden looks like one without, and nobody waits for it on the target.
    ids = to.ask("transactional ids of producers (since Kafka 3.0)", lambda: transactional_ids(source, hidden)) or {}
    wrote = producers(states or {}, ids, ways)
    opened_ms = opened_at(report)
    since = _since(to, source, report, wrote, hidden) if opened_ms else None
    writing = set[int]()
    if states is not None:
        time.sleep(max(0.0, begun + watch_s - time.monotonic()))
        again = to.ask(_PRODUCERS, lambda: source.wire.describe_producers(plan.routes)) or {}
        writing = {one.producer_id for tp, its in again.items() for one in set(its) - set(states.get(tp, ()))}
    listed = {one.group_id for one in every}
    # A source forgets a group some days after it was left, whether it has come to the target or not. Without a list of
    # its groups nobody knows which.
    forgotten = _cut_over(report) if report is not None and opened_ms and GROUPS not in to.unknown else {}
    wave_of = {topic: number for number, wave in enumerate(ways, 1) for topic in wave.topics}
    readers = [_reader(one, who.get(one.name), told.get(one.name)) for one in known]
    readers += [_forgotten(name, its, wave_of) for name, its in forgotten.items() if name not in listed]
    writers = [_writer(one, opened_ms, since, writing) for one in wrote if not one.is_mirror]
    inventory = Inventory(
        mirror=plan.mirror.name, at_ms=at_ms, opened_ms=opened_ms, newcomers=0, unseen=(),
        readers=sorted(readers, key=lambda one: (one.wave or len(ways) + 1, one.group)),
        writers=sorted(writers, key=lambda one: list(one.waves)),  # and whoever wrote last first
        untold="; ".join(filter(None, (UNTOLD, why, _untold_of(every)))),
    )  # fmt: skip
    if opened_ms:
        inventory = _with_target(inventory, plan, target, report, to, hidden)
    return replace(inventory, unseen=[*said(to.unknown), *hidden], unanswered=[*to.unknown])


def _untold_of(groups: Sequence[GroupInfo]) -> str:
    """Say whose topics nobody tells: share groups commit no offsets, and librdkafka can't describe them."""
    sharing = [repr(one.group_id) for one in groups if kind_of(one, ()) == SHARE and one.has_members]
    return f"which topics are read by share groups with members: {some(sharing)}" if sharing else ""


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
    # Leaders remember for a day, so perhaps from before this opening, behind a cutover that was rolled back. A client
    # whose clock is slow is waited for until that has come past it.
    wrote = [one for one in producers(there or {}, ids or {}, ()) if one.last_ms > inventory.opened_ms]
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
    # Of a group that got no positions nobody knows which of those it has there are its own, and since when: the tail lets
    # groups follow, and one may read other topics of the target.
    then = given.get(group)
    return COMMITTED if then is not None and then.has_moved(offsets.get(group, {})) else NOT_YET


def _reader(one: Group, members: Members | None, commit: Commit | None) -> Reader:
    return Reader(
        group=one.name, kind=one.kind, state=one.state, clients=members.clients if members else (), topics=one.topics,
        wave=one.wave, commit_ms=commit.ms if commit else -1, commit_is=commit.word if commit else "",
    )  # fmt: skip


def _cut_over(report: CutoverReport) -> dict[str, list[str]]:
    """Return the groups that a cutover was to move, each with the source topics whose positions it has moved."""
    moved = {one.group: sorted({tp.topic for tp in one.on_source}) for one in report.groups}
    return {name: [] for name in report.left_out} | moved


def _forgotten(group: str, topics: Sequence[str], wave_of: Mapping[str, int]) -> Reader:
    """Return a group of a cutover that the source does not list any more."""
    return Reader(
        group=group,
        kind="positions only",
        state="Dead",
        clients=(),
        topics=topics,
        wave=next((wave_of[topic] for topic in topics if topic in wave_of), 0),
    )


def _since(
    to: Questions, source: ClusterAdmin, report: CutoverReport | None, wrote: Sequence[Producer], hidden: list[str]
) -> Since | None:  # fmt: skip
    """Return what the source's logs tell; None: they can't be read, which is said, as is what they leave open."""
    cut = {} if report is None else report.cut
    found = to.ask("who has written to the source since the opening", lambda: written_since(cut, source.wire))
    if found is None:
        return None
    others = {
        tp for one in wrote if not one.is_mirror and one.producer_id not in found.producers for tp in one.partitions
    }
    if unsure := sorted(others & found.partly):
        hidden.append(f"who has written to {some(unsure)} since the opening, but for the newest part: by their clocks")
    hidden += found.lines()
    return found


def _writer(one: Producer, opened_ms: int, since: Since | None, writing: Collection[int]) -> Writer:
    by_log = since is not None and since.read.issuperset(one.partitions)
    later = not by_log and one.last_ms > opened_ms  # its clock may be wrong: where nothing else tells
    seen = since is not None and one.producer_id in since.producers
    return Writer(
        name=one.name, transactional=bool(one.transactional_id), last_ms=one.last_ms, producer_id=one.producer_id,
        waves=one.waves, topics=sorted({tp.rpartition("-")[0] for tp in one.partitions}),
        writing=one.producer_id in writing,
        since_opening=bool(opened_ms) and (seen or later or one.in_transaction),
    )  # fmt: skip


class Members(NamedTuple):
    """The members of a group: ``client id at host`` of each, sorted, and the topics that they are assigned."""

    clients: list[str]
    topics: set[str]


def members_of(config: ClientConfig, groups: Sequence[str], failed: list[str]) -> dict[str, Members]:
    """Return the members of groups of all protocols, KIP-848 too.

    By confluent-kafka: the schemas of our own connection have no ConsumerGroupDescribe.

    :param failed: takes a line for each group that can't be described.
    :raises InvalidField: this login is none of librdkafka's wheels.
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
            failed.append(f"clients of group {group!r}: {e.args[0].name()}")
            continue
        found[group] = Members(
            clients=sorted(f"{one.client_id} at {one.host.lstrip('/')}" for one in members),
            topics={tp.topic for one in members if one.assignment for tp in one.assignment.topic_partitions},
        )
    return found
