"""A source that is back after a failover, and what stands there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.decision import OPENED, fence_state
from airflow_mirror.cutover.failover import after, returned
from airflow_mirror.cutover.failover.returned import Returned, fence_returned
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.kafka.model import Acl, GroupInfo, GroupPosition, TopicInfo
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.kafka.transactions import OpenTransaction
from airflow_mirror.plan import ownership
from tests.builders import rule
from tests.unit.cutover.builders import Acls, GivenSide
from tests.unit.failover.world import A0, A1, B0, Effects, Part, World

if TYPE_CHECKING:
    import pytest

OPEN = OpenTransaction(
    transactional_id="x", producer_id=1, epoch=0, state="Ongoing", started_ms=0, partitions=frozenset({A0})
)  # fmt: skip
QUICK = Limits(quiet_s=0, settle_s=0, proof_timeout_s=0, transactions_timeout_s=0, poll_s=0.001)


class Source(Acls):
    """The old source with its ACLs and logs.

    ``deaf``: brokers that never hear of a topic's ACL; ``blind``: so many lists of topics come from one that knows none.
    """

    config = ClientConfig({"bootstrap.servers": "nowhere:1"}, "source")
    principal = "User:mirror"

    def __init__(self, effects: Effects) -> None:
        super().__init__(rule("a", "WRITE", "ALLOW", "User:shop"), open_by_default=True)
        self.effects, self.deaf, self.hidden = effects, False, ""
        self.blind = 0
        self.logs = {A0: (0, 53), A1: (0, 40), B0: (0, 30)}
        self.ids = {"a": "1", "b": "2"}
        self.at = {"g": {A0: GroupPosition(20)}, "idle": {}}

    @property
    def wire(self) -> Source:
        return self

    def cluster_id(self) -> str:
        return "s"

    def broker_count(self) -> int:
        return 1

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        if self.blind:
            self.blind -= 1
            return {}
        counts = {name: sum(tp.topic == name for tp in self.logs) for name in names}
        return {name: TopicInfo(name, self.ids[name], counts[name], 1) for name in names if name in self.ids}

    def refresh_present(self, names: Collection[str]) -> set[str]:
        return {name for name in names if name not in self.ids}

    def log_starts(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.logs[tp][0] for tp in tps}

    def log_ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.logs[tp][1] for tp in tps}

    last_stable = log_ends

    def transactions_hidden(self) -> str:
        return self.hidden

    def open_transactions(self) -> list[OpenTransaction]:
        return []

    def groups(self) -> list[GroupInfo]:
        return [GroupInfo(group, "Empty", "consumer") for group in self.at]

    def groups_offsets(self, ids: Collection[str]) -> dict[str, dict[TopicPartition, GroupPosition]]:
        return {group: dict(self.at[group]) for group in ids}

    def create_acls(self, acls: list[Acl], permit: Permit = unfenced) -> None:
        if acls:
            what = f"create {acls[0].permission} {acls[0].resource_type}"
            self.effects.do(what, lambda: super(Source, self).create_acls(acls, permit))

    def acls_by_broker(self, resource_type: str) -> dict[int, list[Acl]]:
        return {1: [] if self.deaf and resource_type == "TOPIC" else self.describe_acls(resource_type)}


class Returns(World):
    """A failed-over mirror, whose source answers again with three records more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, passed_on: Sequence[str] = ()) -> None:
        super().__init__(monkeypatch)
        if passed_on:
            ownership.give_up(self.ledger(), "m", passed_on)
            ownership.pass_on(self.ledger(), "m", "n", passed_on)
        self.fail_over()
        self.effects.log.clear()
        self.source = Source(self.effects)
        monkeypatch.setattr(returned, "Side", lambda _: self.on())
        monkeypatch.setattr(Platform, "of", lambda *_: self.both())
        monkeypatch.setattr(after, "count_data", lambda *at, committed: (at[3] - at[2]) * committed)

    def reports(self) -> Part:
        return Part(self.state, ("report/m/",))

    def both(self) -> Platform:
        source = GivenSide(self.source)
        source.log = self.source
        return Platform(source, self.on())

    def fence(self, **how: Any) -> Returned:  # type: ignore[override]
        fence = AclFence(self.source)  # type: ignore[arg-type]
        return fence_returned(self.both(), "m", fence, limits=QUICK, **how)

    def lift(self, **how: Any) -> list[str]:
        return lift_leftover_fence(self.both(), "m", **how)

    def run(self) -> str:
        return f"failover-{self.fail_over().direction.attempt}"

    def report(self) -> CutoverReport:
        found = ReportStore(self.reports(), "m", self.run(), None).load()
        assert found is not None
        return found

    def is_fenced(self) -> bool:
        """As whoever lifts, swaps or arms has to find it."""
        report, there = self.report(), fence_state(self.ledger().values(), "m")
        assert report.fence is not None and there is not None
        assert (report.outcome, report.fence.kept, report.fence.unseen, report.plan_hash) == (
            "cut_over", True, "", self.plan.hash,
        )  # fmt: skip
        assert {(row["topic"], row["partition"]): row["end"] for row in report.ends} == {
            ("a", 0): 50, ("a", 1): 40, ("b", 0): 30,
        }  # fmt: skip
        assert (there.phase, there.run, there.plan) == (OPENED, self.run(), self.plan.hash)
        return {rule("a", "WRITE", "DENY"), rule("b", "WRITE", "DENY")} <= self.source.acls
