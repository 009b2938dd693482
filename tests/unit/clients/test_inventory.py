"""Who is listed, who is ticked off, and who is waited for."""

from __future__ import annotations

import json
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer.identity import data_producer_id
from airflow_mirror.cutover.report import BACKED_OUT, DONE, CutoverReport, FenceRecord, GroupRecord
from airflow_mirror.errors import ClusterUnreachable, TryAgain
from airflow_mirror.extras.clients import inventory
from airflow_mirror.extras.clients.commits import BEFORE, BY, Commits
from airflow_mirror.extras.clients.inventory import COMMITTED, NOT_YET, READS, UNTOLD, WRITES, Inventory, Members
from airflow_mirror.kafka.model import GroupInfo, GroupPosition, TopicInfo
from airflow_mirror.mirror import Mirror
from airflow_mirror.wire.errors import ApiNotServed
from airflow_mirror.wire.topology import ProducerState
from tests.builders import plan_of, topic_plan

PLAN = plan_of(Mirror(name="m", source="s", target="t"), topic_plan("orders", {0: 0}, source_topic_id="id"))
ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 0)
OPENED_S = 1_000.0


class Side:
    """One cluster: groups with their states and offsets, and what the leader of the one partition remembers."""

    def __init__(self) -> None:
        self.config, self.wire, self.role = SimpleNamespace(), self, "source"
        self.allowed, self.on_cluster = frozenset({"DESCRIBE", "READ"}), frozenset[str]()
        self.states: dict[str, str] = {}
        self.share: set[str] = set()
        self.offsets: dict[str, int] = {}
        self.read = ORDERS  # in what groups have positions
        self.members: dict[str, Members] = {}  # of a group that has more to say than one client
        self.wrote: list[ProducerState] = []
        self.ids: dict[int, str] = {}
        self.hidden, self.coordinated = "", True
        self.away: set[str] = set()

    def groups(self, *, every: bool) -> list[GroupInfo]:
        if "groups" in self.away:
            raise TryAgain("no")
        return [
            GroupInfo(name, state, kind, group_type="share" if kind == "share" else "")
            for name, state in self.states.items()
            for kind in ["share" if name in self.share else "consumer"]
        ]

    def describe_groups(self, ids: Collection[str]) -> dict[str, GroupInfo]:
        return {name: GroupInfo(name, self.states.get(name, "Dead"), "consumer") for name in ids}

    def sees_group_coordinators(self) -> bool:
        return self.coordinated

    def unseen_groups(self, ids: Collection[str]) -> list[str]:
        return [] if "DESCRIBE" in self.allowed else sorted(ids)

    def allowed_on_cluster(self) -> dict[str, frozenset[str]]:
        if "rights" in self.away:
            raise ApiNotServed("old:9092", "authorized operations (KIP-430)", 0, None)
        return {"kafka-cluster": self.on_cluster}

    def group_states(self, ids: Collection[str]) -> dict[str, str]:
        return {name: one.state for name, one in self.describe_groups(ids).items()}

    def groups_offsets(self, ids: Collection[str]) -> dict[str, dict[TopicPartition, GroupPosition]]:
        return {n: {self.read: GroupPosition(self.offsets[n])} if n in self.offsets else {} for n in ids}

    def topic_names(self) -> list[str]:
        return ["orders", "users"]

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        if "commits" in self.away:
            raise TryAgain("not allowed")
        return {}

    def describe_producers(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, list[ProducerState]]:
        if "producers" in self.away:
            raise TryAgain("no")
        return {tp: self.wrote if tp == ORDERS else [] for tp in tps}

    def high_watermarks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        assert not tps, "these reports have no ends: the times of records tell"
        return {}

    def transactional_ids(self) -> dict[int, str]:
        return self.ids

    def transactions_hidden(self) -> str:
        return self.hidden

    def writes(self, producer_id: int, at_ms: int, name: str = "", txn_start: int = -1) -> None:
        self.wrote.append(ProducerState(producer_id, 0, 5, at_ms, txn_start))
        if name:
            self.ids[producer_id] = name


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> tuple[Side, Side]:
    old = Side()

    def members_of(_: object, names: Collection[str], failed: list[str]) -> dict[str, Members]:
        return {name: old.members.get(name, Members([f"{name}-1 at 10.0.0.7"], set())) for name in names}

    monkeypatch.setattr(inventory, "members_of", members_of)
    return old, Side()


