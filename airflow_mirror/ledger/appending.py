"""Append to one partition, each batch once and in order, whatever becomes of the answers.

Appends carry a producer id and sequences (KIP-98): a broker that gets a batch again, or later than the next one, refuses
it. Otherwise the older of two values of a key could come last, and would stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from airflow_mirror.errors import InputError, MissingRight, TryAgain
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Check
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import UnknownTopic
from airflow_mirror.wire.retry import Backoff
from airflow_mirror.wire.transactions import new_producer

# The broker does not know the producer (any more): nothing of it is on its way.
_FORGOTTEN = (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH)
# A duplicate is our own batch, of which an earlier try got in and its answer was lost.
_APPENDED = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class Batch(NamedTuple):
    """What is appended together.

    :ivar encode: returns it as bytes for a producer id, an epoch and a first sequence.
    :ivar records: how many they are. :ivar what: they are, for people.
    """

    encode: Callable[[int, int, int], memoryview]
    records: int
    what: str


class Appender:
    """See the module. For one thread.

    :param log: the partition. :param target: its cluster.
    :param create: creates the topic unless it is there.
    :param patience_s: how long one batch is tried.
    """

    def __init__(self, log: TopicLog, target: WireCluster, create: Callable[[], None], patience_s: float) -> None:
        self._log, self._target, self._create, self._patience_s = log, target, create, patience_s
        self._producer: tuple[int, int] | None = None
        self._sequence = 0

    def settle(self, batch: Batch, check: Check = lambda: None) -> None:
        """Append what was sent already, or is to be sent, until a broker says that it has it.

        :param check: called before each try, see :meth:`Connection.send`. What it raises leaves the batch as after
            :class:`TryAgain`.
        :raises TryAgain: nobody knows whether the broker has it. No other batch may be settled before this one.
        :raises InputError: refused for good, and not to be sent again.
        """
        backoff, cause = Backoff(self._patience_s), "no broker answered"
        while True:
            # Before each try, and once more right before the bytes: this process may have been frozen in the pause
            # behind the last one, and whoever took it for dead has gone on since.
            check()  # outside: what it raises may be a TryAgain as well
            try:
                if self._producer is None:
                    # Dies here: an empty topic, which the next writer finds. Several may create it at once; one wins.
                    self._create()
                    # An id for each process. So nothing orders the last batch of one that died before its successor's,
                    # and nothing has to: a successor's keys are its own, or it waits until nobody else writes (lease).
                    self._producer, self._sequence = self._new_producer(), 0
                # The same batch under the same sequence until there is an answer: one that was lost had an effect or not,
                # and the broker takes the next try for a new batch only if it had none.
                answer = self._log.append(batch.encode(*self._producer, self._sequence), check)
                if answer is not None and answer.error in _APPENDED:
                    # Only behind an answer. Moved before it, the next try would be another batch to the broker, and
                    # both be appended.
                    self._sequence += batch.records
                    return
                if answer is not None:
                    cause = f"the leader answered {answer.error} {answer.message}"
                if answer is not None and answer.error in _FORGOTTEN:
                    self._producer = None  # and a new one, from sequence 0 on: nothing of the old one can come late
            # Somebody has deleted the topic, and with it all that this producer had sent: it is created, and the batch
            # sent, anew.
            except UnknownTopic as e:
                self._producer, cause = None, str(e)
            except TryAgain as e:
                cause = str(e)
            except InputError:
                # A try before may have appended it, and lost its answer.
                self.forget()
                raise
            # The batch may be there, or come later: under this id and sequence, so who calls keeps it and settles it
            # before any other one (`state`).
            if backoff.expired:
                raise TryAgain(f"{self._log.topic}: {batch.what} could not be written", cause)
            backoff.pause()

    def forget(self) -> None:
        """Let go of a batch without an answer, which is not to be sent again. It may be there, or come yet."""
        # What follows has sequences of its own: under this one's the broker would take it for that batch.
        self._producer = None

    def _new_producer(self) -> tuple[int, int]:
        try:
            return new_producer(self._target)
        except MissingRight as e:  # WRITE on any topic is enough to get one: on this one it is missing as well
            raise self._log.refused("append to", ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Write") from e
