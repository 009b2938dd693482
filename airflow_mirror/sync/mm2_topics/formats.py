"""The records of traces, byte for byte as MirrorMaker 2 writes them. No cluster, no clock.

Kafka's own types: an INT is big-endian, a STRING is its length as INT16 and UTF-8. Heartbeats and checkpoints have a
version at the beginning of the value, and it is 0: readers of 4.4 and later refuse every other one (KAFKA-20659). Offset
syncs have none. No value is ever empty: Java's readers fail on a record without one.

Rule: Heartbeat and Checkpoint of connect-mirror-client, OffsetSync of connect-mirror.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition

_VERSION = 0
_LONGEST = 2**15 - 1  # bytes of a STRING


class Heartbeat(NamedTuple):
    """A sign of life of a flow.

    :ivar at_ms: milliseconds since the epoch; the record has the same timestamp.
    """

    source_alias: str
    target_alias: str
    at_ms: int

    @property
    def key(self) -> bytes:
        """The record's key."""
        return _string(self.source_alias) + _string(self.target_alias)

    @property
    def value(self) -> bytes:
        """The record's value."""
        return struct.pack(">hq", _VERSION, self.at_ms)


class Checkpoint(NamedTuple):
    """Where a group goes on on the target.

    :ivar tp: on the target, by its name there.
    :ivar upstream: the group's position on the source. :ivar downstream: on the target, next to read, like the other.
    :ivar metadata: what the group has committed with it; empty for nothing.
    """

    group: str
    tp: TopicPartition
    upstream: int
    downstream: int
    metadata: str = ""

    @property
    def key(self) -> bytes:
        """The record's key."""
        return _string(self.group) + _string(self.tp.topic) + struct.pack(">i", self.tp.partition)

    @property
    def value(self) -> bytes:
        """The record's value."""
        return struct.pack(">hqq", _VERSION, self.upstream, self.downstream) + _string(self.metadata)


class OffsetSync(NamedTuple):
    """One record on both sides.

    :ivar tp: on the source, by its name there.
    """

    tp: TopicPartition
    upstream: int
    downstream: int

    @property
    def key(self) -> bytes:
        """The record's key."""
        return _string(self.tp.topic) + struct.pack(">i", self.tp.partition)

    @property
    def value(self) -> bytes:
        """The record's value."""
        return struct.pack(">qq", self.upstream, self.downstream)


def is_writable(group: str, metadata: str) -> bool:
    """Return whether a checkpoint can hold them. Kafka allows longer ones than its STRING does."""
    return all(len(text.encode()) <= _LONGEST for text in (group, metadata))


def read_checkpoint(key: bytes, value: bytes) -> Checkpoint | None:
    """Return a checkpoint; None if it is none that this version can read."""
    try:
        group, at = _read_string(key, 0)
        topic, at = _read_string(key, at)
        (partition,) = struct.unpack_from(">i", key, at)
        version, upstream, downstream = struct.unpack_from(">hqq", value)
        metadata, _ = _read_string(value, struct.calcsize(">hqq"))
    except (struct.error, ValueError):
        return None
    if version != _VERSION:
        return None
    return Checkpoint(group, TopicPartition(topic, partition), upstream, downstream, metadata)


def read_offset_sync(key: bytes, value: bytes) -> OffsetSync | None:
    """Return an offset sync; None if it is none."""
    try:
        topic, at = _read_string(key, 0)
        (partition,) = struct.unpack_from(">i", key, at)
        upstream, downstream = struct.unpack_from(">qq", value)
    except (struct.error, ValueError):
        return None
    return OffsetSync(TopicPartition(topic, partition), upstream, downstream)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    """Return the STRING that begins at ``at``, and where it ends. UnicodeDecodeError is a ValueError."""
    (length,) = struct.unpack_from(">h", data, at)
    begin, end = at + 2, at + 2 + length
    if length < 0 or end > len(data):
        raise ValueError(f"a text of {length} bytes in {len(data) - begin}")
    return bytes(data[begin:end]).decode(), end
