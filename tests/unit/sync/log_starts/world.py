"""Two clusters and a right, of which log starts are asked and records deleted; without a broker."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import BrokerError, LeaseLost, MirrorError, MissingRight
from airflow_mirror.kafka.model import ConfigEntry, TopicInfo
from airflow_mirror.plan.ownership import claim
from airflow_mirror.sync.log_starts.follower import StartFollower
from airflow_mirror.sync.log_starts.report import StartsReport
from airflow_mirror.sync.write_permit import WritePermit
from airflow_mirror.wire.fetch import READ_COMMITTED
from tests.builders import plan_of, topic_plan
from tests.followed import sides
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.plan.builders import a_mirror, configs

HOUR, DAY = 3_600_000, 86_400_000
NOW = 1_800_000_000_000
P0 = TopicPartition("orders", 0)
SHARED: dict[str, Any] = {
    "ownership": "shared", "delivery": "transactional", "sync_groups": False, "sync_configs": False, "sync_acls": False,
}  # fmt: skip
_WHAT = {-2: "start", -1: "end"}


class Log:
    """Record times by offset; a byte each."""

    def __init__(self, times: Iterable[int] = ()) -> None:
        self.times, self.start = list(times), 0

    @property
    def end(self) -> int:
        return len(self.times)


class Side:
    """A cluster with one topic. It is its own connection."""

    def __init__(self, role: str) -> None:
        self.role, self.wire, self.write_timeout_ms = role, self, 1000
        self.logs = {P0: Log(), TopicPartition("orders", 1): Log()}
        self.settings: dict[str, str] = {"retention_ms": str(DAY)}
        if role == "target":
            self.settings["segment_bytes"] = "5"
        self.ids = {"orders": f"id-on-{role}"}
        self.leaderless: set[TopicPartition] = set()
        self.undeletable: set[TopicPartition] = set()
        self.refuses: dict[str, MirrorError] = {}  # settings of topics
        self.refuses_sizes, self.uncut = False, 0
        self.deleted: list[tuple[TopicPartition, int]] = []

    def topic_names(self) -> list[str]:
        return []

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, self.ids[name], 2, 1) for name in names if name in self.ids}

    def refresh(self, topics: Iterable[str]) -> None:
        pass

    def topic_id(self, topic: str) -> str:
        return self.ids[topic]

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        return {name: configs(**self.settings) for name in names}

    def partitions(self, topic: str) -> int:
        return 2

    def alter_topic_configs(self, topic: str, permit: Callable[[], None], wanted: dict[str, str]) -> None:
        permit()
        if topic in self.refuses:
            raise self.refuses[topic]
        self.settings |= {key.replace(".", "_"): value for key, value in wanted.items()}

    def log_sizes(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self.refuses_sizes:
            raise MissingRight("sizes", "CLUSTER_AUTHORIZATION_FAILED", "User:m")
        return {tp: self.logs[tp].end - self.logs[tp].start + self.uncut for tp in tps}

    def ask_each(self, what: str, tps: Iterable[TopicPartition], ask: Callable[..., Any], operation: str) -> Any:
        tps = list(tps)
        errors = {tp: BrokerError(what, 5, "LEADER_NOT_AVAILABLE") for tp in tps if tp in self.leaderless}
        led = [(tp, None) for tp in tps if tp not in errors]
        found = {}
        for tp, code, value in ask(self, led) if led else ():
            if code:
                errors[tp] = BrokerError(what, code, "TOPIC_AUTHORIZATION_FAILED")
            else:
                found[tp] = value
        return found, errors


def list_offsets(side: Side, led: Any, timestamp: int, isolation: int) -> Iterable[tuple[TopicPartition, int, int]]:
    for tp, _ in led:
        log = side.logs[tp]
        if timestamp in _WHAT:
            yield tp, 0, getattr(log, _WHAT[timestamp])
            continue
        assert timestamp >= 0
        yield tp, 0, next((at for at in range(log.start, log.end) if log.times[at] >= timestamp), -1)


def delete_records(side: Side, led: Any, offsets: Any, timeout_ms: int, check: Callable[[], None]) -> Any:
    check()
    for tp, _ in led:
        if tp in side.undeletable:
            yield tp, 29, None
            continue
        assert offsets[tp] <= side.logs[tp].end
        side.deleted.append((tp, offsets[tp]))
        side.logs[tp].start = max(side.logs[tp].start, offsets[tp])
        yield tp, 0, side.logs[tp].start


def last_batch(side: Side, tp: TopicPartition, start: int, end: int, isolation: int, passed_over: Any) -> Any:
    """Batches of five records."""
    assert isolation == READ_COMMITTED, "the next opening compares the last one that was not aborted"
    return SimpleNamespace(first_offset=max(start, (end - 1) // 5 * 5)) if end > start else None


class Maps:
    """The stored maps of the topic's partitions."""

    def __init__(self) -> None:
        self.maps: dict[int, OffsetMap] = {}
        self.loads = 0
        self.error: MirrorError | None = None

    def of(self, partition: int) -> OffsetMap:
        return self.maps.setdefault(partition, OffsetMap(0, 0))

    def load(self, target: Any, copy_range: CopyRange) -> OffsetMap | None:
        self.loads += 1
        if self.error is not None:
            raise self.error
        return self.maps.get(copy_range.partition)


