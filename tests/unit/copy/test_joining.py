"""Tiny batches become one, and nothing about their records changes: offset, time, order, headers."""

from __future__ import annotations

import random
import struct

import pytest

from airflow_mirror.copy.batches.joining import joiner as joiner_of
from airflow_mirror.copy.batches.tiers import Corrupt, Send, Tier, actions
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, records
from airflow_mirror.wire.batch import iter_batches
from airflow_mirror.wire.records import Record

MAX = 1_000_000
pytestmark = pytest.mark.usefixtures("either_heart")


def batches(
    sizes: list[int], start: int = 300, gap_after: int = -1, codecs: tuple[int, ...] = (codec.NONE,)
) -> list[Send]:
    """Source batches of so many records each; a hole of 5 offsets behind one of them."""
    rng = random.Random(7)
    content, offset = bytearray(), start
    for index, size in enumerate(sizes):
        rows = [
            Record(0, 1_600_000_000_000 + rng.randint(-(10**9), 10**9), rng.choice([None, b"", b"k%d" % i]),
                   rng.randbytes(rng.randint(0, 40)), [(b"h", None)] if i % 3 else [])
            for i in range(size)
        ]  # fmt: skip
        view = records.encode(rows, codecs[index % len(codecs)], 5, 0, 0)
        struct.pack_into(">q", view, 0, offset)
        content += view
        offset += size + (5 if index == gap_after else 0)
    found = []
    for raw in iter_batches(memoryview(content)):
        for step in actions(raw, Tier.PASS, 0, 2**62, MAX):
            assert isinstance(step, Send)
            found.append(step)
    return found


def merged(steps: list[Send | Corrupt] | list[Send], below: int, max_bytes: int, *, dense: bool) -> list[Send | Corrupt]:
    """Join as a partition's copy does."""
    joiner = joiner_of(below, max_bytes, dense=dense)
    found: list[Send | Corrupt] = []
    for step in steps:
        if isinstance(step, Send) and joiner.take(step):
            continue
        if (joined := joiner.flush()) is not None:
            found.append(joined)
        if not isinstance(step, Send) or not joiner.take(step):
            found.append(step)
    return found + [joined for joined in [joiner.flush()] if joined is not None]


def rows_of(steps: list[Send | Corrupt]) -> list[Record]:
    found: list[Record] = []
    for step in steps:
        assert isinstance(step, Send)
        rows = list(records.decode(step.raw or raw_of(step.signed(MAX, 1, 0, 0))))
        spans = step.spans()
        offsets = [first + i for first, count in zip(spans[::2], spans[1::2], strict=True) for i in range(count)]
        found += [row._replace(offset=offset) for row, offset in zip(rows, offsets, strict=True)]
    return found


def test_backlog_of_single_records_becomes_one_equal_batch() -> None:
    source = batches([1] * 500)
    result = merged(source, 1024, MAX, dense=True)
    assert [(s.record_count, s.merged) for s in result if isinstance(s, Send)] == [(500, 500)]
    assert rows_of(result) == rows_of(list(source))


def test_hole_ends_a_merged_batch_only_with_identical_offsets() -> None:
    """With mapped offsets the batch goes on behind the hole."""
    source = batches([2, 3, 1, 4], gap_after=1)
    dense = [s for s in merged(source, 4096, MAX, dense=True) if isinstance(s, Send)]
    assert [(s.base_offset, s.record_count) for s in dense] == [(300, 5), (310, 5)]
    mapped = [s for s in merged(source, 4096, MAX, dense=False) if isinstance(s, Send)]
    assert [s.spans().tolist() for s in mapped] == [[300, 5, 310, 5]]
    assert rows_of(list(mapped)) == rows_of(list(source))


def test_a_lone_tiny_batch_passes_as_it_is() -> None:
    source = batches([3])
    assert (merged(source, 4096, MAX, dense=True)) == source


def test_large_batches_and_errors_stay_in_their_place() -> None:
    source = [*batches([1, 1, 90, 1, 1]), Corrupt(394, 395, "its CRC-32C does not fit its bytes")]
    result = merged(source, 600, MAX, dense=True)
    assert [(s.base_offset, s.record_count) if isinstance(s, Send) else s.start for s in result] == [
        (300, 2), (302, 90), (392, 2), 394,
    ]  # fmt: skip


