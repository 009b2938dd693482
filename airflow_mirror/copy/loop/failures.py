"""Who decides what an error means for a partition: both sides of a copy report to it, the loop is it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.errors import MirrorError

# A partition as it was when a request was sent for it; answers that come after it has failed are not for it any more.
Asked = tuple[PartitionCopy, int]


class Judge(Protocol):
    """Takes note of what went wrong."""

    def failed(self, p: PartitionCopy, error: MirrorError) -> None:
        """Stop the partition, try it again, or stop the whole task, as ``error`` demands."""

    def stop(self, p: PartitionCopy, error: MirrorError) -> None:
        """Stop the partition for good."""

    def retry_later(self, p: PartitionCopy, cause: Exception | str) -> None:
        """Forget what is in flight for it and re-read the target's end after a pause."""


def retry_all(judge: Judge, asked: Iterable[Asked], cause: Exception | str) -> None:
    """Have those partitions tried again that have neither failed nor ended since."""
    for p, generation in asked:
        if p.generation == generation and p.is_open:
            judge.retry_later(p, cause)
