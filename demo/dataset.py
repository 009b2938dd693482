"""Fill the source with what real clusters hold, and remember what a migration has to keep.

The records follow from a seed; the clock only moves their timestamps. Where batches begin is up to the client.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, TopicPartition

from demo.clients import (
    Partition,
    Settings,
    admin,
    commit_positions,
    config,
    create_topics,
    delete_records,
    log_bounds,
    partitions_of,
    set_cluster_configs,
    set_topic_configs,
)
from demo.console import Console
from demo.filling import (
    Writer,
    wait_for_cleaner,
    write_bulk,
    write_in_batches,
    write_rounds,
    write_transactions,
)
from demo.records import CODECS, DAY_MS, hostile, payloads

TRIMMED, TRANSACTIONAL, COMPACTED = "sensors.trimmed", "payments.transactional", "accounts.compacted"
QUIET, BULK, LIVE = "audit.quiet", "clicks.bulk", "shop.live"
LIVE_GROUP = "live-dashboard"

# Records keep their age, so time retention would delete what is years old, on the source and at once on the target.
KEEP: Mapping[str, str] = {"retention.ms": "-1"}
# The cleaner of the source takes every segment but the last, at once ...
CLEAN_NOW: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "1000",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "86400000",
}
# ... and then neither cluster's cleaner takes any: each cleans when it likes, and two logs that are compared record by
# record must not be cleaned in between. These settings travel to the target with the topic.
CLEAN_LATER: Mapping[str, str | None] = {
    "min.compaction.lag.ms": str(7 * DAY_MS),
    "min.cleanable.dirty.ratio": None,
    "segment.ms": None,
}


@dataclass(frozen=True)
class Size:
    """How much to write. ``bulk_records`` are of 1,024 bytes; the others are mixed."""

    bulk_records: int = 400_000
    bulk_partitions: int = 8
    mixed_records: int = 3_000
    rounds: int = 60


@dataclass
class Dataset:
    """What was written.

    :param groups: group -> partition -> committed offset.
    :param now_ms: the time that the records' ages count from.
    """

    topics: list[str] = field(default_factory=list)
    groups: dict[str, dict[Partition, int]] = field(default_factory=dict)
    now_ms: int = 0
    seconds: float = 0.0


def fill(settings: Settings, console: Console, size: Size | None = None, seed: int = 7) -> Dataset:
    """Fill an empty cluster, as a user who may do everything; return what it holds now.

    :raises KafkaException: when a broker refuses something; TimeoutError: when the log cleaner does not clean.
    """
    client, now_ms, started = admin(settings), int(time.time() * 1000), time.monotonic()
    size, dataset = size or Size(), Dataset(now_ms=now_ms)
    for part in (_mixed, _trimmed, _transactional, _compacted, _quiet, _live, _bulk):
        part(settings, console, size, random.Random(f"{seed} {part.__name__}"), now_ms)
    dataset.topics = sorted([*map(_mixed_topic, CODECS), TRIMMED, TRANSACTIONAL, COMPACTED, QUIET, LIVE, BULK])
    everything = [p for topic in dataset.topics for p in partitions_of(client, topic)]
    dataset.groups = _groups(settings, log_bounds(client, everything))
    for group, positions in dataset.groups.items():
        commit_positions(settings, group, positions, note=f"{group} was here")
    console.say(f"✓ {len(dataset.topics)} topics, {len(everything)} partitions, {len(dataset.groups)} groups")
    dataset.seconds = time.monotonic() - started
    return dataset


def _mixed_topic(codec: str) -> str:
    return f"orders.{codec}"


def _mixed(settings: Settings, console: Console, size: Size, rng: random.Random, now_ms: int) -> None:
    """Five topics, one for each codec: irregular records, years old and out of order; the last partition is empty."""
    create_topics(admin(settings), [(_mixed_topic(codec), 3, KEEP) for codec in CODECS])
    with console.step("source: five codecs") as step:
        for number, codec in enumerate(CODECS):
            writer = Writer(settings, codec)
            for partition, share in ((0, 1.0), (1, 0.3)):
                base_ms = now_ms - (number + 1) * 365 * DAY_MS - partition * 90 * DAY_MS
                records = list(hostile(rng, int(size.mixed_records * share), base_ms, 30 * DAY_MS))
                write_in_batches(writer, _mixed_topic(codec), partition, records, (1, 3, 240, 17, 900))
            step.bar(number + 1, len(CODECS), "codecs")


def _trimmed(settings: Settings, console: Console, size: Size, rng: random.Random, now_ms: int) -> None:
    """Two logs that do not start at 0: one begins inside a batch, of the other nothing is left but its end."""
    create_topics(admin(settings), [(TRIMMED, 2, KEEP)])
    with console.step("source: a log that starts inside a batch"):
        writer, base_ms = Writer(settings, "snappy"), now_ms - 2 * 365 * DAY_MS
        for partition in (0, 1):
            records = list(hostile(rng, size.mixed_records, base_ms, 20 * DAY_MS))
            write_in_batches(writer, TRIMMED, partition, records, (250,))
        # 133 offsets into a batch of 250; and everything of partition 1.
        inside = size.mixed_records // 2 // 250 * 250 + 133
        delete_records(admin(settings), {Partition(TRIMMED, 0): inside, Partition(TRIMMED, 1): -1})


def _transactional(settings: Settings, console: Console, size: Size, rng: random.Random, now_ms: int) -> None:
    create_topics(admin(settings), [(TRANSACTIONAL, 2, KEEP)])
    with console.step("source: transactions") as step:
        records = list(hostile(rng, size.mixed_records // 2, now_ms - 400 * DAY_MS, 10 * DAY_MS))
        committed, aborted = write_transactions(
            settings, TRANSACTIONAL, 2, records, rng, lambda done, total: step.bar(done, total, "records")
        )
        step.summary = f"{committed} committed, {aborted} aborted"


def _compacted(settings: Settings, console: Console, size: Size, rng: random.Random, now_ms: int) -> None:
    """A changelog that the log cleaner has really compacted, with a younger part that it has not touched."""
    client = admin(settings)
    create_topics(client, [(COMPACTED, 1, CLEAN_NOW)])
    # The cleaner looks for work every 15 s by default.
    set_cluster_configs(client, {"log.cleaner.backoff.ms": "200"})
    with console.step("source: compaction") as step:
        first_ms = now_ms - 4 * 3_600_000
        removable = write_rounds(settings, COMPACTED, first_ms, size.rounds, rng, lambda a, b: step.bar(a, b, "rounds"))
        written = log_bounds(client, [Partition(COMPACTED, 0)])[Partition(COMPACTED, 0)][1]
        wait_for_cleaner(settings, COMPACTED, written, removable, step.note)
        set_topic_configs(client, COMPACTED, CLEAN_LATER)
        write_rounds(settings, COMPACTED, now_ms - 3_600_000, 5, rng, lambda *_: None)
        step.summary = f"the log cleaner removed {removable:,} of {written:,} records"
    set_cluster_configs(client, {"log.cleaner.backoff.ms": None})


def _quiet(settings: Settings, _console: Console, _size: Size, _rng: random.Random, _now_ms: int) -> None:
    create_topics(admin(settings), [(QUIET, 2, {})])


def _live(settings: Settings, _console: Console, _size: Size, _rng: random.Random, _now_ms: int) -> None:
    create_topics(admin(settings), [(LIVE, 4, {})])


def _bulk(settings: Settings, console: Console, size: Size, rng: random.Random, now_ms: int) -> None:
    create_topics(admin(settings), [(BULK, size.bulk_partitions, KEEP)])
    with console.step("source: bulk") as step:
        values, total_mb = payloads(rng, 3_000, 1024), size.bulk_records * 1024 / 1e6

        def progress(done: float, total: float) -> None:
            step.bar(done / total * total_mb, total_mb, "MB")

        write_bulk(settings, BULK, size.bulk_partitions, values, size.bulk_records, now_ms, progress)
        step.summary = f"{size.bulk_records:,} records of 1 KB, {size.bulk_records / step.seconds:,.0f}/s"


def _groups(settings: Settings, bounds: Mapping[Partition, tuple[int, int]]) -> dict[str, dict[Partition, int]]:
    """Decide where the groups stand: at the start, in the middle, at the end, and where they never read."""

    def over(topics: tuple[str, ...], where: Callable[[int, int], int]) -> dict[Partition, int]:
        return {p: where(start, end) for p, (start, end) in sorted(bounds.items()) if p.topic in topics}

    every_topic = tuple({p.topic for p in bounds} - {LIVE})
    middle = over(("orders.zstd", TRIMMED, BULK), lambda start, end: (start + end) // 2)
    for topic in (TRANSACTIONAL, COMPACTED):  # nobody stops a consumer at a hole, but a commit may well point into one
        hole = _first_hole(settings, topic, bounds[Partition(topic, 0)])
        middle[Partition(topic, 0)] = hole
    return {
        "fraud-check": over(("orders.lz4", TRIMMED, COMPACTED), lambda start, _end: start),
        "reporting": middle,
        "archive": over(every_topic, lambda _start, end: end),
        "auditors": over((QUIET,), lambda _start, _end: 0),
    }


def _first_hole(settings: Settings, topic: str, bounds: tuple[int, int]) -> int:
    """Return the first offset in the second half of partition 0 at which no committed record stands."""
    more = {"enable_auto_commit": False, "enable_partition_eof": True, "auto_offset_reset": "error"}
    consumer = Consumer(config(settings, group_id="demo-holes", isolation_level="read_committed", **more))
    expected = sum(bounds) // 2
    try:
        consumer.assign([TopicPartition(topic, 0, expected)])
        while True:
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise RuntimeError(f"{topic}-0 at {expected}: {error}")
                if error is not None or message.offset() != expected:
                    return expected
                expected += 1
    finally:
        consumer.close()
