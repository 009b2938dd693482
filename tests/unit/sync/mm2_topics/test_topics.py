"""Topics of traces are fit, marked and there before anything is written to one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_mirror.errors import LeaseLost, TracesUnfit
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.plan.mm2_topics import mark, marked, unfit
from airflow_mirror.plan.ownership import claim
from airflow_mirror.sync.mm2_topics import topics
from airflow_mirror.sync.mm2_topics.log import TraceLog
from airflow_mirror.wire.error_codes import ErrorCode
from tests.builders import plan_of, topic_plan
from tests.unit.plan.builders import a_mirror
from tests.unit.sync.mm2_topics.world import ALIAS, CHECKPOINTS, SYNCS, World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
def ready(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, TraceLog]]:
    created: list[str] = []

    def create(log: TraceLog) -> None:
        assert log.topic in marked(world.ledger.values()), "whoever mirrors the target finds it unmarked"
        created.append(log.topic)

    monkeypatch.setattr(TraceLog, "create", create)
    monkeypatch.setattr(TraceLog, "__init__", lambda self, _target, topic, replicas: setattr(self, "topic", topic))

    def make(*names: str) -> dict[str, TraceLog]:
        logs = topics.make_ready(world.plan, names, world.target, world.ledger, world.right)  # type: ignore[arg-type]
        assert created == list(names)
        return logs

    return make


def test_topics_are_marked_before_they_are_created(world: World, ready: Callable[..., dict[str, TraceLog]]) -> None:
    assert set(ready(CHECKPOINTS, SYNCS)) == {CHECKPOINTS, SYNCS}
    records = len(world.ledger.records)
    mark(world.ledger, [CHECKPOINTS])
    assert len(world.ledger.records) == records, "decided once"


def test_unfit_topics_are_all_named_and_nothing_is_written(
    world: World, ready: Callable[..., dict[str, TraceLog]]
) -> None:
    world.target.there = {
        CHECKPOINTS: TopicInfo(CHECKPOINTS, "1", 3, 1), SYNCS: TopicInfo(SYNCS, "2", 1, 1),
    }  # fmt: skip
    world.target.policies = {SYNCS: "delete"}
    with pytest.raises(TracesUnfit) as caught:
        ready(CHECKPOINTS, SYNCS, "orders")
    said = str(caught.value)
    assert "3 partitions" in said and "cleanup.policy is delete" in said and "the mirror copies to it" in said
    assert not marked(world.ledger.values())


def test_nothing_is_marked_without_the_lease(world: World, ready: Callable[..., dict[str, TraceLog]]) -> None:
    world.right.lost = True
    with pytest.raises(LeaseLost):
        ready(CHECKPOINTS)
    assert not marked(world.ledger.values())


def test_a_topic_is_fit_that_is_missing_or_that_another_tool_has_made(world: World) -> None:
    def found(*names: str) -> dict[str, str]:
        return unfit(world.target, names, None, world.ledger.values())  # type: ignore[arg-type]

    assert found() == {} and found(CHECKPOINTS) == {}
    world.target.there = {CHECKPOINTS: TopicInfo(CHECKPOINTS, "1", 1, 1)}
    assert found(CHECKPOINTS) == {}
    world.target.policies = {CHECKPOINTS: ""}  # it may not be seen
    assert found(CHECKPOINTS) == {}


def test_a_topic_of_another_mirror_is_not_taken(world: World) -> None:
    other = plan_of(a_mirror(name="other"), topic_plan(CHECKPOINTS, {0: 0}, source_topic_id="id"))
    world.target.there = {CHECKPOINTS: TopicInfo(CHECKPOINTS, "1", 1, 1)}
    claim(world.ledger, other, world.target)  # type: ignore[arg-type]
    found = unfit(world.target, [CHECKPOINTS], None, world.ledger.values())  # type: ignore[arg-type]
    assert "other" in found[CHECKPOINTS]


def test_a_topic_that_may_not_be_created_is_named_beforehand(world: World) -> None:
    world.target.refused = {SYNCS: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    found = unfit(world.target, [CHECKPOINTS, SYNCS], None, world.ledger.values())  # type: ignore[arg-type]
    assert list(found) == [SYNCS] and "Create" in found[SYNCS]
    assert world.target.validated == [[CHECKPOINTS, SYNCS]]  # in one request


@pytest.mark.parametrize("operation", ["WRITE", "READ", "DESCRIBE_CONFIGS"])
@pytest.mark.parametrize("there", [True, False])
def test_a_right_that_is_missing_is_named_before_anything_is_touched(
    world: World, ready: Callable[..., dict[str, TraceLog]], operation: str, *, there: bool
) -> None:
    if there:
        world.target.there = {SYNCS: TopicInfo(SYNCS, "2", 1, 1)}
    world.target.denied = {SYNCS: {operation}}
    with pytest.raises(TracesUnfit) as caught:
        ready(CHECKPOINTS, SYNCS)
    assert list(caught.value.causes) == [SYNCS]
    spelled = {"DESCRIBE_CONFIGS": "DescribeConfigs"}.get(operation, operation.title())
    assert f"User:mirror lacks {spelled} on topic '{SYNCS}'. Add the ACL: kafka-acls" in str(caught.value)
    assert not marked(world.ledger.values())


def test_all_that_is_missing_on_a_topic_is_named_at_once(world: World) -> None:
    world.target.denied, world.target.refused = {SYNCS: {"WRITE", "READ"}}, {SYNCS: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    found = unfit(world.target, [CHECKPOINTS, SYNCS], None, world.ledger.values())  # type: ignore[arg-type]
    assert list(found) == [SYNCS]
    assert all(f"lacks {operation} on" in found[SYNCS] for operation in ("Write", "Read", "Create"))


def test_heartbeats_are_written_and_never_read(world: World) -> None:
    world.target.denied = {"heartbeats": {"READ"}, f"{ALIAS}.heartbeats": {"READ"}}
    assert unfit(world.target, world.target.denied, None, world.ledger.values()) == {}  # type: ignore[arg-type]
