"""What a pass over log starts has done, and what it has left."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mirror.sync.passes import PassReport, listed


@dataclass(kw_only=True)
class StartsReport(PassReport):
    """One pass over all partitions. What does not follow stands in one of the lists, with its cause.

    :param topics: topics whose log starts follow, and of which nothing was refused.
    :param moved: partitions of which this pass deleted records.
    :param kept: partitions of which somebody deleted records at the source; the target keeps them.
    :param compacted: topics whose ``cleanup.policy`` this pass set: compaction is back, or ended.
    :param not_compacted: topics that the source compacts, and the target not before the mirror has ended.
    :param longer: topics whose own retention on the target is longer than the source's: it decides.
    :param left_alone: partitions whose log starts don't follow.
    """

    head, level = "{topics:topic} kept level", "topics"
    topics: int = 0
    moved: int = 0
    kept: list[str] = listed(
        "partitions keep what the source has lost", "{count} partition(s) keep what the source has lost, as {line}"
    )
    compacted: list[str] = listed()
    not_compacted: list[str] = listed("topics are not compacted")
    longer: list[str] = listed("topics keep more than the source")
    left_alone: list[str] = listed("left alone")
