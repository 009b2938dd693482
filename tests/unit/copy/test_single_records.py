"""Batches of one record each become one batch, byte by byte as an encoder would have made it."""

from __future__ import annotations

import random
import struct

import crc32c
import pytest

from airflow_mirror.copy.batches import joining
from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.copy.loop.limits import Buffer, Memory
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.opening.identical import Opening
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import CorruptBatch
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, records
from airflow_mirror.wire.batch import RawBatch, iter_batches
from airflow_mirror.wire.fetch import FetchedPartition
from airflow_mirror.wire.records import Record

START = 12_345
pytestmark = pytest.mark.usefixtures("either_heart")


def rows(count: int, seed: int = 1) -> list[Record]:
    """Records with times that rise and fall over years, null and empty parts, and lengths around a varint's borders."""
    rng = random.Random(seed)
    return [
        Record(
            START + i,
            1_600_000_000_000 + rng.choice([0, i, -(10**11), 10**11]) + rng.randint(-70, 70),
            rng.choice([None, b"", b"key-%d" % i]),
            rng.choice([None, b"", rng.randbytes(rng.choice([3, 50, 54, 60, 120, 130, 700]))]),
            rng.choice([[], [(b"h", None)], [(b"h", b"1"), (b"h", b""), (b"\xff\xfe", b"\xff")]]),
        )
        for i in range(count)
    ]


def one_by_one(of: list[Record], number: int = codec.NONE) -> bytearray:
    content = bytearray()
    for record in of:
        view = records.encode([record], number, 5, 0, 0)
        struct.pack_into(">q", view, 0, record.offset)
        content += view
    return content


def copied(
    content: bytes | bytearray, start: int = START, end: int | None = None, limit: int = 1_000_000
) -> PartitionCopy:
    copy = PartitionCopy(
        CopyRange(source_topic="t", target_topic="t", partition=0, start_offset=start, end_offset=end),
        True,
        limit,
        merge_below=1024,
    )
    copy.begin_opening()
    copy.reopen(Opening(position=start, producer_id=5, epoch=0, sequence=0))
    view = memoryview(bytearray(content))
    copy.feed(FetchedPartition(copy.range.source, 0, 10**6, 10**6, 0, [], view), Buffer(Memory(1 << 20), len(view), 0))
    return copy


def sent(copy: PartitionCopy) -> list[Send]:
    found = []
    while (step := copy.next_step()) is not None:
        if not isinstance(step, Send):
            break
        copy.sent(step)
        copy.acknowledged(step, step.base_offset, 0)
        found.append(step)
    return found


def encoded(send: Send) -> memoryview:
    return send.signed(1_000_000, 1, 0, 0)


def shown(sends: list[Send]) -> list[Record]:
    """Return what a reader of the target sees, each batch at its offset."""
    found: list[Record] = []
    for send in sends:
        raw = next(iter_batches(encoded(send)))
        found += [r._replace(offset=r.offset - raw.first_offset + send.base_offset) for r in records.decode(raw)]
    return found


@pytest.mark.parametrize("count", [2, 3, 64, 65, 700])
def test_single_records_are_merged_into_batches_unchanged(count: int) -> None:
    source = rows(count)
    copy = copied(one_by_one(source))
    batches = sent(copy)
    assert shown(batches) == source
    assert sum(b.merged for b in batches) == copy.counters.merged == count
    assert len(batches) < count and copy.counters.passed == 0
    for batch in batches:
        (raw,) = iter_batches(encoded(batch))
        assert raw.header is not None and wire_batch.crc_is_valid(raw.view, raw.header)
        assert raw.header.max_timestamp == max(r.timestamp for r in records.decode(raw)) == batch.newest_timestamp


def test_a_hole_between_single_records_ends_the_batch() -> None:
    source = [r for r in rows(9) if r.offset not in (START + 3, START + 7)]
    copy = copied(one_by_one(source))
    assert [(s.base_offset, s.record_count) for s in sent(copy)] == [(START, 3)]  # then the hole has to be filled


def test_no_batch_is_larger_than_the_target_takes() -> None:
    source = rows(400)
    for limit in (900, 5000):
        batches = sent(copied(one_by_one(source), limit=limit))
        assert shown(batches) == source
        assert 1 < len(batches) < 400
        assert max(len(encoded(b)) for b in batches) <= limit


def test_a_range_that_ends_among_them_ends_there() -> None:
    copy = copied(one_by_one(rows(50)), end=START + 20)
    assert shown(sent(copy)) == rows(50)[:20] and copy.done


@pytest.mark.parametrize("number", [codec.LZ4, codec.ZSTD])
def test_compressed_singles_are_merged_as_well(number: int) -> None:
    source = rows(30)
    batches = sent(copied(one_by_one(source, number)))
    assert shown(batches) == source and len(batches) == 1


