"""Damage the target on purpose, by one record or one offset, to see that the referee finds it and where.

A log can't be edited, so its topic is deleted and written again with the damage in it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from demo.clients import (
    Partition,
    Settings,
    admin,
    commit_positions,
    create_topics,
    delete_topic,
    group_positions,
    log_bounds,
    partitions_of,
    topic_configs,
)
from demo.filling import Writer
from demo.records import Record
from demo.referee import Reader

KINDS = ("corrupt", "drop", "shift")


def inflict(kind: str, target: Settings, topic: str, groups: Sequence[str]) -> str:
    """Do the damage and return its place, as the referee must name it.

    :param kind: ``corrupt`` changes one byte of one value; ``drop`` leaves one record out and nothing else, so that its
        offset is a hole; ``shift`` moves one position of the first group by one.
    :param topic: for the first two: one that starts at 0 and has no holes.
    :param groups: keep their positions; Kafka forgets those on a topic that is deleted.
    """
    if kind == "shift":
        return _shift(target, groups[0])
    positions = {group: group_positions(target, group) for group in groups}
    place = _rewrite(target, topic, drop=kind == "drop")
    for group, all_of_it in positions.items():
        if lost := {p: offset for p, offset in all_of_it.items() if p.topic == topic}:
            commit_positions(target, group, lost)
    return place


def _shift(target: Settings, group: str) -> str:
    partition, offset = max(group_positions(target, group).items(), key=lambda item: (item[1], item[0]))
    commit_positions(target, group, {partition: offset - 1})
    return f"group {group!r} on {partition}"


def _rewrite(target: Settings, topic: str, drop: bool) -> str:
    """Write the topic again; the damage is in the middle of its first partition."""
    client, reader = admin(target), Reader(target)
    bounds, configs = log_bounds(client, partitions_of(client, topic)), topic_configs(client, topic)
    content: dict[Partition, list[Record]] = {}
    for partition, (start, end) in bounds.items():
        rows = [row for chunk in reader.rows(partition, start, end) for row in chunk]
        if start or len(rows) != end:
            raise ValueError(f"{partition} starts at {start} and has {len(rows)} records of {end}: it can't be rewritten")
        content[partition] = [Record(at[1], key, value, tuple(headers or ())) for _, at, key, value, headers in rows]
    reader.close()
    delete_topic(client, topic)
    create_topics(client, [(topic, len(bounds), configs)])
    first, middle = min(content), len(content[min(content)]) // 2
    writer = Writer(target, "lz4")
    for partition, records in content.items():
        if partition != first:
            writer.write(topic, partition.number, records)
    if drop:
        # The commit marker takes the offset of the record that is left out: a hole, and everything else in its place.
        transaction = Writer(target, "lz4", f"{topic}-fault")
        transaction.producer.init_transactions()
        transaction.producer.begin_transaction()
        transaction.write(topic, first.number, content[first][:middle])
        transaction.producer.commit_transaction()
        while log_bounds(client, [first])[first][1] <= middle:
            time.sleep(0.05)  # the commit is answered before its marker is in the log
        writer.write(topic, first.number, content[first][middle + 1 :])
    else:
        damaged = replace(content[first][middle], value=_flip(content[first][middle].value))
        writer.write(topic, first.number, [*content[first][:middle], damaged, *content[first][middle + 1 :]])
    return f"{first} offset {middle}"


def _flip(value: bytes | None) -> bytes:
    return bytes([value[0] ^ 1]) + value[1:] if value else b"\0"
