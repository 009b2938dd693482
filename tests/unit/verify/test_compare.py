"""What the pure comparison says about two logs that are equal, and about every way in which they can differ."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.verify.bounds import bounds_difference, through_map, window
from airflow_mirror.verify.compare import compare
from airflow_mirror.verify.result import Difference, LogBounds, PartitionComparison, PartitionPair
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec
from airflow_mirror.wire.batch import RawBatch, iter_batches
from airflow_mirror.wire.records import Record

# Irregular on purpose: equal and falling times, null and empty keys and values, repeated headers, a hole at 6-8.
LOG = [
    Record(3, 1_600_000_000_500, b"k1", b"first", []),
    Record(4, 1_600_000_000_500, None, b"", [("h", b"1"), ("h", None)]),  # type: ignore[list-item]  # as the library takes them
    Record(5, 1_200_000_000_000, b"", None, []),
    Record(9, 1_700_000_000_001, b"k2", bytes(range(256)) * 20, [("trace", b"\x00\xff")]),  # type: ignore[list-item]
    Record(10, 1_700_000_000_000, b"k1", b"second", []),
    Record(11, 1_700_000_000_000, b"k1", b"third", []),
    Record(12, 1_700_000_000_002, b"k9", b"last", []),
]


def batch(records: list[Record], codec_number: int = 0) -> RawBatch:
    """One magic 2 batch with these records at their own offsets; holes inside are kept."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**31 - 1)
    base = records[0].offset
    for record in records:
        builder.append(record.offset - base, record.timestamp, record.key, record.value, record.headers)
    payload = codec.compress(codec_number, bytes(builder.build())[wire_batch.HEADER_SIZE :])
    times = [r.timestamp for r in records]
    view = wire_batch.build(bytes(payload), codec_number, len(records), times[0], max(times), -1, -1, -1)
    struct.pack_into(">q", view, 0, base)
    struct.pack_into(">i", view, 23, records[-1].offset - base)
    _sign(view)
    return next(iter_batches(view))


def _sign(view: memoryview) -> None:
    import crc32c

    struct.pack_into(">I", view, 17, crc32c.crc32c(view[21:]))


def log(records: list[Record], *sizes: int, codec_number: int = 0) -> list[RawBatch]:
    """Cut records into batches of the given sizes; what is left makes one more."""
    batches, at = [], 0
    for size in (*sizes, len(records)):
        if records[at : at + size]:
            batches.append(batch(records[at : at + size], codec_number))
        at += size
    return batches


def changed(offset: int, **fields: object) -> list[Record]:
    return [r._replace(**fields) if r.offset == offset else r for r in LOG]  # type: ignore[arg-type]


def without(offset: int) -> list[Record]:
    return [r for r in LOG if r.offset != offset]


def found(source: list[RawBatch], target: list[RawBatch], by_batch: bool) -> Difference | None:
    return compare(source, target, (0, 100), by_batch=by_batch).difference


BOTH_LEVELS = pytest.mark.parametrize("by_batch", [False, True], ids=["records", "batches"])


@BOTH_LEVELS
@pytest.mark.parametrize("cuts", [(), (1, 2), (3, 1, 1), (1, 1, 1, 1, 1, 1)])
@pytest.mark.parametrize("codec_number", range(5))
def test_same_records_in_other_batches_and_codecs_are_equal(
    by_batch: bool, cuts: tuple[int, ...], codec_number: int
) -> None:
    tally = compare(log(LOG, 2, 3), log(LOG, *cuts, codec_number=codec_number), (0, 100), by_batch=by_batch)
    assert tally[:3] == (len(LOG), sum(len(b.view) for b in log(LOG, 2, 3)), None)


def test_whole_batches_are_taken_undecoded_when_their_bytes_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mirror.wire.records.decode", lambda raw: pytest.fail("decoded"))
    assert compare(log(LOG, 3), log(LOG, 3), (0, 100), by_batch=True).records == len(LOG)


@BOTH_LEVELS
@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"key": b"k3"}, "key"),
        ({"key": None}, "key"),
        ({"value": b"secon\x00"}, "value"),
        ({"value": None}, "value"),
        ({"value": b""}, "value"),
        ({"headers": [("a", None)]}, "headers"),
        ({"timestamp": 1_700_000_000_003}, "timestamp"),
    ],
)
def test_one_changed_field_is_found_at_its_offset(by_batch: bool, fields: dict[str, object], kind: str) -> None:
    difference = found(log(LOG, 4), log(changed(10, **fields), 4), by_batch)
    assert difference is not None and (difference.offset, difference.kind) == (10, kind)


