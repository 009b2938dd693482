"""What is seen of the clusters before the night. Everything here only reads, with the rights of a plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from airflow_mirror.errors import ClusterUnreachable, MirrorError

if TYPE_CHECKING:
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.kafka.model import GroupInfo, GroupPosition
    from airflow_mirror.partition import TopicPartition

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was seen, as values.

    :param at_ms: when, by our clock. :param topics: all visible names of the source, with internal ones, sorted.
    :param positions: committed positions by group. :param unseen: what could not be read, each with its reason.
    """

    at_ms: int
    topics: Sequence[str] = ()
    groups: Sequence[GroupInfo] = ()
    positions: Mapping[str, Mapping[TopicPartition, GroupPosition]] = field(default_factory=dict)
    unseen: Sequence[str] = ()


class Questions:
    """Asks clusters; what gets no answer is listed, and keeps nothing else from being asked."""

    def __init__(self) -> None:
        self.unseen: list[str] = []

    def ask(self, what: str, question: Callable[[], _T], otherwise: _T) -> _T:
        """Return the answer, or ``otherwise``. :raises ClusterUnreachable: there is nobody to answer."""
        try:
            return question()
        except ClusterUnreachable:
            raise
        except MirrorError as e:
            self.unseen.append(f"{what}: {e}")
            return otherwise


def look(source: ClusterAdmin) -> Seen:
    """Ask the source.

    :raises ClusterUnreachable: it does not answer.
    """
    to = Questions()
    groups = to.ask("groups", source.groups, [])
    ids = [one.group_id for one in groups]
    return Seen(
        at_ms=round(time.time() * 1000),
        topics=source.topic_names(),
        groups=groups,
        positions=to.ask("positions of groups", lambda: source.groups_offsets(ids), {}),
        unseen=to.unseen,
    )
