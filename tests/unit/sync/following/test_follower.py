"""A pass over all groups, on clusters in memory; and what is left of one that is cut off anywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import Translated, Where
from airflow_mirror.errors import BrokerError, LeaseLost, NoOffsetMap, TryAgain
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.plan.ownership import claim, mark_cut_over
from airflow_mirror.sync.following import follower, notes
from airflow_mirror.sync.following.deciding import REFRESH_MS
from airflow_mirror.sync.following.follower import FollowReport
from airflow_mirror.wire.errors import ConnectionLost
from tests.builders import topic_plan
from tests.unit.sync.following.world import NOW, P0, P1, World


def test_groups_follow_forwards_and_backwards(world: World) -> None:
    for offsets in ((10, 20), (15, 20), (3, 20), (3, 900)):
        world.source.put("g", *offsets)
        report = world.follow()
        assert world.target.at("g") == list(offsets)
        assert (report.groups, report.positions) == (1, 2) and not report.failed
        world.follow()
        assert (marks := world.note("g")) and marks.ours == {P0: ((offsets[0], ""),), P1: ((offsets[1], ""),)}
    assert [its for _, its in world.target.commits] == [{P0: 10, P1: 20}, {P0: 15}, {P0: 3}, {P1: 900}]


def test_each_group_that_moves_is_measured_from_the_reading_of_its_positions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1000, 2000, 7))
    monkeypatch.setattr(follower, "wall_ms", lambda: next(clock))
    world.source.put("g", 10, 20)
    world.source.put("h", 1, 2)
    world.follow()
    assert world.moved == [(1000, 1007)] * 2, "one request for both, and one answer"
    world.follow()
    assert len(world.moved) == 2, "nothing has moved"


def test_pass_without_a_change_writes_nothing(world: World) -> None:
    world.source.put("g", 10, 20)
    world.follow()
    writes = world.state.writes
    assert world.follow().written == 0
    assert (world.state.writes, len(world.target.commits)) == (writes, 1)


def test_note_stands_before_the_commit_and_no_commit_without_one(world: World) -> None:
    world.source.put("g", 10, 20)
    world.state.away = True
    with pytest.raises(TryAgain, match="the state could not be written"):
        world.follow()
    assert not world.target.commits


def test_position_that_somebody_sets_while_offsets_are_translated_is_left_alone() -> None:
    """A map that is not complete is completed from the logs, for as long as that takes."""
    world = World("mapped")

    def slowly(tp: TopicPartition, offset: int) -> Translated:
        if offset == 50:
            world.target.put("g", 7)
        return Translated(offset, Where.RECORD)

    world.to_target = slowly
    world.source.put("g", 10)
    world.follow()
    world.source.put("g", 50)
    for _ in range(2):
        assert world.follow().left_alone == ["g at orders-0: the target has 7, the mirror wrote 10"]
        assert world.target.at("g") == [7]


def test_foreign_position_is_left_alone_while_others_of_the_group_follow(world: World) -> None:
    world.source.put("g", 10, 20)
    world.follow()
    world.target.put("g", 11)
    world.source.put("g", 50, 60)
    report = world.follow()
    assert world.target.at("g") == [11, 60]
    assert report.left_alone == ["g at orders-0: the target has 11, the mirror wrote 10"]
    del world.target.positions["g"][P0]  # the remedy: who deletes it gives it back
    world.follow()
    assert world.target.at("g") == [50, 60]


def test_without_the_state_what_differs_is_left_alone_and_what_is_missing_written(world: World) -> None:
    world.source.put("g", 10, 20)
    world.follow()
    world.state.values.clear()
    world.source.put("g", 30, 20)
    world.source.put("new", 5)
    report = world.follow()
    assert (world.target.at("g"), world.target.at("new")) == ([10, 20], [5])
    assert len(report.left_alone) == 2
    world.source.put("g", 30, 40)
    world.follow()
    assert world.target.at("g") == [10, 20]


def test_group_with_members_is_reported_and_followed_when_they_leave(world: World) -> None:
    world.source.put("g", 10, 20)
    world.follow()
    world.target.members.add("g")
    world.source.put("g", 30, 20)
    assert world.follow().active == ["g"]
    assert world.target.at("g") == [10, 20]
    world.target.members.clear()
    assert not world.follow().active
    assert world.target.at("g") == [30, 20]


def test_members_that_join_before_the_commit_keep_what_they_read(world: World) -> None:
    """They read on to the very position that was refused to the mirror. It is theirs."""
    world.source.put("g", 10, 20)
    world.follow()
    world.source.put("g", 30, 20)
    world.target.joins.add("g")
    report = world.follow()
    assert (report.active, report.failed) == (["g"], [])
    world.target.put("g", 30)
    world.target.members.clear()
    world.target.joins.clear()
    world.source.put("g", 70)
    assert world.follow().left_alone == ["g at orders-0: the target has 30, the mirror wrote 10"]
    assert world.target.at("g") == [30, 20]


def test_position_beyond_the_target_is_held_and_moves_as_records_arrive(world: World) -> None:
    world.target.logs[P0] = (0, 40)
    world.source.put("g", 100)
    assert world.follow().held == ["g at orders-0: held at 40"]
    world.target.logs[P0] = (0, 70)
    world.follow()
    assert world.target.at("g") == [70]
    world.target.logs[P0] = (0, 100)
    assert not world.follow().held
    assert world.target.at("g") == [100]


def test_lost_lease_ends_a_pass_before_anything_is_written(world: World) -> None:
    world.source.put("g", 10)
    world.right.lost = True
    with pytest.raises(LeaseLost):
        world.follow()
    assert not world.target.commits and not world.state.writes


@pytest.mark.parametrize("silent", ["refresh_present", "groups", "groups_offsets_apart"])
def test_source_that_is_away_for_half_an_hour_moves_nothing_and_is_followed_in_the_first_pass_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    """One follower, on the connections that it had, by a pass every five seconds; whichever request has no answer."""

    def away(*_: object, **__: object) -> None:
        raise ConnectionLost("source", "broker:9092", "anything", "timed out")

    world.source.put("g", 10, 20)
    kept = world.follower()
    kept.follow(NOW)
    written = world.state.writes, dict(world.state.values), list(world.target.commits)
    with monkeypatch.context() as patch:
        patch.setattr(world.source, silent, away)
        for second in range(0, 1800, 5):
            with pytest.raises(TryAgain, match="timed out"):
                kept.follow(NOW + second * 1000)
    assert (world.state.writes, world.state.values, world.target.commits) == written
    world.source.put("g", 15, 3)
    report = kept.follow(NOW + 1_800_000)
    assert world.target.at("g") == [15, 3] and report.groups == 1
    assert not (report.failed or report.left_alone or report.gone or report.held or report.active)


def test_topic_in_production_is_never_touched(world: World) -> None:
    world.source.put("g", 10)
    mark_cut_over(world.ledger, world.plan, {"orders": "id-of-orders"}, "2026-01-01T00:00:00+00:00")
    report = world.follow()
    assert not world.target.commits and not world.state.writes
    assert len(report.left_out) == 1 and report.left_out[0].startswith("orders: the ledger does not say")


def test_source_topic_that_was_created_again_moves_no_group(world: World) -> None:
    """Its offsets begin anew, and those on the target are still the old topic's."""
    world.source.put("g", 900)
    world.follow()
    world.source.topic_ids["orders"] = "another"
    world.source.put("g", 3)
    assert world.follow().left_out == ["orders: the source's topic was created again"]
    assert world.target.at("g") == [900]


