"""Move the consumer groups at the only moment when that is exact: the source is fenced, the target holds everything.

Each is at rest on the source by then (:mod:`.groups_at_rest`), and is committed while others are waited for: consumers
commit every five seconds, and the positions of hundreds of groups take two.

A group's earlier positions on the target are on record before its first commit. Backing out restores them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.attempt import Attempt, Settled
from airflow_mirror.cutover.groups_at_rest import EMPTY, Positions, come_to_rest, moving, positions_of, selected
from airflow_mirror.cutover.quiet import still_quiet
from airflow_mirror.cutover.report import TARGET, GroupRecord, place_of
from airflow_mirror.cutover.request import Offsets
from airflow_mirror.errors import (
    GroupActive,
    GroupAhead,
    GroupsStillMoving,
    InputError,
    MirrorError,
    NotKept,
)
from airflow_mirror.kafka.model import NO_MEMBERS, GroupPosition
from airflow_mirror.sync import groups as sync
from airflow_mirror.sync.group_translation import GroupMove, Translation, translate_positions
from airflow_mirror.sync.mm2_topics.formats import Checkpoint
from airflow_mirror.sync.mm2_topics.last import has_checkpoints, leave
from airflow_mirror.sync.write_permit import WritePermit
from airflow_mirror.wording import count

_ROUNDS = 3


def commit_groups(attempt: Attempt) -> dict[str, Any]:
    """Commit groups on the target as they come to rest, read them back, check the source once more when all have.

    The tail's driver lets groups follow until its lease has run out. So what differs may be its work, and is looked at
    again before it counts as somebody else's.

    :raises GroupsStillMoving: a group was not at rest in time.
    :raises MissingRight: the source does not list a group any more that it may still have.
    :raises GroupActive: a group has members on the target.
    :raises GroupAhead: a group is further on the target than on the source.
    :raises NotKept: somebody sets positions on the target again and again.
    """
    # A round has no memory but the report: dies in any of them, and what goes back is what the target had before the
    # first.
    for turn in range(1, _ROUNDS + 1):
        settled: dict[str, Settled] = {}
        try:
            for rested in come_to_rest(attempt):
                settled |= rested
                # Others move yet. Should they not come to rest, these get back what they had, as after any later failure;
                # nobody reads on a target that is not open.
                _commit(attempt, rested)
        except NotKept:
            # Somebody has set another position between our commit and its reading back: the tail's last pass, or a
            # person. What goes back should this be undone is still what was there before the first round.
            if turn == _ROUNDS:
                raise
        except GroupAhead:
            # The tail knew a newer position than we had read, if the source's has moved since. If none has, somebody
            # else is ahead; while others move nobody can tell, and a further round finds the same.
            if turn == _ROUNDS or _is_settled(attempt, settled):
                raise
        else:
            # Looked at behind the commit: a consumer may have committed on the source since its positions were read,
            # and would read those records again on the target.
            if _is_settled(attempt, settled):
                still_quiet(attempt)
                return {group: s.why for group, s in settled.items()}
        attempt.log.info("commit_groups: a group moved meanwhile; reading all positions again, and committing them")
    raise GroupsStillMoving(attempt.limits.wait_groups_s, dict.fromkeys(settled, "commits"))


def _is_settled(attempt: Attempt, settled: Mapping[str, Settled]) -> bool:
    """Return whether nobody has moved, joined a group without members, or begun to read, since groups came to rest."""
    groups = attempt.source.describe_groups(settled)
    # State before positions, as in `come_to_rest`: who joins between the two and commits shows by the position.
    if any(one.why == EMPTY and groups[group].has_members for group, one in settled.items()):
        return False
    return moving(attempt) == {group: one.positions for group, one in settled.items()}


def require_free_groups(attempt: Attempt) -> None:
    """Check the groups that will move before the fence is raised, when that costs nothing.

    Only groups with a position in these topics are checked. Groups that have one and are not selected are logged: their
    consumers would find a fenced source and no position on the target. So are those that are left out by name.

    :raises InputError: a group that is to be left out is none of those that would move.
    :raises GroupActive: a group has members on the target, so its offsets can't be set.
    :raises GroupAhead: groups are already further on the target, unless they may be rewound.
    """
    topics = [t.source_topic for t in attempt.plan.topics]
    attempt.report.left_out = _left_out(attempt)
    for group, what in attempt.report.left_out.items():
        attempt.log.warning("group %s is left out: %s", group, what)
    # The target first: read second, a group that reads on, and that a tail lets follow, would seem ahead.
    there = {} if attempt.request.allow_rewind else attempt.target.groups_offsets(selected(attempt))
    positions = moving(attempt)
    # A broker would refuse each commit beneath members, behind the fence: said now, it costs no second of it.
    for group, state in attempt.target.group_states(sorted(positions)).items():
        if state not in NO_MEMBERS:
            raise GroupActive(group, attempt.target.role, state)
    if not attempt.request.allow_rewind:
        # A position that can't be translated yet is beyond the copy; the drain will copy up to it.
        moves = [move for move in translate(attempt, positions, strict=False).moves if move.group in there]
        _require_none_ahead(attempt, sync.decide(moves, there, allow_rewind=False))
    attempt.report.left_behind = sync.groups_left_behind(attempt.source, attempt.mirror, topics)
    if attempt.report.left_behind:
        attempt.log.warning(
            "groups with positions in these topics that don't move: %s", ", ".join(attempt.report.left_behind)
        )


def _left_out(attempt: Attempt) -> dict[str, str]:
    """Return what it means for each group that is left out. The source is asked nothing of them: one may hang there."""
    selected_groups = sync.selected(attempt.source, attempt.mirror).keys()
    # One that the source hides from us is no slip: nobody could leave it out by name otherwise.
    known = {*filter(attempt.mirror.selects_group, attempt.plan.groups), *attempt.mirror.named_groups}
    if unknown := sorted(set(attempt.request.leave_out_groups) - selected_groups - known):
        raise InputError(
            f"leave_out_groups names {', '.join(map(repr, unknown))}",
            "the source has no such group that would move",
            "Correct the name, or take it out.",
        )
    if unknown := sorted(set(attempt.request.accept_still_groups) - selected_groups):
        attempt.log.warning("accept_still_groups names no group that would move: %s", ", ".join(map(repr, unknown)))
    found, errors = attempt.target.groups_offsets_apart(sorted(attempt.request.leave_out_groups))
    targets = set(attempt.routes.values())
    starts = {group: _starts_at(len(targets & positions.keys())) for group, positions in found.items()}
    starts |= {group: f"its positions on the target can't be read ({error})" for group, error in errors.items()}
    stays = "Its positions are not moved, and nothing makes sure that it has ended on the source"
    return {group: f"{starts[group]}. {stays}" for group in sorted(starts)}


def _starts_at(partitions: int) -> str:
    reset = "by auto.offset.reset: 'latest' skips what it has not read, 'earliest' reads everything again"
    if not partitions:
        return f"it has no position on the target, so it begins there {reset}"
    there = f"in {count(partitions, 'partition')} it goes on where the tail has set it last"
    return f"{there}, and reads what came since again; in others it begins {reset}"


def _require_none_ahead(attempt: Attempt, moves: Iterable[GroupMove]) -> None:
    if not attempt.request.allow_rewind and (found := sync.ahead(moves)):
        raise GroupAhead(found)


def translate(
    attempt: Attempt, positions: Mapping[str, Mapping[TopicPartition, GroupPosition]], *, strict: bool
) -> Translation:
    """Return where the groups continue on the target, as its log is now. Errors as :func:`translate_positions`."""
    routes = attempt.routes
    return translate_positions(
        positions,
        attempt.plan.topics,
        attempt.source_log.log_starts(routes),
        attempt.target_log.log_starts(routes.values()),
        attempt.target_log.last_stable(routes.values()),
        attempt.clusters.translate_offset,
        strict,
    )


def keep_groups(attempt: Attempt) -> int:
    """Set positions again that are no longer as this cutover set them; return how many.

    A tail lets groups follow. One that had read positions before the lease was taken may set them until its wait is over
    (:mod:`airflow_mirror.sync.write_permit`). Groups with members are theirs: nobody else can set anything there.
    """
    # By the report, which this very attempt has written before its commits.
    set_here = {record.group: record.on_target for record in attempt.report.groups}
    positions = attempt.target.groups_offsets(list(set_here), set_here) if set_here else {}
    on_target = {group: {tp: position.offset for tp, position in its.items()} for group, its in positions.items()}
    changed = {group: dict(sorted(its.items() - on_target[group].items())) for group, its in set_here.items()}
    changed = {group: its for group, its in changed.items() if its}
    if not changed:
        return 0
    states, metadata = attempt.target.group_states(list(changed)), _metadata(attempt, changed)
    # A group that got members meanwhile reads already; a broker would refuse, and its position is its own.
    free = [group for group in changed if states[group] in NO_MEMBERS]
    for group in free:
        attempt.log.warning(
            "group %s: setting %d position(s) again that were changed meanwhile", group, len(changed[group])
        )
        again = {to: GroupPosition(offset, metadata[group].get(to, "")) for to, offset in changed[group].items()}
        # Behind the lease's wait, so this is the last one who sets it. Asked again before the bytes, whose lease and
        # fence it is.
        attempt.target.commit_group_offsets(group, again, attempt.may_set)
    return sum(len(changed[group]) for group in free)


def leave_checkpoints(attempt: Attempt) -> dict[str, Any]:
    """Leave the last checkpoints where the groups were set, if the mirror has any; return how many, or why not.

    When nobody else writes any more. The groups themselves are right without them, so that a topic that can't be written
    does not undo a cutover.
    """
    if not has_checkpoints(attempt.mirror, attempt.ledger.values()):
        return {}
    try:
        # Should the cutover back out behind this, they stay: places that both logs have, and the next tail writes its own
        # over them.
        return {"checkpoints": _leave_checkpoints(attempt)}
    except MirrorError as e:
        attempt.log.warning("the last checkpoints are not written; Java clients that go by them read again: %s", e)
        return {"checkpoints": f"not written: {e}"}


def _leave_checkpoints(attempt: Attempt) -> int:
    metadata = _metadata(attempt, [record.group for record in attempt.report.groups])
    places = [
        Checkpoint(
            record.group, to := place_of(row, TARGET), row["source_offset"], row["target_offset"],
            metadata[record.group].get(to, ""),
        )
        for record in attempt.report.groups
        for row in record.positions
    ]  # fmt: skip
    lease = attempt.lease
    assert lease is not None
    right = WritePermit(lambda: lease)
    # The lease itself is the permit: a tail that was started since writes its own, and must not find ours behind them.
    with right.granted(attempt.target.wire):
        return leave(attempt.target, attempt.mirror, places, int(time.time() * 1000), right.check)


def _metadata(attempt: Attempt, groups: Collection[str]) -> dict[str, dict[TopicPartition, str]]:
    """Return what groups have committed beside their offsets on the source, by target partition."""
    routes, here = attempt.routes, positions_of(attempt, groups)
    return {group: {routes[tp]: position.metadata for tp, position in its.items()} for group, its in here.items()}


def _commit(attempt: Attempt, settled: Mapping[str, Settled]) -> None:
    ends = attempt.ends
    translated = translate(attempt, {group: s.positions for group, s in settled.items()}, strict=True)
    # Noted before the first commit: it is what the group gets back. A tail may set a position behind this, until its
    # wait is over: `keep_groups` finds that; backed out before, its position stays, which is as good as the one before.
    there = attempt.target.groups_offsets(settled, _targets(translated.moves, settled))
    moves = sync.decide(translated.moves, there, attempt.request.allow_rewind)
    # Before the report names any position of these: none was set, and nothing of them would have to be undone.
    _require_none_ahead(attempt, moves)
    # Of those that were committed before, in this round or an earlier one.
    records = {record.group: record for record in attempt.report.groups}
    again = [records[group] for group in settled if group in records]
    # In a second round the first snapshots are kept, because by then the target's positions are ours.
    before = {group: _snapshot(positions) for group, positions in there.items()} | {r.group: r.before for r in again}
    # Until this round's are committed, those of the rounds before are there, and a restore must know them as ours.
    set_already = {
        (record.group, place_of(row)): [*row["earlier"], row["target_offset"]]
        for record in again
        for row in record.positions
    }
    rows: dict[str, list[dict[str, Any]]] = {group: [] for group in settled}
    for move in moves:
        rows[move.group].append({**_row(move, ends), "earlier": set_already.get((move.group, move.source), [])})
    # In memory: an exception between this and the saving leaves the target's report as it was. A group that was committed
    # stays in it whatever becomes of it on the source: it is what a restore goes by.
    records |= {
        group: GroupRecord(group=group, settled=s.why, source_state=s.state, positions=rows[group], before=before[group])
        for group, s in settled.items()
    }
    attempt.report.groups = [record for _, record in sorted(records.items())]
    # Dies before it: no position was set. Dies behind it: positions are set, or some are, or none; each of these is
    # told by what the group has, and undone by that.
    attempt.save()  # intent on record before effect
    # Frozen before a request: the permit asks decision and lease again, and refuses if another attempt has gone up.
    # What is left is one request that was permitted and is sent late (ADR 37).
    sync.set_positions(attempt.target, moves, attempt.may_set)
    for group in settled:
        # For people, and written with the next save: what goes back goes by what the group has, not by this.
        records[group].committed = True


def _row(move: GroupMove, ends: Offsets) -> dict[str, Any]:
    return {
        "topic": move.source.topic,
        "partition": move.source.partition,
        "source_offset": move.source_offset,
        "target_topic": move.target.topic,
        "target_offset": move.target_offset,
        "lag": max(0, ends[move.source] - move.source_offset),
        "found": move.found,
        "note": move.note,
        "action": move.action,
    }


def _targets(moves: Iterable[GroupMove], groups: Iterable[str]) -> dict[str, list[TopicPartition]]:
    """Return the partitions in which each group's position is set."""
    found: dict[str, list[TopicPartition]] = {group: [] for group in groups}
    for move in moves:
        found[move.group].append(move.target)
    return found


def _snapshot(positions: Positions) -> list[dict[str, Any]]:
    return [
        {"topic": tp.topic, "partition": tp.partition, "offset": p.offset, "metadata": p.metadata}
        for tp, p in sorted(positions.items())
    ]
