"""One topic of the ledger, with one partition: create it, append to it, read it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_mirror.errors import BrokerError, MirrorError, TryAgain
from airflow_mirror.kafka.model import NewTopicSpec
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire import produce, records
from airflow_mirror.wire.aborted import data_batches
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import refusal
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.retry import Backoff
from airflow_mirror.wire.single import MOVED, produce_one, read_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.wire.cluster import WireCluster
    from airflow_mirror.wire.records import Record

_PRODUCE_TIMEOUT_MS = 10_000
_NEWS_S = 10.0  # a topic is known to every broker some time after the controller has created it
# Nothing was appended, and nothing ever will be.
_FINAL = produce.REFUSED | {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
# A managed cluster may allow neither these values nor the keys.
_SETTINGS_REFUSED = (ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION)


def create(
    target: ClusterAdmin, topic: str, settings: Mapping[str, str], wished: Mapping[str, str] | None = None
) -> None:
    """Create a topic of the ledger unless it is there. May be called by several at once.

    :param settings: what it must have. :param wished: what it should have if the cluster allows it.
    """
    if topic in target.topics([topic]):
        return
    replicas = min(3, target.broker_count())
    needed = {"min.insync.replicas": "2" if replicas > 2 else "1", **settings}
    try:
        _create(target, NewTopicSpec(topic, 1, replicas, {**needed, **(wished or {})}))
    except BrokerError as e:
        if not wished or e.code not in _SETTINGS_REFUSED:
            raise
        _create(target, NewTopicSpec(topic, 1, replicas, needed))
    backoff = Backoff(_NEWS_S)
    while topic not in target.topics([topic]) and not backoff.expired:
        backoff.pause()


def _create(target: ClusterAdmin, spec: NewTopicSpec) -> None:
    try:
        target.create_topics([spec])
    except BrokerError as e:
        if e.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # somebody else was faster
            raise


class TopicLog:
    """Appends to the topic and reads it, through connections of ``target``."""

    def __init__(self, target: WireCluster, topic: str) -> None:
        self._target, self._topic = target, topic
        self._tp = TopicPartition(topic, 0)

    def append(self, batch: memoryview) -> produce.Produced | None:
        """Append a batch with acks=all and return the leader's answer; None if nobody knows whether it was appended.

        :return: its error is NONE, or one that a producer id has to do with.
        :raises MissingRight: no WRITE on the topic. :raises RequestRefused: the batch is too large.
        """
        try:
            answer = produce_one(self._target, self._tp, batch, timeout_ms=_PRODUCE_TIMEOUT_MS)
        except TryAgain:
            return None
        if answer.error in _FINAL:
            raise self.refused("append to", answer.error, "Write", answer.message)
        if answer.error in MOVED:
            with suppress(TryAgain):  # the next request asks again
                self._target.refresh([self._topic])
        return answer

    def start(self) -> int:
        """Return the offset at which the log starts."""
        return self._target.log_starts([self._tp])[self._tp]

    def read(self, start: int) -> Iterator[Record]:
        """Yield the records from ``start`` to the high watermark.

        :raises BrokerError: with code OFFSET_OUT_OF_RANGE: the log ends before ``start``, or begins behind it.
        :raises MissingRight: no READ on the topic.
        """
        end = self._target.high_watermarks([self._tp])[self._tp]
        batches = read_batches(self._target, self._tp, start, end, isolation=READ_UNCOMMITTED)
        try:
            for raw in data_batches(batches, committed=False):
                yield from (r for r in records.decode(raw) if start <= r.offset < end)
        except BrokerError as e:
            if e.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            raise self.refused("read", e.code, "Read") from e

    def refused(self, what: str, code: int, operation: str, detail: str | None = None) -> MirrorError:
        """Return the error for a request that was refused for good."""
        asked = f"{self._target.role} cluster, {what} {self._topic}"
        return refusal(asked, code, operation, self._topic, self._target.settings.principal, detail or "")
