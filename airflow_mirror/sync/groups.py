"""Committed offsets of consumer groups: which groups, where they stand, where that lies on the other side, and set there.

Whoever moves groups once does it by this module: a task, a cutover, a failover. What follows them all the time, and who
adopts a target for that, decides by other rules, because positions and logs still move (:mod:`.following.deciding`).

Kafka checks almost nothing here. It accepts an offset outside the log, and the consumer then jumps by its
auto.offset.reset. So range and group state are checked before any group is changed, nothing is rewound unless
requested, and committed positions are read back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import GroupActive, MissingRight, NotKept, first_of
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NO_MEMBERS, GroupPosition
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.inventory import hidden_groups, hides_groups, not_listed
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.plan.requirements import (
    require_active,
    require_exclusive_topics,
    require_owned,
    require_planned_clusters,
)
from airflow_mirror.plan.resources import ANY
from airflow_mirror.plan.standing import still_ours
from airflow_mirror.sync.group_translation import GroupMove, Positions, Translate, Translation, translate_positions
from airflow_mirror.sync.lag import gone
from airflow_mirror.sync.maps import OffsetMaps

__all__ = ["GroupPlace", "translate"]


@dataclass(frozen=True, kw_only=True)
class GroupPlace:
    """Where one group stands in one partition. Offsets are those of the next record to read.

    :param source_offset: its position on the source; None for none.
    :param target_offset: its position on the target; None for none.
    :param translated: the place of ``source_offset`` on the target; None if it has none, or not yet: see ``note``.
    :param found: how that was found, as in :class:`GroupMove`.
    :param note: what there is to know, for people.
    """

    topic: str
    partition: int
    target_topic: str
    source_offset: int | None
    target_offset: int | None
    translated: int | None = None
    found: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class GroupReport:
    """The positions that were (or, in a dry run, would be) committed.

    :param active: groups with members on the target; a real run refuses them.
    """

    moves: tuple[GroupMove, ...]
    committed: bool
    without_positions: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    active: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Readers:
    """Whose positions are moved, and in which topics.

    :param topics: with their names on both sides, from where they read to where they are to go on.
    :param known: groups that had positions: Kafka does not list one that may not be seen, and says no error.
    :param every: the mirror's rights are on all groups, as on its source; on the target they are on its own alone.
    """

    mirror: Mirror
    topics: Collection[TopicPlan]
    known: Collection[str] = ()
    every: bool = True

    def hidden(self, admin: ClusterAdmin, found: Collection[str]) -> list[MissingRight]:
        """Return the rights that are missing to see groups that may be there; where none is seen, those on all.

        :param found: the groups that are seen.
        """
        mirror = self.mirror
        if self.every and not found and not mirror.names_its_groups and hides_groups(admin):
            return [not_listed(admin, ANY)]
        known = {*filter(mirror.selects_group, self.known), *mirror.named_groups}
        return hidden_groups(admin, sorted(known.difference(found)))


def translate(
    source: Mapping[str, str], target: Mapping[str, str], group: str, *, plan: Plan | str | Path
) -> list[GroupPlace]:
    """Return where a group stands on both clusters, in each partition of a plan's topics where it has a position.

    It only reads; for notebooks and scripts.

    :param source: librdkafka settings of the cluster, ``bootstrap.servers`` at least; ``target`` likewise.
    :param group: id of a consumer group; one that does not exist has no positions.
    :param plan: of the mirror, or its JSON file.
    :raises InputError: the plan is none, a setting is unsupported, or topics are partitioned by key.
    :raises NoOffsetMap: the copy of a mapped partition has not begun.
    :raises TryAgain: a cluster does not answer.
    """
    plan = plan if isinstance(plan, Plan) else Plan.load(plan)
    configs = ClientConfig(source, "source"), ClientConfig(target, "target")
    with (
        ClusterAdmin(configs[0]) as here,
        ClusterAdmin(configs[1]) as there,
        OffsetMaps(plan, *configs) as maps,
    ):
        return _places(group, plan, here, there, maps.to_target)


def _places(group: str, plan: Plan, source: ClusterAdmin, target: ClusterAdmin, to_target: Translate) -> list[GroupPlace]:
    names = {t.source_topic: t.target_topic for t in plan.topics}
    found = positions_in(source, [group], names)
    lost = gone(plan, source)  # after the positions: those of another topic mean nothing
    made = between(found, plan.topics, source, target, to_target, ends="latest_committed", strict=False, lost=lost)
    here, there = found[group], positions_in(target, [group], names.values())[group]
    moves = {move.source: move for move in made.moves}
    problems = {(p.topic, p.partition): str(p) for p in made.problems}
    back = {target_name: name for name, target_name in names.items()}
    places = []
    for tp in sorted({*here, *(TopicPartition(back[to.topic], to.partition) for to in there)}):
        to, move = TopicPartition(names[tp.topic], tp.partition), moves.get(tp)
        places.append(
            GroupPlace(
                topic=tp.topic,
                partition=tp.partition,
                target_topic=to.topic,
                source_offset=here[tp].offset if tp in here else None,
                target_offset=there[to].offset if to in there else None,
                translated=move.target_offset if move else None,
                found=move.found if move else "",
                note=move.note if move else problems.get(to, problems.get(tp, "")),
            )
        )
    return places


def selected(admin: ClusterAdmin, mirror: Mirror) -> dict[str, str]:
    """Return the states of the groups that the mirror selects, by group."""
    return {g.group_id: g.state for g in admin.groups() if mirror.selects_group(g.group_id)}


def positions_in(
    admin: ClusterAdmin, groups: Collection[str], topics: Iterable[str]
) -> dict[str, dict[TopicPartition, GroupPosition]]:
    """Return groups' committed positions in ``topics``; an empty dict for a group without any."""
    wanted, found = set(topics), admin.groups_offsets(groups)
    return {group: {tp: p for tp, p in its.items() if tp.topic in wanted} for group, its in found.items()}


