"""Detect whether the source's log has diverged from what was copied, after every possible change of leader (KIP-320).

Each batch carries the epoch of the leader that wrote it. A leader elected uncleanly lacks its predecessor's last records
and writes other records at the same offsets. Once its log has grown beyond our position, nothing else shows the
difference. The new leader is therefore asked for the end offset, in its log, of the epoch of the last batch that we
consumed. Fetch requests carry the current leader epoch and are rejected as soon as there is a newer one, so no change of
leader between two fetches goes unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from airflow_mirror.copy.opening.answers import Answers
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import SourceTruncated
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.single import read_batches


class Consumed(NamedTuple):
    """What a copy consumed last: offsets [first, position), written in the leader epoch ``epoch``."""

    epoch: int
    first: int
    position: int


@dataclass(slots=True)
class _Step:
    """Neighbouring batches of one leader epoch: they are in [first, reached)."""

    epoch: int
    first: int
    reached: int


class Trail:
    """The leader epochs of the batches that a copy consumes, in ascending order."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []

    def note(self, epoch: int, offset: int, position: int) -> None:
        """Record a batch, if its epoch differs from that of the batch before it.

        :param position: everything below it is on the target; only the last epoch below it is kept.
        """
        if not self._steps or self._steps[-1].epoch != epoch:
            self._steps.append(_Step(epoch, offset, offset))
        # Nothing below the last batch on the target is asked about any more, and an epoch lasts for days: the list
        # stays short.
        while len(self._steps) > 1 and self._steps[1].first < position:
            del self._steps[0]

    def reach(self, offset: int) -> None:
        """Record that the batches of the epoch that was noted last reach up to ``offset``."""
        if self._steps and offset > self._steps[-1].reached:
            self._steps[-1].reached = offset

    def cut(self, position: int) -> None:
        """Drop what was consumed at ``position`` and above, because it will be fetched again."""
        while self._steps and self._steps[-1].first >= position:
            del self._steps[-1]
        if self._steps:
            self._steps[-1].reached = min(self._steps[-1].reached, position)

    def at(self, position: int) -> Consumed | None:
        """Return what was consumed last below ``position``; None if that is unknown or had no epoch."""
        below = [step for step in self._steps if step.first < position]
        if not below or below[-1].epoch < 0:
            return None
        # Not the position itself: it may lie in a hole, or behind one, whose batches the cleaner took. Under which epoch
        # they were written nobody knows, and this one may have ended before. That the source has no records where a hole
        # was filled, the opening looks up (`identical._check_padding`).
        return Consumed(below[-1].epoch, below[-1].first, min(position, below[-1].reached))


def check_same_log(source: WireCluster, copy_range: CopyRange, consumed: Consumed, told: Answers) -> None:
    """Check that the source's leader has what was consumed.

    :param told: contains the end offset of the epoch in the leader's log.
    :raises SourceTruncated: the leader lacks records; names the offsets that only the target still has.
    """
    epoch, first, position = consumed
    if epoch == told.leader.epoch:
        return  # same leader epoch; the high watermark shows where its log ends
    epoch_end = told.epoch_ends[epoch]
    # The leader knows the epoch: it has of it what lies below its end, and nothing above.
    if epoch_end.epoch == epoch:
        if epoch_end.end < position:
            raise _diverged(copy_range, epoch_end.end, position, f"epoch {epoch} ends at {epoch_end.end} in its log")
    # It does not, and had ended before: what was written under that epoch is not in its log.
    elif 0 <= epoch_end.end < position:
        raise _diverged(
            copy_range, min(first, epoch_end.end), position, f"it ended at {epoch_end.end} before epoch {epoch} began"
        )
    # It does not, and has something at these offsets. Whose, its batches say.
    elif epoch_end.end >= 0 and _has_others(source, copy_range, first, position, epoch):
        raise _diverged(copy_range, first, position, f"it never saw epoch {epoch}, under which they were written")
    # Epochs of a topic never go back: it is not the one that was read.
    elif epoch_end.end < 0 and 0 <= told.leader.epoch < epoch:
        raise _diverged(copy_range, first, position, f"its leader epoch is {told.leader.epoch}: this is another topic")


def _has_others(source: WireCluster, copy_range: CopyRange, first: int, position: int, epoch: int) -> bool:
    """Return whether the source has batches in [first, position) that are not of ``epoch``.

    A replica that was built from a compacted log never saw an epoch that had no batches left; it lacks nothing.
    """
    for raw, _aborted in read_batches(
        source, copy_range.source, first, position, isolation=READ_UNCOMMITTED, max_bytes=1
    ):
        return raw.header is None or (raw.header.base_offset < position and raw.header.leader_epoch != epoch)
    return False


def _diverged(copy_range: CopyRange, start: int, end: int, why: str) -> SourceTruncated:
    return SourceTruncated(
        copy_range.source_topic, copy_range.partition, start, end,
        f"the source's new leader lacks records that were copied from the previous one ({why})",
        "The source lost records in an unclean leader election; the target still has them. Compare both sides; to "
        "continue with the present source, delete the target topic and copy again.",
    )  # fmt: skip
