"""One pass: read both clusters, decide, note, commit, settle the notes of what was refused.

Nothing is remembered between two passes; the clusters and the notes say everything. So a pass that dies anywhere is
continued by the next one, in whatever process:

- before the notes stand, nothing was done;
- after that, what the target holds is one of the two positions that the note names;
- after the commit too, and the next pass finds which.

Between the reading of a position and its commit somebody else may set it, within the second that a pass takes. Kafka has
no conditional commit; but it refuses ours while the group has members, and tools that set positions are used by people.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from airflow_mirror.copy.delays import wall_ms
from airflow_mirror.copy.offsets.map import Translated
from airflow_mirror.errors import MirrorError, NoOffsetMap
from airflow_mirror.kafka.model import NO_MEMBERS
from airflow_mirror.partition import TopicPartition
from airflow_mirror.plan.life import active_topics, not_active
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.following.deciding import NEWER_NOTE, NOT_COPIED, GroupDecision, Standing, decide_group, settle
from airflow_mirror.sync.following.notes import Note
from airflow_mirror.sync.following.places import ToTarget, places, same
from airflow_mirror.sync.following.report import FollowReport
from airflow_mirror.wire import requests

if TYPE_CHECKING:
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.kafka.model import GroupCommit, GroupPosition
    from airflow_mirror.ledger.decisions import Decisions
    from airflow_mirror.ledger.state import State
    from airflow_mirror.plan.model import Plan, TopicPlan
    from airflow_mirror.sync.right import Right
    from airflow_mirror.wire.cluster import WireCluster

_OURS = "airflow-mirror."  # our own groups; whatever a Mirror selects, they never leave their cluster
_AT_ONCE = 200  # groups between two confirmations of the lease
_OFFSETS = {
    "log start": (requests.EARLIEST, requests.READ_UNCOMMITTED),
    "last stable offset": (requests.LATEST, requests.READ_COMMITTED),
}
_NO_GROUP = "the source lists no group: if there are any, DESCRIBE on groups is missing there, and Kafka does not say so"
_CAUSE = "positions of topics that are partitioned by key have no counterpart"

Positions = Mapping[str, Mapping[TopicPartition, "GroupPosition"]]


class Follower:
    """Keeps a plan's groups on the target where they are on the source. For one thread.

    :param source: connections that the caller closes; ``target`` likewise.
    :param to_target: translates by the offset maps; see :class:`airflow_mirror.sync.maps.OffsetMaps`.
    :param state: holds the notes.
    :param ledger: says which topics are in production.
    :param moved: called for each group that was moved: when its positions were read on the source, when the target had
        answered; in ms since 1970.
    """

    def __init__(
        self, plan: Plan, source: ClusterAdmin, target: ClusterAdmin, to_target: ToTarget, state: State,
        ledger: Decisions, right: Right, moved: Callable[[int, int], None] = lambda read_ms, answered_ms: None,
    ) -> None:  # fmt: skip
        self._plan, self._mirror, self._moved = plan, plan.mirror, moved
        self._source, self._target, self._to_target = source, target, to_target
        self._state, self._ledger, self._right = state, ledger, right

    def follow(self, now_ms: int) -> FollowReport:
        """Make one pass.

        :param now_ms: wall-clock time, for notes alone.
        :raises MirrorError: what concerns all groups; what concerns one is in the report.
        """
        begun, report = time.monotonic(), FollowReport()
        self._right.confirm(self._target.wire)
        topics = self._topics(report)
        if topics:
            self._follow(topics, now_ms, report)
        report.took_s = round(time.monotonic() - begun, 3)
        return report

    def _follow(self, topics: Mapping[str, TopicPlan], now_ms: int, report: FollowReport) -> None:
        read_ms = wall_ms()  # before: what a group commits while it is read is at least as old
        here, unread = self._read_source(report)
        topics = self._still_same(topics, report)
        stored = dict(self._state.read())
        noted = {key.removeprefix(notes.prefix(self._mirror.name)): notes.load(value) for key, value in stored.items()}
        report.gone += noted.keys() - here.keys() - unread
        states = {g.group_id: g.state for g in self._target.groups()}
        there, errors = self._target.groups_offsets_apart([*here, *report.gone])
        _fail(errors, report)
        standings = self._standings(topics, here, {group: its for group, its in there.items() if group in here})
        decided = {}
        for group, its in standings.items():
            if group in noted and noted[group] is None:
                report.left_alone.append(f"{group}: {NEWER_NOTE}")
                continue
            active = states.get(group, "Dead") not in NO_MEMBERS
            report.active += [group] * active
            decided[group] = decide_group(its, noted.get(group), active=active, now_ms=now_ms)
        over = [group for group in report.gone if noted[group] and there.get(group) == {}]  # gone on both sides
        with self._right.writing:
            self._write({group: d.noted for group, d in decided.items()} | dict.fromkeys(over), stored)
            commits = self._commit(decided, read_ms)
            # What was done is settled by the next pass: a thousand groups move in each, and a note is a record.
            settled = {
                group: settle(decided[group], commit.done, commit.refused, now_ms)
                for group, commit in commits.items()
                if commit.refused or decided[group].refresh
            }
            self._write(settled, stored)
        self._tell(decided, commits, report)

    def _topics(self, report: FollowReport) -> dict[str, TopicPlan]:
        """Return the topics whose groups follow, by source topic."""
        if self._mirror.partitioning == "by_key":
            report.left_out += [f"{t.source_topic}: {_CAUSE}" for t in self._plan.topics]
            return {}
        active = active_topics(self._ledger, self._plan, self._target)
        report.left_out += [
            f"{t.source_topic}: {not_active(t)}" for t in self._plan.topics if t.target_topic not in active
        ]
        return {t.source_topic: t for t in self._plan.topics if t.target_topic in active}

    def _still_same(self, topics: Mapping[str, TopicPlan], report: FollowReport) -> dict[str, TopicPlan]:
        """Return the topics that are the ones of the plan. Asked after their positions: those of others mean nothing."""
        wire = self._source.wire
        gone = wire.refresh_present(topics)  # the tail goes on without them, and so do groups
        again = {n for n, t in topics.items() if n not in gone and wire.topic_id(n) != t.source_topic_id}
        report.left_out += [f"{name}: the source has no such topic any more" for name in gone]
        report.left_out += [f"{name}: the source's topic was created again" for name in again]
        return {name: t for name, t in topics.items() if name not in gone | again}

    def _read_source(self, report: FollowReport) -> tuple[dict[str, dict[TopicPartition, GroupPosition]], set[str]]:
        """Return the selected groups' positions in the plan's topics, and groups of which they say nothing."""
        topics = {t.source_topic for t in self._plan.topics}
        listed = [g.group_id for g in self._source.groups()]
        if not listed:
            report.left_out.append(_NO_GROUP)
        selected = [g for g in listed if self._mirror.selects_group(g) and not g.startswith(_OURS)]
        found, errors = self._source.groups_offsets_apart(selected)
        _fail(errors, report)
        in_topics = {g: {tp: p for tp, p in its.items() if tp.topic in topics} for g, its in found.items()}
        return {group: its for group, its in in_topics.items() if its}, set(listed).difference(selected).union(errors)

    def _standings(
        self, topics: Mapping[str, TopicPlan], here: Positions, there: Positions
    ) -> dict[str, dict[TopicPartition, Standing]]:
        """Return where the groups stand in these topics, by group and target partition."""
        self._target.wire.refresh(t.target_topic for t in topics.values())
        offsets: dict[TopicPartition, set[int]] = {}
        for group in there:
            for tp, position in _of(here[group], topics):
                offsets.setdefault(tp, set()).add(position.offset)
        routes = {tp: TopicPartition(topics[tp.topic].target_topic, tp.partition) for tp in offsets}
        source_starts, no_source = _ask(self._source.wire, "log start", offsets)
        starts, no_start = _ask(self._target.wire, "log start", routes.values())
        ends, no_end = _ask(self._target.wire, "last stable offset", routes.values())
        made: dict[TopicPartition, Callable[[GroupPosition, GroupPosition | None], Standing]] = {}
        for tp, its in offsets.items():
            to = routes[tp]
            if error := no_source.get(tp) or no_start.get(to) or no_end.get(to):
                made[tp] = _unknown(str(error))
                continue
            start = source_starts[tp]
            try:
                to_target = same if topics[tp.topic].mode == "identical" else self._to_target
                made[tp] = _at(places(tp, its | {start}, to_target), start, starts[to], ends[to])
            except NoOffsetMap:
                made[tp] = _unknown()
            except MirrorError as e:
                made[tp] = _unknown(str(e))
        return {
            group: {routes[tp]: made[tp](position, its.get(routes[tp])) for tp, position in _of(here[group], topics)}
            for group, its in there.items()
        }

    def _write(self, changed: Mapping[str, Note | None], stored: dict[str, bytes]) -> None:
        """Write notes that differ from what is stored; None removes one."""
        dumped = {
            notes.key(self._mirror.name, group): notes.dump(note) if note and note.ours else None
            for group, note in changed.items()
        }
        values = {key: value for key, value in dumped.items() if stored.get(key) != value}
        if values:
            self._right.confirm(self._target.wire)
            self._state.write(values)
            stored.update({key: value for key, value in values.items() if value is not None})

    def _commit(self, decided: Mapping[str, GroupDecision], read_ms: int) -> dict[str, GroupCommit]:
        wanted = {group: d.commits for group, d in decided.items() if d.commits}
        commits: dict[str, GroupCommit] = {}
        groups = sorted(wanted)
        for at in range(0, len(groups), _AT_ONCE):
            self._right.confirm(self._target.wire)
            some = {group: wanted[group] for group in groups[at : at + _AT_ONCE]}
            answers = self._target.commit_groups(some, self._right.check)
            answered_ms = wall_ms()
            for answer in answers.values():
                if answer.done:
                    self._moved(read_ms, answered_ms)
            commits |= answers
        return commits

    def _tell(
        self, decided: Mapping[str, GroupDecision], commits: Mapping[str, GroupCommit], report: FollowReport
    ) -> None:
        for group, decision in decided.items():
            commit = commits.get(group)
            if commit is not None and commit.active:
                report.active.append(group)
            elif commit is not None and commit.error is not None:
                report.failed.append(f"{group}: {commit.error}")
            report.left_alone += [f"{group} at {tp}: {d.left}" for tp, d in decision.decisions.items() if d.left]
            if group in report.active:
                continue
            following = {tp: d for tp, d in decision.decisions.items() if d.goal is not None}
            report.held += [
                f"{group} at {tp}: held at {d.goal.offset}" for tp, d in following.items() if d.held and d.goal
            ]
            report.groups += bool(following)
            report.positions += len(following)
            report.written += len(commit.done) if commit else 0


def _of(
    positions: Mapping[TopicPartition, GroupPosition], topics: Collection[str]
) -> Iterable[tuple[TopicPartition, GroupPosition]]:
    return ((tp, position) for tp, position in positions.items() if tp.topic in topics)


def _fail(errors: Mapping[str, MirrorError], report: FollowReport) -> None:
    report.failed += [f"{group}: {error}" for group, error in errors.items()]


def _ask(
    wire: WireCluster, what: str, tps: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, MirrorError]]:
    """Return offsets of those partitions whose leaders answer: one without a leader must not hold up all groups."""
    timestamp, isolation = _OFFSETS[what]
    return wire.ask_each(what, tps, lambda c, led: requests.list_offsets(c, led, timestamp, isolation), "Describe")


def _at(
    found: Mapping[int, Translated], source_start: int, start: int, end: int
) -> Callable[[GroupPosition, GroupPosition | None], Standing]:
    return lambda position, there: Standing(
        position=position,
        found=found[position.offset],
        rest=found[max(position.offset, source_start)],
        there=there,
        start=start,
        end=end,
    )


def _unknown(cause: str = NOT_COPIED) -> Callable[[GroupPosition, GroupPosition | None], Standing]:
    return lambda position, there: Standing(position=position, found=None, rest=None, there=there, cause=cause)
