"""Topics in which a schema registry keeps its schemas: Confluent's and Karapace's are written as the same JSON.

Such a topic moves as any other, and the ids of its schemas with it. A registry that is started on it writes at once, so
it may not be started on the target while a mirror writes there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import MirrorError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.inventory import TopicState
from airflow_mirror.wire import records
from airflow_mirror.wire.batch import BrokenFrame, iter_batches
from airflow_mirror.wire.error_codes import error_name
from airflow_mirror.wire.fetch import READ_UNCOMMITTED, FetchedPartition
from airflow_mirror.wire.single import fetch_one, fetch_together

_EACH, _ALL = 64 << 10, 32 << 20  # bytes: registries write a record at a time
_PATIENCE_S = 15.0  # of all that have to be asked for alone


class RegistryTopics(NamedTuple):
    """What stands in some topics. :param stores: those of a registry. :param unread: why nobody knows it of others."""

    stores: tuple[str, ...]
    unread: Mapping[str, str]


def registry_topics(source: ClusterAdmin, topics: Mapping[str, TopicState]) -> RegistryTopics:
    """Return which of some topics are a registry's store: compacted, of one partition, and keys as it writes them."""
    offsets = {
        TopicPartition(name, 0): state.starts[0]
        for name, state in topics.items()
        if state.info.partitions == 1 and state.compacts and state.starts[0] < state.ends[0]
    }
    if not offsets:
        return RegistryTopics((), {})
    try:
        found = fetch_together(
            source.wire, offsets, isolation=READ_UNCOMMITTED, max_bytes_each=_EACH, max_bytes=_ALL
        )  # fmt: skip
    except MirrorError:  # of one of them, perhaps
        found = {}
    unread, deadline = dict[str, str](), time.monotonic() + _PATIENCE_S
    for tp in sorted(offsets.keys() - found.keys()):
        try:
            answer = fetch_one(
                source.wire, tp, offsets[tp], isolation=READ_UNCOMMITTED, max_bytes=_EACH,
                timeout_s=max(0.0, deadline - time.monotonic()),
            )  # fmt: skip
        except MirrorError as e:
            unread[tp.topic] = str(e)
            continue
        found[tp] = answer
        if answer.error or not answer.records:
            unread[tp.topic] = error_name(answer.error) if answer.error else "its broker sends nothing"
    stores = (tp.topic for tp, answer in found.items() if tp.topic not in unread and _is_registrys(answer))
    return RegistryTopics(tuple(sorted(stores)), unread)


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
