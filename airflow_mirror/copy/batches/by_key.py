"""Partitioning by key: which partition of a topic of another size a record goes to.

With a key it is the one that Kafka's Java producer would choose (BuiltInPartitioner: murmur2 of the key, its sign bit
cleared, modulo the partition count). A record without a key has no partition of its own there; here its source partition
decides, so that a copy that continues after a crash decides the same.
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import murmur2


def partition_of(key: bytes | None, source_partition: int, partitions: int) -> int:
    """Return the target partition of a record."""
    if key is None:
        return source_partition % partitions
    return int(murmur2(key, partitions))


def key_filter(source_partition: int, target_partition: int, partitions: int) -> Callable[[bytes | None], bool]:
    """Return a function that says whether a record of ``source_partition`` with this key goes to ``target_partition``."""
    return lambda key: partition_of(key, source_partition, partitions) == target_partition
