"""One partition, one request at a time: for resuming, priming and checking, where clarity matters more than speed.

The bulk path (`copy.loop`) keeps many partitions and connections busy; it uses nothing here per batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import BrokerError, CorruptBatch, TryAgain
from airflow_mirror.wire import fetch, produce
from airflow_mirror.wire.batch import BrokenFrame, RawBatch, iter_batches
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Check, Connection
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.errors import meaning
from airflow_mirror.wire.fetch import FetchedPartition, FetchSpec
from airflow_mirror.wire.requests import Led
from airflow_mirror.wire.topology import id_of

# Leadership moved, or this broker does not know yet: refresh the metadata and ask again.
MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
_BACKOFF_S = 0.1


def fetch_one(
    cluster: WireCluster, tp: TopicPartition, offset: int, *, isolation: int, max_bytes: int = 1 << 20,
    max_wait_ms: int = 0, timeout_s: float = 30.0,
) -> FetchedPartition:  # fmt: skip
    """Fetch once from the leader of ``tp``. Retries while leadership moves; other errors are part of the result.

    :raises TryAgain: no leader answered within ``timeout_s``, or on a cluster in a hurry the first attempt failed.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        cause: object
        try:
            # Asked again in each turn: the epoch goes into the fetch, which a leader refuses that has another one.
            leader = cluster.leader(tp)
            connection = cluster.connection(leader.node_id)
            wanted = [FetchSpec(tp, offset, max_bytes, leader.epoch)]
            # Half of the time after which the connection would be taken for silent.
            wait_ms = min(max_wait_ms, int(connection.timeout_s * 500))
            asked = fetch.ask(connection, wanted, wait_ms, 1, max_bytes, isolation)
            throttle_ms, error, partitions = fetch.answer(connection, asked)
            answer = partitions[0] if partitions else None
            if answer is not None and answer.error not in MOVED:
                return answer
            if answer is None and not error and throttle_ms:  # it sends nothing before that is over
                deadline += throttle_ms / 1000
                continue
            code = answer.error if answer else error
            cause = f"{error_name(code)} {meaning(code)}".strip()
        except TryAgain as e:
            cause = e
        if time.monotonic() > deadline or not cluster.patient:
            raise nothing_fetched(cluster.role, tp, offset, f"no leader answered: {cause}")
        time.sleep(_BACKOFF_S)
        # Nothing was changed by asking, so a lost answer is asked for again without a thought.
        cluster.refresh([tp.topic])


def fetch_together(
    cluster: WireCluster, offsets: Mapping[TopicPartition, int], *, isolation: int, max_bytes_each: int, max_bytes: int
) -> dict[TopicPartition, FetchedPartition]:
    """Fetch once from each leader, for all its partitions together; return the answers that hold records.

    What is missing has to be asked for alone: a broker stops at ``max_bytes``, and a partition may be moving.
    """
    answers = answers_together(cluster, offsets, isolation=isolation, max_bytes_each=max_bytes_each, max_bytes=max_bytes)
    return {tp: answer for tp, answer in answers.items() if answer.records}


def answers_together(
    cluster: WireCluster, offsets: Mapping[TopicPartition, int], *, isolation: int, max_bytes_each: int, max_bytes: int
) -> dict[TopicPartition, FetchedPartition]:
    """As :func:`fetch_together`, with the answers that hold none.

    A partition is missing whose leader is not known, does not answer, or sends nothing because of a quota.
    """

    def ask(connection: Connection, led: Led) -> Iterator[tuple[TopicPartition, int, FetchedPartition]]:
        wanted = [FetchSpec(tp, offsets[tp], max_bytes_each, leader.epoch) for tp, leader in led]
        asked = fetch.ask(connection, wanted, 0, 0, max_bytes, isolation)
        _throttle, error, partitions = fetch.answer(connection, asked)
        for answer in partitions:
            yield answer.tp, error or answer.error, answer

    return cluster.ask_each("Fetch", offsets, ask, "Read")[0]


