"""The task loop: one thread that keeps source and target brokers busy for many partitions at once.

What is read comes by `source_side`, what is written goes by `target_side`, what has to wait for a coordinator is a step
in a thread of its own (`steps`). The loop turns them, opens partitions, stores offset maps, and judges errors.

Anything but the expected answer makes the partition re-read the target's end and go on from there: an error says nothing
about whether the batch was appended.
"""

from __future__ import annotations

import logging
import selectors
import time
from collections.abc import Callable, Iterable
from itertools import chain

from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.limits import Memory, Pace
from airflow_mirror.copy.loop.partition import Commit, PartitionCopy
from airflow_mirror.copy.loop.source_side import FetchLane, SourceSide
from airflow_mirror.copy.loop.steps import Steps
from airflow_mirror.copy.loop.target_side import PRODUCE_TIMEOUT_MS, ProduceLane, TargetSide
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.opening import recheck
from airflow_mirror.copy.opening.answers import Answers, ask, ask_topic_id
from airflow_mirror.copy.opening.identical import Opening, affected, open_partition
from airflow_mirror.copy.opening.mapped import open_mapped
from airflow_mirror.copy.options import DEFAULT_MAX_BATCH_BYTES, CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.writer import priming
from airflow_mirror.errors import (
    InputError,
    LeaseLost,
    MirrorError,
    MissingRight,
    SourceTruncated,
    TargetMoved,
    TryAgain,
)
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import UnknownTopic
from airflow_mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED

log = logging.getLogger(__name__)

# Fetch responses that a task holds. Two of full size for each of two connections are the most that speed can use.
_MEMORY_BYTES = 48 << 20
_STORE_MAPS_EVERY_S = 5.0  # what a crash may cost: a walk over this much of both logs
_SILENCE_S = PRODUCE_TIMEOUT_MS / 1000 + 5  # a live broker answers within the timeout that it was given
_IDLE_S = 0.25  # how often the loop looks up when nothing happens: stop requests, retries
_PATIENCE_S = 120.0  # how long a partition may go without progress while its brokers fail: elections take seconds
_FORGIVEN_S = 60.0  # how long it must have been open before the failures ahead of that no longer count
_BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_REOPEN_S = 1.0  # how long a turn of the loop may reopen partitions; at least one of them
_WATCH_S = 5.0  # how often the source topics' ids, and the target's log starts, are looked at
_UNSURE_S = 180.0  # a broker wrote down by then what DeleteRecords did (once a minute, by default)