def test_source_topic_that_is_gone_keeps_no_other_from_following(world: World) -> None:
    """The tail goes on with the others, so groups do."""
    other = topic_plan("other", {0: 0}, source_topic_id="id-of-other")
    world.plan = replace(world.plan, topics=(*world.plan.topics, other))
    world.target.topics = lambda names: {n: TopicInfo(n, f"id-of-{n}", 2, 1) for n in names}  # type: ignore[method-assign]
    claim(world.ledger, world.plan, world.target)  # type: ignore[arg-type]
    world.source.gone.add("other")
    world.source.put("g", 900)
    assert world.follow().left_out == ["other: the source has no such topic any more"]
    assert world.target.at("g") == [900]
    world.source.gone.add("orders")
    world.source.put("g", 950)
    assert len(world.follow().left_out) == 2 and world.target.at("g") == [900]


def test_topics_partitioned_by_key_are_listed_as_left_out() -> None:
    world = World(mode="mapped", partitioning="by_key", offsets="mapped")
    world.source.put("g", 10)
    assert world.follow().left_out == ["orders: positions of topics that are partitioned by key have no counterpart"]
    assert not world.target.commits


def test_mapped_positions_go_through_the_map_which_is_asked_beyond_its_end_once() -> None:
    world, asked = World(mode="mapped"), []

    def to_target(tp: TopicPartition, offset: int) -> Translated:
        if tp == P1:
            raise NoOffsetMap(tp)
        asked.append(offset)
        return Translated(min(offset, 50) + 100, Where.RECORD if offset <= 50 else Where.BEYOND)

    world.to_target = to_target
    for number in range(4):
        world.source.put(f"g-{number}", 40 + 20 * number, 7)
    report = world.follow()
    assert [world.target.at(f"g-{number}") for number in range(4)] == [[140], [150], [150], [150]]
    assert asked == [0, 40, 60]
    assert len(report.held) == 3 and len(report.left_alone) == 4
    assert report.left_alone[0] == "g-0 at orders-1: the copy of the partition has not begun"


