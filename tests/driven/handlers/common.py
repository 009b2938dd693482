"""What handlers share: who leads a partition, and what is refused because a test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.groups import Committed
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker
    from tests.driven.cluster import Topic
    from tests.driven.log import PartitionLog

# Says whether a partition (None: what belongs to no partition) is to be refused, and how. Nothing is done for it then.
Refusal = Callable[[TopicPartition | None], ErrorCode]


# What everybody may do, by the numbers of operations, and what says that nobody has asked for it (KIP-430).
ON_TOPICS, ON_GROUPS, ON_THE_CLUSTER = {3, 4, 5, 6, 7, 8, 10, 11}, {3, 6, 8, 10, 11}, {5, 7, 8, 9, 10, 11, 12}
NOT_ASKED = {31}


class Handler(Protocol):
    """A module that answers one kind of request; under the cluster's lock."""

    KEY: int
    SERVED: tuple[int, int]

    def answer(self, broker: Broker, message: Any, refusal: Refusal) -> Any:
        """Do what is asked for and return the response; None where none is sent."""


def check(refusal: Refusal, tp: TopicPartition | None = None) -> None:
    """Refuse because a test says so.

    :raises Refused: then.
    """
    if code := refusal(tp):
        raise Refused(code)


def by_partition(
    topic: Any, partition: Any, message: Any, do: Callable[[TopicPartition, Any], ErrorCode]
) -> list[Any]:  # fmt: skip
    """Return what each partition that is asked for comes to, by topic.

    :param topic: makes a topic's part of the answer, and ``partition`` a partition's.
    """
    return [
        topic(
            name=one.name,
            partitions=[
                partition(
                    partition_index=p.partition_index, error_code=do(TopicPartition(one.name, p.partition_index), p)
                )
                for p in one.partitions
            ],
        )
        for one in message.topics
    ]


def committed(asked: Any) -> Committed:
    """Return the offset that a partition of a request commits."""
    return Committed(asked.committed_offset, asked.committed_metadata or "", asked.committed_leader_epoch)


def topic_of(broker: Broker, name: str, refusal: Refusal) -> Topic:
    """Return a topic that a request is about; a refusal is asked for its partition 0.

    :raises Refused: there is none, or a test says so.
    """
    check(refusal, TopicPartition(name, 0))
    if name not in broker.cluster.topics:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return broker.cluster.topics[name]


def led(broker: Broker, tp: TopicPartition, epoch: int = -1) -> PartitionLog:
    """Return the log of a partition that ``broker`` leads.

    :param epoch: what the client believes the leader epoch to be; -1: it does not say.
    :raises Refused: no such partition, another leader, another epoch.
    """
    log = broker.cluster.log(tp)
    topic = broker.cluster.topics[tp.topic]
    if broker.heard is not None and tp.topic in broker.heard:
        topic = broker.heard[tp.topic]
        log = topic.logs[tp.partition]
    if topic.leaders[tp.partition] != broker.node_id:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if epoch >= 0 and epoch != log.epoch:
        raise Refused(ErrorCode.FENCED_LEADER_EPOCH if epoch < log.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH)
    return log


def coordinates(broker: Broker, kind: int) -> None:
    """Check that a broker is the coordinator of a kind.

    :raises Refused: another one is, or none.
    """
    if broker.cluster.coordinators[kind] != broker.node_id:
        raise Refused(ErrorCode.NOT_COORDINATOR)
