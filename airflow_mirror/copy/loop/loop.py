"""The task loop: one thread that keeps source and target brokers busy for many partitions at once.

The loop reads sockets, decides and writes; it waits for nothing but the next response. `source_side` fetches and
`target_side` produces. Slow work runs in threads with their own connections, which report back through the mailbox:
steps that wait for a coordinator (`steps`), opening partitions (`opener`), checking that topics are still the same
(`watch`), storing offset maps (`maps`) and connecting (`crew`).

After anything but the expected response, the partition re-reads the target's end and continues from there: an error
does not tell whether the batch was appended.
"""

from __future__ import annotations

import logging
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain
from typing import Any

from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.copy.loop.asked import Commit
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.crew import Crew, Dialler
from airflow_mirror.copy.loop.limits import Memory, Pace, Throttle
from airflow_mirror.copy.loop.mailbox import Mailbox
from airflow_mirror.copy.loop.maps import MapKeeper, store_of
from airflow_mirror.copy.loop.opener import NotOpened, Opened, Opener, Order
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.retries import Retries, Verdict, ends_all, verdict
from airflow_mirror.copy.loop.source_side import FetchLane, SourceSide
from airflow_mirror.copy.loop.standstill import Standstill
from airflow_mirror.copy.loop.states import ENDED, State
from airflow_mirror.copy.loop.steps import Steps
from airflow_mirror.copy.loop.target_side import PRODUCE_TIMEOUT_MS, ProduceLane, TargetSide
from airflow_mirror.copy.loop.watch import Watch
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.options import DEFAULT_MAX_BATCH_BYTES, CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import LeaseUnconfirmed, MirrorError
from airflow_mirror.wire import heart
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED

log = logging.getLogger(__name__)

# Fetch responses that a task holds. Throughput gains nothing beyond two full responses for each of two connections.
_MEMORY_BYTES = 48 << 20
_SILENCE_S = PRODUCE_TIMEOUT_MS / 1000 + 5  # a live broker responds within the request's timeout
_IDLE_S = 0.25  # how often an idle loop wakes up for stop requests and retries
_TICK_S = 0.001  # no selector waits for less, and no clock need move in less: it would spin
_HOLD_S = 5.0  # how long a partition that makes no progress may hold fetched data while others starve
LEASE_PATIENCE_S = 600.0  # how long a loop pauses while the lease can't be confirmed, unless its options say otherwise
# They wait for brokers nearly all the time: a silent one holds up one of them, and the partitions given to it.
_OPENERS = 4  # threads
# A target that is slow must not keep a task alive for what can be derived.
_MAPS_S = 60.0  # how long an ending copy waits until its offset maps are stored


