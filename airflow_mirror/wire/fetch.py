"""Fetch v4 to v11, encoded and decoded by hand: a response's records are views into the receive buffer, never copies.

v11 is the newest version without tagged fields and topic ids; brokers from 2.3 to 4.x serve it (KIP-896). v4 is the
first with the last stable offset and aborted transactions (KIP-98, 0.11). The versions between added log starts (v5),
sessions and a top-level error (v7), leader epochs (v9, KIP-320), zstd (v10, KIP-110) and racks (v11).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.topology import by_topic

API_KEY, OLDEST, NEWEST = 1, 4, 11
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_LOG_STARTS, _SESSIONS, _LEADER_EPOCHS, _RACKS = 5, 7, 9, 11  # the versions that added them

_HEAD = struct.Struct(">iiiib")  # replica, max wait, min bytes, max bytes, isolation
_SESSION = struct.Struct(">ii")  # session id, session epoch
_ASKED = struct.Struct(">iiqqi")  # partition, leader epoch, offset, log start, max bytes
_ASKED_V5 = struct.Struct(">iqqi")  # partition, offset, log start, max bytes
_ASKED_V4 = struct.Struct(">iqi")  # partition, offset, max bytes
_ANSWER = struct.Struct(">ihqq")  # partition, error, high watermark, last stable offset
_ABORTED = struct.Struct(">qq")


class FetchSpec(NamedTuple):
    """What to fetch of one partition. ``leader_epoch`` -1 skips the check of KIP-320."""

    tp: TopicPartition
    offset: int
    max_bytes: int
    leader_epoch: int = -1


class Place(NamedTuple):
    """A request's place in a session (KIP-227); see :class:`~airflow_mirror.wire.session.FetchSession`.

    :param session_id: 0: of no session before this request. :param epoch: -1: no session; 0: a new one begins.
    :param forgotten: partitions that the session loses.
    """

    session_id: int
    epoch: int
    forgotten: Sequence[TopicPartition] = ()


NO_SESSION = Place(0, -1)


class FetchedPartition(NamedTuple):
    """A broker's response for one partition. ``aborted`` holds (producer id, first offset) of aborted transactions."""

    tp: TopicPartition
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: list[tuple[int, int]]
    records: memoryview


def version(connection: Connection) -> int:
    """Return the newest version that both sides support.

    :raises ApiNotServed: the broker is older than 0.11.
    """
    return connection.newest(API_KEY, OLDEST, NEWEST)


def has_sessions(connection: Connection) -> bool:
    """Return whether the broker keeps sessions: from 1.1 on."""
    return version(connection) >= _SESSIONS


def ask(
    connection: Connection, specs: Sequence[FetchSpec], max_wait_ms: int, min_bytes: int, max_bytes: int, isolation: int,
    *, wait: bool = True, place: Place = NO_SESSION,
) -> int:  # fmt: skip
    """Send a request in the newest version that the broker serves; return its correlation id.

    :param wait: see :meth:`Connection.send`. :param place: only where :func:`has_sessions`.
    """
    spoken = version(connection)
    body = encode(specs, max_wait_ms, min_bytes, max_bytes, isolation, spoken, place)
    return connection.send(API_KEY, spoken, [body], wait=wait)


def answer(connection: Connection, correlation_id: int) -> tuple[int, int, list[FetchedPartition]]:
    """Wait for the response to :func:`ask` and return it decoded, as :func:`decode` does."""
    decoded = decode(connection.receive(correlation_id), version(connection))
    connection.throttle(decoded[0])
    return decoded


def at_once(
    connection: Connection, specs: Sequence[FetchSpec], max_bytes: int, isolation: int
) -> tuple[int, list[FetchedPartition]]:
    """Fetch what is there without waiting for more; return the top-level error and the partitions.

    A broker whose quota is exceeded answers with no partition at all: it is asked again when the throttle is over.
    """
    while True:
        # The throttle is noted by `answer`, and the next `ask` waits for its end (KIP-219): this does not spin.
        throttle_ms, error, partitions = answer(connection, ask(connection, specs, 0, 0, max_bytes, isolation))
        if partitions or error or not throttle_ms:
            return error, partitions


