"""What carries out dealt ranges: Spark's tasks, or plain processes. A driver knows no more of either than this.

The driver decides what is copied, by whom, and under which lease; a crew runs it and says how it went. So a bulk copy
and a tail are the same, whoever copies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.jobs.driver.turns import Stream, Tail
from airflow_mirror.jobs.progress.listener import Hosts


class Crew(Protocol):
    """Who copies."""

    @property
    def hosts(self) -> Hosts | None:
        """Where its tasks reach the driver; None: the driver must not listen."""

    def slots(self) -> int:
        """Return how many tasks run at the same time, by now."""

    def copy(self, dealt: Sequence[Sequence[CopyRange]], work: CopyWork) -> list[PartitionResult]:
        """Copy each list of ranges to its ends, as one task, in their order; return every partition's result.

        No list is copied twice under a lease: partitions of a task that was lost are ``unheard``.
        """

    def has_lost(self) -> bool:
        """Whether a task of the present :meth:`copy` was lost, so that the others should end early."""

    def follow(self, tail: Tail, work: CopyWork, turn_s: float) -> Stream:
        """Begin to copy the turns of a tail.

        :param work: its options are replaced by those of each turn (:meth:`.Tail.deal`).
        :param turn_s: how long a turn takes.
        """

    def may_start_again(self, error: Exception) -> bool:
        """Whether a stream that failed so may be made again: it had not begun to copy."""


Muster = Callable[["threading.Event | None"], AbstractContextManager[Crew]]
"""Calls a crew together until the block ends. The event ends the wait for it."""
