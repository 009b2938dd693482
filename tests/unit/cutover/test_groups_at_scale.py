"""What is asked behind the fence grows with the batches that groups are read in, not with groups and partitions.

Requests are counted, not timed. The brokers know groups; logs are stood in for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import DescribeGroupsResponse, ListGroupsResponse
from kafka.protocol.consumer.group import OffsetCommitResponse, OffsetFetchResponse

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover import groups
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from tests.builders import plan_of, topic_plan
from tests.unit.cutover.builders import Logs, a_run, want
from tests.unit.kafka.world import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    World,
    world,
)

PARTITIONS, END = 20, 50


class Groups:
    """The groups of one broker, each with one position per partition, all at the end; or none yet."""

    def __init__(self, broker: World, names: list[str], state: str, at: int | None) -> None:
        self.broker, self.names, self.state = broker, names, state
        self.at = {name: {} if at is None else dict.fromkeys(range(PARTITIONS), at) for name in names}
        broker.answer(LIST_GROUPS, self._list)
        broker.answer(DESCRIBE_GROUPS, self._describe)
        broker.answer(OFFSET_FETCH, self._fetch)
        broker.answer(OFFSET_COMMIT, self._commit)

    def asked(self) -> Counter[int]:
        return Counter(key for key, _ in self.broker.broker.asked)

    def _list(self, _: Any) -> Any:
        one = ListGroupsResponse.ListedGroup
        found = [one(group_id=g, protocol_type="consumer", group_state=self.state, group_type="") for g in self.names]
        return ListGroupsResponse(error_code=0, groups=found)

    def _describe(self, request: Any) -> Any:
        one = DescribeGroupsResponse.DescribedGroup
        rest = {"protocol_type": "consumer", "protocol_data": "range", "members": [], "error_code": 0}
        return DescribeGroupsResponse(groups=[one(group_id=g, group_state=self.state, **rest) for g in request.groups])

    def _fetch(self, request: Any) -> Any:
        kind = OffsetFetchResponse.OffsetFetchResponseGroup
        topic = kind.OffsetFetchResponseTopics

        def topics(group: str) -> list[Any]:
            found = [
                topic.OffsetFetchResponsePartitions(partition_index=p, committed_offset=o, metadata="", error_code=0)
                for p, o in self.at[group].items()
            ]
            return [topic(name="orders", partitions=found)]

        return OffsetFetchResponse(
            groups=[kind(group_id=g.group_id, topics=topics(g.group_id), error_code=0) for g in request.groups]
        )

    def _commit(self, request: Any) -> Any:
        kind = OffsetCommitResponse.OffsetCommitResponseTopic
        (topic,) = request.topics
        self.at[request.group_id] |= {p.partition_index: p.committed_offset for p in topic.partitions}
        done = [
            kind.OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=0) for p in topic.partitions
        ]
        return OffsetCommitResponse(topics=[kind(name="orders", partitions=done)])


@pytest.fixture
def clusters() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def sees_only_groups(broker: World) -> None:
    """Let the principal describe groups, each by a rule of its own, and not the cluster."""

    def metadata(request: Any) -> Any:
        answer = broker._metadata(request)
        answer.authorized_operations = set()
        return answer

    broker.answer(METADATA, metadata)


def moved(stack: ExitStack, run_dir: Path, count: int, expired: int = 0) -> tuple[Groups, Groups]:
    """Move that many groups, whose members live and have read everything; return both sides.

    :param expired: groups that the plan knows, and that the source has no more.
    """
    names, gone = [f"g-{n:03}" for n in range(count)], [f"gone-{n:03}" for n in range(expired)]
    source = Groups(stack.enter_context(world()), names, "Stable", END)
    sees_only_groups(source.broker)
    target = Groups(stack.enter_context(world()), names, "Empty", None)
    attempt: Attempt = a_run(run_dir, CallableFence(lambda: None, lambda: None))
    topic = topic_plan("orders", dict.fromkeys(range(PARTITIONS), 0), source_topic_id="id-orders")
    plan = replace(plan_of(attempt.mirror, topic), positions={group: {"orders": {0: END}} for group in gone})
    want(attempt, plan=plan)
    ends = {TopicPartition("orders", p): END for p in range(PARTITIONS)}
    attempt.on.source.admin, attempt.on.target.admin = source.broker.admin, target.broker.admin
    attempt.on.source.log = attempt.on.target.log = Logs(ends)  # type: ignore[assignment]
    attempt.may_set = unfenced
    attempt.report.ends = [{"topic": tp.topic, "partition": tp.partition, "end": end} for tp, end in ends.items()]
    assert [*groups.commit_groups(attempt).values()] == ["at the end"] * count
    assert groups.keep_groups(attempt) == 0
    assert target.at == source.at
    return source, target


@pytest.mark.repeats
def test_three_hundred_groups_take_no_more_questions_than_ten_but_batches(
    clusters: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits name one group each, so they are not waited for one by one; nothing else is asked about one group."""

    def one_by_one(*_: object) -> None:
        raise AssertionError("a group was committed with a round trip of its own")

    monkeypatch.setattr(ClusterAdmin, "commit_group_offsets", one_by_one)
    few, many = (moved(clusters, tmp_path / str(count), count) for count in (10, 300))
    # At rest, and unchanged after the commit; what they had, what was kept, and once more after the lease's wait.
    for before, after, reads, commits in zip(few, many, (2, 3), (0, 1), strict=True):
        extra = after.asked() - before.asked()
        assert extra == Counter({OFFSET_FETCH: 2 * reads, OFFSET_COMMIT: 290 * commits}) - Counter()
        assert before.asked()[OFFSET_FETCH] == reads and after.asked()[OFFSET_COMMIT] == 300 * commits
        assert sum(after.asked()[key] for key in (METADATA, FIND_COORDINATOR, LIST_GROUPS, DESCRIBE_GROUPS)) <= 16


def test_three_hundred_groups_that_are_gone_take_no_more_questions_than_ten(clusters: ExitStack, tmp_path: Path) -> None:
    """Kafka hides groups without an error, so those of the plan that have expired since are asked about."""
    few, many = (moved(clusters, tmp_path / str(expired), 1, expired) for expired in (10, 300))
    for before, after in zip(few, many, strict=True):
        assert after.asked() == before.asked()
    source = many[0].broker
    assert {group for r in source.asked(DESCRIBE_GROUPS) for group in r.groups} > {"gone-000", "gone-299"}
    assert {group for r in source.asked(FIND_COORDINATOR) for group in r.coordinator_keys} == {"g-000"}