def test_group_that_is_gone_at_the_source_is_reported_and_not_refreshed(world: World) -> None:
    for group in ("g", "stays"):
        world.source.put(group, 10)
    world.follow()
    del world.source.positions["g"]
    commits = len(world.target.commits)
    report = world.follow(NOW + REFRESH_MS)
    assert report.gone == ["g"] and world.target.at("g") == [10]
    assert [group for group, _ in world.target.commits[commits:]] == ["stays"]
    del world.target.positions["g"]  # now the brokers have forgotten it, too
    world.follow()
    assert world.note("g") is None and not world.follow().gone


def test_unreadable_groups_and_leaderless_partitions_keep_no_other_from_following(world: World) -> None:
    for group in ("a", "b", "c"):
        world.source.put(group, 10, 20)
    world.follow()
    for group in ("a", "b", "c"):
        world.source.put(group, 11, 21)
    world.source.unreadable["a"] = BrokerError("read", 88, "UNSTABLE_OFFSET_COMMIT")
    world.target.unreadable["b"] = BrokerError("read", 30, "GROUP_AUTHORIZATION_FAILED")
    world.target.leaderless.add(P1)
    report = world.follow()
    assert [world.target.at(group) for group in ("a", "b", "c")] == [[10, 20], [10, 20], [11, 20]]
    assert [line[:2] for line in sorted(report.failed)] == ["a:", "b:"] and not report.gone
    assert [line[:14] for line in report.left_alone] == ["c at orders-1:"]


def test_groups_that_may_not_be_set_do_not_count_and_are_an_error_if_they_are_all(world: World) -> None:
    for group in ("a", "b"):
        world.source.put(group, 10, 20)
    world.target.forbidden.add("a")
    report = world.follow()
    assert (report.groups, report.positions) == (1, 2) and "error" not in report.to_dict()
    assert report.to_dict()["said"][0].startswith("failed: a: ")
    world.target.forbidden.add("b")
    world.source.put("b", 30)
    report = world.follow()
    assert (report.groups, report.positions) == (1, 1), "its other position is where it was"
    world.source.put("b", 30, 40)
    report = world.follow()
    assert report.groups == 0 and report.to_dict()["error"].endswith(" and 1 more")


