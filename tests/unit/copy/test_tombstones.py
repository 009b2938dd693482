"""Fillers of compacted topics: what is built is recognised, nothing else is, and a comparison passes over them."""

from __future__ import annotations

import random

import pytest

from airflow_mirror.copy.batches import tombstones
from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.copy.loop.asked import Pad
from airflow_mirror.copy.loop.limits import Buffer, Memory
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.opening.identical import Opening
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import TargetMoved
from airflow_mirror.verify.compare import compare
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.fetch import FetchedPartition
from airflow_mirror.wire.records import Record

NOW = 1_600_000_000_007


def at(offset: int, view: memoryview) -> RawBatch:
    """Return a batch as a log holds it: its base offset is written in front."""
    wire_batch.struct.pack_into(">q", view, 0, offset)  # type: ignore[attr-defined]
    return next(wire_batch.iter_batches(view))


def data(offset: int, *values: bytes, key: bytes = b"k", codec_number: int = codec.GZIP) -> RawBatch:
    records = [Record(i, NOW + i, key, value, []) for i, value in enumerate(values)]
    return at(offset, wire_records.encode(records, codec_number, 7, 0, 0))


def fill(start: int, end: int, max_bytes: int = 1_000_000) -> RawBatch:
    send = tombstones.filler(start, end, NOW, max_bytes)
    assert send.raw is not None
    return at(start, send.raw.view)


@pytest.mark.repeats
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 999, 1000, 1001, 8191, 8192, 8193, 99_999, 100_000])
def test_fillers_are_empty_records_of_the_reserved_key(count: int) -> None:
    raw = fill(17, 17 + count)
    records = list(wire_records.decode(raw))
    assert [r.offset for r in records] == list(range(17, 17 + count))
    assert {(r.key, r.value, r.timestamp, len(r.headers)) for r in records} == {(tombstones.KEY, None, NOW, 0)}
    assert tombstones.is_filler(raw)
    assert all(map(tombstones.is_filler_record, records))


@pytest.mark.parametrize("max_bytes", [1, 200, 1_000, 5_000, 77_777, 200_000])
def test_oversized_hole_is_filled_in_parts(max_bytes: int) -> None:
    """No batch of fillers is larger than the target takes."""
    raw = fill(0, 10**9, max_bytes)
    assert raw.header is not None
    assert raw.header.size <= max(max_bytes, 150)
    assert raw.header.record_count <= tombstones.MOST


@pytest.mark.parametrize(
    "raw",
    [
        data(3, b"v"),
        data(3, b"", key=tombstones.KEY),
        data(3, *[b""] * 40, key=tombstones.KEY),
        at(3, wire_records.encode([Record(0, NOW, tombstones.KEY, None, [(b"h", b"")])], codec.GZIP, 7, 0, 0)),
        at(3, wire_records.encode([Record(0, NOW, tombstones.KEY, None, [])], codec.NONE, 7, 0, 0)),
    ],
)
def test_batch_that_only_resembles_fillers_is_not_one(raw: RawBatch) -> None:
    assert not tombstones.is_filler(raw)


def test_a_broken_payload_is_no_filler() -> None:
    raw = fill(0, 50)
    raw.view[-9] ^= 0x55
    assert not tombstones.is_filler(raw)


@pytest.mark.repeats
@pytest.mark.parametrize("by_batch", [False, True])
def test_a_comparison_passes_over_fillers_and_counts_them(by_batch: bool) -> None:
    source = [data(0, b"a", b"b"), data(50, b"c"), data(2000, b"d")]
    target = [data(0, b"a", b"b"), fill(2, 50), data(50, b"c"), fill(51, 2000), data(2000, b"d"), fill(2001, 2010)]
    tally = compare(source, target, (0, 2005), by_batch=by_batch)
    assert (tally.records, tally.difference, tally.fillers) == (4, None, 48 + 1949 + 4)


def test_last_filler_left_by_a_cleaner_is_no_difference() -> None:
    left = wire_records.encode([Record(0, NOW, tombstones.KEY, None, [])], codec.NONE, 7, 0, 0)
    tally = compare([data(0, b"a"), data(9, b"b")], [data(0, b"a"), at(8, left), data(9, b"b")], (0, 10))
    assert (tally.difference, tally.fillers) == (None, 1)


