"""The demo proves only as much as its source holds: each claim of the dataset is looked up on the broker's disk."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from rich.console import Console as RichConsole

from demo.clients import Partition, admin, config, delete_topic, group_positions, log_bounds, partitions_of, topic_configs
from demo.console import Console
from demo.dataset import BULK, COMPACTED, LIVE, QUIET, TRANSACTIONAL, TRIMMED, Dataset, Size, fill
from demo.records import CODECS, DAY_MS
from sandbox import Cluster

pytestmark = pytest.mark.tools

HEADER = struct.Struct(">qiibIhiqqqhii")  # of a record batch, as KIP-98 lays it out
SIZE = Size(bulk_records=9_001, bulk_partitions=4, mixed_records=1_500, rounds=40)


@dataclass(frozen=True)
class Batch:
    """A batch header as it stands in a segment file."""

    base: int
    last: int
    codec: str
    is_control: bool
    is_transactional: bool
    producer_id: int
    records: int
    max_timestamp_ms: int

    @property
    def has_holes(self) -> bool:
        return self.records != self.last - self.base + 1


@pytest.fixture(scope="module")
def dataset(source_cluster: Cluster) -> Iterator[Dataset]:
    settings = source_cluster.admin_properties()
    yield fill(settings, Console(RichConsole(quiet=True)), SIZE, seed=11)
    for topic in partitions_of_dataset(source_cluster):
        delete_topic(admin(settings), topic)


def partitions_of_dataset(cluster: Cluster) -> list[str]:
    names = [TRIMMED, TRANSACTIONAL, COMPACTED, QUIET, LIVE, BULK, *(f"orders.{codec}" for codec in CODECS)]
    return [name for name in names if partitions_of(admin(cluster.admin_properties()), name)]


def on_disk(cluster: Cluster, topic: str, partition: int) -> list[Batch]:
    """Read the batch headers of a partition from its segment files."""
    batches: list[Batch] = []
    for segment in sorted((cluster.directory / "node-1" / "data").glob(f"{topic}-{partition}/*.log")):
        batches += _headers(segment)
    return batches


def _headers(segment: Path) -> Iterator[Batch]:
    data, at = segment.read_bytes(), 0
    while at + HEADER.size <= len(data):
        base, size, _, magic, _, attributes, delta, _, max_ms, pid, _, _, count = HEADER.unpack_from(data, at)
        if magic != 2:  # preallocated space behind the last batch
            return
        codec = CODECS[attributes & 7]
        yield Batch(base, base + delta, codec, bool(attributes & 32), bool(attributes & 16), pid, count, max_ms)
        at += 12 + size


def read(cluster: Cluster, topic: str, partition: int = 0, isolation: str = "read_committed") -> list[Message]:
    """Read a partition to its end."""
    more = {"isolation_level": isolation, "enable_partition_eof": True, "enable_auto_commit": False}
    consumer = Consumer(config(cluster.admin_properties(), group_id="test-dataset", **more))
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[Message] = []
    while True:
        for message in consumer.consume(5_000, 0.2):
            if message.error() is None:
                found.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return found
            else:
                raise AssertionError(message.error())


def bounds(cluster: Cluster, topic: str, partition: int = 0) -> tuple[int, int]:
    where = Partition(topic, partition)
    return log_bounds(admin(cluster.admin_properties()), [where])[where]


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_is_on_disk(codec: str, dataset: Dataset, source_cluster: Cluster) -> None:
    batches = [b for p in (0, 1) for b in on_disk(source_cluster, f"orders.{codec}", p)]
    # A client leaves a batch as it is where compression would not make it smaller.
    assert {b.codec for b in batches} <= {codec, "none"}
    assert {b.codec for b in batches if b.records > 100} == {codec}
    assert {1, 3, 17} < {b.records for b in batches}  # small batches and large ones


def test_records_are_irregular(dataset: Dataset, source_cluster: Cluster) -> None:
    messages = read(source_cluster, "orders.gzip")
    keys, values = {m.key() for m in messages}, {m.value() for m in messages}
    assert {None, b""} < keys
    assert {None, b""} < values
    headers = [m.headers() or [] for m in messages]
    assert ("absent", None) in sum(headers, [])
    assert any(len({name for name, _ in h}) < len(h) for h in headers)  # a name twice
    times = [m.timestamp()[1] for m in messages]
    assert times != sorted(times)
    assert len(set(times)) < len(times)
    assert max(times) < dataset.now_ms - 365 * DAY_MS


def test_old_records_are_safe_from_retention(dataset: Dataset, source_cluster: Cluster) -> None:
    for topic in (TRIMMED, TRANSACTIONAL, BULK, *(f"orders.{codec}" for codec in CODECS)):
        assert topic_configs(admin(source_cluster.admin_properties()), topic)["retention.ms"] == "-1"


def test_one_partition_is_empty(dataset: Dataset, source_cluster: Cluster) -> None:
    assert bounds(source_cluster, "orders.lz4", 2) == (0, 0)
    assert bounds(source_cluster, "orders.lz4", 1)[1] > 0


def test_one_log_starts_inside_a_batch(dataset: Dataset, source_cluster: Cluster) -> None:
    start, end = bounds(source_cluster, TRIMMED, 0)
    assert 0 < start < end
    assert any(b.base < start <= b.last for b in on_disk(source_cluster, TRIMMED, 0))
    assert read(source_cluster, TRIMMED)[0].offset() == start


def test_of_one_log_nothing_is_left_but_its_end(dataset: Dataset, source_cluster: Cluster) -> None:
    start, end = bounds(source_cluster, TRIMMED, 1)
    assert start == end == SIZE.mixed_records


def test_several_producers_had_transactions_and_some_were_aborted(dataset: Dataset, source_cluster: Cluster) -> None:
    for partition in (0, 1):
        batches = on_disk(source_cluster, TRANSACTIONAL, partition)
        data = [b for b in batches if not b.is_control]
        assert all(b.is_transactional for b in batches)
        assert len({b.producer_id for b in data}) == 3
        everything = read(source_cluster, TRANSACTIONAL, partition, "read_uncommitted")
        committed = read(source_cluster, TRANSACTIONAL, partition)
        assert 0 < len(committed) < len(everything) < bounds(source_cluster, TRANSACTIONAL, partition)[1]
        # Transactions were open at the same time: batches of other producers stand between a batch and its marker.
        owners = [b.producer_id for b in batches if not b.is_control]
        changes = sum(a != b for a, b in zip(owners, owners[1:], strict=False))
        assert changes > len(data) // 2


def test_the_log_cleaner_has_compacted_for_real(dataset: Dataset, source_cluster: Cluster) -> None:
    batches = on_disk(source_cluster, COMPACTED, 0)
    assert sum(b.has_holes for b in batches) >= 5  # only the cleaner makes these
    messages = read(source_cluster, COMPACTED)
    end = bounds(source_cluster, COMPACTED)[1]
    assert 0.1 * end < end - len(messages) < 0.5 * end  # below the share up to which a mirror pads
    assert any(m.value() is None for m in messages)  # tombstones
    keys = [m.key() for m in messages]
    assert len(set(keys)) < len(keys)  # and a tail that is not compacted yet
    assert {b.codec for b in batches} == set(CODECS)


def test_no_cleaner_will_change_what_is_compared(dataset: Dataset, source_cluster: Cluster) -> None:
    settings = topic_configs(admin(source_cluster.admin_properties()), COMPACTED)
    youngest = max(m.timestamp()[1] for m in read(source_cluster, COMPACTED))
    assert settings["cleanup.policy"] == "compact"
    assert int(settings["min.compaction.lag.ms"]) >= 7 * DAY_MS
    assert youngest > dataset.now_ms - DAY_MS  # the lag counts from the records' own time


def test_groups_stand_at_every_kind_of_place(dataset: Dataset, source_cluster: Cluster) -> None:
    """At the start, in the middle, at the end, and where they never read."""
    settings = source_cluster.admin_properties()
    for group, positions in dataset.groups.items():
        assert group_positions(settings, group) == positions
    everything = {p for positions in dataset.groups.values() for p in positions}
    edges = log_bounds(admin(settings), sorted(everything))
    assert all(edges[p][0] == offset for p, offset in dataset.groups["fraud-check"].items())
    assert all(edges[p][1] == offset for p, offset in dataset.groups["archive"].items())
    assert dataset.groups["auditors"] == {Partition(QUIET, 0): 0, Partition(QUIET, 1): 0}
    middle = dataset.groups["reporting"]
    assert any(edges[p][0] < offset < edges[p][1] for p, offset in middle.items())
    for topic in (TRANSACTIONAL, COMPACTED):  # a position at which no consumer will ever see a record
        assert middle[Partition(topic, 0)] not in {m.offset() for m in read(source_cluster, topic)}


def test_bulk_has_its_size_and_two_codecs(dataset: Dataset, source_cluster: Cluster) -> None:
    batches = [b for p in range(SIZE.bulk_partitions) for b in on_disk(source_cluster, BULK, p)]
    assert sum(b.records for b in batches) == SIZE.bulk_records
    assert {b.codec for b in batches} == {"lz4", "zstd"}
