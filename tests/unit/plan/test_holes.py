"""What a few headers tell about the holes of a log, and what identical offsets may cost."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import InputError, InvalidField
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.holes import SAMPLES, HoleSamples, Part, Seen, choose, estimate, estimated_bytes, walk
from airflow_mirror.plan.inventory import TopicState
from airflow_mirror.plan.model import Capabilities, HoleEstimate, Plan
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire.fetch import FetchedPartition
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic

NOW = datetime(2026, 1, 31, tzinfo=UTC)
TP = TopicPartition("orders", 0)
PID = 7001


def a_batch(
    base: int, length: int, kept: Any = None, attributes: int = 0, producer_id: int = -1, key: bytes | None = b"k"
) -> bytes:
    """A batch at ``base`` over ``length`` offsets, of which ``kept`` (all) hold a record, as the cleaner leaves it."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**30)
    offsets = range(length) if kept is None else sorted(kept)
    for delta in offsets:
        builder.append(delta, 1_600_000_000_000, key, b"v", [])
    raw = memoryview(bytearray(builder.build())) if offsets else memoryview(bytearray(wire_batch.HEADER_SIZE))
    header = wire_batch.BatchHeader(
        base, len(raw) - wire_batch.LOG_OVERHEAD, 0, 2, 0, attributes, length - 1, 0, 0, producer_id, 0, 0, len(offsets)
    )
    wire_batch.HEADER.pack_into(raw, 0, *header)
    return bytes(raw)


def seen(*batches: Any, start: int = 0, end: int = 1000, aborted: Any = (), cut: int = 0) -> tuple[int, int, int]:
    blob = b"".join(batches)
    answer = FetchedPartition(TP, 0, end, end, 0, list(aborted), memoryview(blob[: len(blob) - cut]))
    found = walk(answer, start, end)
    return found.offsets, found.holes, found.runs


def test_a_dense_log_has_no_holes() -> None:
    assert seen(a_batch(0, 5), a_batch(5, 3)) == (8, 0, 0)


