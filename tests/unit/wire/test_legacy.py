"""Message sets of magic 0 and 1, written by hand as old brokers stored them: nothing that reads them wrote them."""

from __future__ import annotations

import pytest

from airflow_mirror.wire import codec, legacy
from airflow_mirror.wire.legacy import Message
from tests.integration.segments import GZIP, LZ4, SNAPPY, OldRecord, message, wrapper

RECORDS: list[OldRecord] = [
    (1_400_000_000_000 - 7 * i, None if i % 3 == 0 else b"k%d" % i, None if i % 4 == 1 else b"v" * i * 9)
    for i in range(11)
]


def seen(offset: int, record: OldRecord, magic: int) -> Message:
    """What a consumer sees of a record; a message of magic 0 has no time."""
    return Message(offset, record[0] if magic else legacy.NO_TIMESTAMP, record[1], record[2])


@pytest.mark.parametrize("magic", [0, 1])
def test_single_messages_are_read_as_they_were_written(magic: int) -> None:
    for offset, record in enumerate(RECORDS, 40):
        view = memoryview(message(offset, record, magic))
        assert legacy.codec_of(view) == codec.NONE and legacy.crc_is_valid(view)
        assert legacy.decode(view) == [seen(offset, record, magic)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("number", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("holes", [frozenset[int](), frozenset({0, 3, 4, 10})], ids=["whole", "compacted"])
def test_wrapped_messages_have_their_own_offsets(magic: int, number: int, holes: frozenset[int]) -> None:
    """Inner offsets are absolute in magic 0 and count from the first in magic 1, whatever the cleaner took."""
    view = memoryview(wrapper(500, RECORDS, magic, number, holes=holes))
    assert legacy.codec_of(view) == number and legacy.crc_is_valid(view)
    assert legacy.decode(view) == [seen(500 + i, r, magic) for i, r in enumerate(RECORDS) if i not in holes]


def test_append_time_of_a_wrapper_replaces_the_inner_times() -> None:
    found = legacy.decode(memoryview(wrapper(0, RECORDS, 1, SNAPPY, append_time=99)))
    assert {one.timestamp for one in found} == {99}


@pytest.mark.parametrize("magic", [0, 1])
def test_flipped_bit_shows_in_the_checksum(magic: int) -> None:
    content = message(7, RECORDS[2], magic)
    for at in range(16, len(content)):  # offset, length and the sum itself stand before
        damaged = bytearray(content)
        damaged[at] ^= 4
        assert not legacy.crc_is_valid(memoryview(damaged)), at


@pytest.mark.parametrize("magic", [0, 1])
def test_message_that_is_cut_anywhere_is_one_kind_of_error(magic: int) -> None:
    for content in (message(7, RECORDS[2], magic), wrapper(7, RECORDS, magic, GZIP)):
        for length in range(1, len(content)):
            with pytest.raises(ValueError):
                legacy.decode(memoryview(content)[:length])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (message(3, (1, None, None), 1, attributes=GZIP), "without a value"),
        (message(3, (1, None, codec.compress(codec.GZIP, b"")), 1, attributes=GZIP), "is empty"),
        (
            message(3, (1, None, codec.compress(codec.GZIP, wrapper(0, RECORDS, 1, LZ4))), 1, attributes=GZIP),
            "holds wrap",
        ),
        (
            message(3, (1, None, codec.compress(codec.GZIP, message(0, RECORDS[2], 0))), 1, attributes=GZIP),
            "another magic",
        ),
    ],
    ids=["no-value", "nothing-inside", "wrapper-inside", "other-magic-inside"],
)
def test_wrapper_around_what_no_broker_wraps_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        legacy.decode(memoryview(content))
