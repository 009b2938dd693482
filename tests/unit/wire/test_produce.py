"""Produce requests and responses are those of kafka-python's schema, by name and by id."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire import produce

IDS = {name: uuid.UUID(int=number) for number, name in enumerate(("orders", "größe", "p"), 1 << 120)}
BYTES = {name: topic_id.bytes for name, topic_id in IDS.items()}
NAMES = {topic_id: name for name, topic_id in BYTES.items()}
VERSIONS = pytest.mark.parametrize("version", [produce.API_VERSION, produce.BY_ID])


@VERSIONS
@pytest.mark.parametrize("seed", range(20))
def test_request_is_what_the_schema_writes(version: int, seed: int) -> None:
    rng = random.Random(seed)
    batches = {
        TopicPartition(rng.choice(list(IDS)), rng.choice([0, 1, 300, 70_000])): memoryview(
            rng.randbytes(rng.choice([1, 126, 127, 128, 16_383, 16_384]))
        )
        for _ in range(rng.randint(1, 9))
    }
    by_id = version == produce.BY_ID
    transactional_id = None if by_id else rng.choice([None, "id"])
    body = b"".join(produce.encode(batches, 30_000, transactional_id, BYTES if by_id else None))
    topic_of = ProduceRequest.TopicProduceData
    topics = [
        topic_of(
            name=name, topic_id=IDS[name],
            partition_data=[
                topic_of.PartitionProduceData(index=tp.partition, records=bytes(batch))
                for tp, batch in batches.items()
                if tp.topic == name
            ],
        )
        for name in dict.fromkeys(tp.topic for tp in batches)
    ]  # fmt: skip
    theirs = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=topics)
    assert body == bytes(theirs.encode(version=version))


@VERSIONS
@pytest.mark.parametrize("seed", range(20))
def test_response_of_the_schema_is_read(version: int, seed: int) -> None:
    """Whatever a broker adds: why it refuses which record, and who leads now."""
    rng = random.Random(seed)
    topic_of = ProduceResponse.TopicProduceResponse
    partition_of = topic_of.PartitionProduceResponse
    expected, topics = list[produce.Produced](), list[Any]()
    for name in rng.sample(list(IDS), rng.randint(1, 3)):
        partitions = []
        for index in rng.sample(range(400), rng.randint(1, 4)):
            message = rng.choice([None, "", "größer", "x" * 200])
            errors = [(i, rng.choice([None, f"the key {i}"])) for i in range(rng.choice([0, 0, 1, 130]))]
            error, base_offset = rng.choice([(0, 1 << 40), (6, -1), (87, -1), (100, -1)])
            partitions.append(
                partition_of(
                    index=index, error_code=error, base_offset=base_offset, log_append_time_ms=-1, log_start_offset=7,
                    record_errors=[
                        partition_of.BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=text)
                        for i, text in errors
                    ],
                    error_message=message,
                    current_leader=partition_of.LeaderIdAndEpoch(leader_id=rng.choice([-1, 3]), leader_epoch=5),
                )
            )  # fmt: skip
            details = [f"record {i} of the batch: {text}" for i, text in errors]
            text = "; ".join([*([message] if message else []), *details])
            expected.append(produce.Produced(TopicPartition(name, index), error, base_offset, text))
        topics.append(topic_of(name=name, topic_id=IDS[name], partition_responses=partitions))
    response = ProduceResponse(responses=topics, throttle_time_ms=rng.choice([0, 5000]), node_endpoints=[])
    body = memoryview(bytes(response.encode(version=version)))
    found = produce.decode(body, NAMES if version == produce.BY_ID else None)
    assert found == (response.throttle_time_ms, expected)
