"""What is seen before the night, on real logs and connections; groups and settings are stood in for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import ClusterUnreachable, MissingRight
from airflow_mirror.extras.readiness import logs
from airflow_mirror.extras.readiness.look import ReadinessFacts, look
from airflow_mirror.kafka import session
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import STREAMS, ConfigEntry, GroupInfo, GroupPosition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.builders import plan_of, topic_plan
from tests.driven import records
from tests.driven.cluster import DrivenCluster
from tests.driven.content import TIME_MS, Writer, row
from tests.driven.script import Fault
from tests.unit.plan.builders import a_mirror

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PLAN = plan_of(a_mirror(), topic_plan("t", {0: 0, 1: 0}, source_topic_id="id"))


class Admin(ClusterAdmin):
    """A cluster with the groups and settings that the test sets."""

    settings = {"retention.ms": "1000000", "segment.bytes": "500"}

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        return {name: {key: ConfigEntry(value=value) for key, value in self.settings.items()} for name in names}

    def groups(self, **_: Any) -> list[GroupInfo]:
        return [
            GroupInfo("billing", "Empty", "consumer"),
            GroupInfo("counts", "Stable", "consumer", group_type="classic"),
        ]

    def describe_groups(self, ids: Collection[str]) -> dict[str, GroupInfo]:
        assert "billing" not in ids, "nobody is in it"
        return {name: GroupInfo(name, "Stable", "consumer", application=STREAMS) for name in ids}

    def groups_offsets(self, ids: Collection[str], only: Any = None) -> dict[str, dict[TopicPartition, GroupPosition]]:
        return {name: {T0: GroupPosition(5)} for name in ids}


class World:
    """Two clusters with a topic of two partitions."""

    def __init__(self, source: DrivenCluster, target: DrivenCluster) -> None:
        self.source, self.target = source, target
        self.log, self.there = source.create("t", 2).logs, target.create("t", 2).logs
        self.admins = Admin(source.config, timeout_s=60), Admin(target.config, timeout_s=60)
        self.meanwhile: Callable[[], None] = lambda: None

    def write(self, count: int, partition: int = 0, *, copied: int | None = None) -> None:
        for cluster, log, number in (
            (self.source, self.log, count), (self.target, self.there, count if copied is None else copied)
        ):  # fmt: skip
            if number:
                with cluster.changing():
                    Writer(log[partition]).plain(number)

    def close(self) -> None:
        for admin in self.admins:
            admin.close()

    def look(self, plan: Any = PLAN, mapped: Callable[[], Any] = dict) -> ReadinessFacts:
        return look(plan, *self.admins, mapped, pause=lambda _: self.meanwhile())


@pytest.fixture
def world(source: DrivenCluster, target: DrivenCluster) -> Iterator[World]:
    made = World(source, target)
    yield made
    made.close()


def test_rates_are_what_happens_between_two_looks(world: World) -> None:
    world.write(30, copied=10)
    world.write(5, 1, copied=0)
    world.meanwhile = lambda: world.write(40, copied=20)
    found = world.look().logs
    first, second = found[T0], found[T1]
    assert (first.start, first.end, first.position) == (0, 70, 30)
    assert first.copied_per_s is not None and first.produced_per_s == pytest.approx(2 * first.copied_per_s)
    assert (second.end, second.position, second.produced_per_s, second.copied_per_s) == (5, 0, 0.0, None)


def test_members_say_what_application_a_group_is(world: World) -> None:
    """A Streams application without state has no internal topics."""
    told = [(one.group_id, one.group_type, one.application) for one in world.look().groups]
    assert told == [("billing", "", ""), ("counts", "classic", STREAMS)]


def test_mapped_partitions_are_where_their_map_ends(world: World) -> None:
    world.write(30, copied=29)
    plan = plan_of(a_mirror(), topic_plan("t", {0: 0}, source_topic_id="id", mode="mapped"))
    assert world.look(plan, lambda: {T0: 7}).logs[T0].position == 7
    assert world.look(plan).logs[T0].position == 0, "its copy has not begun"

    def hidden() -> Any:
        raise MissingRight("read the map", "TOPIC_AUTHORIZATION_FAILED", "User:me")

    seen = world.look(plan, hidden)
    assert seen.logs == {} and [line.partition(":")[0] for line in seen.unseen] == [
        "how far topics with mapped offsets are copied"
    ]


def test_what_is_not_begun_is_at_the_plans_start(world: World) -> None:
    """As with ``start="latest"``, or where a log's beginning is primed later."""
    world.write(30, copied=0)
    plan = plan_of(a_mirror(), topic_plan("t", {0: 20}, source_topic_id="id"))
    assert world.look(plan).logs[T0].position == 20


def test_what_retention_deletes_before_a_copy_begins_is_not_lost(world: World) -> None:
    """Between plan and look as well."""
    world.write(30, copied=0)
    with world.source.changing():
        world.log[0].delete_records(20)
    assert (world.look().logs[T0].start, world.look().logs[T0].position) == (20, 20)
    with world.target.changing():
        world.there[0].begin_at(10)  # it was primed
    assert world.look().logs[T0].position == 20


def test_a_position_below_the_log_start_is_told(world: World) -> None:
    world.write(30, copied=10)
    with world.source.changing():
        world.log[0].delete_records(20)
    assert (world.look().logs[T0].start, world.look().logs[T0].position) == (20, 10)