def test_a_source_that_shows_no_group_any_more_is_told_to_a_person(world: World) -> None:
    """Without DESCRIBE on groups Kafka lists none. One application that deletes its group is ordinary."""
    assert world.follow().to_dict()["said"] == [], "there was none before"
    for group in ("a", "b"):
        world.source.put(group, 10, 20)
    world.follow()
    hidden = {group: world.source.positions.pop(group) for group in ("a",)}
    assert world.follow().to_dict()["said"] == []
    hidden["b"] = world.source.positions.pop("b")
    report = world.follow().to_dict()
    assert len(report["said"]) == 1 and "shows none of the 2 groups that followed, such as a" in report["said"][0]
    world.source.positions.update(hidden)
    assert world.follow().to_dict()["said"] == []


def passed_on(world: World) -> None:
    """The topic becomes another mirror's; another one that no group reads is left."""
    for side in (world.source, world.target):
        side.topics = lambda names: {n: TopicInfo(n, f"id-of-{n}", 2, 1) for n in names}  # type: ignore[method-assign]
    left = topic_plan("rest", {0: 0}, source_topic_id="id-of-rest")
    world.plan = replace(world.plan, topics=(left,))
    claim(world.ledger, world.plan, world.target)  # type: ignore[arg-type]


def test_groups_of_topics_that_have_left_the_plan_are_not_gone(world: World) -> None:
    """After a split, say: the source shows them as before, and they follow with the other mirror."""
    world.source.put("g", 10)
    world.follow()
    note = world.note("g")
    passed_on(world)
    report = world.follow()
    assert (report.gone, report.to_dict()["said"]) == ([], []) and world.note("g") == note
    world.source.positions.clear()
    world.target.positions.clear()
    report = world.follow()
    assert not report.gone and world.note("g") is None, "nobody has positions that are worth a note"


def test_a_source_that_still_lists_a_group_shows_groups(world: World) -> None:
    """Its topic was deleted there, or it has begun anew in others: it is not hidden."""
    for group in ("a", "b"):
        world.source.put(group, 10)
    world.follow()
    world.source.positions = {"a": {}}
    report = world.follow()
    assert sorted(report.gone) == ["a", "b"] and report.to_dict()["said"] == []


def test_own_groups_and_those_not_selected_never_leave_their_cluster() -> None:
    world = World(groups=[".*"], exclude_groups=["private"])
    for group in ("airflow-mirror:flow:starts", "private", "g"):
        world.source.put(group, 10)
    world.state.values[notes.key(world.plan.mirror.name, "private")] = b'{"v": 1, "at": 1, "ours": {}}'
    assert not world.follow().gone
    assert [group for group, _ in world.target.commits] == ["g"]


def test_note_of_a_newer_version_is_left_alone_with_its_group(world: World) -> None:
    world.source.put("g", 10)
    world.state.values[notes.key(world.plan.mirror.name, "g")] = b'{"v": 2}'
    report = world.follow()
    assert "install that version" in report.left_alone[0] and not world.target.commits and not world.state.writes


def test_report_is_small_however_many_groups_there_are() -> None:
    report = FollowReport(held=[f"{n:05} {'x' * 1000}" for n in range(10_000)], groups=3)
    shown = report.to_dict()
    assert shown["held"]["count"] == 10_000 and len(shown["held"]["first"]) == 10 and shown["groups"] == 3
    assert len(str(shown)) < 4000


def test_report_says_what_a_person_should_know() -> None:
    """Positions of somebody else; held ones follow by themselves."""
    report = FollowReport(held=["g at t-0: 7"], left_alone=["g at t-0: the target has 3", "g at t-1: the target has 4"])
    assert report.to_dict()["said"] == ["2 position(s) left alone, as g at t-0: the target has 3"]


# --- cut off anywhere -------------------------------------------------------------------------------------------------
