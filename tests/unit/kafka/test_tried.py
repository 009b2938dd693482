"""What may be done with a topic that need not exist is tried, and nothing is read or written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import DescribeConfigsResponse
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceResponse

from airflow_mirror.errors import BrokerError
from airflow_mirror.wire.error_codes import ErrorCode
from tests.unit.kafka.world import DESCRIBE_CONFIGS, World, world

PRODUCE, FETCH = 0, 1
SERVED = {PRODUCE: (3, 8), FETCH: (4, 11)}
DENIED, UNKNOWN = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ALL = ("WRITE", "READ", "DESCRIBE_CONFIGS")
NO_PARTITION = (1 << 31) - 1


def produced(codes: dict[str, int]) -> Callable[[Any], Any]:
    topic = ProduceResponse.TopicProduceResponse
    one = topic.PartitionProduceResponse
    return lambda request: ProduceResponse(
        responses=[
            topic(
                name=t.name,
                partition_responses=[
                    one(index=p.index, error_code=codes.get(t.name, UNKNOWN), base_offset=-1) for p in t.partition_data
                ],
            )
            for t in request.topic_data
        ]
    )


def fetched(codes: dict[str, int]) -> Callable[[Any], Any]:
    topic = FetchResponse.FetchableTopicResponse
    return lambda request: FetchResponse(
        responses=[
            topic(
                topic=t.topic,
                partitions=[
                    topic.PartitionData(partition_index=p.partition, error_code=codes.get(t.topic, UNKNOWN), records=b"")
                    for p in t.partitions
                ],
            )
            for t in request.topics
        ]
    )


def described(codes: dict[str, int]) -> Callable[[Any], Any]:
    result = DescribeConfigsResponse.DescribeConfigsResult
    return lambda request: DescribeConfigsResponse(
        results=[
            result(
                error_code=codes.get(r.resource_name, 0), resource_type=2, resource_name=r.resource_name, configs=[]
            )
            for r in request.resources
        ]
    )  # fmt: skip


def answering(w: World, *, write: Any = None, read: Any = None, configs: Any = None) -> None:
    w.answer(PRODUCE, produced(write or {}))
    w.answer(FETCH, fetched(read or {}))
    w.answer(DESCRIBE_CONFIGS, described(configs or {}))


@pytest.mark.parametrize(
    ("way", "spelled"), [("write", "Write"), ("read", "Read"), ("configs", "DescribeConfigs")]
)  # fmt: skip
def test_each_missing_right_is_an_error_of_its_own_that_names_the_acl(way: str, spelled: str) -> None:
    with world(SERVED) as w:
        answering(w, **{way: {"there": DENIED}})
        found = w.admin.lacking_on_topics({"there": ALL, "not-yet": ALL})
    (error,) = found.pop("there")
    assert found == {}
    assert error.acl is not None and (error.acl.operation, error.acl.name) == (spelled, "there")
    assert "source cluster: " in str(error) and f"--operation {spelled} --topic there" in str(error)


def test_only_what_is_needed_is_asked_and_of_no_partition_that_a_topic_can_have() -> None:
    with world(SERVED) as w:
        answering(w, write={"beats": DENIED}, read={"beats": DENIED}, configs={"places": UNKNOWN})
        found = w.admin.lacking_on_topics({"beats": ["WRITE"], "places": ["READ", "DESCRIBE_CONFIGS"]})
        assert [e.acl and e.acl.operation for e in found["beats"]] == ["Write"] and len(found) == 1
        (write,), (read,) = w.asked(PRODUCE), w.asked(FETCH)
    assert [(t.name, [p.index for p in t.partition_data]) for t in write.topic_data] == [("beats", [NO_PARTITION])]
    assert [(t.topic, [p.partition for p in t.partitions]) for t in read.topics] == [("places", [NO_PARTITION])]


def test_what_nobody_knows_is_no_missing_right() -> None:
    with world(SERVED) as w:
        answering(w, write={"there": ErrorCode.UNKNOWN_SERVER_ERROR})
        with pytest.raises(BrokerError, match="write to topic 'there'"):
            w.admin.lacking_on_topics({"there": ALL})