@BOTH_LEVELS
def test_difference_shows_lengths_and_digests_and_no_payload(by_batch: bool) -> None:
    difference = found(log(LOG), log(changed(10, value=b"secret card number"), 4), by_batch)
    assert difference is not None and difference.target is not None
    assert str(difference.target["value"]).startswith("18 bytes, xxh3 ")
    assert "secret" not in str(difference) and "second" not in str(difference)


@BOTH_LEVELS
@pytest.mark.parametrize("lost", [r.offset for r in LOG])
def test_record_dropped_into_a_hole_is_missing(by_batch: bool, lost: int) -> None:
    difference = found(log(LOG, 2), log(without(lost), 2), by_batch)
    assert difference is not None and (difference.offset, difference.kind) == (lost, "missing")


@BOTH_LEVELS
@pytest.mark.parametrize("more", [r.offset for r in LOG])
def test_record_that_only_the_target_holds_is_extra(by_batch: bool, more: int) -> None:
    difference = found(log(without(more), 2), log(LOG, 2), by_batch)
    assert difference is not None and (difference.offset, difference.kind) == (more, "extra")


@BOTH_LEVELS
def test_lost_record_is_missing_not_changed(by_batch: bool) -> None:
    """The records behind it close the hole."""
    shifted = [r if r.offset < 10 else r._replace(offset=r.offset - 1) for r in without(10)]
    difference = found(log(LOG, 4), log(shifted, 4), by_batch)
    assert difference is not None and (difference.offset, difference.kind) == (10, "missing")


@BOTH_LEVELS
def test_inserted_record_is_extra_not_changed(by_batch: bool) -> None:
    """The records behind it move by one offset."""
    foreign = Record(10, 1, None, b"foreign", [])
    shifted = LOG[:4] + [foreign] + [r._replace(offset=r.offset + 1) for r in LOG[4:]]
    difference = found(log(LOG, 4), log(shifted, 4), by_batch)
    assert difference is not None and (difference.offset, difference.kind) == (10, "extra")


@BOTH_LEVELS
def test_records_at_other_offsets_differ_by_offset(by_batch: bool) -> None:
    shifted = LOG[:4] + [r._replace(offset=r.offset + 1) for r in LOG[4:]]
    difference = found(log(LOG, 4), log(shifted, 4), by_batch)
    assert difference is not None and (difference.offset, difference.kind) == (10, "offset")
    assert difference.target is not None and difference.target["offset"] == 11


@BOTH_LEVELS
def test_window_cuts_batches_at_both_ends(by_batch: bool) -> None:
    other_outside = [r._replace(value=b"other") if r.offset in (3, 12) else r for r in LOG]
    assert compare(log(LOG, 3), log(other_outside, 3), (4, 12), by_batch=by_batch)[:3] == (
        5,
        pytest.approx(6000, 0.5),  # type: ignore[comparison-overlap]
        None,
    )


@BOTH_LEVELS
def test_records_outside_the_window_are_not_counted_when_batches_agree(by_batch: bool) -> None:
    assert compare(log(LOG, 3), log(LOG, 3), (4, 12), by_batch=by_batch).records == 5


@BOTH_LEVELS
@pytest.mark.parametrize("side", ["source", "target"])
def test_flipped_bit_is_corrupt_on_its_own_side(by_batch: bool, side: str) -> None:
    good, bad = log(LOG, 4), log(LOG, 4)
    bad[1].view[-3] ^= 0x10
    source, target = (bad, good) if side == "source" else (good, bad)
    tally = compare(source, target, (0, 100), by_batch=by_batch)
    assert tally.records == 4
    assert tally.difference is not None and (tally.difference.offset, tally.difference.kind) == (10, "corrupt")
    assert getattr(tally.difference, side) is not None


def test_batches_of_the_same_bytes_at_other_offsets_differ() -> None:
    moved = log([r._replace(offset=r.offset + 1) for r in LOG])
    difference = found(log(LOG), moved, by_batch=True)
    assert difference is not None and (difference.offset, difference.kind) == (3, "offset")


RECORDS = st.builds(
    lambda t, k, v, h: (t, k, v, h),
    st.integers(0, 2**41),
    st.none() | st.binary(max_size=6),
    st.none() | st.binary(max_size=6),
    st.lists(st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=2)), max_size=2),
)


