"""One pass: read both clusters, decide, note, commit, settle the notes of what was refused.

The clusters and the notes say everything that a pass needs; what was refused is remembered for a minute, to spare both
(:mod:`.refusals`). So a pass that dies anywhere is continued by the next one, in whatever process:

- before the notes stand, nothing was done;
- after that, what the target holds is one of the two positions that the note names;
- after the commit too, and the next pass finds which.

Between the reading of a position and its commit somebody else may set it: within a second, because what takes longer is
done before. Kafka has no conditional commit; but it refuses ours while the group has members, and tools that set
positions are used by people.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.delays import wall_ms
from airflow_mirror.kafka.model import NO_MEMBERS, GroupCommit
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.following.deciding import NEWER_NOTE, GroupDecision, Standing, decide_group, settle
from airflow_mirror.sync.following.notes import Note
from airflow_mirror.sync.following.reading import Reading, Seen, failures
from airflow_mirror.sync.following.refusals import Refusals
from airflow_mirror.sync.passes import Pass, PassReport, Sides, listed
from airflow_mirror.wording import count

_AT_ONCE = 200  # groups between two confirmations of the lease
_UNSEEN = (
    "the source shows none of the {count} that followed, such as {one}: unless they were deleted, DESCRIBE on groups is "
    "missing there, and Kafka does not say so"
)


@dataclass(kw_only=True)
class FollowReport(PassReport):
    """One pass over all groups. A group or position that was not written stands in one of the lists, with its cause.

    :param groups: groups that follow, with at least one position.
    :param positions: positions on the target that are the source's, or held.
    :param written: those of them that this pass set.
    :param held: positions that are held at the target's end.
    :param left_alone: positions that are not the mirror's, or have no place on the target.
    :param active: groups with members on the target.
    :param gone: groups that have followed, and that the source no longer has.
    :param unseen: that these are all of them.
    :param left_out: topics whose positions don't follow; that the source lists no group at all.
    """

    head, level = "{groups:group} kept level", "groups"
    groups: int = 0
    positions: int = 0
    written: int = 0
    held: list[str] = listed("positions held at the target's end")
    left_alone: list[str] = listed("left alone", "{count} position(s) left alone, as {line}")
    active: list[str] = listed("groups active on the target")
    gone: list[str] = listed("gone at the source")
    unseen: list[str] = listed(said="{line}")


class GroupFollower(Pass[FollowReport]):
    """Keeps a plan's groups on the target where they are on the source. Its state holds the notes."""

    report = FollowReport

    def __init__(self, sides: Sides) -> None:
        super().__init__(sides)
        self._refusals = Refusals()

    def make(self, plan: Plan, now_ms: int, report: FollowReport) -> None:
        """See :class:`.Pass`. ``now_ms`` is for notes and refusals alone."""
        reading = Reading(self._sides, plan)
        if topics := reading.topics(report):
            self._follow(reading, topics, now_ms, report)

    def known(self, note: Note | None, its: Mapping[TopicPartition, Standing], now_ms: int) -> Note | None:
        """Return what a group without members on the target goes by: its note, unless a subclass knows of more.

        :param its: its standings, by target partition.
        """
        return note

    def _follow(self, reading: Reading, topics: Mapping[str, TopicPlan], now_ms: int, report: FollowReport) -> None:
        read_ms = wall_ms()  # before: what a group commits while it is read is at least as old
        seen = reading.positions(report)
        here = seen.here
        topics = reading.still_same(topics, report)
        stored = dict(self._state.read())
        noted = {key.removeprefix(notes.prefix(self._mirror.name)): notes.load(value) for key, value in stored.items()}
        without = noted.keys() - here.keys() - seen.unread
        self._tell_gone(reading.plan, noted, without, seen, report)
        standings = reading.standings(topics, here)
        # Behind that, which may take a minute: a position that somebody sets meanwhile is his, and no commit of ours.
        states = {g.group_id: g.state for g in self._target.groups()}
        there, errors = self._target.groups_offsets_apart([*here, *without])
        report.failed += failures(errors)
        decided = {}
        for group, its in standings({group: its for group, its in there.items() if group in here}).items():
            if group in noted and noted[group] is None:
                report.left_alone.append(f"{group}: {NEWER_NOTE}")
                continue
            active = states.get(group, "Dead") not in NO_MEMBERS
            report.active += [group] * active
            note = noted.get(group) if active else self.known(noted.get(group), its, now_ms)
            decided[group] = decide_group(its, note, active=active, now_ms=now_ms)
        decided = self._refusals.spare(decided, now_ms)
        over = [group for group in without if noted[group] and there.get(group) == {}]  # gone on both sides
        with self._right.writing:
            self._write({group: d.noted for group, d in decided.items()} | dict.fromkeys(over), stored)
            commits = self._commit(decided, read_ms)
            self._refusals.note(decided, commits, now_ms)
            # What was done is settled by the next pass: a thousand groups move in each, and a note is a record.
            settled = {
                group: settle(decided[group], commit.done, commit.refused, now_ms, commit.unsent)
                for group, commit in commits.items()
                if commit.refused or decided[group].refresh
            }
            self._write(settled, stored)
        self._tell(decided, commits, report)

    def _tell_gone(
        self, plan: Plan, noted: Mapping[str, Note | None], without: Collection[str], seen: Seen, report: FollowReport
    ) -> None:  # fmt: skip
        """Tell which groups have followed and are gone.

        :param without: those with a note that have no position in the plan's topics.
        """
        # A note may be about topics that are another mirror's by now (`split`), with whose groups nothing is wrong.
        planned = {t.target_topic for t in plan.topics}
        ours = {g for g, note in noted.items() if note is None or any(tp.topic in planned for tp in note.ours)}
        report.gone += ours.intersection(without)
        if report.gone and not seen.here and not ours & seen.listed:
            report.unseen.append(_UNSEEN.format(count=count(len(report.gone), "group"), one=min(report.gone)))

    def _write(self, changed: Mapping[str, Note | None], stored: dict[str, bytes]) -> None:
        """Write notes that differ from what is stored; None removes one."""
        dumped = {
            notes.key(self._mirror.name, group): notes.dump(note) if note and note.ours else None
            for group, note in changed.items()
        }
        values = {key: value for key, value in dumped.items() if stored.get(key) != value}
        if values:
            self._right.confirm(self._target.wire)
            self._state.write(values, self._right.check)
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
                    self._sides.moved(read_ms, answered_ms)
            commits |= answers
        return commits

    def _tell(
        self, decided: Mapping[str, GroupDecision], commits: Mapping[str, GroupCommit], report: FollowReport
    ) -> None:
        for group, decision in decided.items():
            commit = commits.get(group)
            if commit is not None and commit.active:
                report.active.append(group)
            else:
                errors = {str(commit.error)} if commit is not None and commit.error is not None else set()
                report.failed += [f"{group}: {error}" for error in sorted(errors | decision.withheld)]
            report.left_alone += [f"{group} at {tp}: {d.left}" for tp, d in decision.decisions.items() if d.left]
            if group in report.active:
                continue
            done = commit.done if commit is not None else set()
            following = {
                tp: d for tp, d in decision.decisions.items() if d.goal is not None and (tp in done or not d.writes)
            }
            report.held += [
                f"{group} at {tp}: held at {d.goal.offset}" for tp, d in following.items() if d.held and d.goal
            ]
            report.groups += bool(following)
            report.positions += len(following)
            report.written += len(done)
