"""Asks both clusters what opening needs, for many partitions at once, and returns the answers as values.

To open a partition takes seven to nine small questions; one after another, for a thousand partitions, that is seconds of
nothing but round trips. The same question for many partitions fits into one request to each leader. Each leader is asked
once: what it does not answer is an error of that partition alone, which comes back after a pause.

The target's log end is asked before and after everything else of the target (`journal`), and the source after the target,
so that a copier that is still writing can't make the source look shorter than the target. What is appended afterwards
meets the continued sequences and the check of the returned offset, as with every opening.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import LogUnsettled, MirrorError
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire import requests
from airflow_mirror.wire.cluster import Ask, WireCluster
from airflow_mirror.wire.errors import UnknownTopic
from airflow_mirror.wire.requests import EpochEnd
from airflow_mirror.wire.topology import Leader, ProducerState

NOBODY = Leader(-1, -1)


@dataclass(frozen=True, kw_only=True)
class TargetAnswers:
    """What the target said of one of its partitions.

    :param leader: who led it before the first question.
    :param end: the log's true end, before the other questions; ``end_after``: behind them.
    :param high_watermark: what can be read ends here.
    :param producers: those that the leader remembers.
    """

    leader: Leader
    end: int
    high_watermark: int
    log_start: int
    producers: Sequence[ProducerState]
    end_after: int

    def check_readable(self, tp: TopicPartition) -> None:
        """Check that everything below :attr:`end` can be read.

        :raises LogUnsettled: it can't: what is above the high watermark will be replicated, or truncated.
        """
        if self.high_watermark < self.end:
            raise LogUnsettled(tp, self.end, f"its replicas don't follow (high watermark {self.high_watermark})")

    def check_still(self, tp: TopicPartition) -> None:
        """Check that nothing was appended between the questions: the answers are one snapshot.

        :raises LogUnsettled: something was.
        """
        if self.end != self.end_after:
            raise LogUnsettled(tp, self.end_after, f"it ended at {self.end} a moment ago, so somebody else writes to it")


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What both clusters said of the two sides of a range.

    :param topic_id: the source topic's, or the error that says why there is none; the source's leader and its offsets
        are unknown then.
    :param leader: who led the source partition before the first question.
    :param epoch_ends: where the epochs that were asked about end in its log (`epochs`).
    """

    target: TargetAnswers
    topic_id: str | UnknownTopic
    leader: Leader = NOBODY
    log_start: int = -1
    high_watermark: int = -1
    epoch_ends: Mapping[int, EpochEnd] = field(default_factory=dict)


class Question(NamedTuple):
    """A question that a leader is asked about many partitions: its name, how it is put, and what an ACL must allow."""

    what: str
    ask: Ask[int]
    operation: str = "Describe"


def _offsets(what: str, timestamp: int) -> Question:
    return Question(
        f"ListOffsets ({what})",
        lambda connection, led: requests.list_offsets(connection, led, timestamp, requests.READ_UNCOMMITTED),
    )


_LOG_END = Question("OffsetForLeaderEpoch", requests.log_ends)
_LOG_START = _offsets("log start", requests.EARLIEST)
_HIGH_WATERMARK = _offsets("high watermark", requests.LATEST)


class _Round:
    """The partitions of one cluster that have answered everything so far; who fails once is asked no more."""

    def __init__(self, cluster: WireCluster, tps: Iterable[TopicPartition]) -> None:
        self._cluster = cluster
        self.left = list(dict.fromkeys(tps))
        self.leaders: dict[TopicPartition, Leader] = {}
        self.errors: dict[TopicPartition, MirrorError] = {}
        for tp in self.left:
            try:
                self.leaders[tp] = cluster.leader(tp)
            except MirrorError as e:
                self.errors[tp] = e
        self._drop()

    def ask(self, question: Question) -> dict[TopicPartition, int]:
        answers, errors = self._cluster.ask_each(question.what, self.left, question.ask, question.operation)
        self._drop(errors)
        return answers

    def epoch_ends(self, epochs: Mapping[TopicPartition, Collection[int]]) -> dict[TopicPartition, dict[int, EpochEnd]]:
        """Ask for one epoch of each partition at a time; partitioned anew by its keys, it may have several."""
        found: dict[TopicPartition, dict[int, EpochEnd]] = {}
        left = {tp: sorted(epochs.get(tp, ())) for tp in self.left if self.leaders[tp].epoch >= 0}
        while left := {tp: several for tp, several in left.items() if several and tp not in self.errors}:
            now = {tp: several.pop() for tp, several in left.items()}
            answers, errors = self._cluster.ask_each(
                "OffsetForLeaderEpoch", now, partial(requests.epoch_ends, epochs=now), "Describe"
            )
            self._drop(errors)
            for tp, answer in answers.items():
                found.setdefault(tp, {})[now[tp]] = answer
        return found

    def producers(self) -> dict[TopicPartition, list[ProducerState]]:
        answers, errors = self._cluster.ask_each("DescribeProducers", self.left, requests.describe_producers, "Read")
        self._drop(errors)
        return answers

    def _drop(self, errors: Mapping[TopicPartition, MirrorError] | None = None) -> None:
        self.errors.update(errors or {})
        self.left = [tp for tp in self.left if tp not in self.errors]


