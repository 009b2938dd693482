"""What has become of a source that returned: verdicts, exports that keep every record, and topics that are deleted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover import decision
from airflow_mirror.cutover.decision import OPENED, FenceState
from airflow_mirror.cutover.failover.record import Record
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import DONE, CutoverReport, FenceRecord, as_recorded
from airflow_mirror.cutover.rollback import failback as module
from airflow_mirror.cutover.rollback import topic_divergence
from airflow_mirror.cutover.rollback.export import MANIFEST, export, read_back
from airflow_mirror.cutover.rollback.failback import Prepared, failback
from airflow_mirror.cutover.rollback.topic_divergence import TopicDivergence, classify_divergence
from airflow_mirror.errors import ExportBroken, FenceGone, InputError, NoWayBack
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger.kinds import in_pieces
from airflow_mirror.ledger.records import CUT
from airflow_mirror.verify.remaining import verify_rest
from airflow_mirror.verify.result import PartitionComparison
from airflow_mirror.wire.batch import iter_batches
from airflow_mirror.wire.records import decode
from tests.builders import plan_of, rule, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer, hostile
from tests.driven.copying import copy, ranges_of
from tests.driven.log import PartitionLog
from tests.driven.script import Fault
from tests.unit.cutover.builders import Acls, GivenSide
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.plan.builders import a_mirror

PARTITIONS = 2


class World:
    """Topic ``t`` of two partitions on an old source, and all of it on the target when that was promoted."""

    def __init__(self, old: DrivenCluster, new: DrivenCluster) -> None:
        self.old_cluster, self.new_cluster = old, new
        old.create("t", PARTITIONS), new.create("t", PARTITIONS)
        for log in self.logs:
            Writer(log).plain(7)
            Writer(log).in_transaction(5, 6)
            Writer(log).end(5, commit=True)
        copy(old, new, ranges_of(old, "t"))
        self.source, self.target = ClusterAdmin(old.config), ClusterAdmin(new.config)
        topic_id = self.source.topics(["t"])["t"].topic_id
        self.plan = plan_of(a_mirror(name="m"), topic_plan("t", {0: 0, 1: 0}, source_topic_id=topic_id))
        self.cut = {TopicPartition("t", p): log.end for p, log in enumerate(self.logs)}

    @property
    def logs(self) -> list[PartitionLog]:
        return self.old_cluster.topics["t"].logs

    def close(self) -> None:
        self.source.close()
        self.target.close()

    def verdict(self, level: str | None = "batches") -> TopicDivergence:
        (found,) = classify_divergence(self.cut, self.plan, self.source, self.target, level)
        return found

    def again(self) -> None:
        """Delete the topic on the old source, and create it again."""
        self.old_cluster.delete("t")
        self.old_cluster.create("t", PARTITIONS)
        self.source.close()


@pytest.fixture
def world(source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(ClusterAdmin, "topic_configs", lambda *_: {"t": {"cleanup.policy": ConfigEntry(value="delete")}})
    with closing(World(source, target)) as made:
        yield made


def lost_its_tail(world: World) -> None:
    world.logs[0].truncate(7)


def more(world: World) -> None:
    Writer(world.logs[1]).plain(3)


def more_that_was_deleted(world: World) -> None:
    more(world)
    world.logs[1].delete_records(world.logs[1].end)


def other_records_at_the_same_offsets(world: World) -> None:
    world.logs[0].truncate(7)
    Writer(world.logs[0]).plain(2, size=99)


def deleted(world: World) -> None:
    world.old_cluster.delete("t")
    world.source.close()


def created_again_with_records(world: World) -> None:
    world.again()
    Writer(world.logs[0]).plain(1)


def more_partitions(world: World) -> None:
    """The target has none of that number, and is not asked for it."""
    topic = world.old_cluster.topics["t"]
    added = TopicPartition("t", PARTITIONS)
    topic.logs.append(PartitionLog(added, topic.logs[0].config, world.old_cluster.clock, world.old_cluster.release))
    topic.leaders[added.partition] = topic.leaders[0]
    world.source.close()


def more_partitions_with_records(world: World) -> None:
    more_partitions(world)
    Writer(world.logs[PARTITIONS]).plain(2)


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


class Old(Acls):
    """The old source as the admin facade shows it, with an authorizer.

    :ivar deleted: topics and ids; the process may die before that (``dies``).
    """

    def __init__(self, world: World) -> None:
        super().__init__(rule("t", "WRITE", "DENY"))
        self.world, self.deleted, self.dies, self.id = world, list[tuple[str, str]](), False, "s"
        self.config, self.wire, self.topics = world.source.config, world.source.wire, world.source.topics

    def cluster_id(self) -> str:
        return self.id

    def delete_topic(self, name: str, topic_id: str, permit: Permit) -> None:
        permit()
        if self.dies:
            raise KeyboardInterrupt
        self.deleted.append((name, topic_id))
        self.world.old_cluster.delete(name)
        self.world.source.close()


class Back:
    """A source that returned and was fenced, and how the way back is prepared."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.old, self.state, self.ledger = world, Old(world), MemoryState(), MemoryLedger()
        self.run = "failover-x"
        ends = [{"topic": tp.topic, "partition": tp.partition, "end": end} for tp, end in world.cut.items()]
        intent = AclFence(self.old).intent(["t"])  # type: ignore[arg-type]
        fence = FenceRecord(kind="acl", intent=as_recorded(intent), requested=1.0, proven=2.0, kept=True, unseen="")
        self.report = CutoverReport(mirror="m", plan_hash=world.plan.hash, outcome=DONE, ends=ends, fence=fence, id="i")
        state = FenceState(
            run=self.run, attempt=1, id="i", plan=world.plan.hash, revision=world.plan.revision, owner="o",
            max_fence_s=60.0, phase=OPENED, intent=intent.value(),
        )  # fmt: skip
        decision.note_copy(self.ledger, "m", state)
        kept_plan = in_pieces(f"plan/m/{world.plan.hash}", world.plan.to_json().encode())
        self.state.write(kept_plan)
        self.on = Platform(GivenSide(self.old), GivenSide(world.target, self.ledger, self.state))
        assert self.report.cut == world.cut
        self.armed: Any = None
        kept = SimpleNamespace(load=lambda: self.report, run=self.run)
        monkeypatch.setattr(module, "cutover_of", lambda *_: (kept, world.plan))
        monkeypatch.setattr(module, "armed", lambda *_: self.armed)
        self.kept = kept

    def prepare(self, **how: Any) -> Prepared:
        return failback("m", self.on, **how)

    def noted(self) -> dict[str, Any]:
        return Record(self.state, "m", "x").exported()


