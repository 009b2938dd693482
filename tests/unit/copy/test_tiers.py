"""Which way a batch goes, decided from its header; and what a broken one does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from airflow_mirror.copy.batches import tiers
from airflow_mirror.copy.batches.tiers import Corrupt, Send, Tier
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, heart, packed, records
from airflow_mirror.wire.batch import BatchHeader, RawBatch, iter_batches
from airflow_mirror.wire.records import Record
from tests.hearts import beating

MAX = 1_000_000


@pytest.fixture(params=["pure", "compiled"], autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "compiled" and heart.engine is None:
        pytest.skip("nothing could compile the heart on this machine")
    with beating(heart.engine if request.param == "compiled" else None, 1 << 18):
        yield


def header(**change: int) -> BatchHeader:
    plain = BatchHeader(1000, 500, 3, 2, 0, 0, 9, 0, 0, 5, 0, 0, 10)
    return plain._replace(**change)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, Tier.PASS),
        ({"attributes": wire_batch.TRANSACTIONAL}, Tier.PASS),
        ({"attributes": wire_batch.DELETE_HORIZON}, Tier.PASS),
        ({"attributes": wire_batch.CONTROL}, Tier.DROP),
        ({"record_count": 0}, Tier.DROP),
        ({"record_count": 9}, Tier.REENCODE),
        ({"attributes": wire_batch.LOG_APPEND_TIME}, Tier.REENCODE),
        ({"length": MAX}, Tier.REENCODE),
    ],
    ids=["ordinary", "transactional", "delete-horizon", "control", "emptied", "holes", "append-time", "too-large"],
)
def test_tier_follows_from_the_header(change: dict[str, int], expected: Tier) -> None:
    assert tiers.tier_of(header(**change), 0, 2**62, MAX) is expected


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(1000, 1010, Tier.PASS), (1001, 2000, Tier.REENCODE), (0, 1009, Tier.REENCODE)]
)
def test_a_range_that_cuts_a_batch_reencodes_it(start: int, end: int, expected: Tier) -> None:
    assert tiers.tier_of(header(), start, end, MAX) is expected


def test_magic_0_and_1_are_reencoded() -> None:
    assert tiers.tier_of(None, 0, 10, MAX) is Tier.REENCODE


def raw_with_offsets(offsets: list[int], number: int = codec.ZSTD) -> RawBatch:
    """A batch as compaction leaves it: dense when written, then records removed and offset deltas kept."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for offset in offsets:
        builder.append(offset - offsets[0], 1_700_000_000_000 - offset, b"k%d" % offset, b"v", [("h", None)])
    payload = bytes(codec.compress(number, memoryview(builder.build())[wire_batch.HEADER_SIZE :]))
    view = wire_batch.build(payload, number, len(offsets), 1_700_000_000_000 - offsets[0], 1_700_000_000_000, 1, 0, 0)
    (raw,) = iter_batches(view)
    assert raw.header is not None
    view = memoryview(bytearray(view))
    last = offsets[-1] - offsets[0]
    wire_batch.HEADER.pack_into(view, 0, *raw.header._replace(base_offset=offsets[0], last_offset_delta=last))
    import struct

    import crc32c

    struct.pack_into(">I", view, 17, crc32c.crc32c(view[21:]))
    (raw,) = iter_batches(view)
    return raw


@pytest.mark.parametrize("max_bytes", [MAX, 300], ids=["fits", "too-large"])
def test_batch_with_holes_becomes_dense_runs_at_equal_offsets(max_bytes: int) -> None:
    rng = random.Random(7)
    offsets = sorted(rng.sample(range(5000, 5300), 90))
    raw = raw_with_offsets(offsets)
    assert tiers.tier_of(raw.header, 0, 2**62, MAX) is Tier.REENCODE
    sends = list(tiers.actions(raw, Tier.REENCODE, 0, 2**62, max_bytes))
    copied: list[Record] = []
    for send in sends:
        assert isinstance(send, Send)
        assert send.spans().tolist() == [send.base_offset, send.record_count]
        copied += decoded_at(send.signed(max_bytes, 1, 0, 0), send.base_offset)
    assert copied == list(records.decode(raw))
    assert [r.offset for r in copied] == offsets


def test_records_outside_the_range_are_left_out() -> None:
    raw = raw_with_offsets([10, 11, 12, 15, 16])
    sends = list(tiers.actions(raw, Tier.REENCODE, 11, 16, MAX))
    assert [(s.base_offset, s.record_count) for s in sends if isinstance(s, Send)] == [(11, 2), (15, 1)]


def test_oversized_batch_is_split_without_losing_records() -> None:
    raw = raw_with_offsets(list(range(200)), codec.NONE)
    sends = [s for s in tiers.actions(raw, Tier.REENCODE, 0, 200, 2000) if isinstance(s, Send)]
    parts = [s.signed(2000, 1, 0, 0) for s in sends]
    # As many as fit: whether one more record fits is known to the byte.
    assert all(1980 < len(part) <= 2000 for part in parts[:-1]) and len(parts) > 1
    assert [len(part) for part in parts] == [s.size for s in sends]
    assert [r for s in sends if s.encoded for r in s.encoded.records()] == list(records.pack(raw))