def report(outcome: str = DONE, groups: str = "abc") -> CutoverReport:
    """Return the report of a cutover that has moved groups of one letter each."""
    moved = [{"topic": "orders", "partition": 0, "source_offset": 7, "target_topic": "orders", "target_offset": 7}]
    found = CutoverReport(mirror="m", plan_hash=PLAN.hash)
    found.groups = [GroupRecord(group=name, settled="empty", source_state="Empty", positions=moved) for name in groups]
    found.fence = FenceRecord(kind="acl", name="acl", intent={}, requested=900.0, opened=OPENED_S)
    found.outcome = outcome
    return found


def look(sides: tuple[Side, Side], given: CutoverReport | None = None) -> Inventory:
    return inventory.look(PLAN, *sides, given)  # type: ignore[arg-type]


def test_before_a_cutover_nobody_is_waited_for(sides: tuple[Side, Side]) -> None:
    old, _ = sides
    old.states, old.offsets = {"a": "Stable", "b": "Empty", "elsewhere": "Stable"}, {"a": 5, "b": 7}
    old.writes(11, 990_000, "tx")
    old.writes(12, 990_000)
    old.writes(data_producer_id("m", ORDERS), 990_000)  # a mirror that copies to the source is no client
    for given in (None, report(BACKED_OUT)):
        found = look(sides, given)
        assert [(one.group, one.state, one.clients) for one in found.readers] == [
            ("a", "Stable", ["a-1 at 10.0.0.7"]), ("b", "Empty", ()),
        ]  # fmt: skip
        assert [(one.name, one.producer_id, one.transactional, one.topics, one.waves) for one in found.writers] == [
            ("tx", 11, True, ["orders"], [1]), ("producer 12", 12, False, ["orders"], [1]),
        ]  # fmt: skip
        assert found.opened_ms == 0 and found.waiting == [] and found.unseen == []


def test_who_reads_and_writes_stands_by_wave(sides: tuple[Side, Side]) -> None:
    """A group that the mirror leaves moves in none; one with members and no position reads what these are assigned."""
    topics = (topic_plan(name, {0: 0}, source_topic_id=name) for name in ("orders", "users"))
    plan = plan_of(Mirror(name="m", source="s", target="t", exclude_groups=("left",)), *topics)
    old, new = sides
    old.states, old.offsets = {"a": "Empty", "left": "Empty", "new": "Stable", "idle": "Stable"}, {"a": 7, "left": 7}
    old.members = {"new": Members(["n at h"], {"users", "not ours"}), "idle": Members(["i at h"], set())}
    old.writes(11, 990_000, "tx")
    found = inventory.look(plan, old, new, None)  # type: ignore[arg-type]
    assert [(one.group, one.wave, one.topics) for one in found.readers] == [
        ("a", 1, ["orders"]), ("new", 2, ["users"]), ("left", 0, ["orders"]),
    ]  # fmt: skip
    old.members["new"] = Members(["n at h"], {"orders", "users"})  # they move together
    found = inventory.look(plan, old, new, None)  # type: ignore[arg-type]
    assert [(one.group, one.wave) for one in found.readers] == [("a", 1), ("new", 1), ("left", 0)]
    assert [(one.name, one.waves) for one in found.writers] == [("tx", [1])]


def test_share_group_with_members_is_named_since_nobody_tells_what_it_reads(sides: tuple[Side, Side]) -> None:
    """Whether it concerns the mirror is not known: it is said, and nobody is waited for."""
    old, _ = sides
    old.states, old.offsets = {"a": "Stable", "sharers": "Stable", "left": "Empty"}, {"a": 7}
    old.share |= {"sharers", "left"}
    found = look(sides)
    assert found.untold == f"{UNTOLD}; which topics are read by share groups with members: 'sharers'"
    assert [one.group for one in found.readers] == ["a"] and found.unseen == []


