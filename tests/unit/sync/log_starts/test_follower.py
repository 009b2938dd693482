"""A pass over all log starts, on clusters in memory: what may be deleted, and what never is."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import BrokerError, LeaseLost, MirrorError, MissingRight, RequestRefused, TryAgain
from airflow_mirror.plan.ownership import claim, mark_cut_over
from airflow_mirror.sync.log_starts import follower, observations
from airflow_mirror.wire import requests
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.sync.log_starts.world import (
    DAY,
    HOUR,
    NOW,
    P0,
    SHARED,
    Log,
    World,
    delete_records,
    last_batch,
    list_offsets,
)


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "list_offsets", list_offsets)
    monkeypatch.setattr(requests, "delete_records", delete_records)
    monkeypatch.setattr(follower, "last_data_batch", last_batch)


@pytest.fixture
def world() -> World:
    return World()


def test_target_deletes_a_day_after_the_sources_retention(world: World) -> None:
    for _ in range(60):
        world.produce(10)
        world.passes(1)
    assert (world.source.logs[P0].start, world.start_there) == (360, 120)
    assert 24 <= len(world.state.read()) <= 27  # a sight an hour, for a day


def test_what_somebody_deleted_at_the_source_is_kept_and_said(world: World) -> None:
    world.produce(100)
    world.source.settings["retention_ms"] = str(30 * DAY)
    world.source.logs[P0].start = 60
    report = world.passes(3)
    assert report.kept == [
        "orders-0: the source has lost offsets 0 to 59, and retention does not explain it; the target keeps them"
    ]
    assert report.kept[0] in report.to_dict()["said"][0]
    world.passes(28 * 24)
    assert world.start_there == 0
    world.produce(100)
    report = world.passes(5 * 24)  # they are older than the retention by now
    assert world.start_there == 100 and report.kept == []


def test_source_that_never_deletes_by_itself_is_followed_never(world: World) -> None:
    world.source.settings = {"retention_ms": "-1"}
    world.produce(100)
    world.source.logs[P0].start = 60
    assert len(world.passes(100).kept) == 1 and world.target.deleted == []


def test_size_limit_explains_what_the_target_has_beyond_it(world: World) -> None:
    world.source.settings = {"retention_ms": "-1", "retention_bytes": "40", "segment_bytes": "5"}
    world.produce(100)
    world.source.logs[P0].start = 60
    assert world.passes(30).kept  # a segment less, as the target can't tell what lies in the first one
    assert world.start_there == 57
    world.source.logs[P0].start = 95  # somebody: the log holds less than it may
    world.passes(30)
    assert world.start_there == 57
    world.produce(50)
    world.passes(30)
    assert world.start_there == 95


def test_a_segment_is_as_large_as_the_targets_may_be(world: World) -> None:
    """The source's were made smaller since. What of the target's log lies before its start counts for nothing."""
    world.source.settings = {"retention_ms": "-1", "retention_bytes": "40", "segment_bytes": "5"}
    world.produce(100)
    world.source.logs[P0].start = 60
    world.passes(30)
    assert world.start_there == 57
    world.target.settings["segment_bytes"], world.target.uncut = "60", 55
    world.source.logs[P0].start = 95  # somebody: the log holds less than it may
    assert world.passes(30).kept and world.start_there == 57
    del world.target.settings["segment_bytes"]  # the cluster's own
    assert world.passes(30).kept and world.start_there == 57


def test_log_that_its_broker_has_not_cut_yet_tells_no_size() -> None:
    """Its size is still that of all that was deleted a moment ago: the limit would seem to lie further on."""
    world = World(log_start_delay_s=3600)

    def passes(count: int) -> None:
        """One after the other, as soon as the delay lets them be made."""
        for _ in range(count):
            world.now += 150_000
            world.follower.follow(world.now)

    world.source.settings = {"retention_ms": "-1", "retention_bytes": "40", "segment_bytes": "5"}
    world.produce(100)
    world.source.logs[P0].start = 60
    while world.start_there == 0:
        passes(1)
    world.target.uncut = 57
    world.source.logs[P0].start = 95
    passes(3)
    world.target.uncut = 0
    passes(60)
    assert world.start_there == 57


def test_size_limit_is_followed_each_hour_while_records_arrive(world: World) -> None:
    """Each pass deletes. The broker has cut that long before the next one."""
    world.source.settings = {"retention_ms": "-1", "retention_bytes": "40", "segment_bytes": "5"}
    starts = []
    for _ in range(60):
        world.produce(10)
        log = world.source.logs[P0]
        log.start = max(log.start, log.end - 40)
        world.passes(1)
        starts.append(world.start_there)
    assert [later - earlier for earlier, later in zip(starts[-6:], starts[-5:], strict=False)] == [10] * 5


def test_sizes_that_may_not_be_read_explain_nothing(world: World) -> None:
    world.source.settings = {"retention_ms": "-1", "retention_bytes": "40", "segment_bytes": "5"}
    world.target.refuses_sizes = True
    world.produce(100)
    world.source.logs[P0].start = 60
    assert "retention.bytes" in world.passes(30).left_alone[0] and world.start_there == 0


def test_backup_keeps_what_its_own_retention_says() -> None:
    world = World(keep_configs=["retention.ms"])
    world.produce(100)
    assert "longer" in world.passes(30).longer[0]
    world.produce(100)
    world.passes(24 * 9)
    assert world.source.logs[P0].start == 200 and world.start_there == 0
    world.passes(24 * 2)
    assert world.start_there == 100


def test_records_that_may_not_be_deleted_keep_their_topic_from_counting(world: World) -> None:
    world.produce(10)
    assert world.passes(1).topics == 1
    world.target.undeletable.add(P0)
    world.now += 3 * DAY
    world.produce(10)
    report = world.passes(30)
    assert report.topics == 0 and "TOPIC_AUTHORIZATION_FAILED" in report.to_dict()["error"]
    world.target.undeletable.clear()
    report = world.passes(1)
    assert report.topics == 1 and not report.failed and world.start_there > 0


def test_last_batch_of_records_stays_as_the_journal(world: World) -> None:
    world.produce(23)
    world.passes(60)
    assert world.source.logs[P0].start == 23
    assert world.start_there == 20


def test_a_copy_that_is_behind_holds_back_its_own_log_start(world: World) -> None:
    """The source deleted more than was copied."""
    world.produce(100)
    world.target.logs[P0].times = world.target.logs[P0].times[:40]
    world.passes(60)
    assert world.start_there == 35


@pytest.mark.parametrize("when", ["source", "target"])
def test_topic_that_was_created_again_begins_anew(world: World, when: str) -> None:
    world.produce(100)
    world.passes(47)
    getattr(world, when).ids["orders"] = "another"
    report = world.passes(1)
    assert report.left_out and world.target.deleted == []
    if when == "target":
        claim(world.ledger, world.plan, world.target)
        world.passes(20)
        assert world.target.deleted == [] and all(b'"another"' in value for value in world.state.read().values())


def test_topic_of_brokers_without_ids_follows_and_created_again_deletes_nothing() -> None:
    world = World(source_id="")  # before 2.8
    world.produce(100)
    assert world.passes(60).left_out == [] and world.start_there == 95
    world.produce(100)
    world.source.logs[P0] = again = Log([world.now] * 300)
    world.target.logs[P0].times += [world.now] * 100
    assert "began at 100 before, and at 0 now" in world.passes(20).left_alone[0] and world.start_there == 95
    world.passes(60)
    assert again.start == 300 and world.start_there <= 295, "it is as old as its retention, too"


def test_log_start_that_fell_at_the_source_stops_the_partition(world: World) -> None:
    world.produce(100)
    world.passes(40)
    world.source.logs[P0].start = 50
    world.source.settings["retention_ms"] = "-1"
    assert "began at 100 before, and at 50 now" in world.passes(20).left_alone[0]
    assert world.target.deleted == []


@pytest.mark.parametrize(
    ("world", "cause"),
    [
        (World(mode="mapped", delivery="transactional"), "markers of transactions look like records of others"),
        (World(partitioning="by_key"), "partitioned by key"),
        (World(**SHARED), "mirrors of other sources"),
    ],
)
def test_what_can_not_follow_is_listed_with_its_cause(world: World, cause: str) -> None:
    world.produce(100)
    assert cause in world.passes(60).left_out[0] and world.target.deleted == []


def test_mapped_log_start_follows_through_the_map() -> None:
    """A day later, as others; the map is read again only when the source's log start has moved."""
    world = World("mapped")
    for _ in range(60):
        world.produce(10)
        world.passes(1)
    assert world.source.logs[P0].start == 3 * 360
    assert world.start_there == 120
    assert world.maps is not None
    loads, world.retain = world.maps.loads, lambda: None  # type: ignore[method-assign]
    world.passes(5)
    assert world.maps.loads == loads and world.start_there > 120


