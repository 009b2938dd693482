"""A source of Kafka 0.11: everything is asked in versions that it serves, and answered as it would."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer, hostile
from tests.driven.copying import copy, errors, ranges_of
from tests.driven.groups import Committed
from tests.driven.script import Fault

TP = TopicPartition("t", 0)


@pytest.fixture
def old() -> Iterator[DrivenCluster]:
    with DrivenCluster("source", version="0.11.0.3") as cluster:
        cluster.create("t")
        yield cluster


def test_copy_of_an_old_source_is_equal(old: DrivenCluster, target: DrivenCluster) -> None:
    (here,), (there,) = old.topics["t"].logs, target.create("t").logs
    hostile(here)
    Writer(here).in_transaction(7, 3, epoch=1)  # stays open: the copy ends before it
    assert set(errors(copy(old, target, ranges_of(old, "t"))).values()) == {None}
    assert there.rows() == here.rows()
    assert (there.log_start, there.end) == (here.log_start, here.last_stable)
    asked = {request.api: request.version for request in old.requests}
    assert asked == {"ApiVersions": 0, "Metadata": 4, "ListOffsets": 2, "Fetch": 5}


@pytest.mark.parametrize("lost", ["ApiVersions", "Metadata", "FindCoordinator", "OffsetFetch"])
def test_group_offsets_of_old_source_are_read_despite_lost_answer(old: DrivenCluster, lost: str) -> None:
    old.groups.committed["g"] = {TP: Committed(41, "note", -1)}
    rule = old.script.on(lost, Fault.lost_answer())
    with ClusterAdmin(old.config) as admin:
        assert admin.groups_offsets(["g", "never seen"]) == {"g": {TP: GroupPosition(41, "note")}, "never seen": {}}
    assert rule.hits
    assert {request.version for request in old.asked("FindCoordinator")} == {1}
    assert {request.version for request in old.asked("OffsetFetch")} == {3}
