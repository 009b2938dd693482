"""What has become of a source that returned: verdicts, exports that keep every record, and topics that are deleted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover import decision
from airflow_mirror.cutover.report import StepRecord
from airflow_mirror.cutover.rollback import failback as module
from airflow_mirror.cutover.rollback.export import MANIFEST, export, read_back
from airflow_mirror.errors import ExportBroken, FenceGone, InputError, NoWayBack
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger.records import CUT
from airflow_mirror.wire.batch import iter_batches
from airflow_mirror.wire.records import decode
from tests.driven.cluster import DrivenCluster
from tests.driven.content import hostile
from tests.driven.script import Fault
from tests.unit.driven.failing_back import (
    Back,
    Old,
    World,
    created_again_with_records,
    deleted,
    lost_a_log_that_was_copied_from_within,
    lost_its_tail,
    more,
    more_partitions,
    more_partitions_with_records,
    more_that_was_deleted,
    other_records_at_the_same_offsets,
    passed_by_the_targets_retention,
)


@pytest.fixture
def world(source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(ClusterAdmin, "topic_configs", lambda *_: {"t": {"cleanup.policy": ConfigEntry(value="delete")}})
    with closing(World(source, target)) as made:
        yield made


@pytest.mark.parametrize(
    ("happens", "verdict", "surplus"),
    [
        (lambda _: None, "delta", []),
        (more_partitions, "delta", []),
        (more_partitions_with_records, "diverged", [(2, 0, 2)]),
        (lost_its_tail, "delta", []),
        (more, "diverged", [(1, 14, 17)]),
        (more_that_was_deleted, "diverged", [(1, 17, 17)]),
        (other_records_at_the_same_offsets, "diverged", [(0, 7, 9)]),
        (lost_a_log_that_was_copied_from_within, "diverged", [(0, 0, 2), (1, 0, 7)]),
        (passed_by_the_targets_retention, "diverged", []),
        (deleted, "gone", []),
        (World.again, "gone", []),
        (created_again_with_records, "diverged", [(0, 0, 1)]),
    ],
)
def test_each_fate_of_a_topic_has_its_verdict(
    world: World, happens: Callable[[World], object], verdict: str, surplus: list[Any]
) -> None:
    with world.old_cluster.changing():
        happens(world)
    found = world.verdict()
    assert (found.verdict, [(one.source.partition, one.first, one.end) for one in found.surplus]) == (verdict, surplus)
    assert bool(found.reasons) == (verdict == "diverged")


def test_ends_alone_do_not_show_other_records(world: World) -> None:
    other_records_at_the_same_offsets(world)
    assert (world.verdict(None).verdict, world.verdict().verdict) == ("delta", "diverged")
    more_that_was_deleted(world)
    assert world.verdict(None).verdict == "diverged", "offsets that hold nothing any more are taken all the same"


def test_a_partition_whose_copy_nobody_knows_has_diverged(world: World) -> None:
    del world.cut[TopicPartition("t", 0)]
    found = world.verdict()
    assert found.verdict == "diverged" and [(one.first, one.end) for one in found.surplus] == [(0, 14)]


def test_export_keeps_every_record_and_marker_of_a_hostile_log(world: World, tmp_path: Path) -> None:
    """From the middle of a batch on, which stays whole."""
    world.again()
    log = world.logs[0]
    hostile(log)
    found = export(world.source.wire, "m", "s", world.verdict(), tmp_path)
    (row,) = found.partitions
    content = (Path(found.directory) / row["file"]).read_bytes()
    batches = list(iter_batches(memoryview(bytearray(content))))
    assert len(batches) == row["batches"] and batches[-1].next_offset >= log.end
    kept = [one for raw in batches if raw.header is None or not raw.header.is_control for one in decode(raw)]
    kept = [one for one in kept if one.offset >= row["start"]]
    assert len(kept) == row["records"] == found.records
    assert [(one.offset, one.key, one.value) for one in kept] == [(r.offset, r.key, r.value) for r in log.rows(0)]
    assert any(raw.header is not None and raw.header.is_control for raw in batches)
    manifest = (Path(found.directory) / MANIFEST).read_bytes()
    assert found.digest == hashlib.sha256(manifest).hexdigest()
    assert json.loads(manifest)["partitions"][0]["sha256"] == hashlib.sha256(content).hexdigest()
    assert read_back(world.verdict(), tmp_path) == found


def cut_file(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def lose_the_last_batch(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: -len(list(iter_batches(memoryview(content)))[-1].view)])


def change_count(file: Path) -> None:
    manifest = file.parents[1] / MANIFEST
    manifest.write_text(manifest.read_text().replace('"records": 6', '"records": 5'))


def change_id(file: Path) -> None:
    manifest = file.parents[1] / MANIFEST
    manifest.write_text(manifest.read_text().replace('"topic_id": "', '"topic_id": "x'))


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (cut_file, "it is cut at byte"),
        (flip, "CRC"),
        (lose_the_last_batch, "it ends at offset 17, and should reach 20"),
        (change_count, "records 6, not 5"),
        (change_id, "it is not of topic id"),
        (Path.unlink, "No such file"),
        (lambda file: (file.parents[1] / MANIFEST).unlink(), "no finished export"),
        (lambda file: (file.parents[1] / MANIFEST).write_text("{}"), "it is no manifest"),
    ],
)
def test_an_export_that_is_not_what_it_was_is_refused(
    world: World, tmp_path: Path, damage: Callable[[Path], object], cause: str
) -> None:
    more(world)
    more(world)
    found = export(world.source.wire, "m", "s", world.verdict(), tmp_path)
    damage(Path(found.directory) / found.partitions[0]["file"])
    with pytest.raises(ExportBroken, match=cause):
        read_back(world.verdict(), tmp_path)


def test_an_export_does_not_cover_what_came_after_it(world: World, tmp_path: Path) -> None:
    more(world)
    export(world.source.wire, "m", "s", world.verdict(), tmp_path)
    more(world)
    with pytest.raises(ExportBroken, match="it has offsets 14 to 17 of t-1, which has 14 to 20 to export"):
        read_back(world.verdict(), tmp_path)
    world.again()
    more(world)
    with pytest.raises(ExportBroken, match="no finished export"):
        read_back(world.verdict(), tmp_path)


@pytest.fixture
def back(world: World, monkeypatch: pytest.MonkeyPatch) -> Back:
    more(world)
    return Back(world, monkeypatch)


def test_without_being_asked_nothing_is_written_or_deleted(back: Back, tmp_path: Path) -> None:
    found = back.prepare()
    assert found.lines()[0] == "topics of mirror 'm' on the old source: 0 delta, 1 diverged, 0 gone"
    assert found.to_dict()["diverged"] == ["t"] and "3 offsets, from 14 up to 17" in found.lines()[2]
    assert back.noted() == {} and list(tmp_path.iterdir()) == [] and back.old.deleted == []


def test_a_log_that_the_targets_retention_has_passed_makes_room_without_surplus(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_by_the_targets_retention(world)
    assert world.verdict(None).reasons == ("t-1: it ends at 14, and the target has it from 17 on: a gap is left",)
    back = Back(world, monkeypatch)
    back.prepare(export_to=tmp_path, recreate=["t"])
    assert len(back.old.deleted) == 1 and back.noted()["t"]["records"] == 0


def test_a_topic_is_deleted_by_its_id_after_its_export(back: Back, tmp_path: Path) -> None:
    back.prepare(export_to=tmp_path)
    noted = back.noted()["t"]
    assert noted["records"] == 3 and "deleted" not in noted and back.old.deleted == []
    topic_id = noted["topic_id"]
    found = back.prepare(export_to=tmp_path, recreate=["t"])
    assert back.old.deleted == [("t", topic_id)] and back.noted()["t"]["deleted"]
    assert [one.verdict for one in found.verdicts] == ["gone"]
    assert f"deleted at {found.exports['t']['deleted']}, id {topic_id}" in found.lines()[-1]
    assert back.prepare(export_to=tmp_path, recreate=["t"]) == found, "a second call has nothing to do"


def test_killed_before_the_deletion_the_same_call_completes_it(back: Back, tmp_path: Path) -> None:
    """That it was about to be deleted is on record."""
    back.old.dies = True
    with pytest.raises(KeyboardInterrupt):
        back.prepare(export_to=tmp_path, recreate=["t"])
    assert back.noted()["t"]["deleted"] and back.world.verdict().verdict == "diverged"
    back.old.dies = False
    back.prepare(export_to=tmp_path, recreate=["t"])
    assert len(back.old.deleted) == 1


def test_an_export_that_was_cut_short_is_made_again(back: Back, tmp_path: Path) -> None:
    first = back.prepare(export_to=tmp_path)
    (place,) = tmp_path.iterdir()
    (place / MANIFEST).unlink()
    back.world.old_cluster.script.on("Fetch", Fault.lost_answer())
    assert back.prepare(export_to=tmp_path) == first and (place / MANIFEST).exists()


def test_nothing_is_deleted_without_export_or_divergence(back: Back, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without an export"):
        back.prepare(recreate=["t"])
    with pytest.raises(InputError, match="nowhere: only a topic that has diverged"):
        back.prepare(export_to=tmp_path, recreate=["nowhere"])
    back.world.logs[1].truncate(14)
    with pytest.raises(InputError, match="t: only a topic that has diverged"):
        back.prepare(export_to=tmp_path, recreate=["t"])
    assert back.old.deleted == []


def test_a_topic_that_has_passed_on_to_another_mirror_is_neither_exported_nor_deleted(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is in the cut, so all of it would count as surplus; and producers write to it."""
    world.pass_on()
    more(world)
    back = Back(world, monkeypatch)
    found = back.prepare(export_to=tmp_path)
    assert found.to_dict()["diverged"] == ["t"] and back.noted().keys() == {"t"}
    with pytest.raises(InputError, match=r"u: the fence of mirror 'm' is not about it: .*another mirror"):
        back.prepare(export_to=tmp_path, recreate=["t", "u"])
    assert back.old.deleted == []