def read_batches(
    cluster: WireCluster, tp: TopicPartition, start: int, end: int, *, isolation: int, max_bytes: int = 4 << 20,
    timeout_s: float = 30.0,
) -> Iterator[tuple[RawBatch, list[tuple[int, int]]]]:  # fmt: skip
    """Yield the batches that overlap [start, end), each with the aborted transactions of its fetch response.

    The first batch may begin before ``start``. Stops at ``end`` or where the log ends for this isolation level.

    :raises BrokerError: the broker rejects the fetch (for example offset out of range).
    :raises CorruptBatch: the bytes where a batch should begin are not a batch.
    """
    position = start
    deadline = time.monotonic() + timeout_s
    dry = max_wait_ms = 0  # at the log's end nothing is worth waiting for
    while position < end:
        answer = fetch_one(
            cluster, tp, position, isolation=isolation, max_bytes=max_bytes, max_wait_ms=max_wait_ms, timeout_s=timeout_s
        )  # fmt: skip
        if answer.error:
            # Also where somebody has deleted records between two fetches of one reading (OFFSET_OUT_OF_RANGE): what that
            # means the reader knows.
            raise BrokerError(f"fetch {tp} at offset {position}", answer.error, error_name(answer.error))
        before = position
        try:
            for raw in iter_batches(answer.records):
                position = max(position, raw.next_offset)
                if raw.header is not None and raw.header.base_offset >= end:
                    return
                yield raw, answer.aborted
        except BrokenFrame as e:
            raise broken_log(tp, position, cluster.role, e) from e
        if position == before:
            available = answer.last_stable if isolation == fetch.READ_COMMITTED else answer.high_watermark
            if position >= available:
                return
            # An empty response below the end does not mean the end: a client over its quota gets empty responses.
            if time.monotonic() > deadline:
                cause = f"empty answers for {timeout_s:.0f} s, but the log ends at {available}"
                raise nothing_fetched(cluster.role, tp, position, cause)
            # Or the records lie in a remote store. What follows them does, too: it is asked for as patiently.
            max_wait_ms, dry = fetch.patient_ms(dry), dry + 1
            time.sleep(_BACKOFF_S)
        else:
            deadline, dry = time.monotonic() + timeout_s, 0


def nothing_fetched(role: str, tp: TopicPartition, offset: int, cause: str) -> TryAgain:
    """Return the error for a fetch that returned no records although there should be some."""
    return TryAgain(f"{role} cluster: nothing could be fetched from {tp} at offset {offset}", cause)


def unsettled(tp: TopicPartition, end: int, cause: str) -> TryAgain:
    """Return the error for a log that can't be read up to its end, or whose end moved while it was read."""
    return TryAgain(f"{tp}: its log, which ends at {end}, is not settled", cause)


def broken_log(tp: TopicPartition, position: int, role: str, cause: BrokenFrame) -> CorruptBatch:
    """Return the error for a log that has no valid batch at ``position``, although one should be there."""
    return CorruptBatch(
        tp.topic, tp.partition, position, position + 1, f"the {role} cluster's log is broken: {cause}",
        "Restore this partition from another replica.",
    )  # fmt: skip


def produce_one(
    cluster: WireCluster, tp: TopicPartition, batch: memoryview, *, check: Check | None = None, timeout_ms: int = 30_000,
    topic_id: str | None = None,
) -> produce.Produced:  # fmt: skip
    """Produce one batch with acks=all and return the broker's response. Never retried here: re-read the log end first.

    :param check: see :meth:`Connection.send`.
    :param topic_id: the only topic of this name to produce to, if the broker can tell.
    """
    # By id where the broker takes that: between the caller's look and these bytes the topic may be created again.
    connection = cluster.connection(cluster.leader(tp).node_id)
    by_id = bool(topic_id) and connection.serves(produce.API_KEY, produce.BY_ID)
    ids = {tp.topic: id_of(topic_id).bytes} if topic_id and by_id else None
    body = produce.encode({tp: batch}, timeout_ms, ids=ids)
    version = produce.API_VERSION if ids is None else produce.BY_ID
    # Once. If it raises, or answers with an error that is not in `produce.REFUSED`, the batch may be there, or come
    # yet: its callers have batches that do no harm twice (a priming's, known by its sequence; a map's, by its key), or
    # read the log again.
    response = connection.roundtrip(produce.API_KEY, version, body, flexible=by_id, check=check)
    throttle_ms, answers = produce.decode(response, None if ids is None else {i: name for name, i in ids.items()})
    connection.throttle(throttle_ms)
    return answers[0]
