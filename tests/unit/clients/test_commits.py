"""When groups committed last, as the records of their coordinators say."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.extras.clients import commits
from airflow_mirror.extras.clients.commits import AT, BEFORE, Commit, Commits, group_of, partition_of
from airflow_mirror.kafka.model import GroupPosition, TopicInfo
from airflow_mirror.wire.records import Record

AT_ORDERS = {TopicPartition("orders", 0): GroupPosition(7)}


def key(version: int, group: str) -> bytes:
    name = group.encode()
    return struct.pack(">hh", version, len(name)) + name + b"\0\6orders\0\0\0\0"


@pytest.mark.parametrize(
    ("group", "partition"),
    # What Java says of abs("...".hashCode()) % 50, where Kafka takes the smallest number for a 0.
    [("", 0), ("billing", 9), ("console-consumer-12345", 6), ("\U0001f600", 49), ("polygenelubricants", 0)],
)
def test_a_group_has_the_coordinator_that_kafka_gives_it(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition


def test_only_keys_of_positions_name_a_group() -> None:
    assert [group_of(key(version, "g")) for version in range(4)] == ["g", "g", "", ""]
    assert group_of(None) == group_of(b"\0\1") == ""


class Source:
    """A cluster whose one partition of coordinators' records holds these."""

    def __init__(self, *records: tuple[int, bytes, bytes | None]) -> None:
        self.wire, self.role, self.start = object(), "source", 0
        self.records = [Record(n, at_ms, name, value, []) for n, (at_ms, name, value) in enumerate(records)]

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {names[0]: TopicInfo(names[0], "", 1, 1)}

    def offsets(self, tps: list[TopicPartition], at: str) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self.start if at == "earliest" else len(self.records))


@pytest.fixture(autouse=True)
def batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of two records, and the first one begins below what is asked for."""

    def data_batches(wire: Any, tp: Any, begin: int, end: int, **_: Any) -> list[int]:
        return list(range(begin - begin % 2, end, 2))

    monkeypatch.setattr(commits, "data_batches", data_batches)


def last(source: Source, monkeypatch: pytest.MonkeyPatch, *groups: str) -> dict[str, Commit]:
    monkeypatch.setattr(commits, "decoded", lambda raw, *_: source.records[raw : raw + 2])
    found, why = Commits().of(source, dict.fromkeys(groups, AT_ORDERS), 9_000)  # type: ignore[arg-type]
    assert why == ""
    return found


def test_newest_commit_counts_and_a_removal_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(
        (1_000, key(1, "a"), b"v"), (2_000, key(1, "b"), b"v"), (3_000, key(1, "a"), b"v"), (4_000, key(1, "b"), None),
        (5_000, key(2, "a"), b"members"),
    )  # fmt: skip
    assert last(source, monkeypatch, "a", "b") == {"a": Commit(3_000, AT), "b": Commit(2_000, AT)}


def test_who_is_not_among_the_newest_records_has_committed_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(
        *((at, key(1, name), b"v") for at, name in [(1_000, "old"), (2_000, "a"), (3_000, "b"), (4_000, "a")])
    )
    monkeypatch.setattr(commits, "_RECORDS", 2)
    assert last(source, monkeypatch, "a", "old") == {"a": Commit(4_000, AT), "old": Commit(3_000, BEFORE)}
    monkeypatch.setattr(commits, "_RECORDS", 3)
    assert last(source, monkeypatch, "old") == {"old": Commit(2_000, BEFORE)}, "what a batch has below it is not read"
    assert last(Source(), monkeypatch, "a") == {}


def test_a_partition_whose_newest_records_were_not_reached_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source((1_000, key(1, "a"), b"v"), (2_000, key(1, "b"), b"v"))
    monkeypatch.setattr(commits, "time", SimpleNamespace(monotonic=iter([0.0, 6.0, 6.0]).__next__))
    assert last(source, monkeypatch, "a") == {}
