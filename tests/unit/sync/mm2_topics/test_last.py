"""The last checkpoints: where a cutover has set the groups, or where a failover finds them."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import TryAgain
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.mm2_topics import mark
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.mm2_topics import last
from airflow_mirror.sync.mm2_topics.formats import Checkpoint
from tests.builders import plan_of, topic_plan
from tests.unit.ledger.memory import MemoryLedger
from tests.unit.plan.builders import a_mirror
from tests.unit.sync.mm2_topics.world import CHECKPOINTS, NOW, Traces

KEPT, MAPPED = TopicPartition("kept", 0), TopicPartition("mapped", 0)
STABLE = {KEPT: 100, MAPPED: 80}


@pytest.fixture
def mirror() -> Mirror:
    return a_mirror(name="m", source_alias="A")  # with no traces now: an earlier tail wrote them


@pytest.fixture
def plan(mirror: Mirror) -> Plan:
    return plan_of(
        mirror, topic_plan("kept", {0: 0}, source_topic_id="1"),
        topic_plan("mapped", {0: 0}, source_topic_id="2", mode="mapped"),
    )  # fmt: skip


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Traces:
    found = Traces()
    monkeypatch.setattr(last, "TraceLog", lambda _target, topic, _replicas=None: found.log(topic))
    return found


def checkpoint(tp: TopicPartition, upstream: int, downstream: int, metadata: str = "") -> Checkpoint:
    return Checkpoint("g", tp, upstream, downstream, metadata)


def put(traces: Traces, *stored: Checkpoint) -> None:
    traces.log(CHECKPOINTS)
    traces[CHECKPOINTS] += [(one.key, one.value) for one in stored]


def found(plan: Plan, at: dict[TopicPartition, GroupPosition], ours: dict[TopicPartition, Any]) -> list[Checkpoint]:
    """What is left where a group stands on the target at positions, of which some marks are the mirror's."""
    noted = {notes.key("m", "g"): notes.dump(notes.Note(NOW, ours))}
    nobody: Any = None
    return last.leave_found(plan, nobody, {"g": at}, STABLE, noted, NOW, lambda: None)


def test_the_ledger_knows_whether_there_are_checkpoints(mirror: Mirror) -> None:
    ledger = MemoryLedger()
    mark(ledger, ["A.heartbeats", "B.checkpoints.internal"])
    assert not last.has_checkpoints(mirror, ledger.values())
    mark(ledger, [CHECKPOINTS])
    assert last.has_checkpoints(mirror, ledger.values())


def test_places_are_written_as_they_were_set(mirror: Mirror, traces: Traces) -> None:
    places = [checkpoint(KEPT, 5, 5), checkpoint(MAPPED, 7, 3, "m"), checkpoint(KEPT, 6, 6, "x" * 2**15)]
    nobody: Any = None
    assert last.leave(nobody, mirror, places, NOW) == 2
    assert traces[CHECKPOINTS] == [(one.key, one.value) for one in places[:2]]


def test_nothing_is_written_that_may_not_be_any_more(mirror: Mirror, traces: Traces) -> None:
    def check() -> None:
        raise TryAgain("somebody else has the lease")

    nobody: Any = None
    with pytest.raises(TryAgain):
        last.leave(nobody, mirror, [checkpoint(KEPT, 5, 5)], NOW, check)
    assert not traces[CHECKPOINTS]


def test_groups_know_better_than_the_last_pass(plan: Plan, traces: Traces) -> None:
    put(traces, checkpoint(KEPT, 40, 40), checkpoint(MAPPED, 60, 45))
    at = {KEPT: GroupPosition(50), MAPPED: GroupPosition(70)}
    left = found(plan, at, {KEPT: ((50, ""),), MAPPED: ((70, ""),)})
    # The offset map is not asked any more: how far it had read on the source is the older one.
    assert left == [checkpoint(KEPT, 50, 50), checkpoint(MAPPED, 60, 70)]
    assert found(plan, at, {KEPT: ((50, ""),), MAPPED: ((70, ""),)}) == [], "they stand there"


def test_a_position_that_somebody_else_has_set_says_nothing(plan: Plan, traces: Traces) -> None:
    put(traces, checkpoint(KEPT, 40, 40))
    assert found(plan, {KEPT: GroupPosition(50)}, {KEPT: ((45, ""),)}) == []
    assert found(plan, {KEPT: GroupPosition(50)}, {}) == []


def test_a_group_that_could_not_be_set_keeps_its_checkpoint(plan: Plan, traces: Traces) -> None:
    put(traces, checkpoint(KEPT, 60, 60))
    assert found(plan, {KEPT: GroupPosition(50)}, {KEPT: ((50, ""),)}) == []


def test_a_checkpoint_beyond_the_log_is_taken_back_with_the_group(plan: Plan, traces: Traces) -> None:
    """What was copied is lost with the target's leader; a reader there would jump."""
    put(traces, checkpoint(KEPT, 130, 130))
    left = found(plan, {KEPT: GroupPosition(100)}, {KEPT: ((130, ""),)})
    assert left == [checkpoint(KEPT, 100, 100)]


def test_a_mapped_position_without_an_earlier_checkpoint_is_not_told(plan: Plan, traces: Traces) -> None:
    at = {KEPT: GroupPosition(50, "m"), MAPPED: GroupPosition(70)}
    ours = {tp: (notes.mark(position),) for tp, position in at.items()}
    assert found(plan, at, ours) == [checkpoint(KEPT, 50, 50, "m")]
