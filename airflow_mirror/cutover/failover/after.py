"""What a source that returns had taken after the cut of a failover: records that the target never got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.failover.check import failed_over
from airflow_mirror.cutover.failover.record import Record
from airflow_mirror.cutover.platform import Side, require_source
from airflow_mirror.errors import TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.ledger.records import CUT
from airflow_mirror.plan.model import Plan
from airflow_mirror.verify.partition import count_data
from airflow_mirror.wording import some

_READ_AT_MOST = 1_000_000  # offsets whose records are counted by reading them; beyond it offsets have to do


@dataclass(frozen=True, kw_only=True)
class Surplus:
    """One source partition.

    :param cut: the first offset that the target lacks; None: the copy of it is not known.
    :param start: its log start by now; ``end``: its end.
    :param problem: the topic is gone; or it is another one, and the target lacks all of it.
    :param records: data records in those offsets, as consumers see them; None: they were not counted.
    """

    source: TopicPartition
    cut: int | None = None
    start: int = 0
    end: int = 0
    problem: str = ""
    records: int | None = None

    @property
    def first(self) -> int:
        """The first offset that only the source has."""
        return max(self.cut or 0, self.start)

    @property
    def offsets(self) -> int:
        """Offsets that the source has and the target lacks."""
        return 0 if self.cut is None else max(0, self.end - max(self.cut, self.start))

    def __str__(self) -> str:
        """One readable line."""
        records = "" if self.records is None else f", {self.records:,} records"
        if self.problem:
            what = f"; it has offsets {self.start} to {self.end}{records}" if self.offsets else ""
            return f"{self.source}: {self.problem}{what}"
        if self.cut is None:
            return f"{self.source}: up to where it was copied is not known; it has offsets {self.start} to {self.end}"
        lost = f"; {self.start - self.cut} more were deleted there" if self.start > self.cut else ""
        if self.end < self.cut:
            return f"{self.source}: it ends at {self.end}, below the cut at {self.cut}: the source has lost records"
        return f"{self.source}: {self.offsets} offsets{records}, from {max(self.cut, self.start)} up to {self.end}{lost}"


def after(source: ClusterAdmin, target: Side, mirror: str) -> list[Surplus]:
    """Return, by partition, what the source has beyond the cut, and where nothing can be said. Only reads.

    :raises InputError: the mirror was not, or that is not its source. :raises TryAgain: it does not know its topics yet.
    """
    plan, decided = failed_over(target, mirror)
    require_source(source, plan)
    # The cut that the decision names: notes of calls that came to nothing may lie beside it.
    cut = Record(target.state(CUT.below(mirror)), mirror, decided.attempt).cut()
    return counted(source, beyond(source, plan, cut.offsets))


def topics_there(source: ClusterAdmin, plan: Plan) -> dict[str, TopicInfo]:
    """Return those of a plan's topics that the source has; the others are gone, as far as can be known.

    :raises TryAgain: a broker does not list some that are there.
    """
    names = {t.source_topic for t in plan.topics}
    there = source.topics(names)
    # A broker that has just started knows no topic, and a source that returns has just started. By its word alone a
    # fence was proven on nothing, and all that is there counted as gone.
    missing = names - there.keys()
    if unseen := missing - source.wire.refresh_present(missing):
        raise TryAgain(
            f"mirror {plan.mirror.name!r}: a broker of the source does not list {some(sorted(unseen), 3)}",
            "one that has just started may not know them yet", "Others have them.",
        )  # fmt: skip
    return there


def beyond(source: ClusterAdmin, plan: Plan, cut: Mapping[TopicPartition, int]) -> list[Surplus]:
    """Return the partitions of which there is something to say; see :func:`after`."""
    there = topics_there(source, plan)
    found = []
    for t in plan.topics:
        info = there.get(t.source_topic)
        problem = "the source has no such topic any more" if info is None else ""
        # By id: a source that lost its disks has topics of the same names, which clients have created, with other
        # records.
        if info is not None and info.topic_id != t.source_topic_id:
            problem = "the source's topic was created again"
        count = t.partitions if info is None else max(t.partitions, info.partitions)
        found += [Surplus(source=TopicPartition(t.source_topic, p), problem=problem) for p in range(count)]
    # An application that wrote to a source with empty disks may have created a topic with fewer partitions.
    counts = {name: info.partitions for name, info in there.items()}
    asked = [one.source for one in found if one.source.partition < counts.get(one.source.topic, 0)]
    # Retention goes on, also behind a fence: what it deletes between these two readings counts as there, and the export,
    # which reads it, fails by that.
    starts, ends = source.wire.log_starts(asked), source.wire.log_ends(asked)
    grown: Mapping[TopicPartition, int] = {tp: 0 for tp in asked if tp.partition >= plan.topic(tp.topic).partitions}
    # A topic that was created again, or a partition that was added: the target has nothing of it, from its first offset
    # on.
    known = {**grown, **cut, **{one.source: 0 for one in found if one.problem}}
    rows = [
        replace(one, cut=known.get(one.source), start=starts.get(one.source, 0), end=ends.get(one.source, 0))
        for one in found
    ]
    # Read without a fence it is true for a moment; behind the fence of a source that returned it stays (`returned`).
    return [one for one in rows if one.problem or one.end != one.cut]


def counted(source: ClusterAdmin, rows: list[Surplus]) -> list[Surplus]:
    """Return them with their data records, unless reading these would take too long."""
    if sum(one.offsets for one in rows) > _READ_AT_MOST:
        return rows
    stable = source.wire.last_stable([one.source for one in rows if one.offsets])
    return [
        one
        if one.source not in stable
        else replace(one, records=count_data(source.wire, one.source, one.first, stable[one.source], committed=True))
        for one in rows
    ]


def to_dict(mirror: str, rows: list[Surplus]) -> dict[str, Any]:
    """Return JSON-ready values."""
    keys = ("cut", "start", "end", "offsets", "records", "problem")
    partitions = [{"partition": str(one.source), **{key: getattr(one, key) for key in keys}} for one in rows]
    return {"mirror": mirror, "offsets": sum(one.offsets for one in rows), "partitions": partitions}
