"""Who has written to the source since its target was opened: by its logs, because clients' clocks may be hours off.

What a leader remembers of a producer has the newest time among its records, which its client has set. The end that a
cutover has left is an offset, and each batch behind it names its producer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer.identity import is_ours
from airflow_mirror.verify.compare import Floor
from airflow_mirror.verify.partition import data_batches
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wording import count, some

_MOST, _MOST_TOGETHER = 10_000, 200_000  # offsets that are read, of one partition and of all: this is no copy


@dataclass(frozen=True, kw_only=True)
class Since:
    """What the logs have behind a cutover's ends.

    :param producers: ids of those whose batches were seen.
    :param read: names of partitions of which all was read. :param partly: likewise, of which only the newest was.
    :param unnumbered: records of clients without a producer id, by partition.
    :param shorter: partitions whose logs end before the cutover's ends: they are others by now, and tell nothing.
    """

    producers: set[int] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    partly: set[str] = field(default_factory=set)
    unnumbered: dict[TopicPartition, int] = field(default_factory=dict)
    shorter: set[TopicPartition] = field(default_factory=set)

    def lines(self) -> list[str]:
        """Return who wrote and is named by nobody, a line for each partition; and of which logs nobody can tell."""
        lines = [
            f"who has written {count(n, 'record')} to {tp} since the target was opened: no producer id"
            for tp, n in sorted(self.unnumbered.items())
        ]
        if self.shorter:
            why = "created again or truncated, its log ends before the cutover's end"
            lines.append(f"who has written to {some(map(str, sorted(self.shorter)))} since the opening: {why}")
        return lines


def written_since(cut: Mapping[TopicPartition, int], source: WireCluster) -> Since:
    """Read, from each log that has moved, the newest part behind its end of the cutover.

    :param cut: the ends, by partition (:attr:`.CutoverReport.cut`).
    :raises MirrorError: one can't be read.
    """
    found, ends = Since(), source.high_watermarks(cut)
    moved = {tp: end for tp, end in cut.items() if ends[tp] > end}
    found.shorter.update(tp for tp, end in cut.items() if ends[tp] < end)
    found.read.update(str(tp) for tp in cut.keys() - moved.keys() - found.shorter)
    most = min(_MOST, _MOST_TOGETHER // max(1, len(moved)))
    for tp, end in moved.items():
        start = max(end, ends[tp] - most)
        for raw in data_batches(source, tp, start, ends[tp], committed=False, floor=Floor(start)):
            header = raw.header
            if header is None or header.producer_id < 0:
                records = raw.next_offset - max(raw.first_offset, start) if header is None else header.record_count
                found.unnumbered[tp] = found.unnumbered.get(tp, 0) + records
            elif header.record_count and not is_ours(header.producer_id):  # a cleaner keeps empty batches
                found.producers.add(header.producer_id)
        (found.read if start == end else found.partly).add(str(tp))
    return found
