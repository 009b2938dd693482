"""The consumer groups of a failover: which positions lie beyond the copy, and go back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.failover.record import Beyond
from airflow_mirror.errors import TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NO_MEMBERS, GroupPosition
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.groups import positions_in, selected


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The consumer groups.

    :param beyond: positions that go back, and where to.
    :param moved: of what lay beyond when it was decided, what somebody has set since, as lines.
    :param active: those of them that have members, so that nobody can set their positions.
    :param known: the selected groups that are here, and those of the plan.
    :param positions: how many positions the selected groups have in the mirror's topics.
    :param without: groups that had positions on the source when the plan was made, and have none here.
    """

    beyond: Beyond
    active: tuple[str, ...]
    known: tuple[str, ...]
    positions: int
    without: tuple[str, ...]
    moved: tuple[str, ...] = ()


def groups_of(target: ClusterAdmin, plan: Plan, noted: Beyond | None = None) -> Groups:
    """Return where the selected groups stand on the target.

    :param noted: what lay beyond the last stable offsets when a failover was decided; None: what lies beyond them now.
    """
    # Who joins a group behind this listing keeps its position: a broker refuses to set it, and the group is named.
    listed, found, stable = positions_of(target, plan)
    if noted is None:
        noted = {
            group: {tp: (p, stable[tp]) for tp, p in its.items() if p.offset > stable[tp]} for group, its in found.items()
        }
    beyond: dict[str, dict[TopicPartition, tuple[GroupPosition, int]]] = {}
    moved = []
    for group, tp, (was, goal) in sorted((group, tp, one) for group, its in noted.items() for tp, one in its.items()):
        now = found.get(group, {}).get(tp)
        # Applications write beyond the goal by now. What stands where it stood would skip that; anything else is theirs.
        if now == was:
            beyond.setdefault(group, {})[tp] = now, goal
        elif now is not None and now.offset != goal:
            stood = f"stood at {was.offset}, beyond the copy's end, and was set to {now.offset} since"
            moved.append(f"{group} at {tp}: {stood}; it stays, and may have skipped records from {goal} on")
    return Groups(
        beyond=beyond,
        # A broker refuses positions beneath members: they are named, and a person sets them once their consumers have
        # ended.
        active=tuple(group for group in beyond if listed[group] not in NO_MEMBERS),
        known=tuple(sorted({*listed, *plan.groups})),
        positions=sum(map(len, found.values())),
        without=tuple(group for group in plan.groups if not found.get(group)),
        moved=tuple(moved),
    )


def require_unmoved(
    target: ClusterAdmin, group: str, its: Mapping[TopicPartition, tuple[GroupPosition, int]], permit: Permit
) -> None:
    """Return if a group that is to be set back stands where it was seen, and that is permitted.

    :param its: as in :class:`Groups`. :raises TryAgain: it was moved.
    """
    permit()
    now = positions_in(target, [group], {tp.topic for tp in its}).get(group, {})
    if moved := [tp for tp, (was, _) in its.items() if now.get(tp) != was]:
        raise TryAgain(f"group {group!r} is not set back", f"it was moved at {min(moved)} meanwhile", "Call it again.")


def positions_of(
    target: ClusterAdmin, plan: Plan
) -> tuple[dict[str, str], dict[str, dict[TopicPartition, GroupPosition]], dict[TopicPartition, int]]:
    """Return the states of the selected groups on the target, their positions, and the last stable offsets of these.

    A failover takes a position beyond the last stable offset back to it, and leaves every other one.
    """
    listed = selected(target, plan.mirror)
    found = positions_in(target, sorted(listed), {t.target_topic for t in plan.topics})
    return listed, found, target.offsets(sorted({tp for its in found.values() for tp in its}), "latest_committed")