class FakeRight:
    """The lease; ``lost_at``: somebody else has it when it is confirmed, or looked at, for the n-th time."""

    granted = WritePermit.granted

    def __init__(self) -> None:
        self.writing, self.lost_at, self.asked = threading.Lock(), ("", 0), Counter[str]()

    def confirm(self, target: Any) -> None:
        self._ask("confirm")

    def check(self) -> None:
        self._ask("check")

    def _ask(self, how: str) -> None:
        self.asked[how] += 1
        if (how, self.asked[how]) == self.lost_at:
            raise LeaseLost("airflow-mirror.flow", 1, "epoch 2")


class World:
    def __init__(
        self, mode: str = "identical", source_id: str = "id-on-source", compacted: bool = False, **mirror: Any
    ) -> None:
        own = {"retention.ms": str(10 * DAY), "cleanup.policy": "delete"}  # counts with `keep_configs` only
        one = topic_plan(
            "orders", {0: 0, 1: 0}, mode=mode, source_topic_id=source_id, configs=own, compacted=compacted
        )  # fmt: skip
        self.mirror = a_mirror(**mirror)
        self.plan = plan_of(self.mirror, one)
        self.source, self.target, self.right = Side("source"), Side("target"), FakeRight()
        self.source.ids["orders"] = source_id
        self.state, self.ledger = MemoryState(), MemoryLedger()
        claim(self.ledger, self.plan, self.target)
        self.maps = Maps() if mode == "mapped" else None
        self.now, self.restart = NOW, self.start
        self.start()

    def start(self) -> None:
        """A new process."""
        maps: Any = self.maps
        self.follower = StartFollower(
            sides(
                lambda: self.plan, self.source, self.target, self.right, mirror=self.mirror, state=self.state,
                ledger=self.ledger,
            ),
            maps=maps, clock=lambda: self.now / 1000,
        )  # fmt: skip

    def produce(self, count: int, tp: TopicPartition = P0) -> None:
        """With mapped offsets, what is not copied lies before the records: twice as much."""
        here, there = (side.logs[tp] for side in (self.source, self.target))
        if self.maps is not None and count:
            here.times += [self.now] * 2 * count
            self.maps.of(tp.partition).add(here.end, there.end, count)
        for log in (here, there):
            log.times += [self.now] * count

    def retain(self) -> None:
        """What the source's broker does every few minutes."""
        limit = int(self.source.settings["retention_ms"])
        for log in self.source.logs.values() if limit >= 0 else ():
            while log.start < log.end and log.times[log.start] < self.now - limit:
                log.start += 1

    def passes(self, hours: float) -> StartsReport:
        report = StartsReport()
        for _ in range(int(hours)):
            self.now += HOUR
            self.retain()
            report = self.follower.follow(self.now)
        return report

    @property
    def start_there(self) -> int:
        return self.target.logs[P0].start