def test_last_commits_are_told_by_two_looks_where_no_log_tells_and_that_is_said(sides: tuple[Side, Side]) -> None:
    old, new = sides
    old.states, old.offsets = {"a": "Stable", "b": "Empty"}, {"a": 5, "b": 7}
    old.away.add("commits")
    commits = Commits()
    first = inventory.look(PLAN, old, new, None, commits)  # type: ignore[arg-type]
    assert [one.commit_is for one in first.readers] == ["", ""] and first.unseen == []
    assert first.untold.endswith("when groups committed last, but between two looks: not allowed")
    old.offsets["a"] = 6
    second = inventory.look(PLAN, old, new, None, commits)  # type: ignore[arg-type]
    assert [(one.commit_is, one.commit_ms) for one in second.readers] == [(BY, second.at_ms), (BEFORE, first.at_ms)]
    third = inventory.look(PLAN, old, new, None, commits)  # type: ignore[arg-type]
    assert [(one.commit_is, one.commit_ms) for one in third.readers] == [(BY, second.at_ms), (BEFORE, first.at_ms)]


def test_who_was_seen_on_the_target_since_is_ticked_off(sides: tuple[Side, Side]) -> None:
    old, new = sides
    old.states, old.offsets = {"a": "Empty", "b": "Empty", "c": "Empty"}, {"a": 7, "b": 7, "c": 7}
    new.states, new.offsets = {"a": "Stable", "b": "Empty", "c": "Empty"}, {"a": 7, "b": 8, "c": 7}
    old.writes(11, 990_000, "came")
    old.writes(12, 990_000, "not")
    old.writes(13, 990_000)
    new.writes(7, 1_000_500, "came")
    new.writes(8, 1_000_500)
    new.writes(data_producer_id("m", ORDERS), 990_000)
    found = look(sides, report())
    assert {one.group: one.on_target for one in found.readers} == {"a": READS, "b": COMMITTED, "c": NOT_YET}
    assert {one.name: one.on_target for one in found.writers} == {"came": WRITES, "not": NOT_YET, "producer 13": ""}
    assert found.waiting == ["group 'c' has not come to the target", "not has not come to the target"]
    assert found.newcomers == 1
    new.states["c"] = "Stable"
    new.writes(9, 1_000_900, "not")
    assert look(sides, report()).waiting == []


def test_who_wrote_to_the_target_before_it_was_opened_has_not_come(sides: tuple[Side, Side]) -> None:
    """Leaders still remember who had come with a cutover that was rolled back since."""
    old, new = sides
    old.writes(11, 995_000, "came")
    new.writes(7, 990_000, "came")
    new.writes(8, 990_000)
    found = look(sides, report(groups=""))
    assert found.waiting == ["came has not come to the target"] and found.newcomers == 0


def test_a_group_that_the_source_has_forgotten_is_waited_for(sides: tuple[Side, Side]) -> None:
    """Positions of a group that nobody is in expire on the source after a week, wherever its application is."""
    old, new = sides
    old.states, old.offsets = {"a": "Empty"}, {"a": 7}
    new.states, new.offsets = {"a": "Stable", "b": "Empty", "c": "Empty"}, {"a": 7, "b": 8, "c": 7}
    found = look(sides, report())
    assert [(one.group, one.state, one.topics, one.on_target) for one in found.readers] == [
        ("a", "Empty", ["orders"], READS), ("b", "Dead", ["orders"], COMMITTED), ("c", "Dead", ["orders"], NOT_YET),
    ]  # fmt: skip
    assert found.waiting == ["group 'c' has not come to the target"]
    assert [one.group for one in look(sides, report(BACKED_OUT)).readers] == ["a"]


@pytest.mark.parametrize("read", [ORDERS, TopicPartition("of another application", 0)])
def test_a_group_that_was_not_moved_has_come_only_with_members(sides: tuple[Side, Side], read: TopicPartition) -> None:
    """Its positions on the target are the tail's, which lets groups follow, or of topics that were there before."""
    old, new = sides
    old.states, old.offsets = {"x": "Empty"}, {"x": 7}
    new.states, new.offsets, new.read = {"x": "Empty"}, {"x": 7}, read
    assert look(sides, report(groups="")).waiting == ["group 'x' has not come to the target"]
    new.states["x"] = "Stable"
    assert look(sides, report(groups="")).waiting == []


def test_a_group_that_was_left_out_is_waited_for_when_the_source_has_forgotten_it(sides: tuple[Side, Side]) -> None:
    given = report(groups="a")
    given.left_out = {"x": "its positions are not moved"}
    assert [(one.group, one.topics, one.wave) for one in look(sides, given).readers] == [
        ("a", ["orders"], 1), ("x", [], 0),
    ]  # fmt: skip
    assert look(sides, given).waiting[-1] == "group 'x' has not come to the target"


