"""Raw batches as a careless mirror would send them, and a look at what ours sends."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import crc32c

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import produce, records
from airflow_mirror.wire.batch import BatchHeader, RawBatch, iter_batches
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.records import Record
from airflow_mirror.wire.single import produce_one, read_batches
from sandbox import Cluster
from tests.integration.copying import config

if TYPE_CHECKING:
    import pytest

NOW = 1_600_000_000_000


def rows(count: int, key: bytes | None = b"k", size: int = 10) -> list[Record]:
    """Records with falling times, repeated headers and values of about ``size`` bytes."""
    return [
        Record(i, NOW - i * 13, key, bytes([i % 256]) * (size + i % 3), [(b"h", None)] * (i % 3)) for i in range(count)
    ]


def batch(content: Sequence[Record] | None = None, codec: int = 0, sequence: int = -1, **change: int) -> bytearray:
    """One encoded batch without producer identity; ``change`` sets header fields, the checksum fits in the end."""
    view = records.encode(content or rows(3), codec, -1, -1, sequence)
    return with_header(bytearray(view), **change)


def with_header(content: bytearray, **change: int) -> bytearray:
    """Set header fields of a batch and sign it again, whatever they are."""
    header = BatchHeader._make(wire_batch.HEADER.unpack_from(content, 0))
    wire_batch.HEADER.pack_into(content, 0, *header._replace(**change))
    struct.pack_into(">I", content, 17, crc32c.crc32c(memoryview(content)[21:]))
    return content


def send(cluster: Cluster, topic: str, content: bytes | bytearray) -> int:
    """Produce the bytes as they are; return the broker's error code."""
    with WireCluster(config(cluster)) as wire:
        return produce_one(wire, TopicPartition(topic, 0), memoryview(bytearray(content))).error


def stored(cluster: Cluster, topic: str, start: int = 0, end: int = 2**62, partition: int = 0) -> list[RawBatch]:
    """Return the batches of a partition as they lie in its log, markers included."""
    with WireCluster(config(cluster)) as wire:
        found = read_batches(wire, TopicPartition(topic, partition), start, end, isolation=READ_UNCOMMITTED)
        return [RawBatch(memoryview(bytearray(raw.view)), raw.magic, raw.header) for raw, _ in found]


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RawBatch]]:
    """Collect every batch that the engine of this process sends."""
    sent: list[RawBatch] = []
    encode = produce.encode

    def spy(batches: dict[TopicPartition, memoryview], *rest: object, **named: object) -> list[bytes | memoryview]:
        sent.extend(raw for view in batches.values() for raw in iter_batches(memoryview(bytearray(view))))
        return encode(batches, *rest, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(produce, "encode", spy)
        yield sent


def assert_acceptable(sent: Sequence[RawBatch], max_bytes: int = 1_048_588) -> None:
    """Hold batches to every rule of LogValidator and ProducerAppendInfo, and to what a target must not be told."""
    assert sent
    for raw in sent:
        header = raw.header
        assert header is not None, "magic 0 or 1"
        assert (header.magic, header.base_offset) == (2, 0)
        assert header.attributes & ~wire_batch.CODEC_MASK == 0, f"attributes {header.attributes:#x}"
        assert header.record_count == header.last_offset_delta + 1 > 0
        assert [r.offset for r in records.decode(raw)] == list(range(header.record_count))
        assert wire_batch.crc_is_valid(raw.view, header)
        assert header.producer_id >= 0 and header.producer_epoch >= 0 and header.base_sequence >= 0
        assert header.size <= max_bytes
        if header.codec == 3:
            assert raw.view[wire_batch.HEADER_SIZE + 4] & 0x20, "LZ4 blocks that depend on each other"
