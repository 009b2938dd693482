"""What opening asks of every partition, asked of all of them at once.

Opening a partition takes seven to nine small questions, one after another; for a thousand partitions that is seconds of
nothing but round trips. The same questions for many partitions fit into one request to each leader. So they are asked in
bulk before the first partition is opened, and each answer is then given once, in place of a question; after that the
cluster is asked again.

An opening sees nothing that it could not have seen by asking: the target's log end is asked before and after everything
else of the target (`journal`), and the source after the target, so that a copier that is still writing can't make the
source look shorter than the target. That the answers are older by the time of the pass is what every opening lives with:
whatever was appended meanwhile meets the continued sequences and the check of the returned offset.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TypeVar

from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import MirrorError
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire.cluster import Ask, WireCluster

log = logging.getLogger(__name__)

T = TypeVar("T")

_SOURCE_ANSWERS = 3  # so often an opening asks the source for the same


class PrereadCluster(WireCluster):
    """A cluster that answers some questions about single partitions from what was asked in bulk, each of them once."""

    _kept: dict[str, dict[TopicPartition, deque[object]]] | None = None
    _times = 0  # how often a bulk answer is given; 0: nothing is kept

    def keep(self, times: int) -> None:
        """Keep the answers to the questions that follow; each is given ``times`` more times."""
        self._kept = self._kept or {}
        self._times = times

    def done(self) -> None:
        """Keep nothing more; what was kept is given."""
        self._times = 0

    def ask_again(self) -> None:
        """Ask the cluster from now on."""
        self._kept, self._times = None, 0

    def _ask_leaders(
        self, what: str, tps: Iterable[TopicPartition], ask: Ask[T], operation: str
    ) -> dict[TopicPartition, T]:
        wanted = list(tps)
        if self._kept is None:
            return super()._ask_leaders(what, wanted, ask, operation)
        known = self._kept.setdefault(what, {})
        if not self._times and len(wanted) == 1 and (kept := known.get(wanted[0])):
            return {wanted[0]: kept.popleft()}  # type: ignore[dict-item]  # what was asked by this very question
        answers = super()._ask_leaders(what, wanted, ask, operation)
        for tp, answer in answers.items() if self._times else ():
            known.setdefault(tp, deque()).extend([answer] * self._times)
        return answers


def preread(source: PrereadCluster, target: PrereadCluster, ranges: Sequence[CopyRange]) -> None:
    """Ask both clusters in bulk for what opening ``ranges`` asks; without answers each opening asks by itself.

    Call :meth:`PrereadCluster.ask_again` on both once all are open.
    """
    # One without a leader would cost all others their answers; its opening waits anyway.
    ranges = [r for r in ranges if not (source.leaderless(r.source) or target.leaderless(r.target))]
    if len(ranges) < 2:
        return
    there = list(dict.fromkeys(r.target for r in ranges))
    here = list(dict.fromkeys(r.source for r in ranges))
    try:
        target.keep(1)
        target.log_ends(there)
        target.high_watermarks(there)
        target.log_starts(there)
        target.describe_producers(there)
        target.log_ends(there)
        target.done()
        source.keep(_SOURCE_ANSWERS)
        source.log_starts(here)
        source.high_watermarks(here)
        source.done()
    except MirrorError as e:  # a partition that is gone, or hidden: opening finds out which, and stops that one only
        log.info("partitions are opened one by one: %s", e)
        source.ask_again()
        target.ask_again()
