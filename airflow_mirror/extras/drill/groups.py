"""What a failover would do to the consumer groups of a mirror that replicates: how far each one would be set back.

Only reads. A failover leaves positions where the tail has put them on the target, and takes back to the last stable
offset what lies beyond it (:func:`.failover.groups.positions_of`). So what a group would read again is what the target
holds between that place and the one at which the group stands on the source now.

The target is read first, and the source after that: a group that moves meanwhile looks further back than it would be,
never less.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.failover.check import mirror_of
from airflow_mirror.cutover.failover.groups import positions_of
from airflow_mirror.cutover.platform import Side
from airflow_mirror.errors import InputError, NoOffsetMap
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NO_MEMBERS, GroupPosition
from airflow_mirror.plan.inventory import hides_groups, unlisted, why_hidden
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.requirements import require_exclusive_topics
from airflow_mirror.sync.group_translation import Translate
from airflow_mirror.sync.groups import groups_left_behind, positions_in, selected
from airflow_mirror.sync.maps import OffsetMaps
from airflow_mirror.verify.partition import count_data

if TYPE_CHECKING:
    Offsets = Mapping[TopicPartition, int]

_COUNTED = 100_000  # offsets of a partition whose records are counted; of more the offsets are told
_LISTED = 200  # rows that are kept; the rest is counted
_UNLISTED = "the source does not list it: it was deleted, or may not be seen"


@dataclass(kw_only=True)
class GroupOutlook:
    """One group.

    :param partitions: in which it has a position on the source.
    :param reread: records that it would read again. :param skipped: records that it would never get: the target's
        position is further than the source's.
    :param exact: both are records; else offsets, holes and markers among them.
    :param unplaced: partitions in which it would not go on where it stands, with the reason.
    """

    group: str
    partitions: int
    reread: int = 0
    skipped: int = 0
    exact: bool = True
    unplaced: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        what = "records" if self.exact else "offsets"
        line = f"group {self.group!r} in {self.partitions} partitions: {self.reread:,} {what} read again"
        return (
            line + (f", {self.skipped:,} skipped" if self.skipped else "") + "".join(f"; {x}" for x in self.unplaced[:5])
        )


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """All groups that a mirror selects, those that lose most first, and last those that the source does not list.

    :param at_ms: when the source's positions were read, epoch ms.
    :param left_behind: groups with positions in the mirror's topics that it does not select.
    :param hidden: why there may be more groups than those, as readable lines: Kafka lists what may be seen, and says no
        error.
    """

    mirror: str
    at_ms: int
    groups: tuple[GroupOutlook, ...]
    left_behind: tuple[str, ...]
    hidden: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; of each list its length and its first rows."""
        rows = [{**asdict(one), "unplaced": one.unplaced[:_LISTED]} for one in self.groups[:_LISTED]]
        return {
            "mirror": self.mirror,
            "at_ms": self.at_ms,
            "count": len(self.groups),
            "unplaced": sum(bool(one.unplaced) for one in self.groups),
            "reread": sum(one.reread for one in self.groups),
            "skipped": sum(one.skipped for one in self.groups),
            "rows": rows,
            "left_behind": {"count": len(self.left_behind), "first": list(self.left_behind[:_LISTED])},
            "hidden": list(self.hidden),
        }


