"""Which offsets the comparison's job takes."""

from __future__ import annotations

from airflow_mirror.jobs.driver.verify import only_new
from airflow_mirror.partition import TopicPartition

ZERO, ONE, TWO = (TopicPartition("orders", p) for p in range(3))


def test_only_what_is_not_proven_yet_is_compared() -> None:
    """Adjacent to the proof: with a gap, the two would never become one."""
    starts, ends = only_new({ZERO: 0, ONE: 5, TWO: 0}, {ZERO: 100, ONE: 60, TWO: 40}, {ZERO: 70, ONE: 60})
    assert starts == {ZERO: 70, ONE: 60, TWO: 0} and ends == {ZERO: 100, ONE: 60, TWO: 40}


def test_end_below_its_proof_leaves_nothing_and_no_range_backwards() -> None:
    """The target's last stable offset may be read a moment earlier than that of the proof."""
    assert only_new({ZERO: 0}, {ZERO: 60}, {ZERO: 70}) == ({ZERO: 70}, {ZERO: 70})
