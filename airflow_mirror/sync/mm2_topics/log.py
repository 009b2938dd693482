"""One topic of traces: read what stands there, append to it.

Each record is appended once and in order (:mod:`airflow_mirror.ledger.appending`), and only while the mirror's lease is
held. So no record of an earlier job comes after those of a later one, but for the one request of :mod:`..right`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_mirror.errors import InputError, LeaseLost, LeaseUnconfirmed
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.appending import Appender, Batch
from airflow_mirror.ledger.topic import ReadOn, TopicLog, create
from airflow_mirror.plan.mm2_topics import SETTINGS
from airflow_mirror.wire import codec, records
from airflow_mirror.wire.connection import Check
from airflow_mirror.wire.errors import UnknownTopic
from airflow_mirror.wire.records import Record

_PATIENCE_S = 10.0  # `stop` waits for what is being written
_MOST_BYTES = 500_000  # of keys and values in a batch: brokers take batches of 1 MiB unless told otherwise

Row = tuple[bytes, bytes]  # key and value


class TraceLog:
    """See the module. For one thread.

    :param replicas: of the topic, if it has to be created; None: 3, as far as there are brokers for it.
    """

    def __init__(self, target: ClusterAdmin, topic: str, replicas: int | None = None) -> None:
        self.topic, self._target, self._replicas = topic, target, replicas
        self._log = TopicLog(target.wire, topic)
        self._appender = Appender(self._log, self._target.wire, self.create, _PATIENCE_S)
        self._sent: list[Record] = []  # once or more; a broker may have it
        self._newest: dict[bytes, bytes] = {}
        self._read = ReadOn()

    def create(self) -> None:
        """Create the topic unless it is there."""
        create(self._target, self.topic, SETTINGS, replicas=self._replicas)

    def read(self) -> Mapping[bytes, bytes]:
        """Return the newest value of each key; nothing if there is no topic.

        :raises MissingRight: no READ on it.
        """
        try:
            for record in self._read.records(self._log, self._again):
                if record.key is not None and record.value is not None:
                    self._newest[bytes(record.key)] = bytes(record.value)
        except UnknownTopic:
            self._newest, self._read.topic_id = {}, None
        return self._newest

    def _again(self) -> None:
        self._newest = {}

    def write(self, rows: Iterable[Row], at_ms: int, check: Check) -> None:
        """Append records, in this order. What an earlier call could not settle comes first.

        :param at_ms: timestamp of the records. :param check: see :meth:`Appender.settle`; it may raise an error of a
            lease. Others may write then: what was sent before is given up.
        :raises TryAgain: not all of them are known to be written.
        :raises MissingRight: no WRITE on the topic, or no right to create it.
        """
        waiting = [Record(0, at_ms, key, value, []) for key, value in rows]
        try:
            if self._sent:
                self._settle(check)
            for some in _fitting(waiting):
                self._sent = some
                self._settle(check)
        except (LeaseLost, LeaseUnconfirmed):
            self._sent = []
            self._appender.forget()
            raise
        except InputError:  # refused for good: what comes later must not wait for it
            self._sent = []
            raise

    def _settle(self, check: Check) -> None:
        sent = self._sent

        # Not compressed: records are small, and the oldest client of the cluster can read them.
        def encode(producer_id: int, epoch: int, sequence: int) -> memoryview:
            return records.encode(sent, codec.NONE, producer_id, epoch, sequence)

        self._appender.settle(Batch(encode, len(sent), f"{len(sent)} record(s)"), check)
        self._sent = []


def _fitting(rows: Sequence[Record]) -> Iterator[list[Record]]:
    """Yield rows in batches that brokers take, each with consecutive offsets."""
    batch: list[Record] = []
    size = 0
    for row in rows:
        length = len(row.key or b"") + len(row.value or b"")
        if batch and size + length > _MOST_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(row._replace(offset=len(batch)))
        size += length
    if batch:
        yield batch
