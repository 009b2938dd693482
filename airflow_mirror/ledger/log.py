"""The log of decisions on the target: one topic with one partition that is never deleted from or compacted."""

from __future__ import annotations

import time
from collections.abc import Iterator

from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.errors import BrokerError, LedgerLost
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.wire import codec, records
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.records import Record


def batch_of(value: bytes) -> memoryview:
    """Return a decision as the batch in which it is appended."""
    now_ms = int(time.time() * 1000)  # the topic has LogAppendTime: the broker's time replaces it
    return records.encode([Record(0, now_ms, None, value, [])], codec.ZSTD, -1, -1, -1)


class DecisionLog:
    """Appends to the log and reads it, through connections of ``target``; see `deciding.Log`."""

    def __init__(self, target: WireCluster) -> None:
        self._log = TopicLog(target, DECISIONS)

    def append(self, value: bytes) -> int | None:
        """Append a record with acks=all and return its offset; None if nobody knows whether it was appended.

        :raises MissingRight: no WRITE on the topic. :raises RequestRefused: the record is too large.
        """
        # Without a producer id: a second copy of a record has the same claim, and only the first one of a claim counts
        # (`fold`). A process that dies between its bytes and the answer has decided, or has not: who comes next reads
        # which.
        # By the topic's name. In one that was created again meanwhile the record names a decision which is not there, and
        # nobody who reads it goes on (`Fold.apply`).
        answer = self._log.append(batch_of(value))
        # Some errors come behind the append (too few replicas in sync): so an error is no refusal. It counts as no
        # answer, and the writer finds out by reading.
        return answer.base_offset if answer is not None and answer.error == ErrorCode.NONE else None

    def read(self, start: int) -> Iterator[tuple[int, bytes | None, int]]:
        """Yield offset, value and time of each record from ``start`` up to the high watermark.

        :raises LedgerLost: the log does not begin at 0, or ends before ``start``: it was deleted from, or is another one.
        :raises MissingRight: no READ on the topic.
        """
        # Somebody, or a retention that was set, has deleted decisions. What they said is unknown; "nothing" would let a
        # mirror write into topics that are in production. So all stop, and a person restores an export.
        if begin := self._log.start():
            raise LedgerLost(f"{DECISIONS} begins at offset {begin}")
        try:
            yield from ((r.offset, r.value, r.timestamp) for r in self._log.read(start))
        except BrokerError as e:
            # An election has lost what this process has read, and perhaps acted on; or the topic was created again.
            if e.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise LedgerLost(f"{DECISIONS} has no offset {start} any more") from e
            raise