def read_positions(
    admin: ClusterAdmin, mirror: Mirror, topics: Iterable[str]
) -> dict[str, dict[TopicPartition, GroupPosition]]:
    """Return every selected group's committed positions in ``topics``; an empty dict for a group without any."""
    return positions_in(admin, [*selected(admin, mirror)], topics)


def groups_left_behind(admin: ClusterAdmin, mirror: Mirror, topics: Iterable[str]) -> list[str]:
    """Return the readers' groups that have positions in ``topics`` and that the mirror does not select, sorted."""
    others = [g.group_id for g in admin.groups() if mirror.leaves_behind(g.group_id)]
    return [group for group, found in positions_in(admin, others, topics).items() if found]


def ahead(moves: Iterable[GroupMove]) -> list[str]:
    """Return a line for each position that is further on the target than the one that would be committed."""
    return [
        f"group {m.group!r} at {m.target}: {m.before} on the target, {m.source_offset} on the source"
        + (f" ({m.target_offset} there)" if m.target_offset != m.source_offset else "")
        for m in moves
        if m.before is not None and m.before > m.target_offset
    ]


def reverse(topics: Iterable[TopicPlan]) -> list[TopicPlan]:
    """Return the topics for the reverse direction (target name to source name), for groups that return."""
    return [replace(t, source_topic=t.target_topic, target_topic=t.source_topic) for t in topics]


