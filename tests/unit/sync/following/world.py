"""Two clusters with groups, what is noted of them, and a right; without a broker. A process may die at each effect."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import Translated
from airflow_mirror.errors import BrokerError, LeaseLost, MirrorError, NoOffsetMap, TryAgain
from airflow_mirror.kafka.model import GroupCommit, GroupInfo, GroupPosition, TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import claim
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.following.follower import FollowReport, GroupFollower
from tests.builders import plan_of, topic_plan
from tests.followed import sides
from tests.unit.ledger.memory import MemoryLedger
from tests.unit.plan.builders import a_mirror

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW = 1_800_000_000_000


class Killed(BaseException):
    """As a signal would end the process."""


class Side:
    """A cluster: positions of groups, logs, and groups with members. It is its own connection."""

    def __init__(self, role: str) -> None:
        self.role, self.wire = role, self
        self.positions: dict[str, dict[TopicPartition, GroupPosition]] = {}
        self.logs = {P0: (0, 1000), P1: (0, 1000)}
        self.members: set[str] = set()
        self.joins: set[str] = set()  # right before a commit
        self.unreadable: dict[str, MirrorError] = {}
        self.leaderless: set[TopicPartition] = set()
        self.lose_answers = False
        self.forbidden: set[str] = set()  # to be committed
        self.forbidden_at: set[TopicPartition] = set()
        self.topic_ids: dict[str, str] = {}
        self.gone: set[str] = set()
        self.commits: list[tuple[str, dict[TopicPartition, int]]] = []

    def put(self, group: str, *offsets: int) -> None:
        of_group = {TopicPartition("orders", p): GroupPosition(o) for p, o in enumerate(offsets)}
        self.positions.setdefault(group, {}).update(of_group)

    def at(self, group: str) -> list[int]:
        return [p.offset for _, p in sorted(self.positions.get(group, {}).items())]

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, f"id-of-{name}", 2, 1) for name in names if name == "orders"}

    def groups(self) -> list[GroupInfo]:
        return [GroupInfo(g, "Stable" if g in self.members else "Empty", "consumer") for g in sorted(self.positions)]

    def groups_offsets_apart(self, ids: Iterable[str], *, stable: bool = True) -> Any:
        errors = {g: self.unreadable[g] for g in ids if g in self.unreadable}
        return {g: dict(self.positions.get(g, {})) for g in ids if g not in errors}, errors

    def commit_groups(self, wanted: Any, check: Callable[[], None]) -> dict[str, GroupCommit]:
        commits = {}
        self.members |= self.joins
        for group, its in wanted.items():
            check()
            commits[group] = commit = GroupCommit()
            if group in self.members:
                commit.active, commit.error, commit.refused = True, BrokerError("set", 25, "UNKNOWN_MEMBER_ID"), set(its)
                continue
            if group in self.forbidden:
                commit.error, commit.refused = BrokerError("set", 30, "GROUP_AUTHORIZATION_FAILED"), set(its)
                continue
            if refused := self.forbidden_at.intersection(its):
                commit.error, commit.refused = BrokerError("set", 29, "TOPIC_AUTHORIZATION_FAILED"), refused
                its = {tp: p for tp, p in its.items() if tp not in refused}
            self.commits.append((group, {tp: p.offset for tp, p in its.items()}))
            self.positions.setdefault(group, {}).update(its)
            if self.lose_answers:
                commit.error = BrokerError("set", 13, "NETWORK_EXCEPTION")
            else:
                commit.done = set(its)
        return commits

    def topic_id(self, topic: str) -> str:
        return self.topic_ids.get(topic, f"id-of-{topic}")

    def refresh(self, topics: Iterable[str]) -> None:
        pass

    def refresh_present(self, topics: Iterable[str]) -> set[str]:
        return self.gone.intersection(topics)

    def ask_each(self, what: str, tps: Iterable[TopicPartition], ask: Any, operation: str) -> Any:
        number = {"log start": 0, "last stable offset": 1}[what]
        errors = {tp: BrokerError(what, 5, "LEADER_NOT_AVAILABLE") for tp in tps if tp in self.leaderless}
        return {tp: self.logs[tp][number] for tp in tps if tp not in errors}, errors


class MemoryState:
    """The target's state; ``away``: it can't be written."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.writes = 0
        self.away = False

    def read(self) -> dict[str, bytes]:
        return self.values

    def write(self, values: dict[str, bytes | None], permit: Permit) -> None:
        permit()
        if self.away:
            raise TryAgain("the state could not be written")
        self.writes += 1
        for key, value in values.items():
            self.values.pop(key, None)
            if value is not None:
                self.values[key] = value


class FakeRight:
    """The lease; ``lost`` once somebody else has it."""

    def __init__(self) -> None:
        self.writing, self.lost = threading.Lock(), False

    def confirm(self, target: Any) -> None:
        self.check()

    def check(self) -> None:
        if self.lost:
            raise LeaseLost("airflow-mirror.flow", 1, "epoch 2")


class World:
    def __init__(self, mode: str = "identical", **mirror: Any) -> None:
        plan_topic = topic_plan("orders", {0: 0, 1: 0}, mode=mode, source_topic_id="id-of-orders")
        self.plan: Plan = plan_of(a_mirror(**mirror), plan_topic)
        self.source, self.target, self.state, self.right = Side("source"), Side("target"), MemoryState(), FakeRight()
        self.ledger, self.to_target = MemoryLedger(), self.no_map
        self.moved: list[tuple[int, int]] = []
        claim(self.ledger, self.plan, self.target)

    @staticmethod
    def no_map(tp: TopicPartition, offset: int) -> Translated:
        raise NoOffsetMap(tp)

    def follow(self, now_ms: int = NOW) -> FollowReport:
        """One pass of a new process: nothing is remembered."""
        return self.follower().follow(now_ms)

    def follower(self) -> GroupFollower:
        """What a process makes its passes with."""
        given = sides(
            self.plan, self.source, self.target, self.right, ledger=self.ledger, state=self.state,
            maps=SimpleNamespace(to_target=self.to_target),
            moved=lambda read_ms, answered_ms: self.moved.append((read_ms, answered_ms)),
        )  # fmt: skip
        return GroupFollower(given)

    def note(self, group: str) -> notes.Note | None:
        value = self.state.values.get(notes.key(self.plan.mirror.name, group))
        return None if value is None else notes.load(value)
