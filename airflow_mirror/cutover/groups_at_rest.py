"""Wait until each consumer group is at rest on the source, and say why it is: only then its positions are final.

A position that still moves can't be committed: records that the consumer reads on the source after that, it would read
again on the target. The report says why a group is at rest:

- ``empty``: it has no members, and nothing left to read, or has stood still: an application that assigns partitions
  itself commits without ever being a member.
- ``at the end``: every position is at the end. There is nothing left to read.
- ``stood still``: it has members and lag, but no position has moved for longer than consumers take between two commits.
  A consumer that commits less often may have read further than it committed. So somebody has to say yes to that, by the
  group's name.

Kafka Streams and Connect commit so seldom that only ``empty`` counts for their groups.

Only reads: what is done with a group at rest is its caller's (:mod:`.groups`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.attempt import Attempt, Settled
from airflow_mirror.cutover.quiet import still_quiet
from airflow_mirror.cutover.request import Offsets
from airflow_mirror.errors import GroupsStillMoving, first_of
from airflow_mirror.kafka.model import GroupInfo, GroupPosition
from airflow_mirror.plan.inventory import hidden_groups
from airflow_mirror.sync import groups as sync
from airflow_mirror.verify.partition import count_data
from airflow_mirror.wording import count, some

EMPTY, AT_THE_END, STOOD_STILL = "empty", "at the end", "stood still"
# Those that come to rest one by one are handed on together: the report is written before each commit.
_TOGETHER_S = 1.0
# A gap of markers at the end is short; a longer gap counts as lag without reading its records.
_LOOK_AT_MOST = 10_000

Positions = dict[TopicPartition, GroupPosition]


def read_ahead(attempt: Attempt) -> None:
    """Read the groups' positions while something else is waited for: that they stand still counts from now on."""
    # Only a beginning: what stands still is looked at again with the clock of each group, when it is waited for.
    for group, positions in moving(attempt).items():
        attempt.seen_groups[group] = positions, attempt.now()


def come_to_rest(attempt: Attempt) -> Iterator[dict[str, Settled]]:
    """Yield the selected groups with a position in these topics as they come to rest on the source, until all have.

    Many at once, so that what is done with them goes on while the others are waited for.

    :raises GroupsStillMoving: after ``wait_groups_s``.
    :raises MissingRight: the source does not list a group any more that it may still have.
    """
    # Asked anew, not taken from the preview: a group that was created since moves as well.
    pending = dict.fromkeys(selected(attempt), "")
    # Kafka leaves groups out without an error: opened like that, their consumers begin on the target anywhere.
    if hidden := hidden_groups(attempt.source, not_there(attempt, pending)):
        raise first_of(hidden)
    seen = attempt.seen_groups  # the time for which positions have not moved counts across steps
    rested: dict[str, Settled] = {}
    started, unread, ends, handed_on_at = attempt.now(), unread_in(attempt), attempt.ends, -math.inf
    # Never beyond what is left of the fence: a group that does not rest is a reason to back out, not to be overtaken by
    # a guard.
    timeout_s = attempt.at_most(attempt.limits.wait_groups_s)
    while True:
        # State before positions: a group that had no members can't have moved by the time its positions are read.
        groups = attempt.source.describe_groups(pending)
        asked = attempt.now()
        for group, positions in positions_of(attempt, pending).items():
            if not positions:
                del pending[group]
                continue
            # Any change begins the time anew, also one that went back.
            if group not in seen or seen[group][0] != positions:
                seen[group] = positions, attempt.now()
            since, has_members = seen[group][1], groups[group].has_members
            before = attempt.seen_empty.get(group)
            if before is not None and not has_members and before[0] == positions:
                since = before[1]  # nobody was in it, and nobody is: it has stood still since then
            # From the end of the first reading to the start of this one: reading many groups takes seconds.
            still_s, quiet_s = asked - since, attempt.limits.group_quiet_s
            accepted = group in attempt.request.accept_still_groups or not has_members
            accepted_s = quiet_s if accepted else math.inf
            why = at_rest(groups[group], positions, ends, still_s, accepted_s, unread)
            if why is None:
                pending[group] = _moves_because(groups[group], lag(positions, ends), still_s >= quiet_s)
            else:
                # Final for now. What moves behind this is found by `commit_groups`, behind its commit.
                rested[group] = Settled(why, groups[group].state, positions)
                del pending[group]
        if rested and (not pending or attempt.now() - handed_on_at >= _TOGETHER_S):
            yield rested
            rested, handed_on_at = {}, attempt.now()
        if not pending:
            return
        # A producer that got through keeps groups moving: it is what is wrong then, and not they.
        still_quiet(attempt)
        if attempt.now() - started >= timeout_s:
            raise GroupsStillMoving(timeout_s, pending)
        attempt.waits_for = f"{count(len(pending), 'group')} to come to rest: {some(pending)}"
        attempt.pause()


