"""The cost of copying each partition, in bytes, so that work is split by bytes and not by partitions or offsets.

A partition's size is what its leader reports (DescribeLogDirs), if the principal may ask (DESCRIBE on the cluster).
Otherwise it is estimated from one batch in the middle of the range to copy. If a log is copied in part, or was copied
in part before, the size is scaled by the share of the offsets. Each broker gets a few requests, whatever the number of
partitions: a thousand take well below a second.

Weights only balance the work. A failure here costs balance, never the job. So does a topic in tiered storage, of which
leaders report the local part alone: it weighs too little.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import MirrorError
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import fetch
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import FetchSpec

log = logging.getLogger(__name__)

OPENING = 1 << 20  # cost of a partition besides its bytes: opening it takes about as long as copying a megabyte
WEIGH_S = 3.0  # how long to try to read the target's ends: new topics have leaders only after a while
_SAMPLE_BYTES = 32 << 10
_PER_REQUEST = 256


def bytes_to_copy(source: WireCluster, target: WireCluster, ranges: Sequence[CopyRange]) -> Mapping[TopicPartition, int]:
    """Return the estimated bytes to copy for each source partition, plus :data:`OPENING`.

    :param ranges: must have ends.
    """
    left = {r.source: max(0, (r.end_offset or 0) - r.start_offset) for r in ranges}
    try:
        left |= _not_copied_yet(target, ranges)
    except MirrorError as e:
        log.info("work is split as if nothing were copied yet: %s", e)
    try:
        per_offset = _sizes(source, ranges)
    except MirrorError as e:
        log.info("sizes of partitions are estimated from samples: %s", e)
        per_offset = _sampled(source, ranges)
    return {tp: OPENING + round(offsets * per_offset[tp]) for tp, offsets in left.items()}


def _not_copied_yet(target: WireCluster, ranges: Sequence[CopyRange]) -> dict[TopicPartition, int]:
    """Return the offsets from the target's log end offset to the end of the range; mapped ranges are omitted."""
    identical = [r for r in ranges if r.mode == "identical"]
    ends = target.log_ends([r.target for r in identical]) if identical else {}
    return {r.source: max(0, (r.end_offset or 0) - max(r.start_offset, ends[r.target])) for r in identical}


def _sizes(source: WireCluster, ranges: Sequence[CopyRange]) -> Mapping[TopicPartition, float]:
    """Return bytes per offset, computed from whole logs."""
    partitions = list(dict.fromkeys(r.source for r in ranges))
    sizes = source.log_sizes(partitions)
    starts, ends = source.log_starts(partitions), source.high_watermarks(partitions)
    return {tp: sizes[tp] / max(1, ends[tp] - starts[tp]) for tp in partitions}


def _sampled(source: WireCluster, ranges: Sequence[CopyRange]) -> Mapping[TopicPartition, float]:
    """Return bytes per offset from one batch each; partitions without a sample get the mean of the others."""
    found: dict[TopicPartition, float] = {}
    try:
        for tp, per_offset in _samples(source, ranges):
            found[tp] = per_offset
    except MirrorError as e:
        log.info("work is split by offsets: %s", e)
    mean = sum(found.values()) / len(found) if found else 1.0
    return {r.source: found.get(r.source, mean) for r in ranges}


def _samples(source: WireCluster, ranges: Sequence[CopyRange]) -> Iterator[tuple[TopicPartition, float]]:
    by_node: dict[int, list[FetchSpec]] = {}
    for r in {r.source: r for r in ranges if (r.end_offset or 0) > r.start_offset}.values():
        leader = source.leader(r.source)
        middle = (r.start_offset + (r.end_offset or 0)) // 2
        by_node.setdefault(leader.node_id, []).append(FetchSpec(r.source, middle, _SAMPLE_BYTES, leader.epoch))
    for node_id, specs in by_node.items():
        for i in range(0, len(specs), _PER_REQUEST):
            part = specs[i : i + _PER_REQUEST]
            connection = source.connection(node_id)
            asked = fetch.ask(connection, part, 0, 0, len(part) * _SAMPLE_BYTES, fetch.READ_UNCOMMITTED)
            for partition in fetch.answer(connection, asked)[2]:
                per_offset = _bytes_per_offset(partition.records)
                if per_offset is not None:
                    yield partition.tp, per_offset


def _bytes_per_offset(records: memoryview) -> float | None:
    size = offsets = 0
    try:
        for raw in wire_batch.iter_batches(records):
            if raw.header is not None and not raw.header.is_control:
                size += len(raw.view)
                offsets += raw.header.next_offset - raw.header.base_offset
    except wire_batch.BrokenFrame:
        pass  # the copy reports it, with its offsets
    return size / offsets if offsets else None