def translate_groups(
    plan: Plan,
    source: ClientConfig,
    target: ClientConfig,
    *,
    commit: bool = False,
    allow_rewind: bool = False,
    back: bool = False,
    allow_production: bool = False,
) -> GroupReport:
    """Translate the positions of the plan's groups; commit them, or only report.

    The target's ledger is asked right before each commit: a task may be cleared long after a cutover.

    :param allow_rewind: also commit where the group is already further on the other cluster.
    :param back: from the target to the source, for groups that return.
    :param allow_production: a person's word that positions are committed although the topics are in production.
    :raises InputError: they are, and nobody has said so; or another direction is decided meanwhile. Or a cluster is not
        the plan's.
    :raises TopicsOwned: topics belong to another mirror.
    :raises GroupActive: a group has members where its positions are to be set; no group was changed.
    :raises MissingRight: a group that the plan knows or the mirror names, or all of them on the source, may be there and
        may not be seen. Without ``commit`` it is a problem of the report.
    :raises TopicsShared: a position on the target stands for other sources, too.
    :raises OffsetOutOfRange: the other cluster does not hold a position (yet), or the source's topic was created again.
        Without ``commit`` it is a problem of the report.
    """
    require_exclusive_topics(plan, "translate positions of groups")
    topics = reverse(plan.topics) if back else plan.topics
    left, right = (target, source) if back else (source, target)
    with ClusterAdmin(left) as here, ClusterAdmin(right) as there:
        require_planned_clusters(plan, *((there, here) if back else (here, there)))
        owner = here if back else there  # the target, also where the source is written
        permit = still_ours(Ledger(owner), plan, owner, require_owned if allow_production else require_active)
        with ExitStack() as stack:

            def lost() -> dict[str, str]:
                found, sides = gone(plan, there if back else here), zip(topics, plan.topics, strict=True)
                return {one.source_topic: found[t.source_topic] for one, t in sides if t.source_topic in found}

            def through() -> Translate:
                maps = stack.enter_context(OffsetMaps(plan, source, target))
                return maps.to_source if back else maps.to_target

            readers = Readers(mirror=plan.mirror, topics=topics, known=plan.groups, every=not back)
            return move_groups(
                readers, here, there, through, permit, commit=commit, allow_rewind=allow_rewind, lost=lost
            )  # fmt: skip


def move_groups(
    readers: Readers, source: ClusterAdmin, target: ClusterAdmin, through: Callable[[], Translate | None],
    permit: Permit, *, commit: bool, allow_rewind: bool = False, lost: Callable[[], Mapping[str, str]] = dict,
) -> GroupReport:  # fmt: skip
    """Translate the positions of a mirror's groups from one cluster to another; see :func:`translate_groups`.

    :param through: returns how, once the positions are read. :param permit: asked before all, and by each commit.
    :param lost: returns what :func:`translate_positions` wants to know, once the positions are read: those of another
        topic mean nothing.
    """
    if commit:
        permit()  # before maps are completed, which may take minutes
    # Positions first: a map that is completed afterwards covers them, unless the copy has not reached them.
    positions = read_positions(source, readers.mirror, [t.source_topic for t in readers.topics])
    hidden = readers.hidden(source, positions)
    if hidden and commit:
        raise first_of(hidden)
    translated = between(positions, readers.topics, source, target, through(), strict=commit, lost=lost())
    report = commit_groups(target, translated, permit, allow_rewind, dry_run=not commit)
    return replace(report, problems=(*map(str, hidden), *report.problems))


def between(
    positions: Positions, topics: Collection[TopicPlan], source: ClusterAdmin, target: ClusterAdmin,
    translate_offset: Translate | None, *, ends: str = "latest", strict: bool = True,
    lost: Mapping[str, str] = MappingProxyType({}),
) -> Translation:  # fmt: skip
    """Return where groups go on on the target, by both logs as they are now; see :func:`translate_positions`.

    :param ends: ``latest_committed``: who stands at the end of what is read_committed there has caught up.
    """
    names = {t.source_topic: t.target_topic for t in topics}
    here = {tp for its in positions.values() for tp in its if tp.topic in names}
    known = target.topics(sorted({names[tp.topic] for tp in here}))
    there = [
        TopicPartition(info.name, tp.partition)
        for tp in here
        if (info := known.get(names[tp.topic])) is not None and tp.partition < info.partitions
    ]
    return translate_positions(
        positions, topics, source.offsets(here, "earliest"), target.offsets(there, "earliest"),
        target.offsets(there, ends), translate_offset, strict, lost,
    )  # fmt: skip


