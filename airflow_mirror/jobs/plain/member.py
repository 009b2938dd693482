"""A process that shares a mirror with the one that is its tail: it copies what that deals to it, and outlives it.

It says in the target's state who it is, looks there twice a second for a share, carries it out under the share's lease,
and reports. It listens to the tail as everybody does (`runner.active`): when that is silent, or has ended without being
asked to, the member ends its share and returns, and its caller tries to be the tail. Of several that do, one is decided.

A tail that is a Spark job deals nothing: there is no sharing with it, and the member says so and ends.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

from airflow_mirror.config import load
from airflow_mirror.copy.results import PartitionResult, add, summarise
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import (
    ClusterUnreachable,
    FollowDiffers,
    LedgerMissing,
    MirrorError,
    NeedsHuman,
    TailRuns,
    TryAgain,
)
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.supervision import MERCY_S
from airflow_mirror.jobs.plain import shares
from airflow_mirror.jobs.plain.shares import Share, named
from airflow_mirror.jobs.plain.workers import Workers
from airflow_mirror.jobs.progress.listener import Listener
from airflow_mirror.jobs.progress.table import Table
from airflow_mirror.jobs.runner import active
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat, JobId, Watch, active_tail
from airflow_mirror.jobs.runner.complaints import Complaints
from airflow_mirror.jobs.runner.state import LOST, RUNNING
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Decisions, Ledger
from airflow_mirror.ledger.records import SHARE, SIGN
from airflow_mirror.ledger.state import State, state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.owned import ended_by

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5
_PATIENCE_S = 5.0  # for one write, after which it looks again
_TURN_ASIDE_S = 2.0  # not all survivors need to plan at the same moment


class Verdict(Enum):
    """What a tail's end means for those who share its mirror."""

    GOES_ON = auto()
    """It runs."""
    TAKE_PLACE = auto()
    """It is gone, and somebody has to copy."""
    END = auto()
    """It was asked to stop, or the mirror has no tail any more."""


def judge(values: Mapping[str, bytes], tail: ActiveTail | None, status: str, watch: Watch) -> Verdict:
    """Return what to do, seen the tail that is decided by now.

    :param values: the state's. :param status: of the tail, by ``watch``.
    :raises NeedsHuman: it failed for a cause that its successor would meet, too.
    """
    if tail is None:
        return Verdict.END
    if status == RUNNING:
        return Verdict.GOES_ON
    if (by := active.stop_requested_by(values, tail)) is not None:
        log.info("stopping with the tail: %s asked for that", by)
        return Verdict.END
    sign = watch.sign(tail)
    if sign is not None and sign.blame in ("human", "input"):
        raise NeedsHuman(
            f"the tail on host {tail.host!r} has failed, and so would this process in its place", str(sign.error)
        )
    if status == LOST:
        log.warning("the tail on host %s gives no sign any more; this process takes its place", tail.host)
    else:
        log.info("the tail on host %s has ended; this process takes its place", tail.host)
    return Verdict.TAKE_PLACE


@dataclass(kw_only=True)
class Carried:
    """A share that is carried out.

    :ivar tail: job of the tail that gave it. :ivar progress: where its tasks report.
    """

    tail: str
    share: Share
    progress: Listener
    ending: threading.Event = field(default_factory=threading.Event)
    results: Future[list[PartitionResult]] = field(default_factory=Future)
    is_counted: bool = False
    stopped_at: float = float("inf")  # a partition, by the member's clock


