"""Topics in which a schema registry keeps its schemas: Confluent's and Karapace's are written as the same JSON.

Such a topic moves as any other, and the ids of its schemas with it. A registry that is started on it writes at once, so
it may not be started on the target while a mirror writes there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import BrokerError, MissingRight
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.inventory import TopicState
from airflow_mirror.wire import records
from airflow_mirror.wire.batch import BrokenFrame, iter_batches
from airflow_mirror.wire.fetch import READ_UNCOMMITTED, FetchedPartition
from airflow_mirror.wire.single import fetch_together

_EACH, _ALL = 64 << 10, 32 << 20  # bytes: registries write a record at a time


def registry_topics(source: ClusterAdmin, topics: Mapping[str, TopicState]) -> tuple[str, ...]:
    """Return which of some topics are a registry's store: compacted, of one partition, and keys as it writes them.

    A topic that may not be read is none.
    """
    offsets = {
        TopicPartition(name, 0): state.starts[0]
        for name, state in topics.items()
        if state.info.partitions == 1 and state.config("cleanup.policy") == "compact" and state.starts[0] < state.ends[0]
    }
    if not offsets:
        return ()
    try:
        found = fetch_together(
            source.wire, offsets, isolation=READ_UNCOMMITTED, max_bytes_each=_EACH, max_bytes=_ALL
        )  # fmt: skip
    except (BrokerError, MissingRight):
        return ()
    return tuple(sorted(tp.topic for tp, answer in found.items() if _is_registrys(answer)))


def _is_registrys(answer: FetchedPartition) -> bool:
    """Return whether the first record's key is a registry's."""
    try:
        for raw in iter_batches(answer.records):
            for record in records.decode(raw) if raw.header is None or not raw.header.is_control else ():
                key = json.loads(record.key or b"")
                return isinstance(key, dict) and "keytype" in key
    # Not JSON, or nested deeper than anybody reads, or no more than the beginning of a batch came.
    except (BrokenFrame, ValueError, RecursionError):
        return False
    return False