def test_who_is_still_on_the_source_is_waited_for_wherever_else_it_is(sides: tuple[Side, Side]) -> None:
    old, new = sides
    old.states, old.offsets = {"a": "Stable"}, {"a": 7}
    new.states, new.offsets = {"a": "Stable"}, {"a": 9}
    old.writes(11, 1_000_001, "tx")
    old.writes(12, 999_000, "open", txn_start=3)
    old.writes(13, 1_000_001)
    for producer_id, name in ((1, "tx"), (2, "open")):
        new.writes(producer_id, 1_000_500, name)
    assert look(sides, report(groups="a")).waiting == [
        "group 'a' has members on the source: a-1 at 10.0.0.7",
        "tx has written to the source since the target was opened",
        "producer 13 has written to the source since the target was opened",
        "open has written to the source since the target was opened",
    ]


def test_what_could_not_be_read_ticks_nobody_off(sides: tuple[Side, Side]) -> None:
    old, new = sides
    old.writes(11, 990_000, "tx")
    new.away.add("producers")
    found = look(sides, report())
    assert [one.on_target for one in found.writers] == [""] and found.unseen == ["producers of the target: no"]


def test_source_that_does_not_list_its_groups_has_forgotten_none(sides: tuple[Side, Side]) -> None:
    """Who has members on both sides would be ticked off: a group that is forgotten has none on the source."""
    old, new = sides
    old.states, old.offsets = {"a": "Stable"}, {"a": 7}
    new.states, new.offsets = {"a": "Stable"}, {"a": 9}
    assert look(sides, report(groups="a")).unanswered == []
    old.away.add("groups")
    found = look(sides, report(groups="a"))
    assert found.readers == [] and found.unanswered == ["groups"] and found.unseen == ["groups: no"]


def test_ids_that_may_be_hidden_are_told_of_either_side(sides: tuple[Side, Side]) -> None:
    old, new = sides
    old.writes(11, 990_000)  # its id is hidden: it looks like a producer without one
    old.hidden, new.hidden = "lacks Describe", "brokers refuse"
    found = look(sides, report(groups=""))
    assert found.waiting == [] and found.unseen == [
        "some transactional ids of producers, perhaps: lacks Describe",
        "some transactional ids of the target, perhaps: brokers refuse",
    ]


def test_groups_that_may_be_hidden_are_told(sides: tuple[Side, Side]) -> None:
    """Kafka lists those that the principal may describe: none, if it has no right, and without an error."""
    old, _ = sides
    assert look(sides, report(groups="")).unseen == []
    old.allowed = frozenset()
    found = look(sides, report(groups=""))
    assert found.waiting == [] and found.unseen == [
        "some groups of the source, perhaps: the principal lacks Describe on group *"
    ]
    old.on_cluster = frozenset({"DESCRIBE"})
    assert look(sides, report(groups="")).unseen == [], "it is told of each group"
    old.coordinated = False
    (line,) = look(sides, report(groups="")).unseen
    assert line.startswith("some groups of the source, perhaps: the principal lacks Describe on topic __consumer_offsets")
    old.coordinated, old.on_cluster = True, frozenset()
    old.away.add("rights")
    assert look(sides, report(groups="")).unseen == [], "brokers before 2.3 do not tell"


def test_report_of_a_cutover_gets_an_inventory_and_never_an_error(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = sides
    old.states, old.offsets = {"a": "Empty"}, {"a": 7}
    on: Any = SimpleNamespace(source=SimpleNamespace(admin=old), target=SimpleNamespace(admin=new))
    ask = inventory.clients_of(PLAN, SimpleNamespace(on=on))  # type: ignore[arg-type]
    before = json.loads(json.dumps(ask(CutoverReport(mirror="m", plan_hash=PLAN.hash))))
    assert [one["group"] for one in before["readers"]] == ["a"] and before["opened_ms"] == 0
    assert ask(report(groups="a"))["waiting"] == ["group 'a' has not come to the target"]

    def away(*_: object) -> None:
        raise ClusterUnreachable("source", "old:9092", "it is gone")

    monkeypatch.setattr(inventory, "look", away)
    found = ask(report())
    assert found["readers"] == [] and "it is gone" in found["unseen"][0]