class CopyLoop:
    """Copies ranges until each has reached its end or stopped with an error, or until the loop is told to stop.

    :param check_lease: raises LeaseLost if this process must never write again, LeaseUnconfirmed if not now.
    :param clock: monotonic, in seconds. :param store: of offset maps; None: the mirror's.
    """

    def __init__(
        self, ranges: Iterable[CopyRange], clusters: Clusters, options: CopyOptions, check_lease: Callable[[], None],
        clock: Callable[[], float] = time.monotonic, store: MapStore | None = None,
    ) -> None:  # fmt: skip
        self._clusters, self._options, self._check_lease, self._clock = clusters, options, check_lease, clock
        self._isolation = READ_COMMITTED if options.committed_only else READ_UNCOMMITTED
        self._touched: dict[PartitionCopy, None] = {}  # partitions with an event since the last turn
        self.partitions = [self._copy_of(r, options) for r in ranges]
        self._unended = self.partitions.copy()
        self.memory = Memory(_MEMORY_BYTES)
        self._throttles: dict[str, Throttle] = {}
        self._standstill = Standstill(self.memory, clock)
        self._store = store or store_of(self.partitions, options)
        bound_s = options.give_up_after_s
        self._retries = Retries(clock) if bound_s is None else Retries(clock, bound_s)
        self._lease_patience_s = LEASE_PATIENCE_S if bound_s is None else bound_s
        self._aborted = False
        self._seen: dict[PartitionCopy, int] = {}  # positions of partitions with a step in flight at the last `_shed`
        self._looked_at = clock()
        self._paused_at: float | None = None
        self._joining: deque[tuple[Sequence[CopyRange], CopyOptions]] = deque()

    def _copy_of(self, copy_range: CopyRange, options: CopyOptions) -> PartitionCopy:
        limit = options.max_batch_bytes.get(copy_range.target_topic, DEFAULT_MAX_BATCH_BYTES)
        transaction = options.transaction_bytes if options.transactional and copy_range.is_mapped else 0
        tombstones = copy_range.target_topic in options.tombstone_topics and not copy_range.is_mapped
        return PartitionCopy(
            copy_range, options.committed_only, limit, merge_below=heart.merge_below(options.merge_below),
            transaction_bytes=transaction, tombstones=tombstones, touched=self._touched,
        )  # fmt: skip

    def run(self, should_stop: Callable[[], bool]) -> list[PartitionCopy]:
        """Copy until all partitions have ended or ``should_stop`` returns True; wait for batches in flight.

        It ends before that when a partition stops and the options say that this is to end everything.

        :raises LeaseLost: the lease is lost; nothing is written after that.
        :raises LeaseUnconfirmed: the lease could not be confirmed for :data:`LEASE_PATIENCE_S`, or as the options say.
        """
        with ExitStack() as stack:
            stack.callback(self._forget)
            # Torn down in reverse: workers end their requests and release their partitions, crews end their jobs, and
            # only then the connections that the loop itself writes on are closed.
            self._begin(stack)
            # Each begins by being opened, whoever copied it a moment ago: nothing is known but what the logs say.
            self._retries.now(self.partitions)
            while not should_stop() and not self._ended() and not self._aborted:
                self._step()
            # What was copied since the last look may be of a topic that was created again. The look comes before the
            # draining, which waits for its answer: a process that ends here without it is caught by the next opening.
            self._watch.look(self.partitions, now=True)
            self._drain()
        return self.partitions

    def take_in(self, ranges: Sequence[CopyRange], options: CopyOptions) -> None:
        """Copy these as well, from the loop's next turn on. May be called by any thread.

        What comes when the copy is at its end is dropped, and in no result: nobody copies it until the next deal.

        :param options: what they say by topic holds for these; the rest stays as it is.
        """
        self._joining.append((ranges, options))

    def _join(self) -> None:
        """Open what is to be copied as well."""
        while self._joining:
            ranges, options = self._joining.popleft()
            mine = {p.range for p in self.partitions}
            joined = [self._copy_of(r, options) for r in ranges if r not in mine]
            self._out.know({p.range.target_topic: i for p in joined if (i := p.range.target_topic_id)})
            self._unended += joined
            # Last of all, and as a whole: the reporter's thread reads it.
            self.partitions += joined
            # Opened like any other: whoever wrote to the target before, its end and last records say where to go on.
            self._retries.now(joined)

    def gauges(self) -> dict[str, Any]:
        """Return what is so at this moment, for whoever reports from another thread: fetched bytes, and quotas in ms."""
        # By the reporter's thread, without a lock: numbers of two turns, perhaps, by which nothing is decided.
        throttled = {side: throttle.ms for side, throttle in self._throttles.items()}
        return {"held": self.memory.used, "throttled": {side: ms for side, ms in throttled.items() if ms}}

    def _forget(self) -> None:
        """Give back what the partitions still hold that have not ended."""
        for p in self.partitions:
            p.forget()

    def _begin(self, stack: ExitStack) -> None:
        """Set up what a run needs; ``stack`` tears it down in reverse order, whatever happens."""
        options, check, clock = self._options, self._check_lease, self._clock
        self._selector = stack.enter_context(selectors.DefaultSelector())
        mailbox = self._mailbox = stack.enter_context(closing(Mailbox(self._selector)))

        def crew(size: int) -> Crew:
            return stack.enter_context(closing(Crew(self._clusters, f"airflow-mirror.{options.mirror}", mailbox, size)))

        dialler = stack.enter_context(closing(Dialler(mailbox)))
        pace = Pace(options.max_bytes_per_second, clock)
        self._in = stack.enter_context(
            closing(SourceSide(dialler, self._selector, self.memory, self._isolation, self, clock))
        )
        ids = {p.range.target_topic: p.range.target_topic_id for p in self.partitions if p.range.target_topic_id}
        self._out = stack.enter_context(
            closing(TargetSide(dialler, self._selector, pace, options.mirror, ids, check, self, clock))
        )
        self._throttles = {"source": self._in.throttle, "target": self._out.throttle}
        self._openers, self._watchers, self._librarians = crew(_OPENERS), crew(1), crew(1)
        wanted = self._openers.check_wanted
        self._opener = Opener(options, self._isolation, self._store, wanted, partial(self._check_for, self._openers))
        self._watch = Watch(
            options.mirror, self._watchers, mailbox, partial(self._check_for, self._watchers), self, clock
        )  # fmt: skip
        self._maps = MapKeeper(
            self._store, self._librarians, mailbox, partial(self._check_for, self._librarians), clock
        )  # fmt: skip
        self._steps = stack.enter_context(closing(Steps(self._clusters.target, options, mailbox, check, self, clock)))

    def _check_for(self, crew: Crew) -> None:
        """Check, in a thread of ``crew``, whether the thread may write."""
        crew.check_wanted()
        self._check_lease()

    # --- one turn of the loop ----------------------------------------------------------------------------------------

    def _step(self) -> None:
        self._join()
        if self._is_paused():
            self._standstill.look(self.partitions, waits=True)
            self._await_answers(_IDLE_S)
            return
        self._open_due()
        self._watch.look(self.partitions)
        # Before anything is sent: behind an acknowledgement a partition is between two batches. Also what is queued: it
        # begins another one when its turn comes.
        self._steps.commit_old()
        touched = self._take_touched()
        for p in touched:
            self._advance(p)
        # After advancing, which frees buffers, and before writing, so that the broker reads while we write.
        self._in.send(touched)
        self._shed()
        # The lease is asked for each request, and once more for each rest of one that the kernel did not take.
        self._out.send()
        self._in.poll()
        # What was acknowledged by now. It is stored in a thread, and may lag behind: nothing waits for a map.
        self._maps.now_and_then(self.partitions)
        # A hole may take minutes to fill, and rates and throttles are meant to hold the copy up.
        waits = self._steps.busy or any(pause > 0 for pause in self._out.pauses())
        self._standstill.look(self.partitions, waits=waits)
        self._await_answers(self._idle_s())

    def _take_touched(self) -> list[PartitionCopy]:
        """Return the partitions with an event since the last turn: scanning thousands of them every turn is too slow."""
        touched = list(self._touched)
        self._touched.clear()
        return touched

    def _is_paused(self) -> bool:
        """Return whether the loop must pause because the lease is unconfirmed; responses are still processed."""
        now = self._clock()
        try:
            self._check_lease()
        except LeaseUnconfirmed as e:
            # Pausing writes nothing and loses nothing: each write asks for itself, this only spares the loop the work
            # of preparing it.
            if self._paused_at is None:
                self._paused_at = now
                log.warning("paused: %s", e)
            elif now - self._paused_at > self._lease_patience_s:
                raise
            return True
        if self._paused_at is not None:
            pause_s, self._paused_at = now - self._paused_at, None
            log.warning("continuing after %.1f s: the writer lease is confirmed again", pause_s)
            self._retries.forgive(pause_s)
        return False

    def _idle_s(self) -> float:
        """Return how long to sleep when nothing happens: until the first throttle, rate or retry pause ends."""
        pauses = chain(self._in.pauses(), self._out.pauses(), self._retries.pauses())
        return min([_IDLE_S, *(max(pause, _TICK_S) for pause in pauses if pause > 0)])

    def _advance(self, p: PartitionCopy) -> None:
        """Start a partition's next step, or queue the partition if it has a batch to send."""
        # One thing at a time. What is queued is asked for its step once more when a request is filled.
        if p.state is not State.READY or self._out.has(p):
            return
        try:
            step = p.next_step()
            if isinstance(step, Send):
                self._out.queue(p)
            elif step is not None:
                self._steps.start(p, step)
        except MirrorError as e:
            self.failed(p, e)

    def _shed(self) -> None:
        """Reclaim memory from partitions that make no progress while others could use it.

        A response's buffer lives until its last partition is done with it, so one frozen broker would block all others.
        """
        now = self._clock()
        if not self._in.starves or now - self._looked_at < _HOLD_S:
            return
        # What is in flight stays in flight: the rest of its bytes is held by its connection, and its answer is matched
        # with what is left to know of it.
        before, self._seen = self._seen, {p: p.position for p in self.partitions if p.is_under_way}
        self._looked_at = now
        for p, position in self._seen.items():
            if before.get(p) == position and (sent := p.shed()) is not None:
                self._out.expect(p, sent)

    def _ended(self) -> bool:
        while self._unended and self._unended[-1].state in ENDED:  # a final state
            self._unended.pop()
        return not self._unended

    def _await_answers(self, timeout_s: float) -> None:
        """Process received responses first; only then give up on silent brokers."""
        looked_at = self._clock()
        for key, _ in self._selector.select(timeout_s):
            if isinstance(key.data, FetchLane):
                self._in.receive(key.data)
            elif isinstance(key.data, ProduceLane):
                self._out.receive(key.data)
            else:
                self._mailbox.receive()
        # Use the time before select(): reading may have taken long, and responses may have arrived meanwhile.
        self._in.drop_silent(looked_at - _SILENCE_S, _SILENCE_S)
        self._out.drop_silent(looked_at - _SILENCE_S, _SILENCE_S)

    def _drain(self) -> None:
        """Wait for requests in flight, whose responses show whether more was appended than counted; end transactions."""
        self._steps.cut_short()
        # Death in here loses nothing: an open transaction is aborted by the next opening, which then begins at its start,
        # and a batch whose response nobody read is in the target's log end, or is sent again.
        deadline = self._clock() + PRODUCE_TIMEOUT_MS / 1000
        due = self.partitions
        while self._clock() < deadline:
            for p in due:
                # Committed rather than left: an open transaction holds back the target's readers until the next
                # takeover.
                if p.state is State.READY and p.open_bytes >= 0:
                    self._steps.start(p, Commit(p.position))
            if not self._steps.busy and not self._out.busy and not self._watchers.busy:
                break
            self._await_answers(_IDLE_S)
            due = self._take_touched()
        # Maps last: only what was acknowledged is in them. Death before they are stored makes the next start walk both
        # logs from where the last stored part ends.
        deadline = self._clock() + _MAPS_S
        self._await_maps(deadline)  # the maps being stored lack what was mapped since
        self._maps.store(self.partitions)
        self._await_maps(deadline)

    def _await_maps(self, deadline: float) -> None:
        """Wait until the maps are stored. What is not by the deadline is derived at the next start."""
        while self._librarians.busy and self._clock() < deadline:
            self._await_answers(_IDLE_S)

    # --- opening -----------------------------------------------------------------------------------------------------

    def _open_due(self) -> None:
        """Open the partitions whose pause is over. The loop leaves them alone until a thread reports them open."""
        # Skip partitions that a thread still pads, or whose map it still stores: opening reads the target's end, and the
        # end of the map, and either would move behind its back.
        due = self._retries.take_due(lambda p: not self._steps.has(p) and not self._maps.has(p))
        size = max(1, -(-len(due) // self._openers.size))
        for first in range(0, len(due), size):
            copies = due[first : first + size]
            orders = [self._order(p) for p in copies]
            self._openers.submit(partial(self._open_all, copies, orders))

    def _order(self, p: PartitionCopy) -> Order:
        # From here to `_opened` only the thread acts for the partition. What is handed to it is gone from here until it
        # comes back: a map that is lost with the process is derived from the logs.
        p.begin_opening()
        return Order(
            range=p.range, transactional=p.transactional, written_to=p.position if p.opened else None,
            producer_id=p.producer_id, mapped=p.take_map(), consumed=p.trail.at(p.position),
            if_landed=p.if_landed, heard_epoch=p.heard_epoch,
        )  # fmt: skip

    def _open_all(
        self, copies: Sequence[PartitionCopy], orders: Sequence[Order], source: WireCluster, target: WireCluster
    ) -> None:
        """Open partitions, in a thread; ``copies`` are only passed back to the loop."""

        def tell(place: int, found: Opened | NotOpened) -> None:
            self._mailbox.post(partial(self._opened, copies[place], found))

        self._opener.open_all(source, target, orders, tell)

    def _opened(self, p: PartitionCopy, found: Opened | NotOpened) -> None:
        if isinstance(found, NotOpened):
            # Not left to be derived: by the next attempt the source may have deleted or compacted away what it tells of.
            if found.left is not None:
                p.give_back_map(found.left)
            self.failed(p, found.error)
            return
        # As it was handed over: answers from before have an older generation, and neither a step nor a look begins for a
        # partition that is being opened.
        p.reopen(found.opening, found.source, found.target)
        self._retries.opened(p)
        self._watch.opened()

    # --- judging -----------------------------------------------------------------------------------------------------

    def failed(self, p: PartitionCopy, error: MirrorError) -> None:
        """Stop the whole task, stop the partition, or retry it, depending on the error."""
        match verdict(error, opened=p.opened):
            case Verdict.END_TASK:
                # `run` leaves by its stack, which begins no batch and no marker any more.
                raise error
            case Verdict.RETRY:
                self.retry_later(p, error)
            case Verdict.WAIT:
                # Due at once, and not opened before the lease is confirmed: until then the loop is paused (`_step`).
                p.fail()
                self._retries.now([p])
            case Verdict.STOP:
                self.stop(p, error)

    def stop(self, p: PartitionCopy, error: MirrorError) -> None:
        """Stop a partition for good; the others continue, unless the options say that one is enough."""
        log.error("%s stopped: %s", p.range.source, error)
        # Final, and in no file: the next job opens the partition again, and finds the same error, or that somebody has
        # mended it.
        p.stop(error)
        self._retries.drop(p)
        self._aborted |= ends_all(self._options, error)

    def retry_later(self, p: PartitionCopy, cause: Exception | str) -> None:
        """Discard what is in flight for a partition, and re-read the target's end after a pause."""
        error = self._retries.again(p, cause)  # first: what is in flight says whether it was failing
        p.fail()
        if error is not None:
            self.stop(p, error)

    def open_again(self, p: PartitionCopy, cause: str) -> None:
        """Do the same at the next turn. It is no failure: however often it happens, nothing is given up for it."""
        log.info("%s: reading the target's end again: %s", p.range.source, cause)
        p.fail()
        self._retries.now([p])
