"""What a copy makes of damaged bytes: whatever is broken, nothing of it is sent, and its offsets are named."""

from __future__ import annotations

import struct

import pytest

from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.copy.loop.limits import Buffer, Memory
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.opening.identical import Opening
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED, CopyRange
from airflow_mirror.errors import CorruptBatch
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, records
from airflow_mirror.wire.fetch import FetchedPartition
from airflow_mirror.wire.records import Record

START = 700
pytestmark = pytest.mark.usefixtures("either_heart")


def log(*sizes: int) -> tuple[bytearray, list[int]]:
    """Batches of so many records each from offset 700 on, and where in the bytes each begins."""
    out, begins, offset = bytearray(), [], START
    for size in sizes:
        rows = [Record(i, 1_650_000_000_000 - i * 977, b"k%d" % i, b"x" * i, [(b"h", None)]) for i in range(size)]
        view = records.encode(rows, codec.NONE, 5, 0, 0)
        struct.pack_into(">q", view, 0, offset)
        begins.append(len(out))
        out += view
        offset += size
    return out, begins


def opened(end: int | None = None, mode: str = IDENTICAL) -> PartitionCopy:
    copy = PartitionCopy(
        CopyRange(source_topic="orders", target_topic="orders", partition=4, start_offset=0, end_offset=end, mode=mode),
        True,
        1_000_000,
    )
    copy.begin_opening()
    mapped = OffsetMap(START, START) if copy.range.is_mapped else None
    copy.reopen(Opening(position=START, producer_id=5, epoch=0, sequence=0, map=mapped))
    return copy


def feed(copy: PartitionCopy, content: bytes | bytearray, watermark: int = 10_000) -> None:
    view = memoryview(bytearray(content))
    fetched = FetchedPartition(copy.range.source, 0, watermark, watermark, 0, [], view)
    copy.feed(fetched, Buffer(Memory(1 << 20), len(view), 0))


def run(copy: PartitionCopy, sent: list[Send] | None = None) -> list[Send]:
    """Acknowledge every step until there is none; raises what the copy raises."""
    sent = [] if sent is None else sent
    while (step := copy.next_step()) is not None:
        assert isinstance(step, Send), step
        copy.sent(step)
        copy.acknowledged(step, step.base_offset, 0)
        sent.append(step)
    return sent


# All but the base offset (0-7) and the leader epoch (12-15), which the broker overwrites and no checksum covers.
FIELDS = [*range(8, 12), *range(16, 61), 61, 64, 90]


@pytest.mark.parametrize("at", FIELDS)
@pytest.mark.parametrize("bit", [0x01, 0x80])
@pytest.mark.parametrize("merge_below", [0, 1024])
def test_a_flipped_bit_anywhere_stops_the_copy_before_its_batch(at: int, bit: int, merge_below: int) -> None:
    content, begins = log(4, 9, 5)
    content[begins[1] + at] ^= bit
    copy = opened()
    copy.merge_below = merge_below
    feed(copy, content)
    sent: list[Send] = []
    with pytest.raises(CorruptBatch) as stopped:
        for _ in range(5):  # a length that goes too far looks like a batch that was cut off: it is asked for again
            run(copy, sent)
            feed(copy, content[begins[1] :])
    assert [(s.base_offset, s.record_count) for s in sent] == [(START, 4)]
    assert (stopped.value.start_offset, copy.position) == (START + 4, START + 4)
    assert f"orders-4 offsets [{START + 4}, " in str(stopped.value)


def test_a_base_offset_that_goes_back_stops_the_copy() -> None:
    content, begins = log(4, 9, 5)
    struct.pack_into(">q", content, begins[2], START + 6)
    copy = opened()
    feed(copy, content)
    with pytest.raises(CorruptBatch, match=r"offset 706 comes after offset 712"):
        run(copy)
    assert copy.position == START + 13


def test_base_offset_that_jumps_ahead_stops_the_copy() -> None:
    """Not covered by the checksum either; alone it looks like a hole, and what is behind it would be lost."""
    for end in (None, START + 15):
        content, begins = log(4, 9, 5)
        struct.pack_into(">q", content, begins[1], START + 800)
        copy = opened(end)
        feed(copy, content)
        with pytest.raises(CorruptBatch, match=r"offset 1500 comes before one of offset 713"):
            run(copy)
        assert copy.position == START + 4


@pytest.mark.parametrize("end", [None, START + 13, START + 9])
@pytest.mark.parametrize("mode", [IDENTICAL, MAPPED])
@pytest.mark.parametrize("merge_below", [0, 1024])
@pytest.mark.parametrize("by", [1, 9, 800])
@pytest.mark.parametrize("alone", [False, True])
def test_last_base_offset_that_jumps_ahead_stops_the_copy(
    end: int | None, mode: str, merge_below: int, by: int, alone: bool
) -> None:
    """No batch behind it tells, but the log's end does. As a hole, it would be filled up to the end of the range."""
    content, begins = log(4, 9)
    struct.pack_into(">q", content, begins[1], START + 4 + by)
    copy = opened(end, mode)
    copy.merge_below = merge_below
    for part in (content[: begins[1]], content[begins[1] :]) if alone else (content,):
        feed(copy, part, START + 13)
    with pytest.raises(CorruptBatch, match=rf"offset {START + 4 + by} comes behind offset 703, where .* ends at 713"):
        run(copy)
    assert copy.position == START + 4


@pytest.mark.parametrize("mode", [IDENTICAL, MAPPED])
def test_batch_that_was_appended_while_a_broker_answered_is_copied(mode: str) -> None:
    """It has taken the watermark before it read the log."""
    content, _ = log(4, 9)
    copy = opened(mode=mode)
    feed(copy, content, START + 4)
    run(copy)
    assert copy.position == START + 13


def test_jump_behind_the_end_of_the_range_is_nobodys_business() -> None:
    content, begins = log(4, 9)
    struct.pack_into(">q", content, begins[1], START + 800)
    copy = opened(START + 4)
    feed(copy, content, START + 13)
    assert len(run(copy)) == 1
    assert copy.done


def test_invalid_bytes_stop_the_copy_after_the_valid_batches() -> None:
    content, begins = log(4, 9)
    content[begins[1] + 16] = 77  # magic
    copy = opened()
    feed(copy, content)
    with pytest.raises(CorruptBatch, match="no batch begins where one should"):
        run(copy)
    assert copy.position == START + 4


def test_a_damaged_batch_beyond_the_range_is_nobodys_business() -> None:
    content, begins = log(4, 9)
    content[begins[1] + 70] ^= 1
    copy = opened(end=START + 4)
    feed(copy, content)
    assert len(run(copy)) == 1
    assert copy.done


def test_header_size_is_what_the_fields_above_assume() -> None:
    assert wire_batch.HEADER_SIZE == 61
