"""What one pass over the log starts found and did, in a few kilobytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.sync.brief import LONGEST, brief, told


@dataclass(kw_only=True)
class StartsReport:
    """One pass over all partitions. What does not follow stands in one of the lists, with its cause.

    :param topics: topics whose log starts follow.
    :param moved: partitions of which this pass deleted records.
    :param kept: partitions of which somebody deleted records at the source; the target keeps them.
    :param compacted: topics whose ``cleanup.policy`` this pass set: compaction is back, or ended.
    :param not_compacted: topics that the source compacts, and the target not before the mirror has ended.
    :param longer: topics whose own retention on the target is longer than the source's: it decides.
    :param left_alone: partitions whose log starts don't follow.
    :param left_out: topics whose log starts don't follow.
    :param failed: partitions that could not be asked or changed.
    :param took_s: seconds.
    """

    topics: int = 0
    moved: int = 0
    kept: list[str] = field(default_factory=list)
    compacted: list[str] = field(default_factory=list)
    not_compacted: list[str] = field(default_factory=list)
    longer: list[str] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    took_s: float = 0.0

    def __str__(self) -> str:
        """One line that stays the same while nothing happens but log starts moving on."""
        others = (
            (self.kept, "partitions keep what the source has lost"),
            (self.not_compacted, "topics are not compacted"),
            (self.longer, "topics keep more than the source"),
            (self.left_alone, "left alone"),
            (self.left_out, "topics left out"),
            (self.failed, "partitions failed"),
        )
        return told(f"{self.topics} topics follow", others)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values. Of each list: how long it is, and its first lines."""
        alone = len(self.kept)
        said = [f"{alone} partition(s) keep what the source has lost, as {min(self.kept)}"[:LONGEST]] if alone else []
        return {"said": said, **brief(vars(self))}
