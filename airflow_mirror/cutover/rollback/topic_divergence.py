"""How the old source and the target have parted since a failover, by topic: can a mirror back go on where the log ends?

- ``delta``: the old source ends at or below the cut everywhere, but not below what the target's retention has left, and
  what both have is the same. Only what is missing is copied back.
- ``diverged``: it has something that the target lacks, or something else. A log's tail can't be cut off, and the offsets
  are taken on the target by now. Or a gap is behind its end. So it has to go as a whole, or the topic stays as it is.
- ``gone``: it is empty, or not there. Everything is copied back.

What was compared before the source was lost proves nothing about it now: a broker that died may have lost records and
taken others at their offsets. So both sides are read, up to the cut, of each topic that is there: one partition that went
on beyond it says nothing about what lies below. Only reads.

A diverged topic may be deleted once its surplus is exported. So the surplus is all that was not seen to be on the target:
too much of it costs disk, too little costs records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.cutover.failover.after import Surplus, beyond, topics_there
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.plan.model import Plan
from airflow_mirror.verify.remaining import verify_rest
from airflow_mirror.verify.result import PartitionComparison

DELTA, DIVERGED, GONE = "delta", "diverged", "gone"


@dataclass(frozen=True, kw_only=True)
class TopicDivergence:
    """One topic of the old source.

    :param topic_id: its id there by now; "" if it is gone, or on brokers that have none.
    :param reasons: why it has diverged, and what else counts as surplus, in lines that name the partition.
    :param surplus: by partition, in the order of offsets, what it has that was not seen to be on the target: from the
        first offset on at which it differs, and what was not compared before that.
    :param ends: where its logs ended when that was read.
    """

    topic: str
    topic_id: str
    verdict: str
    reasons: tuple[str, ...] = ()
    surplus: tuple[Surplus, ...] = ()
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)

    def since(self, starts: Mapping[TopicPartition, int]) -> TopicDivergence:
        """Return it with what is left of its surplus. :param starts: where its logs start by now."""
        left = [replace(one, start=max(one.start, starts[one.source])) for one in self.surplus]
        return replace(self, surplus=tuple(one for one in left if one.start < one.end))

    def lines(self) -> list[str]:
        """Return what there is to say, for people."""
        named = f" (id {self.topic_id})" if self.topic_id else ""
        return [f"{self.topic}{named}: {self.verdict}", *(f"  {reason}" for reason in self.reasons)]


def classify_divergence(
    cut: Mapping[TopicPartition, int], plan: Plan, source: ClusterAdmin, target: ClusterAdmin,
    level: str | None = "batches",
) -> list[TopicDivergence]:  # fmt: skip
    """Return what has become of each topic.

    :param cut: by source partition, the first offset that the target lacked at the failover.
    :param plan: of the mirror that was failed over. :param source: its source, which has returned.
    :param level: at which both sides are compared, so that records are read; None: by their ends alone.
    :raises TryAgain: a cluster does not answer.
    """
    there = topics_there(source, plan)
    counts = {t.source_topic: 0 for t in plan.topics} | {name: info.partitions for name, info in there.items()}
    tps = {name: [TopicPartition(name, p) for p in range(n)] for name, n in counts.items()}
    asked = [tp for its in tps.values() for tp in its]
    said = {row.source: row for row in beyond(source, plan, cut)}
    # Behind a proven fence these ends stay: what is said here holds until somebody lifts it. Starts don't: what retention
    # takes from here on counts as there.
    starts, ends = source.wire.log_starts(asked), source.wire.log_ends(asked)
    # Of which nothing is said: it ends at the cut, or was added there and is empty.
    rows = {
        tp: replace(said.get(tp) or Surplus(source=tp, cut=cut.get(tp, 0)), start=starts[tp], end=ends[tp])
        for tp in asked
    }
    on_target = target.topics([t.target_topic for t in plan.topics])
    begins = _begins(plan, target, on_target, counts)
    # Where nobody knows the cut, all of it counts as beyond it.
    cuts = {tp: row.cut or 0 for tp, row in rows.items()}
    compared = dict[TopicPartition, PartitionComparison]()
    if level is not None:
        again = {tp.topic for tp, row in rows.items() if row.problem}
        # One that was added on the source was never copied.
        same = [
            replace(t, partitions=min(t.partitions, len(tps[t.source_topic])))
            for t in plan.topics
            if t.source_topic not in again and any(ends[tp] for tp in tps[t.source_topic])
        ]
        # Up to the cut: offsets beyond it are other records on the target by now.
        upto = {tp: min(ends[tp], cuts[tp]) for tp in asked}
        compared = _compared(replace(plan, topics=tuple(same)), source, target, on_target, upto, level)
    found: list[TopicDivergence] = []
    for t in plan.topics:
        name = t.source_topic
        its = [
            _Partition(
                row=rows[tp], cut=cuts[tp], mapped=t.mode == MAPPED, was_asked=level is not None,
                compared=compared.get(tp), begins=begins.get(tp, 0),
            )
            for tp in tps[name]
        ]  # fmt: skip
        verdict = DIVERGED if any(one.has_parted for one in its) else DELTA
        verdict = verdict if any(one.row.end for one in its) else GONE
        parted = its if verdict == DIVERGED else []
        # What is deleted later is deleted by this id, as it was when the verdict was read.
        topic_id = there[name].topic_id if name in there else ""
        reasons = tuple(line for one in parted for line in one.reasons())
        surplus = tuple(part for one in parted for part in one.surplus())
        found.append(
            TopicDivergence(
                topic=name, topic_id=topic_id, verdict=verdict, reasons=reasons, surplus=surplus,
                ends={tp: ends[tp] for tp in tps[name]},
            )
        )  # fmt: skip
    return found


def _begins(
    plan: Plan, target: ClusterAdmin, there: Mapping[str, TopicInfo], counts: Mapping[str, int]
) -> dict[TopicPartition, int]:
    """Return by source partition where the copy of it begins: where that was planned, or where the target's log starts.

    :param there: topics of the target. :param counts: partitions of the source's topics.
    """
    planned = {TopicPartition(t.source_topic, p): start for t in plan.topics for p, start in t.starts.items()}
    # A mapped log has other offsets.
    asked = {
        TopicPartition(t.target_topic, p): TopicPartition(t.source_topic, p)
        for t in plan.topics
        if t.mode != MAPPED and t.target_topic in there
        for p in range(min(counts[t.source_topic], there[t.target_topic].partitions))
    }
    started = {asked[tp]: start for tp, start in target.wire.log_starts(asked).items()}
    return {tp: max(planned.get(tp, 0), started.get(tp, 0)) for tp in planned.keys() | started.keys()}


def _compared(
    plan: Plan, source: ClusterAdmin, target: ClusterAdmin, there: Mapping[str, TopicInfo],
    upto: Mapping[TopicPartition, int], level: str,
) -> dict[TopicPartition, PartitionComparison]:  # fmt: skip
    """Return how each partition compares that both sides have; the others are missing.

    :param there: topics of the target.
    """
    # A topic of the target may be gone, or have been created again with fewer partitions.
    both = [
        replace(t, partitions=min(t.partitions, there[t.target_topic].partitions))
        for t in plan.topics
        if t.target_topic in there
    ]
    if not both:
        return {}
    # Read in full on both sides: what was proven before the source died says nothing about the disks that came back.
    found = verify_rest(replace(plan, topics=tuple(both)), source.config, target.config, level=level)(upto)
    return {one.source: one for one in found}


@dataclass(frozen=True, kw_only=True)
class _Partition:
    """One partition of a topic of the old source that is there.

    :param row: what is known of its log. :param cut: from where on the target lacks it.
    :param compared: with the target's, up to the cut; None: it was not. :param was_asked: whether it should have been.
    :param mapped: its offsets are mapped. :param begins: from where on the target may have it.
    """

    row: Surplus
    cut: int
    begins: int
    compared: PartitionComparison | None
    was_asked: bool
    mapped: bool

    @property
    def has_parted(self) -> bool:
        """Whether it has something that the target lacks, or something else, or ends where the target can't go on."""
        return self._is_beyond or self._differs_at is not None or self._has_no_copy or self._ends_too_early

    @property
    def _is_beyond(self) -> bool:
        """Whether it has offsets that are other records on the target by now."""
        return self.row.end > self.cut

    @property
    def _ends_too_early(self) -> bool:
        """Whether there is a gap between its end and what the target has.

        The target's retention has passed its end, or it lost its log, and took other records from the first offset on.
        An empty log that begins at 0 is copied from where the target's starts.
        """
        return 0 < self.row.end < self.begins

    @property
    def _has_no_copy(self) -> bool:
        """Whether the target has no such partition any more, although records of this one were copied."""
        return self.was_asked and self.compared is None and self.row.start < min(self.row.end, self.cut)

    @property
    def _differs_at(self) -> int | None:
        found = None if self.compared is None else self.compared.first_difference
        return None if found is None else found.offset

    def surplus(self) -> list[Surplus]:
        """Return what was not seen to be on the target."""
        equal_from, equal_until = self._equal()
        row = self.row
        front = replace(row, cut=row.start, end=equal_from)
        # All behind a difference: it ended the comparison.
        rest = replace(row, cut=equal_until)
        return [*([front] if front.offsets else []), *([rest] if rest.offsets or self._is_beyond else [])]

    def _equal(self) -> tuple[int, int]:
        """Return the offsets whose records were seen to be the same on both sides; none: the log's start twice."""
        one, start, until = self.compared, self.row.start, min(self.row.end, self.cut)
        # Only here, though no difference: what the target's cleaner, or its retention, had taken was passed over.
        if one is None or one.cleaned or one.expired:
            return start, start
        if (differs := one.first_difference) is not None:
            # A map may be what is wrong. And where a batch can't be read, nobody knows which records have no copy.
            if self.mapped or differs.kind == "corrupt":
                return start, start
            until = min(until, differs.offset)
        # What lies in front of it was not copied, as the mirror began behind it; or the target has deleted it since.
        return (one.start_offset, until) if one.start_offset < until else (start, start)

    def reasons(self) -> list[str]:
        """Return why it has parted, and what else of it counts as surplus, as readable lines."""
        name, one, parts = self.row.source, self.compared, self.surplus()
        lines = [str(self.row)] if self._is_beyond else []
        if self._has_no_copy:
            lines.append(f"{name}: the target has no such partition any more, so all of it counts as only here")
        if self._ends_too_early:
            lines.append(f"{name}: it ends at {self.row.end}, and the target has it from {self.begins} on: a gap is left")
        if one is not None and not one.equal:
            lines.append(str(one))
        # What these lines don't explain.
        told = min(self.row.end, self.cut)
        told = told if self._differs_at is None else min(told, self._differs_at)
        if one is not None and parts and parts[0].first < told:
            until = min(parts[0].end, told)
            lines.append(
                f"{name}: offsets {parts[0].first} to {until} were not seen on the target: they count as only here"
            )
        return lines