def look(mirror: str, source: ClusterAdmin, target: ClusterAdmin) -> Outlook:
    """Return what a failover of a mirror would do to its groups now. Nothing is committed on either cluster.

    :raises InputError: the target knows no such mirror, ``source`` is not its source, or it partitions by key, so that
        positions have no counterpart. :raises TopicsShared: its topics are others' as well.
    """
    plan, *_ = mirror_of(Side(target), mirror)
    require_exclusive_topics(plan, "rehearse a failover of groups")
    if (found := source.cluster_id()) != plan.source_cluster_id:
        raise InputError(
            f"mirror {mirror!r} copies from cluster {plan.source_cluster_id}",
            f"the drill's source is {found}",
            "Name a mirror of this source, or none (groups_of).",
        )
    topics = [t.source_topic for t in plan.topics]
    states, there, ends = positions_of(target, plan)
    starts = target.offsets(sorted(ends), "earliest")
    at_ms = time.time_ns() // 1_000_000
    listed = selected(source, plan.mirror)
    positions = {group: its for group, its in positions_in(source, [*listed], topics).items() if its}
    target.wire.refresh({tp.topic for tp in ends})
    with OffsetMaps(plan, source.config, target.config) as maps:
        places = _Places(target, plan, starts, ends, maps.to_target)
        groups = []
        for group, its in positions.items():
            one = GroupOutlook(group=group, partitions=len(its))
            has_members = states.get(group) not in (None, *NO_MEMBERS)
            for tp, position in sorted(its.items()):
                places.compare(one, tp, position.offset, there.get(group, {}), has_members)
            groups.append(one)
    groups.sort(key=lambda one: (-len(one.unplaced), -one.reread - one.skipped, one.group))
    # Last: most of a plan that is months old were deleted since, and must not hide those that would lose something.
    groups += [GroupOutlook(group=group, partitions=0, unplaced=[_UNLISTED]) for group in _unlisted(source, plan, listed)]
    left = tuple(groups_left_behind(source, plan.mirror, topics))
    hidden = why_hidden(
        source.role, hides=not plan.mirror.names_its_groups and hides_groups(source),
        sees_coordinators=source.sees_group_coordinators(),
    )  # fmt: skip
    return Outlook(mirror=mirror, at_ms=at_ms, groups=tuple(groups), left_behind=left, hidden=tuple(hidden))


def _unlisted(source: ClusterAdmin, plan: Plan, listed: Collection[str]) -> list[str]:
    """Return the groups that the source had when the plan was made, or may have, and that it does not list."""
    planned = set(filter(plan.mirror.selects_group, plan.groups)).difference(listed)
    # One that may not be seen the plan could not see either.
    return sorted({*planned, *unlisted(source, sorted({*plan.mirror.named_groups}.difference(listed)))})


class _Places:
    """Where groups would go on, and where they stand.

    :param starts: of the target's logs. :param ends: their last stable offsets.
    """

    def __init__(self, target: ClusterAdmin, plan: Plan, starts: Offsets, ends: Offsets, to_target: Translate) -> None:
        self._target, self._starts, self._ends, self._to_target = target, starts, ends, to_target
        self._topics = {t.source_topic: t for t in plan.topics}

    def compare(
        self, one: GroupOutlook, tp: TopicPartition, offset: int, there: Mapping[TopicPartition, GroupPosition],
        has_members: bool,
    ) -> None:  # fmt: skip
        """Add what a group would read again, or skip, of a source partition where it stands at ``offset``."""
        to = TopicPartition(self._topics[tp.topic].target_topic, tp.partition)
        cause, stands = "", 0
        if to not in there:
            cause = "no position on the target: auto.offset.reset decides"
        elif there[to].offset > self._ends[to] and has_members:
            cause = "beyond the target's end, and it has members there: nobody can set it"
        elif there[to].offset < self._starts[to]:
            cause = "below what the target still has: auto.offset.reset decides"
        else:
            try:
                stands = self._stands(tp, to, offset)
            except NoOffsetMap as e:
                cause = str(e)
        if cause:
            one.unplaced.append(f"{tp}: {cause}")
            return
        goes_on = min(there[to].offset, self._ends[to])
        one.exact &= abs(stands - goes_on) <= _COUNTED
        one.reread += self._records(to, goes_on, stands)
        one.skipped += self._records(to, stands, goes_on)

    def _stands(self, tp: TopicPartition, to: TopicPartition, offset: int) -> int:
        """Return where the group stands, as a place on the target; of what was not copied yet, the target's end."""
        if self._topics[tp.topic].mode != "identical":
            offset = self._to_target(tp, offset).offset
        return max(self._starts[to], min(offset, self._ends[to]))

    def _records(self, to: TopicPartition, start: int, end: int) -> int:
        if not 0 < end - start <= _COUNTED:
            return max(0, end - start)
        return count_data(self._target.wire, to, start, end, committed=True)
