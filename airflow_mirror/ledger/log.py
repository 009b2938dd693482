"""The log of decisions on the target: one topic with one partition that is never deleted from or compacted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

from airflow_mirror.errors import BrokerError, LedgerLost, MirrorError, TryAgain
from airflow_mirror.partition import TopicPartition
from airflow_mirror.policy import DECISIONS
from airflow_mirror.wire import codec, produce, records
from airflow_mirror.wire.aborted import data_batches
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import refusal
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.records import Record
from airflow_mirror.wire.single import MOVED, produce_one, read_batches

_TP = TopicPartition(DECISIONS, 0)
_PRODUCE_TIMEOUT_MS = 10_000
# Nothing was appended, and nothing ever will be.
_FINAL = produce.REFUSED | {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


class DecisionLog:
    """Appends to the log and reads it, through connections of ``target``; see `deciding.Log`."""

    def __init__(self, target: WireCluster) -> None:
        self._target = target

    def append(self, value: bytes) -> int | None:
        """Append a record with acks=all and return its offset; None if nobody knows whether it was appended.

        :raises MissingRight: no WRITE on the topic. :raises RequestRefused: the record is too large.
        """
        now_ms = int(time.time() * 1000)  # the topic has LogAppendTime: the broker's time replaces it
        batch = records.encode([Record(0, now_ms, None, value, [])], codec.ZSTD, -1, -1, -1)
        try:
            answer = produce_one(self._target, _TP, batch, timeout_ms=_PRODUCE_TIMEOUT_MS)
        except TryAgain:
            return None
        if answer.error == ErrorCode.NONE:
            return answer.base_offset
        if answer.error in _FINAL:
            raise self._refused("append to", answer.error, "Write", answer.message)
        if answer.error in MOVED:
            with suppress(TryAgain):  # the next request asks again
                self._target.refresh([DECISIONS])
        return None

    def read(self, start: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield offset and value of each record from ``start`` up to the high watermark.

        :raises LedgerLost: the log does not begin at 0, or ends before ``start``: it was deleted from, or is another one.
        :raises MissingRight: no READ on the topic.
        """
        begin = self._target.log_starts([_TP])[_TP]
        if begin != 0:
            raise LedgerLost(f"{DECISIONS} begins at offset {begin}")
        end = self._target.high_watermarks([_TP])[_TP]
        try:
            for raw in data_batches(
                read_batches(self._target, _TP, start, end, isolation=READ_UNCOMMITTED), committed=False
            ):
                yield from ((r.offset, r.value) for r in records.decode(raw) if start <= r.offset < end)
        except BrokerError as e:
            if e.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise LedgerLost(f"{DECISIONS} has no offset {start} any more") from e
            raise self._refused("read", e.code, "Read") from e

    def _refused(self, what: str, code: int, operation: str, detail: str | None = None) -> MirrorError:
        cluster = f"{self._target.role} cluster, {what} {DECISIONS}"
        return refusal(cluster, code, operation, DECISIONS, self._target.settings.principal, detail or "")
