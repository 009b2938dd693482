"""One look: ask the source where its logs end, and note that on the target.

The copy knows better at each moment, in memory that is lost with it. What survives is a note every ten looks, and one at
once when the source does not answer: of the last look, and of the time at which it was missed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import MirrorError, TryAgain
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.ends import notes
from airflow_mirror.sync.ends.notes import SourceEnds
from airflow_mirror.sync.passes import Pass, PassReport, Sides, listed, log_offsets, same
from airflow_mirror.sync.write_permit import Stopped

_LOOK_S = 0.001  # between two looks, for each partition: 10,000 are asked for in 0.3 s
_NOTE_S = 0.003  # between two notes, for each partition: those of 10,000 take 30 kB, and a ledger is to stay small
Answers = dict[TopicPartition, tuple[int, int]]  # last stable offset and end
NAME = "source"  # under which the report stands in a job's signs of life


@dataclass(kw_only=True)
class EndsReport(PassReport):
    """One look.

    :param seen: when the source last answered, in seconds since the epoch, by this host's clock; None: never.
    :param partitions: of how many the ends are known.
    :param failed: partitions that did not answer, or why nothing could be asked.
    """

    head = "the ends of {partitions:partition} noted on the target, for a failover"
    seen: float | None = None
    partitions: int = 0
    failed: list[str] = listed("failed", "where the source ends is not noted: {line}")


class EndsFollower(Pass[EndsReport]):
    """Notes where the logs of a plan's source topics end. Its state holds the notes.

    :param clock: wall-clock time, in seconds.
    """

    report = EndsReport
    asks_first = False  # that the source was seen counts, whoever writes

    def __init__(self, sides: Sides, clock: Callable[[], float] = time.time) -> None:
        super().__init__(sides)
        self._clock = clock
        self._seen: float | None = None
        self._last: SourceEnds | None = None  # the last look in which the source answered
        self._peak, self._took_s = 0.0, 0.0  # busiest second since the last note; how long the last look took

    def make(self, plan: Plan, now_ms: int, report: EndsReport) -> None:
        """Look once. A source that does not answer is in the report; since when, its ``seen`` says.

        :raises Stopped: the job ends. :raises MirrorError: the notes can't be read.
        """
        begun = time.monotonic()
        mirror = plan.mirror.name
        stored = self._state.read()
        before = notes.load(mirror, stored) or SourceEnds(at_ms=0)
        try:
            answers, asked = self._ask(plan, report)
            # All topics may have been deleted, or created again: the source lives, unless it was built anew.
            lives = bool(answers) or (not report.failed and self._source.cluster_id() == plan.source_cluster_id)
        except TryAgain as e:
            answers, asked, lives = Answers(), list[TopicPartition](), False
            report.failed.append(str(e))
        if lives:
            self._seen = self._clock()  # whether it can be noted or not
        if answers:
            last = self._last = self._looked(before, answers, asked, now_ms)
            self._took_s = time.monotonic() - begun
            report.partitions = len(last.partitions)
            # One that is back and was noted as missed is noted at once: what it takes from now on counts.
            is_due = before.missed_ms is not None or not 0 <= now_ms - before.at_ms < 1000 * noted_every_s(len(asked))
        else:
            last = self._last or before
            if last.missed_ms is None and report.failed:  # if it was alive when it was asked, then not for another answer
                last = self._last = replace(last, missed_ms=now_ms + math.ceil(1000 * self._took_s))
            is_missed = last.missed_ms is not None and last.at_ms > 0
            is_due = is_missed and (before.missed_ms is None or before.at_ms < last.at_ms)
        if notes.is_newer(mirror, stored):
            report.failed.append("not noted: a newer version of airflow-mirror has noted where the source ends")
        elif is_due:
            self._note(last.changes(mirror, stored), report)
        report.seen = self._seen

    def _looked(self, noted: SourceEnds, answers: Answers, asked: list[TopicPartition], now_ms: int) -> SourceEnds:
        last = self._last or noted
        now = last.after(answers, asked, now_ms)
        peak = notes.rate_of(last.partitions, now.partitions, (now_ms - last.at_ms) / 1000) or 0.0
        self._peak = peak if noted.at_ms >= last.at_ms else max(self._peak, peak)
        return noted.after(answers, asked, now_ms, self._peak)

    def _note(self, changed: Mapping[str, bytes | None], report: EndsReport) -> None:
        try:
            with self._granted() as permit:
                self._state.write(changed, permit)
        except Stopped:
            raise
        except MirrorError as e:  # it must not hide that the source was seen
            report.failed.append(f"not noted: {e}")

    def _ask(self, plan: Plan, report: EndsReport) -> tuple[Answers, list[TopicPartition]]:
        """Return last stable offset and end of each partition that answers, and all that were asked."""
        wire = self._source.wire
        gone = wire.refresh_present({t.source_topic for t in plan.topics})
        ids = {t.source_topic: wire.topic_id(t.source_topic) for t in plan.topics if t.source_topic not in gone}
        kept = [t.source_topic for t in same(plan.topics, ids, report)]
        tps = [TopicPartition(name, p) for name in kept for p in range(wire.partitions(name))]
        # The end first: if the stable offset is below it even later, a transaction was open, and not only a record newer.
        ends, no_end = log_offsets(wire, "where logs end", tps)
        stable, not_stable = log_offsets(wire, "where logs end", tps, committed=True)
        report.failed += [f"{tp}: {error}" for tp, error in {**no_end, **not_stable}.items()]
        return {tp: (stable[tp], ends[tp]) for tp in tps if tp in stable and tp in ends}, tps


def looked_every_s(partitions: int) -> float:
    """Return how many seconds lie between two looks at so many partitions."""
    return max(1.0, _LOOK_S * partitions)


def noted_every_s(partitions: int) -> float:
    """Return how many seconds lie between two notes of so many partitions. Looks are more frequent."""
    return max(9.0, _NOTE_S * partitions)  # with the next look after that: ten