def test_nothing_is_deleted_without_the_proven_fence(back: Back, tmp_path: Path) -> None:
    assert back.report.fence is not None
    lifts = Fault(before=lambda _: back.old.acls.clear())
    back.world.old_cluster.script.on("Fetch", lifts)  # while it is exported
    with pytest.raises(FenceGone):
        back.prepare(export_to=tmp_path, recreate=["t"])
    back.report.fence.proven = None
    with pytest.raises(NoWayBack, match="fence-on-return"):
        back.prepare(export_to=tmp_path, recreate=["t"])
    assert back.old.deleted == []


def test_nothing_is_deleted_once_the_way_back_was_armed_during_the_export(back: Back, tmp_path: Path) -> None:
    """By somebody who leaves the topic out, so that it stays: the swapped fence is up, and of the same attempt."""

    def arms() -> None:
        back.armed = object()
        state = decision.fence_state(back.ledger.values(), "m")
        assert state is not None
        decision.change_intent(back.ledger, "m", state, {**state.intent, "spared": "User:mirror"})

    back.world.old_cluster.script.on("Fetch", Fault(before=lambda _: arms()))
    with pytest.raises(NoWayBack, match="armed already"):
        back.prepare(export_to=tmp_path, recreate=["t"])
    assert back.old.deleted == [] and "deleted" not in back.noted()["t"]


