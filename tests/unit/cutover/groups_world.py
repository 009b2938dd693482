"""Groups on both sides, for the tests of a cutover's groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover import groups_at_rest
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.restoring import restore_groups
from airflow_mirror.kafka.model import GroupInfo, GroupPosition
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.records import TOPIC
from airflow_mirror.plan.owned import Owned
from tests.unit.cutover.builders import Described, Logs, a_run, go_up, want

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)


ENDS = {ORDERS: 100, PAYMENTS: 7}


Positions = dict[TopicPartition, GroupPosition]


Only = Mapping[str, Iterable[TopicPartition]] | None


class Admin(Described):
    """One group's positions on a cluster, without members; ``then`` holds what is found at each later reading."""

    role = "cluster"

    def __init__(self, positions: Mapping[TopicPartition, int]) -> None:
        self.positions: Positions = {tp: GroupPosition(offset) for tp, offset in positions.items()}
        self.then: list[dict[TopicPartition, int]] = []
        self.forgotten: list[TopicPartition] = []

    def cluster_id(self) -> str:
        return "s"

    def groups(self) -> list[GroupInfo]:
        return [GroupInfo("billing", "Empty", "consumer")]

    def group_offsets(self, group: str) -> Positions:
        assert group == "billing"
        found = dict(self.positions)
        if self.then:
            self.positions = {tp: GroupPosition(offset) for tp, offset in self.then.pop(0).items()}
        return found

    def groups_offsets(self, ids: Iterable[str], only: Only = None) -> dict[str, Positions]:
        found = {group: self.group_offsets(group) for group in ids}
        return {g: {tp: p for tp, p in its.items() if only is None or tp in only[g]} for g, its in found.items()}

    def commit_group_offsets(self, group: str, wanted: Positions, permit: Permit = unfenced) -> None:
        permit()
        self.positions |= wanted

    def forget_group_offsets(self, group: str, tps: Sequence[TopicPartition], _permit: Permit = unfenced) -> None:
        self.forgotten += tps
        for tp in tps:
            del self.positions[tp]


class Log(Logs):
    def log_starts(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)


class World:
    def __init__(self, tmp_path: Path, source: dict[TopicPartition, int], target: dict[TopicPartition, int]) -> None:
        self.source, self.target = Admin(source), Admin(target)
        self.run = a_run(tmp_path, CallableFence(lambda: None, lambda: None), self.source)
        self.run.on.target.admin = self.target  # type: ignore[assignment]
        self.run.on.source.log, self.run.on.target.log = Log(ENDS), Log(ENDS)  # type: ignore[assignment]
        self.run.report.ends = [{"topic": tp.topic, "partition": tp.partition, "end": end} for tp, end in ENDS.items()]
        self.run.may_set = unfenced
        want(self.run, limits=replace(self.run.limits, group_quiet_s=0.0))

    def up(self) -> None:
        """Decide that its topics are its own, and its fence is up."""
        for tp in ENDS:
            one = Owned(topic_id="", mirror=self.run.mirror.name, source_id=self.run.plan.source_cluster_id)
            self.run.ledger.decide(lambda _, tp=tp, one=one: {TOPIC.key(tp.topic): one.value()})
        go_up(self.run)
        self.run.may_set = unfenced


def rested(attempt: Attempt) -> dict[str, str]:
    """Wait for all groups; return why each is at rest."""
    return {group: one.why for part in groups_at_rest.come_to_rest(attempt) for group, one in part.items()}


def restored(attempt: Attempt) -> str:
    return restore_groups(attempt.on.target, attempt.report, unfenced)


def at(positions: Positions) -> dict[TopicPartition, int]:
    return {tp: p.offset for tp, p in positions.items()}
