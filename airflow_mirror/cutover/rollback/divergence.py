"""What has happened on either side since a cutover opened its target. Counted before a rollback; changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NO_MEMBERS, GroupPosition
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.groups import read_positions
from airflow_mirror.verify.partition import count_data

_READ_AT_MOST = 1_000_000  # offsets whose records are counted by reading them; beyond it offsets have to do
_LISTED = 50

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, kw_only=True)
class Written:
    """One partition since the opening.

    :param cut: its end then, on both sides. :param old_end: its end by now on the old source; ``new_end``: on the target.
    :param records: data records on the target from the cut on, without what an open transaction hides or retention has
        taken; None: too many to count.
    """

    tp: TopicPartition
    cut: int
    old_end: int
    new_end: int
    records: int | None

    def __str__(self) -> str:
        """One readable line."""
        much = "" if self.records is None else f", {self.records:,} records"
        back = max(0, min(self.old_end, self.new_end) - self.cut)
        lost = f"; the old source is AHEAD by {self.old_end - self.new_end:,}" if self.old_end > self.new_end else ""
        return f"{self.tp}: {self.new_end - self.cut:,} offsets since {self.cut:,}{much}; {back:,} are copied back{lost}"


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Both sides since the opening.

    :param written: partitions that got something. :param problems: what a person has to decide about first.
    """

    written: tuple[Written, ...]
    problems: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return what there is to say, for people."""
        offsets = sum(one.new_end - one.cut for one in self.written)
        records = [one.records for one in self.written if one.records is not None]
        much = f", {sum(records):,} records" if len(records) == len(self.written) else ""
        head = f"{len(self.written)} partitions were written on the target since it was opened: {offsets:,} offsets{much}"
        return [head, *(f"refused: {line}" for line in self.problems), *map(str, self.written[:_LISTED])]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values in a few kilobytes."""
        return {
            "partitions": len(self.written),
            "offsets": sum(one.new_end - one.cut for one in self.written),
            "to_copy": sum(max(0, one.new_end - one.old_end) for one in self.written),
            "problems": list(self.problems[:_LISTED]),
            "text": self.lines()[: 2 * _LISTED],
        }


def divergence(
    report: CutoverReport, plan: Plan, source: ClusterAdmin, target: ClusterAdmin, accepted: Collection[str] = ()
) -> Divergence:
    """Count what was written since a cutover, and look at its groups.

    :param report: of that cutover. :param plan: of the reverse mirror. :param source: the old source.
    :param target: what applications write to. :param accepted: groups whose positions on the target count in any case.
    """
    topics = {t.source_topic for t in plan.topics}
    cut = {tp: end for tp, end in report.cut.items() if tp.topic in topics}
    for _ in range(2):  # once more before anybody is told that something is lost
        # The old source first: read second, it would be ahead while applications write and the reverse tail copies.
        old, new = source.wire.log_ends(cut), target.wire.log_ends(cut)
        if all(old[tp] <= new[tp] for tp in cut):
            break
    moved = {tp: end for tp, end in cut.items() if new[tp] != end or old[tp] != end}
    readable = sum(new[tp] - end for tp, end in moved.items()) <= _READ_AT_MOST
    records = _records(target, moved, new) if readable else {}
    written = tuple(
        Written(tp=tp, cut=end, old_end=old[tp], new_end=new[tp], records=records.get(tp))
        for tp, end in sorted(moved.items())
    )
    ahead = [
        f"{one.tp} has {one.old_end - one.new_end} offsets on the old source that the target lacks"
        for one in written
        if one.old_end > one.new_end
    ]
    positions = read_positions(target, plan.mirror, [t.source_topic for t in plan.topics])
    groups = {group: found for group, found in positions.items() if found}
    # States behind positions: a group whose last member ends in between may have committed behind this reading. The
    # rollback reads positions again, behind its own fence.
    problems = undecided(
        report, target.group_states(sorted(groups)), source.groups_offsets(sorted(groups)), groups, accepted
    )
    return Divergence(written=written, problems=(*ahead, *problems))


def _records(target: ClusterAdmin, cut: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    starts, stable = target.wire.log_starts(cut), target.wire.last_stable(cut)
    return {
        tp: count_data(target.wire, tp, max(end, starts[tp]), min(ends[tp], stable[tp]), committed=True)
        for tp, end in cut.items()
    }


def undecided(
    report: CutoverReport,
    states: Mapping[str, str],
    on_old: Mapping[str, Mapping[TopicPartition, GroupPosition]],
    on_new: Mapping[str, Mapping[TopicPartition, GroupPosition]],
    accepted: Collection[str] = (),
) -> list[str]:
    """Return the groups of which nobody can tell which positions count, as readable lines.

    :param states: of the groups on the target. :param on_old: their positions on the old source; ``on_new``: on the
        target. A group that the cutover did not move has had none on both sides.
    """
    lines, moved = [], {one.group: one for one in report.groups}
    for group, now in sorted(on_new.items()):
        if group in accepted:
            continue
        # Its consumers go on reading behind this look, so no position of it counts: refused until they have ended.
        if states[group] not in NO_MEMBERS:
            lines.append(f"group {group!r} has members on the target ({states[group]})")
        then_old, then_new = (moved[group].on_source, moved[group].on_target) if group in moved else ({}, {})
        topics = {tp.topic for tp in now}
        old = {tp: at.offset for tp, at in on_old.get(group, {}).items() if tp.topic in topics}
        read_there = sorted(tp for tp, offset in old.items() if then_old.get(tp) != offset)
        # It has read on both sides since. Taken from either, it reads records twice or skips them; a person says which
        # counts.
        if read_there and any(then_new.get(tp) != at.offset for tp, at in now.items()):
            lines.append(f"group {group!r} has committed on both sides since: {read_there[0]} on the old source as well")
    return lines


def ends_moved(report: CutoverReport, plan: Plan, source: ClusterAdmin, target: ClusterAdmin) -> list[str]:
    """Return where the logs are not as the cutover left them: the source's end there, the target's there or beyond.

    Or where the target has deleted what follows the source's end: the way back copies without a gap, or not at all.
    """
    topics = {t.source_topic for t in plan.topics}
    cut = {tp: end for tp, end in report.cut.items() if tp.topic in topics}
    there = source.topics([t.source_topic for t in plan.topics])
    lines = [
        f"topic {t.source_topic!r} of the old source is gone, or another one"
        for t in plan.topics
        if t.source_topic not in there or there[t.source_topic].topic_id != t.source_topic_id
    ]
    if lines:
        return lines
    old, new, starts = source.wire.log_ends(cut), target.wire.log_ends(cut), target.wire.log_starts(cut)
    return [
        *(f"{tp} ends at {old[tp]} on the old source, cut over at {end}" for tp, end in cut.items() if old[tp] != end),
        *(f"{tp} ends at {new[tp]} on the target, cut over at {end}" for tp, end in cut.items() if new[tp] < end),
        *(
            f"{tp} starts at {start} on the target, whose retention has deleted what follows the old source's end at "
            f"{old[tp]}: leave the topic out (exclude_topics)"
            for tp, start in starts.items()
            if 0 < old[tp] < start
        ),
    ]
