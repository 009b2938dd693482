"""Padding: fill a hole of the target log with transaction markers, each of which takes one offset and is never seen.

A marker has no compare-and-set: the broker appends every copy of a WriteTxnMarkers request it is given, from anybody.
Two copiers that pad the same hole unguarded corrupt the partition (measured: 6 of 6 runs). The guard:

1. Each target partition has a transactional id of its own. A copier takes it over (InitProducerId) before it pads;
   an older copier is refused at its next coordinator step. A transaction that the older one left open is aborted by
   the takeover, which writes one marker: it was opened at this same hole, so its marker belongs there.
2. The **first** marker of a hole goes through the transaction coordinator, without data (AddPartitionsToTxn, EndTxn:
   exactly one marker). From then on the partition knows the new epoch and refuses the older copier's direct markers.
3. Interior markers go directly, in bulk, under the coordinator's producer id and epoch.
4. The **last** marker goes through the coordinator again. Between taking over and step 2 an older copier may still land
   its one batch of interior markers; it never contains the last one, so the hole can be filled by it but not overrun.

The log end is read again before each step, and nothing is ever retried blindly: an error says nothing about an append.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_mirror.copy import identity
from airflow_mirror.errors import MissingRight, TargetMoved, TryAgain
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import Fenced
from airflow_mirror.wire.transactions import TransactionClient, write_txn_markers

_TIMEOUT_MS = 60_000  # a data-less transaction lives for milliseconds; the coordinator aborts a dead copier's after this
_BULK = 10_000  # markers a request: 62 k/s against 54 k/s with 1,000 (measured), and an answer of reasonable size
_POLL_S = 0.002
_APPEND_TIMEOUT_S = 30.0
_TRIES = 20


@dataclass
class Padder:
    """Pads target partitions of one Mirror. Not thread-safe: one for each thread.

    :param check: called before every step that has an effect; raises when the writer lease is gone.
    """

    target: WireCluster
    mirror: str
    check: Callable[[], None]
    direct: bool = True
    _clients: dict[TopicPartition, tuple[TransactionClient, int, int]] = field(default_factory=dict)

    def fill(self, tp: TopicPartition, start: int, end: int) -> int:
        """Fill [start, end), of which an earlier copier may have filled a part; return how many markers we wrote.

        :raises TargetMoved: if the log end is outside [start, end] before or after.
        :raises Fenced: if a newer copier took this partition over.
        """
        try:
            return self._fill(tp, start, end)
        except Fenced:
            # A newer copier, or the coordinator itself after a timeout of ours. If the lease is still ours the next
            # attempt takes the partition over again; if not, `check` says so.
            self._clients.pop(tp, None)
            raise

    def _fill(self, tp: TopicPartition, start: int, end: int) -> int:
        client, producer_id, epoch = self._take_over(tp)
        written = 0
        for _ in range(_TRIES * (1 + (end - start) // _BULK) if self.direct else _TRIES + 2 * (end - start)):
            at = self.target.log_ends([tp])[tp]
            if not start <= at <= end:
                raise TargetMoved(
                    tp.topic, tp.partition, start, end, f"the target's log end is {at} while this hole is padded",
                    "Another writer appended to it, or its transaction coordinator died and repeated a marker. Stop such "
                    "a writer, then delete and copy this partition again.",
                )  # fmt: skip
            if at == end:
                return written
            self.check()
            wrote = self._step(client, tp, producer_id, epoch, at, end, guarded=written > 0)
            self._wait_for(tp, at + wrote)
            written += wrote
        raise TryAgain(
            f"{tp}: hole [{start}, {end}) was not filled after many steps; the target answers but does not append"
        )

    def _step(
        self, client: TransactionClient, tp: TopicPartition, producer_id: int, epoch: int, at: int, end: int, *,
        guarded: bool,
    ) -> int:  # fmt: skip
        """Write the next marker or markers of a hole and return how many."""
        interior = end - at - 1
        if guarded and self.direct and interior > 0:
            count = min(interior, _BULK)
            try:
                write_txn_markers(self.target, tp, producer_id, epoch, count)
                return count
            except MissingRight:
                self.direct = False  # no right on the cluster: single markers through the coordinator do the same, slower
        client.write_marker(tp, producer_id, epoch)
        return 1

    def _take_over(self, tp: TopicPartition) -> tuple[TransactionClient, int, int]:
        if tp not in self._clients:
            self.check()
            client = TransactionClient(self.target, identity.marker_id(self.mirror, tp))
            producer_id, epoch = client.init(_TIMEOUT_MS)
            self._clients[tp] = client, producer_id, epoch
        return self._clients[tp]

    def _wait_for(self, tp: TopicPartition, end: int) -> None:
        """Wait until the log end reached ``end``: EndTxn answers before its marker is in the log."""
        deadline = time.monotonic() + _APPEND_TIMEOUT_S
        while self.target.log_ends([tp])[tp] < end:
            if time.monotonic() > deadline:
                raise TryAgain(
                    f"{tp}: a marker was accepted but the log end did not reach {end} in {_APPEND_TIMEOUT_S:.0f} s"
                )
            time.sleep(_POLL_S)
