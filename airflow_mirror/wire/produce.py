"""Produce v8, encoded and decoded by hand: batches are sent as scattered views, never joined.

A broker accepts exactly one batch per partition in a request (ProduceRequest.validateRecords), and with acks=all it
serves the requests of a connection one after another: throughput comes from many partitions per request.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire.batch import build
from airflow_mirror.wire.error_codes import ErrorCode

API_KEY, API_VERSION = 0, 8
ACKS_ALL = -1
# Errors with which a broker refuses a batch for good.
REFUSED = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
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

_ANSWER = struct.Struct(">ihqqq")  # partition, error, base offset, append time, log start


class Produced(NamedTuple):
    """A broker's response for one partition. An error does not tell whether it appended: re-read the log end."""

    tp: TopicPartition
    error: int
    base_offset: int
    message: str


def encode(
    batches: Mapping[TopicPartition, memoryview], timeout_ms: int, transactional_id: str | None = None
) -> list[bytes | memoryview]:
    """Encode a request body with acks=all as buffers to be sent in order."""
    by_topic: dict[str, list[tuple[int, memoryview]]] = {}
    for tp, batch in batches.items():
        by_topic.setdefault(tp.topic, []).append((tp.partition, batch))
    head = _nullable(transactional_id) + struct.pack(">hii", ACKS_ALL, timeout_ms, len(by_topic))
    buffers: list[bytes | memoryview] = []
    for topic, items in by_topic.items():
        name = topic.encode()
        head += struct.pack(">h", len(name)) + name + struct.pack(">i", len(items))
        for partition, batch in items:
            buffers.append(head + struct.pack(">ii", partition, len(batch)))
            buffers.append(batch)
            head = b""
    return buffers


def decode(body: memoryview) -> tuple[int, list[Produced]]:
    """Return (throttle time in ms, responses by partition) of a response body."""
    (topics,) = struct.unpack_from(">i", body, 0)
    at = 4
    answers: list[Produced] = []
    for _ in range(topics):
        topic, at = _string(body, at)
        (count,) = struct.unpack_from(">i", body, at)
        at += 4
        for _ in range(count):
            partition, error, base_offset, _time, _start = _ANSWER.unpack_from(body, at)
            at += _ANSWER.size
            details, at = _record_errors(body, at)
            message, at = _string(body, at)
            text = "; ".join(part for part in (message, *details) if part)
            answers.append(Produced(TopicPartition(topic or "", partition), error, base_offset, text))
    (throttle_ms,) = struct.unpack_from(">i", body, at)
    return throttle_ms, answers


def _record_errors(body: memoryview, at: int) -> tuple[list[str], int]:
    (count,) = struct.unpack_from(">i", body, at)
    at += 4
    details = []
    for _ in range(max(count, 0)):
        (index,) = struct.unpack_from(">i", body, at)
        text, at = _string(body, at + 4)
        details.append(f"record {index} of the batch: {text}")
    return details, at


def _string(body: memoryview, at: int) -> tuple[str | None, int]:
    (length,) = struct.unpack_from(">h", body, at)
    if length < 0:
        return None, at + 2
    return str(body[at + 2 : at + 2 + length], "utf-8"), at + 2 + length


def _nullable(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text.encode())) + text.encode()
