"""The cluster in memory, as the conformance suite asks it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import MissingRight
from airflow_mirror.ledger.decisions import Decisions
from airflow_mirror.ledger.state import State
from tests.conformance.sides import Side, Transaction
from tests.memory.admin import MemoryAdmin
from tests.memory.applications import Consumer, Producer
from tests.memory.cluster import MemoryCluster
from tests.memory.ledger import MemoryLedger, MemoryState
from tests.memory.rules import Rules


class _Transaction(Transaction):
    def __init__(self, cluster: MemoryCluster, transactional_id: str) -> None:
        self._producer = Producer(cluster, "User:admin", transactional_id=transactional_id)
        self._producer.begin()

    def write(self, tp: TopicPartition, value: bytes) -> None:
        self._producer.write(tp, value)

    def end(self, *, commit: bool) -> None:
        self._producer.end(commit=commit)


class MemorySide(Side):
    """See the module."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cluster = MemoryCluster(rules=Rules(open_by_default=True, supers={"User:admin"}))
        self.admin = self.admin_of("admin")

    def admin_of(self, user: str) -> MemoryAdmin:
        return MemoryAdmin(self.cluster, principal=f"User:{user}")

    def ledger(self) -> Decisions:
        return MemoryLedger(self.cluster)

    def state(self, *prefixes: str) -> State:
        return MemoryState(self.cluster, *prefixes)

    def append(self, value: bytes) -> None:
        self.cluster.decide(value)

    def now_ms(self) -> int:
        return self.cluster.now_ms

    def write(self, user: str, tp: TopicPartition, value: bytes) -> str:
        try:
            return str(Producer(self.cluster, f"User:{user}").write(tp, value))
        except MissingRight as e:
            return f"{e.acl and e.acl.code}"

    def transaction(self, transactional_id: str) -> Transaction:
        return _Transaction(self.cluster, transactional_id)

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[None]:
        consumer = Consumer(self.cluster, group, "member")
        consumer.join()
        yield
        consumer.leave()

    def settle(self) -> None:
        pass
