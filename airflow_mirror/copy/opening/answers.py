"""Query both clusters for what opening needs, for many partitions at once, and return the answers as values.

Opening a partition takes seven to nine small requests. Sent one after another for a thousand partitions, they cost
seconds of round trips; the same question for many partitions fits into one request per leader. Each leader is asked once.
If it does not answer for a partition, only that partition gets an error, and it is retried after a pause.

The target's log end is read before and after all other target questions (`journal`), and the source is queried after the
target, so that a copier that is still writing can't make the source look shorter than the target. Records appended later
are caught by the contiguous sequences and the check of the returned base offset, as in every opening.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import MirrorError, TargetGone
from airflow_mirror.wire import requests
from airflow_mirror.wire.cluster import Ask, WireCluster
from airflow_mirror.wire.errors import UnknownTopic
from airflow_mirror.wire.requests import EpochEnd
from airflow_mirror.wire.single import unsettled
from airflow_mirror.wire.topology import Leader, ProducerState

NOBODY = Leader(-1, -1)


@dataclass(frozen=True, kw_only=True)
class TargetAnswers:
    """What the target answered about one of its partitions.

    :param leader: the leader before the first question.
    :param end: the log end offset before the other questions; ``end_after``: the one after them.
    :param high_watermark: records can be read up to here.
    :param producers: the producer states that the leader remembers.
    """

    leader: Leader
    end: int
    high_watermark: int
    log_start: int
    producers: Sequence[ProducerState]
    end_after: int

    def check_readable(self, tp: TopicPartition) -> None:
        """Check that everything below :attr:`end` can be read.

        :raises TryAgain: it can't: records above the high watermark will still be replicated or truncated.
        """
        if self.high_watermark < self.end:
            raise unsettled(tp, self.end, f"its replicas don't follow (high watermark {self.high_watermark})")

    def check_still(self, tp: TopicPartition) -> None:
        """Check that nothing was appended between the questions, so that the answers form one snapshot.

        :raises TryAgain: something was appended.
        """
        if self.end != self.end_after:
            raise unsettled(tp, self.end_after, f"it ended at {self.end} a moment ago, so somebody else writes to it")


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What both clusters answered about the two sides of a range.

    :param topic_id: the source topic's id, or the error that says why it has none; the source's leader and offsets are
        unknown then.
    :param leader: leader of the source partition before the first question.
    :param epoch_ends: end offsets, in the leader's log, of the requested leader epochs (`epochs`).
    """

    target: TargetAnswers
    topic_id: str | UnknownTopic
    leader: Leader = NOBODY
    log_start: int = -1
    high_watermark: int = -1
    epoch_ends: Mapping[int, EpochEnd] = field(default_factory=dict)


class Question(NamedTuple):
    """A question to ask a leader about many partitions: its name, the request, and the ACL operation that it needs."""

    what: str
    ask: Ask[int]
    operation: str = "Describe"


def _offsets(what: str, timestamp: int) -> Question:
    return Question(
        f"ListOffsets ({what})",
        lambda connection, led: requests.list_offsets(connection, led, timestamp, requests.READ_UNCOMMITTED),
    )


# Asked about its own epoch a leader answers with its log's end (LeaderEpochFileCache.endOffsetFor; KIP-320).
_LOG_END = Question("OffsetForLeaderEpoch", requests.log_ends)
_LOG_START = _offsets("log start", requests.EARLIEST)
_HIGH_WATERMARK = _offsets("high watermark", requests.LATEST)


class _Round:
    """The partitions of one cluster that have answered everything so far. One that fails is not asked again."""

    def __init__(self, cluster: WireCluster, tps: Iterable[TopicPartition]) -> None:
        self._cluster = cluster
        self.left = list(dict.fromkeys(tps))
        self.leaders: dict[TopicPartition, Leader] = {}
        self.errors: dict[TopicPartition, MirrorError] = {}
        for tp in self.left:
            try:
                # The leader of before the first question. Its epoch goes into each fetch, so that one elected behind
                # our questions refuses them, and its log is asked for anew.
                self.leaders[tp] = cluster.leader(tp)
            except MirrorError as e:
                self.errors[tp] = e
        self._drop()

    def ask(self, question: Question) -> dict[TopicPartition, int]:
        # Once, without a retry: a leader that is silent would hold up all partitions of this round. Nothing was changed
        # by asking, so who has no answer is just opened again.
        answers, errors = self._cluster.ask_each(question.what, self.left, question.ask, question.operation)
        self._drop(errors)
        return answers

    def epoch_ends(self, epochs: Mapping[TopicPartition, Collection[int]]) -> dict[TopicPartition, dict[int, EpochEnd]]:
        """Ask for one epoch per partition at a time; with key partitioning, one source partition may need several."""
        ends: dict[TopicPartition, dict[int, EpochEnd]] = {}
        left = {tp: sorted(epochs.get(tp, ())) for tp in self.left if self.leaders[tp].epoch >= 0}
        while left := {tp: several for tp, several in left.items() if several and tp not in self.errors}:
            # A leader that was elected since the first question has another epoch, and refuses this one (KIP-320): what
            # is put together is one leader's.
            now = {tp: several.pop() for tp, several in left.items()}
            answers, errors = self._cluster.ask_each(
                "OffsetForLeaderEpoch", now, partial(requests.epoch_ends, epochs=now), "Describe"
            )
            self._drop(errors)
            for tp, answer in answers.items():
                ends.setdefault(tp, {})[now[tp]] = answer
        return ends

    def producers(self) -> dict[TopicPartition, list[ProducerState]]:
        answers, errors = self._cluster.ask_each("DescribeProducers", self.left, requests.describe_producers, "Read")
        self._drop(errors)
        return answers

    def _drop(self, errors: Mapping[TopicPartition, MirrorError] | None = None) -> None:
        # Its other answers are thrown away, too: half of a snapshot is none. The loop opens this partition again.
        self.errors.update(errors or {})
        self.left = [tp for tp in self.left if tp not in self.errors]