@pytest.mark.repeats
@given(
    st.lists(st.tuples(st.integers(1, 4), RECORDS), min_size=1, max_size=12),
    st.lists(st.integers(1, 4), max_size=5),
    st.lists(st.integers(1, 4), max_size=5),
    st.data(),
)
def test_any_single_change_is_found_at_both_levels(
    gaps: list[tuple[int, tuple[Any, ...]]], source_cuts: list[int], target_cuts: list[int], data: Any
) -> None:
    """Whatever the batches look like: equal is called equal, and one edit anywhere is found, at the lowest offset."""
    records, offset = [], -1
    for gap, (timestamp, key, value, headers) in gaps:
        offset += gap
        records.append(Record(offset, timestamp, key, value, headers))
    edited = list(records)
    at = data.draw(st.integers(0, len(records) - 1))
    edited[at] = records[at]._replace(value=(records[at].value or b"") + b"!")
    for by_batch in (False, True):
        assert found(log(records, *source_cuts), log(records, *target_cuts), by_batch) is None
        difference = found(log(records, *source_cuts), log(edited, *target_cuts), by_batch)
        assert difference is not None and difference.offset == records[at].offset


def pair(start: int | None = None, end: int | None = None) -> PartitionPair:
    return PartitionPair(source_topic="orders", target_topic="orders", partition=0, start_offset=start, end_offset=end)


@pytest.mark.parametrize(
    ("pair_", "source", "target", "expected"),
    [
        (pair(), LogBounds(5, 90, 90), LogBounds(5, 90, 90), None),
        (pair(), LogBounds(7, 90, 90), LogBounds(5, 90, 90), None),  # retention moved one start
        (pair(), LogBounds(5, 90, 90), LogBounds(9, 90, 90), None),
        (pair(), LogBounds(5, 90, 90), LogBounds(5, 80, 80), (80, "end")),
        (pair(), LogBounds(5, 80, 90), LogBounds(5, 90, 90), (80, "end")),  # an open transaction on one side
        (pair(end=80), LogBounds(5, 90, 90), LogBounds(5, 80, 80), None),
        (pair(end=80), LogBounds(5, 90, 90), LogBounds(5, 79, 80), (79, "end")),
        (pair(), LogBounds(5, 90, 90), LogBounds(90, 90, 90), (5, "missing")),  # the target was emptied
        (pair(start=90), LogBounds(5, 90, 90), LogBounds(90, 90, 90), None),
        (pair(), LogBounds(90, 90, 90), LogBounds(5, 90, 90), None),  # the source was emptied by retention
        (pair(), LogBounds(0, 0, 0), LogBounds(0, 0, 0), None),
    ],
)
def test_bounds_of_logs_are_judged(
    pair_: PartitionPair, source: LogBounds, target: LogBounds, expected: tuple[int, str] | None
) -> None:
    difference = bounds_difference(pair_, source, target)
    assert (difference and (difference.offset, difference.kind)) == expected


def test_window_is_what_both_sides_hold_and_was_asked_for() -> None:
    assert window(pair(), LogBounds(5, 90, 95), LogBounds(7, 88, 88)) == (7, 88)
    assert window(pair(start=20, end=60), LogBounds(5, 90, 95), LogBounds(7, 88, 88)) == (20, 60)
    assert window(pair(), LogBounds(5, 90, 90), LogBounds(90, 90, 90)) == (90, 90)
    assert window(pair(end=3), LogBounds(5, 90, 90), LogBounds(5, 90, 90)) == (5, 5)


def test_verdict_survives_json() -> None:
    import json

    difference = Difference(offset=7, kind="value", source={"offset": 7, "key": "null"}, target=None)
    verdict = PartitionComparison(
        source_topic="a",
        target_topic="b",
        partition=3,
        start_offset=0,
        end_offset=9,
        records=7,
        bytes=812,
        equal=False,
        first_difference=difference,
        offsets_equal=False,
        source_log=LogBounds(0, 9, 9),
        target_log=LogBounds(0, 8, 9),
    )
    assert PartitionComparison.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict
    assert str(verdict) == "a-3 -> b-3 [0, 9): value at offset 7 (source offset 7, key null, target nothing)"


# --- mapped offsets --------------------------------------------------------------------------------------------------

# Source 3-5 and 9-12; the target began at 40 and has a marker at 43.
MAP = OffsetMap(0, 40)
MAP.add(3, 40, 3)
MAP.add(9, 44, 4)
MAP.advance(20, target_log_end=49)


def copied(records: list[Record]) -> list[Record]:
    return [r._replace(offset=MAP.to_target(r.offset).offset) for r in records]


def found_through_map(source: list[RawBatch], target: list[RawBatch], by_batch: bool) -> Difference | None:
    return compare(source, target, (0, 20), by_batch=by_batch, through=MAP).difference