def test_times_say_what_retention_keeps_when(world: World) -> None:
    """An offset each second; a hundred seconds are kept."""
    with world.source.changing():
        rows = [row(offset)._replace(timestamp=TIME_MS + offset * 1000) for offset in range(200)]
        world.log[0].lay(records.encode(rows, leader_epoch=world.log[0].epoch))
    limits = {"t": logs.limits_of({"retention.ms": ConfigEntry(value="100000")})}
    found = logs.expiring(world.admins[0], {T0: 200, T1: 0}, limits, TIME_MS + 180_000)
    assert found[T0][0] == (0.0, 80) and (25.0, 105) in found[T0] and found[T0][-1] == (100.0, 200)
    assert {offset for _, offset in found[T1]} == {0}
    beginning = logs.expiring(world.admins[0], {T0: 200}, limits, 30_000)[T0]
    assert beginning[0][0] > 70.0, "a time before 1970 would ask for an end"


def test_sizes_of_logs_make_offsets_of_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admin, "settings", {"retention.bytes": "1000", "segment.bytes": "500"})
    world.write(50)
    size = world.admins[0].wire.log_sizes([T0])[T0]
    found = world.look().logs[T0]
    assert found.room == pytest.approx(1000 * 50 / size) and found.segment == pytest.approx(500 * 50 / size)


def test_local_part_of_a_tiered_log_is_not_taken_for_all_of_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers have a tenth of it on their disks: retention.bytes seemed to keep ten times as many offsets."""
    settings = {"retention.bytes": "1000", "segment.bytes": "500", "remote.storage.enable": "true"}
    monkeypatch.setattr(Admin, "settings", settings)
    world.write(50)
    wire = world.admins[0].wire
    whole = wire.log_sizes([T0])[T0]
    monkeypatch.setattr(wire, "log_sizes", lambda tps: {tp: whole // 10 if tp == T0 else 0 for tp in tps})
    seen = world.look()
    assert seen.sizes[T0] == pytest.approx(whole, rel=0.1) and seen.sizes[T1] == 0
    assert seen.logs[T0].room == pytest.approx(1000 * 50 / whole, rel=0.1)
    world.source.script.on("Fetch", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
    unread = world.look()
    assert T0 not in unread.sizes and unread.logs[T0].room is None and unread.logs[T0].offset_bytes is None


def test_what_may_not_be_read_is_listed_and_nothing_else_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def groups(*_: Any, **__: Any) -> Any:
        raise MissingRight("list groups", "GROUP_AUTHORIZATION_FAILED", "User:me")

    monkeypatch.setattr(Admin, "groups", groups)
    world.write(10)
    world.source.script.on("DescribeLogDirs", Fault.refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    seen = world.look()
    assert [line.partition(":")[0] for line in seen.unseen] == ["groups", "sizes of logs"]
    assert seen.groups == [] and seen.logs[T0].segment is None and seen.logs[T1].end == 0


def test_producers_are_told_with_their_transactional_ids(world: World) -> None:
    identity = world.source.transactions.init("tx", 60_000)
    world.source.transactions.init("idle", 60_000)
    with world.source.changing():
        writer = Writer(world.log[1])
        writer.idempotent(77, 2)
        writer.in_transaction(identity[0], 3)
    seen = world.look()
    assert {one.producer_id for one in seen.producers[T1]} == {77, identity[0]} and seen.producers[T0] == []
    assert seen.transactional_ids[identity[0]] == "tx" and "idle" in seen.transactional_ids.values()
    assert seen.unseen == []


def test_ids_that_may_not_be_described_are_said_to_be_missing(world: World) -> None:
    world.source.script.on("DescribeTransactions", Fault.refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    (line,) = world.look().unseen
    assert line.startswith("some transactional ids of producers, perhaps: ") and "lacks Describe" in line


def test_modes_of_the_schema_registry_are_read(world: World) -> None:
    key = b'{"keytype":"MODE","subject":null,"magic":0}'
    registry = world.source.create("_schemas").logs[0]
    rows = [row(0)._replace(key=key, value=b'{"mode":"READONLY"}'), row(1)]
    with world.source.changing():
        registry.lay(records.encode(rows, leader_epoch=registry.epoch))
    seen = world.look()
    assert seen.modes == {"": "READONLY"} and "_schemas" in seen.topics
    world.source.script.on(
        "Fetch", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, {TopicPartition("_schemas", 0)}), times=None
    )
    seen = world.look()
    assert seen.modes == {} and seen.unseen[0].startswith("modes of the Schema Registry: ")


def test_old_brokers_tell_less_and_that_is_said() -> None:
    with DrivenCluster("source", version="0.11.0.3") as source, DrivenCluster("target") as target:
        world = World(source, target)
        world.write(10)
        seen = world.look()
        world.close()
    assert [line.partition(":")[0] for line in seen.unseen] == [
        "sizes of logs", "producers (since Kafka 2.8)", "transactional ids of producers (since Kafka 3.0)"
    ]  # fmt: skip
    assert seen.logs[T0].end == 10


@pytest.mark.parametrize("deletes", ["delete", "compact,delete"])
def test_only_a_policy_that_deletes_has_limits(deletes: str) -> None:
    settings = {"retention.ms": "604800000", "retention.bytes": "-1", "segment.ms": "3600000", "segment.bytes": "9"}

    def limits(policy: str) -> logs.Limits:
        return logs.limits_of({k: ConfigEntry(value=v) for k, v in {**settings, "cleanup.policy": policy}.items()})

    assert limits(deletes) == logs.Limits(
        retention_s=604_800.0, retention_bytes=None, segment_bytes=9, segment_s=3600.0
    )  # fmt: skip
    assert limits("compact").retention_s is None


def test_a_cluster_that_is_gone_is_an_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CONNECT_TIMEOUT_S", 0.2)
    world.source.close()
    with pytest.raises(ClusterUnreachable):
        world.look()
