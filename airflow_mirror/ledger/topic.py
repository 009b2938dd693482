"""One topic of the ledger: create it, append to a partition of it, read that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import BrokerError, MirrorError, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire import codec, produce, records
from airflow_mirror.wire.aborted import data_batches
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Check
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import refusal
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.records import Record
from airflow_mirror.wire.retry import Backoff
from airflow_mirror.wire.single import MOVED, produce_one, read_batches

_PRODUCE_TIMEOUT_MS = 10_000
_FETCH_BYTES = 4 << 20
_NEWS_S = 10.0  # a topic is known to every broker some time after the controller has created it
# Nothing was appended, and nothing ever will be.
_FINAL = produce.REFUSED | {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
# A managed cluster may allow neither these values nor the keys.
_SETTINGS_REFUSED = (ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION)


def create(
    target: ClusterAdmin, topic: str, settings: Mapping[str, str], wished: Mapping[str, str] | None = None,
    partitions: int = 1, replicas: int | None = None,
) -> bool:  # fmt: skip
    """Create a topic of the ledger unless it is there; return whether it was not. May be called by several at once.

    :param settings: what it must have. :param wished: what it should have if the cluster allows it.
    :param replicas: None: 3, as far as there are brokers for it.
    """
    # Asked first: who uses a ledger need not have the right to create topics, and would be refused for lack of it
    # before a broker says that the topic is there.
    if topic in target.topics([topic]):
        target.wire.expect(topic)
        return False
    # The settings are in the creation itself. Set by a second request, a process that dies between the two would leave
    # a topic that deletes its records, and nobody would know which.
    needed = spec(target, topic, settings, partitions, replicas)
    try:
        _create(target, replace(needed, configs={**needed.configs, **(wished or {})}))
    except BrokerError as e:
        # Refused as a whole: there is no topic yet, so the second try makes no second one.
        if not wished or e.code not in _SETTINGS_REFUSED:
            raise
        _create(target, needed)
    # Whoever went on at once might ask a broker that has not heard of it, and take a ledger of this moment for one that
    # is missing. It ends quietly: who needs the topic waits longer (`decisions`), or tries again (`appending`).
    target.wire.expect(topic)
    backoff = Backoff(_NEWS_S)
    while topic not in target.topics([topic]) and not backoff.expired:
        backoff.pause()
    return True


def replicas_on(target: ClusterAdmin) -> int:
    """Return how many replicas a topic of the ledger gets: 3, as far as there are brokers for it."""
    return min(3, target.broker_count())


def spec(
    target: ClusterAdmin, topic: str, settings: Mapping[str, str], partitions: int = 1, replicas: int | None = None
) -> NewTopicSpec:
    """Return a topic of the ledger as it must at least be; see :func:`create`."""
    replicas = replicas or replicas_on(target)
    # Of three replicas two have what is acknowledged (acks=all), and one that is down keeps nobody from deciding.
    configs = {"min.insync.replicas": "2" if replicas > 2 else "1", **settings}
    return NewTopicSpec(topic, partitions, replicas, configs)


def _create(target: ClusterAdmin, spec: NewTopicSpec) -> None:
    try:
        target.create_topics([spec], unfenced)
    except BrokerError as e:
        # Or our own request whose answer was lost. With which settings it was made, `Ledger.topic` looks.
        if e.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # somebody else was faster
            raise


def batch_of(
    values: Mapping[str, bytes | None], producer_id: int = -1, epoch: int = -1, sequence: int = -1
) -> memoryview:
    """Return values by key as a batch; None removes a key."""
    now_ms = int(time.time() * 1000)  # the topics have LogAppendTime: the broker's time replaces it
    rows = [Record(offset, now_ms, key.encode(), value, []) for offset, (key, value) in enumerate(values.items())]
    return records.encode(rows, codec.ZSTD, producer_id, epoch, sequence)


class TopicLog:
    """Appends to one partition of the topic and reads it, through connections of ``target``.

    :ivar topic: its name.
    """

    def __init__(self, target: WireCluster, topic: str, partition: int = 0) -> None:
        self._target, self.topic = target, topic
        self._tp = TopicPartition(topic, partition)

    def append(self, batch: memoryview, check: Check | None = None) -> produce.Produced | None:
        """Append a batch with acks=all and return the leader's answer; None if nobody knows whether it was appended.

        :param check: see :meth:`Connection.send`.
        :return: its error is NONE, or one that a producer id has to do with.
        :raises MissingRight: no WRITE on the topic. :raises RequestRefused: the batch is too large.
        """
        try:
            answer = produce_one(self._target, self._tp, batch, check=check, timeout_ms=_PRODUCE_TIMEOUT_MS)
        # Sent or not, appended or not, now or later: only reading tells (`deciding`), or a sequence (`appending`).
        except TryAgain:
            return None
        if answer.error in _FINAL:
            raise self.refused("append to", answer.error, "Write", answer.message)
        # Another broker leads by now. This one may have appended it right before that, and the next one may lack it: to
        # callers an answer with an error says no more than none.
        if answer.error in MOVED:
            with suppress(TryAgain):  # the next request asks again
                self._target.refresh([self.topic])
        return answer

    def put(self, values: Mapping[str, bytes | None], patience_s: float, check: Check = lambda: None) -> int:
        """Append values by key as one batch until the leader says that it has them; return the first one's offset.

        A lost answer costs records that are there twice, or that come late. So a key must never get another value.

        :param patience_s: how long it is tried. :param check: called before each try, see :meth:`Connection.send`.
        :raises MissingRight, RequestRefused: as :meth:`append`.
        :raises TryAgain: not within ``patience_s``. The records may be there, or may come later.
        """
        # Dies in this loop: the values are there not at all, once, or more than once, and all copies of a key are
        # equal. So a reader that takes the last one can't tell, and need not.
        batch, backoff = batch_of(values), Backoff(patience_s)
        while True:
            # As in `appending`: behind each pause, and once more right before the bytes.
            check()
            answer = self.append(batch, check)
            if answer is not None and answer.error == ErrorCode.NONE:
                return answer.base_offset
            if backoff.expired:
                cause = "no broker answered" if answer is None else f"the leader answered {answer.error} {answer.message}"
                raise TryAgain(f"{self.topic}: {', '.join([*values][:3])} could not be written", cause)
            backoff.pause()

    def start(self) -> int:
        """Return the offset at which the log starts."""
        return self._target.log_starts([self._tp])[self._tp]

    def end(self) -> int:
        """Return the high watermark: up to there it can be read. After an election it may come late."""
        return self._target.high_watermarks([self._tp])[self._tp]

    def ends_before(self, offset: int) -> bool:
        """Return whether the leader has no such offset any more: an election has lost records."""
        return self._target.log_ends([self._tp])[self._tp] < offset

    def read(self, start: int, end: int | None = None, max_bytes: int = _FETCH_BYTES) -> Iterator[Record]:
        """Yield the records from ``start`` to ``end``, or to the high watermark.

        :param max_bytes: of one answer; whole batches come in any case.
        :raises BrokerError: with code OFFSET_OUT_OF_RANGE: the log ends before ``start``, or begins behind it.
        :raises MissingRight: no READ on the topic.
        """
        # The high watermark of this moment: what lies above it may be lost in an election, and what comes behind it is
        # the next call's.
        end = self.end() if end is None else end
        batches = read_batches(self._target, self._tp, start, end, isolation=READ_UNCOMMITTED, max_bytes=max_bytes)
        try:
            for raw in data_batches(batches, committed=False):
                yield from (r for r in records.decode(raw) if start <= r.offset < end)
        except BrokerError as e:
            if e.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            raise self.refused("read", e.code, "Read") from e

    def topic_id(self) -> str:
        """Return the topic's id, as a broker has it now; "" from brokers before 2.8.

        :raises UnknownTopic: there is no topic.
        """
        # Asked for anew: a cached one may be the id of a topic that was deleted since.
        self._target.refresh([self.topic])
        return self._target.topic_id(self.topic)

    def refused(self, what: str, code: int, operation: str, detail: str | None = None) -> MirrorError:
        """Return the error for a request that was refused for good."""
        asked = f"{self._target.role} cluster, {what} {self.topic}"
        return refusal(asked, code, operation, self.topic, self._target.settings.principal, detail or "")


class ReadOn:
    """Reads a partition once, and then what was appended since.

    :ivar topic_id: of what was read; None: nothing was, or it does not count any more.
    """

    def __init__(self) -> None:
        self.topic_id: str | None = None
        self._end = 0  # offset of the next record to read

    def records(self, log: TopicLog, again: Callable[[], object], max_bytes: int = _FETCH_BYTES) -> Iterator[Record]:
        """Yield what is there up to the high watermark and was not read yet.

        :param again: called before everything is read again, because the topic was created again, or lost its newest
            records in an election: what was read counts no more.
        :raises UnknownTopic: there is no topic. Errors of :meth:`TopicLog.read`: if it is that records were deleted, the
            next call reads from the start.
        """
        # Created again between the two requests: what is read of it now is dropped by the next call, which sees the new
        # id.
        topic_id, end = log.topic_id(), log.end()
        # A high watermark that went back proves nothing, a new leader shows it late: the log's end says whether records
        # are gone.
        if topic_id != self.topic_id or (end < self._end and log.ends_before(self._end)):
            # Asked before anything is forgotten: without an answer, what was read before still counts.
            start = log.start()
            again()
            self.topic_id, self._end = topic_id, start
        try:
            for record in log.read(self._end, end, max_bytes):
                # Record by record: whoever stops in between, or dies with an answer half read, misses none of the rest.
                self._end = record.offset + 1
                yield record
        except BrokerError as e:
            if e.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.topic_id = None  # somebody deleted records
            raise
