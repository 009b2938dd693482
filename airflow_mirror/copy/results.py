"""A task's report for each partition, as a value that is passed from a Spark task to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from airflow_mirror.copy.loop.counters import COUNTERS
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import LeaseLost, MirrorError, SourceGone, TaskUnheard, TryAgain
from airflow_mirror.wire import heart


@dataclass(frozen=True, kw_only=True)
class PartitionResult:
    """The outcome of one partition's copy in one task.

    :param position: next source offset when the task stopped; with identical offsets also the target's log end.
    :param target_partition: differs from ``partition`` only with key partitioning.
    :param done: the end of the range was reached.
    :param seconds: how long the task copied, all its partitions together.
    :param error: message; None if there was none.
    :param final: a retry would find the same, or must not be made: corrupt data, missing rights, a lost lease.
    :param source_gone: the error is that the source's topic was deleted, or created again.
    :param lease_lost: the error is a lost lease, which a driver that withdraws it expects.
    :param opened: False: its position is a guess, because the target was not looked at.
    :param unheard: the error is that nobody knows how the task ended, and whether it has: it may still write.
    :param heart: which one ran (:func:`.heart.name`); empty if none did.
    """

    topic: str
    target_topic: str
    partition: int
    position: int
    done: bool
    records: int = 0
    bytes: int = 0
    batches: int = 0
    passed: int = 0
    reencoded: int = 0
    merged: int = 0
    dropped: int = 0
    padded: int = 0
    primed: int = 0
    seconds: float = 0.0
    error: str | None = None
    final: bool = False
    target_partition: int = -1
    lease_lost: bool = False
    source_gone: bool = False
    unheard: bool = False
    opened: bool = True
    heart: str = ""

    @property
    def key(self) -> tuple[str, int, int]:
        """What the result is about: source topic, source partition, target partition."""
        return self.topic, self.partition, self.target_partition

    @property
    def passes(self) -> bool:
        """Whether it has an error that another turn would have gone on from, while nobody else writes the partition."""
        return self.error is not None and not self.final and not self.unheard

    def going_on(self) -> PartitionResult:
        """Return it without its error if its partition only goes on under another lease than that of its task."""
        return replace(self, error=None, final=False, lease_lost=False) if self.lease_lost or self.unheard else self

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return asdict(self)

    @classmethod
    def of(cls, p: PartitionCopy, seconds: float) -> PartitionResult:
        """Summarise a partition's copy by a task that took ``seconds``."""
        # Behind the loop's end, and in its thread: nothing of it changes any more.
        return cls(
            topic=p.range.source_topic,
            target_topic=p.range.target_topic,
            partition=p.range.partition,
            position=p.settled_position,
            done=p.done and p.error is None,
            **asdict(p.counters),
            seconds=round(seconds, 3),
            error=str(p.error) if p.error else None,
            final=p.error is not None and _is_final(p.error),
            target_partition=p.range.target.partition,
            lease_lost=isinstance(p.error, LeaseLost),
            source_gone=isinstance(p.error, SourceGone),
            unheard=isinstance(p.error, TaskUnheard),
            opened=p.opened or p.done,
            heart=heart.name() if p.opened else "",
        )


def _is_final(error: MirrorError) -> bool:
    # A lost lease is one although it is no fault: a retry would take it back from whoever has it now.
    return isinstance(error, LeaseLost) or not isinstance(error, TryAgain)


def without_copy(ranges: Sequence[CopyRange], error: MirrorError) -> list[PartitionResult]:
    """Return the results of a task that did not copy, or of which nobody knows what it did."""
    copies = [PartitionCopy(one, True, 0, position=one.start_offset, error=error) for one in ranges]
    return [PartitionResult.of(one, 0.0) for one in copies]


def unheard(ranges: Sequence[CopyRange], why: str) -> list[PartitionResult]:
    """Return the results of a task that has told none."""
    # Nobody knows whether it still writes. So before these ranges are dealt out again its lease is withdrawn, and the
    # longest time is over for which it could go on without (`held_lease`).
    return without_copy(ranges, TaskUnheard([str(one.source) for one in ranges], why))


def summarise(results: Iterable[PartitionResult], seconds: float) -> dict[str, Any]:
    """Return the one JSON object with which a job ends (design, section 4)."""
    rows = list(results)
    summary: dict[str, Any] = {"partitions": len(rows)}
    summary.update({name: sum(getattr(row, name) for row in rows) for name in COUNTERS})
    summary["seconds"] = round(seconds, 3)
    # Without the start of Spark and its workers, for a comparison of engines.
    summary["transfer_seconds"] = max((row.seconds for row in rows), default=0.0)
    summary["heart"] = ", ".join(sorted({row.heart for row in rows if row.heart}))
    ends: dict[str, int] = {}
    # With key partitioning several rows cover one source partition: the slowest counts.
    for row in filter(lambda row: row.opened, rows):
        name = f"{row.target_topic}-{row.partition}"
        ends[name] = min(row.position, ends.get(name, row.position))
    summary["end_offsets"] = ends
    summary["errors"] = list(dict.fromkeys(r.error for r in rows if r.error))  # a topic's error is each partition's
    return summary


def add(total: Mapping[tuple[str, int, int], PartitionResult], row: PartitionResult) -> PartitionResult:
    """Add a later result of the same partition to the known total (a tail reports once per turn)."""
    before = total.get(row.key)
    if before is None:
        return row
    sums = {name: getattr(before, name) + getattr(row, name) for name in COUNTERS}
    position = max(before.position, row.position)  # a task that was lost, or began without the lease, knows none
    seconds = round(before.seconds + row.seconds, 3)
    opened, its = before.opened or row.opened, row.heart or before.heart
    return replace(row, **sums, position=position, opened=opened, seconds=seconds, heart=its)
