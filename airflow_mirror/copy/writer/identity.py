"""Who writes: the producer ids that a Mirror uses at the target, all derived from names, none stored.

Two copiers of a partition, started by mistake or by a retry, therefore write under the same producer id and with the
same sequences: the broker answers the second with the first one's offset, or with an error, never with a second copy.
"""

from __future__ import annotations

import xxhash

from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.partition import TopicPartition

# Ids that brokers hand out count up from 0; ours live in the upper half of the positive range.
_OURS = 1 << 62


def is_ours(producer_id: int) -> bool:
    """Say whether a producer id is one of ours, of whatever Mirror."""
    return producer_id >= _OURS


def data_producer_id(mirror: str, tp: TopicPartition) -> int:
    """Return the producer id under which a Mirror writes records to a target partition."""
    return _OURS | (xxhash.xxh3_64_intdigest(f"data\0{mirror}\0{tp.topic}\0{tp.partition}".encode()) >> 2)


def writer_of(mirror: str, one: CopyRange) -> int:
    """Return the producer id for the records of ``one``; partitioned by key, several ranges write to a partition."""
    if one.key_partitions is None:
        return data_producer_id(mirror, one.target)
    return _OURS | (xxhash.xxh3_64_intdigest(f"by key\0{mirror}\0{one.map_key}".encode()) >> 2)


def filler_producer_id(mirror: str, tp: TopicPartition) -> int:
    """Return the producer id of the records that prime a partition up to its first offset."""
    return _OURS | (xxhash.xxh3_64_intdigest(f"filler\0{mirror}\0{tp.topic}\0{tp.partition}".encode()) >> 2)


def sequence_after_unknown(mirror: str, tp: TopicPartition, end_offset: int) -> int:
    """Return the sequence to begin with when neither the log nor the broker remembers the last one.

    Any first sequence is accepted then. It must not look like the next one of a copier that still runs, or both
    would be accepted: a hash of the position meets that by 1 in 2^31, "0" or the offset would by construction.
    """
    return xxhash.xxh3_64_intdigest(f"{mirror}\0{tp.topic}\0{tp.partition}\0{end_offset}".encode()) & 0x7FFFFFFF
