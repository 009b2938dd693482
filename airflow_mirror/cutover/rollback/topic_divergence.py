"""How the old source and the target have parted since a failover, by topic: can a mirror back go on where the log ends?

- ``delta``: the old source ends at or below the cut everywhere, and what both have is the same. Only what is missing is
  copied back.
- ``diverged``: it has something that the target lacks, or something else. A log's tail can't be cut off, and the offsets
  are taken on the target by now. So it has to go as a whole, or the topic stays as it is.
- ``gone``: it is empty, or not there. Everything is copied back.

What was compared before the source was lost proves nothing about it now: a broker that died may have lost records and
taken others at their offsets. So both sides are read. Only reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.failover.after import Surplus, beyond
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.model import Plan
from airflow_mirror.verify.remaining import verify_rest

DELTA, DIVERGED, GONE = "delta", "diverged", "gone"


@dataclass(frozen=True, kw_only=True)
class TopicDivergence:
    """One topic of the old source.

    :param topic_id: its id there by now; "" if it is gone, or on brokers that have none.
    :param reasons: why it has diverged, a line for each partition.
    :param surplus: by partition, what it has from the first offset on at which it differs.
    """

    topic: str
    topic_id: str
    verdict: str
    reasons: tuple[str, ...] = ()
    surplus: tuple[Surplus, ...] = ()

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
    :param level: at which both sides are compared; None: by their ends alone.
    :raises TryAgain: a cluster does not answer.
    """
    rows: dict[str, list[Surplus]] = {}
    for row in beyond(source, plan, cut):
        rows.setdefault(row.source.topic, []).append(row)
    there = source.topics([t.source_topic for t in plan.topics])
    tps = {name: [TopicPartition(name, p) for p in range(info.partitions)] for name, info in there.items()}
    # Behind a proven fence these ends stay: what is said here holds until somebody lifts it.
    ends = source.wire.log_ends([tp for its in tps.values() for tp in its])
    found: dict[str, TopicDivergence] = {}
    for name in [t.source_topic for t in plan.topics]:
        # What is deleted later is deleted by this id, as it was when the verdict was read.
        topic_id = there[name].topic_id if name in there else ""
        # Beyond the cut: those offsets are other records on the target by now. Where nobody knows the cut, all of it
        # counts so.
        more = [row for row in rows.get(name, ()) if row.end > (row.cut or 0)]
        surplus = tuple(row if row.cut is not None else replace(row, cut=0) for row in more)
        verdict = GONE if not any(ends[tp] for tp in tps.get(name, ())) else DIVERGED if more else DELTA
        reasons = tuple(map(str, more))
        found[name] = TopicDivergence(topic=name, topic_id=topic_id, verdict=verdict, reasons=reasons, surplus=surplus)
    same = [t for t in plan.topics if found[t.source_topic].verdict == DELTA]
    if same and level is not None:
        # One that was added there is empty, or its topic had diverged; the target may have none of that number.
        both = (replace(t, partitions=min(t.partitions, len(tps[t.source_topic]))) for t in same)
        compared = replace(plan, topics=tuple(both))
        # Read in full on both sides: what was proven before the source died says nothing about the disks that came
        # back.
        for one in verify_rest(compared, source.config, target.config, level=level)(ends):
            if not one.equal and one.first_difference is not None:
                tp, known = TopicPartition(one.source_topic, one.partition), found[one.source_topic]
                differs = Surplus(
                    source=tp, cut=one.first_difference.offset, start=one.source_log.start, end=one.source_log.end
                )
                found[tp.topic] = replace(
                    known, verdict=DIVERGED, reasons=(*known.reasons, str(one)), surplus=(*known.surplus, differs)
                )
    return list(found.values())
