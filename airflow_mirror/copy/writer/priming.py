"""Make an empty target partition start at the source's first offset ("priming").

Priming fills the partition up to that offset with highly compressed records (empty key, null value, timestamp 0) and then
deletes them (DeleteRecords), once it has looked that nothing else is there. 123,456,789 offsets took 12 s and 95 MB to
write on a real broker; a plan caps the cost.

The key is empty, not null, because a compacted topic rejects null keys. Fillers have their own producer id and use the
offset as sequence, so the broker recognises a second copier's fillers as duplicates.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import identity
from airflow_mirror.errors import BrokerError, ForeignData, TargetMoved
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, produce
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.errors import is_denied, refusal
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.single import produce_one, read_batches, unsettled
from airflow_mirror.wire.varint import zigzag

FILLERS_PER_BATCH = 1_000_000  # 9 MB raw, 0.76 MB compressed: below the default message.max.bytes of 1,048,588
_SPLIT_ABOVE = 1_000  # fillers; a topic that takes no batch of so many, which has 1 KB, hardly takes a record


def prime(
    target: WireCluster, mirror: str, tp: TopicPartition, end: int, up_to: int, check: Callable[[], None],
    topic_id: str | None = None,
) -> int:  # fmt: skip
    """Advance a partition that is empty or holds only our fillers from log end ``end`` to [``up_to``, ``up_to``).

    :param topic_id: see :func:`.single.produce_one`.
    :param check: called right before each write; raises if the writer lease is lost or unconfirmed.
    :return: number of offsets filled by this call.
    :raises TargetMoved: another writer appended to the partition meanwhile.
    :raises ForeignData: another writer's records stand among the fillers; nothing was deleted.
    :raises MissingRight: no WRITE, or no DELETE on the topic.
    """
    producer_id = identity.filler_producer_id(mirror, tp)
    at, most = end, FILLERS_PER_BATCH
    while at < up_to:
        count = min(most, up_to - at)
        sequence = at % wire_batch.MAX_SEQUENCE
        # Producer id and sequence follow from partition and offset alone: whoever repeats this, after a lost answer or in
        # another process, appends nothing twice, as long as the broker remembers. It knows a producer's last five batches
        # (ProducerStateEntry), and fillers, by their timestamp, for minutes. What comes later shows at the log's end.
        batch = wire_batch.build(_payload(count), codec.ZSTD, count, 0, 0, producer_id, 0, sequence)
        # Sent once. Whatever is answered, the log's end says how far it got, and the next batch begins there; if
        # nothing is answered, the partition is opened again. Who dies here leaves fillers and nothing else, which
        # `identical._is_fresh` knows by their producer id: the next opening primes on from their end.
        answer = produce_one(target, tp, batch, check=check, topic_id=topic_id)
        if is_denied(answer.error):
            raise refusal(f"prime {tp}", answer.error, "Write", tp.topic, target.settings.principal)
        # While a mirror writes, a topic takes what its source takes (`plan.configs`); its broker knows what that is now.
        if answer.error in produce.TOO_LARGE and count > _SPLIT_ABOVE:
            most = count // 4
            continue
        # Out of order: another copier of this mirror is ahead, or its batch of the same sequence was a shorter one.
        if answer.error not in (ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            raise BrokerError(f"prime {tp} at offset {at}", answer.error, error_name(answer.error), answer.message)
        before, at = at, _settled_end(target, tp, at + count)
        # Fillers end at `up_to`, whoever of us writes them.
        if at > up_to:
            raise TargetMoved(
                tp.topic, tp.partition, end, up_to, f"the target's log end is {at} while it is primed to {up_to}",
                "Another writer appended to it. Stop that writer, delete the topic and start again.",
            )  # fmt: skip
        if at == before:  # a record among the fillers has moved their offsets away from their sequences, for instance
            _check_fillers(target, mirror, tp, at)
            raise unsettled(tp, at, f"it takes no filler there ({error_name(answer.error)})")
    # Somebody else's record among the fillers only makes the last of them fewer: neither the log's end shows it, nor the
    # last batch, by which an opening takes the log for one that has not begun. So all that is deleted is looked at.
    _check_fillers(target, mirror, tp, up_to)
    # Last. Nobody can put anything below `up_to` behind that look, since the log's end is not below it any more. Who dies
    # before it leaves fillers and nothing behind them (`identical._is_fresh`): the next opening comes here again, has
    # nothing to write, and deletes them. A broker that dies behind it may forget it: see `restore_start`.
    target.delete_records({tp: up_to}, check)
    return up_to - end


def restore_start(
    target: WireCluster, mirror: str, tp: TopicPartition, log_start: int, end: int, check: Callable[[], None]
) -> int:
    """Delete fillers at the start of a log that was primed earlier; return the log start offset.

    A broker persists the effect of DeleteRecords once a minute (log.flush.start.offset.checkpoint.interval.ms). If it
    dies before that, and no replica knows the new log start offset, it comes back with the fillers at the front, visible
    to every consumer.
    """
    # Only our fillers, and only those at the front: what is behind the first other batch may be a record. Whoever else
    # looks at the same time finds the same `start`; a second deletion of it changes nothing.
    start = _behind_fillers(target, mirror, tp, log_start, end)
    # Who appends meanwhile does so at the log's end, behind all that was looked at.
    if start > log_start:
        # Late, it does what it does now: below `start` are fillers for ever, as long as it is the same topic. Brokers
        # know topics by their names alone here.
        target.delete_records({tp: start}, check)
    return start


def is_filler(raw: RawBatch) -> bool:
    """Return whether a batch holds fillers of any Mirror.

    The batch header is enough: a producer id of ours, all timestamps 0, and the offset as sequence. The sequences of
    copied records start from a hash.
    """
    header = raw.header
    return (
        header is not None
        and identity.is_ours(header.producer_id)
        and header.base_timestamp == header.max_timestamp == 0
        and header.base_sequence == header.base_offset % wire_batch.MAX_SEQUENCE
    )


def _check_fillers(target: WireCluster, mirror: str, tp: TopicPartition, end: int) -> None:
    """Check that nothing but this Mirror's fillers stands below ``end``."""
    try:
        at = _behind_fillers(target, mirror, tp, target.log_starts([tp])[tp], end)
    except BrokerError as e:
        # Another copier of this mirror has looked at them, and deletes them while we look.
        if e.code != ErrorCode.OFFSET_OUT_OF_RANGE or target.log_starts([tp])[tp] < end:
            raise
        return
    if at < end:
        raise ForeignData(
            tp.topic, tp.partition, at, end, "another writer's records stand among the fillers with which it is primed",
            "None of them was deleted. Stop that writer, delete the topic and start again.",
        )  # fmt: skip