def test_batches_of_different_codecs_are_not_mixed() -> None:
    source = batches([2] * 6, codecs=(codec.LZ4, codec.LZ4, codec.ZSTD))
    result = [s for s in merged(source, 4096, MAX, dense=True) if isinstance(s, Send)]
    assert [(s.record_count, s.codec if s.raw is None else -1) for s in result] == [
        (4, codec.LZ4),
        (2, -1),
        (4, 3),
        (2, -1),
    ]


@pytest.mark.parametrize("limit", [600, 5000])
def test_no_merged_batch_is_larger_than_the_target_takes(limit: int) -> None:
    source = batches([1] * 300)
    result = [s for s in merged(source, 1024, limit, dense=True) if isinstance(s, Send)]
    assert rows_of(list(result)) == rows_of(list(source))
    for send in result:
        assert len(send.signed(limit, 1, 0, 0)) <= limit


def test_unreadable_batch_passes_as_it_is_between_joined_ones() -> None:
    """It would only be joined; as it is, it may pass: nothing but its payload is broken, and its checksum fits that."""
    source = batches([2, 2, 2, 2, 2], codecs=(codec.ZSTD,))
    broken = source[2].raw
    assert broken is not None and broken.header is not None
    broken.view[wire_batch.HEADER_SIZE :] = bytes(len(broken.view) - wire_batch.HEADER_SIZE)
    result = [s for s in merged(source, 4096, MAX, dense=True) if isinstance(s, Send)]
    assert [(s.base_offset, s.record_count, s.merged) for s in result] == [(300, 4, 2), (304, 2, 0), (306, 4, 2)]
    assert result[1].raw is broken


@pytest.mark.repeats
def test_small_batch_of_very_many_records_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    many = records.encode([Record(0, 5, b"k", None, [])] * 20_000, codec.ZSTD, 5, 0, 0)
    (raw,) = iter_batches(many)
    assert raw.header is not None and raw.header.size < 20_000
    monkeypatch.delattr(records, "pack")
    monkeypatch.setattr(codec, "decompress", None)
    assert not joiner_of(20_000, MAX, dense=True).take_batch(raw, raw.header)


def test_records_encoded_again_are_joined_with_their_neighbours() -> None:
    """With the time of append, for example: every batch is encoded again, however small it is."""
    source = batches([2, 3])
    again = [step for s in source if s.raw is not None for step in actions(s.raw, Tier.REENCODE, 0, 2**62, MAX)]
    (one,) = [s for s in merged(again, 4096, MAX, dense=True) if isinstance(s, Send)]
    assert (one.record_count, one.merged) == (5, 2)
    assert rows_of([one]) == rows_of(list(source))


def tiny(codec_number: int = codec.NONE, offset: int = 300) -> memoryview:
    view = records.encode([Record(0, 1_600_000_000_000 + i, b"k", b"v" * 9, []) for i in range(3)], codec_number, 5, 0, 0)
    struct.pack_into(">q", view, 0, offset)
    return view


def raw_of(view: memoryview) -> wire_batch.RawBatch:
    return next(iter(iter_batches(view)))


def test_damaged_batch_is_left_for_whoever_names_it() -> None:
    view = tiny(codec.LZ4)
    view[-4:] = b"\xff" * 4
    raw, joiner = raw_of(view), joiner_of(MAX, MAX, dense=True)
    assert raw.header is not None and not joiner.take_batch(raw, raw.header)
    assert joiner.flush() is None


def test_batch_of_more_records_than_fit_is_not_even_unpacked() -> None:
    raw, joiner = raw_of(tiny()), joiner_of(MAX, wire_batch.HEADER_SIZE + 10, dense=True)
    assert raw.header is not None and not joiner.take_batch(raw, raw.header)


def test_records_behind_a_hole_begin_another_batch() -> None:
    one, after = batches([2]), batches([2], start=310)
    joiner = joiner_of(MAX, MAX, dense=True)
    assert joiner.take(one[0]) and not joiner.take(after[0])
