"""Which positions of a group are written to the target, held back or left alone. No socket, no clock.

A position on the target is written only while nobody else has set it: it is missing there, or it is exactly one of those
that the mirror's note names. It follows in both directions then. Kafka accepts any offset, and consumers beyond the log
jump by their auto.offset.reset; so a position never leaves the target's log:

- Beyond the last stable offset it is *held* there. Everything before that offset was read, so nothing is skipped, and
  nothing is read twice. It moves on as records arrive.
- Below the log start it is written only if the source has no record there either.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import Translated, Where
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.sync.following.notes import Mark, Marks, Note, mark

# Brokers forget positions after offsets.retention.minutes (a week) without a commit, each on its own.
REFRESH_MS = 24 * 3600 * 1000

NOT_COPIED = "the copy of the partition has not begun"
NEWER_NOTE = "a newer version of airflow-mirror wrote the note about it: install that version"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A group in one partition, as both clusters show it.

    :param position: on the source.
    :param found: its offset on the target, not yet compared with the target's log; None: it is not known.
    :param rest: the same for the first record that the source still has at or after it: it differs from ``found`` if the
        source has deleted records that the group has not read.
    :param there: the group's position on the target.
    :param start: the target's log start offset.
    :param end: the target's last stable offset.
    :param cause: why ``found`` is not known.
    """

    position: GroupPosition
    found: Translated | None
    rest: Translated | None
    there: GroupPosition | None
    start: int = 0
    end: int = 0
    cause: str = NOT_COPIED


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is done about one position.

    :param goal: the position that is to stand on the target; None if it is left alone.
    :param writes: whether it has to be committed.
    :param held: it is the target's end, not yet the source's position.
    :param left: why it is left alone.
    :param ours: what counts as the mirror's before a commit, and if that is refused.
    """

    goal: GroupPosition | None = None
    writes: bool = False
    held: bool = False
    left: str = ""
    ours: Marks = ()


@dataclass(frozen=True, kw_only=True)
class GroupDecision:
    """What is done about one group.

    :param decisions: by target partition.
    :param commits: positions to commit; none for a group with members on the target.
    :param noted: the note that has to stand before that.
    :param refresh: all of its positions are committed again, before the brokers forget them.
    :param withheld: why positions were refused that are not tried now.
    """

    decisions: Mapping[TopicPartition, Decision]
    commits: Mapping[TopicPartition, GroupPosition]
    noted: Note
    refresh: bool
    withheld: frozenset[str] = frozenset()


def decide_group(
    standings: Mapping[TopicPartition, Standing], note: Note | None, *, active: bool, now_ms: int
) -> GroupDecision:
    """Return what is done about a group.

    :param standings: by target partition.
    :param note: what was written before; None for a group without one.
    :param active: it has members on the target: nothing may be set.
    """
    old = note or Note(now_ms)
    # Not "older than a day": behind a clock that was set back, the next time would be far away.
    refresh = not active and not 0 <= now_ms - old.at_ms < REFRESH_MS
    decisions = {tp: decide(one, old.ours.get(tp, ()), again=refresh) for tp, one in sorted(standings.items())}
    commits = {tp: d.goal for tp, d in decisions.items() if d.goal is not None and d.writes and not active}
    ours = {**old.ours, **{tp: d.ours for tp, d in decisions.items()}}
    noted = ours | {tp: _both(ours[tp], mark(goal)) for tp, goal in commits.items()}
    return GroupDecision(decisions=decisions, commits=commits, noted=Note(old.at_ms, _some(noted)), refresh=refresh)


def withhold(decision: GroupDecision, refused: Mapping[TopicPartition, str]) -> GroupDecision:
    """Return it without positions that were refused: they are neither noted nor committed.

    :param refused: why, by partition.
    """
    if not refused:
        return decision
    commits = {tp: goal for tp, goal in decision.commits.items() if tp not in refused}
    ours = _some({**decision.noted.ours, **{tp: decision.decisions[tp].ours for tp in refused}})
    noted, withheld = replace(decision.noted, ours=ours), frozenset(refused.values())
    return replace(decision, commits=commits, noted=noted, withheld=withheld)


def settle(decision: GroupDecision, done: Collection[TopicPartition], refused: Collection[TopicPartition],
           now_ms: int, unsent: Collection[TopicPartition] = ()) -> Note:  # fmt: skip
    """Return the note after the commit.

    :param done: what the brokers acknowledged.
    :param refused: what they refused, or never got, so that it never takes effect. Of all others nobody knows: they stay
        noted twice.
    :param unsent: those that they never got.
    """
    ours = dict(decision.noted.ours)
    ours |= {tp: (mark(decision.commits[tp]),) for tp in done}
    ours |= {tp: decision.decisions[tp].ours for tp in refused}
    # One that is always refused (no READ on its topic, say) must not have the others written again in every pass. It
    # waits for the next day, too; if all are refused, nothing was written again.
    everything = decision.refresh and bool(done) and not unsent and {*done, *refused} >= decision.commits.keys()
    return Note(now_ms if everything else decision.noted.at_ms, _some(ours))


def decide(one: Standing, ours: Marks, *, again: bool = False) -> Decision:
    """Return what is done about one position.

    :param ours: positions that are the mirror's.
    :param again: write it although it stands there already.
    """
    there = one.there and mark(one.there)
    if there in ours:
        ours = (there,)  # what was intended was done, or was not: now it is known
    if there is not None and there not in ours:
        return Decision(left=_foreign(one, ours), ours=ours)
    if there is None:
        ours = ()  # the brokers have forgotten it, or somebody deleted it
    goal, why = goal_of(one)
    if goal is None:
        return Decision(left=why, ours=ours)
    return Decision(goal=goal, writes=again or goal != one.there, held=is_beyond(one), ours=ours)


def goal_of(one: Standing) -> tuple[GroupPosition | None, str]:
    """Return where the group is to stand on the target, or why it can't be told."""
    if one.found is None:
        return None, one.cause
    offset, where = one.found
    lacks = where is Where.BEFORE or (offset < one.start and where not in (Where.END, Where.BEYOND))
    # Only what the source has deleted as well may be passed over.
    if lacks and (one.rest is None or one.rest.where is Where.BEFORE or one.rest.offset < one.start):
        return None, f"at {one.position.offset} on the source, and the target lacks records from there on"
    offset = max(offset, one.start)
    return replace(one.position, offset=min(offset, one.end)), ""


def is_beyond(one: Standing) -> bool:
    """Return whether the target does not hold everything before a position whose place is known."""
    assert one.found is not None
    return one.found.where is Where.BEYOND or one.found.offset > one.end


def _foreign(one: Standing, ours: Marks) -> str:
    assert one.there is not None
    wrote = f"the mirror wrote {' or '.join(str(offset) for offset, _ in ours)}" if ours else "the mirror wrote none"
    return f"the target has {one.there.offset}, {wrote}"


def _both(ours: Marks, goal: Mark) -> Marks:
    return ours if goal in ours else (*ours, goal)


def _some(ours: Mapping[TopicPartition, Marks]) -> dict[TopicPartition, Marks]:
    return {tp: marks for tp, marks in ours.items() if marks}
