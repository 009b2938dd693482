"""What is done about a position: written, held or left alone; and that no crash makes a foreign position the mirror's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import Translated, Where
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.sync.following.deciding import (
    NOT_COPIED,
    REFRESH_MS,
    Decision,
    Standing,
    decide,
    decide_group,
    settle,
)
from airflow_mirror.sync.following.notes import Marks, Note, dump, load, mark

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW = 1_800_000_000_000


def standing(
    source: int,
    there: int | None = None,
    found: Translated | None | int = -1,
    rest: Translated | None | int = -1,
    start: int = 10,
    end: int = 100,
    metadata: str = "",
) -> Standing:
    at = Translated(source, Where.RECORD) if found == -1 else found
    return Standing(
        position=GroupPosition(source, metadata),
        found=at,
        rest=at if rest == -1 else rest,
        there=None if there is None else GroupPosition(there, metadata),
        start=start,
        end=end,
    )


def ours(*offsets: int) -> Marks:
    return tuple((offset, "") for offset in offsets)


def written(offset: int, held: bool = False, before: Marks = ()) -> Decision:
    return Decision(goal=GroupPosition(offset), writes=True, held=held, ours=before)


def test_position_that_is_new_on_the_target_is_written() -> None:
    assert decide(standing(50), ()) == written(50)
    assert decide(standing(50), ours(40)) == written(50)  # it was there, and the brokers have forgotten it


@pytest.mark.parametrize("source", [60, 40])
def test_own_position_follows_forwards_and_backwards(source: int) -> None:
    assert decide(standing(source, there=50), ours(50)) == written(source, before=ours(50))


def test_foreign_position_is_left_alone_and_both_are_named() -> None:
    decision = decide(standing(60, there=55), ours(50))
    assert decision == Decision(left="the target has 55, the mirror wrote 50", ours=ours(50))
    assert decide(standing(60, there=55), ours(50, 52)).left == "the target has 55, the mirror wrote 50 or 52"


def test_position_that_is_equal_by_chance_is_nobodys() -> None:
    """Two groups of one name that have both read everything stand at the same place."""
    equal = decide(standing(100, there=100), ())
    assert (equal.goal, equal.ours) == (None, ())
    assert decide(standing(20, there=100), equal.ours).left == "the target has 100, the mirror wrote none"


def test_what_was_intended_is_ours_after_a_crash_and_then_certain() -> None:
    for there in (50, 60):
        assert decide(standing(70, there=there), ours(50, 60)) == written(70, before=ours(there))


def test_own_position_that_is_set_back_by_somebody_is_followed_again() -> None:
    assert decide(standing(60, there=55), ours(50)).left
    assert decide(standing(60, there=50), ours(50)).writes


def test_metadata_belong_to_the_position() -> None:
    there = mark(GroupPosition(50, "state"))
    same = standing(50, there=50, metadata="state")
    assert decide(same, (there,)) == Decision(goal=GroupPosition(50, "state"), ours=(there,))
    assert decide(same, ours(50)).left
    assert decide(standing(50, metadata="new"), ()).goal == GroupPosition(50, "new")


def test_position_beyond_the_target_is_held_at_its_end_and_moves_on() -> None:
    assert decide(standing(150), ()) == written(100, held=True)
    assert decide(standing(150, there=100), ours(100)) == Decision(goal=GroupPosition(100), held=True, ours=ours(100))
    assert decide(standing(150, there=100, end=120), ours(100)) == written(120, held=True, before=ours(100))
    assert decide(standing(150, there=120, end=150), ours(120)) == written(150, before=ours(120))


def test_position_beyond_the_offset_map_is_held_behind_the_last_copied_record() -> None:
    beyond = Translated(70, Where.BEYOND)
    assert decide(standing(500, found=beyond), ()) == written(70, held=True)
    assert decide(standing(500, found=Translated(70, Where.END)), ()) == written(70)
    assert decide(standing(500, found=Translated(70, Where.END), start=80), ()) == written(80)  # markers alone are left


def test_position_that_the_target_never_had_is_left_alone() -> None:
    lacks = "at 5 on the source, and the target lacks records from there on"
    assert decide(standing(5), ()).left == lacks
    before = Translated(30, Where.BEFORE)
    assert decide(standing(5, found=before, rest=before), ()).left == lacks
    assert decide(standing(5, found=None), ()).left == NOT_COPIED


def test_position_that_expired_on_both_sides_goes_on_at_the_targets_start() -> None:
    assert decide(standing(5, rest=Translated(10, Where.RECORD)), ()) == written(10)
    assert decide(standing(5, rest=Translated(9, Where.RECORD)), ()).left  # the source still has a record, the target not
    expired = standing(5, found=Translated(30, Where.BEFORE), rest=Translated(30, Where.RECORD))
    assert decide(expired, ()) == written(30)


def test_group_with_members_gets_nothing_and_its_note_only_becomes_certain() -> None:
    note = Note(NOW, {P0: ours(50, 60), P1: ours(7)})
    decided = decide_group({P0: standing(70, there=50), P1: standing(20, there=9)}, note, active=True, now_ms=NOW)
    assert decided.commits == {} and decided.noted == Note(NOW, {P0: ours(50), P1: ours(7)})


def test_note_names_what_was_and_what_will_be_until_the_answer_is_there() -> None:
    note = Note(NOW, {P0: ours(50), P1: ours(30)})
    decided = decide_group({P0: standing(60, there=50), P1: standing(40, there=30)}, note, active=False, now_ms=NOW + 5)
    assert decided.commits == {P0: GroupPosition(60), P1: GroupPosition(40)}
    assert decided.noted == Note(NOW, {P0: ours(50, 60), P1: ours(30, 40)})
    assert settle(decided, [P0], [P1], NOW + 5) == Note(NOW, {P0: ours(60), P1: ours(30)})
    assert settle(decided, [], [], NOW + 5) == decided.noted


def test_note_keeps_partitions_that_have_no_position_on_the_source_now() -> None:
    note = Note(NOW, {P1: ours(7)})
    decided = decide_group({P0: standing(50)}, note, active=False, now_ms=NOW)
    assert settle(decided, [P0], [], NOW).ours == {P0: ours(50), P1: ours(7)}


def test_unchanged_positions_are_written_again_before_brokers_forget_them() -> None:
    note, still = Note(NOW, {P0: ours(50), P1: ours(30)}), {P0: standing(50, there=50), P1: standing(30, there=30)}
    assert not decide_group(still, note, active=False, now_ms=NOW + REFRESH_MS - 1).commits
    for now in (NOW + REFRESH_MS, NOW - 1):  # a clock that was set back puts nothing off
        due = decide_group(still, note, active=False, now_ms=now)
        assert set(due.commits) == {P0, P1} and due.noted == note
        assert settle(due, [P0, P1], [], now) == Note(now, note.ours)
        assert settle(due, [P0], [], now).at_ms == NOW  # again next time
        assert settle(due, [], [P0, P1], now).at_ms == NOW
        assert settle(due, [P0], [P1], now) == Note(now, note.ours), "one that is always refused is no reason to repeat"
        assert settle(due, [P0], [P1], now, unsent=[P1]) == note, "nobody has refused it"
    foreign = {P0: standing(50, there=51), P1: standing(30, there=30)}
    assert set(decide_group(foreign, note, active=False, now_ms=NOW + REFRESH_MS).commits) == {P1}


@given(st.dictionaries(
    st.builds(TopicPartition, st.text(min_size=1), st.integers(0, 9)),
    st.lists(st.tuples(st.integers(0, 2**63), st.sampled_from(["", "ab"])), min_size=1, max_size=2).map(tuple),
))  # fmt: skip
def test_note_survives_its_way_through_json(marks: Any) -> None:
    assert load(dump(Note(NOW, marks))) == Note(NOW, marks)


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"v":2,"at":1,"ours":{}}', b'{"v":1,"at":1,"ours":{"t":{"0":[[]]}}}']
)
def test_note_that_can_not_be_read_is_no_note(value: bytes) -> None:
    assert load(value) is None


# --- any course of events ---------------------------------------------------------------------------------------------


@dataclass
class Course:
    """One partition of one group on both clusters, the mirror that follows, and somebody else.

    The mirror's offsets are even here, the others' odd: so it is certain who set a position.
    """

    source: int = 0
    there: int | None = None
    start: int = 0
    end: int = 0
    members: bool = False
    note: Note | None = None
    lost: bool = False  # the state, after the mirror last wrote the position
    wrote: list[int] = field(default_factory=list)

    def follow(self, crash: str = "", answer: str = "done") -> None:
        one = standing(self.source, self.there, start=self.start, end=self.end)
        decided = decide_group({P0: one}, self.note, active=self.members, now_ms=NOW)
        if crash == "before note":
            return
        self.note = decided.noted
        if crash == "after note":
            return
        done = self._commit(decided.commits.get(P0), answer)
        if crash == "after commit":
            return
        sent = [P0] if decided.commits else []
        self.note = settle(decided, sent if done else [], sent if answer == "refused" else [], NOW)

    def _commit(self, position: GroupPosition | None, answer: str) -> bool:
        """Return whether it is known to be done."""
        if position is None or answer in ("refused", "lost before"):
            return False
        assert not self.members
        assert self.there is None or self.there % 2 == 0, "somebody else's position was overwritten"
        assert self.start <= position.offset <= self.end, "outside the target's log"
        assert position.offset <= max(self.source, self.start), "records were skipped"
        self.there, self.lost = position.offset, False
        return answer != "lost behind"

    def move(self, what: str, number: int) -> None:
        match what:
            case "read on the source":
                self.source = max(2 * number, self.start)  # what is below is deleted there, too
            case "copy":
                self.end += 2 * number
            case "trim":
                self.start = self.end - min(2 * number, self.end)
                self.source = max(self.source, self.start)
                self.there = None if self.there is None or self.there < self.start else self.there
            case "read on the target":
                self.there = 2 * number + 1
            case "forget the position":
                self.there = None
            case "lose the state":
                self.note, self.lost = None, self.there is not None
            case "join or leave":
                self.members = not self.members


MOVES = st.tuples(
    st.sampled_from([
        "read on the source", "copy", "trim", "read on the target", "forget the position", "lose the state",
        "join or leave",
    ]),
    st.integers(0, 9),
)  # fmt: skip
PASSES = st.tuples(
    st.sampled_from(["", "", "before note", "after note", "after commit"]),
    st.sampled_from(["done", "done", "refused", "lost before", "lost behind"]),
)


@given(st.lists(st.one_of(MOVES, PASSES), max_size=30))
def test_whatever_happens_no_foreign_position_is_overwritten(events: list[tuple[str, Any]]) -> None:
    course = Course()
    for first, second in events:
        if isinstance(second, int):
            course.move(first, second)
        else:
            course.follow(first, second)
    course.members = False
    course.follow()
    foreign = course.there is not None and course.there % 2 == 1
    if not foreign and not course.lost:
        assert course.there == min(course.source, course.end), "the group does not follow"
        assert course.note is not None and course.note.ours == {P0: ours(course.there)}
    course.follow()  # and again: nothing is left to do
    assert decide_group(
        {P0: standing(course.source, course.there, start=course.start, end=course.end)}, course.note,
        active=False, now_ms=NOW,
    ).commits == {}  # fmt: skip
