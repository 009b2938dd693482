"""The producer ids that a Mirror uses on the target. They are derived from names and stored nowhere.

Two copiers of one partition, started by mistake or by a retry, therefore write with the same producer id and the same
sequences. The broker answers the second copier with the first one's offset or with an error, and never appends a
duplicate.
"""

from __future__ import annotations

import xxhash

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.ranges import CopyRange

# Brokers allocate ids upwards from 0; ours are in the upper half of the positive range.
_OURS = 1 << 62


def is_ours(producer_id: int) -> bool:
    """Return whether a producer id belongs to any Mirror."""
    return producer_id >= _OURS


def data_producer_id(mirror: str, tp: TopicPartition) -> int:
    """Return the producer id that a Mirror uses to write records to a target partition."""
    # The same where the target's topic was created again: what a broker knows of a producer belongs to a log
    # (ProducerStateManager), and that one is new.
    return _OURS | (xxhash.xxh3_64_intdigest(f"data\0{mirror}\0{tp.topic}\0{tp.partition}".encode()) >> 2)


def writer_of(mirror: str, copy_range: CopyRange) -> int:
    """Return the producer id for the records of ``one``; with key partitioning, ranges share a target partition."""
    if copy_range.key_partitions is None:
        return data_producer_id(mirror, copy_range.target)
    # Each range has sequences of its own, which a broker checks by producer id and partition: two ranges under one id
    # would refuse each other's batches.
    return _OURS | (xxhash.xxh3_64_intdigest(f"by key\0{mirror}\0{copy_range.map_key}".encode()) >> 2)


def filler_producer_id(mirror: str, tp: TopicPartition) -> int:
    """Return the producer id of the filler records that prime a partition up to its first offset."""
    # Not that of the data: by the last batch, or by what the leader knows of producers, a log that was only primed is
    # told from one that has records (`identical._is_fresh`).
    return _OURS | (xxhash.xxh3_64_intdigest(f"filler\0{mirror}\0{tp.topic}\0{tp.partition}".encode()) >> 2)


def sequence_after_unknown(mirror: str, tp: TopicPartition, end_offset: int) -> int:
    """Return the first sequence to use when neither the log nor the broker knows the last one.

    The broker then accepts any sequence. It must not equal the next sequence of another copier that is still running,
    or the broker would accept both. A hash of the position collides with a probability of 1 in 2^31; "0" or the offset
    would collide by construction.
    """
    return xxhash.xxh3_64_intdigest(f"{mirror}\0{tp.topic}\0{tp.partition}\0{end_offset}".encode()) & 0x7FFFFFFF