def test_mapped_log_start_in_a_hole_goes_to_the_next_record() -> None:
    world = World("mapped")
    world.produce(10)
    world.produce(10)
    world.produce(10)
    world.source.logs[P0].times = [NOW - 3 * DAY] * 90
    world.target.logs[P0].times = [NOW - 3 * DAY] * 30
    world.retain = lambda: None  # type: ignore[method-assign]
    world.source.logs[P0].start = 35  # the second ten lie from 50 on
    world.passes(30)
    assert world.start_there == 10


def test_records_of_others_among_mapped_ones_are_never_deleted() -> None:
    """Before the mirror began, or between its records: nobody knows how long they have to stay."""
    for early, between in ((5, 0), (0, 5)):
        world = World("mapped")
        world.target.logs[P0].times += [NOW] * early
        world.produce(50)
        world.target.logs[P0].times += [NOW] * between
        world.produce(50)
        report = world.passes(60)
        assert "lie records of others, or of before the mirror began" in report.left_alone[0]
        assert world.target.deleted == []


def test_mapped_partition_without_a_map_waits_and_is_listed() -> None:
    world = World("mapped")
    world.produce(100)
    assert world.maps is not None
    kept, world.maps.maps = world.maps.maps, {}
    assert world.passes(50).left_alone == ["orders-0: no offset map is stored yet"]
    world.maps.maps, world.maps.error = kept, TryAgain("away")
    assert world.passes(1).failed == ["orders-0: away"] and world.target.deleted == []


