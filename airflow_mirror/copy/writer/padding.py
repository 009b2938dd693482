"""Padding: fill a hole of the target log with transaction markers, each of which takes one offset and is never seen.

A marker has no compare-and-set: the broker appends every copy of a WriteTxnMarkers request it is given, from anybody.
Two copiers that pad the same hole unguarded corrupt the partition (measured: 6 of 6 runs). The guard:

1. Each target partition has a transactional id of its own. A copier takes it over (InitProducerId) before it pads;
   an older copier is refused at its next coordinator step. A transaction that the older one left open is aborted by
   the takeover, which writes one marker: it was opened at this same hole, so its marker belongs there.
2. The **first** marker of a hole goes through the transaction coordinator, without data (AddPartitionsToTxn, EndTxn:
   exactly one marker). From then on the partition knows the new epoch and refuses the older copier's direct markers.
3. Interior markers go directly, in bulk, under the coordinator's producer id and epoch.
4. The **last** marker is a request of its own, and goes directly too. Between taking over and step 2 an older copier may
   still land its one batch of interior markers; it never contains the last one, so the hole can be filled by it but not
   overrun.

Why the last one avoids the coordinator: one that dies between writing a marker and noting that it did is followed by one
that writes it again (measured: in 5 of 12 kills). Any earlier marker has room for that; behind the last one it would
take the next record's offset. Most holes are of one marker, and brokers are restarted all the time.

What guards the last one instead: it is sent only while the coordinator confirmed within ``_FRESH_S`` that the partition
is still ours, and whoever takes over a partition that was not given back waits for longer than that before its first
look at the log. After any error the partition is taken over anew: that settles what the coordinator has under way, and
the new epoch refuses what may still arrive of ours. What is left is a request that was held up in the network (not on
this machine: sockets are reset when they end, whatever ends them) for longer than that pause and arrives in the
milliseconds between a new copier's look and its first marker; the copy of that partition then stops, with an error.

A principal without rights on the cluster has the coordinator alone, and its repeated marker to fear.

The log end is read again before each step, and nothing is ever retried blindly: an error says nothing about an append.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_mirror.copy.writer import handover
from airflow_mirror.errors import MirrorError, MissingRight, TargetMoved, TryAgain
from airflow_mirror.partition import TopicPartition
from airflow_mirror.policy import marker_id
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ApiNotServed, CoordinatorFenced, Fenced
from airflow_mirror.wire.transactions import TransactionClient, coordinator_epoch_of, write_txn_markers

log = logging.getLogger(__name__)

_FRESH_S = 0.2  # how old the proof of ownership may be when the last marker is sent
_QUIET_S = 0.5  # what a new owner waits when the old one may still believe in such a proof
_DOUBT_S = 3.0  # after an error of our own, a marker that was sent may still be on its way for as long
_BULK = 10_000  # markers a request: 62 k/s against 54 k/s with 1,000 (measured), and an answer of reasonable size
_POLL_S = 0.002
_APPEND_TIMEOUT_S = 10.0
_RELEASE_S, _RELEASE_ONE_S = 10.0, 1.0  # how long giving back may take, all and one
_TRIES = 20


@dataclass(kw_only=True)
class _Hold:
    """A partition that is ours.

    :param confirmed: monotonic time before the last question whose answer proved it.
    :param coordinator_epoch: what direct markers must carry at least, as far as we know.
    """

    client: TransactionClient
    producer_id: int
    epoch: int
    confirmed: float
    coordinator_epoch: int = 0


@dataclass(kw_only=True)
class Filling:
    """A hole [start, end) of a target partition on its way.

    :ivar at: the target's log end, as far as it was seen; an earlier copier may have filled a part.
    :ivar written: markers of ours.
    """

    tp: TopicPartition
    start: int
    end: int
    at: int = -1
    written: int = 0
    steps: int = 0

    @property
    def done(self) -> bool:
        """True when the hole is full."""
        return self.at == self.end


@dataclass(kw_only=True)
class Padder:
    """Pads target partitions of one Mirror. Not thread-safe: one for each thread.

    :param check: called right before everything that has an effect is sent; raises when the writer lease is gone or
        unconfirmed.
    """

    target: WireCluster
    mirror: str
    check: Callable[[], None]
    direct: bool = True
    _holds: dict[TopicPartition, _Hold] = field(default_factory=dict)
    _doubtful: dict[TopicPartition, float] = field(default_factory=dict)

    def fill(self, tp: TopicPartition, start: int, end: int) -> int:
        """Fill [start, end) at one go; return how many markers we wrote. Errors as of :meth:`step`."""
        filling = Filling(tp=tp, start=start, end=end)
        while not filling.done:
            time.sleep(self.step(filling))
        return filling.written

    def step(self, filling: Filling) -> float:
        """Take one step of a filling, of at most one request with markers; return how many seconds to wait for the next.

        Others may be served in between, for any length of time: the log end is read again at each step.

        :raises TargetMoved: if the log end is outside the hole.
        :raises Fenced: if a newer copier took this partition over.
        """
        try:
            return self._next(filling)
        except MirrorError:
            # A marker of ours may still be on its way, or a newer copier is here. If the lease is still ours, the next
            # attempt takes the partition over again, and with it a new epoch; if not, `check` says so.
            self._holds.pop(filling.tp, None)
            self._doubtful[filling.tp] = time.monotonic() + _DOUBT_S
            raise

    def release(self) -> None:
        """Give all partitions back, once nothing is under way: the next owners need not wait.

        Those whose coordinator does not answer are left out, and so are all after :data:`_RELEASE_S`: their next owner
        waits, that is all.
        """
        until = time.monotonic() + _RELEASE_S
        self.target.timeout_s = min(self.target.timeout_s, _RELEASE_ONE_S)
        for tp, hold in self._holds.items():
            if time.monotonic() > until:
                log.info("partitions not released in time, the first one: %s", tp)
                break
            try:
                handover.give_back(hold.client, hold.producer_id, hold.epoch)
            except MirrorError as e:
                log.info("%s is not released: %s", tp, e)
        self._holds.clear()

    def _next(self, filling: Filling) -> float:
        tp, start, end = filling.tp, filling.start, filling.end
        if tp not in self._holds:
            return self._take_over(tp)
        hold = self._holds[tp]
        at = self.target.log_ends([tp])[tp]
        if not start <= at <= end:
            raise TargetMoved(
                tp.topic, tp.partition, start, end, f"the target's log end is {at} while this hole is padded",
                "Another writer appended to it, or its transaction coordinator died and repeated a marker. Stop such "
                "a writer, then delete and copy this partition again.",
            )  # fmt: skip
        filling.at = at
        if filling.done:
            return 0.0
        filling.steps += 1
        if filling.steps > (_TRIES * (1 + (end - start) // _BULK) if self.direct else _TRIES + 2 * (end - start)):
            raise TryAgain(
                f"{tp}: hole [{start}, {end}) was not filled after many steps; the target answers but does not append"
            )
        wrote = self._write(tp, hold, end - at, guarded=filling.written > 0)
        self._wait_for(tp, at + wrote)
        filling.written += wrote
        filling.at = at + wrote
        return 0.0

    def _write(self, tp: TopicPartition, hold: _Hold, left: int, *, guarded: bool) -> int:
        """Write the next marker or markers of a hole and return how many."""
        if self.direct and (guarded or left == 1):
            try:
                return self._write_directly(tp, hold, max(1, min(left - 1, _BULK)), last=left == 1)
            except (MissingRight, ApiNotServed):
                self.direct = False  # not for us: single markers through the coordinator do the same, slower
        asked = time.monotonic()
        hold.client.write_marker(tp, hold.producer_id, hold.epoch)
        hold.confirmed = asked
        return 1

    def _write_directly(self, tp: TopicPartition, hold: _Hold, count: int, *, last: bool) -> int:
        if last:
            self._confirm(tp, hold)
        try:
            write_txn_markers(
                self.target, tp, hold.producer_id, hold.epoch, count, hold.coordinator_epoch, check=self.check
            )
        except CoordinatorFenced:
            # The one answer after which nothing was written for certain: the coordinator began a new term.
            known = coordinator_epoch_of(self.target, tp, hold.producer_id)
            if known <= hold.coordinator_epoch:
                raise
            hold.coordinator_epoch = known
            return 0
        return count

    def _confirm(self, tp: TopicPartition, hold: _Hold) -> None:
        """Make sure that the partition was ours a moment ago."""
        asked = time.monotonic()
        if asked - hold.confirmed < _FRESH_S:
            return
        seen = hold.client.describe()
        if seen is None or (seen.producer_id, seen.epoch) != (hold.producer_id, hold.epoch):
            raise Fenced(f"padding of {tp}", ErrorCode.PRODUCER_FENCED, hold.producer_id, hold.epoch)
        hold.confirmed = asked

    def _take_over(self, tp: TopicPartition) -> float:
        """Make the partition ours; return how long to leave it alone before the first look at its log."""
        client = TransactionClient(self.target, marker_id(self.mirror, tp), self.check)
        asked = time.monotonic()
        taken = handover.take_over(client)
        self._holds[tp] = _Hold(client=client, producer_id=taken.producer_id, epoch=taken.epoch, confirmed=asked)
        doubt_s = self._doubtful.pop(tp, 0.0) - time.monotonic()
        return 0.0 if taken.given_back else max(_QUIET_S, doubt_s)

    def _wait_for(self, tp: TopicPartition, end: int) -> None:
        """Wait until the log end reached ``end``: EndTxn answers before its marker is in the log."""
        deadline = time.monotonic() + _APPEND_TIMEOUT_S
        while self.target.log_ends([tp])[tp] < end:
            if time.monotonic() > deadline:
                raise TryAgain(
                    f"{tp}: a marker was accepted but the log end did not reach {end} in {_APPEND_TIMEOUT_S:.0f} s"
                )
            time.sleep(_POLL_S)
