"""Key partitioning: the target partition of a record, for a target topic with another partition count.

A record with a key goes to the partition that Kafka's Java producer would choose (BuiltInPartitioner: murmur2 of the
key, its sign bit cleared, modulo the partition count). For a record without a key the Java producer has no fixed
partition. Here its source partition decides, so that a copy that continues after a crash decides the same.
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import murmur2


def partition_of(key: bytes | None, source_partition: int, partitions: int) -> int:
    """Return the target partition of a record."""
    if key is None:
        # By something that never changes: a copy that begins again must find the record where the one before has put
        # it.
        return source_partition % partitions
    return int(murmur2(key, partitions))


def key_filter(source_partition: int, target_partition: int, partitions: int) -> Callable[[bytes | None], bool]:
    """Return a function that tells if a record of ``source_partition`` with this key goes to ``target_partition``."""
    return lambda key: partition_of(key, source_partition, partitions) == target_partition
