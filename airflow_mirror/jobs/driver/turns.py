"""What a tail copies from turn to turn: its partitions, how they are distributed, and what its tasks reported."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import load
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange, deal
from airflow_mirror.copy.results import PartitionResult, add
from airflow_mirror.copy.task import turn_of
from airflow_mirror.errors import MirrorError, NeedsHuman, TryAgain
from airflow_mirror.jobs.driver.prepare import (
    CopyJob,
    joining_ranges,
    shared,
)
from airflow_mirror.jobs.driver.tail_states import TABLE, Event, State
from airflow_mirror.jobs.request import TURN_S
from airflow_mirror.jobs.runner.wishes import Wishes
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import same_topic
from airflow_mirror.plan.model import Plan, TopicPlan

log = logging.getLogger(__name__)

_MADE_AGAIN = "It is not copied. Delete the target topic, which holds the old one's records, and plan again."
_DELETED = "It is not copied any more. What was copied stays on the target; a new plan leaves it out."
_IDLE_BYTES = 64 << 10  # the weight of a partition without new records in a turn: requests and the opening


@dataclass(frozen=True, kw_only=True)
class Deal:
    """How the partitions of a turn are dealt out.

    :param number: grows with each change. :param options: how they are copied. :param lists: the ranges of each task.
    """

    number: int
    options: CopyOptions
    lists: list[list[CopyRange]]


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a tail copies else than before.

    :param joined: new ranges, if the tasks that run may copy them as well: no deal before this one had them, no range has
        left, and none is mapped. Else none, and another turn has to begin.
    :param deal: the first one that has them.
    """

    joined: list[CopyRange]
    deal: Deal


class Stream(Protocol):
    """Copies turn after turn of a tail, from when it was made; each as the tail deals it then."""

    @property
    def is_running(self) -> bool:
        """Whether another turn will follow. If not, the tail knows why, or :meth:`failure` says it."""

    @property
    def is_partly_over(self) -> bool:
        """Whether some tasks of the present turn have ended and others have not: it is to end for all."""

    @property
    def must_restart(self) -> bool:
        """Whether a task of it is not heard of any more, or others may copy than when it was made.

        It is to be stopped, and a new one made under another lease.
        """

    def failure(self) -> str:
        """Return why it runs no more."""

    def end_turn(self) -> None:
        """End the present turn early, as far as its tasks don't hear that where they report their progress."""

    def stop(self, wait_s: float) -> bool:
        """End it. Its lease was withdrawn; wait so many seconds at most until its tasks have reported.

        :return: every one has, under this lease: :attr:`Tail.reported` was set after the withdrawal.
        """


def _whole(ranges: Sequence[CopyRange]) -> set[TopicPartition]:
    """Return the source partitions that are followed whole: with key partitioning, into each target partition."""
    counts = Counter((r.source, r.key_partitions or 1) for r in ranges)
    return {source for (source, places), there in counts.items() if there == places}


