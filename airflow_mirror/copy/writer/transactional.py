"""Transactional delivery: records and progress become visible together, or not at all.

Each target partition has its own transactional id. A copier takes it over when it opens the partition. The takeover
aborts a transaction that the previous copier left open and fences that copier: a frozen copier that resumes can't commit.
The progress (the next source offset) is committed for a consumer group in the same transaction (KIP-98, KIP-447). A
read_committed consumer therefore sees both a range of the source and the progress over it, or neither.

Markers and aborted records take up offsets on the target, so transactional delivery needs mapped offsets.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import marker_id, progress_group
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.transactions import TransactionClient

# The coordinator aborts a transaction that is open for longer, a dead copier's and a live one's alike.
TIMEOUT_MS = 60_000
# A live copier therefore commits at this age, whatever is in it: a batch in flight may take 35 s more until its broker
# is given up, and the commit takes some requests.
COMMIT_AFTER_S = TIMEOUT_MS / 1000 / 4


class Deliveries:
    """Begins and commits the transactions of target partitions. Not thread-safe: use one per thread.

    :param check: checks the writer lease; see :class:`~airflow_mirror.wire.transactions.TransactionClient`.
    """

    def __init__(self, target: WireCluster, mirror: str, check: Callable[[], None]) -> None:
        self._target, self._mirror, self._check = target, mirror, check
        self._group = progress_group(mirror)
        self._clients: dict[TopicPartition, TransactionClient] = {}

    def take_over(self, tp: TopicPartition) -> tuple[int, int]:
        """Return (producer id, epoch) to write with. Fences an earlier writer and aborts its transaction."""
        # Before anything of the partition is read: only behind it are the log's end and the progress at rest. A
        # transaction that a dead copier had decided is completed here, one that it had not is aborted with its
        # position.
        # From a process that was frozen right before its bytes it fences a newer copier, which is told so at its next
        # step, and takes the partition over again (`retries.verdict`).
        return self._client(tp).init(TIMEOUT_MS)

    def begin(self, tp: TopicPartition, producer_id: int, epoch: int) -> None:
        """Open a transaction; :raises Fenced: a newer copier took the partition over."""
        # Who dies behind it leaves a transaction that holds back read_committed readers of this partition, until the
        # next copier takes over, or for TIMEOUT_MS if there is none.
        self._client(tp).begin(tp, self._group, producer_id, epoch)

    def commit(self, tp: TopicPartition, position: int, producer_id: int, epoch: int) -> None:
        """Commit the open transaction, with ``position`` as the next source offset."""
        # The id is written down with the position: after the coordinator has forgotten the transactional id, which then
        # gets another producer id, the records of the old one still count as ours (`mapped._writer`).
        metadata = json.dumps({"producer_id": producer_id})
        self._client(tp).commit(tp, self._group, position, metadata, producer_id, epoch)

    def progress(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Return (next source offset, producer id that committed it); None when nothing was committed yet."""
        # It waits for a transaction that would move it (KIP-447): one that is decided is in the answer, whoever died
        # behind the decision.
        committed = self._client(tp).committed_offset(tp, self._group)
        if committed is None:
            return None
        offset, metadata = committed
        return offset, int(json.loads(metadata)["producer_id"])

    def writer(self, tp: TopicPartition) -> int | None:
        """Return the producer id that the coordinator has for ``tp``; None if the id was never taken over."""
        described = self._client(tp).describe()
        return None if described is None else described.producer_id

    def _client(self, tp: TopicPartition) -> TransactionClient:
        if tp not in self._clients:
            self._clients[tp] = TransactionClient(self._target, marker_id(self._mirror, tp), self._check)
        return self._clients[tp]