class CopyLoop:
    """Copies ranges until each reached its end, stopped with an error, or the loop was told to stop.

    :param check_lease: raises LeaseLost when this process must not write any more.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self, ranges: Iterable[CopyRange], clusters: Clusters, options: CopyOptions, check_lease: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._clusters, self._options, self._check_lease, self._clock = clusters, options, check_lease, clock
        self._isolation = READ_COMMITTED if options.committed_only else READ_UNCOMMITTED
        self.partitions = [self._copy_of(r) for r in ranges]
        self._store = _map_store(self.partitions, options)
        self._reopen_at: dict[PartitionCopy, float] = {}
        self._failing_since: dict[PartitionCopy, float] = {}
        self._open_since: dict[PartitionCopy, float] = {}
        self._maps_stored = self._watched = self._opened = self._clock()

    def _copy_of(self, one: CopyRange) -> PartitionCopy:
        options = self._options
        limit = options.max_batch_bytes.get(one.target_topic, DEFAULT_MAX_BATCH_BYTES)
        transaction = options.transaction_bytes if options.transactional and one.is_mapped else 0
        tombstones = one.target_topic in options.tombstone_topics and not one.is_mapped
        return PartitionCopy(one, options.committed_only, limit, options.merge_below, transaction, tombstones)

    def run(self, should_stop: Callable[[], bool]) -> list[PartitionCopy]:
        """Copy until everything ended or ``should_stop`` says so; batches under way are awaited.

        :raises LeaseLost: when the lease is gone; nothing is written from then on.
        """
        options, check = self._options, self._check_lease
        with (
            selectors.DefaultSelector() as self._selector,
            self._clusters.source(f"airflow-mirror.{options.mirror}") as self._source,
            self._clusters.target(f"airflow-mirror.{options.mirror}") as self._target,
        ):
            self._in = SourceSide(self._source, self._selector, Memory(_MEMORY_BYTES), self._isolation, self, self._clock)
            pace = Pace(options.max_bytes_per_second, self._clock)
            self._out = TargetSide(self._target, self._selector, pace, options.mirror, check, self, self._clock)
            self._steps = Steps(self._clusters.target, options, self._selector, check, self)
            try:
                _learn(self._source, {p.range.source_topic for p in self.partitions})
                _learn(self._target, {p.range.target_topic for p in self.partitions})
                # From here on the loop itself waits, for each partition apart; these would make all others wait too.
                self._source.hurry()
                self._target.hurry()
                told = ask(self._source, self._target, [p.range for p in self.partitions])
                for p in self.partitions:
                    self._open(p, told[p.range])
                while not should_stop() and not self._ended():
                    self._step()
                self._watch(now=True)
                self._drain()
            finally:
                self._steps.close()
                self._in.close()
                self._out.close()
        return self.partitions

    # --- one turn of the loop ----------------------------------------------------------------------------------------

    def _step(self) -> None:
        self._check_lease()
        self._in.drop_silent(_SILENCE_S)
        self._out.drop_silent(_SILENCE_S)
        self._reopen_due()
        self._watch()
        for p in self.partitions:
            self._advance(p)
        # After that, because what was dropped made room, and before the writing: the broker reads meanwhile.
        self._in.send(p for p in self.partitions if p not in self._reopen_at)
        self._out.send()
        self._in.poll()
        self._store_maps_now_and_then()
        self._await_answers(self._idle_s())

    def _idle_s(self) -> float:
        """Return how long to sleep when nothing happens: until the first pause that was imposed on us is over."""
        return min([_IDLE_S, *(pause for pause in chain(self._in.pauses(), self._out.pauses()) if pause > 0)])

    def _advance(self, p: PartitionCopy) -> None:
        """Start a partition's next step, or queue it when it has a batch to send."""
        if p.busy or self._out.has(p):
            return
        try:
            step = p.next_step()
            if isinstance(step, Send):
                self._out.queue(p)
            elif step is not None:
                self._steps.start(p, step)
        except MirrorError as e:
            self.failed(p, e)

    def _ended(self) -> bool:
        return all(p.done or p.error is not None for p in self.partitions)

    def _await_answers(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            if isinstance(key.data, FetchLane):
                self._in.receive(key.data)
            elif isinstance(key.data, ProduceLane):
                self._out.receive(key.data)
            else:
                self._steps.receive()

    def _drain(self) -> None:
        """Await what was sent: its answer tells whether more was appended than the counters say. Commit what is open."""
        deadline = self._clock() + PRODUCE_TIMEOUT_MS / 1000
        while self._clock() < deadline:
            for p in self.partitions:
                if p.open_bytes >= 0 and not p.busy and p.error is None and p not in self._reopen_at:
                    self._steps.start(p, Commit(p.position))
            if not self._steps.busy and not self._out.busy:
                break
            self._await_answers(_IDLE_S)
        self._store_maps()

    # --- offset maps -------------------------------------------------------------------------------------------------

    def _store_maps_now_and_then(self) -> None:
        if self._store is not None and self._clock() - self._maps_stored > _STORE_MAPS_EVERY_S:
            self._store_maps()
            self._maps_stored = self._clock()

    def _store_maps(self) -> None:
        for p in self.partitions:
            self._store_map(p)

    def _store_map(self, p: PartitionCopy) -> None:
        """Store what was mapped since the last time, as a part of its own."""
        if self._store is None or p.map is None or p.map.source_end == p.map.source_start:
            return
        try:
            self._store.append(p.range.map_key, p.map)
            self._store.compact(p.range.map_key)
        except OSError as e:
            log.warning("offset map of %s not stored, it is derived at the next start: %s", p.range.source, e)
            return
        p.map = OffsetMap(p.map.source_end, p.map.target_end)

    # --- opening and reopening ---------------------------------------------------------------------------------------

    def _open(self, p: PartitionCopy, told: Answers | MirrorError) -> None:
        try:
            if isinstance(told, MirrorError):
                raise told
            p.reopen(self._opening(p, told))
            self._opened = self._open_since[p] = self._clock()
        except OSError as e:
            self.failed(p, TryAgain(f"{p.range.source}: its offset map can't be stored: {e}"))
        except MirrorError as e:
            self.failed(p, e)

    def _opening(self, p: PartitionCopy, told: Answers) -> Opening:
        mirror, check = self._options.mirror, self._check_lease
        if self._store is None or not p.range.is_mapped:
            try:
                found = open_partition(self._source, self._target, p.range, told, mirror, self._isolation, check)
            except SourceTruncated as e:
                self._check_not_foreign(p, e.end_offset)  # a foreign record makes the target the longer one too
                raise
            self._check_not_foreign(p, found.position)
            return found
        self._store_map(p)
        return open_mapped(
            self._source, self._target, p.range, told, mirror, self._isolation, self._store, check,
            transactional=p.transactional,
        )  # fmt: skip

    def _check_not_foreign(self, p: PartitionCopy, end: int) -> None:
        """Compare what the target got since this copy last wrote to it."""
        if p.opened and end > p.position:
            recheck.not_foreign(self._source, self._target, p.range, p.producer_id, p.position, end, self._isolation)

    def failed(self, p: PartitionCopy, error: MirrorError) -> None:
        """Decide what an error means: the whole task stops, the partition stops, or it tries again."""
        if isinstance(error, LeaseLost):
            raise error
        if isinstance(error, TryAgain | TargetMoved):
            # A moved end: opening tells whether another copier of ours was here (go on) or a foreign writer (stop).
            self.retry_later(p, error)
        else:
            self.stop(p, error)
            if isinstance(error, SourceTruncated) and isinstance(error.__cause__, UnknownTopic):
                self._stop_rest_of_topic(error)

    def _stop_rest_of_topic(self, gone: SourceTruncated) -> None:
        """Stop the other partitions of a topic that is gone; asking for each takes a second, in which all others wait."""
        for p in self.partitions:
            if p.error is None and p.range.source_topic == gone.topic and not p.done:
                start, end = affected(p.range, p.position)
                self.stop(p, SourceTruncated(gone.topic, p.range.partition, start, end, gone.cause, gone.remedy))

    def stop(self, p: PartitionCopy, error: MirrorError) -> None:
        """Stop a partition for good; the others go on."""
        log.error("%s stopped: %s", p.range.source, error)
        p.forget()
        p.error = error
        p.busy = False

    def retry_later(self, p: PartitionCopy, cause: Exception | str) -> None:
        """Forget what is in flight for a partition and re-read the target's end after a pause."""
        p.forget()
        p.busy = True  # nothing is sent for it until it is open again
        now = self._clock()
        if now - self._open_since.pop(p, now) > _FORGIVEN_S:
            p.failures = 0  # an acknowledged write says the same, but there may have been nothing to write
        p.failures += 1
        if p.failures == 1:
            self._failing_since[p] = now
        failing_s = now - self._failing_since[p]
        if failing_s > _PATIENCE_S:
            self.stop(p, TryAgain(f"{p.range.source}: no progress for {failing_s:.0f} s: {cause}"))
            return
        level = logging.INFO if p.failures < 3 else logging.WARNING
        log.log(level, "%s: reading the target's end again (attempt %d): %s", p.range.source, p.failures, cause)
        self._reopen_at[p] = now + _BACKOFF_S[min(p.failures, len(_BACKOFF_S)) - 1]

    def _reopen_due(self) -> None:
        now = self._clock()
        due = sorted((p for p, at in self._reopen_at.items() if at <= now), key=self._reopen_at.__getitem__)
        if not due:
            return
        self._refresh({p.range.source_topic for p in due}, {p.range.target_topic for p in due})
        told = ask(self._source, self._target, [p.range for p in due])
        for p in due:
            del self._reopen_at[p]
            self._open(p, told[p.range])
            # A machine that is gone lets each question wait for its whole time, until the metadata tell it.
            if self._clock() - now > _REOPEN_S:
                break

    def _watch(self, *, now: bool = False) -> None:
        if now or self._clock() - self._watched >= _WATCH_S:
            self._watched = self._clock()
            self._watch_topics()
            if now or self._watched - self._opened < _UNSURE_S:
                self._watch_starts()

    def _watch_starts(self) -> None:
        """See whether a target broker forgot in a crash that the fillers of priming were deleted.

        Its partitions may be complete, or have nothing to write, so that nothing else would open them again.
        """
        watched = {p.range.target: p for p in self.partitions if p.target_start > 0 and p not in self._reopen_at}
        # Nothing else looks for the leader of a partition that has nothing to write.
        self._refresh(set(), {tp.topic for tp in watched})
        led = [tp for tp in watched if not self._target.leaderless(tp)]
        try:
            for tp, start in self._target.log_starts(led).items():
                p = watched[tp]
                if start < p.target_start:
                    log.warning("%s: its log start fell from %d to %d: a broker died", tp, p.target_start, start)
                    priming.restore_start(self._target, self._options.mirror, tp, start, p.position, self._check_lease)
        except LeaseLost:
            raise
        except MirrorError as e:
            log.warning("log starts of the target not looked at: %s", e)

    def _watch_topics(self) -> None:
        """See whether a source topic was created again.

        The next fetch tells that as long as the new log is shorter than our position. Once it is as long, its records
        come as if they were the old topic's: a fetch names topics by name, and the new leader's epoch may be the same.
        """
        watched = [p for p in self.partitions if p.error is None and p.opened and p not in self._reopen_at]
        if watched:
            self._refresh({p.range.source_topic for p in watched}, set())
        found = {name: ask_topic_id(self._source, name) for name in {p.range.source_topic for p in watched}}
        for p in watched:
            if p.error is None:
                try:
                    now = found[p.range.source_topic]
                    if isinstance(now, MirrorError) and not isinstance(now, UnknownTopic):
                        raise now
                    recheck.same_topic(now, p.range, p.watched, p.position)
                    p.watched = p.position
                except MirrorError as e:
                    self.failed(p, e)

    def _refresh(self, source_topics: set[str], target_topics: set[str]) -> None:
        for cluster, topics in ((self._source, source_topics), (self._target, target_topics)):
            if not topics:
                continue
            try:
                cluster.refresh(topics)
            except MirrorError as e:  # a deleted topic too: opening its partition names it, and stops that one only
                log.warning("metadata not refreshed: %s", e)


def _map_store(partitions: Iterable[PartitionCopy], options: CopyOptions) -> MapStore | None:
    """Return where offset maps are kept, None when every offset stays as it is.

    :raises InputError: a mapped range without a place for its map.
    """
    mapped = [p.range.source for p in partitions if p.range.is_mapped]
    if not mapped:
        return None
    if options.map_dir is None:
        raise InputError(f"{mapped[0]}: mapped offsets need a place for the offset map. Give --map-dir.")
    return MapStore(options.map_dir)


def _learn(cluster: WireCluster, topics: set[str]) -> None:
    """Read the metadata of all topics at once. One that is gone is found when its partitions are opened."""
    try:
        cluster.refresh(topics)
    except (UnknownTopic, MissingRight) as e:
        log.warning("%s", e)
