"""Fill a hole of the target log with transaction markers. Each takes one offset and no consumer ever sees it.

Markers have no compare-and-set: the broker appends every WriteTxnMarkers request that it receives, from any client.
Two copiers that pad the same hole without a guard corrupt the partition (measured: 6 of 6 runs). The guard:

1. Each target partition has its own transactional id. A copier takes it over (InitProducerId) before it pads, and the
   coordinator rejects the older copier's next request. The takeover aborts a transaction that the older copier left
   open, which writes one marker. That transaction was opened at this same hole, so its marker belongs there.
2. The **first** marker of a hole goes through the transaction coordinator, without data (AddPartitionsToTxn, EndTxn:
   exactly one marker). After that the partition knows the new epoch and rejects the older copier's direct markers.
3. Interior markers are sent directly, in bulk, with the coordinator's producer id and epoch.
4. The **last** marker is a separate request and is also sent directly. Between the takeover and step 2 an older copier
   can still land its one batch of interior markers. That batch never contains the last marker, so it can fill the hole
   but not overrun it.

The last marker avoids the coordinator because a coordinator that dies after it wrote a marker, and before it recorded
that, is succeeded by one that writes the marker again (measured: in 5 of 12 kills). Earlier markers have room for a
repeat; a repeat of the last one would take the next record's offset. Most holes need a single marker, and brokers are
restarted all the time.

The last marker is guarded differently. It is sent only if the coordinator confirmed within ``_FRESH_S`` that the
partition is still ours. A copier that takes over a partition that was not released waits longer than that before it first
reads the log end. After any error the copier takes the partition over again: that settles whatever the coordinator has in
progress, and the new epoch rejects our late requests. One risk remains: a request delayed in the network for longer than
that wait (not on this machine: sockets are reset when they close, for whatever reason), which then arrives in the
milliseconds between a new copier's first read and its first marker. The copy of that partition then stops with an error.

A principal without rights on the cluster can only use the coordinator, and is exposed to the coordinator's repeated
marker.

The log end is read again before each step, and nothing is retried blindly: an error does not tell whether the append
happened.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import marker_id
from airflow_mirror.copy.writer import handover
from airflow_mirror.errors import MirrorError, MissingRight, TargetMoved, TryAgain
from airflow_mirror.kafka.permit import since_boot_s
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ApiNotServed, Fenced
from airflow_mirror.wire.transactions import TransactionClient, coordinator_epoch_of, write_txn_markers

log = logging.getLogger(__name__)

# What lies between the first two is the time that a last marker has to get into the log after its sender had proof.
_FRESH_S = 0.2  # how old the proof of ownership may be when the last marker is sent
_QUIET_S = 0.5  # how long a new owner waits if the old one may still rely on such a proof
_DOUBT_S = 3.0  # how long after an error a marker that we sent may still be in flight
_BULK = 10_000  # markers per request: 62 k/s against 54 k/s with 1,000 (measured), and a response of reasonable size
_POLL_S = 0.002
_APPEND_TIMEOUT_S = 10.0
_RELEASE_S, _RELEASE_ONE_S = 10.0, 1.0  # time limits for releasing all partitions, and one of them
_TRIES = 20


@dataclass(kw_only=True)
class _Hold:
    """A partition that we own.

    :param quiet_until: until when its log is left alone, by the monotonic clock, in seconds: before that a marker of the
        last owner, or of our own, may still come.
    :param confirmed: seconds since boot at which we sent the last request whose response proved ownership.
    :param coordinator_epoch: lowest coordinator epoch that direct markers must carry, as far as we know.
    """

    client: TransactionClient
    producer_id: int
    epoch: int
    quiet_until: float
    confirmed: float
    coordinator_epoch: int = 0


@dataclass(kw_only=True)
class Filling:
    """A hole [start, end) of a target partition that is being filled.

    :ivar at: the target's log end offset as last read; an earlier copier may have filled part of the hole.
    :ivar written: number of markers that we wrote.
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
    """Pads target partitions of one Mirror. Not thread-safe: use one per thread.

    :param check: called right before each request that has an effect; raises if the writer lease is lost or unconfirmed.
    """

    target: WireCluster
    mirror: str
    check: Callable[[], None]
    direct: bool = True
    _holds: dict[TopicPartition, _Hold] = field(default_factory=dict)
    _doubtful: dict[TopicPartition, float] = field(default_factory=dict)

    def fill(self, tp: TopicPartition, start: int, end: int) -> int:
        """Fill [start, end) completely and return the number of markers that we wrote. Errors as for :meth:`step`."""
        filling = Filling(tp=tp, start=start, end=end)
        while not filling.done:
            time.sleep(self.step(filling))
        return filling.written

    def step(self, filling: Filling) -> float:
        """Take one step, with at most one request for markers, and return the seconds to wait before the next step.

        The caller may do other work between steps for any length of time: each step reads the log end again.

        :raises TargetMoved: the log end offset is outside the hole.
        :raises Fenced: a newer copier took this partition over.
        """
        try:
            return self._next(filling)
        except MirrorError:
            # A marker of ours may still be in flight, or a newer copier may be active. If the lease is still ours, the
            # next attempt takes the partition over again with a new epoch; if not, `check` raises.
            self._holds.pop(filling.tp, None)
            self._doubtful[filling.tp] = time.monotonic() + _DOUBT_S
            raise

    def release(self) -> None:
        """Release all partitions once nothing is in flight, so that their next owners need not wait.

        Partitions whose coordinator does not respond are skipped, as are all that remain after :data:`_RELEASE_S`. Their
        next owners only have to wait.
        """
        # Without the lease, too: each release compares the epoch, so that what a newer copier has taken over stays its
        # own.
        until = time.monotonic() + _RELEASE_S
        self.target.timeout_s = min(self.target.timeout_s, _RELEASE_ONE_S)
        # Only those without an error in their last step: of the others a marker may be on its way, so they stay held.
        # So they do if the process dies before this: each next owner waits half a second.
        # And those whose quiet time is not over: their next owners would not wait for what we should have waited for.
        now = time.monotonic()
        for tp, hold in self._holds.items():
            if hold.quiet_until > now:
                continue
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
        hold = self._holds.get(tp)
        if hold is None:
            # A step of its own: the caller waits, and the log end is read when it comes again.
            return self._take_over(tp)
        # Behind a failure another step may come for the same hole meanwhile.
        if (wait_s := hold.quiet_until - time.monotonic()) > 0:
            return wait_s
        # What counts is in the log: markers of an earlier copier, of our own with a lost answer, of a transaction that
        # the takeover has aborted. The high watermark would hide the newest of them.
        at = self.target.log_ends([tp])[tp]
        if not start <= at <= end:
            # Not final: the loop opens the partition again, and the opening tells another copier of ours, which may
            # have filled the hole and gone on, from a foreign writer.
            raise TargetMoved(
                tp.topic, tp.partition, start, end, f"the target's log end is {at} while this hole is padded",
                "Another writer appended to it, or its transaction coordinator died and repeated a marker. Stop such "
                "a writer, then delete and copy this partition again.",
            )  # fmt: skip
        filling.at = at
        if filling.done:
            return 0.0
        filling.steps += 1
        # A direct request writes up to _BULK markers, the coordinator one, now and then none or two.
        if filling.steps > (_TRIES * (1 + (end - start) // _BULK) if self.direct else _TRIES + 2 * (end - start)):
            raise TryAgain(
                f"{tp}: hole [{start}, {end}) was not filled after {filling.steps} steps",
                "the target answers but does not append",
            )
        # They go where the log ended a moment ago. Who dies behind the write leaves markers that belong there,
        # and whoever fills the hole next reads the end again.
        wrote = self._write(tp, hold, end - at, guarded=filling.written > 0)
        # Before anybody reads the end again: a marker that is decided and not in the log yet would be missed, and one
        # more be sent for its place.
        self._wait_for(tp, at + wrote)
        # Behind the wait. Of a step that fails in it the log alone knows whether it wrote, and only its end counts.
        filling.written += wrote
        filling.at = at + wrote
        return 0.0

    def _write(self, tp: TopicPartition, hold: _Hold, left: int, *, guarded: bool) -> int:
        """Write the next marker or markers of a hole and return their number."""
        # Behind a marker of the coordinator the leader knows our epoch and refuses an older copier's; the last one has
        # another guard (`_confirm`). A first marker that went directly would leave the older copier's to be accepted.
        if self.direct and (guarded or left == 1):
            try:
                return self._write_directly(tp, hold, max(1, min(left - 1, _BULK)), last=left == 1)
            # Both are said before anything is appended, so that the same place may be filled in the other way at once.
            except (MissingRight, ApiNotServed) as e:
                self.direct = False  # fall back to single markers through the coordinator
                log.warning("holes are padded one by one from here on, which is slower: %s", e)
        asked = since_boot_s()
        # Who dies in it leaves a transaction without data, open or decided. The next owner's InitProducerId ends it,
        # with the one marker that belongs to this hole, before that owner reads the log end.
        hold.client.write_marker(tp, hold.producer_id, hold.epoch)
        hold.confirmed = asked
        return 1

    def _write_directly(self, tp: TopicPartition, hold: _Hold, count: int, *, last: bool) -> int:
        # Any other marker that is one too many has room in the hole; this one would take the next record's offset.
        if last:
            self._confirm(tp, hold)
        try:
            # Sent once. If the answer is lost, `step` gives up the partition, and the next step takes it over under a
            # new epoch, waits _DOUBT_S, and looks at what is there.
            write_txn_markers(
                self.target, tp, hold.producer_id, hold.epoch, count, hold.coordinator_epoch, check=self.check
            )
        except Fenced as e:
            if e.code != ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                raise
            # The coordinator has a new epoch, which leaders compare before they append each marker
            # (ProducerAppendInfo.appendEndTxnMarker). The first ones of a bulk are in the log if that epoch came amid it.
            newest = coordinator_epoch_of(self.target, tp, hold.producer_id)
            if newest <= hold.coordinator_epoch:
                raise
            # All that was appended was before the answer: the next step reads the end and sends what is left.
            hold.coordinator_epoch = newest
            return 0
        return count

    def _confirm(self, tp: TopicPartition, hold: _Hold) -> None:
        """Check that the partition is still ours, unless that was proved less than ``_FRESH_S`` ago."""
        # A clock that goes on while the machine sleeps: a proof of before would look fresh behind that.
        asked = since_boot_s()
        if asked - hold.confirmed < _FRESH_S:
            return
        # Somebody may take over right behind the answer: that one waits _QUIET_S before it reads the log end, and our
        # marker is in the log by then. One that is held up for longer is the risk that the module's docstring names.
        seen = hold.client.describe()
        if seen is None or (seen.producer_id, seen.epoch) != (hold.producer_id, hold.epoch):
            raise Fenced(f"padding of {tp}", ErrorCode.PRODUCER_FENCED, hold.producer_id, hold.epoch)
        hold.confirmed = asked

    def _take_over(self, tp: TopicPartition) -> float:
        """Take over the partition and return the seconds to wait before the first read of its log end."""
        client = TransactionClient(self.target, marker_id(self.mirror, tp), self.check)
        # First the takeover, then the quiet time, and only then the log end: a last marker that an earlier owner still
        # had a proof for is in the log by then. The other way round it could come behind the end that was read.
        asked = since_boot_s()
        taken = handover.take_over(client)
        now = time.monotonic()
        doubt_s = self._doubtful.pop(tp, 0.0) - now
        wait_s = 0.0 if taken.given_back else max(_QUIET_S, doubt_s)
        self._holds[tp] = _Hold(
            client=client, producer_id=taken.producer_id, epoch=taken.epoch, quiet_until=now + wait_s, confirmed=asked
        )
        return wait_s

    def _wait_for(self, tp: TopicPartition, end: int) -> None:
        """Wait until the log end reaches ``end``: EndTxn returns before its marker is in the log."""
        deadline = time.monotonic() + _APPEND_TIMEOUT_S
        while self.target.log_ends([tp])[tp] < end:
            if time.monotonic() > deadline:
                raise TryAgain(
                    f"{tp}: the log end did not reach {end} in {_APPEND_TIMEOUT_S:.0f} s",
                    "a marker was accepted, and is not there",
                )
            time.sleep(_POLL_S)
