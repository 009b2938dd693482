"""Fetch by hand against kafka-python's schemas, in every version that a broker may make us speak."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.wire import fetch
from airflow_mirror.wire.fetch import FetchedPartition, FetchSpec

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
    place = fetch.Place(2**31 - 1, 12, [TP("é", 4), TP("b", 1), TP("é", 2)])
    read = FetchRequest.decode(fetch.encode([], 500, 1, 1 << 20, 0, version, place), version=version)
    assert (read.session_id, read.session_epoch, list(read.topics)) == (2**31 - 1, 12, [])
    assert [(t.topic, list(t.partitions)) for t in read.forgotten_topics_data] == [("é", [4, 2]), ("b", [1])]


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
