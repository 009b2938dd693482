"""Records of both sides, compared by a digest of all that a reader sees. Payload itself never goes into an error."""

from __future__ import annotations

import xxhash

from airflow_mirror.copy.batches import tiers
from airflow_mirror.copy.batches.tiers import Corrupt
from airflow_mirror.errors import CorruptBatch
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.aborted import data_batches
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED
from airflow_mirror.wire.records import Record
from airflow_mirror.wire.single import read_batches


def committed_records(
    cluster: WireCluster, tp: TopicPartition, start: int, end: int, isolation: int
) -> dict[int, Record]:
    """Return the records in [start, end) that a reader of this isolation would see, by offset."""
    found: dict[int, Record] = {}
    fetched = read_batches(cluster, tp, start, end, isolation=isolation)
    for raw in data_batches(fetched, committed=isolation == READ_COMMITTED):
        found.update((r.offset, r) for r in decoded(raw, tp, cluster.role) if start <= r.offset < end)
    return found


def decoded(raw: RawBatch, tp: TopicPartition, side: str) -> list[Record]:
    """Return the records of a batch that was copied earlier.

    :raises CorruptBatch: it was damaged since, so that nothing can be compared with it.
    """
    corrupt = tiers.damage(raw, raw.first_offset)
    if corrupt is None:
        try:
            return list(wire_records.decode(raw))
        except ValueError as e:
            corrupt = Corrupt(raw.first_offset, raw.next_offset, str(e))
    raise CorruptBatch(
        tp.topic, tp.partition, corrupt.start, corrupt.end,
        f"the {side}'s batch with which the copy would be compared is broken: {corrupt.cause}",
        f"Nothing was written. Restore it from another replica of the {side}.",
    )  # fmt: skip


def digest(record: Record) -> str:
    """A short digest of timestamp, key, value and headers."""
    return xxhash.xxh3_64_hexdigest(repr((record.timestamp, record.key, record.value, record.headers)).encode())