def test_nothing_is_deleted_once_the_way_back_is_armed_right_before(
    back: Back, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence was swapped before the last look at it, and stays as it was; the direction is decided after it."""
    deletes = back.old.delete_topic

    def thaws(name: str, topic_id: str, permit: Permit) -> None:
        back.armed = object()
        deletes(name, topic_id, permit)

    monkeypatch.setattr(back.old, "delete_topic", thaws)
    with pytest.raises(NoWayBack, match="armed already"):
        back.prepare(export_to=tmp_path, recreate=["t"])
    assert back.old.deleted == []


@pytest.mark.parametrize("moment", [(module, "read_back"), (Old, "delete_topic")])
def test_nothing_is_deleted_that_was_written_past_the_fence_since_it_was_compared(
    back: Back, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: tuple[Any, str]
) -> None:
    """By a super user, say, whom no rule keeps out: those records are in no export."""
    does = getattr(*moment)

    def behind_a_write(*given: Any) -> Any:
        more(back.world)
        return does(*given)

    back.prepare(export_to=tmp_path)
    monkeypatch.setattr(*moment, behind_a_write)
    with pytest.raises(ExportBroken, match="t-1 ends at 2[03] by now, and ended at 17 when both sides were compared"):
        back.prepare(export_to=tmp_path, recreate=["t"])
    assert back.old.deleted == []


def test_source_that_was_built_anew_is_named_before_anything_is_read(back: Back, tmp_path: Path) -> None:
    """Its topics are gone and so is the fence, which would send somebody to look for who removed that."""
    back.old.id = "another"
    back.old.acls.clear()
    with pytest.raises(InputError, match="the source is cluster another: .* make an ordinary mirror to it"):
        back.prepare(export_to=tmp_path, recreate=["t"])
    assert list(tmp_path.iterdir()) == [] and back.old.deleted == []


def test_nothing_is_prepared_for_a_cutover_or_once_armed(back: Back, tmp_path: Path) -> None:
    back.armed = object()
    with pytest.raises(NoWayBack, match="armed already"):
        back.prepare(export_to=tmp_path, recreate=["t"])
    # Whatever its name: a DAG run may have any.
    back.report.steps = [StepRecord(name="fence", status="done", started=1.0)]
    with pytest.raises(NoWayBack, match="not failed over"):
        back.prepare()
    assert CUT.below("m") == "failover/m/" and back.old.deleted == []
