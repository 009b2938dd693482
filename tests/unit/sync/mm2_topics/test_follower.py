"""A pass over checkpoints and offset-syncs, and what is left of one that is killed anywhere."""

from __future__ import annotations

import pytest

from airflow_mirror.errors import LeaseLost
from airflow_mirror.plan.ownership import mark_cut_over
from airflow_mirror.sync.mm2_topics.formats import Checkpoint, OffsetSync
from tests.unit.sync.following.world import P0, P1
from tests.unit.sync.mm2_topics.world import Killed, World, a_map


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def places(world: World) -> list[tuple[int, int, int]]:
    return [(one.tp.partition, one.upstream, one.downstream) for one in world.checkpoints()]


def test_groups_and_logs_are_told_once(world: World) -> None:
    world.source.put("g", 10, 20)
    report = world.follow()
    assert (report.checkpoints, report.written, report.syncs, report.failed) == (2, 2, 6, [])
    assert world.checkpoints() == [Checkpoint("g", P0, 10, 10), Checkpoint("g", P1, 20, 20)]
    assert world.syncs() == [OffsetSync(p, at, at) for p, group in ((P0, 10), (P1, 20)) for at in (0, group, 999)]
    again = world.follow()
    assert (again.checkpoints, again.written, again.syncs) == (2, 0, 0)
    assert str(again) == str(report) and again.to_dict()["said"] == []


def test_one_kind_alone_is_written_where_the_mirror_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, written in (("checkpoints", (2, 0)), ("offset-syncs", (0, 6))):
        world = World(monkeypatch, traces=kind)
        world.source.put("g", 10, 20)
        world.follow()
        assert (len(world.checkpoints()), len(world.syncs())) == written


def test_checkpoints_follow_the_group_in_both_directions_and_stay_in_the_log(world: World) -> None:
    for offset in (10, 4000, 3):
        world.source.put("g", offset)
        world.follow()
    assert places(world) == [(0, 10, 10), (0, 4000, 1000), (0, 3, 3)]


def test_a_leader_that_tells_its_end_too_low_moves_no_checkpoint_back(world: World) -> None:
    world.source.put("g", 4000)
    world.follow()
    world.target.logs[P0] = (0, 900)
    ends = world.target.log_ends
    world.target.log_ends = lambda tps: dict.fromkeys(tps, 1000)  # type: ignore[method-assign]
    world.follow()
    assert places(world) == [(0, 4000, 1000)]
    world.target.log_ends = ends  # type: ignore[method-assign]
    world.follow()  # the log was cut indeed
    assert places(world) == [(0, 4000, 1000), (0, 4000, 900)]


def test_mapped_topics_are_told_by_their_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, mode="mapped")
    world.maps.known = {P0: a_map()}
    world.source.put("g", 11, 5)
    report = world.follow()
    assert places(world) == [(0, 11, 19)]
    assert [line.partition(":")[0] for line in report.left_out] == ["g at orders-1"]
    assert [(one.upstream, one.downstream) for one in world.syncs()] == [(0, 7), (11, 19), (20, 28)]


def test_a_map_without_records_gives_no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, mode="mapped")
    world.maps.known = {P0: a_map().__class__(0, 7)}
    assert world.follow().syncs == 0


def test_what_leaders_do_not_answer_is_reported_and_the_rest_is_told(world: World) -> None:
    world.target.leaderless = {P0}
    world.source.put("g", 10, 20)
    report = world.follow()
    assert places(world) == [(1, 20, 20)]
    assert len(report.left_out) == 1 and any(line.startswith("orders-0: ") for line in report.failed)
    assert "no checkpoint of orders-0" in report.to_dict()["said"][0]
    assert {one.tp for one in world.syncs()} == {P1}


def test_topics_in_production_and_by_key_get_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.source.put("g", 10, 20)
    mark_cut_over(world.ledger, world.plan, {"orders": "id-of-orders"}, "2026-01-01T00:00:00+00:00")
    assert len(world.follow().left_out) == 1 and world.traces.appends == 0
    keyed = World(monkeypatch, partitioning="by_key", traces="heartbeats")
    assert keyed.follow().checkpoints == 0


def test_nothing_is_written_without_the_lease(world: World) -> None:
    world.source.put("g", 10, 20)
    world.right.lost = True
    with pytest.raises(LeaseLost):
        world.follow()
    assert world.traces.appends == 0


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", [1, 2, 3, 4])
def test_whatever_kills_a_pass_the_next_one_completes_it(world: World, dies_at: int, after: bool) -> None:
    world.traces.dies_at, world.traces.after = dies_at, after
    died = 0
    for offset in (10, 30, 20):
        world.source.put("g", offset)
        try:
            world.follow()
        except Killed:
            died += 1
            world.follow()
    assert died == 1
    assert [one.upstream for one in world.checkpoints() if one.tp == P0] == [10, 30, 20]
    for tp in (P0, P1):
        told = [one.upstream for one in world.syncs() if one.tp == tp]
        assert told == sorted(set(told)) and told[0] == 0 and told[-1] == 999