@BOTH_LEVELS
@pytest.mark.parametrize("cuts", [(), (1, 2), (3, 1, 1), (3, 4)])
def test_records_that_stand_where_the_map_says_are_equal(by_batch: bool, cuts: tuple[int, ...]) -> None:
    tally = compare(log(LOG, 3, 4), log(copied(LOG), *cuts), (0, 20), by_batch=by_batch, through=MAP)
    assert (tally.records, tally.difference) == (len(LOG), None)


def test_batches_kept_whole_by_the_map_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mirror.wire.records.decode", lambda raw: pytest.fail("decoded"))
    tally = compare(log(LOG, 3, 4), log(copied(LOG), 3, 4), (0, 20), by_batch=True, through=MAP)
    assert tally.records == len(LOG)


@BOTH_LEVELS
def test_a_changed_mapped_record_is_named_by_both_offsets(by_batch: bool) -> None:
    target = copied(changed(10, value=b"other"))
    difference = found_through_map(log(LOG, 3), log(target, 3), by_batch)
    assert difference is not None and difference.kind == "value"
    assert (difference.offset, difference.target_offset) == (10, 45)
    assert difference.source is not None and difference.target is not None
    assert (difference.source["offset"], difference.target["offset"]) == (10, 45)
    assert "value at source offset 10, target offset 45" in str(difference)


@BOTH_LEVELS
@pytest.mark.parametrize("lost", [r.offset for r in LOG])
def test_a_mapped_record_that_the_target_lacks_is_missing(by_batch: bool, lost: int) -> None:
    difference = found_through_map(log(LOG, 2), log(copied(without(lost)), 2), by_batch)
    assert difference is not None
    assert (difference.kind, difference.offset, difference.target_offset) == ("missing", lost, MAP.to_target(lost).offset)


@BOTH_LEVELS
def test_record_unknown_to_the_map_is_extra_or_missing(by_batch: bool) -> None:
    stranger = LOG[0]._replace(offset=43, value=b"somebody else's")
    target = sorted([*copied(LOG), stranger])
    difference = found_through_map(log(LOG, 3), log(target, 2), by_batch)
    assert difference is not None and (difference.kind, difference.target_offset) == ("extra", 43)
    source = sorted([*LOG, LOG[0]._replace(offset=7, value=b"never copied")])
    difference = found_through_map(log(source, 3), log(copied(LOG), 2), by_batch)
    assert difference is not None and (difference.kind, difference.offset) == ("missing", 7)


@BOTH_LEVELS
def test_records_swapped_behind_the_maps_back_are_found(by_batch: bool) -> None:
    swapped = copied(LOG)
    swapped[4], swapped[5] = swapped[5]._replace(offset=45), swapped[4]._replace(offset=46)
    difference = found_through_map(log(LOG, 3), log(swapped, 3), by_batch)
    assert difference is not None and (difference.offset, difference.target_offset) == (10, 45)


@pytest.mark.parametrize("side", ["source", "target"])
def test_broken_mapped_batch_is_named_by_both_offsets(side: str) -> None:
    logs = {"source": log(LOG, 3), "target": log(copied(LOG), 3)}
    logs[side][1].view[70] ^= 4
    difference = found_through_map(logs["source"], logs["target"], False)
    assert difference is not None and difference.kind == "corrupt"
    assert (difference.offset, difference.target_offset) == (9, 44)


def test_bounds_of_a_mapped_target_are_told_in_source_offsets() -> None:
    assert through_map(MAP, LogBounds(0, 60, 60)) == LogBounds(0, 20, 20)
    assert through_map(MAP, LogBounds(42, 60, 60)) == LogBounds(5, 20, 20)  # retention took two records there
    assert through_map(MAP, LogBounds(0, 46, 60)) == LogBounds(0, 11, 20)  # an open transaction hides the rest


def test_records_that_another_tool_left_are_passed_over_below_the_adopted_end_only() -> None:
    through = OffsetMap(3, 0)
    for at, there, count in ((3, 0, 2), (5, 4, 1), (9, 5, 4)):
        through.add(at, there, count)
    through.adopted_until = 6
    again = [
        Record(offset, *one[1:])
        for offset, one in zip((0, 1, 2, 3, 4, 5, 6, 7, 8), [*LOG[:2], *LOG[:2], *LOG[2:]], strict=True)
    ]

    def compared() -> Difference | None:
        return compare(log(LOG), log(again), (3, 13), through=through).difference

    assert compared() is None
    through.adopted_until = 3  # the record at 3 is nobody's
    found = compared()
    assert found is not None and found.kind == "extra" and found.target_offset == 3
