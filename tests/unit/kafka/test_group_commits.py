"""Positions of groups are committed and removed, and what becomes of each is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetDeleteResponse
from kafka.protocol.consumer.group import OffsetCommitResponse

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import BrokerError, GroupActive, MissingRight, TryAgain
from airflow_mirror.kafka.admin import GroupPosition
from airflow_mirror.kafka.permit import unfenced
from tests.unit.kafka.test_groups import OLD, T0, T1, fetched
from tests.unit.kafka.world import (
    FIND_COORDINATOR,
    LOST,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    World,
    world,
)


def committed(*codes: int) -> Callable[[Any], Any]:
    topic = OffsetCommitResponse.OffsetCommitResponseTopic

    def answer(request: Any) -> Any:
        left = list(codes)
        topics = [
            topic(name=t.name, partitions=[
                topic.OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=left.pop(0))
                for p in t.partitions
            ])
            for t in request.topics
        ]  # fmt: skip
        return OffsetCommitResponse(topics=topics)

    return answer


def test_positions_are_committed_without_member_and_epoch() -> None:
    """A leader epoch of another cluster would mean nothing there."""
    with world() as w:
        w.answer(OFFSET_COMMIT, committed(0, 0))
        w.admin.commit_group_offsets("g", {T1: GroupPosition(7), T0: GroupPosition(3, "état")}, unfenced)
        (request,) = w.asked(OFFSET_COMMIT)
        assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (-1, "", None)
        ((p0, p1),) = [t.partitions for t in request.topics]
        assert (p0.committed_offset, p0.committed_metadata, p0.committed_leader_epoch) == (3, "état", -1)
        assert (p1.partition_index, p1.committed_offset) == (1, 7)


@pytest.mark.parametrize("code", [25, 27, 68])
@pytest.mark.parametrize("served", [{}, OLD])
def test_group_with_members_is_called_active(code: int, served: dict[int, tuple[int, int]]) -> None:
    with world(served) as w:
        w.answer(OFFSET_COMMIT, committed(code, code))
        with pytest.raises(GroupActive, match="'g'"):
            w.admin.commit_group_offsets("g", {T0: GroupPosition(3), T1: GroupPosition(3)}, unfenced)


def test_refused_partition_is_named_and_the_right_that_it_takes() -> None:
    wanted = {T0: GroupPosition(3), T1: GroupPosition(3)}
    with world() as w:
        w.answer(OFFSET_COMMIT, committed(0, 3))
        with pytest.raises(BrokerError, match="set offset of consumer group 'g' at orders-1.*UNKNOWN_TOPIC_OR_PARTITION"):
            w.admin.commit_group_offsets("g", wanted, unfenced)
        w.answer(OFFSET_COMMIT, committed(29, 29))
        with pytest.raises(MissingRight, match="lacks Read on topic 'orders'"):
            w.admin.commit_group_offsets("g", wanted, unfenced)
        w.answer(OFFSET_COMMIT, committed(30, 30))
        with pytest.raises(MissingRight, match="lacks Read on group 'g'"):
            w.admin.commit_group_offsets("g", wanted, unfenced)


def test_only_partitions_without_an_answer_are_set_again() -> None:
    def partitions(w: World) -> list[list[int]]:
        return [[p.partition_index for t in r.topics for p in t.partitions] for r in w.asked(OFFSET_COMMIT)]

    with world() as w:
        w.answer(OFFSET_COMMIT, committed(0, 16), LOST, committed(0))
        w.admin.commit_group_offsets("g", {T0: GroupPosition(3), T1: GroupPosition(3)}, unfenced)
        assert partitions(w) == [[0, 1], [1], [1]]


def committed_by_group(codes: dict[str, int]) -> Callable[[Any], Any]:
    """Each group gets its own code."""
    return lambda request: committed(*[codes.get(request.group_id, 0)] * 2)(request)


def test_failure_of_one_group_does_not_concern_the_commits_of_others() -> None:
    wanted = {f"g-{n}": {T0: GroupPosition(n), T1: GroupPosition(n)} for n in range(100)}
    codes = {"g-3": 25, "g-40": 15, "g-41": 29, "g-99": 7}
    with world() as w:
        w.answer(OFFSET_COMMIT, committed_by_group(codes))
        commits = w.admin.commit_groups(wanted, lambda: None)
        assert [r.group_id for r in w.asked(OFFSET_COMMIT)] == sorted(wanted)
    assert {g for g, c in commits.items() if c.done == {T0, T1}} == wanted.keys() - codes.keys()
    # After the other two answers it may be set all the same.
    assert {g for g, c in commits.items() if c.refused} == {"g-3", "g-41"}
    assert commits["g-3"].active and not commits["g-41"].active
    errors = {g: str(c.error) for g, c in commits.items() if c.error}
    assert errors.keys() == codes.keys() and "lacks Read on topic 'orders'" in errors["g-41"]


def test_commits_end_when_the_check_says_so_and_the_rest_is_not_sent() -> None:
    wanted = {f"g-{n:03}": {T0: GroupPosition(n)} for n in range(200)}
    left = [None] * 120

    def check() -> None:
        if not left:
            raise TryAgain("the lease is not confirmed")
        left.pop()

    with world() as w:
        w.answer(OFFSET_COMMIT, committed(0))
        commits = w.admin.commit_groups(wanted, check)
        assert len(w.asked(OFFSET_COMMIT)) == 120
        assert [bool(c.done) for c in commits.values()] == [True] * 120 + [False] * 80
        assert all(
            c.refused == {T0} and str(c.error) == "the lease is not confirmed" for c in list(commits.values())[120:]
        )
        w.answer(OFFSET_FETCH, fetched())
        assert w.admin.groups_offsets(["g-1"])  # no answer was left on the connection


def test_positions_of_a_group_behind_a_check_that_fails_are_told_from_refused_ones() -> None:
    """They are brought again at once; what a coordinator has refused waits for the next day."""
    many = {TopicPartition("orders", p): GroupPosition(1) for p in range(2001)}
    left = [None]

    def check() -> None:
        if not left:
            raise TryAgain("the lease is not confirmed")
        left.pop()

    with world() as w:
        w.answer(OFFSET_COMMIT, committed(*[0] * 1999, 29))
        commit = w.admin.commit_groups({"g": many}, check)["g"]
    refused, unsent = TopicPartition("orders", 1999), TopicPartition("orders", 2000)
    assert (len(commit.done), commit.refused, commit.unsent) == (1999, {refused, unsent}, {unsent})


def test_nobody_knows_of_commits_whose_answers_were_lost() -> None:
    wanted = {f"g-{n}": {T0: GroupPosition(n)} for n in range(9)}
    with world() as w:
        w.answer(OFFSET_COMMIT, committed(0), committed(0), LOST)
        commits = list(w.admin.commit_groups(wanted, lambda: None).values())
        assert all((c.done, c.refused) == (set(), set()) and c.error for c in commits[2:])
        assert not any(c.refused for c in commits)  # the reset may also take answers along that were on their way
        assert w.asked(FIND_COORDINATOR)
        w.answer(OFFSET_COMMIT, committed(0))
        assert all(c.done for c in w.admin.commit_groups(wanted, lambda: None).values())
        assert len(w.asked(FIND_COORDINATOR)) == 2


def deleted(*codes: int, code: int = 0) -> Callable[[Any], Any]:
    topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
    partition = topic.OffsetDeleteResponsePartition

    def answer(request: Any) -> Any:
        partitions = [partition(partition_index=i, error_code=c) for i, c in enumerate(codes)]
        return OffsetDeleteResponse(
            error_code=code, topics=[topic(name="orders", partitions=partitions)] if codes else []
        )

    return answer


def test_position_is_removed_and_an_unknown_one_is_ignored() -> None:
    with world() as w:
        w.answer(OFFSET_DELETE, deleted(0, 0))
        w.admin.forget_group_offsets("g", [T1, T0], unfenced)
        ((topic,),) = [r.topics for r in w.asked(OFFSET_DELETE)]
        assert [p.partition_index for p in topic.partitions] == [0, 1]
        w.answer(OFFSET_DELETE, deleted(code=69))
        w.admin.forget_group_offsets("never-seen", [T0], unfenced)
        w.admin.forget_group_offsets("g", [], unfenced)


@pytest.mark.parametrize(
    "answer, error, words",
    [
        (deleted(0, 86), BrokerError, "delete offset of consumer group 'g' at orders-1.*GROUP_SUBSCRIBED_TO_TOPIC"),
        (deleted(code=30), MissingRight, "lacks Delete on group 'g'"),
        (deleted(29, 29), MissingRight, "lacks Read on topic 'orders'"),
    ],
)
def test_failed_removal_of_a_position_names_its_cause(answer: Callable[..., Any], error: type, words: str) -> None:
    with world() as w:
        w.answer(OFFSET_DELETE, answer)
        with pytest.raises(error, match=words):
            w.admin.forget_group_offsets("g", [T0, T1], unfenced)
