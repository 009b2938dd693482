"""Priming: make an empty target partition start at the source's first offset.

The partition is filled with highly compressed records (an empty key, no value, time 0) up to that offset, and then they
are deleted (DeleteRecords). 123,456,789 offsets took 12 s and 95 MB on a real broker; a plan caps what it may cost.

The key is empty, not null: a compacted topic refuses null keys. Fillers have a producer id of their own and the offset
as sequence, so that a second copier's fillers are recognised by the broker as repeats.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

from airflow_mirror.copy.writer import identity
from airflow_mirror.errors import BrokerError, TargetMoved
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.single import produce_one, read_batches
from airflow_mirror.wire.varint import zigzag

FILLERS_PER_BATCH = 1_000_000  # 9 MB raw, 0.76 MB compressed: below the default message.max.bytes of 1,048,588


def prime(target: WireCluster, mirror: str, tp: TopicPartition, end: int, up_to: int, check: Callable[[], None]) -> int:
    """Move an empty partition, or one holding only our fillers, from log end ``end`` to [``up_to``, ``up_to``).

    :param check: called right before each write; raises when the writer lease is gone or unconfirmed.
    :return: offsets filled by this call.
    :raises TargetMoved: if somebody else writes to the partition meanwhile.
    """
    producer_id = identity.filler_producer_id(mirror, tp)
    at = end
    while at < up_to:
        count = min(FILLERS_PER_BATCH, up_to - at)
        sequence = at % wire_batch.MAX_SEQUENCE
        batch = wire_batch.build(_payload(count), codec.ZSTD, count, 0, 0, producer_id, 0, sequence)
        answer = produce_one(target, tp, batch, check=check)
        if answer.error not in (ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            raise BrokerError(f"prime {tp} at offset {at}", answer.error, error_name(answer.error), answer.message)
        at = _settled_end(target, tp, at + count)
        if at > up_to:
            raise TargetMoved(
                tp.topic, tp.partition, end, up_to, f"the target's log end is {at} while it is primed to {up_to}",
                "Another writer appended to it. Stop that writer, delete the topic and start again.",
            )  # fmt: skip
    target.delete_records({tp: up_to}, check)
    return up_to - end


def restore_start(
    target: WireCluster, mirror: str, tp: TopicPartition, log_start: int, end: int, check: Callable[[], None]
) -> int:
    """Delete the fillers at the beginning of a log that was primed before; return its first offset.

    A broker persists the effect of DeleteRecords once a minute (log.flush.start.offset.checkpoint.interval.ms). If it
    dies before that, and no replica knows the new start, it comes back with the fillers in front, visible to every
    reader.
    """
    ours, start = identity.filler_producer_id(mirror, tp), log_start
    # One batch at a time: nearly always the first one is no filler, and nothing else of it is needed.
    for raw, _ in read_batches(target, tp, log_start, end, isolation=READ_UNCOMMITTED, max_bytes=1):
        if raw.header is None or raw.header.producer_id != ours:
            break
        start = raw.header.next_offset
    if start > log_start:
        target.delete_records({tp: start}, check)
    return start


def is_filler(raw: RawBatch) -> bool:
    """Say whether a batch holds fillers of any Mirror.

    Its frame says enough, nothing is unpacked: of our producers' ids, all of the time 0, and the offset as sequence. The
    sequences of records that are copied begin with a hash.
    """
    header = raw.header
    return (
        header is not None
        and identity.is_ours(header.producer_id)
        and header.base_timestamp == header.max_timestamp == 0
        and header.base_sequence == header.base_offset % wire_batch.MAX_SEQUENCE
    )


def _settled_end(target: WireCluster, tp: TopicPartition, expected: int) -> int:
    """Return the log end once it reached ``expected``, or what it is after a second: another copier may lead."""
    deadline = time.monotonic() + 1.0
    while (at := target.log_ends([tp])[tp]) < expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return at


@lru_cache(maxsize=2)
def _payload(count: int) -> bytes:
    """Return ``count`` encoded filler records, compressed. The last batch of a priming is the only shorter one."""
    return bytes(codec.compress(codec.ZSTD, b"".join(_record(delta) for delta in range(count))))


def _record(delta: int) -> bytes:
    """One record: length, attributes, timestamp delta 0, offset delta, empty key, null value, no headers."""
    body = b"\0\0" + zigzag(delta) + b"\x00\x01\x00"
    return zigzag(len(body)) + body