def test_mapped_topic_that_the_source_compacts_is_listed() -> None:
    world = World("mapped", compacted=True)
    world.source.settings |= {"cleanup_policy": "compact"}
    world.produce(10)
    assert "not compacted while it is on hold" in world.passes(3).not_compacted[0]
    assert "cleanup_policy" not in world.target.settings


def test_topic_in_production_or_of_nobody_is_never_touched(world: World) -> None:
    world.produce(100)
    world.passes(47)
    mark_cut_over(world.ledger, world.plan, world.target.ids, "2026-01-01")
    assert "not in production" in world.passes(9).left_out[0]
    world.ledger.records.clear()
    other = World()
    other.ledger = MemoryLedger()
    other.start()
    other.produce(100)
    assert "this mirror's" in other.passes(60).left_out[0]
    assert world.target.deleted == other.target.deleted == []


UNSEEN = [("confirm", 1), ("confirm", 2), ("check", 1)]  # what was seen is not noted, either


@pytest.mark.parametrize("lost_at", [("confirm", 1), ("confirm", 2), ("confirm", 3), ("check", 1), ("check", 2)])
def test_a_lost_lease_deletes_nothing(world: World, lost_at: tuple[str, int]) -> None:
    """Lost before the pass, before the sight is written, before the request is made, or right before their bytes."""
    world.produce(100)
    world.passes(48)
    noted = dict(world.state.read())
    world.right.asked.clear()
    world.right.lost_at = lost_at
    with pytest.raises(LeaseLost):
        world.passes(2)
    assert world.target.deleted == [] and (world.state.read() == noted) is (lost_at in UNSEEN)


def test_compaction_comes_back_when_the_backlog_has_arrived() -> None:
    world = World(compacted=True)
    world.source.settings |= {"cleanup_policy": "compact"}
    world.produce(100)
    world.target.logs[P0].times = world.target.logs[P0].times[:40]
    world.passes(5)
    assert "cleanup_policy" not in world.target.settings
    world.target.logs[P0].times = list(world.source.logs[P0].times)
    assert len(world.passes(1).compacted) == 1
    assert world.target.settings["cleanup_policy"] == "compact,delete" and world.passes(9).compacted == []
    world.source.settings["cleanup_policy"] = "delete"
    world.passes(1)
    assert world.target.settings["cleanup_policy"] == "delete"