def _behind_fillers(target: WireCluster, mirror: str, tp: TopicPartition, start: int, end: int) -> int:
    """Return where this Mirror's fillers end that begin at ``start``; ``end`` if nothing else comes before it."""
    ours = identity.filler_producer_id(mirror, tp)
    # Fetch one batch at a time: a broker sends it whole, and mostly the first one is no filler.
    for raw, _ in read_batches(target, tp, start, end, isolation=READ_UNCOMMITTED, max_bytes=1):
        if raw.header is None or raw.header.producer_id != ours:
            break
        start = raw.header.next_offset
    return start


def _settled_end(target: WireCluster, tp: TopicPartition, expected: int) -> int:
    """Wait up to a second for the log end to reach ``expected`` and return it: another copier may be ahead."""
    # By the log's own end, of which an election may take something back: the next filler then begins where that has left
    # it.
    deadline = time.monotonic() + 1.0
    while (at := target.log_ends([tp])[tp]) < expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return at


@lru_cache(maxsize=8)
def _payload(count: int) -> bytes:
    """Return ``count`` encoded filler records, compressed. There are few sizes: see :func:`prime`."""
    return bytes(codec.compress(codec.ZSTD, b"".join(_record(delta) for delta in range(count))))


def _record(delta: int) -> bytes:
    """Encode one record: length, attributes, timestamp delta 0, offset delta, empty key, null value, no headers."""
    body = b"\0\0" + zigzag(delta) + b"\x00\x01\x00"
    return zigzag(len(body)) + body
