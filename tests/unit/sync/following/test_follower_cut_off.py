"""Passes of the follower that are cut off, refused, or lose an answer: the next one continues them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from airflow_mirror.kafka.permit import Permit
from tests.unit.sync.following.world import NOW, P0, P1, Killed, World

CUTS = ("before the note", "after the note", "before the commit", "after the commit")


def cut(world: World, where: str) -> bool:
    """Let the next pass die there; return whether it did."""
    write, commit = world.state.write, world.target.commit_groups

    def writes(values: Any, permit: Permit) -> None:
        if where == "before the note":
            raise Killed
        write(values, permit)
        if where == "after the note":
            raise Killed

    def commits(*arguments: Any) -> Any:
        if where == "before the commit":
            raise Killed
        done = commit(*arguments)
        if where == "after the commit":
            raise Killed
        return done

    world.state.write, world.target.commit_groups = writes, commits
    try:
        world.follow()
        return False
    except Killed:
        return True
    finally:
        world.state.write, world.target.commit_groups = write, commit


@pytest.mark.parametrize("where", CUTS)
@pytest.mark.parametrize("there", [None, (10, 20)])
def test_pass_that_was_cut_off_is_continued_by_the_next_process(world: World, where: str, there: Any) -> None:
    if there:
        world.source.put("g", *there)
        world.follow()
    world.source.put("g", 30, 40)
    assert cut(world, where)
    assert world.target.at("g") in ([30, 40], list(there or []))
    for offsets in ((50, 60), (5, 6)):
        world.source.put("g", *offsets)
        report = world.follow()
        assert world.target.at("g") == list(offsets) and not report.left_alone


@pytest.mark.parametrize("where", CUTS)
def test_position_that_somebody_set_after_the_cut_is_not_overwritten(world: World, where: str) -> None:
    world.source.put("g", 10, 20)
    world.follow()
    world.source.put("g", 30, 40)
    assert cut(world, where)
    world.target.put("g", 33)
    world.source.put("g", 50, 60)
    report = world.follow()
    assert world.target.at("g") == [33, 60] and len(report.left_alone) == 1


def test_group_that_moves_costs_one_record_a_pass(world: World) -> None:
    """What was written is settled by the next note, or by the first pass in which the group stands still."""
    world.source.put("g", 10, 20)
    world.follow()
    for offset in (30, 40):
        world.source.put("g", offset, 20)
        before = world.state.writes
        world.follow()
        assert world.state.writes == before + 1
    assert (note := world.note("g")) and note.ours[P0] == ((30, ""), (40, ""))
    world.follow()
    assert (note := world.note("g")) and note.ours[P0] == ((40, ""),)
    before = world.state.writes
    world.follow()
    assert world.state.writes == before


def test_commit_that_was_refused_is_taken_out_of_the_note_at_once(world: World) -> None:
    """The group's members will soon stand where the mirror wanted to put them."""
    world.source.put("g", 10, 20)
    world.follow()
    world.source.put("g", 30, 20)
    world.target.joins = {"g"}
    world.follow()
    assert (note := world.note("g")) and note.ours[P0] == ((10, ""),)


def test_position_that_is_always_refused_costs_two_records_a_minute_and_is_told_in_each_pass(world: World) -> None:
    world.source.put("g", 10, 20)
    world.target.forbidden.add("g")
    kept, written = world.follower(), []
    for second in range(0, 65, 5):
        before = world.state.writes
        report = kept.follow(NOW + second * 1000)
        written.append(world.state.writes - before)
        assert len(report.failed) == 1 and "GROUP_AUTHORIZATION_FAILED" in report.failed[0] and not report.groups
    assert written == [2, *[0] * 11, 2] and world.note("g") is None
    world.target.forbidden.clear()
    world.source.put("g", 30)  # another position may be taken
    assert len(kept.follow(NOW + 65_000).failed) == 1 and world.target.at("g") == [30]
    assert not kept.follow(NOW + 120_000).failed and world.target.at("g") == [30, 20]


def test_refused_position_keeps_no_other_of_its_group_from_following(world: World) -> None:
    world.source.put("g", 10, 20)
    world.target.forbidden_at.add(P1)
    kept = world.follower()
    for second, offset in ((0, 10), (5, 11), (10, 12)):
        world.source.put("g", offset)
        before = world.state.writes
        report = kept.follow(NOW + second * 1000)
        assert world.target.at("g") == [offset] and len(report.failed) == 1
        assert world.state.writes - before == (2 if second == 0 else 1)
        assert (note := world.note("g")) and P1 not in note.ours
    world.target.forbidden_at.clear()
    assert world.follow().written == 1, "another process knows nothing of it"
    assert world.target.at("g") == [12, 20]


def test_members_that_have_left_keep_their_group_from_following_no_minute(world: World) -> None:
    world.source.put("g", 10)
    world.target.joins.add("g")
    kept = world.follower()
    assert kept.follow(NOW).active == ["g"]
    world.target.joins.clear()
    world.target.members.clear()
    assert kept.follow(NOW + 5000).written == 1 and world.target.at("g") == [10]


def test_commit_with_a_lost_answer_stays_noted_twice_until_it_is_read(world: World) -> None:
    world.source.put("g", 10, 20)
    world.follow()
    world.source.put("g", 30, 20)
    world.target.lose_answers = True
    assert len(world.follow().failed) == 1
    assert (note := world.note("g")) and note.ours[P0] == ((10, ""), (30, ""))
    world.target.lose_answers = False
    world.follow()
    assert (note := world.note("g")) and note.ours[P0] == ((30, ""),)


@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(60))
def test_many_passes_with_cuts_and_strangers_end_where_they_should(seed: int) -> None:
    """Even offsets are the source's, odd ones a stranger's."""
    rng, world = random.Random(seed), World()
    groups = [f"g-{n}" for n in range(4)]
    strangers: dict[str, int] = {}
    for _ in range(40):
        group = rng.choice(groups)
        match rng.randrange(5):
            case 0 | 1:
                world.source.put(group, 2 * rng.randrange(400), 2 * rng.randrange(400))
            case 2 if rng.random() < 0.2:
                strangers[group] = 2 * rng.randrange(400) + 1
                world.target.put(group, strangers[group])
            case 3:
                world.follow()
            case _:
                cut(world, rng.choice(CUTS))
    world.follow()
    for group in world.source.positions:
        first, second = world.source.at(group)
        assert world.target.at(group) == [strangers.get(group, first), second]