class Tail:
    """The state of a running tail: which ranges it follows and what its turns reported.

    Ranges are distributed again for each turn, by the bytes of the previous turns, to as many tasks as run at the same
    time: a list that had to wait for a free slot would not be copied until then.

    :param tasks: number of tasks at most; None: as many as :attr:`slots` returns.
    :param stopping: set if the tail has to end.
    :ivar slots: returns how many tasks run at the same time.
    :ivar report_to: where tasks report their progress, from the next :meth:`deal` on.
    :ivar on_turn_end: called when all tasks of a turn have ended.
    :ivar gone: source topics that are not copied any more, and why.
    :ivar waiting: partitions that join once their leaders answer, and what was said of them at the last look.
    :ivar reported: no task runs, or may run without that we hear of it. A stream clears it before a turn.
    :ivar unheard: why one may.
    :ivar turns: how many have ended.
    """

    def __init__(self, job: CopyJob, tasks: int | None, stopping: threading.Event | None = None) -> None:
        self._job, self._tasks = job, tasks
        self._rate = job.options.max_bytes_per_second
        self._most: int | None = None
        self.report_to: str | None = None
        self.slots: Callable[[], int] = lambda: os.cpu_count() or 2
        self.on_turn_end: Callable[[], None] = lambda: None
        self._weights: dict[TopicPartition, int] = {}
        self._dealt: list[list[CopyRange]] = []
        self._number = 0  # of the last deal
        self._ever: set[CopyRange] = set()  # dealt out, in any deal so far
        self._turn: dict[str, Any] = {}
        self._tell: Callable[[dict[str, Any]], None] = lambda _: None
        self._dealing = threading.Lock()  # the stream's thread and the one that discovers partitions both distribute
        self.ranges: list[CopyRange] = []
        self.waiting: dict[TopicPartition, MirrorError] = {}
        self.gone: dict[str, str] = {}
        self.totals: dict[tuple[str, int, int], PartitionResult] = {}
        self.failed: MirrorError | None = None
        self.deposed: str | None = None  # why the tasks don't write: another job has taken the lease
        self.state = State.READY
        self.stream: Stream | None = None  # that copies now, or hands over
        self.stopping = stopping or threading.Event()
        self.withdrawn = threading.Event()  # the driver withdrew the lease from its tasks
        self.turns = 0
        self.reported = threading.Event()
        self.reported.set()
        self.unheard: str | None = None
        self.amended = threading.Event()  # the job has other topics than before; whoever follows it clears this

    @property
    def job(self) -> CopyJob:
        """What is carried out: the plan, with the topics that were added to it."""
        return self._job

    def take_in(self, job: CopyJob) -> None:
        """Carry out a job with more topics. :meth:`discover` finds their partitions."""
        self._job = job
        self.amended.set()

    def on(self, event: Event) -> None:
        """Go on to the next state."""
        self.state = TABLE.after(self.state, event)

    def is_over(self) -> bool:
        """Return whether the tail has to end, by now."""
        return self.failed is not None or self.stopping.is_set()

    def discover(self) -> Change | None:
        """Resolve the current partitions; return what changed, if anything did."""
        job, ranges = self._job, self.ranges
        running = {r.source_topic for r in ranges}
        with (
            ClusterAdmin(load(job.source, "source")) as source,
            ClusterAdmin(load(job.target, "target")) as target,
        ):
            there = self._present(job.plan, source, running)
            topics = {name: (t.target_topic, t.source_topic_id) for name, t in there.items()}
            # Of a partition that runs nothing is asked: it keeps the range with which it joined, because its start must
            # not move with the source's log start.
            found, waiting = joining_ranges(job, source.wire, topics, _whole(ranges))
            counts = {name: info.partitions for name, info in target.topics({r.target_topic for r in found}).items()}
        self._say_waiting(waiting)
        # A partition that the target does not have yet must not begin.
        known = {(r.source, r.target) for r in ranges}
        found = ranges + [
            r
            for r in found
            if (r.source, r.target) not in known and r.target.partition < counts.get(r.target_topic, sys.maxsize)
        ]
        with self._dealing:
            found = [r for r in found if r.source_topic not in self.gone]  # a turn may have ended meanwhile
            if set(found) == set(self.ranges):
                return None
            before, self.ranges = set(self.ranges), found
            joined = [r for r in found if r not in before]
            # A store of offset maps knows from its start which maps it keeps.
            may_join = before <= set(found) and self._ever.isdisjoint(joined) and not any(r.is_mapped for r in joined)
            # Under the same lock: a deal in between would have them, and count as one before.
            return Change(joined=joined if may_join else [], deal=self._deal())

    def _present(self, plan: Plan, source: ClusterAdmin, running: Collection[str]) -> dict[str, TopicPlan]:
        """Return the plan's topics that the source has, as planned; the others that don't run count as gone.

        Whether a running one is gone its tasks say, because they know up to where it was copied.
        """
        planned = {t.source_topic: t for t in plan.topics}
        found = source.topics(planned)
        there = {
            name: t
            for name, t in planned.items()
            if name in found and same_topic(t.source_topic_id, found[name].topic_id)
        }
        for name in there.keys() - set(running):
            self.gone.pop(name, None)  # a broker had not heard of it, or nobody could see it
        left = planned.keys() - there.keys() - set(running) - self.gone.keys()
        missing = source.wire.refresh_present(left)  # one that one broker does not list may be there all the same
        for name in sorted(left):
            if name in missing:
                self._is_gone(name, f"topic {name!r} is gone from the source, or hidden from this principal. {_DELETED}")
            elif name in found:
                self._is_gone(name, f"topic {name!r} was deleted and created again on the source. {_MADE_AGAIN}")
        return there

    def _say_waiting(self, waiting: Mapping[TopicPartition, MirrorError]) -> None:
        for tp, why in waiting.items():
            if tp not in self.waiting:
                log.warning("%s is not copied yet, and joins once its leader answers: %s", tp, why)
        self.waiting = dict(waiting)

    def _is_gone(self, topic: str, why: str) -> None:
        log.error("%s", why)
        self.gone[topic] = why

    @property
    def tasks(self) -> int:
        """The number of tasks of the next turn: never more than run at the same time, as a turn may last for weeks."""
        return min(self._tasks or sys.maxsize, self.slots(), self._most or sys.maxsize)

    @property
    def is_crowded(self) -> bool:
        """Whether executors were lost, so that a task has to wait until another one ends."""
        return self.tasks < len(self._dealt)

    @property
    def options(self) -> CopyOptions:
        """How the tasks of the next turn copy."""
        options = replace(self._job.options, max_bytes_per_second=self._rate)
        # Of few partitions there are fewer tasks, and all together have the rate.
        return options if self._most is None else shared(options, min(self._most, len(self.ranges) or self._most))

    def hear(self, wishes: Wishes) -> bool:
        """Copy at the wished rate from the next turn on; return whether it is another one than until now.

        While a rate holds, the number of tasks is fixed at what ran when it began, whatever joins later: each has its
        share.
        """
        before, self._rate = self._rate, wishes.rate_or(self._job.options.max_bytes_per_second)
        if self._rate is None:
            self._most = None
        elif self._most is None:
            self._most = self.tasks
        return self._rate != before

    def tell_turns(self, tell: Callable[[dict[str, Any]], None]) -> None:
        """Tell how the next turn is dealt (:func:`.task.turn_of`, and its number), now and whenever that changes."""
        with self._dealing:
            self._tell = tell
            self._tell_turn()

    def deal(self) -> Deal:
        """Distribute the ranges for the next turn."""
        with self._dealing:
            return self._deal()

    def _deal(self) -> Deal:
        weight = {r.source: _IDLE_BYTES + self._weights.get(r.source, 0) for r in self.ranges}
        self._dealt, options = deal(self.ranges, self.tasks, weight), self.options
        self._ever.update(self.ranges)
        turn = turn_of(options, self._dealt, self.report_to)
        if turn != self._turn:
            self._turn, self._number = turn, self._number + 1
            self._tell_turn()
        return Deal(number=self._number, options=options, lists=self._dealt)

    def _tell_turn(self) -> None:
        self._tell(self._turn | {"number": self._number})

    def weigh(self, brought: Mapping[TopicPartition, int]) -> None:
        """Deal from now on by the bytes that each partition brought lately."""
        with self._dealing:
            self._weights |= brought

    def take(self, results: Sequence[PartitionResult]) -> None:
        """Add up the results of one turn.

        :raises TryAgain: another job has taken the lease (:attr:`deposed`), or a task was lost (:attr:`unheard`): no turn
            may follow under this lease.
        :raises NeedsHuman: a partition failed for good (:attr:`failed`).
        """
        try:
            self._take(results)
        finally:
            if self.unheard is None:
                self.reported.set()

    def _take(self, results: Sequence[PartitionResult]) -> None:
        errors = []
        self.turns += 1
        self.on_turn_end()
        for result in results:
            if result.unheard:
                self.unheard = result.error
            if result.unheard or self.withdrawn.is_set():
                result = result.going_on()
            if result.source_gone:
                self._is_gone(result.topic, str(result.error))  # the last partition's words stand for all
                result = replace(result, error=None, final=False)  # its other topics are a mirror, too
            self.totals[result.key] = add(self.totals, result)
            tp = TopicPartition(result.topic, result.partition)
            brought = round(result.bytes * min(1.0, TURN_S / max(result.seconds, 1.0)))  # in the usual time of a turn
            self._weights[tp] = (self._weights.get(tp, brought) + brought) // 2
            if result.error:
                errors.append(result)
        aborts = self._job.options.aborts_when_given_up
        final = [r for r in errors if r.final or aborts]
        if final and all(r.lease_lost for r in final) and not self.stopping.is_set():
            # How a cutover ends a tail, and another tail this one: what became of the mirror is said at the end.
            self.deposed = str(final[0].error)
            raise TryAgain(self.deposed)
        # If not final, the next turn opens the partition again, at its target's log end offset of that time.
        # A lost lease is said below alone: asked to stop by then, this tail has mostly heard already who has it.
        for words, error in {str(e.error): e for e in errors if not e.lease_lost}.items():
            log.log(logging.ERROR if error.final else logging.WARNING, "%s", words)
        if final:
            kind = NeedsHuman if any(r.final for r in final) else TryAgain
            self.failed = kind("\n".join(dict.fromkeys(str(r.error) for r in final)))
            raise self.failed
        if self.unheard is not None:
            raise TryAgain(self.unheard)
        if any(r.source_gone for r in results):
            with self._dealing:
                self.ranges = [r for r in self.ranges if r.source_topic not in self.gone]
        self.deal()
