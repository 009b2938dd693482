"""Fetch by hand against kafka-python's schemas, in every version that a broker may make us speak."""

from __future__ import annotations

from io import BytesIO
from uuid import UUID

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.wire import fetch
from airflow_mirror.wire.fetch import FetchedPartition, FetchSpec

A_ID, B_ID = UUID(int=2**127 + 1), UUID(int=5)
VERSIONS = range(fetch.OLDEST, fetch.NEWEST + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_request_says_what_the_schema_reads(version: int) -> None:
    specs = [FetchSpec(TP("a", 1), 5, 100, 7), FetchSpec(TP("é", 0), 2**40, 200), FetchSpec(TP("a", 3), 6, 300, 2)]
    body = fetch.encode(specs, 500, 1, 1 << 20, fetch.READ_COMMITTED, version)
    read = FetchRequest.decode(body, version=version)
    assert (read.replica_id, read.max_wait_ms, read.min_bytes, read.max_bytes) == (-1, 500, 1, 1 << 20)
    assert read.isolation_level == 1
    seen = {
        TP(topic.topic, p.partition): (p.fetch_offset, p.partition_max_bytes, p.current_leader_epoch)
        for topic in read.topics
        for p in topic.partitions
    }
    epochs = version >= 9
    assert seen == {s.tp: (s.offset, s.max_bytes, s.leader_epoch if epochs else -1) for s in specs}
    if version >= 7:
        assert (read.session_id, read.session_epoch, list(read.forgotten_topics_data)) == (0, -1, [])


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 7])
def test_place_in_a_session_is_what_the_schema_reads(version: int) -> None:
    forgotten = [FetchSpec(tp, 0, 1) for tp in (TP("é", 4), TP("b", 1), TP("é", 2))]
    place = fetch.Place(2**31 - 1, 12, forgotten)
    read = FetchRequest.decode(fetch.encode([], 500, 1, 1 << 20, 0, version, place), version=version)
    assert (read.session_id, read.session_epoch, list(read.topics)) == (2**31 - 1, 12, [])
    assert [(t.topic, list(t.partitions)) for t in read.forgotten_topics_data] == [("é", [4, 2]), ("b", [1])]


def test_request_by_id_says_what_the_schema_reads() -> None:
    def spec(topic: UUID, partition: int, offset: int, epoch: int = -1) -> FetchSpec:
        return FetchSpec(TP(f"t{topic.int}", partition), offset, 100 + partition, epoch, topic.bytes)

    specs = [spec(A_ID, 1, 5, 7), spec(B_ID, 0, 2**40), spec(A_ID, 3, 6, 2), *(spec(B_ID, p, p) for p in range(1, 300))]
    place = fetch.Place(2**31 - 1, 12, [spec(B_ID, 4, 0), spec(A_ID, 1, 0), spec(B_ID, 2, 0)], by_id=True)
    body = fetch.encode(specs, 500, 1, 1 << 20, fetch.READ_COMMITTED, fetch.BY_ID, place)
    whole = BytesIO(body)
    read = FetchRequest.decode(whole, version=fetch.BY_ID)
    assert whole.read() == b"", "the schema ends where the body does"
    assert (read.replica_id, read.max_wait_ms, read.min_bytes, read.max_bytes) == (-1, 500, 1, 1 << 20)
    assert (read.isolation_level, read.session_id, read.session_epoch, read.rack_id) == (1, 2**31 - 1, 12, "")
    asked = {
        (topic.topic_id.bytes, p.partition): (p.fetch_offset, p.partition_max_bytes, p.current_leader_epoch)
        for topic in read.topics
        for p in topic.partitions
    }
    assert asked == {(s.topic_id, s.tp.partition): (s.offset, s.max_bytes, s.leader_epoch) for s in specs}
    assert {(p.last_fetched_epoch, p.log_start_offset) for topic in read.topics for p in topic.partitions} == {(-1, -1)}
    assert [(t.topic_id, list(t.partitions)) for t in read.forgotten_topics_data] == [(B_ID, [4, 2]), (A_ID, [1])]


