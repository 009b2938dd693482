"""Fetch v11, written and read by hand: the records of a response are views into the received buffer, never copies.

v11 is the newest version without tagged fields and topic ids; brokers from 2.3 to 4.x serve it (KIP-896).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from airflow_mirror.partition import TopicPartition

API_KEY, API_VERSION = 1, 11
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

_HEAD = struct.Struct(">iiiibii")  # replica, max wait, min bytes, max bytes, isolation, session id, session epoch
_ASKED = struct.Struct(">iiqqi")  # partition, leader epoch, offset, log start, max bytes
_ANSWER = struct.Struct(">ihqqq")  # partition, error, high watermark, last stable offset, log start
_ABORTED = struct.Struct(">qq")


class FetchSpec(NamedTuple):
    """What to ask of one partition. ``leader_epoch`` -1 asks without the check of KIP-320."""

    tp: TopicPartition
    offset: int
    max_bytes: int
    leader_epoch: int = -1


class FetchedPartition(NamedTuple):
    """What a broker said of one partition. ``aborted`` holds (producer id, first offset) of aborted transactions."""

    tp: TopicPartition
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: list[tuple[int, int]]
    records: memoryview


def encode(specs: Sequence[FetchSpec], max_wait_ms: int, min_bytes: int, max_bytes: int, isolation: int) -> bytes:
    """Encode a request body; ``specs`` may be in any order, topics are grouped."""
    out = bytearray(_HEAD.pack(-1, max_wait_ms, min_bytes, max_bytes, isolation, 0, -1))
    by_topic: dict[str, list[FetchSpec]] = {}
    for spec in specs:
        by_topic.setdefault(spec.tp.topic, []).append(spec)
    out += struct.pack(">i", len(by_topic))
    for topic, wanted in by_topic.items():
        name = topic.encode()
        out += struct.pack(">h", len(name)) + name + struct.pack(">i", len(wanted))
        for spec in wanted:
            out += _ASKED.pack(spec.tp.partition, spec.leader_epoch, spec.offset, -1, spec.max_bytes)
    out += struct.pack(">ih", 0, 0)  # no forgotten topics, no rack
    return bytes(out)


def decode(body: memoryview) -> tuple[int, int, list[FetchedPartition]]:
    """Return (throttle time in ms, error of the whole request, partitions) of a response body."""
    throttle_ms, error, _session, topics = struct.unpack_from(">ihii", body, 0)
    at = 14
    partitions: list[FetchedPartition] = []
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", body, at)
        topic = str(body[at + 2 : at + 2 + length], "utf-8")
        (count,) = struct.unpack_from(">i", body, at + 2 + length)
        at += 6 + length
        for _ in range(count):
            fetched, at = _partition(body, at, topic)
            partitions.append(fetched)
    return throttle_ms, error, partitions


def _partition(body: memoryview, at: int, topic: str) -> tuple[FetchedPartition, int]:
    partition, error, high_watermark, last_stable, log_start = _ANSWER.unpack_from(body, at)
    at += _ANSWER.size
    (transactions,) = struct.unpack_from(">i", body, at)
    at += 4
    aborted = [_ABORTED.unpack_from(body, at + i * _ABORTED.size) for i in range(max(transactions, 0))]
    at += max(transactions, 0) * _ABORTED.size
    _replica, size = struct.unpack_from(">ii", body, at)
    at += 8
    size = max(size, 0)
    tp = TopicPartition(topic, partition)
    records = body[at : at + size]
    return FetchedPartition(tp, error, high_watermark, last_stable, log_start, aborted, records), at + size
