"""Clusters in memory, and topics of traces that are lists; a process may die before or after each append."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import OffsetMap, Translated
from airflow_mirror.errors import BrokerError, LeaseLost, MirrorError, NoOffsetMap, TryAgain
from airflow_mirror.kafka.model import ConfigEntry, NewTopicSpec, TopicInfo
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import claim
from airflow_mirror.sync.mm2_topics.follower import TraceFollower, TraceReport
from airflow_mirror.sync.mm2_topics.formats import Checkpoint, OffsetSync, read_checkpoint, read_offset_sync
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import refusal
from tests.builders import plan_of, topic_plan
from tests.followed import sides
from tests.unit.ledger.memory import MemoryLedger
from tests.unit.plan.builders import a_mirror
from tests.unit.sync.following.world import P0, Side

ALIAS = "A"
CHECKPOINTS, SYNCS = "A.checkpoints.internal", "mm2-offset-syncs.A.internal"
NOW = 1_800_000_000_000


class Killed(BaseException):
    """As kill -9 would end the process."""


class Traces(dict[str, list[tuple[bytes, bytes]]]):
    """The records of each topic of traces. ``dies_at``: the number of the append at which the process dies."""

    def __init__(self) -> None:
        self.appends, self.dies_at, self.after = 0, -1, False

    def log(self, topic: str) -> SimpleNamespace:
        self.setdefault(topic, [])
        return SimpleNamespace(topic=topic, read=lambda: dict(self[topic]), write=functools.partial(self._write, topic))

    def _write(self, topic: str, rows: Iterable[tuple[bytes, bytes]], _at_ms: int, check: Callable[[], None]) -> None:
        check()
        self.appends += 1
        if self.appends == self.dies_at and not self.after:
            raise Killed
        self[topic] += rows
        if self.appends == self.dies_at:
            raise Killed


class Cluster(Side):
    """A side that has topics of traces as well."""

    def __init__(self, role: str) -> None:
        super().__init__(role)
        self.silent = False
        self.there: dict[str, TopicInfo] = {}
        self.policies: dict[str, str] = {}
        self.refused: dict[str, int] = {}
        self.validated: list[list[str]] = []
        self.denied: dict[str, set[str]] = {}

    def cluster_id(self) -> str:
        if self.silent:
            raise TryAgain("the source does not answer")
        return "id-of-cluster"

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        wanted = list(names)
        for name in wanted:
            if "WRITE" in self.denied.get(name, ()):  # WRITE includes DESCRIBE
                raise refusal("describe", ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Describe", name, "User:mirror")
        return super().topics(wanted) | {name: self.there[name] for name in wanted if name in self.there}

    def lacking_on_topics(self, needed: Mapping[str, Collection[str]]) -> dict[str, list[MirrorError]]:
        code, spelled = ErrorCode.TOPIC_AUTHORIZATION_FAILED, {"DESCRIBE_CONFIGS": "DescribeConfigs"}
        return {
            topic: [refusal("try", code, spelled.get(one, one.title()), topic, "User:mirror") for one in sorted(lacks)]
            for topic, its in needed.items()
            if (lacks := self.denied.get(topic, set()).intersection(its))
        }

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        found = {name: self.policies.get(name, "compact") for name in names}
        return {name: {"cleanup.policy": ConfigEntry(value=policy)} if policy else {} for name, policy in found.items()}

    def broker_count(self) -> int:
        return 1

    def refused_topics(self, specs: list[NewTopicSpec]) -> dict[str, MirrorError]:
        self.validated.append([spec.name for spec in specs])
        found = {spec.name: code for spec in specs if (code := self.refused.get(spec.name))}
        return {name: refusal("create", code, "Create", name, "User:mirror") for name, code in found.items()}

    def partitions(self, topic: str) -> int:
        return 2

    def log_ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.logs[tp][1] for tp in tps}

    def ask_each(self, what: str, tps: Iterable[TopicPartition], ask: Any, operation: str) -> Any:
        known = {"high watermark": "last stable offset"}.get(what, what)
        return super().ask_each(known, tps, ask, operation)


class Right:
    """The lease; ``lost`` once somebody else has it."""

    lost = False

    def confirm(self, _target: Any) -> None:
        self.check()

    def check(self) -> None:
        if self.lost:
            raise LeaseLost("airflow-mirror.m", 1, "epoch 2")

    @contextmanager
    def granted(self, target: Any) -> Iterator[None]:
        self.confirm(target)
        yield


class Maps:
    """The offset maps of a mirror: those that a test has put here."""

    def __init__(self) -> None:
        self.known: dict[TopicPartition, OffsetMap] = {}

    def to_target(self, tp: TopicPartition, offset: int) -> Translated:
        if tp not in self.known:
            raise NoOffsetMap(tp)
        return self.known[tp].to_target(offset)

    def of(self, topics: Collection[str]) -> Mapping[TopicPartition, OffsetMap]:
        return {tp: one for tp, one in self.known.items() if tp.topic in topics}


class World:
    """A mirror of ``orders`` with checkpoints and offset-syncs."""

    def __init__(self, monkeypatch: Any, mode: str = "identical", **mirror: Any) -> None:
        fields = {"traces": "checkpoints, offset-syncs", "source_alias": ALIAS, **mirror}
        one = topic_plan("orders", {0: 0, 1: 0}, mode=mode, source_topic_id="id-of-orders")
        self.plan: Plan = plan_of(a_mirror(**fields), one)
        self.source, self.target, self.maps, self.right = Cluster("source"), Cluster("target"), Maps(), Right()
        self.ledger, self.traces = MemoryLedger(), Traces()
        claim(self.ledger, self.plan, self.target)
        monkeypatch.setattr(
            "airflow_mirror.sync.mm2_topics.follower.make_ready",
            lambda _, names, *__: {n: self.traces.log(n) for n in names},
        )

    def follow(self) -> TraceReport:
        """One pass of a new process."""
        given = sides(self.plan, self.source, self.target, self.right, ledger=self.ledger, maps=self.maps)
        return TraceFollower(given).follow(NOW)

    def checkpoints(self) -> list[Checkpoint]:
        return [one for row in self.traces.get(CHECKPOINTS, []) if (one := read_checkpoint(*row)) is not None]

    def syncs(self) -> list[OffsetSync]:
        return [one for row in self.traces.get(SYNCS, []) if (one := read_offset_sync(*row)) is not None]


def leaderless() -> BrokerError:
    return BrokerError("ask", 5, "LEADER_NOT_AVAILABLE")


def a_map(tp: TopicPartition = P0, at: int = 7) -> OffsetMap:
    """Records 0 to 9 of the source at ``at`` and on, a marker, and 11 to 20 behind one on the target."""
    one = OffsetMap(0, at)
    one.add(0, at, 10)
    one.add(11, at + 12, 10)
    one.advance(22, at + 23)
    return one
