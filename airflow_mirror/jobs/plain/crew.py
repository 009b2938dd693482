"""Processes of this host, and those of others that share the mirror, as a driver's crew (`jobs.driver.crew`)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult, unheard
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.jobs.driver.turns import Deal, Tail
from airflow_mirror.jobs.plain.dealer import Dealer
from airflow_mirror.jobs.plain.shares import Share, named
from airflow_mirror.jobs.plain.workers import Workers
from airflow_mirror.jobs.progress.listener import LOOPBACK

log = logging.getLogger(__name__)

_NOTHING_S = 1.0  # between two looks whether there is something to copy by now
_LOOK_EVERY_S = 0.5
_OVERDUE_S = 20.0  # how long others may take to end a turn that is over
_OURSELVES = ""


class PlainStream:
    """Turn after turn, in a thread; see :class:`.turns.Stream`.

    A turn ends for all when it ends for one: its tasks have all lost the lease then, or a partition has stopped.

    :param dealer: where there may be other processes.
    """

    def __init__(self, them: Workers, dealer: Dealer | None, tail: Tail, work: CopyWork, turn_s: float) -> None:
        self._workers, self._dealer, self._tail, self._work, self._turn_s = them, dealer, tail, work, turn_s
        self._with = dealer.present if dealer is not None else {}
        self._stopping, self._turn_ends = threading.Event(), threading.Event()
        self._deadline = float("inf")
        self._error: Exception | None = None
        self._overdue = False
        self._told = ""
        if dealer is not None:
            dealer.on_report = self.end_turn
        self._thread = threading.Thread(target=self._run, name="turns", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def is_partly_over(self) -> bool:
        """Never for long: the first task that ends ends the others (:meth:`.Workers.run`), and those of other hosts."""
        return False

    @property
    def must_restart(self) -> bool:
        """Whether another process has come or gone, or does not report although it gives signs of life."""
        return self._dealer is not None and (self._overdue or self._dealer.present != self._with)

    def failure(self) -> str:
        """Return what ended the thread."""
        return f"no turn follows: {self._error}"

    def end_turn(self) -> None:
        """Ask the tasks of the present turn to end."""
        self._turn_ends.set()
        self._workers.end_tasks()
        if self._dealer is not None:
            self._dealer.recall()

    def stop(self, wait_s: float) -> bool:
        """Ask the tasks to end; kill those of this host that have not reported in time."""
        self._deadline = time.monotonic() + wait_s
        self._stopping.set()
        self.end_turn()
        self._thread.join(wait_s + 2 * _LOOK_EVERY_S)
        if self._thread.is_alive():
            self._workers.kill()
            self._thread.join()
        return self._tail.reported.is_set()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn_ends.clear()  # before it is dealt: who ends it after that means this one
                if self._stopping.is_set():
                    return
                deal = self._tail.deal()
                if deal.lists:
                    self._tail.reported.clear()
                    self._tail.take(self._turn(deal))
                else:
                    self._turn_ends.wait(_NOTHING_S)
        except Exception as e:  # the tail knows of those that concern it; the driver's loop asks for the others
            self._error = e
            log.info("the turns end: %s", e)

    def _turn(self, deal: Deal) -> list[PartitionResult]:
        parts = parted(deal.lists, {_OURSELVES: self._workers.count, **self._with})
        self._tell(parts)
        ours, work = parts.pop(_OURSELVES, []), replace(self._work, options=deal.options, deal=deal.number)
        numbers = self._given(parts, work)
        results = self._workers.run(ours, work, self._turn_s, self._turn_ends) if ours else []
        return results + self._of_others(numbers, parts, is_over=bool(ours))

    def _tell(self, parts: Mapping[str, Sequence[Sequence[CopyRange]]]) -> None:
        shared = [f"{job or 'this process'} copies {named(lists)}" for job, lists in parts.items()]
        text = f"{1 + len(self._with)} processes share the mirror; {'; '.join(shared)}"
        if self._with and text != self._told:
            log.info("%s", text)
        self._told = text

    def _given(self, parts: Mapping[str, Sequence[Sequence[CopyRange]]], work: CopyWork) -> dict[str, int]:
        if self._dealer is None or not parts:
            return {}
        numbers = self._dealer.give(
            {
                job: Share(number=0, lease=work.lease, options=work.options, lists=lists, seconds=self._turn_s)
                for job, lists in parts.items()
            }
        )
        if self._turn_ends.is_set():  # before there was something to recall
            self._dealer.recall()
        return numbers

    def _of_others(
        self, numbers: Mapping[str, int], parts: Mapping[str, Sequence[Sequence[CopyRange]]], is_over: bool
    ) -> list[PartitionResult]:
        if self._dealer is None or not numbers:
            return []
        since = time.monotonic() if is_over else float("inf")
        if is_over:
            self._dealer.recall()
        while (results := self._dealer.results(numbers, self._deadline, _LOOK_EVERY_S)) is None:
            if self._turn_ends.is_set():
                since = min(since, time.monotonic())
            self._overdue = time.monotonic() - since > _OVERDUE_S
        for job in self._dealer.unheard(numbers):
            results += unheard([one for part in parts[job] for one in part], f"process {job} does not report")
        return results


def parted(lists: Sequence[Sequence[CopyRange]], slots: Mapping[str, int]) -> dict[str, list[Sequence[CopyRange]]]:
    """Return which of the lists each process gets: one for each of its slots, the processes in turn.

    More lists than slots: somebody has left since they were dealt. Then some get more, until the next turn.
    """
    rounds = max(slots.values(), default=0)
    order = [job for round_no in range(rounds) for job, count in slots.items() if count > round_no]
    parts: dict[str, list[Sequence[CopyRange]]] = {}
    for number, one in enumerate(lists):
        parts.setdefault(order[number % len(order)], []).append(one)
    return parts


class PlainCrew:
    """See the module and :class:`.crew.Crew`."""

    hosts = LOOPBACK

    def __init__(self, them: Workers, dealer: Dealer | None = None) -> None:
        self._workers, self._dealer = them, dealer

    def slots(self) -> int:
        """One task for each process, here and elsewhere."""
        elsewhere = self._dealer.present.values() if self._dealer is not None else ()
        return self._workers.count + sum(elsewhere)

    def copy(self, dealt: Sequence[Sequence[CopyRange]], work: CopyWork) -> list[PartitionResult]:
        """Copy each list as a task of this host."""
        return self._workers.run(dealt, work)

    def follow(self, tail: Tail, work: CopyWork, turn_s: float) -> PlainStream:
        """Begin with the first turn."""
        return PlainStream(self._workers, self._dealer, tail, work, turn_s)

    def has_lost(self) -> bool:
        """Never: of several tasks all are ended when a process has died."""
        return False

    def may_start_again(self, error: Exception) -> bool:
        """Never: a process that died is started again when it has something to do."""
        return False


@contextmanager
def dealing_crew(them: Workers, mirror: str, tail: str, target: str) -> Iterator[PlainCrew]:
    """Yield a crew of these processes and of all that share the mirror, by the target's state.

    :param tail: job of the tail. :param target: reference to the target's settings.
    """
    dealer = Dealer(mirror, tail, target)
    dealer.start()
    try:
        yield PlainCrew(them, dealer)
    finally:
        dealer.close()
