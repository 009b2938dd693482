"""Which offsets the comparison's job takes."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.errors import TryAgain
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.jobs.driver.verify import _nothing_compared, _proven, only_new
from airflow_mirror.jobs.plain import verify as plain
from airflow_mirror.jobs.request import VerifyRequest
from airflow_mirror.mirror import Mirror
from airflow_mirror.verify.result import LogBounds, PartitionComparison, PartitionPair
from tests.builders import plan_of, request, topic_plan
from tests.unit.cutover.builders import a_plan

MIRROR = Mirror(name="flow", source="a", target="b")
ZERO, ONE, TWO = (TopicPartition("orders", p) for p in range(3))


def test_only_what_is_not_proven_yet_is_compared() -> None:
    """Adjacent to the proof: with a gap, the two would never become one."""
    starts, ends = only_new({ZERO: 0, ONE: 5, TWO: 0}, {ZERO: 100, ONE: 60, TWO: 40}, {ZERO: 70, ONE: 60})
    assert starts == {ZERO: 70, ONE: 60, TWO: 0} and ends == {ZERO: 100, ONE: 60, TWO: 40}


def test_end_below_its_proof_leaves_nothing_and_no_range_backwards() -> None:
    """The target's last stable offset may be read a moment earlier than that of the proof."""
    assert only_new({ZERO: 0}, {ZERO: 60}, {ZERO: 70}) == ({ZERO: 70}, {ZERO: 70})


@pytest.mark.parametrize("options", [{}, {"plan": "p"}, {"only_new": True}, {"level": "offsets"}], ids=str)
def test_nothing_passes_of_which_a_transaction_hides_everything(options: dict[str, Any]) -> None:
    """The log of the source begins at its last stable offset, as an empty one does."""
    arguments = request(VerifyRequest, **{"level": "records", **options})
    nothing = PartitionComparison(
        source_topic="orders", target_topic="orders", partition=0, start_offset=0, end_offset=0, records=0, bytes=0,
        equal=True, first_difference=None, offsets_equal=False, source_log=LogBounds(0, 0, 1001),
        target_log=LogBounds(0, 0, 0),
    )  # fmt: skip
    some = replace(nothing, partition=1, end_offset=5, records=5, source_log=LogBounds(0, 5, 9))
    plan = a_plan("orders")
    job = CopyJob(mirror=plan.mirror, source="s", target="t", plan=plan, options=CopyOptions(mirror="flow"))
    behind, ends = {ZERO: "orders-0: hidden", ONE: "orders-1: hidden"}, {ZERO: 0, ONE: 5}
    assert _nothing_compared([nothing, some], arguments, ends, job, behind) == ["orders-0: hidden"]
    assert _nothing_compared([nothing], arguments, ends, job, {}) == []


@pytest.mark.parametrize("options", [{"plan": "p"}, {}], ids=str)
def test_partition_of_which_nobody_has_copied_a_record_never_passes(options: dict[str, Any]) -> None:
    """Also one that was planned to begin at its end: what came since is to be copied as well."""
    arguments = request(VerifyRequest, **{"level": "batches", **options})
    stopped = PartitionComparison(
        source_topic="orders", target_topic="orders", partition=0, start_offset=1000, end_offset=1000, records=0, bytes=0,
        equal=True, first_difference=None, offsets_equal=False, source_log=LogBounds(0, 5000, 5000),
        target_log=LogBounds(1000, 1000, 1000),
    )  # fmt: skip
    good = replace(stopped, partition=1, end_offset=5000, records=4000, target_log=LogBounds(1000, 5000, 5000))
    plan = plan_of(MIRROR, topic_plan("orders", {0: 1000, 1: 1000}, source_topic_id="id"))
    job = CopyJob(mirror=plan.mirror, source="s", target="t", plan=plan, options=CopyOptions(mirror="flow"))
    ends = {ZERO: 5000, ONE: 5000}
    line = "orders-0: the source holds offsets 1000 to 4999, the target none of them yet"
    assert _nothing_compared([stopped, good], arguments, ends, job, {}) == [line]
    assert _nothing_compared([stopped, good], replace(arguments, only_new=True), ends, job, {}) == []


def test_what_the_targets_retention_took_is_not_proven() -> None:
    """A cutover would begin behind it, and never look again."""
    compared = PartitionComparison(
        source_topic="orders", target_topic="orders", partition=0, start_offset=60, end_offset=100, records=40, bytes=1,
        equal=True, first_difference=None, offsets_equal=False, source_log=LogBounds(0, 100, 100),
        target_log=LogBounds(60, 100, 100), unseen=60,
    )  # fmt: skip
    assert _proven([compared], {ZERO: 0}) == [("orders", 0, 60, 100)]
    by_the_source = replace(compared, unseen=0, source_log=LogBounds(60, 100, 100))
    assert _proven([by_the_source], {ZERO: 0}) == [("orders", 0, 0, 100)]
    assert "60 offsets before that are not compared" in str(compared)


def _dies(*_: Any) -> None:
    os._exit(9)


def test_process_that_dies_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ended with a traceback, and with no line for whoever reads its output."""
    monkeypatch.setattr(plain, "_compare", _dies)
    monkeypatch.setattr(plain, "Handover", SimpleNamespace(of=lambda *_: SimpleNamespace(accept=None)))
    pair = PartitionPair(source_topic="orders", target_topic="orders", partition=0)
    with (
        plain.comparing("env:S", "env:T", "batches", 1) as (_, compare),
        pytest.raises(TryAgain, match="a process that compares has died.*fewer --processes"),
    ):
        compare([[pair], [pair]], None, "read_committed")
