"""What a source that returns had taken after the cut of a failover: records that the target never got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import InputError, NotFailedOver
from airflow_mirror.failover.check import mirror_of
from airflow_mirror.failover.record import Record, prefix
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.partition import TopicPartition

if TYPE_CHECKING:
    from airflow_mirror.kafka.admin import ClusterAdmin


@dataclass(frozen=True, kw_only=True)
class Surplus:
    """One source partition.

    :param cut: the first offset that the target lacks; None: the copy of it is not known.
    :param start: its log start by now; ``end``: its end.
    :param problem: why the offsets say nothing: the topic is gone, or another one.
    """

    source: TopicPartition
    cut: int | None = None
    start: int = 0
    end: int = 0
    problem: str = ""

    @property
    def offsets(self) -> int:
        """Offsets that the source has and the target lacks."""
        return 0 if self.cut is None or self.problem else max(0, self.end - max(self.cut, self.start))

    def __str__(self) -> str:
        """One readable line."""
        if self.problem:
            return f"{self.source}: {self.problem}"
        if self.cut is None:
            return f"{self.source}: up to where it was copied is not known; it has offsets {self.start} to {self.end}"
        lost = f"; {self.start - self.cut} more were deleted there" if self.start > self.cut else ""
        if self.end < self.cut:
            return f"{self.source}: it ends at {self.end}, below the cut at {self.cut}: the source has lost records"
        return f"{self.source}: {self.offsets} offsets, from {max(self.cut, self.start)} up to {self.end}{lost}"


def after(source: ClusterAdmin, target: ClusterAdmin, mirror: str) -> list[Surplus]:
    """Return, by partition, what the source has beyond the cut, and where nothing can be said. Only reads.

    :raises NotFailedOver: the mirror was not. :raises InputError: that is not its source.
    """
    ledger = Ledger(target)
    plan, decided, _ = mirror_of(target, ledger, mirror)
    if decided is None:
        raise NotFailedOver(mirror)
    if (found_id := source.cluster_id()) != plan.source_cluster_id:
        raise InputError(f"the source is cluster {found_id}; mirror {mirror!r} copied from {plan.source_cluster_id}.")
    cut = Record(state_of(target, prefix(mirror)), mirror, decided.attempt).cut()
    there = source.topics([t.source_topic for t in plan.topics])
    found = []
    for t in plan.topics:
        info = there.get(t.source_topic)
        problem = "the source has no such topic any more" if info is None else ""
        if info is not None and info.topic_id != t.source_topic_id:
            problem = "the source's topic was created again"
        count = t.partitions if info is None else max(t.partitions, info.partitions)
        found += [Surplus(source=TopicPartition(t.source_topic, p), problem=problem) for p in range(count)]
    asked = [one.source for one in found if not one.problem]
    starts, ends = source.wire.log_starts(asked), source.wire.log_ends(asked)
    grown: Mapping[TopicPartition, int] = {tp: 0 for tp in asked if tp.partition >= plan.topic(tp.topic).partitions}
    known = {**grown, **cut.offsets}
    rows = [
        one
        if one.problem
        else Surplus(source=one.source, cut=known.get(one.source), start=starts[one.source], end=ends[one.source])
        for one in found
    ]
    return [one for one in rows if one.offsets or one.problem or one.cut is None or one.end < one.cut]


def to_dict(mirror: str, rows: list[Surplus]) -> dict[str, Any]:
    """Return JSON-ready values."""
    keys = ("cut", "start", "end", "offsets", "problem")
    partitions = [{"partition": str(one.source), **{key: getattr(one, key) for key in keys}} for one in rows]
    return {"mirror": mirror, "offsets": sum(one.offsets for one in rows), "partitions": partitions}