@pytest.mark.parametrize(
    "error",
    [
        RequestRefused("alter", 44, "POLICY_VIOLATION"),
        MissingRight("alter", "TOPIC_AUTHORIZATION_FAILED", "User:m"),
        BrokerError("alter", 41, "NOT_CONTROLLER"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_topic_that_refuses_compaction_keeps_no_other_from_it(error: MirrorError) -> None:
    world = World(compacted=True)
    (orders,) = world.plan.topics
    other = replace(orders, source_topic="users", target_topic="users", source_topic_id="id-of-users")
    world.plan = replace(world.plan, topics=(orders, other))
    for side in (world.source, world.target):
        side.ids["users"] = "id-of-users"
        side.logs |= {TopicPartition("users", p): Log() for p in (0, 1)}
    claim(world.ledger, replace(world.plan, topics=(other,)), world.target)
    world.source.settings |= {"cleanup_policy": "compact"}
    world.target.refuses["orders"] = error
    world.passes(1)
    report = world.passes(1)
    assert report.compacted == ["users: cleanup.policy: delete -> compact,delete"] and report.topics == 1
    assert len(report.failed) == 1 and report.failed[0].startswith("orders: ")
    assert "error" not in report.to_dict()


def test_a_lost_lease_changes_no_policy() -> None:
    world = World(compacted=True)
    world.source.settings |= {"cleanup_policy": "compact"}
    world.produce(10)
    world.passes(1)
    world.right.asked.clear()
    world.right.lost_at = ("confirm", 3)  # before the pass, before the sight, before the settings
    with pytest.raises(LeaseLost):
        world.passes(1)
    assert "cleanup_policy" not in world.target.settings


def test_partition_without_a_leader_holds_up_no_other(world: World) -> None:
    one = TopicPartition("orders", 1)
    world.produce(100)
    world.produce(100, one)
    world.passes(47)
    world.target.leaderless = {P0}
    report = world.passes(5)
    assert report.failed and world.target.logs[one].start == 95 and world.start_there == 0
    world.target.leaderless = set()
    world.now -= HOUR - 60_000  # with the next pass, not in an hour
    world.passes(1)
    assert world.start_there == 95


def test_a_new_process_goes_on_with_what_the_old_one_saw(world: World) -> None:
    world.produce(100)
    for _ in range(60):
        world.restart()
        world.passes(1)
    assert world.start_there == 95


def test_state_that_is_lost_lets_the_waiting_begin_anew(world: World) -> None:
    world.produce(100)
    world.passes(47)
    world.state = MemoryState()
    world.restart()
    world.passes(24)
    assert world.start_there == 0
    world.passes(3)
    assert world.start_there == 95


def test_topic_whose_sights_a_newer_version_wrote_is_left_alone(world: World) -> None:
    """They may have a longer retention. Nothing of them is replaced, and nothing is deleted by the older ones."""
    world.passes(hours=30)
    key = observations.key(world.mirror.name, "orders", 31)
    world.state.write({key: b'{"v":99}'})
    noted, deleted = dict(world.state.read()), list(world.target.deleted)
    world.retain()
    report = world.passes(hours=30)
    assert any("newer version" in line for line in report.left_out)
    assert (world.state.read(), world.target.deleted) == (noted, deleted)


def test_state_that_takes_no_writes_deletes_nothing_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.produce(100)
    world.passes(47)

    def away(*_: Any) -> None:
        raise TryAgain("away")

    monkeypatch.setattr(world.state, "write", away)
    with pytest.raises(TryAgain):
        world.passes(5)
    assert world.target.deleted == []


@pytest.mark.repeats
@pytest.mark.parametrize("mode", ["identical", "mapped"])
@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(n, marks=pytest.mark.faults) for n in range(3, 20))])
def test_random_lives_delete_nothing_that_retention_had_not_taken(seed: int, mode: str) -> None:
    """Retention that changes, people who delete, processes that rest, a target that forgets what it has deleted."""
    rng = random.Random(seed)
    keep_ms = rng.choice([0, 10 * DAY])
    world = World(mode, keep_configs=["retention.ms"] if keep_ms else [])

    def on_target(offset: int) -> int:
        return offset if world.maps is None else world.maps.of(0).to_target(offset).offset

    here, there = world.source.logs[P0], world.target.logs[P0]
    gone: dict[int, int] = {}  # when the source lost a record
    once: set[int] = set()  # deleted before
    for _ in range(150):
        world.now += rng.choice([60_000, HOUR, HOUR, HOUR, 3 * HOUR]) * (30 if rng.random() < 0.01 else 1)
        if rng.random() < 0.05:
            world.source.settings["retention_ms"] = str(rng.choice([60_000, HOUR, DAY, DAY, 3 * DAY]))
        world.produce(rng.choice([0, 1, 7]))
        if rng.random() < 0.02:
            here.start = rng.randint(here.start, here.end)
        world.retain()
        gone |= {at: world.now for at in range(on_target(here.start)) if at not in gone}
        if rng.random() < 0.1:
            world.restart()
        if rng.random() < 0.03:
            there.start = rng.randint(0, there.start)  # a broker that died within a minute
        before = there.start
        world.follower.follow(world.now)
        assert there.start <= on_target(here.start)
        noted = [one for key, value in world.state.read().items() if (one := observations.load(key, value))]
        held = [one.retention.ms for one in noted if one.at_ms > world.now - DAY]
        for at in set(range(before, there.start)) - once:
            assert world.now - gone[at] >= DAY
            assert there.times[at] < world.now - DAY - max(*held, int(world.source.settings["retention_ms"]), keep_ms)
        once |= set(range(there.start))


def test_clock_that_jumps_ahead_deletes_nothing_early(world: World) -> None:
    world.produce(100)
    world.retain = lambda: None  # type: ignore[method-assign]
    world.source.logs[P0].start = 100
    for hours in (1, 1, 400 * 24, 1, 1, 1):
        world.now += hours * HOUR
        world.follower.follow(world.now)
    assert world.target.deleted == []
