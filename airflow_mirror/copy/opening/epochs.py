"""Has the source's log diverged from what was copied of it? Asked whenever another leader may have taken over (KIP-320).

Each batch carries the epoch of the leader that wrote it. A leader that was elected uncleanly lacks what its predecessor
wrote last, and writes others at the same offsets; nothing else tells, once its log is longer than our position. So the
new leader is asked where the epoch of the last batch that we consumed ends in its log. Fetches name the leader's epoch,
and are refused as soon as there is a newer one: between two fetches no leader goes unnoticed.
"""

from __future__ import annotations

from typing import NamedTuple

from airflow_mirror.copy.opening.answers import Answers
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import SourceTruncated
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.single import read_batches


class Consumed(NamedTuple):
    """What a copy consumed last: offsets [first, position), written under the leader epoch ``epoch``."""

    epoch: int
    first: int
    position: int


class Trail:
    """Under which leaders the batches were written that a copy consumes: (epoch, first offset), rising."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, int]] = []

    def note(self, epoch: int, offset: int, position: int) -> None:
        """Take note of a batch of another epoch than the one before it.

        :param position: what lies below it is on the target; of that only the last epoch is kept.
        """
        if not self._steps or self._steps[-1][0] != epoch:
            self._steps.append((epoch, offset))
        while len(self._steps) > 1 and self._steps[1][1] < position:
            del self._steps[0]

    def cut(self, position: int) -> None:
        """Forget what was consumed at ``position`` and above: it is fetched again."""
        while self._steps and self._steps[-1][1] >= position:
            del self._steps[-1]

    def at(self, position: int) -> Consumed | None:
        """Return what was consumed last below ``position``; None if that is not known, or had no epoch."""
        below = [step for step in self._steps if step[1] < position]
        return Consumed(*below[-1], position) if below and below[-1][0] >= 0 else None


def check_same_log(source: WireCluster, one: CopyRange, consumed: Consumed, told: Answers) -> None:
    """Check that the source's leader has what was consumed.

    :param told: with where the epoch ends in the leader's log.
    :raises SourceTruncated: it has not; with the offsets that are on the target and not on the source any more.
    """
    epoch, first, position = consumed
    if epoch == told.leader.epoch:
        return  # the same leader as ever; where its log ends, its high watermark tells
    found = told.epoch_ends[epoch]
    if found.epoch == epoch:
        if found.end < position:
            raise _diverged(one, found.end, position, f"epoch {epoch} ends at {found.end} in its log")
    elif 0 <= found.end < position:
        raise _diverged(one, min(first, found.end), position, f"it ended at {found.end} before epoch {epoch} began")
    elif found.end >= 0 and _has_others(source, one, first, position, epoch):
        raise _diverged(one, first, position, f"it never saw epoch {epoch}, under which they were written")
    elif found.end < 0 and 0 <= told.leader.epoch < epoch:
        raise _diverged(one, first, position, f"its leader epoch is {told.leader.epoch}: this is another topic")


def _has_others(source: WireCluster, one: CopyRange, first: int, position: int, epoch: int) -> bool:
    """Say whether the source has batches in [first, position) that are not of ``epoch``.

    A replica that was built from a compacted log never saw an epoch of which no batch was left; it lacks nothing.
    """
    for raw, _aborted in read_batches(source, one.source, first, position, isolation=READ_UNCOMMITTED, max_bytes=1):
        return raw.header is None or (raw.header.base_offset < position and raw.header.leader_epoch != epoch)
    return False


def _diverged(one: CopyRange, start: int, end: int, why: str) -> SourceTruncated:
    return SourceTruncated(
        one.source_topic, one.partition, start, end,
        f"the source's new leader lacks records that were copied from the previous one ({why})",
        "The source lost records in an unclean leader election; the target still has them. Compare both sides; to "
        "continue with the present source, delete the target topic and copy again.",
    )  # fmt: skip
