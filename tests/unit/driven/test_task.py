"""What a Spark task does with its ranges: it copies under a lease, and ends when there is reason to."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.copy.writer import lease
from airflow_mirror.wire.cluster import WireCluster
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, ends, ranges_of


@pytest.fixture
def work(source: DrivenCluster, target: DrivenCluster, tmp_path: Path) -> CopyWork:
    """A task's input, its lease taken; the source holds ten records."""
    Writer(source.create("t").logs[0]).plain(10)
    target.create("t")
    files = []
    for cluster in (source, target):
        files.append(tmp_path / f"{cluster.config.role}.properties")
        files[-1].write_text(f"bootstrap.servers={cluster.config.bootstrap}\n")
    with WireCluster(target.config) as wire:
        taken = lease.take(wire, "m")
    return CopyWork(source=str(files[0]), target=str(files[1]), options=CopyOptions(mirror="m"), lease=taken)


def test_task_ends_with_its_ranges(source: DrivenCluster, target: DrivenCluster, work: CopyWork) -> None:
    [result] = copy_ranges(work, ranges_of(source, "t"))
    assert (result.done, result.position, result.records, result.error) == (True, 10, 10, None)


@pytest.mark.parametrize(("duration_s", "stop"), [(0.0, False), (None, True)])
def test_task_ends_before_its_ranges_when_asked(
    source: DrivenCluster, target: DrivenCluster, work: CopyWork, duration_s: float | None, stop: bool
) -> None:
    [result] = copy_ranges(work, ranges_of(source, "t"), duration_s, lambda: stop)
    assert (result.done, result.error, ends(target)) == (False, None, [0])


def test_task_without_the_lease_writes_nothing(source: DrivenCluster, target: DrivenCluster, work: CopyWork) -> None:
    """Another job took it before this task began."""
    with WireCluster(target.config) as wire:
        lease.take(wire, "m")
    [result] = copy_ranges(work, ranges_of(source, "t"))
    assert result.error is not None and "writer lease" in result.error
    assert (result.done, ends(target)) == (False, [0])


@pytest.mark.parametrize("side", ["source", "target"])
def test_copy_continues_when_the_only_broker_is_back(source: DrivenCluster, target: DrivenCluster, side: str) -> None:
    """Meanwhile nobody listens on its port: every dial is refused."""
    log = source.create("t").logs[0]
    target.create("t")
    Writer(log).plain(3)
    broken = source if side == "source" else target
    with Following(source, target, ranges_of(source, "t")) as following:
        (p,) = following.loop.partitions
        following.until(lambda: ends(target) == [3], "the first batch is copied")
        broken.kill(1)
        with source.changing():
            Writer(log).plain(4)
        following.until(lambda: p.failures > 0, "it was missed")
        broken.restart(1)
        following.until(lambda: ends(target) == [7], "all is copied")
    assert target.topics["t"].logs[0].rows() == log.rows()