def test_response_by_id_is_read_as_the_schema_wrote_it() -> None:
    version, answer = fetch.BY_ID, FetchResponse.FetchableTopicResponse
    aborted = answer.PartitionData.AbortedTransaction
    leader = answer.PartitionData.LeaderIdAndEpoch(leader_id=3, leader_epoch=9, version=version)
    partitions = [
        answer.PartitionData(
            partition_index=1, error_code=0, high_watermark=90, last_stable_offset=80, log_start_offset=3,
            aborted_transactions=[aborted(producer_id=11, first_offset=70), aborted(producer_id=12, first_offset=71)],
            preferred_read_replica=-1, records=b"batches" * 100, version=version,
        ),
        answer.PartitionData(
            partition_index=2, error_code=6, high_watermark=-1, last_stable_offset=-1, log_start_offset=-1,
            aborted_transactions=None, preferred_read_replica=-1, records=None, current_leader=leader, version=version,
        ),
    ]  # fmt: skip
    topics = [answer(topic_id=one, partitions=partitions, version=version) for one in (A_ID, B_ID)]
    written = FetchResponse(
        throttle_time_ms=40, error_code=0, session_id=77, responses=topics, version=version
    ).encode(version=version)  # fmt: skip
    names = {A_ID.bytes: "té", B_ID.bytes: "b"}
    throttle_ms, error, found = fetch.decode(memoryview(bytearray(written)), version, names)
    assert (throttle_ms, error, fetch.session_of(memoryview(written), version)) == (40, 0, 77)
    first, second = found[:2]
    assert first == FetchedPartition(TP("té", 1), 0, 90, 80, 3, [(11, 70), (12, 71)], first.records)
    assert bytes(first.records) == b"batches" * 100
    assert (second.tp, second.error, second.aborted, bytes(second.records)) == (TP("té", 2), 6, [], b"")
    assert [one.tp for one in found] == [TP("té", 1), TP("té", 2), TP("b", 1), TP("b", 2)]
    _, _, found = fetch.decode(memoryview(bytearray(written)), version, {A_ID.bytes: "té"})
    assert [one.tp for one in found] == [TP("té", 1), TP("té", 2), TP("", 1), TP("", 2)], "nobody has asked for it"


@pytest.mark.parametrize("version", VERSIONS)
def test_response_is_read_as_the_schema_wrote_it(version: int) -> None:
    answer = FetchResponse.FetchableTopicResponse
    aborted = answer.PartitionData.AbortedTransaction
    partitions = [
        answer.PartitionData(
            partition_index=1, error_code=0, high_watermark=90, last_stable_offset=80, log_start_offset=3,
            aborted_transactions=[aborted(producer_id=11, first_offset=70), aborted(producer_id=12, first_offset=71)],
            preferred_read_replica=-1, records=b"batches", version=version,
        ),
        answer.PartitionData(
            partition_index=2, error_code=6, high_watermark=-1, last_stable_offset=-1, log_start_offset=-1,
            aborted_transactions=None, preferred_read_replica=-1, records=None, version=version,
        ),
    ]  # fmt: skip
    written = FetchResponse(
        throttle_time_ms=40, error_code=0, session_id=77, version=version,
        responses=[answer(topic="té", partitions=partitions, version=version)],
    ).encode(version=version)  # fmt: skip
    throttle_ms, error, (first, second) = fetch.decode(memoryview(bytearray(written)), version)
    assert (throttle_ms, error) == (40, 0)
    assert fetch.session_of(memoryview(written), version) == (77 if version >= 7 else 0)
    log_start = 3 if version >= 5 else -1
    assert first == FetchedPartition(TP("té", 1), 0, 90, 80, log_start, [(11, 70), (12, 71)], first.records)
    assert bytes(first.records) == b"batches"
    assert (second.tp, second.error, second.aborted, bytes(second.records)) == (TP("té", 2), 6, [], b"")
