"""Write the source's topics, and count what is in them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire import fetch
from airflow_mirror.wire.batch import iter_batches
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import FetchSpec
from benchmarks import segments
from benchmarks.cases import Case
from benchmarks.systems import ROOT, Running, replay_commands
from benchmarks.worlds import Endpoint
from sandbox.process import Child

_CLEAN = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
    # Rolled by the last record alone, which is a day younger (benchmarks.records).
    "segment.ms": str(12 * 3_600_000),
}
_TIMEOUT_S = 600.0
_PIPELINE = 8  # requests under way: filling is not measured


def fill(case: Case, source: Endpoint, scale: float, work: Path, note: Callable[[str], None]) -> tuple[int, int]:
    """Create and fill a case's topic; return (records, bytes) that are in it in the end.

    :raises RuntimeError: when it could not be filled, or the log cleaner did not clean.
    """
    source.create(case.topic, case.partitions, dict(case.settings) | (_CLEAN if case.compacted else {}))
    batches = case.batches(scale)
    if case.as_files:
        segments.write(case, source, batches)
    else:
        _produce(case, source, scale, work, note)
    if case.compacted:
        _clean(case, source, note)
    with WireCluster(source.plain) as wire:
        records = sum(source.ends(wire, case.topic, case.partitions))
        size = sum(wire.log_sizes([TopicPartition(case.topic, p) for p in range(case.partitions)]).values())
    if case.compacted:
        return sum(count(source, case)), size
    if records != case.total(scale):
        raise RuntimeError(f"topic {case.topic} has {records} records instead of {case.total(scale)}")
    return records, size


def _produce(case: Case, source: Endpoint, scale: float, work: Path, note: Callable[[str], None]) -> None:
    batches = case.batches(scale)
    depth = 1 if case.compacted else _PIPELINE
    commands = replay_commands(case, dict(source.plain.properties), case.topic, batches, depth)
    log = work / f"fill-{case.name}.log"
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    with Running([Child(command, log, work, environment) for command in commands], log) as filling:
        _wait(filling, case, source, scale, note)


def _wait(filling: Running, case: Case, source: Endpoint, scale: float, note: Callable[[str], None]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    with WireCluster(source.plain) as wire:
        while filling.ended() is None and time.monotonic() < deadline:
            written = sum(source.ends(wire, case.topic, case.partitions))
            note(f"{written:,} of {case.total(scale):,} records written")
            time.sleep(0.25)
    if filling.ended() != 0:
        raise RuntimeError(f"topic {case.topic} not filled, status {filling.ended()}:\n{filling.tail_of_log()}")


def _clean(case: Case, source: Endpoint, note: Callable[[str], None]) -> None:
    """Wait until the log cleaner has been through every partition, then forbid it to come again."""
    deadline = time.monotonic() + _TIMEOUT_S
    with WireCluster(source.plain) as wire:
        ends = source.ends(wire, case.topic, case.partitions)
    while True:
        kept = count(source, case)
        cleaned = sum(records < 0.9 * end for records, end in zip(kept, ends, strict=True))
        note(f"the log cleaner has cleaned {cleaned} of {case.partitions} partitions")
        if cleaned == case.partitions:
            break
        if time.monotonic() > deadline:
            raise RuntimeError(f"topic {case.topic}: the log cleaner cleaned {cleaned} of {case.partitions} partitions")
        time.sleep(0.5)
    with ClusterAdmin(source.plain) as admin:
        admin.alter_topic_configs(
            case.topic, unfenced, {"cleanup.policy": "delete"}, [k for k in _CLEAN if k != "cleanup.policy"]
        )


def count(endpoint: Endpoint, case: Case) -> list[int]:
    """Return the records of each partition, counted batch by batch from their headers: a cleaned log has holes."""
    records = [0] * case.partitions
    with WireCluster(endpoint.plain) as wire:
        tps = [TopicPartition(case.topic, p) for p in range(case.partitions)]
        at, ends = wire.log_starts(tps), wire.high_watermarks(tps)
        connection = wire.dedicated(wire.leader(tps[0]).node_id)
        deadline = time.monotonic() + _TIMEOUT_S
        while behind := [tp for tp in tps if at[tp] < ends[tp]]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"topic {case.topic} not counted within {_TIMEOUT_S:.0f} s")
            body = fetch.encode([FetchSpec(tp, at[tp], 4 << 20) for tp in behind], 100, 1, 32 << 20, 0)
            _, error, answers = fetch.decode(connection.roundtrip(fetch.API_KEY, fetch.NEWEST, body))
            bad = error or next((answer.error for answer in answers if answer.error), 0)
            if bad:
                raise RuntimeError(f"topic {case.topic} can't be counted: error {bad}")
            for answer in answers:
                for raw in iter_batches(answer.records):
                    at[answer.tp] = raw.next_offset
                    records[answer.tp.partition] += raw.header.record_count if raw.header else 0
        connection.close()
    return records
