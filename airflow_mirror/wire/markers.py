"""WriteTxnMarkers v1: its body, which says the same marker many times, and what the answer says."""

from __future__ import annotations

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.varint import unsigned


def markers_body(
    tp: TopicPartition, producer_id: int, epoch: int, count: int, coordinator_epoch: int, commit: bool
) -> bytes:
    """Encode a WriteTxnMarkers v1 body of ``count`` equal markers: one is encoded, its bytes are repeated."""
    from kafka.protocol.producer import WriteTxnMarkersRequest as Request

    marker = Request.WritableTxnMarker
    request = Request(
        markers=[
            marker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=commit,
                topics=[marker.WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
                coordinator_epoch=coordinator_epoch,
            )
        ]
    )
    # The array's length leads, tags end it: what lies between is the marker alone, which needs no encoding again.
    encoded = request.encode(version=1)  # compact array length (one byte), the marker, no tagged fields (one byte)
    return unsigned(count + 1) + bytes(encoded[1:-1]) * count + b"\0"


def markers_error(body: memoryview) -> int:
    """Return the first error of a response, 0 if every marker was written."""
    from kafka.protocol.producer import WriteTxnMarkersResponse

    response = WriteTxnMarkersResponse.decode(body, version=1)
    codes = [p.error_code for marker in response.markers for topic in marker.topics for p in topic.partitions]
    # They are the same marker to the same partition, and answered in one entry for a producer id (measured): the first
    # error is that of all.
    return next((code for code in codes if code), 0)
