"""What counts as proven: only what touches, for the same topics, at the level that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.errors import InvalidField
from airflow_mirror.plan.model import Plan
from airflow_mirror.verify import proof
from airflow_mirror.verify.proof import Proofs, merged, reach
from airflow_mirror.verify.result import LogBounds, PartitionComparison, untouched
from tests.unit.cutover.builders import a_plan
from tests.unit.ledger.memory import MemoryState

IDS = {"orders": "id-there"}


@pytest.fixture
def plan() -> Plan:
    made = a_plan("orders")
    return replace(made, topics=(replace(made.topics[0], starts={0: 100, 1: 0}, ends={0: 900, 1: 7}),))


@pytest.fixture
def state() -> MemoryState:
    return MemoryState()


@pytest.fixture
def proofs(state: MemoryState) -> Proofs:
    return Proofs(state, "m")


RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


@given(RANGES, st.integers(0, 30))
def test_ranges_hold_exactly_the_offsets_that_were_put_in(ranges: list[tuple[int, int]], start: int) -> None:
    offsets = {o for a, b in ranges for o in range(a, b)}
    assert {o for a, b in merged(ranges) for o in range(a, b)} == offsets
    expected = start
    while expected in offsets:
        expected += 1
    assert reach(ranges, start) == (expected if start in offsets else None)


def test_nothing_is_proven_before_something_was_compared(proofs: Proofs, plan: Plan) -> None:
    assert proofs.ends(plan, IDS, "batches") == {}


def test_proof_that_misses_the_plans_start_proves_nothing(proofs: Proofs, plan: Plan) -> None:
    proofs.add(plan, IDS, "batches", {TP("orders", 0): (500, 900), TP("orders", 1): (0, 7)})
    assert proofs.ends(plan, IDS, "batches") == {TP("orders", 1): 7}
    proofs.add(plan, IDS, "batches", {TP("orders", 0): (100, 499)})
    assert proofs.ends(plan, IDS, "batches")[TP("orders", 0)] == 499, "offset 499 was never compared"
    proofs.add(plan, IDS, "batches", {TP("orders", 0): (499, 500)})
    assert proofs.ends(plan, IDS, "batches")[TP("orders", 0)] == 900


def test_weaker_level_does_not_replace_a_stronger_proof(proofs: Proofs, plan: Plan) -> None:
    proofs.add(plan, IDS, "offsets", {TP("orders", 0): (100, 900)})
    assert proofs.ends(plan, IDS, "offsets") == {}
    proofs.add(plan, IDS, "batches", {TP("orders", 0): (100, 500)})
    assert proofs.ends(plan, IDS, "records") == {}
    proofs.add(plan, IDS, "records", {TP("orders", 0): (500, 900)})
    assert proofs.ends(plan, IDS, "records") == {}
    assert proofs.ends(plan, IDS, "batches") == {TP("orders", 0): 900}


@pytest.mark.parametrize(
    "change",
    [
        lambda plan, ids: (replace(plan, topics=(replace(plan.topics[0], source_topic_id="again"),)), ids),
        lambda plan, ids: (plan, {"orders": "again"}),
        lambda plan, ids: (plan, {}),
        lambda plan, ids: (replace(plan, target_cluster_id="another"), ids),
        lambda plan, ids: (replace(plan, mirror=replace(plan.mirror, isolation="read_uncommitted")), ids),
    ],
    ids=["source-topic", "target-topic", "target-gone", "target-cluster", "isolation"],
)
def test_a_proof_holds_for_the_topics_that_were_compared_alone(
    proofs: Proofs, plan: Plan, change: Callable[..., Any]
) -> None:
    proofs.add(plan, IDS, "batches", {TP("orders", 0): (100, 900)})
    assert proofs.ends(plan, IDS, "batches") == {TP("orders", 0): 900}
    other, ids = change(plan, IDS)
    assert proofs.ends(other, ids, "batches") == {}


def test_a_proof_of_other_topics_replaces_the_old_one(proofs: Proofs, plan: Plan) -> None:
    proofs.add(plan, IDS, "batches", {TP("orders", 0): (100, 900)})
    proofs.add(plan, {"orders": "again"}, "batches", {TP("orders", 0): (900, 950)})
    assert proofs.ends(plan, IDS, "batches") == proofs.ends(plan, {"orders": "again"}, "batches") == {}


@pytest.mark.parametrize("value", [b'{"v": 1, "top', b'{"v": 1}', b"[]"])
def test_an_unreadable_proof_is_compared_again_and_replaced(
    proofs: Proofs, plan: Plan, state: MemoryState, value: bytes
) -> None:
    state.write({"proof/m/orders": value})
    assert proofs.ends(plan, IDS, "batches") == {}
    proofs.add(plan, IDS, "batches", {TP("orders", 0): (100, 900)})
    assert proofs.ends(plan, IDS, "batches") == {TP("orders", 0): 900}


def test_proofs_are_known_on_every_worker_and_to_this_mirror_alone(
    proofs: Proofs, plan: Plan, state: MemoryState
) -> None:
    proofs.add(plan, IDS, "batches", {TP("orders", 0): (100, 900)})
    assert Proofs(state, "m").ends(plan, IDS, "batches") == {TP("orders", 0): 900}
    assert Proofs(state, "m.2").ends(plan, IDS, "batches") == {}


def test_a_proof_that_is_too_large_is_compared_again(
    proofs: Proofs, plan: Plan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so, and what was stored before still holds."""
    proofs.add(plan, IDS, "batches", {TP("orders", 1): (0, 7)})
    monkeypatch.setattr(proof, "MOST_BYTES", 50)
    proofs.add(plan, IDS, "batches", {TP("orders", 0): (100, 900)})
    assert proofs.ends(plan, IDS, "batches") == {TP("orders", 1): 7} and "orders: its proof is too large" in caplog.text


def test_an_unknown_level_is_refused(proofs: Proofs, plan: Plan) -> None:
    with pytest.raises(InvalidField, match="no such level"):
        proofs.ends(plan, IDS, "all")


def verdict(start: int, end: int, stable: int) -> PartitionComparison:
    logs = LogBounds(0, stable, stable), LogBounds(0, end, end)
    return PartitionComparison(
        source_topic="orders", target_topic="orders", partition=0, start_offset=start, end_offset=end, records=0, bytes=0,
        equal=True, first_difference=None, offsets_equal=False, source_log=logs[0], target_log=logs[1],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("compared", "planned_end", "line"),
    [
        ((0, 0, 900), 900, "orders-0: the source holds offsets 0 to 899, the target none of them yet"),
        ((0, 0, 50), 900, "orders-0: the source holds offsets 0 to 49, the target none of them yet"),
        ((0, 1, 900), 900, ""),
        ((900, 900, 900), 900, ""),
        ((900, 900, 950), 900, ""),  # what came since the plan may be on its way
        ((0, 0, 0), 0, ""),
    ],
)
def test_an_untouched_partition_is_named_when_the_plan_expects_records(
    compared: tuple[int, int, int], planned_end: int, line: str
) -> None:
    assert untouched(verdict(*compared), {TP("orders", 0): planned_end}) == line
