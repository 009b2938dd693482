"""Padding against a coordinator in process: the way round what is not served, and the lease."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_mirror.copy.writer.padding import Padder
from airflow_mirror.errors import LeaseUnconfirmed
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire.cluster import WireCluster
from tests.unit.coordinator import ADD, END, INIT, MARKERS, Coordinator

TP = TopicPartition("t", 3)


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    coordinator = Coordinator()
    yield coordinator
    coordinator.close()


@pytest.fixture
def target(coordinator: Coordinator) -> Iterator[WireCluster]:
    with coordinator.cluster() as cluster:
        yield cluster


def test_a_broker_that_serves_no_direct_markers_gets_all_of_them_through_the_coordinator(
    coordinator: Coordinator, target: WireCluster
) -> None:
    """A listener of clients may hide the request; it needs no right of its own to tell."""
    del coordinator.served[MARKERS]
    padder = Padder(target, "m", lambda: None)
    assert padder.fill(TP, 0, 5) == 5
    assert coordinator.ends[TP] == 5 and coordinator.keys.count(END) == 5 and not padder.direct


@pytest.mark.parametrize("allowed", range(5))
def test_each_marker_is_kept_here_once_the_lease_is_in_doubt(
    coordinator: Coordinator, target: WireCluster, allowed: int
) -> None:
    """Take-over, first marker, those in between, the last: each asks right before it is sent, none is tried again."""
    asked: list[None] = []

    def check() -> None:
        asked.append(None)
        if len(asked) > allowed:
            raise LeaseUnconfirmed("id", 1, 9.0, None)

    padder = Padder(target, "m", check)
    if allowed == 4:
        assert padder.fill(TP, 0, 10) == 10
        return
    with pytest.raises(LeaseUnconfirmed):
        padder.fill(TP, 0, 10)
    assert len(asked) == allowed + 1
    assert coordinator.ends[TP] == [0, 0, 1, 9][allowed]
    assert [coordinator.keys.count(key) for key in (INIT, ADD, MARKERS)] == [
        [0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1],
    ][allowed]  # fmt: skip
