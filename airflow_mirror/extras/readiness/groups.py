"""Which kind of application a group is, and what that means in the night. No cluster is asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from airflow_mirror.extras.readiness.waves import Wave
from airflow_mirror.kafka.model import CONNECT, STREAMS, GroupInfo

SHARE = "share group"

# What somebody has to do about each kind.
TO_DO = {
    "classic consumer": "It goes on at its position.",
    "consumer protocol": "Its clients use KIP-848: the target's brokers have to be 4.0 or later.",
    STREAMS: "Stop it before the fence: it commits every 30 s, and has to be empty. Mirror its internal topics as well.",
    "Connect sink": "Stop the connector before the fence: it commits every 60 s, and has to be empty.",
    "Connect workers": "It has no positions; its internal topics say where connectors are.",
    SHARE: "Its positions are no offsets that move: it starts on the target by share.auto.offset.reset, or where "
    "kafka-share-groups.sh --reset-offsets puts it.",
    "positions only": "Nobody joins it: Spark, Flink, or a client that picks its partitions. The true offsets may be "
    "elsewhere.",
    "other": "Ask its owner: it is no group of consumers.",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Group:
    """One group.

    :param kind: a key of :data:`TO_DO`. :param state: as Kafka names it. :param alive: somebody is in it.
    :param topics: of the mirror, that it has positions in. :param wave: its number, from 1 on; 0: it moves in none.
    """

    name: str
    kind: str
    state: str
    alive: bool
    topics: Sequence[str]
    wave: int


def kind_of(info: GroupInfo, streams: Collection[str]) -> str:
    """Return the kind of a group.

    :param streams: the ids of applications whose internal topics were seen: nobody else tells of one without members.
    """
    if info.protocol_type == "connect":
        return "Connect workers"
    if "share" in (info.group_type, info.protocol_type):
        return SHARE
    if "streams" in (info.group_type, info.protocol_type) or info.group_id in streams or info.application == STREAMS:
        return STREAMS
    if info.protocol_type not in ("consumer", ""):
        return "other"
    if info.application == CONNECT or info.group_id.startswith("connect-"):
        return "Connect sink"
    if info.group_type == "consumer":
        return "consumer protocol"
    return "classic consumer" if info.protocol_type else "positions only"


def groups(
    every: Sequence[GroupInfo], streams: Collection[str], reads: Mapping[str, Collection[str]], waves: Sequence[Wave]
) -> list[Group]:
    """Return the groups that concern the mirror: those with positions in its topics, and those that have none anywhere.

    :param reads: topics by group.
    """
    wave_of = {group: number for number, wave in enumerate(waves, 1) for group in wave.groups}
    ours = {topic for wave in waves for topic in wave.topics}
    return [
        Group(
            name=one.group_id, kind=kind_of(one, streams), state=one.state, alive=one.has_members,
            topics=sorted(ours.intersection(reads.get(one.group_id, ()))), wave=wave_of.get(one.group_id, 0),
        )
        for one in every
        if not reads.get(one.group_id) or ours.intersection(reads[one.group_id])
    ]  # fmt: skip
