"""What opening wants to know is asked in bulk, in an order that can't mislead, and comes back as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.opening import journal
from airflow_mirror.copy.opening.answers import Answers, TargetAnswers, ask, ask_again, ask_target
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import BrokerError, MirrorError, TryAgain
from airflow_mirror.wire.cluster import Leader, WireCluster
from airflow_mirror.wire.errors import UnknownTopic
from airflow_mirror.wire.fetch import READ_COMMITTED

RANGES = [
    CopyRange(source_topic="here", target_topic="there", partition=p, start_offset=0, end_offset=10) for p in range(50)
]
FIRST = RANGES[0].target


class Asked:
    """What both clusters are asked, in one count: an answer is the number of its question."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.partitions: list[set[TopicPartition]] = []
        self.counted: Counter[str] = Counter()


class Cluster:
    """Answers everything, but for partitions without a leader and those that fail at a question."""

    def __init__(self, role: str, asked: Asked) -> None:
        self.role, self.asked = role, asked
        self.leaderless: set[TopicPartition] = set()
        self.failing: dict[tuple[str, int], TopicPartition] = {}  # question, and which time it is asked
        self.gone: set[str] = set()

    def leader(self, tp: TopicPartition) -> Leader:
        if tp in self.leaderless:
            raise BrokerError(f"leader of {tp}", 5, "LEADER_NOT_AVAILABLE")
        return Leader(1, 7)

    def topic_id(self, topic: str) -> str:
        if topic in self.gone:
            raise UnknownTopic("Metadata", topic)
        return f"id of {topic}"

    def ask_each(
        self, what: str, tps: Iterable[TopicPartition], ask: object, operation: str
    ) -> tuple[dict[TopicPartition, Any], dict[TopicPartition, MirrorError]]:
        asked = self.asked
        asked.counted[what] += 1
        asked.questions.append(f"{self.role} {what}")
        asked.partitions.append(set(tps))
        fails = self.failing.get((what, asked.counted[what]))
        errors: dict[TopicPartition, MirrorError] = {}
        if fails is not None:
            errors[fails] = BrokerError(what, 6, "NOT_LEADER_OR_FOLLOWER")
        value: Any = [] if what == "DescribeProducers" else len(asked.questions)
        return {tp: value for tp in tps if tp != fails}, errors


class World:
    def __init__(self) -> None:
        self.asked = Asked()
        self.source, self.target = Cluster("source", self.asked), Cluster("target", self.asked)

    def ask(self, ranges: Iterable[CopyRange] = RANGES) -> dict[CopyRange, Answers | MirrorError]:
        return ask(cast("WireCluster", self.source), cast("WireCluster", self.target), ranges)

    def answers(self, copy_range: CopyRange) -> Answers:
        told = self.ask()[copy_range]
        assert isinstance(told, Answers)
        return told


@pytest.fixture
def world() -> World:
    return World()


def test_many_partitions_cost_as_many_questions_as_one(world: World) -> None:
    world.ask(RANGES[:1])
    alone = len(world.asked.questions)
    assert len(world.ask()) == len(RANGES)
    assert (alone, len(world.asked.questions)) == (7, 14)


def test_logs_end_is_asked_around_the_target_source_last(world: World) -> None:
    """The end before and after the rest of the target, and the source after all of that."""
    told = world.answers(RANGES[0])
    target = told.target
    assert target.end < min(target.high_watermark, target.log_start) < target.end_after < told.log_start
    assert target.end_after < told.high_watermark
    assert world.asked.questions.index("target DescribeProducers") + 1 < target.end_after


def test_a_partition_without_a_leader_costs_no_other_its_answers(world: World) -> None:
    world.target.leaderless.add(RANGES[3].target)
    world.source.leaderless.add(RANGES[4].source)
    told = world.ask()
    assert [isinstance(told[r], MirrorError) for r in RANGES[:6]] == [False, False, False, True, True, False]
    assert all(not {RANGES[3].target, RANGES[4].target, RANGES[3].source} & asked for asked in world.asked.partitions)


@pytest.mark.parametrize(
    "what", ["OffsetForLeaderEpoch", "ListOffsets (log start)", "ListOffsets (high watermark)", "DescribeProducers"]
)
def test_who_fails_at_one_question_is_not_asked_the_next(world: World, what: str) -> None:
    world.target.failing[what, 1] = RANGES[2].target
    told = world.ask()
    assert "NOT_LEADER" in str(told[RANGES[2]])
    assert isinstance(told[RANGES[1]], Answers)
    failed_at = world.asked.questions.index(f"target {what}")
    later = {RANGES[2].target, RANGES[2].source}
    assert all(not later & asked for asked in world.asked.partitions[failed_at + 1 :])


def test_a_source_that_fails_keeps_its_range_from_being_opened(world: World) -> None:
    world.source.failing["ListOffsets (high watermark)", 2] = RANGES[2].source
    told = world.ask()
    assert [isinstance(told[r], Answers) for r in RANGES[1:4]] == [True, False, True]


def test_answers_tell_the_target_end_of_a_gone_topic(world: World) -> None:
    world.source.gone.add("here")
    told = world.answers(RANGES[0])
    assert isinstance(told.topic_id, UnknownTopic)
    assert (told.target.end, told.high_watermark) == (1, -1)


def test_one_partition_asked_again_raises_what_kept_it_from_answering(world: World) -> None:
    world.target.failing["OffsetForLeaderEpoch", 2] = FIRST
    with pytest.raises(BrokerError, match="NOT_LEADER"):
        ask_again(cast("WireCluster", world.target), FIRST)
    assert isinstance(ask_target(cast("WireCluster", world.target), [FIRST])[FIRST], TargetAnswers)


@pytest.mark.parametrize(
    ("end", "high_watermark", "end_after", "says"),
    [(9, 8, 9, "its replicas don't follow"), (9, 9, 10, "somebody else writes")],
)
def test_unsettled_log_is_reported_and_not_waited_for(end: int, high_watermark: int, end_after: int, says: str) -> None:
    """A follower may be frozen for minutes: the partition comes back after a pause, in which all others go on."""
    told = TargetAnswers(
        leader=Leader(1, 7), end=end, high_watermark=high_watermark, log_start=0, producers=[], end_after=end_after
    )
    nobody = cast("WireCluster", None)  # nothing more is asked
    with pytest.raises(TryAgain, match=f"its log, which ends at .* is not settled: .*{says}"):
        journal.read(nobody, "m", FIRST, told, READ_COMMITTED)
