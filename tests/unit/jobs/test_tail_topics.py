"""Which topics a tail copies: those that both clusters have, and that are still the planned ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.errors import LedgerLost, NeedsHuman
from airflow_mirror.jobs.driver import entry, following
from airflow_mirror.jobs.driver.prepare import CopyJob, taking_in
from airflow_mirror.jobs.driver.turns import Tail
from airflow_mirror.kafka.model import ConfigEntry, TopicInfo
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.plan.ownership import claim
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.copying import id_of
from tests.driven.script import Fault
from tests.unit.ledger.memory import MemoryLedger

MIRROR = Mirror(name="m", source="src", target="dst")


class World:
    """A tail of two topics, each of two partitions on both clusters."""

    def __init__(self, source: DrivenCluster, target: DrivenCluster, files: Mapping[str, str], mode: str) -> None:
        self.source, self.target = source, target
        for name in ("a", "b"):
            source.create(name, 2), target.create(name, 2)
        plan = plan_of(MIRROR, *(self.planned(name, {0: 0, 1: 0}, mode) for name in ("a", "b")))
        self.tail = Tail(CopyJob(mirror=MIRROR, **files, plan=plan, options=CopyOptions(mirror="m")), 1)

    def planned(self, name: str, starts: Mapping[int, int], mode: str = IDENTICAL) -> TopicPlan:
        return topic_plan(name, starts, source_topic_id=id_of(self.source, name), mode=mode)

    def copied(self) -> list[str]:
        return sorted(str(r.source) for part in self.tail.deal().lists for r in part)

    def ended(self, topic: str, **result: Any) -> None:
        """End a turn in which partition 1 of a topic had this result."""
        one = PartitionResult(topic=topic, target_topic=topic, partition=1, position=7, done=False, **result)
        self.tail.take([one])


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Callable[[str], World]]:
    """Make the world of a copy in a mode."""
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        files = {cluster.role: tmp_path / f"{cluster.role}.properties" for cluster in (source, target)}
        for cluster in (source, target):
            files[cluster.role].write_text(f"bootstrap.servers={cluster.config.bootstrap}\n")
        yield lambda mode: World(source, target, {role: str(file) for role, file in files.items()}, mode)


@pytest.fixture
def world(worlds: Callable[[str], World]) -> World:
    return worlds(IDENTICAL)


def test_partition_begins_once_the_target_has_it(world: World) -> None:
    world.source.grow("a", 4)
    world.target.grow("a", 3)
    assert world.tail.discover()
    assert world.copied() == ["a-0", "a-1", "a-2", "b-0", "b-1"]
    assert not world.tail.discover()
    world.target.grow("a", 4)
    assert world.tail.discover() and "a-3" in world.copied()


def test_partition_without_a_leader_holds_up_no_other_and_joins_later(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither at the tail's start nor at a look; it is said once."""
    leaderless = TopicPartition("a", 1)
    world.source.move_leader(leaderless, -1)
    for _ in range(2):
        world.tail.discover()
        assert world.copied() == ["a-0", "b-0", "b-1"]
    assert [r.message for r in caplog.records if "a-1 is not copied yet" in r.message] == [caplog.records[0].message]
    world.source.move_leader(leaderless, 1)
    change = world.tail.discover()
    assert change and [str(r.source) for r in change.joined] == ["a-1"]
    world.source.move_leader(leaderless, -1)
    asked = len(world.source.asked("ListOffsets"))
    assert not world.tail.discover() and "a-1" in world.copied()
    assert len(world.source.asked("ListOffsets")) == asked