def commit_groups(
    target: ClusterAdmin, translated: Translation, permit: Permit, allow_rewind: bool = False, dry_run: bool = False
) -> GroupReport:  # fmt: skip
    """Commit translated positions on the target and read them back. Safe to repeat.

    :param permit: what it raises is raised; not asked in a dry run.
    :param allow_rewind: also commit where the group is already further on the target.
    :param dry_run: only report.
    :raises GroupActive: a group has members on the target; no group was changed.
    :raises NotKept: a position reads back differently.
    """
    if dry_run:
        return compare_groups(target, translated, allow_rewind)
    if active := _active(target, {move.group for move in translated.moves}):
        raise _refusal(active, target.role)
    report = _compared(target, translated, allow_rewind)
    if translated.problems:
        raise translated.problems[0]
    _commit(target, report.moves, permit)
    return replace(report, committed=True)


def compare_groups(target: ClusterAdmin, translated: Translation, allow_rewind: bool = False) -> GroupReport:
    """Return what :func:`commit_groups` would commit, and which groups have members on the target."""
    active = _active(target, {move.group for move in translated.moves})
    return replace(_compared(target, translated, allow_rewind), active=tuple(sorted(active)))


def _compared(target: ClusterAdmin, translated: Translation, allow_rewind: bool) -> GroupReport:
    current = target.groups_offsets({move.group for move in translated.moves})
    return GroupReport(
        moves=decide(translated.moves, current, allow_rewind),
        committed=False,
        without_positions=translated.without_positions,
        problems=tuple(map(str, translated.problems)),
    )


def set_positions(target: ClusterAdmin, moves: Iterable[GroupMove], permit: Permit) -> None:
    """Commit positions that were decided on, and read them back. Safe to repeat. Errors as :func:`commit_groups`.

    :param permit: what it raises is raised.
    """
    moves = list(moves)
    if active := _active(target, {move.group for move in moves}):
        raise _refusal(active, target.role)
    _commit(target, moves, permit)


def decide(moves: Iterable[GroupMove], current: Positions, allow_rewind: bool) -> tuple[GroupMove, ...]:
    """Return the moves with their actions, given the current positions on the target."""
    decided = []
    for move in moves:
        there = current[move.group].get(move.target)
        before, action, note = (None if there is None else there.offset), "commit", move.note
        if there == GroupPosition(move.target_offset, move.metadata):
            action = "same"
        elif there is not None and there.offset > move.target_offset:
            action = "rewind" if allow_rewind else "kept"
            note = note or f"the group is {there.offset - move.target_offset} offsets further on the target"
        decided.append(replace(move, before=before, action=action, note=note))
    return tuple(decided)


def _commit(target: ClusterAdmin, moves: Iterable[GroupMove], permit: Permit) -> None:
    wanted: dict[str, dict[TopicPartition, GroupPosition]] = {}
    for move in moves:
        if move.action in ("commit", "rewind"):
            wanted.setdefault(move.group, {})[move.target] = GroupPosition(move.target_offset, move.metadata)
    for group, one in target.commit_groups(wanted, permit).items():
        if one.error is not None:  # its coordinator has moved, say: this asks again, or raises the error
            target.commit_group_offsets(group, wanted[group], permit)
    kept = target.groups_offsets(wanted, wanted)
    wrong = [
        f"{group} at {tp}: committed {position.offset}, reads back "
        f"{kept[group][tp].offset if tp in kept[group] else 'nothing'}"
        for group, positions in wanted.items()
        for tp, position in positions.items()
        if kept[group].get(tp) != position
    ]
    if wrong:
        raise NotKept("offsets of consumer groups", wrong)


def _active(target: ClusterAdmin, groups: Collection[str]) -> dict[str, str]:
    return {group: state for group, state in target.group_states(groups).items() if state not in NO_MEMBERS}


def _refusal(active: Mapping[str, str], cluster: str) -> GroupActive:
    return first_of([GroupActive(group, cluster, state) for group, state in sorted(active.items())])