def ask_target(target: WireCluster, tps: Iterable[TopicPartition]) -> dict[TopicPartition, TargetAnswers | MirrorError]:
    """Ask about partitions of the target; each gets its answers, or the error that says why there are none."""
    asked = _Round(target, tps)
    ends, watermarks, starts = asked.ask(_LOG_END), asked.ask(_HIGH_WATERMARK), asked.ask(_LOG_START)
    producers, ends_after = asked.producers(), asked.ask(_LOG_END)
    found: dict[TopicPartition, TargetAnswers | MirrorError] = dict(asked.errors)
    for tp in asked.left:
        found[tp] = TargetAnswers(
            leader=asked.leaders[tp], end=ends[tp], high_watermark=watermarks[tp], log_start=starts[tp],
            producers=producers[tp], end_after=ends_after[tp],
        )  # fmt: skip
    return found


def ask_again(target: WireCluster, tp: TopicPartition) -> TargetAnswers:
    """Ask the target about one partition, after something was done to it.

    :raises MirrorError: what kept it from answering.
    """
    told = ask_target(target, [tp])[tp]
    if isinstance(told, MirrorError):
        raise told
    return told


def ask(
    source: WireCluster, target: WireCluster, ranges: Iterable[CopyRange],
    epochs: Mapping[TopicPartition, Collection[int]] | None = None,
) -> dict[CopyRange, Answers | MirrorError]:  # fmt: skip
    """Ask both clusters about all that is to be opened; each range gets its answers, or the error that says why not.

    The metadata of the topics must have been read; a source topic that is not known by then is gone.

    :param epochs: of source partitions: where they end in the leader's log is asked, too, if the leader has an epoch.
    """
    wanted = list(dict.fromkeys(ranges))
    topic_ids = {name: ask_topic_id(source, name) for name in {r.source_topic for r in wanted}}
    there = [r for r in wanted if isinstance(topic_ids[r.source_topic], str)]
    # Who has no leader on one side is not asked about on the other.
    led = _Round(source, [r.source for r in there])
    told = ask_target(target, [r.target for r in wanted if r.source not in led.errors])
    led.left = [r.source for r in there if r.source in led.left and not isinstance(told[r.target], MirrorError)]
    starts, watermarks = led.ask(_LOG_START), led.ask(_HIGH_WATERMARK)
    epoch_ends = led.epoch_ends(epochs or {})

    def of(one: CopyRange) -> Answers | MirrorError:
        here = topic_ids[one.source_topic]
        if isinstance(here, MirrorError) and not isinstance(here, UnknownTopic):
            return here
        if (error := led.errors.get(one.source)) is not None:
            return error
        theirs = told[one.target]
        if isinstance(theirs, MirrorError):
            return theirs
        if isinstance(here, UnknownTopic):
            return Answers(target=theirs, topic_id=here)
        return Answers(
            target=theirs, topic_id=here, leader=led.leaders[one.source], log_start=starts[one.source],
            high_watermark=watermarks[one.source], epoch_ends=epoch_ends.get(one.source, {}),
        )  # fmt: skip

    return {one: of(one) for one in wanted}


def ask_topic_id(source: WireCluster, name: str) -> str | MirrorError:
    """Return a topic's id, or the error that says why there is none."""
    try:
        return source.topic_id(name)
    except MirrorError as e:
        return e


def ask_log_starts(cluster: WireCluster, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the first offset of each partition whose leader says it."""
    return _Round(cluster, tps).ask(_LOG_START)