def _moves_because(group: GroupInfo, behind: int, still: bool) -> str:
    if group.application:
        return f"{group.application}, has members"
    return f"lag {behind}, stands still" if still else f"lag {behind}"


def at_rest(
    group: GroupInfo,
    positions: Positions,
    ends: Offsets,
    still_s: float,
    group_quiet_s: float,
    unread: Callable[[TopicPartition, int, int], bool],
) -> str | None:
    """Return why a group's positions are final, or None while they may still move.

    :param ends: fenced ends of the source.
    :param still_s: seconds for which no position has moved. :param group_quiet_s: that suffice with lag.
    :param unread: returns whether [start, end) of a partition has a record that a consumer would receive.
    """
    if not group.has_members:
        return EMPTY if still_s >= group_quiet_s or not lag(positions, ends) else None
    if group.application:
        return None
    consumed = {tp.topic for tp in positions}
    # A partition without a position counts as unread from its start: its first commit may be in flight.
    rest = {tp: positions[tp].offset if tp in positions else 0 for tp in ends if tp.topic in consumed}
    # Against the fenced ends, which no producer can move any more: what is read up to there stays read.
    if not any(offset < ends[tp] and unread(tp, offset, ends[tp]) for tp, offset in rest.items()):
        return AT_THE_END
    return STOOD_STILL if still_s >= group_quiet_s else None


def selected(attempt: Attempt) -> list[str]:
    """Return the groups on the source that move, if they have a position in these topics."""
    return [
        group for group in sync.selected(attempt.source, attempt.mirror) if group not in attempt.request.leave_out_groups
    ]


def not_there(attempt: Attempt, found: Collection[str]) -> list[str]:
    """Return the groups that would move, by the plan and by what was seen since, and that are none of ``found``."""
    known = {*attempt.plan.groups, *attempt.seen_groups}.difference(found, attempt.request.leave_out_groups)
    return sorted(group for group in known if attempt.mirror.selects_group(group))


def moving(attempt: Attempt) -> dict[str, Positions]:
    """Return the positions of the groups that move, as they are now."""
    return {group: found for group, found in positions_of(attempt, selected(attempt)).items() if found}


def positions_of(attempt: Attempt, groups: Collection[str]) -> dict[str, Positions]:
    """Return the groups' committed positions in the plan's topics on the source."""
    routes, found = attempt.routes, attempt.source.groups_offsets(groups)
    return {group: {tp: p for tp, p in of_group.items() if tp in routes} for group, of_group in found.items()}


def lag(positions: Mapping[TopicPartition, GroupPosition], ends: Offsets) -> int:
    """Return a group's lag, summed over its partitions."""
    return sum(max(0, ends[tp] - p.offset) for tp, p in positions.items())


def unread_in(attempt: Attempt) -> Callable[[TopicPartition, int, int], bool]:
    """Return the question whether [start, end) of a partition has a record that a consumer would receive."""
    starts = attempt.source_log.log_starts(attempt.routes)

    @functools.cache  # many groups stop at the same offset, and the log below an end does not change
    def unread(tp: TopicPartition, position: int, end: int) -> bool:
        start = max(position, starts[tp])  # nothing below it can be read
        if end - start > _LOOK_AT_MOST:
            return True
        # Consumers of a transactional topic often stop before the last marker: there is no record to read.
        return count_data(attempt.source_log, tp, start, end, committed=True) > 0

    return unread