@pytest.mark.parametrize(
    ("number", "size", "merged"),
    [(codec.ZSTD, 100, True), (codec.ZSTD, 5000, False), (codec.GZIP, 20, True), (codec.GZIP, 300, False)],
)
def test_batches_are_as_large_as_what_is_in_them(number: int, size: int, merged: bool) -> None:
    """All take below 200 bytes, and to compress them again takes by what they are then."""
    source = [Record(START + i, 1_600_000_000_000, None, b"x" * size, []) for i in range(10)]
    batches = sent(copied(one_by_one(source, number)))
    assert shown(batches) == source
    assert len(batches) == (1 if merged else 10)


def test_small_batch_of_very_many_records_is_as_large_as_they_are() -> None:
    many = [Record(START + i, 1_600_000_000_000, None, None, []) for i in range(13_000)]
    content = records.encode(many, codec.ZSTD, 5, 0, 0)
    assert len(content) < 16_384 and joining.worthwhile(content, 65536, len(content)) == 0


def test_what_is_large_is_seen_behind_a_response_that_is_broken() -> None:
    copy = copied(b"no batch begins here at all" * 3)
    for at in (0, 1):
        view = memoryview(one_by_one(rows(2)[at : at + 1]))
        copy.feed(
            FetchedPartition(copy.range.source, 0, 10**6, 10**6, 0, [], view), Buffer(Memory(1 << 20), len(view), 0)
        )
    with pytest.raises(CorruptBatch, match="no batch begins where one should"):
        sent(copy)


def test_batch_written_in_an_unusual_way_is_decoded() -> None:
    """A lone record with a delta of its own, as a producer may write that fixed the base time before."""
    content = one_by_one(rows(6))
    odd = next(raw for i, raw in enumerate(iter_batches(memoryview(content))) if i == 2)
    body = bytes(odd.view[wire_batch.HEADER_SIZE :])
    assert body[2] == 0 or body[1] == 0
    at = 1 if body[0] < 0x80 else 2
    changed = bytearray(odd.view)
    changed[wire_batch.HEADER_SIZE + at + 1] = 10  # timestamp delta 5
    struct.pack_into(">I", changed, 17, crc32c.crc32c(bytes(changed[21:])))
    begin = sum(len(raw.view) for i, raw in enumerate(iter_batches(memoryview(content))) if i < 2)
    content[begin : begin + len(changed)] = changed
    expected = [r for raw in iter_batches(memoryview(content)) for r in decode_at(raw)]
    assert expected[2].timestamp == rows(6)[2].timestamp + 5
    assert shown(sent(copied(content))) == expected


def decode_at(raw: RawBatch) -> list[Record]:
    return list(records.decode(raw))


def test_a_damaged_one_stops_the_copy_behind_the_good_ones() -> None:
    content = one_by_one(rows(40))
    begins, at = [], 0
    for raw in iter_batches(memoryview(content)):
        begins.append(at)
        at += len(raw.view)
    content[begins[25] + 63] ^= 1
    copy = copied(content)
    assert sum(s.record_count for s in take_until_broken(copy)) == 25
    assert copy.position == START + 25


def take_until_broken(copy: PartitionCopy) -> list[Send]:
    found: list[Send] = []
    with pytest.raises(CorruptBatch, match=rf"offsets \[{START + 25}, "):
        while isinstance(step := copy.next_step(), Send):
            copy.sent(step)
            copy.acknowledged(step, step.base_offset, 0)
            found.append(step)
    return found


KB = 1024


@pytest.mark.parametrize(
    ("number", "size", "merged"),
    [
        (codec.NONE, 60 * KB, True), (codec.NONE, 70 * KB, False), (codec.LZ4, 30 * KB, True),
        (codec.LZ4, 36 * KB, False), (codec.SNAPPY, 30 * KB, True), (codec.SNAPPY, 36 * KB, False),
        (codec.ZSTD, 20 * KB, True), (codec.ZSTD, 24 * KB, False), (codec.GZIP, 1900, True), (codec.GZIP, 2200, False),
    ],
)  # fmt: skip
def test_batches_are_merged_below_a_size_of_their_codec(number: int, size: int, merged: bool) -> None:
    """To compress them again takes by what is in them: whether they are stored in half of that or in all of it."""
    chance = random.Random(5)
    for value in (lambda: b"x" * 100, lambda: chance.randbytes(100)):
        source = [Record(i, 1_600_000_000_000, None, value(), []) for i in range(size // 106)]
        content = records.encode(source, number, 5, 0, 0)
        (raw,) = iter_batches(memoryview(content))
        below = joining.worthwhile(memoryview(content), 64 * KB, len(content))
        assert (len(raw.view) < below) == merged


def test_batches_that_are_stored_in_more_are_not_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be done for each response of everybody who has large batches."""
    chance = random.Random(5)
    content = records.encode([Record(i, 0, None, chance.randbytes(100), []) for i in range(400)], codec.LZ4, 5, 0, 0)
    monkeypatch.setattr(codec, "decompress", lambda *_: pytest.fail("it was decompressed"))
    assert joining.worthwhile(memoryview(content), 64 * KB, len(content)) == 0
