"""Fetch v4 to v11, and v13, by hand: a response's records are views into the receive buffer, never copies.

v11 is the newest version without tagged fields and topic ids; brokers from 2.3 to 4.x serve it (KIP-896). v4 is the
first with the last stable offset and aborted transactions (KIP-98, 0.11). The versions between added log starts (v5),
sessions and a top-level error (v7), answers that no quota holds back (v8, KIP-219), leader epochs (v9, KIP-320), zstd
(v10, KIP-110) and racks (v11).

From v13 on (Kafka 3.1) a topic is named by its id, and a broker has nothing to tell of one that was created again
(UNKNOWN_TOPIC_ID, KIP-516): by its name it would give the new topic's records for the old one's. Who knows the ids of
all topics that a request names speaks v13; v12 is none of ours.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.topology import ID_BYTES
from airflow_mirror.wire.varint import read_unsigned, tags_end, unsigned

K = TypeVar("K")

API_KEY, OLDEST, NEWEST, BY_ID = 1, 4, 11, 13
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_PATIENT_MS, _MOST_PATIENT_MS = 1000, 4000
_LOG_STARTS, _SESSIONS, _LEADER_EPOCHS, _RACKS = 5, 7, 9, 11  # the versions that added them
_THROTTLES_AFTER = 8  # from this version on a broker answers first (KIP-219)

_HEAD = struct.Struct(">iiiib")  # replica, max wait, min bytes, max bytes, isolation
_SESSION = struct.Struct(">ii")  # session id, session epoch
_ASKED = struct.Struct(">iiqqi")  # partition, leader epoch, offset, log start, max bytes
_ASKED_V5 = struct.Struct(">iqqi")  # partition, offset, log start, max bytes
_ASKED_BY_ID = struct.Struct(">iiqiqi")  # partition, leader epoch, offset, last fetched epoch, log start, max bytes
_ASKED_V4 = struct.Struct(">iqi")  # partition, offset, max bytes
_ANSWER = struct.Struct(">ihqq")  # partition, error, high watermark, last stable offset
_ANSWER_BY_ID = struct.Struct(">ihqqq")  # ... and the log start
_ABORTED = struct.Struct(">qq")


class FetchSpec(NamedTuple):
    """What to fetch of one partition.

    :param leader_epoch: -1 skips the check of KIP-320. :param topic_id: of its topic, 16 bytes; empty: not known.
    """

    tp: TopicPartition
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    topic_id: bytes = b""


class Place(NamedTuple):
    """A request's place in a session (KIP-227); see :class:`~airflow_mirror.wire.session.FetchSession`.

    :param session_id: 0: of no session before this request. :param epoch: -1: no session; 0: a new one begins.
    :param forgotten: partitions that the session loses, as they were named.
    :param by_id: topics are named by their ids, of all partitions. To a broker a session by names is another one.
    """

    session_id: int
    epoch: int
    forgotten: Sequence[FetchSpec] = ()
    by_id: bool = False


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


def holds_back(connection: Connection) -> bool:
    """Return whether a quota has the broker hold its answers back, for the longer the more is in them: before 2.0.

    The throttle that such an answer tells is over when it comes.
    """
    return version(connection) < _THROTTLES_AFTER


def takes_ids(connection: Connection) -> bool:
    """Return whether the broker knows topics by their ids: from 3.1 on."""
    return connection.serves(API_KEY, BY_ID)


def ask(
    connection: Connection, specs: Sequence[FetchSpec], max_wait_ms: int, min_bytes: int, max_bytes: int, isolation: int,
    *, wait: bool = True, place: Place = NO_SESSION,
) -> int:  # fmt: skip
    """Send a request in the newest version that the broker serves; return its correlation id.

    :param wait: see :meth:`Connection.send`. :param place: with a session only where :func:`has_sessions`, by ids only
        where :func:`takes_ids`.
    """
    spoken = BY_ID if place.by_id else version(connection)
    body = encode(specs, max_wait_ms, min_bytes, max_bytes, isolation, spoken, place)
    return connection.send(API_KEY, spoken, [body], flexible=place.by_id, wait=wait)


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


def patient_ms(dry: int) -> int:
    """Return how long a broker may wait for records of which it has said that they are there.

    From its disks it sends them at once, whatever it may wait. What lies in a remote store, brokers 3.6 and 3.7 read for
    no longer than that; then they answer with nothing, and the next fetch begins the reading anew (KIP-1018).

    :param dry: how many such answers came already, one after the other.
    """
    return min(_PATIENT_MS << min(dry, 8), _MOST_PATIENT_MS)


def encode(
    specs: Sequence[FetchSpec], max_wait_ms: int, min_bytes: int, max_bytes: int, isolation: int, spoken: int = NEWEST,
    place: Place = NO_SESSION,
) -> bytes:  # fmt: skip
    """Encode a request body; ``specs`` may be in any order, topics are grouped."""
    # Replica -1: a consumer, who gets no more than the high watermark, or the last stable offset.
    out = bytearray(_HEAD.pack(-1, max_wait_ms, min_bytes, max_bytes, isolation))
    if spoken >= _SESSIONS:
        out += _SESSION.pack(place.session_id, place.epoch)
    if spoken >= BY_ID:
        _name_by_id(out, specs, place)
    else:
        _name(out, specs, place, spoken)
    return bytes(out)


def _name(out: bytearray, specs: Sequence[FetchSpec], place: Place, spoken: int) -> None:
    topics = _grouped(specs, lambda spec: spec.tp.topic)
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
        forgotten = _grouped(place.forgotten, lambda spec: spec.tp.topic)
        out += struct.pack(">i", len(forgotten))
        for topic, those in forgotten.items():
            name, numbers = topic.encode(), [spec.tp.partition for spec in those]
            out += struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers)
    if spoken >= _RACKS:
        out += struct.pack(">h", 0)


def _name_by_id(out: bytearray, specs: Sequence[FetchSpec], place: Place) -> None:
    """Lengths are varints of one more, and each structure ends with the number of its tagged fields (KIP-482)."""
    topics = _grouped(specs, lambda spec: spec.topic_id)
    out += unsigned(len(topics) + 1)
    for topic_id, wanted in topics.items():
        out += topic_id + unsigned(len(wanted) + 1)
        for spec in wanted:
            # The epoch of the last fetched record is for followers to tell as well: their leader looks for a divergence.
            out += _ASKED_BY_ID.pack(spec.tp.partition, spec.leader_epoch, spec.offset, -1, -1, spec.max_bytes) + b"\0"
        out += b"\0"
    forgotten = _grouped(place.forgotten, lambda spec: spec.topic_id)
    out += unsigned(len(forgotten) + 1)
    for topic_id, those in forgotten.items():
        out += topic_id + unsigned(len(those) + 1)
        out += struct.pack(f">{len(those)}i", *(spec.tp.partition for spec in those)) + b"\0"
    out += b"\1\0"  # an empty rack, and no tagged field of the whole


def _grouped(specs: Iterable[FetchSpec], key: Callable[[FetchSpec], K]) -> dict[K, list[FetchSpec]]:
    topics: dict[K, list[FetchSpec]] = {}
    for spec in specs:
        topics.setdefault(key(spec), []).append(spec)
    return topics


def session_of(body: memoryview, spoken: int = NEWEST) -> int:
    """Return the id of the session that a response body tells; 0: none."""
    return int(struct.unpack_from(">i", body, 6)[0]) if spoken >= _SESSIONS else 0


def decode(
    body: memoryview, spoken: int = NEWEST, names: Mapping[bytes, str] | None = None
) -> tuple[int, int, list[FetchedPartition]]:
    """Return (throttle time in ms, top-level error, partitions) of a response body.

    :param names: of the topics, by id: of a response in :data:`BY_ID`. One that nobody has asked for has an empty one.
    """
    if spoken >= BY_ID:
        assert names is not None
        return _decode_by_id(body, names)
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


def _decode_by_id(body: memoryview, names: Mapping[bytes, str]) -> tuple[int, int, list[FetchedPartition]]:
    throttle_ms, error, _session = struct.unpack_from(">ihi", body, 0)
    topics, at = read_unsigned(body, 10)
    partitions: list[FetchedPartition] = []
    for _ in range(topics - 1):
        topic = names.get(bytes(body[at : at + ID_BYTES]), "")
        count, at = read_unsigned(body, at + ID_BYTES)
        for _ in range(count - 1):
            fetched, at = _partition_by_id(body, at, topic)
            partitions.append(fetched)
        at = tags_end(body, at)
    return throttle_ms, error, partitions


def _partition_by_id(body: memoryview, at: int, topic: str) -> tuple[FetchedPartition, int]:
    partition, error, high_watermark, last_stable, log_start = _ANSWER_BY_ID.unpack_from(body, at)
    transactions, at = read_unsigned(body, at + _ANSWER_BY_ID.size)
    aborted = []
    for _ in range(transactions - 1):
        aborted.append(_ABORTED.unpack_from(body, at))
        at = tags_end(body, at + _ABORTED.size)
    size, at = read_unsigned(body, at + 4)  # behind the preferred replica
    size = max(size - 1, 0)
    fetched = FetchedPartition(
        TopicPartition(topic, partition), error, high_watermark, last_stable, log_start, aborted, body[at : at + size]
    )
    # Of the tagged fields, the leader of now (KIP-951) is asked for by the opening that follows an error.
    return fetched, tags_end(body, at + size)