def ask_target(target: WireCluster, tps: Iterable[TopicPartition]) -> dict[TopicPartition, TargetAnswers | MirrorError]:
    """Query target partitions. Each gets its answers, or the error that says why there are none."""
    # The end first and last. What is asked in between belongs together only if both are equal (`check_still`): a batch
    # that lands in between may be in one answer and not in the other, and the sequence would not be that of the end
    # (measured: 1 of 6 runs with two copiers corrupted).
    asked = _Round(target, tps)
    ends, watermarks, starts = asked.ask(_LOG_END), asked.ask(_HIGH_WATERMARK), asked.ask(_LOG_START)
    producers, ends_after = asked.producers(), asked.ask(_LOG_END)
    answers: dict[TopicPartition, TargetAnswers | MirrorError] = dict(asked.errors)
    for tp in asked.left:
        answers[tp] = TargetAnswers(
            leader=asked.leaders[tp], end=ends[tp], high_watermark=watermarks[tp], log_start=starts[tp],
            producers=producers[tp], end_after=ends_after[tp],
        )  # fmt: skip
    return answers


def ask_again(target: WireCluster, tp: TopicPartition) -> TargetAnswers:
    """Query the target again about one partition, after the partition was changed.

    :raises MirrorError: why the partition could not answer.
    """
    # All of it once more, as one snapshot: what was read before belongs to an end that our own change has moved.
    told = ask_target(target, [tp])[tp]
    if isinstance(told, MirrorError):
        raise told
    return told


def ask(
    source: WireCluster, target: WireCluster, ranges: Iterable[CopyRange],
    epochs: Mapping[TopicPartition, Collection[int]] | None = None,
) -> dict[CopyRange, Answers | MirrorError]:  # fmt: skip
    """Query both clusters about all ranges to be opened. Each range gets its answers, or the error that says why not.

    The topic metadata must have been fetched; a source topic that is then unknown no longer exists.

    :param epochs: leader epochs of source partitions whose end offsets to query, if the leader has an epoch.
    """
    wanted = list(dict.fromkeys(ranges))
    # From metadata that `learn` has just read. A topic that is created again behind it is caught by the watch within
    # seconds, and on the target by the broker, which refuses a batch for another id (4.0).
    topic_ids = {name: ask_topic_id(source, name) for name in {r.source_topic for r in wanted}}
    target_ids = {name: ask_topic_id(target, name) for name in {r.target_topic for r in wanted}}
    gone = {r: error for r in wanted if (error := target_gone(target_ids[r.target_topic], r)) is not None}
    with_source = [r for r in wanted if isinstance(topic_ids[r.source_topic], str)]
    # A partition without a leader on one side is not queried on the other.
    led = _Round(source, [r.source for r in with_source])
    # The target before the source's ends: an orphan that still copies moves the target. Asked in the other order, its
    # batch would make the target look longer than the source, which is what a truncated source looks like.
    told = ask_target(target, [r.target for r in wanted if r.source not in led.errors])
    led.left = [r.source for r in with_source if r.source in led.left and not isinstance(told[r.target], MirrorError)]
    starts, watermarks = led.ask(_LOG_START), led.ask(_HIGH_WATERMARK)
    epoch_ends = led.epoch_ends(epochs or {})

    def of(copy_range: CopyRange) -> Answers | MirrorError:
        # First: whatever else was answered is about a topic that is not this copy's.
        if copy_range in gone:
            return gone[copy_range]
        here = topic_ids[copy_range.source_topic]
        if isinstance(here, MirrorError) and not isinstance(here, UnknownTopic):
            return here
        if (error := led.errors.get(copy_range.source)) is not None:
            return error
        theirs = told[copy_range.target]
        if isinstance(theirs, MirrorError):
            return theirs
        if isinstance(here, UnknownTopic):
            return Answers(target=theirs, topic_id=here)
        return Answers(
            target=theirs, topic_id=here, leader=led.leaders[copy_range.source], log_start=starts[copy_range.source],
            high_watermark=watermarks[copy_range.source], epoch_ends=epoch_ends.get(copy_range.source, {}),
        )  # fmt: skip

    return {one: of(one) for one in wanted}


def ask_topic_id(cluster: WireCluster, name: str) -> str | MirrorError:
    """Return a topic's id, or the error that says why it has none."""
    try:
        return cluster.topic_id(name)
    except MirrorError as e:
        return e


def target_gone(found: str | MirrorError, copy_range: CopyRange) -> TargetGone | None:
    """Return the error for a target topic that was created again; None if it is the known one, or nobody can tell.

    :param found: the target topic's id, or the error that says why it has none.
    """
    # An error or an empty id proves nothing: a broker that has just started has no other. What else is asked decides
    # then, and the next look.
    if not copy_range.target_topic_id or not isinstance(found, str) or found in ("", copy_range.target_topic_id):
        return None
    return TargetGone(copy_range.target_topic, copy_range.target_topic_id, found)


def ask_log_starts(cluster: WireCluster, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log start offset of each partition whose leader answers."""
    return _Round(cluster, tps).ask(_LOG_START)