def test_bytes_are_of_what_is_copied_and_projected_on_the_whole_topic() -> None:
    dense, marker, aborted = (
        a_batch(0, 10),
        a_batch(10, 1, attributes=0x30),
        a_batch(11, 4, attributes=0x10, producer_id=PID),
    )
    blob = memoryview(dense + marker + aborted + a_batch(15, 20)[:70])  # the last one is cut off
    found = walk(FetchedPartition(TP, 0, 99, 99, 0, [(PID, 11)], blob), 5, 1000)
    assert (found.offsets, found.bytes) == (30, len(dense) // 2 + len(a_batch(15, 20)))
    parts = {Part(TP, 0, 100): Seen(offsets=50, bytes=500), Part(TP, 100, 400): Seen(offsets=10, bytes=10)}
    assert estimated_bytes(800, parts) == 2 * (1000 + 300)


def test_records_without_a_key_are_counted_inside_the_part_where_that_is_asked() -> None:
    aborted = a_batch(20, 4, attributes=0x10, producer_id=PID, key=None)
    blob = memoryview(a_batch(0, 10, key=None) + a_batch(10, 10) + aborted + a_batch(24, 5, key=None)[:70])
    answer = FetchedPartition(TP, 0, 99, 99, 0, [(PID, 20)], blob)
    assert walk(answer, 7, 1000, keys=True).keyless == 3
    assert walk(answer, 7, 1000).keyless == 0


def test_markers_and_gaps_side_by_side_are_one_stretch() -> None:
    marker = a_batch(5, 1, attributes=0x30)
    assert seen(a_batch(0, 5), marker, a_batch(9, 2), a_batch(20, 1)) == (21, 13, 2)


def test_aborted_records_are_holes_but_no_later_transaction_is() -> None:
    batches = [
        a_batch(0, 4, attributes=0x10, producer_id=PID),
        a_batch(4, 2, attributes=0x10, producer_id=9),
        a_batch(6, 1, attributes=0x30, producer_id=PID),
        a_batch(7, 5, attributes=0x10, producer_id=PID),
    ]
    assert seen(*batches, aborted=[(PID, 0)]) == (12, 5, 2)


def test_compacted_batch_shows_its_holes_and_their_stretches() -> None:
    assert seen(a_batch(10, 10, kept={0, 1, 4, 8}), start=10) == (10, 6, 3)


def test_an_emptied_batch_is_one_hole() -> None:
    assert seen(a_batch(0, 2), a_batch(2, 7, kept=())) == (9, 7, 1)


def test_of_a_cut_off_batch_the_header_counts() -> None:
    assert seen(a_batch(0, 2), a_batch(2, 40, kept=range(0, 40, 2)), cut=9) == (42, 20, 20)


def test_what_lies_outside_the_part_does_not_count() -> None:
    assert seen(a_batch(0, 10), a_batch(30, 10, kept={9}), start=7, end=35) == (28, 25, 1)


def test_gap_counts_only_to_the_end_of_the_part() -> None:
    assert seen(a_batch(5000, 3), start=100, end=200) == (100, 100, 1)


def test_nothing_fetched_shows_nothing() -> None:
    assert seen() == (0, 0, 0)


def test_compacted_and_dense_halves_weigh_the_same() -> None:
    """It does not matter how far each sample reached."""
    parts = [Part(TP, 0, 1000), Part(TP, 1000, 2000)]
    found = estimate(2000, {parts[0]: Seen(offsets=900, holes=891, runs=9), parts[1]: Seen(offsets=10)})
    assert (found.count, found.runs, found.sampled) == (990, 10, 910)
    assert found.share == pytest.approx(0.495)


def test_log_read_whole_is_counted_exactly_at_any_cut() -> None:
    rng = random.Random(3)
    kept = sorted(rng.sample(range(4000), 1234))
    batches, at = [], 0
    while at < 4000:
        length = rng.randint(1, 300)
        inside = {o - at for o in kept if at <= o < at + length}
        batches.append(a_batch(at, length, kept=inside))
        at += length
    answers = {}
    for start, end in ((0, 777), (777, 2500), (2500, 4000)):
        answer = FetchedPartition(TP, 0, at, at, 0, [], memoryview(b"".join(batches)))
        answers[Part(TP, start, end)] = walk(answer, start, end)
    found = estimate(4000, answers)
    assert (found.count, found.sampled) == (4000 - 1234, 4000)


def test_samples_of_ten_thousand_partitions_are_bounded() -> None:
    """No topic is left out."""
    spans = {f"t{i}": {(p, 5): 10 + p for p in range(100)} for i in range(100)}
    rounds = choose(spans)
    assert sum(map(len, rounds)) <= SAMPLES
    assert {part.tp.topic for parts in rounds for part in parts} == set(spans)
    for parts in rounds:
        assert len({part.tp for part in parts}) == len(parts)  # a fetch request takes a partition once


def test_more_topics_than_samples_looks_at_the_longest() -> None:
    rounds = choose({f"t{i}": {(0, 0): i + 1} for i in range(SAMPLES + 50)})
    assert sum(map(len, rounds)) == SAMPLES
    assert min(part.end for part in rounds[0]) == 51


def test_single_partition_is_cut_into_parts_without_gaps() -> None:
    parts = [part for parts in choose({"t": {(3, 17): 1003}}) for part in parts]
    assert (parts[0].start, parts[-1].end) == (17, 1020)
    assert all(a.end == b.start for a, b in zip(parts, parts[1:], strict=False))


# --- budgets ---------------------------------------------------------------------------------------------------------


def holes(count: int, runs: int = 10, offsets: int = 4_000_000) -> HoleEstimate:
    return HoleEstimate(count, runs, count / offsets, 5000)


def made(
    estimate: HoleEstimate | None = None,
    source: TopicState | None = None,
    target: Any = (),
    known: Any = (),
    capabilities: Capabilities | None = None,
    **fields: Any,
) -> Plan:
    source = source or a_topic(spans=((0, 4_000_000),))
    samples = HoleSamples({"orders": estimate} if estimate else {})
    there = a_cluster(*target, cluster_id="c2")
    return decide(a_mirror(**fields), a_cluster(source), there, known, NOW, samples, capabilities)


def outcome(plan: Plan, check: str) -> list[str]:
    return [f.level for f in plan.findings if f.check == check]


@pytest.mark.parametrize(
    ("count", "fields", "level"),
    [
        (2_000_000, {}, "warn"),
        (2_000_001, {}, "block"),
        (2_000_001, {"hole_budget": 0.6}, "warn"),
        (1, {"hole_budget": 0}, "block"),
        (2_000_000, {"hole_budget_bytes": 155_999_999}, "block"),
        (2_000_000, {"hole_budget_bytes": 156_000_000}, "warn"),
    ],
)
def test_holes_beyond_a_budget_block_identical_offsets(count: int, fields: dict[str, Any], level: str) -> None:
    """The budget itself may be spent."""
    assert outcome(made(holes(count), offsets="identical", **fields), "holes") == [level]


def test_small_topic_is_padded_whatever_its_share_of_holes() -> None:
    estimate = HoleEstimate(99_000, 4, 0.99, 1000)
    assert outcome(made(estimate, a_topic(spans=((0, 100_000),))), "holes") == ["warn"]


def test_a_block_for_holes_has_the_figures_and_the_remedy() -> None:
    with pytest.raises(
        InputError, match=r"3,000,000 of 4,000,000 offsets \(75%\).*hole_budget is 50%.*Raise hole_budget"
    ):
        made(holes(3_000_000), offsets="identical").raise_if_blocked()


@pytest.mark.parametrize(
    ("fields", "capabilities", "reason"),
    [
        ({"hole_budget": 0.1}, None, "hole_budget is 10%"),
        ({"hole_budget_bytes": 1}, None, "hole_budget_bytes is 1 B"),
        (
            {},
            Capabilities(markers="none", lacks=("Write on transactional id 'airflow-mirror.m*'",)),
            "Write on transactional id",
        ),
        ({}, Capabilities(markers="coordinator"), "padding them takes about"),
    ],
)
def test_auto_maps_what_is_over_a_budget_and_says_why(
    fields: dict[str, Any], capabilities: Capabilities | None, reason: str
) -> None:
    estimate = HoleEstimate(20_000_000, 10, 0.4, 5000)
    plan = made(estimate, a_topic(spans=((0, 50_000_000),)), capabilities=capabilities, **fields)
    assert plan.topics[0].mode == "mapped" and reason in plan.topics[0].reason
    assert plan.topics[0].prime == {} and not plan.blocks


def test_auto_maps_a_log_that_starts_beyond_the_priming_budget() -> None:
    plan = made(source=a_topic(spans=((501, 600),)), prime_budget=500)
    assert plan.topics[0].mode == "mapped" and "partition 0 starts at offset 501" in plan.topics[0].reason


def test_auto_keeps_the_mode_a_topic_began_with() -> None:
    target = [a_topic(spans=((0, 5),))]
    begun = made(holes(3_000_000), target=target, known={"orders": "identical"})
    assert (begun.topics[0].mode, outcome(begun, "holes")) == ("identical", ["warn"])
    mapped = made(holes(3), target=target, known={"orders": "mapped"})
    assert mapped.topics[0].mode == "mapped"
    assert mapped.known_topics == {"orders": "mapped"}


def test_topic_begun_in_one_mode_is_refused_in_the_other() -> None:
    plan = made(target=[a_topic(spans=((0, 5),))], known={"orders": "mapped"}, offsets="identical")
    assert "its copy began with mapped offsets" in plan.blocks[0].evidence


def test_missing_marker_right_blocks_only_where_holes_are_expected() -> None:
    """The error names the right."""
    lacking = Capabilities(markers="none", lacks=("Write on transactional id 'airflow-mirror.m*'",))
    with pytest.raises(InputError, match="no marker can be written: Write on transactional id 'airflow-mirror.m"):
        made(holes(3), capabilities=lacking, offsets="identical").raise_if_blocked()
    assert outcome(made(capabilities=lacking), "capabilities") == ["warn"]


def test_tombstones_need_neither_markers_nor_their_budget() -> None:
    compacted = a_topic(spans=((0, 4_000_000),), cleanup_policy="compact")
    plan = made(
        holes(1_900_000), compacted, capabilities=Capabilities(markers="none", lacks=("x",)), hole_budget_bytes=1,
        compacted_filler="tombstones",
    )  # fmt: skip
    assert not plan.blocks and plan.topics[0].filler == "tombstones"
    assert "tombstones of a reserved key" in next(f.remedy for f in plan.findings if f.check == "holes")


def test_tombstones_are_for_compacted_topics_only() -> None:
    assert made(compacted_filler="tombstones").topics[0].filler == "markers"


def test_right_that_priming_lacks_blocks_by_name() -> None:
    lacking = Capabilities(markers="direct", prime=False, lacks=("Delete on topic",))
    plan = made(source=a_topic(spans=((5, 9),)), capabilities=lacking, offsets="identical")
    assert outcome(plan, "priming") == ["block"] and "Allow DELETE" in plan.blocks[0].remedy


def test_a_source_topic_that_can_not_be_read_blocks() -> None:
    samples = HoleSamples({}, {"orders": "lacks Read on topic 'orders'"})
    plan = decide(a_mirror(), a_cluster(a_topic()), a_cluster(cluster_id="c2"), (), NOW, samples)
    assert "lacks Read on topic 'orders'" in plan.blocks[0].evidence


def test_short_stretches_gain_nothing_from_bulk_padding() -> None:
    singles, one = HoleEstimate(1_000_000, 1_000_000, 0.5, 1), HoleEstimate(1_000_000, 1, 0.5, 1)
    assert singles.padding_s("direct", 1) == singles.padding_s("coordinator", 1) == 5000
    assert one.padding_s("direct", 1) < 20


@pytest.mark.parametrize(
    ("field", "value"),
    [("sync_groups", "no"), ("sync_configs", 1), ("config_interval_s", 0), ("sync_acls", "yes"), ("acl_interval_s", 5),
     ("remove_acls", None), ("use_defaults_from", "both"), ("exclude_configs", ["["]),
     ("group_interval_s", 0), ("group_interval_s", True), ("group_interval_s", "5"),
     ("sync_log_starts", 1), ("log_start_delay_s", 59), ("log_start_delay_s", None),
     ("sync_topics", 1), ("topic_interval_s", 0.01), ("topic_interval_s", None),
     ("prime_budget", -1), ("prime_budget", 1.5), ("prime_budget", True), ("hole_budget", 1.1), ("hole_budget", "half"),
     ("hole_budget_bytes", None), ("compacted_filler", "zeros")],
)  # fmt: skip
def test_a_budget_that_is_none_is_refused_with_its_field(field: str, value: int | float | bool | str | None) -> None:
    with pytest.raises(InvalidField, match=field):
        a_mirror(**{field: value})
