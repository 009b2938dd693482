"""One partition fails to be sent: the others go on, unless the copy is to end with the first failure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop.states import State
from airflow_mirror.errors import PartitionStopped, TryAgain
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, copy, ends, errors, ranges_of
from tests.driven.script import Fault

BAD, GOOD = (TopicPartition("t", p) for p in range(2))
Pair = tuple[DrivenCluster, DrivenCluster]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Partition 0 has something to copy; 1 has nothing, and is followed: it never ends by itself."""
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        source.create("t", 2)
        target.create("t", 2)
        Writer(source.log(BAD)).plain(3)
        yield source, target


def following(source: DrivenCluster) -> list[object]:
    return [replace(one, end_offset=None) for one in ranges_of(source, "t")]


def test_first_refusal_ends_the_copy_where_that_is_asked_for(pair: Pair) -> None:
    source, target = pair
    target.script.on("Produce", Fault.refused(ErrorCode.INVALID_RECORD, [BAD]), times=None)
    partitions = copy(source, target, following(source), abort_on_send_failure=True)  # type: ignore[arg-type]
    found = errors(partitions)
    assert isinstance(found[BAD], PartitionStopped) and found[GOOD] is None
    assert [p.state for p in partitions if p.range.source == GOOD] != [State.STOPPED]


def test_by_default_a_refusal_leaves_the_others_alone(pair: Pair) -> None:
    source, target = pair
    target.script.on("Produce", Fault.refused(ErrorCode.INVALID_RECORD, [BAD]), times=None)
    with Following(source, target, ranges_of(source, "t")) as both:
        both.until(lambda: both.state(BAD) is State.STOPPED, "it is refused")
        with source.changing():
            Writer(source.log(GOOD)).plain(2)
        both.until(lambda: ends(target)[1] == 2, "the other one goes on")


@pytest.mark.parametrize("bound_s", [None, 5.0])
def test_target_that_is_away_is_a_failure_only_by_a_bound_of_ones_own(pair: Pair, bound_s: float | None) -> None:
    source, target = pair
    target.script.on("Produce", Fault.refused(ErrorCode.NOT_ENOUGH_REPLICAS, [BAD]), times=None)
    now = [0.0]

    def clock() -> float:
        return now[0]

    both = Following(
        source, target, ranges_of(source, "t"), clock=clock, abort_on_send_failure=True, give_up_after_s=bound_s
    )

    def given_up() -> bool:
        now[0] += 3.0
        return both.state(BAD) is State.STOPPED

    with both:
        both.until(given_up, "it is given up")
        if bound_s is None:
            with source.changing():
                Writer(source.log(GOOD)).plain(2)
            both.until(lambda: ends(target)[1] == 2, "the other one goes on")
    bad = next(p for p in both.loop.partitions if p.range.source == BAD)
    assert isinstance(bad.error, TryAgain) and now[0] > (bound_s or 120)
    assert both.loop._aborted is (bound_s is not None)
