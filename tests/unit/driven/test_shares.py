"""A share of a tail as another process carries it out: at exact moments of the lease."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.copy.writer import lease
from airflow_mirror.jobs.plain import shares
from airflow_mirror.jobs.plain.shares import Share
from airflow_mirror.wire.cluster import WireCluster
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, ends, ranges_of
from tests.unit.ledger.memory import MemoryState


@pytest.fixture
def dealt(source: DrivenCluster, target: DrivenCluster) -> Share:
    """What the tail deals, its lease taken; the source holds ten records."""
    Writer(source.create("t").logs[0]).plain(10)
    target.create("t")
    with WireCluster(target.config) as wire:
        taken = lease.take(wire, "m")
    lists = [ranges_of(source, "t")]
    return Share(number=1, lease=taken, options=CopyOptions(mirror="m"), lists=lists, seconds=60.0)


def carry_out(dealt: Share, source: DrivenCluster, target: DrivenCluster, directory: Path) -> list[str | None]:
    """Read a share where it was written, copy it as a task does, and return its errors."""
    state = MemoryState()
    state.write(shares.given("m", "tail", "b", dealt, {}))
    one = shares.share_of(state.read(), "m", "tail", "b")
    assert one is not None
    files = []
    for cluster in (source, target):
        files.append(directory / f"{cluster.config.role}.properties")
        files[-1].write_text(f"bootstrap.servers={cluster.config.bootstrap}\n")
    work = CopyWork(source=str(files[0]), target=str(files[1]), options=one.options, lease=one.lease)
    return [result.error for result in copy_ranges(work, one.lists[0])]


def test_a_share_is_copied_as_a_task_of_the_tails_own(
    source: DrivenCluster, target: DrivenCluster, dealt: Share, tmp_path: Path
) -> None:
    assert carry_out(dealt, source, target, tmp_path) == [None]
    assert target.topics["t"].logs[0].rows() == source.topics["t"].logs[0].rows()


def test_a_share_that_is_taken_up_after_its_lease_was_withdrawn_writes_nothing(
    source: DrivenCluster, target: DrivenCluster, dealt: Share, tmp_path: Path
) -> None:
    """Its process was frozen meanwhile, and its partitions are with others under the tail's next lease."""
    with WireCluster(target.config) as wire:
        again = lease.withdraw(wire, dealt.lease)
    (error,) = carry_out(dealt, source, target, tmp_path)
    assert error is not None
    assert "writer lease" in error
    assert ends(target) == [0]
    assert carry_out(replace(dealt, lease=again), source, target, tmp_path) == [None]


def test_a_share_carried_out_beside_another_copier_of_its_partition_doubles_nothing(
    source: DrivenCluster, target: DrivenCluster, dealt: Share, tmp_path: Path
) -> None:
    """Under one lease, should a tail ever deal a partition twice: producer id and sequences are the same."""
    log = source.topics["t"].logs[0]
    with Following(source, target, ranges_of(source, "t")) as first:
        first.until(lambda: ends(target) == [10], "the first copies")
        with source.changing():
            Writer(log).plain(7)
        carry_out(replace(dealt, lists=[ranges_of(source, "t")]), source, target, tmp_path)
        first.until(lambda: ends(target) == [17], "both are at the end")
    assert target.topics["t"].logs[0].rows() == log.rows()
