"""The interface through which both sides of a copy report a partition's error. The loop decides what follows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.errors import MirrorError

# A partition and its generation when a request was sent; answers that arrive after the partition failed are ignored.
Asked = tuple[PartitionCopy, int]

# Openings of a partition behind CORRUPT_MESSAGE. Each fetches again, perhaps from another replica: what was damaged on
# the way is whole then, what lies damaged is not.
CORRUPT_AGAIN = 3
# Openings behind a batch that the target finds too large, while the copy follows: with their pauses (`retries`) a minute.
# Where the source's limit was raised, the target's follows within half of that (`sync_configs`).
TOO_LARGE_AGAIN = 16


class Judge(Protocol):
    """Decides what follows from a partition's error."""

    def failed(self, p: PartitionCopy, error: MirrorError) -> None:
        """Stop the partition, retry it, or stop the whole task, depending on ``error``."""

    def stop(self, p: PartitionCopy, error: MirrorError) -> None:
        """Stop the partition for good."""

    def retry_later(self, p: PartitionCopy, cause: Exception | str) -> None:
        """Discard what is in flight for the partition, and re-read the target's end after a pause."""

    def open_again(self, p: PartitionCopy, cause: str) -> None:
        """Do the same without a pause: the partition itself has not failed."""


def retry_all(judge: Judge, asked: Iterable[Asked], cause: Exception | str) -> None:
    """Retry those partitions that have neither failed nor ended since the request was sent."""
    for p, generation in asked:
        if p.generation == generation:
            judge.retry_later(p, cause)
