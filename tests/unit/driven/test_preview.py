"""What is seen before a fence is raised, on real logs and connections; groups and disks are stood in for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.offsets.map import Translated, Where
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.groups import commit_groups
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.preview import judge
from airflow_mirror.cutover.run import preview
from airflow_mirror.cutover.seen import look
from airflow_mirror.errors import CutoverCancelled, MirrorError, MissingRight
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import STREAMS, ConfigEntry, GroupInfo, GroupPosition, TopicInfo
from airflow_mirror.verify.remaining import verify_rest
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.script import Fault
from tests.unit.cutover.builders import Acls, AllAllowed, a_plan, a_run, want

T = TopicPartition("t", 0)
_MIN = {"min.insync.replicas": ConfigEntry(value="1")}


class Admin(AllAllowed, ClusterAdmin):
    """A cluster with groups, settings, disks and ACLs that the test sets."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config, timeout_s=5)
        self.positions: dict[str, dict[TopicPartition, GroupPosition]] = {}
        self.states: dict[str, str] = {}
        self.applications: dict[str, str] = {}
        self.rules = Acls(open_by_default=False)
        self.hidden = ""
        self.hides = False

    def topic_names(self) -> list[str]:
        return ["t"]

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, f"id-{name}", 1, 1) for name in names or ()}

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        return {name: {"cleanup.policy": ConfigEntry(value="delete"), **_MIN} for name in names}

    def usable_bytes(self) -> dict[int, int | None]:
        return {1: 10**12}

    def groups(self, *, every: bool = False) -> list[GroupInfo]:
        return [GroupInfo(name, "Stable", "consumer") for name in self.positions if not self.hides]

    def allowed_on_groups(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        return dict.fromkeys(names, frozenset[str]()) if self.hides else super().allowed_on_groups(names)

    def allowed_on_cluster(self) -> dict[str, frozenset[str]]:
        return {"kafka-cluster": frozenset()} if self.hides else super().allowed_on_cluster()

    def describe_groups(self, ids: Collection[str]) -> dict[str, GroupInfo]:
        return {
            n: GroupInfo(n, self.states.get(n, "Dead"), "consumer", application=self.applications.get(n, "")) for n in ids
        }

    def groups_offsets(
        self, ids: Collection[str], _only: object = None
    ) -> dict[str, dict[TopicPartition, GroupPosition]]:  # fmt: skip
        return {name: self.positions.get(name, {}) for name in ids}

    def transactions_hidden(self) -> str:
        return self.hidden


class World:
    """A run between two driven clusters, and a clock on which only waiting takes time."""

    def __init__(
        self, source: DrivenCluster, target: DrivenCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.log, self.there = source.create("t").logs[0], target.create("t").logs[0]
        self.source, self.target = source, target
        self.admins = Admin(source.config), Admin(target.config)
        self.run = a_run(tmp_path, CallableFence(lambda: None, lambda: None))
        want(self.run, plan=a_plan("t"))
        self.run.on.source.admin, self.run.on.target.admin = self.admins
        for side, admin in zip((self.run.on.source, self.run.on.target), self.admins, strict=True):
            side.log = admin.wire  # type: ignore[misc]
        want(self.run, limits=Limits(quiet_at_most_s=10.0, poll_s=1.0))
        want(self.run, verify=verify_rest(self.run.plan, source.config, target.config, {}))
        self.clock = 0.0
        self.each_s: Callable[[], object] = lambda: None
        monkeypatch.setattr(Attempt, "now", lambda _: self.clock)
        monkeypatch.setattr(Attempt, "pause", lambda run, seconds=None: self._pause(seconds or run.limits.poll_s))
        # What it compares with says how settings are, which the driven broker does not tell.
        monkeypatch.setattr("airflow_mirror.verify.remaining.ClusterAdmin", Admin)
        monkeypatch.setattr("airflow_mirror.verify.remaining.active_topics", lambda *_: set())

    def write(self, count: int, *, copied: bool = True) -> None:
        for cluster, log in [(self.source, self.log), (self.target, self.there)][: 1 + copied]:
            with cluster.changing():
                Writer(log).plain(count)

    def close(self) -> None:
        for admin in self.admins:
            admin.close()

    def _pause(self, seconds: float) -> None:
        self.clock += seconds
        self.each_s()


@pytest.fixture
def world(
    source: DrivenCluster, target: DrivenCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:  # fmt: skip
    made = World(source, target, tmp_path, monkeypatch)
    yield made
    made.close()


def verdicts(world: World) -> dict[str, str]:
    levels: dict[str, str] = {}
    for one in preview(world.run).findings:
        levels.setdefault(one.check, one.level)
    return levels


def test_rate_of_the_tail_says_how_long_the_rest_takes(world: World) -> None:
    """It copies ten a second; the source gets ten a second as well, and is thirty ahead."""
    world.write(10)
    world.write(30, copied=False)

    def second() -> None:
        world.write(10)

    world.each_s = second
    seen = look(world.run)
    assert (seen.behind, seen.offsets_per_s, seen.times.drain) == ({T: 30}, 10.0, 3.0)
    assert seen.written and not seen.stands and world.run.longest_pause_s == 1.0
    world.each_s = lambda: None
    seen = look(world.run)
    assert (list(seen.stands), seen.offsets_per_s, seen.times.drain) == ([T], 0.0, None)


def test_what_is_left_is_compared_to_know_how_long_it_takes(world: World) -> None:
    world.write(40)
    want(world.run, compared_to={T: 15})
    want(world.run, verify=verify_rest(world.run.plan, world.source.config, world.target.config, {T: 15}))
    world.write(5, copied=False)
    seen = look(world.run)
    assert seen.rest == 30 and seen.compared is not None
    assert (seen.compared.offsets, seen.compared.differences) == (25, [])
    with world.target.changing():
        Writer(world.there).plain(1, size=3)
    assert seen.times.verify is not None
    found = look(world.run).compared
    assert found is not None and found.differences and "t-0" in found.differences[0]


def test_producer_of_a_hanging_transaction_is_named(world: World) -> None:
    """It holds back the last stable offset, and no coordinator knows of it: nothing will ever end it."""
    world.write(3)
    world.run.fence = as_acl_fence(world)
    with world.source.changing():
        Writer(world.log).in_transaction(4711, 2, epoch=5)
    (one,) = look(world.run).holders
    assert (one.producer_id, one.epoch, list(one.partitions), one.hangs) == (4711, 5, [T], True)
    world.admins[0].hidden = "a right"
    seen = look(world.run)
    assert [one.hangs for one in seen.holders] == [False] and seen.unseen == "a right", "its coordinator can't be asked"


def test_transaction_that_its_coordinator_knows_does_not_hang(world: World) -> None:
    world.run.fence = as_acl_fence(world)
    producer_id, epoch = world.source.transactions.init("billing", 60_000)
    world.source.transactions.add("billing", producer_id, epoch, {T})
    with world.source.changing():
        Writer(world.log).in_transaction(producer_id, 2, epoch=epoch)
    (one,) = look(world.run).holders
    assert (one.name, one.producer_id, list(one.partitions), one.hangs) == ("billing", producer_id, [T], False)


def test_records_that_arrive_between_two_requests_hold_nothing(world: World) -> None:
    """A busy source: each time it is asked where its log ends, another record is there."""
    world.write(3)
    world.run.fence = as_acl_fence(world)
    rule = world.source.script.on("ListOffsets", Fault(before=lambda _: Writer(world.log).plain(1)), times=None)
    assert look(world.run).holders == [] and len(rule.hits) > 4


def test_next_transaction_of_the_same_producer_is_no_hanging_one(world: World) -> None:
    """The first one ends, and another one begins, when the coordinators are asked: neither was open all the time."""
    world.run.fence = as_acl_fence(world)
    with world.source.changing():
        Writer(world.log).in_transaction(4711, 2, epoch=5)

    def goes_on(_: object) -> None:
        Writer(world.log).end(4711, commit=True, epoch=5)
        Writer(world.log).in_transaction(4711, 2, epoch=5)

    world.source.script.on("ListTransactions", Fault(before=goes_on))
    assert look(world.run).holders == []


def as_acl_fence(world: World) -> Any:
    return AclFence(world.admins[0].rules)  # type: ignore[arg-type]


def test_what_can_not_be_asked_is_noted_but_no_stop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    error: MirrorError = MissingRight("read x", "CLUSTER_AUTHORIZATION_FAILED", "User:m")

    def asked() -> dict[int, int | None]:
        raise error

    monkeypatch.setattr(world.admins[1], "usable_bytes", asked)
    assert look(world.run).unknown == {"disk": error}
    error = CutoverCancelled("start")
    with pytest.raises(CutoverCancelled):
        look(world.run)


def test_group_that_stands_still_without_a_yes_is_named(world: World) -> None:
    """One that has read everything but a marker does not, nor one whose lag has just come."""
    world.write(10)
    for cluster, log in ((world.source, world.log), (world.target, world.there)):
        with cluster.changing():
            Writer(log).end(7, commit=True)
    source = world.admins[0]
    source.positions = {"still": {T: GroupPosition(4)}, "done": {T: GroupPosition(10)}}
    source.states = {"still": "Stable", "done": "Stable"}
    seen = look(world.run)
    assert seen.still == ["still (lag 7)"] and not seen.times.quiet
    (found,) = [f for f in judge(seen, world.run.limits)[0] if f.check == "groups"]
    assert found.level == "block" and "still (lag 7)" in found.evidence and "accept_still_groups" in found.remedy
    want(world.run, accept_still_groups=["still"])
    seen = look(world.run)
    assert (seen.still, seen.times.quiet) == ([], world.run.limits.group_quiet_s)
    want(world.run, accept_still_groups=[])
    source.positions["still"] = {T: GroupPosition(10)}
    world.each_s = lambda: world.write(1)
    assert not look(world.run).still


def test_streams_group_with_members_blocks_unless_the_fence_may_stop_it(world: World) -> None:
    world.write(10)
    source = world.admins[0]
    source.positions = {"totals": {T: GroupPosition(7)}, "sink": {T: GroupPosition(3)}}
    source.states, source.applications = {"totals": "Stable", "sink": "Empty"}, {"totals": STREAMS}
    want(world.run, accept_still_groups=["totals"])

    def groups() -> list[tuple[str, str]]:
        found, _ = judge(look(world.run), world.run.limits)
        return [(f.level, f.evidence) for f in found if f.check == "groups"]

    ((level, said),) = groups()
    assert level == "warn" and "totals (Kafka Streams)" in said, "a fence of one's own may scale it to 0"
    world.run.fence = as_acl_fence(world)
    assert [level for level, _ in groups()] == ["block"]
    want(world.run, leave_out_groups=["totals"])
    world.run.report.left_out = {"totals": "what that means"}
    assert groups() == [("warn", "left out by name: what that means")]


def test_groups_that_stand_still_are_waited_for(world: World) -> None:
    world.write(10)
    want(world.run, accept_still_groups=["g"])
    source = world.admins[0]
    source.positions, source.states = {"g": {T: GroupPosition(4)}}, {"g": "Stable"}
    assert (look(world.run).times.quiet, look(world.run).times.commits) == (world.run.limits.group_quiet_s, False)

    def commits() -> None:
        source.positions = {"g": {T: GroupPosition(5)}}

    world.each_s = commits
    times = look(world.run).times
    assert (times.quiet, times.commits) == (0.0, True)
    source.positions = {"g": {T: GroupPosition(10)}}
    world.each_s = lambda: None
    assert (look(world.run).times.quiet, look(world.run).times.commits) == (0.0, False), "it has read everything"
    source.positions, source.states = {"g": {T: GroupPosition(4)}}, {"g": "Empty"}
    assert (look(world.run).times.quiet, look(world.run).times.commits) == (0.0, False)


def test_group_nobody_is_in_is_watched_before_the_fence(world: World) -> None:
    """One whose position moves all the same is set by somebody who joins no group, and is waited for."""
    world.write(10)
    source = world.admins[0]
    source.positions = {"left": {T: GroupPosition(4)}, "read": {T: GroupPosition(10)}, "set": {T: GroupPosition(2)}}
    source.states = dict.fromkeys(source.positions, "Empty")

    def sets() -> None:
        source.positions["set"] = {T: GroupPosition(3)}

    world.each_s = sets
    assert look(world.run).times.quiet == world.run.limits.group_quiet_s
    assert [(group, at[T].offset) for group, (at, _) in world.run.seen_empty.items()] == [("left", 4)]


def test_position_below_the_copy_without_counterpart_is_found(world: World) -> None:
    world.write(10)
    world.admins[0].positions = {"g": {T: GroupPosition(2)}, "h": {T: GroupPosition(10)}}
    assert not look(world.run).untranslated
    with world.target.changing():
        world.there.log_start = 5
    (line,) = look(world.run).untranslated
    assert "group 'g' at t-0 offset 2" in line


def test_position_beyond_the_source_is_found(world: World) -> None:
    """Left by a log that was cut: no copy ever reaches it, and each fence would have come down again for it."""
    world.write(10)
    world.write(2, copied=False)
    world.admins[0].positions = {"g": {T: GroupPosition(13)}, "h": {T: GroupPosition(12)}}
    (line,) = look(world.run).untranslated
    assert "group 'g' at t-0 offset 13" in line, "the copy reaches the other one"
    (found,) = [f for f in judge(look(world.run), world.run.limits)[0] if f.check == "groups"]
    assert found.level == "block"


def test_mapped_position_is_compared_with_what_is_copied_of_the_source(world: World) -> None:
    """Its offset on the target is another one, and may be above all that was copied, by the source's offsets."""
    world.write(10)
    (topic,) = world.run.plan.topics
    want(world.run, plan=replace(world.run.plan, topics=(replace(topic, mode="mapped"),)))
    want(world.run, tail_positions=lambda: {T: 5}, translate_offset=lambda _, at: Translated(at + 90, Where.RECORD))
    world.admins[0].positions = {"g": {T: GroupPosition(2)}, "h": {T: GroupPosition(7)}}
    (line,) = look(world.run).untranslated
    assert "group 'g' at t-0 offset 92: the target holds [0, 10]" in line


def test_preview_lists_all_refusals_and_changes_nothing(world: World) -> None:
    world.write(10)
    before = verdicts(world)
    assert before["plan"] == before["fence_rights"] == "pass" and before["tail"] == "warn"
    world.write(5, copied=False)
    world.admins[0].positions = {"g": {T: GroupPosition(2)}}
    world.admins[1].states = {"g": "Stable"}
    world.admins[0].rules = Acls(authorizer=False)
    world.run.fence = as_acl_fence(world)
    found = preview(world.run)
    assert [f.check for f in found.blocks] == ["group_positions", "tail_runs", "fence_rights"]
    assert found.forecast is None and "has members" in str(found.blocks[0]), found.lines()
    assert not [r for one in (world.source, world.target) for r in one.asked("Produce", "InitProducerId")]


@pytest.mark.parametrize(
    ("side", "name", "operation", "level"),
    [
        (0, "t", "READ", "block"),
        (1, "t", "READ", "block"),
        (1, "g", "READ", "block"),
        (1, "g", "DELETE", "warn"),
        (1, "airflow-mirror.decisions", "WRITE", "block"),
        (0, "g", "DELETE", "pass"),  # not needed there
    ],
)
def test_right_that_a_cutover_needs_is_asked_of_each_side(
    world: World, side: int, name: str, operation: str, level: str
) -> None:
    world.admins[0].positions["g"] = {T: GroupPosition(0, "")}
    assert verdicts(world)["rights"] == "pass"
    world.admins[side].denied = {(name, operation)}
    assert verdicts(world)["rights"] == level


def test_groups_that_the_source_hides_are_not_taken_for_none(world: World) -> None:
    """Kafka lists none without DESCRIBE, and says no error: the target would have opened without their positions."""
    world.write(10)
    source = world.admins[0]
    want(world.run, plan=replace(a_plan("t"), positions={"g": {"t": {0: 2}}, "h": {"t": {0: 3}}}))
    source.positions = {"g": {T: GroupPosition(4)}, "h": {T: GroupPosition(4)}}
    assert (verdicts(world)["groups"], verdicts(world)["rights"]) == ("pass", "pass")
    del source.positions["g"]
    (found,) = [f for f in judge(look(world.run), world.run.limits)[0] if f.check == "groups"]
    assert found.level == "warn" and "the source has none now: g" in found.evidence, "it may have expired"
    source.hides = True
    found, rights = [f for f in judge(look(world.run), world.run.limits)[0] if f.check in ("groups", "rights")]
    assert (found.level, rights.level) == ("block", "block") and "g, h" in found.evidence
    assert "DESCRIBE is not allowed to the mirror on group *" in rights.evidence
    want(world.run, plan=a_plan("t"))
    world.run.seen_groups.clear()  # as in a run of its own
    assert (verdicts(world)["groups"], verdicts(world)["rights"]) == ("pass", "block"), "whatever the plan knows"


def test_group_that_was_seen_before_the_fence_is_missed_behind_it(world: World) -> None:
    """It is younger than the plan, and the source hides it from then on: it would have been left without a word."""
    world.write(10)
    world.admins[0].positions = {"g": {T: GroupPosition(10)}}
    assert preview(world.run).forecast
    world.admins[0].hides = True
    with pytest.raises(MissingRight, match="list group 'g'"):
        commit_groups(world.run)


@pytest.mark.parametrize("named", [False, True], ids=["the plan knows it", "the mirror names it"])
def test_group_that_the_source_hides_can_be_left_out_by_name(world: World, named: bool) -> None:
    """Nobody could have gone on without it: of a group that is not listed, it was said that there is none."""
    world.write(10)
    source = world.admins[0]
    source.positions, source.denied = {"h": {T: GroupPosition(10)}}, {("kafka-cluster", "DESCRIBE"), ("g", "DESCRIBE")}
    plan = a_plan("t")
    mirror = replace(plan.mirror, groups=("g", "h")) if named else plan.mirror
    want(world.run, plan=replace(plan, mirror=mirror, positions={} if named else {"g": {"t": {0: 2}}}))
    assert {f.check for f in preview(world.run).blocks} == {"rights" if named else "groups"}
    want(world.run, leave_out_groups=["g"])
    found = preview(world.run)
    assert not found.blocks and "group 'g': left out by name" in str(found.lines())


def test_rules_for_the_groups_of_the_mirror_alone_are_enough(world: World) -> None:
    """Brokers don't tell what a prefix covers: of others that it may see nothing of, a person has to know."""
    world.write(10)
    source, unseen = world.admins[0], frozenset[str]()
    source.positions, source.denied = {"app-1": {T: GroupPosition(4)}}, {("kafka-cluster", "DESCRIBE")}
    source.allowed_on_groups = lambda names: {  # type: ignore[method-assign]
        name: frozenset(["DESCRIBE"]) if name.startswith("app-") else unseen for name in names
    }
    assert verdicts(world)["rights"] == "warn"
    mirror = replace(world.run.plan.mirror, groups=("app-1", "app-2"))
    want(world.run, plan=replace(world.run.plan, mirror=mirror))
    assert verdicts(world)["rights"] == "pass", "named, each can be asked for"
    want(world.run, plan=replace(world.run.plan, mirror=replace(mirror, groups=("app-1", "other"))))
    assert verdicts(world)["rights"] == "block"
