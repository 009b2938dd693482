"""Waves: which topics and groups have to be cut over together, and because of which group.

A consumer has one bootstrap address. So a group's topics move in one cutover, and so do all groups of these topics: a
wave is a connected component of groups and topics. Waves may be joined at will, and none may be split. No cluster is
asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.patterns import exact


@dataclass(frozen=True, kw_only=True)
class Wave:
    """Topics and groups that one cutover moves; both sorted.

    :param ties: the groups that keep topics together, each with its topics; a group with one topic keeps nothing.
    """

    topics: tuple[str, ...]
    groups: tuple[str, ...] = ()
    ties: Mapping[str, tuple[str, ...]]

    def selection(self) -> dict[str, list[str]]:
        """Return the fields of a Mirror that selects this wave and nothing else."""
        return {"topics": [exact(t) for t in self.topics], "groups": [exact(g) for g in self.groups]}


def reads_of(
    groups: Collection[str], positions: Mapping[str, Collection[TopicPartition]], streams: Mapping[str, Collection[str]]
) -> dict[str, set[str]]:
    """Return the topics of each group: those that it has positions in, and an application's internal ones.

    Nobody commits positions in changelogs, but they move with their application.

    :param groups: known ones, besides those with positions. :param streams: internal topics by application.
    """
    return {
        group: {tp.topic for tp in positions.get(group, ())} | set(streams.get(group, ()))
        for group in sorted({*groups, *positions})
    }


def waves(topics: Collection[str], reads: Mapping[str, Collection[str]]) -> list[Wave]:
    """Return the waves of topics, the smallest first: it is the rehearsal of the others.

    Topics that no group reads depend on nothing. They are one wave, the last one.

    :param reads: the topics of each group; those that are not among ``topics`` tie nothing.
    """
    read = {group: sorted(set(its).intersection(topics)) for group, its in sorted(reads.items())}
    readers: dict[str, list[str]] = {topic: [] for topic in topics}
    for group, its in read.items():
        for topic in its:
            readers[topic].append(group)
    found, left = [], {topic for topic, groups in readers.items() if groups}
    while left:
        together, ahead = set[str](), [min(left)]
        while ahead:
            topic = ahead.pop()
            if topic not in together:
                together.add(topic)
                ahead += [other for group in readers[topic] for other in read[group]]
        left -= together
        groups = sorted({group for topic in together for group in readers[topic]})
        ties = {group: tuple(read[group]) for group in groups if len(read[group]) > 1}
        found.append(Wave(topics=tuple(sorted(together)), groups=tuple(groups), ties=ties))
    found.sort(key=lambda wave: (len(wave.topics), len(wave.groups), wave.topics))
    unread = tuple(sorted(topic for topic, groups in readers.items() if not groups))
    return [*found, Wave(topics=unread, ties={})] if unread else found
