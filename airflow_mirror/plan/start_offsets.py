"""The start offsets of a mirror that begins at a moment: with ``start="latest"``, or where a consumer group stood.

A moment is no offset. Resolved again later it is another offset, and the records in between would be skipped. So it is
resolved once per partition, and later plans continue from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan


def known_as(name: str, topic_id: str) -> str:
    """Return what the starts of a source topic are found by: its id, or its name where brokers have no ids."""
    return topic_id or name


@dataclass(frozen=True)
class Begun:
    """The offsets at which copies began, or are to begin, and which topics have been selected since.

    :param starts: first offset to copy, by source topic (:func:`known_as`) and partition.
    :param followed: returns whether the mirror has selected a topic all the time; if not in ``starts``, it is new.
    """

    starts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    followed: Callable[[str], bool] = lambda _: False

    @classmethod
    def of_plan(cls, last: Plan | None, mirror: Mirror) -> Begun:
        """Return the starts of the mirror's last plan; none if that plan began at another moment."""
        if last is None or not mirror.begins_once or _moment(last.mirror) != _moment(mirror):
            return cls()
        starts = {known_as(t.source_topic, t.source_topic_id): t.starts for t in last.topics}
        return cls(starts, last.mirror.selects_topic)

    def begin(self, topic: TopicInfo, partition: int, log_start: int, otherwise: int) -> int:
        """Return the first offset to copy of a partition.

        A partition or topic that appeared since is copied from its beginning, because all of it is later than that
        moment.

        :param otherwise: where a topic begins of which nothing is known.
        """
        # By its name if brokers had no ids when it began, and have some now.
        starts = self.starts.get(known_as(topic.name, topic.topic_id), self.starts.get(topic.name))
        if starts is None:
            return log_start if self.followed(topic.name) else otherwise
        return max(log_start, starts.get(partition, log_start))


def _moment(mirror: Mirror) -> tuple[str, str | None]:
    return mirror.start, mirror.start_group
