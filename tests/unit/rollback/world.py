"""Two clusters without brokers behind a finished cutover; the process may die before any of their changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.decision import OPENED, FenceState
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import DONE, CutoverReport, FenceRecord, GroupRecord, StepRecord, as_recorded
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.rollback import arm as arming
from airflow_mirror.cutover.rollback.reverse import reverse_of
from airflow_mirror.kafka.model import Acl, GroupPosition, TopicInfo
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.decisions import Change, Values
from airflow_mirror.ledger.kinds import in_pieces
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import ownership
from airflow_mirror.plan.model import Plan
from tests.builders import plan_of, rule, topic_plan
from tests.unit.cutover.authorizer import may_write
from tests.unit.cutover.builders import Acls, GivenSide
from tests.unit.ledger.memory import MemoryLedger, MemoryState

MIRROR = Mirror(name="flow", source="old", target="new", topics=["orders"])
ORDERS = TopicPartition("orders", 0)
PLAN = plan_of(
    MIRROR, topic_plan("orders", {0: 0}, source_topic_id="id-old"), source_cluster_id="old", target_cluster_id="new"
)  # fmt: skip
REVERSE = plan_of(
    reverse_of(MIRROR), topic_plan("orders", {0: 0}, source_topic_id="id-new"), source_cluster_id="new",
    target_cluster_id="old",
)  # fmt: skip


class Died(Exception):
    """The process ends here."""


class Changes:
    """Counts what changes anything, on both clusters. :ivar left: changes until the process dies."""

    left = 10**6

    def one(self) -> None:
        if self.left == 0:
            raise Died
        self.left -= 1


class State(MemoryState):
    changes: Changes

    def write(self, values: Mapping[str, bytes | None], permit: Permit = unfenced) -> None:
        self.changes.one()
        super().write(values, permit)


class Ledger(MemoryLedger):
    changes: Changes

    def decide(self, change: Change, until_ms: int | None = None) -> Values | None:
        if change(self.values()) is None:
            return None
        self.changes.one()
        return super().decide(change, until_ms)


class Logs:
    """The bounds of a cluster's logs."""

    def __init__(self, end: int) -> None:
        self.start, self.end = 0, end

    def log_ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self.end)

    last_stable = log_ends

    def log_starts(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self.start)


class Cluster(Acls):
    """A cluster with a ledger, state, ACLs and one topic. Nobody but the mirror may write while ``shut``."""

    principal = "User:mirror"

    def __init__(self, name: str, end: int, changes: Changes, *acls: Acl) -> None:
        super().__init__(*acls)
        self.name, self.wire, self.changes, self.shut = name, Logs(end), changes, False
        self.positions: dict[str, dict[TopicPartition, GroupPosition]] = {}
        self.partitions = 1
        self.members: set[str] = set()
        self.ledger, self.state = Ledger(), State()
        self.ledger.changes = self.state.changes = changes

    def cluster_id(self) -> str:
        return self.name

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, f"id-{self.name}", self.partitions, 1) for name in names}

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return {name: {} for name in names}

    def grow_partitions(self, topic: str, count: int, permit: Permit) -> None:
        permit()
        self.changes.one()
        self.partitions = count

    def groups_offsets(self, groups: Collection[str]) -> dict[str, dict[TopicPartition, GroupPosition]]:
        return {group: self.positions.get(group, {}) for group in groups}

    def group_states(self, groups: Collection[str]) -> dict[str, str]:
        return {group: "Stable" if group in self.members else "Empty" for group in groups}

    def create_acls(self, acls: list[Acl], permit: Permit = unfenced) -> None:
        self._watched(super().create_acls, acls, permit)

    def delete_acls(self, acls: list[Acl], permit: Permit = unfenced) -> list[Acl]:
        return self._watched(super().delete_acls, acls, permit)  # type: ignore[no-any-return]

    def _watched(self, change: Any, acls: list[Acl], permit: Permit) -> Any:
        if acls and permit is not unfenced:
            permit()
            self.changes.one()
        done = change(acls)
        assert not self.shut or not may_write(self.acls, "User:shop", "orders")
        return done


class World:
    """A finished cutover of one topic at offset 50, with its fence kept, and what is decided about it."""

    def __init__(self) -> None:
        self.changes = Changes()
        self.old = Cluster("old", 50, self.changes, rule("orders", "WRITE", "ALLOW", "User:shop"))
        self.new = Cluster("new", 50, self.changes)
        self.built: list[Mirror] = []
        fence = AclFence(self.old)  # type: ignore[arg-type]
        intent = fence.intent(["orders"])
        fence.raise_(intent, name_of("flow", "monday", "x"), unfenced)
        self.old.shut = True
        for plan, cluster in ((PLAN, self.new), (REVERSE, self.old)):
            cluster.state.write(in_pieces(f"plan/{plan.mirror.name}/{plan.hash}", plan.to_json().encode()))
        self.fence = FenceState(
            run="monday", attempt=1, id="x", plan=PLAN.hash, revision=PLAN.hash, owner="x", max_fence_s=60.0,
            intent=intent.value(), phase=OPENED,
        )  # fmt: skip
        self.new.ledger.decide(lambda _: {"fence/flow": {"v": 1, **asdict(self.fence)}})
        self.report = CutoverReport(
            mirror="flow", plan_hash=PLAN.hash, id="x", outcome=DONE,
            ends=[{"topic": "orders", "partition": 0, "end": 50}],
            steps=[StepRecord(name="fence", status="done", started=1.0)],
            fence=FenceRecord(kind="acl", intent=as_recorded(intent), requested=1.0, opened=2.0, kept=True, unseen=""),
            groups=[GroupRecord(group="g", settled="empty", source_state="Empty", positions=[
                {"topic": "orders", "partition": 0, "source_offset": 7, "target_topic": "orders", "target_offset": 7}
            ])],
        )  # fmt: skip
        self.kept().save(self.report)
        ownership.mark_cut_over(self.new.ledger, PLAN, {"orders": "id-new"}, "noon")
        self.on = Platform(*(GivenSide(one, one.ledger, one.state) for one in (self.old, self.new)))
        for one in (self.on.source, self.on.target):
            one.log = one.admin.wire  # type: ignore[misc]
        self.reverse: Plan | Exception = REVERSE

    def build(self, mirror: Mirror, source: Any, target: Any, known: Any, *, probe_target: bool) -> Plan:
        assert (source, target) == (self.new, self.old) and known == {"orders": "identical"}
        self.built.append(mirror)
        if isinstance(self.reverse, Exception):
            raise self.reverse
        return self.reverse

    def kept(self) -> ReportStore:
        return ReportStore(self.new.state, "flow", "monday", None)

    def save(self) -> None:
        self.kept().save(self.report)

    def arm(self, plan: Plan = PLAN, **how: Any) -> arming.Armed:
        return arming.arm(self.on, self.kept(), plan, planner=self.build, **how)
