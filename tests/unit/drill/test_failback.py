"""What a failback of the drill's topic counts, and how its topic is created again."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokerError
from airflow_mirror.extras.drill import failback, reading
from airflow_mirror.extras.drill.canaries import Canaries
from airflow_mirror.extras.drill.failback import FailbackReport, fail_back
from airflow_mirror.extras.drill.reading import Read
from airflow_mirror.kafka.model import GroupPosition, NewTopicSpec, TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.wire.errors import UnknownTopic

SOURCE, TARGET = (ClientConfig({"bootstrap.servers": f"{role}:1"}, role) for role in ("source", "target"))
A, B, C, NEW = (0, 0, "a"), (0, 1, "b"), (1, 0, "c"), (0, 1, "after-failover")


class Admin:
    """A cluster with the topic ``drill``; of the source, what is done to it."""

    done: list[str] = []
    refusals = 0

    def __init__(self, config: ClientConfig) -> None:
        self.role, self.wire = config.role, self

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, "id", 2, 3) for name in names}

    def offsets(self, partitions: list[TP], _: str) -> dict[TP, int]:
        return {tp: 2 - tp.partition for tp in partitions}

    def group_offsets(self, _: str) -> dict[TP, GroupPosition]:
        assert self.role == "target"
        return {TP("drill", 0): GroupPosition(1), TP("other", 0): GroupPosition(9)}

    def commit_group_offsets(self, group: str, positions: Mapping[TP, GroupPosition], permit: Permit) -> None:
        self.done.append(f"{self.role}: {group} at {[p.offset for _, p in sorted(positions.items())]}")

    def delete_topic(self, name: str, topic_id: str, _permit: object) -> None:
        self.done.append(f"{self.role}: delete {name} {topic_id}")

    def create_topics(self, specs: list[NewTopicSpec], permit: Permit) -> None:
        if type(self).refusals:
            type(self).refusals -= 1
            raise BrokerError("create topic 'drill'", 36, "TOPIC_ALREADY_EXISTS")
        self.done.append(f"{self.role}: create {specs[0]}")

    def refresh(self, _: list[str]) -> None:
        pass

    def log_ends(self, partitions: list[TP]) -> None:
        if (found := len(partitions)) and not any("known" in one for one in self.done):
            self.done.append("known")
            raise UnknownTopic(f"{found}", "drill")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Of the canaries a, b and c the target lacks b, where it wrote a record of its own; c's source log was lost."""
    one = SimpleNamespace(held={"target": {A, C, NEW}, "source": {A, B}}, got=[NEW], differing=[], copied=[])
    Admin.done, Admin.refusals = [], 0

    def copy_back(*given: Any) -> list[str]:
        one.copied.append(given[2:5])
        return list(one.differing)

    def read_to(cluster: ClientConfig, *_: object) -> Read:
        Admin.done.append(f"{cluster.role}: read")
        return Read(rows=one.got)

    monkeypatch.setattr("airflow_mirror.kafka.admin.ClusterAdmin", Admin)
    monkeypatch.setattr(failback, "everything", lambda cluster, *_: one.held[cluster.role])
    monkeypatch.setattr(failback, "read_to", read_to)
    monkeypatch.setattr(failback, "write_one", lambda cluster, *_: Admin.done.append(f"{cluster.role}: write"))
    monkeypatch.setattr(failback, "_copy_back", copy_back)
    monkeypatch.setattr(reading, "POLL_S", 0.0)
    return one


def found(*acked: tuple[int, int, str]) -> FailbackReport:
    canaries = Canaries(topic="drill", group="g", acked=[(*row, 0) for row in acked])
    return fail_back(SOURCE, TARGET, canaries, "m", lambda topic_id: Admin.done.append(f"note {topic_id!r}"))


def test_source_is_created_again_filled_read_and_written(world: SimpleNamespace) -> None:
    """Every partition gets a position: one that the group had there before would skip records."""
    Admin.refusals = 2
    back = found(A, B, C)
    assert Admin.done == [
        "note ''", "source: delete drill id", "source: create " + str(NewTopicSpec("drill", 2, 3)), "known", "note 'id'",
        "source: g at [1, 0]", "source: read", "source: write",
    ]  # fmt: skip
    assert world.copied == [("drill", {0: 2, 1: 1}, "m:failback")]
    assert (back.surplus, back.nowhere, back.records, back.differing) == (1, 0, 3, [])


@pytest.mark.parametrize(("listed", "deleted"), [([], []), ([""], ["source: delete drill by its name"])])
def test_only_what_a_broker_lists_is_deleted(
    world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, listed: list[str], deleted: list[str]
) -> None:
    """By its name a topic went that somebody had created since; brokers before 2.8 have nothing but the name."""
    del_by_name = lambda admin, names, _: admin.done.append(f"{admin.role}: delete {names[0]} by its name")  # noqa: E731
    monkeypatch.setattr(Admin, "delete_topics", del_by_name, raising=False)
    found = iter([{"drill": TopicInfo("drill", one, 2, 3)} for one in listed] or [{}])
    monkeypatch.setattr(Admin, "topics", lambda *_: next(found, {"drill": TopicInfo("drill", "id", 2, 3)}))
    failback.create_again(Admin(SOURCE), NewTopicSpec("drill", 2, 3), 1.0)  # type: ignore[arg-type]
    assert [one for one in Admin.done if "delete" in one] == deleted
    assert any("create" in one for one in Admin.done)


def test_records_that_the_group_missed_or_got_twice_are_counted(world: SimpleNamespace) -> None:
    world.got = [A, NEW]
    back = found(A)
    assert (back.skipped, back.reread) == (1, 1), "it lacks c and got a again"


def test_acknowledged_records_that_are_nowhere_are_counted(world: SimpleNamespace) -> None:
    world.differing = ["drill-0: missing at offset 1"]
    back = found(A, B, (1, 5, "d"))
    assert back.nowhere == 1 and back.to_dict()["differing"] == ["drill-0: missing at offset 1"]


def test_topic_that_stays_deleted_is_an_error(world: SimpleNamespace) -> None:
    Admin.refusals = 10**9
    canaries = Canaries(topic="drill", group="g")
    with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
        fail_back(SOURCE, TARGET, canaries, "m", timeout_s=0.01)
    assert world.copied == []
