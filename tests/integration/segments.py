"""What no client of today can write, put into the segment files of a node that is down: old formats and damage.

Message sets of magic 0 and 1 are built here by hand, as brokers before 0.11 stored them: nothing that reads them wrote
them.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import cramjam
import lz4.frame
import xxhash

from sandbox import Cluster

OldRecord = tuple[int, bytes | None, bytes | None]  # timestamp (ignored for magic 0), key, value
GZIP, SNAPPY, LZ4 = 1, 2, 3
LOG_APPEND_TIME = 0x08


def message(offset: int, record: OldRecord, magic: int, attributes: int = 0) -> bytes:
    """One message with its offset in front (MessageSet, Kafka 0.7 to 0.10)."""
    timestamp, key, value = record
    body = (
        struct.pack(">bb", magic, attributes)
        + (struct.pack(">q", timestamp) if magic else b"")
        + _field(key)
        + _field(value)
    )
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def _field(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content


def wrapper(
    base: int, records: Sequence[OldRecord], magic: int, codec: int, append_time: int | None = None,
    holes: frozenset[int] = frozenset(),
) -> bytes:  # fmt: skip
    """A compressed message set. Magic 0: absolute inner offsets; magic 1: relative ones; the last offset in front.

    :param append_time: of the wrapper; readers then see it instead of the inner times.
    :param holes: indexes of records that the cleaner took out.
    """
    kept = [(i, r) for i, r in enumerate(records) if i not in holes]
    inner = b"".join(message(i + (base if magic == 0 else 0), r, magic) for i, r in kept)
    time = append_time if append_time is not None else max(r[0] for _, r in kept)
    attributes = codec | (LOG_APPEND_TIME if append_time is not None else 0)
    return message(base + kept[-1][0], (time, None, _compressed(codec, inner, magic)), magic, attributes)


def _compressed(codec: int, content: bytes, magic: int) -> bytes:
    if codec == GZIP:
        return gzip.compress(content)
    if codec == SNAPPY:  # xerial blocks, as every Java producer wrote them
        half = len(content) // 2
        blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (content[:half], content[half:])]
        return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)
    frame = bytearray(lz4.frame.compress(content, block_linked=False, store_size=False))
    if magic == 0:  # KAFKA-3160: the checksum of the header was computed over the magic number too
        frame[6] = xxhash.xxh32_intdigest(bytes(frame[:6])) >> 8 & 0xFF
    return bytes(frame)


def segment(cluster: Cluster, topic: str, partition: int = 0, node_id: int = 1) -> Path:
    """Return the only segment file of a partition."""
    (found,) = (cluster.directory / f"node-{node_id}" / "data" / f"{topic}-{partition}").glob("*.log")
    return found


def put(cluster: Cluster, topic: str, content: bytes, partition: int = 0) -> None:
    """Make ``content`` the log of an empty partition of a node that is down; its indexes are built anew at the start."""
    log = segment(cluster, topic, partition)
    assert log.stat().st_size == 0, f"{log} is not empty"
    log.write_bytes(content)
    for index in log.parent.glob("*.*index"):
        index.unlink()


def flip(cluster: Cluster, topic: str, at: int, bit: int = 0x10, partition: int = 0) -> None:
    """Flip a bit of a partition's log. After an orderly shutdown the node starts without looking at it."""
    log = segment(cluster, topic, partition)
    content = bytearray(log.read_bytes())
    content[at] ^= bit
    log.write_bytes(content)


class Placed(NamedTuple):
    """A magic 2 batch in a segment file: where it begins, its base offset, the one behind it, and its attributes."""

    at: int
    base: int
    next: int
    attributes: int


def batches(cluster: Cluster, topic: str, partition: int = 0) -> list[Placed]:
    """Return the batches of a partition's segment as they lie in the file."""
    content = segment(cluster, topic, partition).read_bytes()
    found, at = [], 0
    while at < len(content):
        base, length = struct.unpack_from(">qi", content, at)
        attributes, last_delta = struct.unpack_from(">hi", content, at + 21)
        found.append(Placed(at, base, base + last_delta + 1, attributes))
        at += 12 + length
    return found


def poke(cluster: Cluster, topic: str, at: int, fmt: str, value: int) -> None:
    """Write a number into a partition's log."""
    log = segment(cluster, topic)
    content = bytearray(log.read_bytes())
    struct.pack_into(fmt, content, at, value)
    log.write_bytes(content)
