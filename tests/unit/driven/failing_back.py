"""A source that returned, with what may have happened to its topic, and how the way back is prepared."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.decision import OPENED, FenceState
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.failover.record import Record
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import DONE, CutoverReport, FenceRecord, as_recorded
from airflow_mirror.cutover.rollback import failback as module
from airflow_mirror.cutover.rollback.failback import Prepared, failback
from airflow_mirror.cutover.rollback.topic_divergence import TopicDivergence, classify_divergence
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger.kinds import in_pieces
from tests.builders import plan_of, rule, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import copy, ranges_of
from tests.driven.log import PartitionLog
from tests.unit.cutover.builders import Acls, GivenSide
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.plan.builders import a_mirror

if TYPE_CHECKING:
    import pytest

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

    def pass_on(self) -> None:
        """Have topic ``u`` in the plan, which another mirror has by now, and copies records of."""
        self.old_cluster.create("u"), self.new_cluster.create("u")
        Writer(self.old_cluster.topics["u"].logs[0]).plain(4)
        theirs = topic_plan("u", {0: 0}, source_topic_id=self.source.topics(["u"])["u"].topic_id)
        self.plan = replace(self.plan, topics=(*self.plan.topics, theirs))

    def again(self) -> None:
        """Delete the topic on the old source, and create it again."""
        self.old_cluster.delete("t")
        self.old_cluster.create("t", PARTITIONS)
        self.source.close()


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


def lost_a_log_that_was_copied_from_within(world: World) -> None:
    """Its partition begins again at 0 under the same topic id, below all that could be compared."""
    world.plan = replace(world.plan, topics=(replace(world.plan.topics[0], starts={0: 7, 1: 7}),))
    world.logs[0].truncate(0)
    Writer(world.logs[0]).plain(2, size=99)


def passed_by_the_targets_retention(world: World) -> None:
    """The old source was away for longer than its own retention, and has nothing left either."""
    world.logs[1].delete_records(world.logs[1].end)
    there = world.new_cluster.topics["t"].logs[1]
    Writer(there).plain(5)
    there.delete_records(world.logs[1].end + 3)


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
        others = frozenset(t.source_topic for t in world.plan.topics) - {"t"}
        intent = replace(AclFence(self.old).intent(["t"]), others=others)  # type: ignore[arg-type]
        fence = FenceRecord(kind="acl", intent=as_recorded(intent), requested=1.0, proven=2.0, kept=True, unseen="")
        self.report = CutoverReport(mirror="m", plan_hash=world.plan.hash, outcome=DONE, ends=ends, fence=fence, id="i")
        state = FenceState(
            run=self.run, attempt=1, id="i", plan=world.plan.hash, revision=world.plan.revision, owner="o",
            max_fence_s=60.0, phase=OPENED, intent=intent.value(),
        )  # fmt: skip
        note_copy(self.ledger, "m", state)
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
