"""What only the old source has is in the export before a topic of it is deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.cutover.rollback import failback as module
from airflow_mirror.cutover.rollback import topic_divergence
from airflow_mirror.cutover.rollback.export import export
from airflow_mirror.cutover.rollback.topic_divergence import classify_divergence
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.verify.remaining import verify_rest
from airflow_mirror.verify.result import PartitionComparison
from airflow_mirror.wire.batch import iter_batches
from airflow_mirror.wire.records import decode
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.unit.driven.failing_back import (
    Back,
    World,
    more,
    other_records_at_the_same_offsets,
)


@pytest.fixture
def world(source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(ClusterAdmin, "topic_configs", lambda *_: {"t": {"cleanup.policy": ConfigEntry(value="delete")}})
    with closing(World(source, target)) as made:
        yield made


def only_there(world: World) -> set[tuple[int, int, bytes | None]]:
    """Partition, offset and value of what the old source has and the target lacks."""

    def rows(cluster: DrivenCluster) -> set[tuple[int, int, bytes | None]]:
        logs = cluster.topics["t"].logs if "t" in cluster.topics else ()
        return {(p, row.offset, row.value) for p, log in enumerate(logs) for row in log.rows(0)}

    return rows(world.old_cluster) - rows(world.new_cluster)


def exported(directory: Path) -> set[tuple[int, int, bytes | None]]:
    """The same of what was exported."""
    found = set[tuple[int, int, bytes | None]]()
    for file in directory.rglob("*.log"):
        number = int(file.parent.name.rpartition("-")[2])
        for raw in iter_batches(memoryview(bytearray(file.read_bytes()))):
            if raw.header is None or not raw.header.is_control:
                found |= {(number, record.offset, record.value) for record in decode(raw)}
    return found


def others_from_below_the_cut_to_beyond_it(world: World) -> None:
    """A power cut took [7, 14), and producers wrote on from 7 before the source was fenced."""
    world.logs[0].truncate(7)
    Writer(world.logs[0]).plain(5, size=99)
    Writer(world.logs[0]).plain(7, size=99)


def others_below_the_cut_and_more_elsewhere(world: World) -> None:
    other_records_at_the_same_offsets(world)
    more(world)


def the_target_has_deleted_some(world: World) -> None:
    """By retention, once it was opened."""
    world.new_cluster.topics["t"].logs[0].delete_records(4)
    more(world)


def the_mirror_began_behind_some(world: World) -> None:
    (topic,) = world.plan.topics
    world.plan = replace(world.plan, topics=(replace(topic, starts={0: 7, 1: 7}),))
    the_target_has_deleted_some(world)


def the_target_lost_its_topic(world: World) -> None:
    world.new_cluster.delete("t")
    world.target.close()


def the_target_has_fewer_partitions(world: World) -> None:
    the_target_lost_its_topic(world)
    world.new_cluster.create("t", 1)


@pytest.mark.parametrize(
    ("happens", "surplus"),
    [
        (others_from_below_the_cut_to_beyond_it, [(0, 7, 19)]),
        (others_below_the_cut_and_more_elsewhere, [(0, 7, 9), (1, 14, 17)]),
        (the_target_has_deleted_some, [(0, 0, 4), (1, 14, 17)]),
        (the_mirror_began_behind_some, [(0, 0, 7), (1, 0, 7), (1, 14, 17)]),
        (the_target_lost_its_topic, [(0, 0, 14), (1, 0, 14)]),
        (the_target_has_fewer_partitions, [(0, 0, 14), (1, 0, 14)]),
    ],
)
def test_nothing_that_only_the_old_source_has_is_deleted_without_being_exported(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, happens: Callable[[World], None], surplus: list[Any]
) -> None:
    happens(world)
    lost = only_there(world)
    back = Back(world, monkeypatch)
    found = world.verdict()
    assert [(one.source.partition, one.first, one.end) for one in found.surplus] == surplus
    back.prepare(export_to=tmp_path, recreate=["t"])
    assert back.old.deleted and lost and lost <= exported(tmp_path)
    assert {p for p, _, _ in surplus} == {int(reason[2]) for reason in found.reasons}, "each is explained"


@pytest.mark.parametrize("because", [{"cleaned": 1}, {"expired": 1}, {"first_difference": "corrupt"}, {"mode": "mapped"}])
def test_where_a_comparison_leaves_open_which_records_are_equal_all_of_a_partition_is_surplus(
    world: World, monkeypatch: pytest.MonkeyPatch, because: dict[str, Any]
) -> None:
    """A cleaner takes records of each side for itself, and a map may be what is wrong."""
    other_records_at_the_same_offsets(world)

    def leaving_open(one: PartitionComparison) -> PartitionComparison:
        if "first_difference" in because and one.first_difference is not None:
            return replace(one, first_difference=replace(one.first_difference, kind=because["first_difference"]))
        return replace(one, **{key: value for key, value in because.items() if key in ("cleaned", "expired")})

    def verified(*of: Any, **how: Any) -> Callable[[Any], list[PartitionComparison]]:
        return lambda ends: [leaving_open(one) for one in verify_rest(*of, **how)(ends)]

    monkeypatch.setattr(topic_divergence, "verify_rest", verified)
    if "mode" in because:
        monkeypatch.setattr(topic_divergence, "MAPPED", "identical")
    found = world.verdict()
    assert (found.surplus[0].source.partition, found.surplus[0].first, found.surplus[0].end) == (0, 0, 9)
    assert "offsets 0 to 7 were not seen on the target" in "\n".join(found.reasons)


def test_what_retention_takes_while_both_sides_are_compared_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise an export would never begin where its log does."""
    the_target_lost_its_topic(world)
    back = Back(world, monkeypatch)

    def long(*of: Any) -> Any:
        found = classify_divergence(*of)
        world.logs[0].delete_records(7)
        world.logs[1].delete_records(14)
        return found

    monkeypatch.setattr(module, "classify_divergence", long)
    lost = {row for row in only_there(world) if row[:2] >= (0, 7) and row[0] == 0}
    back.prepare(export_to=tmp_path, recreate=["t"])
    assert back.old.deleted and lost <= exported(tmp_path)


def test_the_front_of_a_log_is_exported_up_to_a_hole_before_what_both_have(world: World, tmp_path: Path) -> None:
    """The batch behind the hole shows that nothing is missing."""
    log = world.logs[0]
    del log.batches[1]  # what a cleaner may take as a whole
    world.new_cluster.topics["t"].logs[0].delete_records(13)
    more(world)
    found = export(world.source.wire, "m", "s", world.verdict(), tmp_path)
    assert [(row["partition"], row["start"], row["end"]) for row in found.partitions] == [(0, 0, 13), (1, 14, 17)]