class Member:
    """See the module. Belongs to one thread.

    :param source: reference to its settings; ``target`` likewise. :param clock: monotonic, in seconds.
    """

    def __init__(
        self, mirror: Mirror, source: str, target: str, them: Workers, status: StatusFile,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._mirror, self._source, self._target, self._clock = mirror, source, target, clock
        self._workers, self._status = them, status
        self._carried: Carried | None = None
        self._seen: dict[str, int] = {}  # by tail: the number of the last share that was taken up
        self._totals: dict[tuple[str, int, int], PartitionResult] = {}
        self._table = Table(())
        self._begun = clock()
        self._complaints = Complaints(log, "the tail is not heard, and what it dealt is copied on: %s")
        self._phase = ""

    def run(self, stopping: threading.Event) -> tuple[Verdict, str]:
        """Share until asked to stop, or the tail has ended; return what that means, and its last sign (`Watch.seen`).

        :raises NeedsHuman: see :func:`judge`; or all writing was ended.
        :raises TailRuns: the tail is a job that shares with nobody. :raises FollowDiffers: it has another Mirror.
        :raises MirrorError: no task can run here.
        """
        with ClusterAdmin(load(self._target, "target")) as target, self._sharing():
            ledger = Ledger(target)
            prefixes = SIGN.below(self._mirror.name), SHARE.below(self._mirror.name)
            state: State = state_of(target, *prefixes, patience_s=_PATIENCE_S)
            self._me = JobId(name=self._mirror.name, processes=self._workers.count)
            heartbeat, watch = Heartbeat(state, self._me, self._clock), Watch(state, self._clock)
            try:
                while not stopping.is_set():
                    self._require_tasks_run()
                    try:
                        verdict = self._look(ledger, state, heartbeat, watch)
                    except (TailRuns, FollowDiffers):
                        raise
                    except TryAgain as e:
                        self._complaints.of(e)
                        verdict = Verdict.GOES_ON
                    if verdict is Verdict.TAKE_PLACE and self._is_writing_ended(target, ledger):
                        verdict = Verdict.END
                    if verdict is not Verdict.GOES_ON:
                        return verdict, watch.seen
                    stopping.wait(_LOOK_EVERY_S)
                return Verdict.END, watch.seen
            finally:
                self._leave(state, heartbeat)

    def outcome(self) -> Outcome:
        """Return how it went: what this process has copied for its tails."""
        return summarise(self._totals.values(), self._clock() - self._begun) | {"gone": [], "waiting": []}, None

    def _look(self, ledger: Decisions, state: State, heartbeat: Heartbeat, watch: Watch) -> Verdict:
        tail = active_tail(ledger.values(), self._mirror.name)
        values = state.read()
        verdict = judge(values, tail, watch.status(tail) if tail is not None else "", watch)
        if tail is None or verdict is not Verdict.GOES_ON:
            return verdict
        if not tail.deals:
            raise TailRuns(self._mirror.name, tail.host, tail.directory)
        if differing := tail.differing(self._mirror):
            raise FollowDiffers(self._mirror.name, tail.host, differing)
        self._end_if_stopped()
        self._report_what_ended(state)
        self._take_up(tail, state, values)
        if heartbeat.is_due:
            heartbeat.give(RUNNING, **self._status.brief())
        return verdict

    def _take_up(self, tail: ActiveTail, state: State, values: Mapping[str, bytes]) -> None:
        """Begin with a new share, or end the old one first."""
        name, me, seen = self._mirror.name, self._me.job, self._seen.get(tail.job, 0)
        carried = self._carried
        if carried is not None and carried.tail != tail.job:
            self._end(carried)
        share = shares.share_of(values, name, tail.job, me, seen)
        if share is None:
            self._tell(tail, carried)
            return
        if carried is not None:  # it is reported when it has ended; then comes the next one's turn
            self._end(carried)
            return
        if not share.lists:
            if share.ends != seen:  # nobody here has heard of what it ends
                state.write(shares.reported(name, me, tail.job, share.number, [], values))
            self._seen[tail.job] = share.number
            return
        self._seen[tail.job] = share.number
        self._table = Table(one for part in share.lists for one in part)
        self._carried = Carried(tail=tail.job, share=share, progress=Listener(self._table))
        self._carried.results = self._thread.submit(partial(self._copy, self._carried))
        self._tell(tail, self._carried)

    def _copy(self, carried: Carried) -> list[PartitionResult]:
        share = carried.share
        work = CopyWork(
            source=self._source, target=self._target, options=share.options, lease=share.lease,
            report_to=carried.progress.address,
        )  # fmt: skip
        try:
            return self._workers.run(share.lists, work, share.seconds, carried.ending)
        finally:
            carried.progress.close()

    def _end(self, carried: Carried) -> None:
        carried.ending.set()
        self._workers.end_tasks()

    def _end_if_stopped(self) -> None:
        """End a share of which a partition has stopped: the tail has to hear why. The same cause often stops others."""
        carried = self._carried
        if carried is None or not self._table.has_stopped():
            return
        carried.stopped_at = min(carried.stopped_at, self._clock())
        if self._clock() - carried.stopped_at > MERCY_S:
            self._end(carried)

    def _require_tasks_run(self) -> None:
        carried = self._carried
        if carried is not None and carried.results.done() and (error := carried.results.exception()) is not None:
            self._carried = None
            raise error

    def _report_what_ended(self, state: State) -> None:
        carried = self._carried
        if carried is None or not carried.results.done():
            return
        results = self._results_of(carried)
        state.write(
            shares.reported(
                self._mirror.name, self._me.job, carried.tail, carried.share.number, results, state.read()
            )
        )  # fmt: skip
        self._carried = None  # not before: it is reported again if nobody knows that it is

    def _results_of(self, carried: Carried) -> list[PartitionResult]:
        results = carried.results.result()
        if not carried.is_counted:
            carried.is_counted = True  # it may be reported again
            for result in results:
                self._totals[result.key] = add(self._totals, result.going_on())
        return results

    def _leave(self, state: State, heartbeat: Heartbeat) -> None:
        """End what is carried out, report it, and take leave, so that the tail deals it to others at once."""
        try:
            if self._carried is not None:
                self._end(self._carried)
                if self._carried.results.exception() is None:
                    self._report_what_ended(state)
            heartbeat.forget()
        except MirrorError as e:
            log.warning("the tail does not hear that this process has left: %s", e)

    @contextmanager
    def _sharing(self) -> Iterator[None]:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="share")
        try:
            yield
        finally:
            if self._carried is not None:
                self._end(self._carried)
            self._thread.shutdown()
            self._carried, self._seen = None, {}

    def _is_writing_ended(self, target: ClusterAdmin, ledger: Decisions) -> bool:
        """Return whether the target is to be left alone, because its topics were handed over, and the tail ended by that.

        :raises NeedsHuman: all writing was ended, and nothing was handed over: a cutover is at work, or has backed out.
        """
        if not lease.is_writing_ended(target.wire, self._mirror.name):
            return False
        if not (by := ended_by(ledger.values(), self._mirror.name)):
            raise NeedsHuman(
                f"mirror {self._mirror.name!r}: the tail is gone, and this process does not take its place",
                "all writing was ended, by a cutover, say",
                "Start it again when the mirror is to copy.",
            )
        log.info("mirror %s was %s, and this process with it", self._mirror.name, by)
        return True

    def _tell(self, tail: ActiveTail, carried: Carried | None) -> None:
        phase = f"standing by: the tail on host {tail.host} has dealt this process nothing (yet)"
        if carried is not None:
            phase = f"copying for the tail on host {tail.host}: {named(carried.share.lists)}"
        if phase != self._phase:
            self._phase = phase
            log.info("%s", phase)
            self._status.update(phase)


def lives(mirror: str, target: str) -> bool:
    """Return whether the mirror has a tail that gives signs of life; may take as long as it takes to know.

    :param target: reference to its settings.
    """
    with ClusterAdmin(load(target, "target")) as admin:
        try:
            tail = active_tail(Ledger(admin).values(), mirror)
        except ClusterUnreachable:
            raise  # whoever begins would find the same
        except MirrorError as e:
            if not isinstance(e, LedgerMissing):
                log.warning("whether another tail of the mirror runs is not known: %s", e)
            return False
        return tail is not None and Watch(state_of(admin, SIGN.below(mirror))).settled(tail) == RUNNING


def sleep_jitter(stopping: threading.Event) -> None:
    """Wait a moment, each process another one."""
    stopping.wait(random.uniform(0, _TURN_ASIDE_S))
