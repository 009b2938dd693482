"""The 61-byte header: what passes, what must not, and what a re-signed batch looks like to a reader that is not ours."""

from __future__ import annotations

import random

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, heart, records
from airflow_mirror.wire.batch import iter_batches
from airflow_mirror.wire.records import Record

TIMESTAMPS = [-1, 0, 1, 999_999_999_999, 1_700_000_000_000, 1_700_000_000_001, 4_102_444_800_000]


def some_records(count: int, seed: int, first: int = 0) -> list[Record]:
    rng = random.Random(seed)
    header_choices = [[], [(b"h", None)], [(b"h", b""), (b"h", b"\xff\x00"), ("ключ".encode(), b"v")]]
    return [
        Record(
            first + i,
            rng.choice(TIMESTAMPS),
            rng.choice([None, b"", b"key", rng.randbytes(40)]),
            rng.choice([None, b"", b"v" * rng.randint(0, 3000)]),
            rng.choice(header_choices),
        )
        for i in range(count)
    ]


def only_batch(view: memoryview) -> wire_batch.RawBatch:
    (raw,) = iter_batches(view)
    return raw


@pytest.mark.parametrize("number", range(5), ids=codec.NAMES)
def test_records_survive_every_codec_and_another_reader_agrees(number: int) -> None:
    original = some_records(173, seed=number)
    raw = only_batch(records.encode(original, number, producer_id=7, epoch=3, sequence=2**31 - 5))
    assert raw.header is not None
    assert raw.header.codec == number
    assert raw.header.is_dense
    assert wire_batch.crc_is_valid(raw.view, raw.header)
    assert list(records.decode(raw)) == original
    theirs = DefaultRecordBatch(bytes(raw.view))
    assert theirs.validate_crc()
    seen = [(r.offset, r.timestamp, r.key, r.value, [(n.encode(), v) for n, v in r.headers]) for r in theirs]
    assert seen == [tuple(r) for r in original]


def test_batch_thinned_at_its_end_keeps_its_next_offset() -> None:
    """Who asked again from its last record on would get the same batch for ever, or take what follows for a hole."""
    raw = only_batch(records.encode(some_records(9, seed=1), codec.NONE, 1, 1, 1))
    assert raw.header is not None
    assert raw.header._replace(base_offset=100, record_count=4).next_offset == 109


def test_resigned_batch_keeps_its_payload_and_has_our_identity() -> None:
    raw = only_batch(records.encode(some_records(9, seed=1), codec.ZSTD, 1, 1, 1))
    assert raw.header is not None
    payload = bytes(raw.view[wire_batch.HEADER_SIZE :])
    wire_batch.resign(raw.view, raw.header, 2**62 + 5, 4, 77)
    after = only_batch(raw.view).header
    assert after is not None
    assert (after.base_offset, after.producer_id, after.producer_epoch, after.base_sequence) == (0, 2**62 + 5, 4, 77)
    assert wire_batch.crc_is_valid(raw.view, after)
    assert bytes(raw.view[wire_batch.HEADER_SIZE :]) == payload


@pytest.mark.usefixtures("either_heart")
@pytest.mark.parametrize("size", [1, 9, 173])
def test_batch_that_is_signed_again_has_the_checksum_of_its_bytes(size: int) -> None:
    """A retry has another sequence, and a new lease another epoch."""
    raw = only_batch(records.encode(some_records(size, seed=size), codec.LZ4, 1, 1, 1))
    assert raw.header is not None
    for sequence, transactional in ((0, False), (2**31 - 1, True), (7, False)):
        wire_batch.resign(raw.view, raw.header, 2**63 - 1, 32_767, sequence, transactional)
        after = only_batch(raw.view).header
        assert after is not None and after.base_sequence == sequence and wire_batch.crc_is_valid(raw.view, after)


@pytest.mark.skipif(heart.engine is None, reason="nothing could compile the heart on this machine")
def test_what_changed_in_memory_since_it_was_checked_gets_no_valid_checksum() -> None:
    raw = only_batch(records.encode(some_records(20, seed=5), codec.LZ4, 1, 1, 1))
    assert raw.header is not None
    raw.view[200] ^= 0x10
    wire_batch.resign(raw.view, raw.header, 5, 0, 0)
    after = only_batch(raw.view).header
    assert after is not None and not wire_batch.crc_is_valid(raw.view, after)


@pytest.mark.parametrize("bit", [wire_batch.TRANSACTIONAL, wire_batch.DELETE_HORIZON])
def test_resigning_clears_bits_that_mean_something_else_on_the_target(bit: int) -> None:
    raw = with_header(records.encode(some_records(3, seed=2), codec.NONE, 1, 1, 1), attributes=bit)
    assert raw.header is not None
    wire_batch.resign(raw.view, raw.header, 5, 0, 0)
    after = only_batch(raw.view).header
    assert after is not None
    assert after.attributes == 0


@pytest.mark.parametrize(
    "change",
    [{"last_offset_delta": 5}, {"attributes": wire_batch.CONTROL}, {"attributes": wire_batch.LOG_APPEND_TIME}],
    ids=["holes", "control", "log-append-time"],
)
def test_a_batch_that_must_not_pass_is_never_signed(change: dict[str, int]) -> None:
    raw = with_header(records.encode(some_records(3, seed=3), codec.NONE, 1, 1, 1), **change)
    before = bytes(raw.view)
    assert raw.header is not None
    with pytest.raises(ValueError, match="must not pass"):
        wire_batch.resign(raw.view, raw.header, 5, 0, 0)
    assert bytes(raw.view) == before


@given(st.integers(min_value=0, max_value=400))
def test_truncated_last_batch_is_left_out_at_any_cut(cut: int) -> None:
    one = bytes(records.encode(some_records(2, seed=4), codec.NONE, 1, 1, 1))
    buffer = memoryview(bytearray(one + one)[: len(one) + min(cut, len(one) - 1)])
    assert len(list(iter_batches(buffer))) == 1


def test_a_flipped_bit_is_found() -> None:
    raw = only_batch(records.encode(some_records(20, seed=5), codec.LZ4, 1, 1, 1))
    assert raw.header is not None
    raw.view[200] ^= 0x10
    assert not wire_batch.crc_is_valid(raw.view, raw.header)


def test_log_append_time_records_show_the_max_timestamp() -> None:
    view = records.encode(some_records(4, seed=6), codec.NONE, 1, 1, 1)
    raw = with_header(view, attributes=wire_batch.LOG_APPEND_TIME, max_timestamp=1_600_000_000_123)
    assert [r.timestamp for r in records.decode(raw)] == [1_600_000_000_123] * 4


def test_sequences_wrap_to_zero() -> None:
    assert wire_batch.next_sequence(2**31 - 2, 1) == 2**31 - 1
    assert wire_batch.next_sequence(2**31 - 1, 1) == 0
    assert wire_batch.next_sequence(2**31 - 3, 10) == 7


def with_header(view: memoryview, **change: int) -> wire_batch.RawBatch:
    """Return a batch whose header fields are changed and signed, as a broker or its cleaner would have written it."""
    header = only_batch(view).header
    assert header is not None
    wire_batch.HEADER.pack_into(view, 0, *header._replace(**change))
    import struct

    import crc32c

    struct.pack_into(">I", view, 17, crc32c.crc32c(view[21:]))
    return only_batch(view)
