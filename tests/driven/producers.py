"""What a partition remembers of its producers: epochs, sequences, the last five batches, open transactions.

The rules are those of Kafka's ProducerStateManager and ProducerAppendInfo.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from airflow_mirror.wire.batch import MAX_SEQUENCE, BatchHeader
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.refused import Refused
from tests.driven.release import Release

EXPIRES_MS = 86_400_000  # producer.id.expiration.ms


class Remembered(NamedTuple):
    """A batch by its sequences."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


@dataclass
class Producer:
    """One producer id.

    :ivar last_offset: of its last record or marker.
    :ivar touched: the timestamp of that, ms.
    :ivar txn_start: offset of its open transaction's first record.
    """

    epoch: int
    batches: deque[Remembered]
    coordinator_epoch: int = -1
    last_offset: int = -1
    touched: int = -1
    txn_start: int | None = None

    @property
    def last_sequence(self) -> int:
        """The last record's sequence; -1 when none is remembered."""
        return self.batches[-1].last_sequence if self.batches else -1


class Producers:
    """The producers of one partition, by the rules of a release."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self.known: dict[int, Producer] = {}
        # Producer id -> (epoch, lowest sequence) that asked to begin a transaction here (VerificationStateEntry).
        self._verifying: dict[int, tuple[int, int]] = {}

    def duplicate_of(self, header: BatchHeader) -> Remembered | None:
        """Return the remembered batch that this one repeats."""
        known = self.known.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            return None
        sequences = header.base_sequence, _last_sequence(header)
        return next((b for b in known.batches if (b.first_sequence, b.last_sequence) == sequences), None)

    def check(self, header: BatchHeader) -> None:
        """Check a client's batch.

        :raises Refused: as ProducerAppendInfo.appendDataBatch does.
        """
        known = self.known.get(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH)
        if header.base_sequence > self._verifying.get(header.producer_id, (0, MAX_SEQUENCE))[1]:
            raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if known is None:
            if header.base_sequence != 0 and not self._release.begins_anywhere:
                raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            return  # with any epoch
        if header.producer_epoch > known.epoch:
            if header.base_sequence != 0:
                raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        elif header.base_sequence != (known.last_sequence + 1) % MAX_SEQUENCE:
            raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if known.txn_start is not None and not header.is_transactional:
            raise Refused(ErrorCode.INVALID_TXN_STATE)

    def ask_to_begin(self, header: BatchHeader) -> None:
        """Remember that a batch asked to begin a transaction; until one begins, none with a later sequence is taken."""
        epoch, lowest = self._verifying.setdefault(header.producer_id, (header.producer_epoch, header.base_sequence))
        if header.producer_epoch > epoch or (header.producer_epoch == epoch and header.base_sequence < lowest):
            self._verifying[header.producer_id] = header.producer_epoch, header.base_sequence

    def note(self, header: BatchHeader) -> None:
        """Remember a batch of records at its offset in the log."""
        known = self._entry(header.producer_id, header.producer_epoch)
        known.batches.append(
            Remembered(header.base_sequence, _last_sequence(header), header.base_offset, header.max_timestamp)
        )
        known.last_offset, known.touched = header.base_offset + header.last_offset_delta, header.max_timestamp
        if header.is_transactional and known.txn_start is None:
            known.txn_start = header.base_offset
        if header.is_transactional:
            self._verifying.pop(header.producer_id, None)

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Check a marker.

        :raises Refused: of an older epoch, or of an older term of the coordinator.
        """
        if producer_id < 0 or epoch < 0:
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        known = self.known.get(producer_id)
        if known is not None and epoch < known.epoch:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH)
        if known is not None and coordinator_epoch < known.coordinator_epoch:
            raise Refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED)

    def note_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int
    ) -> int | None:
        """Remember a marker; return where the transaction began that it ends, None when there was none."""
        known = self._entry(producer_id, epoch)
        started, known.txn_start = known.txn_start, None
        self._verifying.pop(producer_id, None)
        known.coordinator_epoch, known.last_offset, known.touched = coordinator_epoch, offset, timestamp
        if self._release.markers_are_batches:
            if known.batches:
                known.batches.append(Remembered(known.last_sequence, known.last_sequence, offset, timestamp))
            return offset if started is None else started
        return started

    def forget_below(self, log_start: int) -> None:
        """Forget those of whom all records are deleted, where a release does so."""
        if self._release.forgets_deleted:
            self.known = {key: known for key, known in self.known.items() if known.last_offset >= log_start}

    def expire(self, now_ms: int) -> None:
        """Forget those whose last record is older than a day; those with an open transaction stay."""
        for producer_id, known in list(self.known.items()):
            if known.txn_start is None and now_ms - known.touched >= EXPIRES_MS:
                del self.known[producer_id]

    def _entry(self, producer_id: int, epoch: int) -> Producer:
        known = self.known.setdefault(producer_id, Producer(epoch, deque(maxlen=self._release.batches_remembered)))
        if known.epoch != epoch:
            known.epoch = epoch
            known.batches.clear()
        return known


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % MAX_SEQUENCE
