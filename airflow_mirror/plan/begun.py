"""Where a mirror with ``start="latest"`` has begun.

"Latest" is a moment, not an offset: resolved again later it is another offset, and the records in between would be
skipped. So it is resolved once for each partition; a later plan continues from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_mirror.kafka.model import TopicInfo
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan.model import Plan


@dataclass(frozen=True)
class Begun:
    """Where copies began, and which topics were selected since.

    :param starts: first offset to copy, by source topic id and partition.
    :param followed: says whether the mirror selected a topic, which is not in ``starts``, all the time: it is then new.
    """

    starts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    followed: Callable[[str], bool] = lambda _: False

    @classmethod
    def of_plan(cls, last: Plan | None, mirror: Mirror) -> Begun:
        """Return the starts of the mirror's last plan; nothing when it did not begin at ``latest``."""
        if last is None or mirror.start != "latest" or last.mirror.start != "latest":
            return cls()
        starts = {t.source_topic_id: t.starts for t in last.topics}
        return cls(starts, last.mirror.selects_topic)

    def begin(self, topic: TopicInfo, partition: int, log_start: int, end: int) -> int:
        """Return the first offset to copy of a partition.

        A partition or a topic that appeared since is copied from its beginning: all of it is later than the moment of
        ``latest``.
        """
        starts = self.starts.get(topic.topic_id)
        if starts is None:
            return log_start if self.followed(topic.name) else end
        return max(log_start, starts.get(partition, log_start))
