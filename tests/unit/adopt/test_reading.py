"""Where a log that somebody writes to ends: nothing counts as held by a transaction that only came a moment later."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.extras.adopt.reading import bounds_of
from airflow_mirror.extras.adopt.stopped import _open
from airflow_mirror.verify.result import LogBounds

TP = TopicPartition("orders", 0)


class Busy:
    """A log to which a transaction is committed before each answer; none is open for longer."""

    def __init__(self) -> None:
        self.end = 100

    def _answer(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.end += 10
        return dict.fromkeys(tps, self.end)

    last_stable = high_watermarks = _answer

    def log_starts(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)


def test_what_was_committed_between_two_questions_is_decided() -> None:
    busy: Any = Busy()
    assert bounds_of(busy, TP) == LogBounds(0, 110, 110)


def test_no_transaction_is_said_to_be_open_that_is_not() -> None:
    target: Any = SimpleNamespace(wire=Busy())
    (seen,) = _open(target, [TP])
    assert not seen.alive and str(seen.what).startswith("no transaction is open")