def test_a_record_lost_under_a_filler_is_a_difference() -> None:
    tally = compare([data(0, b"a"), data(5, b"lost")], [data(0, b"a"), fill(1, 9)], (0, 9))
    assert tally.difference is not None
    assert (tally.difference.kind, tally.difference.offset) == ("missing", 5)


# --- in the copy of a partition --------------------------------------------------------------------------------------


def a_copy(*batches: RawBatch, end: int = 5_000, position: int = 0, **fields: object) -> PartitionCopy:
    copy = PartitionCopy(
        CopyRange(source_topic="users", target_topic="users", partition=0, start_offset=0, end_offset=end),
        True,
        1_000_000,
        tombstones=True,
        **fields,
    )  # type: ignore[arg-type]
    copy.begin_opening()
    copy.reopen(Opening(position=position, producer_id=5, epoch=0, sequence=0, timestamp=99))
    blob = memoryview(bytearray(b"".join(bytes(raw.view) for raw in batches)))
    copy.feed(
        FetchedPartition(
            CopyRange(source_topic="users", target_topic="users", partition=0, start_offset=0).source,
            0,
            end,
            end,
            0,
            [],
            blob,
        ),
        Buffer(Memory(1 << 20), len(blob), 0),
    )
    return copy


def walk(copy: PartitionCopy) -> list[Send]:
    """Acknowledge step after step and return them."""
    sent = []
    while (step := copy.next_step()) is not None:
        assert isinstance(step, Send)
        assert copy.next_step() is step  # the loop asks twice
        copy.sent(step)
        copy.acknowledged(step, step.base_offset, 0)
        sent.append(step)
    return sent


def test_holes_are_filled_at_the_preceding_records_time() -> None:
    """The holes stand before, between and behind the records; each filler takes a sequence."""
    copy = a_copy(data(4, b"a", b"b", b"c"), data(4_000, b"d"), at(4_500, _emptied()), end=4_501)
    sent = walk(copy)
    assert [(s.base_offset, s.record_count, s.filler) for s in sent] == [
        (0, 4, True), (4, 3, False), (7, 3_993, True), (4_000, 1, False), (4_001, 500, True),
    ]  # fmt: skip
    times = [s.raw.header.base_timestamp for s in sent if s.filler and s.raw is not None and s.raw.header is not None]
    assert times == [99, NOW + 2, NOW]
    c = copy.counters
    assert (copy.done, c.padded, c.records, c.batches) == (True, 4_497, 4, 2)
    assert copy.sequence == 4_501  # each filler takes a sequence, as each record does


def test_a_filler_that_landed_elsewhere_stops_the_copy() -> None:
    copy = a_copy(data(40, b"a"))
    step = copy.next_step()
    assert isinstance(step, Send)
    copy.sent(step)
    with pytest.raises(TargetMoved):
        copy.acknowledged(step, 3, 0)
    assert (copy.position, copy.counters.padded) == (0, 0)


def test_topics_that_did_not_ask_for_it_get_markers() -> None:
    copy = a_copy(data(40, b"a"))
    copy.tombstones = False
    assert copy.next_step() == Pad(0, 40)


def test_random_holes_are_filled_without_gap_or_overlap() -> None:
    rng = random.Random(5)
    offsets = sorted(rng.sample(range(3_000), 200))
    copy = a_copy(*(data(offset, b"v%d" % offset) for offset in offsets), end=offsets[-1] + 1)
    position = 0
    for step in walk(copy):
        assert step.base_offset == position
        position += step.record_count
    assert (position, copy.counters.records) == (offsets[-1] + 1, 200)


def _emptied() -> memoryview:
    """A batch from which the cleaner has taken every record."""
    view = memoryview(bytearray(wire_batch.HEADER_SIZE))
    header = wire_batch.BatchHeader(0, wire_batch.HEADER_SIZE - 12, 0, 2, 0, 0, 0, 0, 0, 9, 0, 0, 0)
    wire_batch.HEADER.pack_into(view, 0, *header)
    wire_batch.struct.pack_into(">I", view, 17, wire_batch.crc32c.crc32c(view[21:]))  # type: ignore[attr-defined]
    return view
