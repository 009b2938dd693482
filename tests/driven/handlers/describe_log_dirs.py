"""DescribeLogDirs 1 to 4: the size of the logs that this broker leads, in one directory. Left out: disks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeLogDirsResponse as Response

from airflow_mirror.common.partition import TopicPartition
from tests.driven.handlers.common import Refusal

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 35, (1, 4)
_Dir = Response.DescribeLogDirsResult
_Topic = _Dir.DescribeLogDirsTopic


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Partitions that this broker does not lead are left out, like those that it does not have."""
    if code := refusal(None):
        return Response(throttle_time_ms=0, error_code=code, results=[])
    wanted = (
        None if message.topics is None else {TopicPartition(t.topic, p) for t in message.topics for p in t.partitions}
    )
    topics = []
    for name, topic in sorted(broker.cluster.topics.items()):
        partitions = [
            _Topic.DescribeLogDirsPartition(
                partition_index=log.tp.partition, partition_size=sum(len(b.content) for b in log.batches), offset_lag=0,
                is_future_key=False,
            )
            for log in topic.logs
            if topic.leaders[log.tp.partition] == broker.node_id and (wanted is None or log.tp in wanted)
        ]  # fmt: skip
        if partitions:
            topics.append(_Topic(name=name, partitions=partitions))
    directory = _Dir(error_code=0, log_dir="/driven", topics=topics, total_bytes=-1, usable_bytes=-1)
    return Response(throttle_time_ms=0, error_code=0, results=[directory])
