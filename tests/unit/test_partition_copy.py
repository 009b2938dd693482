"""What a partition's copy counts when answers are lost."""

from __future__ import annotations

import struct

import pytest

from airflow_mirror.copy.budget import Buffer, Memory
from airflow_mirror.copy.opening import Opening
from airflow_mirror.copy.partition import PartitionCopy
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.tiers import Send
from airflow_mirror.wire import codec, records
from airflow_mirror.wire.fetch import FetchedPartition
from airflow_mirror.wire.records import Record

SIZES = (4, 9, 5)


def feed(copy: PartitionCopy) -> None:
    """Answer its fetch with the batches of a log from its position on."""
    content, at = bytearray(), 0
    for size in SIZES:
        view = records.encode([Record(i, 0, None, b"v", []) for i in range(size)], codec.NONE, 5, 0, 0)
        struct.pack_into(">q", view, 0, at)
        content += view if at >= copy.position else b""
        at += size
    found = FetchedPartition(copy.range.source, 0, at, at, 0, [], memoryview(content))
    copy.feed(found, Buffer(Memory(1 << 20), len(content)))


def send(copy: PartitionCopy) -> Send:
    step = copy.next_step()
    assert isinstance(step, Send)
    copy.sent(step)
    return step


@pytest.mark.parametrize("landed", [True, False])
def test_each_record_is_counted_once_whatever_became_of_the_answer(landed: bool) -> None:
    copy = PartitionCopy(CopyRange("t", "t", 0, 0, sum(SIZES)), True, 1_000_000)
    copy.reopen(Opening(0, 5, 0, 0))
    feed(copy)
    copy.acknowledged(send(copy), 0)
    send(copy)
    copy.forget()
    copy.forget()  # the next try to open it fails, too
    assert copy.counters.records == 4, "nobody knows yet"
    copy.reopen(Opening(13 if landed else 4, 5, 0, 0))
    assert copy.counters.records == (13 if landed else 4)
    copy.reopen(Opening(copy.position, 5, 0, 0))
    feed(copy)
    while not copy.done:
        step = send(copy)
        copy.acknowledged(step, step.base_offset)
    assert (copy.counters.records, copy.counters.batches, copy.counters.passed) == (18, 3, 3)
