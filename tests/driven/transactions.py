"""The transaction coordinator: states, epochs, markers.

The rules are those of Kafka's TransactionCoordinator and TransactionMetadata. Markers are written at the moment of
EndTxn, unless a test holds them: then a transaction stays in PrepareCommit or PrepareAbort until it lets them go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.clock import Clock
from tests.driven.groups import Groups
from tests.driven.log import PartitionLog
from tests.driven.refused import Refused
from tests.driven.release import Release

MAX_TIMEOUT_MS = 900_000  # transaction.max.timeout.ms
_LAST_EPOCH = 32_766  # TransactionMetadata.isEpochExhausted


@dataclass
class Transaction:
    """What the coordinator knows of a transactional id. ``started_ms`` -1: none is open."""

    transactional_id: str
    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    timeout_ms: int = 0
    state: str = "Empty"
    started_ms: int = -1
    partitions: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


class Transactions:
    """The coordinator of all transactional ids of a cluster.

    :param log_of: returns a partition's log.
    :param release: whose rules hold.
    :ivar epoch: the coordinator's term; it grows with each fail-over.
    :ivar holds_markers: a decided transaction waits for :meth:`write_held_markers`.
    """

    def __init__(
        self, clock: Clock, groups: Groups, log_of: Callable[[TopicPartition], PartitionLog], release: Release
    ) -> None:
        self._clock, self._groups, self._log_of, self._release = clock, groups, log_of, release
        self.known: dict[str, Transaction] = {}
        self.epoch = 0
        self.holds_markers = False
        self._next_producer_id = 0

    # --- requests -----------------------------------------------------------------------------------------------------

    def init(
        self, transactional_id: str | None, timeout_ms: int, producer_id: int = -1, epoch: int = -1
    ) -> tuple[int, int]:
        """InitProducerId: return (producer id, epoch).

        :raises Refused: also CONCURRENT_TRANSACTIONS, after an open transaction's abort has begun.
        """
        if transactional_id is None:
            return self._new_producer_id(), 0
        if not transactional_id or (producer_id < 0) != (epoch < 0):
            raise Refused(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
            raise Refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        txn = self.known.get(transactional_id)
        if txn is None:
            txn = self.known[transactional_id] = Transaction(transactional_id, self._new_producer_id())
        if producer_id >= 0 and txn.epoch >= 0 and producer_id != txn.producer_id:
            raise Refused(ErrorCode.PRODUCER_FENCED)
        if txn.state == "Ongoing":
            self._fence(txn)
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        if txn.state.startswith("Prepare"):
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        self._bump(txn, epoch if producer_id >= 0 else None)
        txn.timeout_ms, txn.state, txn.started_ms = timeout_ms, "Empty", -1
        txn.partitions, txn.groups = set(), set()
        return txn.producer_id, txn.epoch

    def add(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: set[TopicPartition],
        groups: set[str] = frozenset(),  # type: ignore[assignment]
    ) -> None:  # fmt: skip
        """AddPartitionsToTxn and AddOffsetsToTxn: open the transaction if it is not."""
        txn = self._current(transactional_id, producer_id, epoch)
        if txn.state.startswith("Prepare"):
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        if txn.state != "Ongoing":
            txn.state, txn.started_ms = "Ongoing", self._clock.now_ms
            txn.partitions, txn.groups = set(), set()
        txn.partitions |= partitions
        txn.groups |= groups

    def end(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> None:
        """EndTxn."""
        txn = self._current(transactional_id, producer_id, epoch)
        if txn.state == ("PrepareCommit" if commit else "PrepareAbort"):
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        if txn.state == ("CompleteCommit" if commit else "CompleteAbort"):
            return
        if txn.state != "Ongoing":
            raise Refused(ErrorCode.INVALID_TXN_STATE)
        self._decide(txn, commit=commit)

    def verify(self, transactional_id: str | None, producer_id: int, epoch: int, tp: TopicPartition) -> None:
        """Check that a transactional batch belongs to a transaction that knows its partition (KIP-890)."""
        txn = self._known_to_verify(transactional_id, producer_id, epoch)
        if tp not in txn.partitions:
            raise Refused(ErrorCode.INVALID_TXN_STATE)

    def verify_group(self, transactional_id: str, producer_id: int, epoch: int, group: str) -> None:
        """The same for a group's offsets."""
        if not self._release.verifies:
            if epoch < 0:
                raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        txn = self._known_to_verify(transactional_id, producer_id, epoch)
        if group not in txn.groups:
            raise Refused(ErrorCode.INVALID_TXN_STATE)

    def described(self, transactional_id: str) -> Transaction:
        """DescribeTransactions."""
        if not transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST)
        if transactional_id not in self.known:
            raise Refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return self.known[transactional_id]

    # --- what happens by itself, or because a test says so ------------------------------------------------------------

    def write_held_markers(self) -> None:
        """Complete what is decided; from now on markers are written at once again."""
        self.holds_markers = False
        for txn in self.known.values():
            if txn.state.startswith("Prepare"):
                self._complete(txn)

    def time_out(self) -> None:
        """Abort transactions that have been open for longer than they may."""
        for txn in self.known.values():
            if txn.state == "Ongoing" and self._clock.now_ms - txn.started_ms > txn.timeout_ms:
                self._fence(txn)

    def fail_over(self, *, repeat: bool = False) -> None:
        """Begin a new term: what was decided is completed; last epochs, which no log holds, are forgotten.

        :param repeat: the old coordinator died between writing markers and noting that it did: those of completed
            transactions are written once more, as those of a transaction that is still decided only.
        """
        self.epoch += 1
        for txn in self.known.values():
            txn.last_epoch = -1
            if txn.state.startswith("Prepare"):
                self._complete(txn)
            elif repeat and txn.state.startswith("Complete"):
                self._write_markers(txn, commit=txn.state == "CompleteCommit")

    def forget(self, transactional_id: str) -> None:
        """Forget an id, as after transactional.id.expiration.ms."""
        self.known.pop(transactional_id, None)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def _current(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        if not transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST)
        txn = self.known.get(transactional_id)
        if txn is None or txn.producer_id != producer_id:
            raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if txn.epoch != epoch:
            raise Refused(ErrorCode.PRODUCER_FENCED)
        return txn

    def _known_to_verify(self, transactional_id: str | None, producer_id: int, epoch: int) -> Transaction:
        txn = self.known.get(transactional_id or "")
        if txn is None or txn.producer_id != producer_id:
            raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if txn.epoch != epoch:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH)
        if txn.state.startswith("Prepare"):
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)  # CONCURRENT_TRANSACTIONS, in words that old clients retry
        if txn.state != "Ongoing":
            raise Refused(ErrorCode.INVALID_TXN_STATE)
        return txn

    def _bump(self, txn: Transaction, expected: int | None) -> None:
        """Raise the epoch (TransactionMetadata.prepareIncrementProducerEpoch)."""
        if expected is None or txn.epoch < 0 or expected == txn.epoch:
            last = -1 if expected is None else txn.epoch
            if txn.epoch >= _LAST_EPOCH:
                txn.producer_id, txn.epoch, txn.last_epoch = self._new_producer_id(), 0, -1
            else:
                txn.epoch, txn.last_epoch = txn.epoch + 1, last
        elif expected != txn.last_epoch:
            raise Refused(ErrorCode.PRODUCER_FENCED)

    def _fence(self, txn: Transaction) -> None:
        """Abort an open transaction under the next epoch, which its producer does not have."""
        txn.epoch, txn.last_epoch = txn.epoch + 1, txn.epoch if self._release.remembers_fenced else -1
        self._decide(txn, commit=False)

    def _decide(self, txn: Transaction, *, commit: bool) -> None:
        txn.state = "PrepareCommit" if commit else "PrepareAbort"
        if not self.holds_markers:
            self._complete(txn)

    def _complete(self, txn: Transaction) -> None:
        commit = txn.state == "PrepareCommit"
        self._write_markers(txn, commit=commit)
        txn.state = "CompleteCommit" if commit else "CompleteAbort"

    def _write_markers(self, txn: Transaction, *, commit: bool) -> None:
        for tp in sorted(txn.partitions):
            try:
                self._log_of(tp).append_marker(
                    txn.producer_id, txn.epoch, commit=commit, coordinator_epoch=self.epoch
                )  # fmt: skip
            except Refused as e:
                # Dropped: somebody wrote one with a newer epoch (TransactionMarkerRequestCompletionHandler).
                if e.code not in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED):
                    raise
        for group in txn.groups:
            self._groups.end(txn.producer_id, group, commit=commit)