def test_tail_that_ends_names_a_partition_that_waits_for_its_leader(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no result, as no task has had it. Nor has the tail failed: it would be started again behind each stop."""
    world.source.move_leader(TopicPartition("a", 1), -1)
    world.tail.discover()
    world.tail.take([])
    summary, error = following._outcome(world.tail, 1.0)
    assert summary["waiting"] == ["a-1"] and (error, summary["errors"]) == (None, [])
    assert "a-1 was not copied to its end by this tail: its leader did not answer" in caplog.text
    world.source.move_leader(TopicPartition("a", 1), 1)
    world.tail.discover()
    summary, error = following._outcome(world.tail, 1.0)
    assert summary["waiting"] == summary["errors"] == [] and error is None


def test_partition_dealt_by_key_joins_also_where_a_part_of_it_runs(world: World) -> None:
    """A broker of the target had not heard of all partitions."""
    tail = Tail(replace(world.tail.job, key_partitions={"a": 2}), 1)
    del world.target.topics["a"].logs[1:]
    tail.discover()
    assert sorted(str(r.target) for r in tail.ranges if r.source_topic == "a") == ["a-0", "a-0"]
    world.target.grow("a", 2)
    tail.discover()
    assert sorted(str(r.target) for r in tail.ranges if r.source_topic == "a") == ["a-0", "a-0", "a-1", "a-1"]


def test_running_partition_stays_whatever_brokers_forget(world: World) -> None:
    """One that has just started knows fewer partitions, or no topic at all: the tasks find out what is gone."""
    world.tail.discover()
    for cluster in (world.source, world.target):
        cluster.delete("b")
    del world.target.topics["a"].logs[1:]
    assert not world.tail.discover() and not world.tail.gone
    assert world.copied() == ["a-0", "a-1", "b-0", "b-1"]


def test_topic_whose_tasks_found_it_gone_stops_alone(world: World) -> None:
    world.tail.discover()
    world.ended("a", error="a-1 offsets [0, 7): the source topic is gone", final=True, source_gone=True)
    assert world.copied() == ["b-0", "b-1"] and world.tail.failed is None
    assert world.tail.gone == {"a": "a-1 offsets [0, 7): the source topic is gone"}
    assert entry.failure(world.tail.totals.values(), [r.error for r in world.tail.totals.values() if r.error]) is None
    world.source.delete("a")
    assert not world.tail.discover()
    with pytest.raises(NeedsHuman, match="damaged"):
        world.ended("b", error="b-1: damaged", final=True)


def test_tail_that_starts_later_goes_on_without_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It says so, once."""
    world.source.create("a", 2)
    world.source.delete("b")
    for _ in range(3):
        world.tail.discover()
    assert not world.tail.ranges
    assert "created again on the source" in world.tail.gone["a"] and "Delete the target topic" in world.tail.gone["a"]
    assert "gone from the source" in world.tail.gone["b"]
    assert len(caplog.records) == 2


def test_topic_that_brokers_had_not_heard_of_is_copied_again(world: World) -> None:
    topics = world.source.topics
    there = topics.pop("a")
    known = world.source.script.on("Metadata", Fault(after=lambda _: topics.update(a=there)))
    world.tail.discover()
    assert known.hits and world.copied() == ["b-0", "b-1"] and not world.tail.gone  # nobody is sure
    del topics["a"]
    world.tail.discover()
    assert list(world.tail.gone) == ["a"]
    topics["a"] = there
    assert world.tail.discover() and not world.tail.gone
    assert world.copied() == ["a-0", "a-1", "b-0", "b-1"]


class Target:
    """Configs and partition counts of topics; ``asked`` are those that were looked at."""

    def __init__(self, **limits: int) -> None:
        self.limits, self.asked = limits, list[str]()

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        self.asked += names
        return {n: {"max.message.bytes": ConfigEntry(value=str(self.limits[n]))} for n in names}

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        return {n: TopicInfo(n, "id", 9, 1) for n in names}


@pytest.mark.parametrize(("partitioning", "counts"), [("preserve", {}), ("by_key", {"a": 7, "c": 9})])
def test_topics_that_join_are_copied_as_the_target_has_them(partitioning: str, counts: Mapping[str, int]) -> None:
    """Those that are there already are not asked again, though one has got partitions."""
    one = topic_plan("a", {0: 0}, source_topic_id="id-a")
    other = topic_plan("c", {0: 0}, source_topic_id="id-c", filler="tombstones")
    plan = plan_of(MIRROR, one)
    job = CopyJob(
        mirror=replace(MIRROR, partitioning=partitioning), source="s", target="t", plan=plan,
        options=CopyOptions(mirror="m", max_batch_bytes={"a": 5}, tombstone_topics=("x",)),
        key_partitions={"a": 7} if counts else {}, target_ids={"a": "id-before"},
    )  # fmt: skip
    more = replace(plan, topics=(replace(one, partitions=2), other))
    target = Target(c=50)
    after = taking_in(job, more, target, None)  # type: ignore[arg-type]
    assert after.plan is more and target.asked == ["c"]
    assert after.options.max_batch_bytes == {"a": 5, "c": 50} and after.options.tombstone_topics == ("x", "c")
    assert after.key_partitions == counts and after.target_ids == job.target_ids
    planned = replace(more, topics=(one, replace(other, key_partitions=4)))
    after = taking_in(job, planned, target, None)  # type: ignore[arg-type]
    assert after.key_partitions == (counts and {"a": 7, "c": 4}), "as when its copy began"


@pytest.mark.parametrize("configs", [{}, {"max.message.bytes": ConfigEntry(value=None)}])
def test_limit_that_a_broker_does_not_tell_is_the_default(
    configs: dict[str, ConfigEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(MIRROR, topic_plan("c", {0: 0}, source_topic_id="id-c"))
    job = CopyJob(
        mirror=MIRROR, source="s", target="t", plan=replace(plan, topics=()), options=CopyOptions(mirror="m")
    )  # fmt: skip
    target = Target()
    monkeypatch.setattr(target, "topic_configs", lambda names: dict.fromkeys(names, configs))
    assert taking_in(job, plan, target, None).options.max_batch_bytes == {}  # type: ignore[arg-type]


class LostLedger(MemoryLedger):
    """One of which decisions may be missing."""

    def values(self) -> NoReturn:
        raise LedgerLost("deleted")


@pytest.mark.parametrize("decided", [True, False, None])
def test_topics_that_join_are_known_by_the_id_as_which_they_were_claimed(decided: bool | None) -> None:
    """It may have been created again since. What is decided of an old one can't be told without ids, or is lost."""
    plan = plan_of(
        MIRROR, topic_plan("a", {0: 0}, source_topic_id="id-a"), topic_plan("c", {0: 0}, source_topic_id="id-c")
    )
    job = CopyJob(
        mirror=MIRROR, source="s", target="t", plan=replace(plan, topics=plan.topics[:1]),
        options=CopyOptions(mirror="m"), target_ids={"a": "id-before"},
    )  # fmt: skip
    ledger = MemoryLedger()
    if decided:
        was: Any = SimpleNamespace(topics=lambda names: {n: TopicInfo(n, "id-then", 9, 1) for n in names})
        claim(ledger, plan, was)
    elif decided is None:
        ledger = LostLedger()
    after = taking_in(job, plan, Target(c=50), ledger)  # type: ignore[arg-type]
    assert after.target_ids == {"a": "id-before", "c": "id-then" if decided else "id"}


def test_topic_that_joins_is_in_the_next_turn(world: World) -> None:
    """With its own way of being copied."""
    world.tail.discover()
    world.source.create("c")
    assert not world.tail.discover()
    world.target.create("c")
    job = world.tail.job
    plan = replace(job.plan, topics=(*job.plan.topics, world.planned("c", {0: 0})))
    options = replace(job.options, max_batch_bytes={"c": 5})
    world.tail.take_in(replace(job, plan=plan, options=options))
    assert world.tail.amended.is_set() and world.tail.discover()
    assert world.copied() == ["a-0", "a-1", "b-0", "b-1", "c-0"]
    assert world.tail.deal().options.max_batch_bytes == {"c": 5}


# --- what tasks that run may copy as well -----------------------------------------------------------------------------


def joined(world: World) -> list[str] | None:
    change = world.tail.discover()
    return None if change is None else [str(one.source) for one in change.joined]


def grown(world: World, partitions: int) -> None:
    world.source.grow("a", partitions)
    world.target.grow("a", partitions)


def test_new_partitions_join_before_the_first_deal_that_has_them(world: World) -> None:
    world.tail.discover()
    before = world.tail.deal().number
    grown(world, 4)
    change = world.tail.discover()
    assert change is not None and [str(one.source) for one in change.joined] == ["a-2", "a-3"]
    assert change.deal.number == before + 1
    assert {str(one.source) for part in change.deal.lists for one in part} == {"a-0", "a-1", "a-2", "a-3", "b-0", "b-1"}
    assert joined(world) is None


def test_what_an_earlier_deal_had_joins_no_tasks_that_run(world: World) -> None:
    """They may be of that deal, and one of them copies it: a second one would write beside it."""
    world.tail.discover()
    world.ended("b", error="b-1 offsets [0, 7): the source topic is gone", final=True, source_gone=True)
    there = world.source.topics.pop("b")
    assert joined(world) is None
    world.source.topics["b"] = there
    world.tail.gone.clear()
    assert joined(world) == [], "another turn has to begin"


def test_what_has_an_offset_map_joins_no_tasks_that_run(worlds: Callable[[str], World]) -> None:
    """Their store of maps knows from its start which ones it keeps."""
    world = worlds(MAPPED)
    world.tail.discover()
    grown(world, 3)
    assert joined(world) == []
