"""Produce v8 and v13, encoded and decoded by hand: batches are sent as scattered views, never joined.

From v13 on (Kafka 4.0) a topic is named by its id, and a broker refuses a batch for one that was created again
(UNKNOWN_TOPIC_ID). Batches of a transaction go by v8: from v12 on a broker adds their partition to the transaction by
itself (KIP-890), and ours are added, and ended, in the older way, which all brokers know.

A broker accepts exactly one batch per partition in a request (ProduceRequest.validateRecords), and with acks=all it
serves the requests of a connection one after another: throughput comes from many partitions per request.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.batch import build
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.topology import ID_BYTES
from airflow_mirror.wire.varint import read_unsigned, tags_end, unsigned

# Ids in place of names: KIP-516.
API_KEY, API_VERSION, BY_ID = 0, 8, 13
# Answered once every in-sync replica has it: what is acknowledged outlives its leader. With less, a position could be
# ahead of a log that lost its newest records.
ACKS_ALL = -1
# Behind it a copy adds no batch to a request; the last one may exceed it by what a topic takes.
REQUEST_BYTES = 8 << 20
# Errors with which a broker refuses a batch for good.
# They are found before the append (LogValidator, UnifiedLog): nothing is in the log, and as long as the topic's
# settings stay, the same bytes never will be. With CORRUPT_MESSAGE those that arrived are not those that were checked:
# a copy has its source's to fetch again.
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
REFUSED = TOO_LARGE | frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
    }
)

_RECORD = b"\x0c\0\0\0\1\0\0"  # six bytes: no attributes, no deltas, null as the key, nothing as value and headers


def _with_wrong_checksum() -> bytes:
    whole = bytearray(build(_RECORD, 0, 1, 0, 0, -1, -1, -1))
    whole[-1] ^= 0xFF
    return bytes(whole)


# One record and a wrong checksum. A broker asks its authorizer first, and looks at the checksum before it appends
# (UnifiedLog.analyzeAndValidateRecords): it answers TOPIC_AUTHORIZATION_FAILED or CORRUPT_MESSAGE, and writes nothing.
INVALID = _with_wrong_checksum()

_PARTITION, _PLACE = struct.Struct(">i"), struct.Struct(">ii")  # a partition, alone and with its batch's size
_ANSWER = struct.Struct(">ihqqq")  # partition, error, base offset, append time, log start


class Produced(NamedTuple):
    """A broker's response for one partition. An error does not tell whether it appended: re-read the log end."""

    tp: TopicPartition
    error: int
    base_offset: int
    message: str


def encode(
    batches: Mapping[TopicPartition, memoryview], timeout_ms: int, transactional_id: str | None = None,
    ids: Mapping[str, bytes] | None = None,
) -> list[bytes | memoryview]:  # fmt: skip
    """Encode a request body with acks=all as buffers to be sent in order.

    :param ids: of the topics, by name: it is a request of version :data:`BY_ID`, which is flexible, without a
        transaction. None: of version 8.
    """
    by_topic: dict[str, list[tuple[int, memoryview]]] = {}
    for tp, batch in batches.items():
        by_topic.setdefault(tp.topic, []).append((tp.partition, batch))
    # A null string: length -1 in two bytes, or, in flexible versions, the length plus one as a varint: 0 (KIP-482).
    head = _nullable(transactional_id) if ids is None else b"\0"
    head += struct.pack(">hi", ACKS_ALL, timeout_ms) + _sized(len(by_topic), ids)
    tags = b"" if ids is None else b"\0"
    buffers: list[bytes | memoryview] = []
    for topic, items in by_topic.items():
        head += (_nullable(topic) if ids is None else ids[topic]) + _sized(len(items), ids)
        for partition, batch in items:
            size = len(batch)
            # The batch follows as it is, in its own buffer: it may be the one into which it was received.
            place = _PLACE.pack(partition, size) if ids is None else _PARTITION.pack(partition) + unsigned(size + 1)
            buffers.append(head + place)
            buffers.append(batch)
            head = tags
        head += tags
    if ids is not None:
        buffers.append(head + tags)
    return buffers


def _sized(length: int, ids: object) -> bytes:
    return struct.pack(">i", length) if ids is None else unsigned(length + 1)


def decode(body: memoryview, names: Mapping[bytes, str] | None = None) -> tuple[int, list[Produced]]:
    """Return (throttle time in ms, responses by partition) of a response body.

    :param names: of the topics, by id: it answers a request of version :data:`BY_ID`. None: of version 8.
    """
    # From 8 on there are errors of single records and a message (KIP-467). Who leads now, which newer versions tell in
    # tagged fields (KIP-951), is asked for by the opening that follows.
    compact = names is not None
    topics, at = _count(body, 0, compact)
    answers: list[Produced] = []
    for _ in range(topics):
        if names is None:
            topic, at = _string(body, at)
        else:
            topic, at = names[bytes(body[at : at + ID_BYTES])], at + ID_BYTES
        count, at = _count(body, at, compact)
        for _ in range(count):
            partition, error, base_offset, _time, _start = _ANSWER.unpack_from(body, at)
            at += _ANSWER.size
            details, at = _record_errors(body, at, compact)
            message, at = _string(body, at, compact)
            text = "; ".join(part for part in (message, *details) if part)
            answers.append(Produced(TopicPartition(topic or "", partition), error, base_offset, text))
            at = tags_end(body, at) if compact else at
        at = tags_end(body, at) if compact else at
    (throttle_ms,) = struct.unpack_from(">i", body, at)
    return throttle_ms, answers


def _record_errors(body: memoryview, at: int, compact: bool) -> tuple[list[str], int]:
    count, at = _count(body, at, compact)
    details = []
    for _ in range(count):
        (index,) = struct.unpack_from(">i", body, at)
        text, at = _string(body, at + 4, compact)
        details.append(f"record {index} of the batch: {text}")
        at = tags_end(body, at) if compact else at
    return details, at


def _count(body: memoryview, at: int, compact: bool) -> tuple[int, int]:
    if compact:
        count, at = read_unsigned(body, at)
        return count - 1, at
    return struct.unpack_from(">i", body, at)[0], at + 4


def _string(body: memoryview, at: int, compact: bool = False) -> tuple[str | None, int]:
    length, at = _count(body, at, True) if compact else (struct.unpack_from(">h", body, at)[0], at + 2)
    return (None, at) if length < 0 else (str(body[at : at + length], "utf-8"), at + length)


def _nullable(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text.encode())) + text.encode()
