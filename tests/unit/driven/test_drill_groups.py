"""What a failover would do to real groups, on real logs; where the groups stand is stood in for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.errors import InputError, TopicsShared
from airflow_mirror.extras.drill import groups
from airflow_mirror.extras.drill.groups import GroupOutlook, look
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupInfo, GroupPosition
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import copy, errors, ranges_of
from tests.unit.plan.builders import a_mirror

T, MOVED = TopicPartition("t", 0), TopicPartition("moved", 0)
SELECTED = "app"  # what the names of selected groups begin with
PLAN = plan_of(
    a_mirror(name="m", groups=[f"{SELECTED}.*"]),
    topic_plan("t", {0: 0}, source_topic_id="t"),
    topic_plan("moved", {0: 0}, source_topic_id="moved", mode=MAPPED),
)
READS = {"Metadata", "ListOffsets", "Fetch", "ApiVersions", "DescribeCluster", "FindCoordinator", "OffsetFetch"}


class Admin(ClusterAdmin):
    """A cluster with groups that the test sets."""

    def __init__(self, cluster_id: str, config: ClientConfig) -> None:
        super().__init__(config, timeout_s=5)
        self.id, self.at, self.members = cluster_id, dict[str, dict[TopicPartition, int]](), set[str]()
        self.on_read: Callable[[], object] = lambda: None
        self.may_describe, self.sees_away = True, True

    def cluster_id(self) -> str:
        return self.id

    def groups(self, *, every: bool = False) -> list[GroupInfo]:
        return [GroupInfo(name, "Stable" if name in self.members else "Empty", "consumer") for name in self.at]

    def allowed_on_cluster(self) -> dict[int, Collection[str]]:  # type: ignore[override]
        return {1: ["DESCRIBE"] if self.may_describe else []}

    def unseen_groups(self, ids: Collection[str]) -> list[str]:
        return sorted(ids)

    def sees_group_coordinators(self) -> bool:
        return self.sees_away

    def groups_offsets(self, ids: Collection[str], only: Any = None) -> dict[str, dict[TopicPartition, GroupPosition]]:
        found = {name: {tp: GroupPosition(offset) for tp, offset in self.at[name].items()} for name in ids}
        self.on_read()
        return found


class World:
    """A target that holds ``t`` up to 21, with a marker at 13, and lacks what the source has beyond that."""

    def __init__(self, source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source_cluster, self.target_cluster, self.plan = source, target, PLAN
        for cluster in (source, target):
            writer = Writer(cluster.create("t").logs[0])
            writer.plain(10)
            writer.in_transaction(9, 3)
            writer.end(9, commit=True)
            writer.plain(7)
        Writer(source.topics["t"].logs[0]).plain(20)
        self.source, self.target = Admin("s", source.config), Admin("t", target.config)
        monkeypatch.setattr(groups, "mirror_of", lambda *_: (self.plan, None, None))

    def stands(self, group: str, here: int, there: int | None, tp: TopicPartition = T) -> None:
        self.source.at.setdefault(group, {})[tp] = here
        self.target.at.setdefault(group, {})
        if there is not None:
            self.target.at[group][tp] = there

    def look(self) -> dict[str, GroupOutlook]:
        found = {one.group: one for one in look("m", self.source, self.target).groups}
        for cluster in (self.source_cluster, self.target_cluster):
            assert {request.api for request in cluster.requests} <= READS, "it only reads"
        return found


@pytest.fixture
def world(source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    one = World(source, target, monkeypatch)
    yield one
    one.source.close()
    one.target.close()


def test_each_group_reads_again_what_the_target_holds_since_its_position(world: World) -> None:
    """Records, not offsets: the marker at 13 is read by nobody. What the target lacks is lost, and not read again."""
    world.stands("app-behind", 20, 10)
    world.stands("app-level", 21, 21)
    world.stands("app-beyond", 35, 18)
    world.stands("app-held", 41, 40)
    world.stands("app-further", 5, 9)
    world.stands("others", 20, 10)
    found = world.look()
    assert {g: (one.reread, one.skipped) for g, one in found.items()} == {
        "app-behind": (9, 0), "app-level": (0, 0), "app-beyond": (3, 0), "app-held": (0, 0), "app-further": (0, 4),
    }  # fmt: skip
    assert all(one.exact and not one.unplaced for one in found.values())
    assert list(found)[0] == "app-behind", "the one that loses most comes first"


def test_groups_that_can_not_be_positioned_are_named_with_the_reason(world: World) -> None:
    world.stands("app-new", 20, None)
    world.stands("app-busy", 41, 40)
    world.stands("app-old", 20, 2)
    world.target.members = {"app-busy"}
    world.target_cluster.topics["t"].logs[0].delete_records(5)
    found = world.look()
    assert {g: one.unplaced for g, one in found.items()} == {
        "app-new": ["t-0: no position on the target: auto.offset.reset decides"],
        "app-busy": ["t-0: beyond the target's end, and it has members there: nobody can set it"],
        "app-old": ["t-0: below what the target still has: auto.offset.reset decides"],
    }
    assert "auto.offset.reset decides" in str(found["app-new"])


def test_mapped_positions_are_compared_on_the_target(world: World) -> None:
    """Three records of somebody else come first there: its offset 8 is 5 on the source."""
    here, there = (cluster.create("moved") for cluster in (world.source_cluster, world.target_cluster))
    Writer(there.logs[0]).plain(3)
    Writer(here.logs[0]).plain(10)
    ranges = ranges_of(world.source_cluster, "moved", MAPPED)
    assert set(errors(copy(world.source_cluster, world.target_cluster, ranges)).values()) == {None}
    Writer(here.logs[0]).plain(4)
    world.source_cluster.requests.clear()
    world.target_cluster.requests.clear()
    world.stands("app-a", 9, 8, MOVED)
    world.stands("app-b", 14, 13, MOVED)
    found = world.look()
    assert {g: (one.reread, one.skipped) for g, one in found.items()} == {"app-a": (4, 0), "app-b": (0, 0)}


def test_mapped_partition_without_a_map_has_no_place(world: World) -> None:
    for cluster in (world.source_cluster, world.target_cluster):
        Writer(cluster.create("moved").logs[0]).plain(3)
    world.stands("app", 2, 1, MOVED)
    assert "moved-0: " in world.look()["app"].unplaced[0]


def test_group_that_moves_meanwhile_looks_further_back_never_less(world: World) -> None:
    world.stands("app", 14, 14)

    def move() -> None:
        for one in (world.source, world.target):
            one.at["app"][T] = 20

    world.target.on_read = move
    assert world.look()["app"].reread == 6


def test_long_ways_back_are_told_in_offsets(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads a million records to say that it is about a million."""
    monkeypatch.setattr(groups, "_COUNTED", 5)
    world.stands("app", 20, 10)
    one = world.look()["app"]
    assert (one.reread, one.exact) == (10, False) and "10 offsets read again" in str(one)