@pytest.fixture
def back(world: World, monkeypatch: pytest.MonkeyPatch) -> Back:
    more(world)
    return Back(world, monkeypatch)


def test_without_being_asked_nothing_is_written_or_deleted(back: Back, tmp_path: Path) -> None:
    found = back.prepare()
    assert found.lines()[0] == "topics of mirror 'm' on the old source: 0 delta, 1 diverged, 0 gone"
    assert found.to_dict()["diverged"] == ["t"] and "3 offsets, from 14 up to 17" in found.lines()[2]
    assert back.noted() == {} and list(tmp_path.iterdir()) == [] and back.old.deleted == []


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


def test_source_that_was_built_anew_is_named_before_anything_is_read(back: Back, tmp_path: Path) -> None:
    """Its topics are gone and so is the fence, which would send somebody to look for who removed that."""
    back.old.id = "another"
    back.old.acls.clear()
    with pytest.raises(InputError, match="the source is cluster another; .* make an ordinary mirror to it"):
        back.prepare(export_to=tmp_path, recreate=["t"])
    assert list(tmp_path.iterdir()) == [] and back.old.deleted == []


def test_nothing_is_prepared_for_a_cutover_or_once_armed(back: Back, tmp_path: Path) -> None:
    back.armed = object()
    with pytest.raises(NoWayBack, match="armed already"):
        back.prepare(export_to=tmp_path, recreate=["t"])
    back.kept.run = "manual-1"
    with pytest.raises(NoWayBack, match="not failed over"):
        back.prepare()
    assert CUT.below("m") == "failover/m/" and back.old.deleted == []


# --- what only the old source has is in the export before a topic is deleted ------------------------------------------


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