def encode(
    specs: Sequence[FetchSpec], max_wait_ms: int, min_bytes: int, max_bytes: int, isolation: int, spoken: int = NEWEST,
    place: Place = NO_SESSION,
) -> bytes:  # fmt: skip
    """Encode a request body; ``specs`` may be in any order, topics are grouped."""
    # Replica -1: a consumer, who gets no more than the high watermark, or the last stable offset.
    out = bytearray(_HEAD.pack(-1, max_wait_ms, min_bytes, max_bytes, isolation))
    if spoken >= _SESSIONS:
        out += _SESSION.pack(place.session_id, place.epoch)
    topics: dict[str, list[FetchSpec]] = {}
    for spec in specs:
        topics.setdefault(spec.tp.topic, []).append(spec)
    out += struct.pack(">i", len(topics))
    for topic, wanted in topics.items():
        name = topic.encode()
        out += struct.pack(">h", len(name)) + name + struct.pack(">i", len(wanted))
        for spec in wanted:
            if spoken >= _LEADER_EPOCHS:
                # The log start is for followers to tell: -1.
                out += _ASKED.pack(spec.tp.partition, spec.leader_epoch, spec.offset, -1, spec.max_bytes)
            elif spoken >= _LOG_STARTS:
                out += _ASKED_V5.pack(spec.tp.partition, spec.offset, -1, spec.max_bytes)
            else:
                out += _ASKED_V4.pack(spec.tp.partition, spec.offset, spec.max_bytes)
    if spoken >= _SESSIONS:
        forgotten = by_topic(place.forgotten)
        out += struct.pack(">i", len(forgotten))
        for topic, numbers in forgotten.items():
            name = topic.encode()
            out += struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers)
    if spoken >= _RACKS:
        out += struct.pack(">h", 0)
    return bytes(out)


def session_of(body: memoryview, spoken: int = NEWEST) -> int:
    """Return the id of the session that a response body tells; 0: none."""
    return int(struct.unpack_from(">i", body, 6)[0]) if spoken >= _SESSIONS else 0


def decode(body: memoryview, spoken: int = NEWEST) -> tuple[int, int, list[FetchedPartition]]:
    """Return (throttle time in ms, top-level error, partitions) of a response body."""
    error = 0
    if spoken >= _SESSIONS:
        throttle_ms, error, _session, topics = struct.unpack_from(">ihii", body, 0)
        at = 14
    else:
        throttle_ms, topics = struct.unpack_from(">ii", body, 0)
        at = 8
    partitions: list[FetchedPartition] = []
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", body, at)
        topic = str(body[at + 2 : at + 2 + length], "utf-8")
        (count,) = struct.unpack_from(">i", body, at + 2 + length)
        at += 6 + length
        for _ in range(count):
            fetched, at = _partition(body, at, topic, spoken)
            partitions.append(fetched)
    return throttle_ms, error, partitions


def _partition(body: memoryview, at: int, topic: str, spoken: int) -> tuple[FetchedPartition, int]:
    partition, error, high_watermark, last_stable = _ANSWER.unpack_from(body, at)
    at += _ANSWER.size
    log_start = -1
    if spoken >= _LOG_STARTS:
        (log_start,) = struct.unpack_from(">q", body, at)
        at += 8
    (transactions,) = struct.unpack_from(">i", body, at)
    at += 4
    aborted = [_ABORTED.unpack_from(body, at + i * _ABORTED.size) for i in range(max(transactions, 0))]
    at += max(transactions, 0) * _ABORTED.size + (4 if spoken >= _RACKS else 0)  # the preferred replica
    (size,) = struct.unpack_from(">i", body, at)
    at += 4
    # Null where nothing is there to be told. The last batch may be cut off at the limit (KIP-74): `iter_batches`.
    size = max(size, 0)
    tp = TopicPartition(topic, partition)
    records = body[at : at + size]
    return FetchedPartition(tp, error, high_watermark, last_stable, log_start, aborted, records), at + size