def test_groups_that_are_not_selected_are_listed(world: World) -> None:
    world.stands("others", 20, 10)
    world.stands("elsewhere", 20, 10, TopicPartition("unknown", 0))
    outlook = look("m", world.source, world.target)
    assert outlook.left_behind == ("others",)
    assert outlook.to_dict()["left_behind"] == {"count": 1, "first": ["others"]}


UNLISTED = "the source does not list it: it was deleted, or may not be seen"


def test_groups_of_the_plan_that_the_source_does_not_list_are_named(world: World) -> None:
    """The tail sees them, say, and the drill's principal may not describe them: it said that all is well."""
    world.plan = replace(PLAN, positions={name: {"t": {0: 12}} for name in ("app-gone", "app-here", "others")})
    world.stands("app-here", 20, None)
    world.target.at["app-gone"] = {T: 5}
    outlook = look("m", world.source, world.target)
    assert {one.group: one.unplaced for one in outlook.groups} == {
        "app-here": ["t-0: no position on the target: auto.offset.reset decides"], "app-gone": [UNLISTED],
    }  # fmt: skip
    assert [one.group for one in outlook.groups][-1] == "app-gone", "behind those that are there for certain"
    assert (outlook.to_dict()["count"], outlook.to_dict()["unplaced"], outlook.hidden) == (2, 2, ())


def test_group_that_the_mirror_names_and_nobody_may_see_is_named(world: World) -> None:
    """The plan could not see it either."""
    world.plan = replace(PLAN, mirror=a_mirror(name="m", groups=["billing", "app-here"]))
    world.stands("app-here", 20, 20)
    assert [*world.look()] == ["app-here"], "it is not there"
    world.source.may_describe = False
    outlook = look("m", world.source, world.target)
    assert {one.group: one.unplaced for one in outlook.groups} == {"app-here": [], "billing": [UNLISTED]}
    assert outlook.hidden == (), "nothing else is selected"


def test_sources_that_may_hide_groups_are_said_to(world: World) -> None:
    world.source.may_describe = world.source.sees_away = False
    outlook = look("m", world.source, world.target)
    assert outlook.to_dict()["hidden"] == list(outlook.hidden) == [
        "some groups of the source, perhaps: the principal lacks Describe on group *",
        "some groups of the source, perhaps: the principal lacks Describe on topic __consumer_offsets: a partition of it "
        "without a leader hides its groups",
    ]  # fmt: skip
    assert outlook.groups == ()


def test_mirror_of_another_source_or_with_shared_topics_is_refused(world: World) -> None:
    world.source.id = "x"
    with pytest.raises(InputError, match="mirror 'm' copies from cluster s: the drill's source is x"):
        world.look()
    shared = SimpleNamespace(mirror=SimpleNamespace(shares=True, name="m"))
    world.plan = shared  # type: ignore[assignment]
    with pytest.raises(TopicsShared):
        world.look()


def test_outlook_keeps_few_rows_and_counts_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_LISTED", 1)
    world.stands("app-a", 20, 10)
    world.stands("app-b", 20, None)
    found = look("m", world.source, world.target).to_dict()
    assert (found["count"], found["unplaced"], found["reread"], len(found["rows"])) == (2, 1, 9, 1)
