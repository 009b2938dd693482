"""The memory of a copy: who has ended or rests gives back what it held, or the others wait for ever."""

from __future__ import annotations

from itertools import count

import pytest

from airflow_mirror.copy.loop import loop
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.errors import LeaseLost
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import ends, errors, ranges_of

LIMIT = 2 << 20
TURNS = 8_000  # it takes 80, and 1,600 if nothing is merged


def filled(source: DrivenCluster, target: DrivenCluster, partitions: int) -> None:
    """Partitions of 120 KB to 1 MB in batches of 3 KB, the small ones first: they end while the others go on."""
    for cluster in (source, target):
        cluster.create("t", partitions)
    for log in source.topics["t"].logs:
        for _ in range(40 + 300 * log.tp.partition // partitions):
            Writer(log).plain(10, size=270)


def of_all(source: DrivenCluster, target: DrivenCluster, **options: object) -> CopyLoop:
    clusters = Clusters.of(source.config, target.config)
    return CopyLoop(ranges_of(source, "t"), clusters, CopyOptions(mirror="m", **options), lambda: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("merge_below", [0, 1 << 20])
def test_partitions_that_have_ended_leave_their_memory_to_the_others(
    source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch, merge_below: int
) -> None:
    """Each kept its last answer, and all that had come with it for others: the copy stood still for ever."""
    monkeypatch.setattr(loop, "_MEMORY_BYTES", LIMIT)
    filled(source, target, 18)
    copy = of_all(source, target, merge_below=merge_below)
    turns = count()
    copies = copy.run(lambda: next(turns) > TURNS)
    assert {p.range.partition: p.state for p in copies if not p.done} == {}
    assert set(errors(copies).values()) == {None}
    assert copy.memory.used == 0
    assert [log.rows() for log in target.topics["t"].logs] == [log.rows() for log in source.topics["t"].logs]


@pytest.mark.parametrize("how", ["told to stop", "by an error"])
def test_a_copy_that_ends_early_holds_nothing(
    source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(loop, "_MEMORY_BYTES", LIMIT)
    filled(source, target, 4)
    copy, held = of_all(source, target), list[int]()

    def should_stop() -> bool:
        if not copy.memory.used or not any(ends(target)):
            return False
        held.append(copy.memory.used)
        if how == "by an error":
            raise LeaseLost("id", 1, "another took it")
        return True

    try:
        copy.run(should_stop)
    except LeaseLost:
        assert how == "by an error"
    assert held and any(p.state is not State.DONE for p in copy.partitions)
    assert copy.memory.used == sum(p.queued_bytes for p in copy.partitions) == 0
