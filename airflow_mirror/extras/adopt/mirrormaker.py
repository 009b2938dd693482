"""What MirrorMaker 2 calls its topics and its workers' group, and what it writes there.

Its state is in topics of the target. Its driver's names are fixed, but for the separator that some of them follow
(``replication.policy.separator``, unless ``replication.policy.internal.topic.separator.enabled`` is false). On a Connect
cluster of one's own the group and the storage topics are the worker's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.records import Record

HEARTBEATS = "heartbeats"


@dataclass(frozen=True, kw_only=True)
class Flow:
    """One flow of MirrorMaker 2 into the target.

    :param source: alias of the source, ``target`` of the target; "" if it is not known.
    :param separator: of its internal topics. :param syncs_at: where its offset-syncs are, ``source`` or ``target``; "" if
        it is not known. The topic of that kind on the other side is one of the flow back.
    :param offset_topic, config_topic, status_topic: Connect's storage topics. :param group: of its workers.
    """

    source: str
    target: str = ""
    separator: str = "."
    offset_topic: str = ""
    config_topic: str = ""
    status_topic: str = ""
    group: str = ""
    syncs_at: str = ""

    @property
    def offsets(self) -> str:
        """The topic that says how far it came (``offset.storage.topic``)."""
        return self.offset_topic or f"mm2-offsets.{self.source}.internal"

    @property
    def status(self) -> str:
        """The topic in which its tasks say what they do (``status.storage.topic``)."""
        return self.status_topic or f"mm2-status.{self.source}.internal"

    @property
    def workers(self) -> str:
        """The group of its workers, on the target (``group.id``)."""
        return self.group or f"{self.source}-mm2"

    @property
    def checkpoints(self) -> str:
        """The topic of checkpoints."""
        return f"{self.source}{self.separator}checkpoints{self.separator}internal"

    @property
    def on_target(self) -> list[str]:
        """Topics of the target that only this flow writes to."""
        configs = self.config_topic or f"mm2-configs.{self.source}.internal"
        syncs = [] if self.syncs_at == "source" else [self._syncs(self.source)]
        return [self.offsets, self.status, configs, self.checkpoints, *syncs]

    @property
    def on_source(self) -> list[str]:
        """Topics of the source that only flows into this target write to."""
        return [self._syncs(self.target)] if self.target and self.syncs_at != "target" else []

    def _syncs(self, alias: str) -> str:
        return f"mm2-offset-syncs{self.separator}{alias}{self.separator}internal"


def replicated(records: Iterable[Record], source: str) -> dict[TopicPartition, int]:
    """Return the last replicated source offset, by source partition, from the records of ``offset.storage.topic``.

    Keys are ``[connector, {"cluster", "topic", "partition"}]``; of several connectors the furthest counts.

    :param source: alias of the source; other flows' are passed over, and so is what is none of MirrorMaker's.
    """
    newest: dict[bytes, tuple[TopicPartition, int | None]] = {}
    for record in records:
        tp = _partition(record.key, source)
        if tp is not None and record.key is not None:
            newest[record.key] = tp, _offset(record.value)
    found: dict[TopicPartition, int] = {}
    for tp, offset in newest.values():
        if offset is not None:
            found[tp] = max(offset, found.get(tp, offset))
    return found


def states(records: Iterable[Record]) -> dict[str, str]:
    """Return the last state of each connector and task, from the records of ``status.storage.topic``."""
    found: dict[str, str] = {}
    for record in records:
        name = (record.key or b"").decode(errors="replace")
        value = _json(record.value)
        if not name.startswith(("status-connector-", "status-task-")):
            continue
        found.pop(name.removeprefix("status-"), None)
        if isinstance(value, dict) and "state" in value:
            found[name.removeprefix("status-")] = str(value["state"])
    return found


def beats_of(records: Iterable[Record], source: str) -> int:
    """Return how many records of ``heartbeats`` are this source's. Keys are the aliases of both clusters."""
    return sum(next(_strings(record.key or b""), "") == source for record in records)


def _partition(key: bytes | None, source: str) -> TopicPartition | None:
    found = _json(key)
    if not (isinstance(found, list) and len(found) == 2 and isinstance(found[1], dict)):
        return None
    where = found[1]
    try:
        if where["cluster"] != source:
            return None
        return TopicPartition(str(where["topic"]), int(where["partition"]))
    except (KeyError, TypeError, ValueError):
        return None


def _offset(value: bytes | None) -> int | None:
    found = _json(value)
    offset = found.get("offset") if isinstance(found, dict) else None
    return offset if isinstance(offset, int) else None


def _json(text: bytes | None) -> object:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _strings(data: bytes) -> Iterator[str]:
    """Yield strings as Kafka's protocol has them: two bytes of length, and UTF-8."""
    at = 0
    while at + 2 <= len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2])
        yield data[at + 2 : end].decode(errors="replace")
        at = end
