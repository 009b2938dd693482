"""A target whose coordinator forgets the writer lease, because clusters may say transactional.id.expiration.ms = 6000."""

from __future__ import annotations

from pathlib import Path

from airflow_mirror.common.policy import lease_id
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.wire.cluster import WireCluster
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import ends, ranges_of
from tests.unit.jobs.losing import Stream, World


def test_a_quiet_tail_whose_lease_was_forgotten_goes_on_by_itself(
    source: DrivenCluster, target: DrivenCluster, tmp_path: Path
) -> None:
    """Nobody else has it: it is not fought for, and nobody is told to look for another job."""
    Writer(source.create("t").logs[0]).plain(10)
    target.create("t")
    files = []
    for cluster in (source, target):
        files.append(tmp_path / f"{cluster.config.role}.properties")
        files[-1].write_text(f"bootstrap.servers={cluster.config.bootstrap}\n")
    causes: list[str | None] = []
    with WireCluster(target.config) as wire:
        world = World(wire)
        world.tail.ranges = ranges_of(source, "t")
        world.on_stop = lambda _: None

        def turn(stream: Stream) -> None:
            if len(world.streams) <= 7:  # oftener than another job may take it
                with target.changing():
                    target.transactions.forget(lease_id("m"))
            work = CopyWork(
                source=str(files[0]), target=str(files[1]), options=CopyOptions(mirror="m"), lease=stream.under
            )
            stream.take(results := copy_ranges(work, world.tail.ranges))
            causes.append(results[0].error)
            if len(world.streams) > 7:
                world.stopping.set()

        world.on_start = turn
        world.run()
    assert len(causes) == 8 and all("has forgotten the id" in str(cause) for cause in causes[:7]) and causes[7] is None
    assert ends(target) == [10]
    (said,) = world.status.brief()["follows"]["lease"]["said"]
    assert "no other job had it" in said