def test_parts_of_a_split_batch_stay_within_the_limit() -> None:
    """Null and long keys, no value, many headers, names of several bytes a letter: sizes are those of the bytes."""
    rows = [
        Record(
            i, 1_700_000_000_000 - i * 10**9,
            None if i % 3 else b"k" * (i % 90), None if i % 5 == 2 else b"v" * (i % 130),
            [("ü€".encode() * (i % 4), None if i % 2 else b"x" * (i % 70))] * (i % 6),
        )
        for i in range(400)
    ]  # fmt: skip
    (raw,) = iter_batches(records.encode(rows, codec.NONE, 1, 0, 0))
    for limit in (900, 1500, 4001):
        sends = [s for s in tiers.actions(raw, Tier.REENCODE, 0, 400, limit) if isinstance(s, Send)]
        parts = [s.signed(limit, 1, 0, 0) for s in sends]
        assert max(map(len, parts)) <= limit < sum(map(len, parts)) / 2
        again = [r for part, s in zip(parts, sends, strict=True) for r in decoded_at(part, s.base_offset)]
        assert again == rows


def test_record_that_is_too_large_alone_takes_its_shorter_form() -> None:
    """The limit may have been raised since: what its source took compressed, the target takes compressed."""
    row = Record(0, 1_700_000_000_000, b"k", random.Random(3).randbytes(2000) + bytes(2000), [])
    (raw,) = iter_batches(records.encode([row], codec.GZIP, 1, 0, 0))
    (send,) = (s for s in tiers.actions(raw, Tier.REENCODE, 0, 1, 1500) if isinstance(s, Send))
    assert 2000 < len(send.signed(1500, 1, 0, 0)) < 2500


def decoded_at(view: memoryview, base: int) -> list[Record]:
    (raw,) = iter_batches(view)
    return [r._replace(offset=r.offset + base) for r in records.decode(raw)]


def test_broken_checksum_is_damage_with_its_offsets() -> None:
    raw = raw_with_offsets([100, 101, 102])
    raw.view[70] ^= 1
    found = tiers.damage(raw, 90)
    assert found == Corrupt(100, 103, "its CRC-32C does not fit its bytes")


def with_body(body: bytes, at: int = 1) -> RawBatch:
    """Three records, of which one has this body under a length and a checksum that are right."""
    bodies = [packed.body_of(b"k%d" % n, b"v", [(b"h", None)]) for n in range(3)]
    bodies[at] = body
    payload = b"".join(packed.frame(0, n, len(one)) + one for n, one in enumerate(bodies))
    (raw,) = iter_batches(wire_batch.build(payload, codec.NONE, 3, 0, 0, -1, -1, -1))
    return raw


@pytest.mark.parametrize("wanted", [None, lambda _: True, lambda key: key == b"k0"], ids=["all", "each", "one"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x80",
        b"\x03\x01\x00",  # a key of less than nothing
        b"\x7e\x01\x00",  # a key that goes beyond the record
        b"\x01\x01\x01",  # less than no headers
        b"\x01\x01\x02\x01\x01",  # a header without a name
        b"\x01\x01\x02\x02h",  # a header without an end
        b"\x01\x01\xfe\xff\xff\xff\x0f",
        b"\x01\x01\x00\x00",  # a byte too many
    ],
)
def test_record_whose_fields_can_not_be_read_ends_the_copy_in_front_of_its_batch(
    body: bytes, wanted: Callable[[bytes | None], bool] | None
) -> None:
    """It is named, instead of being offered to a target that refuses it with a word that says nothing, or stores it."""
    raw = with_body(body)
    (found,) = tiers.actions(raw, Tier.REENCODE, 0, 3, MAX, dense=False, wanted=wanted)
    assert isinstance(found, Corrupt) and (found.start, found.end) == (0, 3)
    # What stands in front of it has been sent already where the target takes no more at once.
    sent, found = tiers.actions(with_body(body, 2), Tier.REENCODE, 0, 3, 80, dense=False)
    assert isinstance(sent, Send) and isinstance(found, Corrupt) and (sent.next_source, found.start) == (1, 1)
    # And one that is not wanted by its offset is not looked at.
    (sent,) = tiers.actions(raw, Tier.REENCODE, 2, 3, MAX)
    assert isinstance(sent, Send) and sent.base_offset == 2


def test_parts_leave_room_for_a_target_that_compresses_them_again() -> None:
    """Random bytes get longer by it, and a broker compares the size once more behind that."""
    rng = random.Random(3)
    rows = [Record(i, 0, None, rng.randbytes(49_953), []) for i in range(4)]  # two are 11 bytes below the limit
    (raw,) = iter_batches(records.encode(rows, codec.NONE, 1, 0, 0))
    sends = [s for s in tiers.actions(raw, Tier.REENCODE, 0, 4, 100_000) if isinstance(s, Send)]
    parts = [s.signed(100_000, 1, 0, 0) for s in sends]
    assert sum(s.record_count for s in sends) == 4
    for number in (codec.GZIP, codec.SNAPPY, codec.LZ4, codec.ZSTD):
        again = [bytes(codec.compress(number, part[wire_batch.HEADER_SIZE :])) for part in parts]
        assert max(map(len, again)) + wire_batch.HEADER_SIZE <= 100_000
