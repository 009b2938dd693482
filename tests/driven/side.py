"""A driven cluster, as the conformance suite asks it for administration; its applications are our own admin facade."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Decisions, Ledger
from airflow_mirror.ledger.state import State, state_of
from tests.conformance.sides import Side, Transaction
from tests.driven.content import Writer
from tests.driven.ledger import LedgerCluster


class DrivenSide(Side):
    """See the module. Rights bind nobody, and nobody writes in transactions."""

    def __init__(self, cluster: LedgerCluster, name: str) -> None:
        self.cluster, self.name, self.admin = cluster, name, cluster.admin

    def admin_of(self, user: str) -> ClusterAdmin:
        raise NotImplementedError

    def ledger(self) -> Decisions:
        return Ledger(self.admin)

    def state(self, *prefixes: str) -> State:
        return state_of(self.admin, *prefixes)

    def append(self, value: bytes) -> None:
        raise NotImplementedError

    def now_ms(self) -> int:
        return self.cluster.clock.now_ms

    def write(self, user: str, tp: TopicPartition, value: bytes) -> str:
        with self.cluster.changing():
            log = self.cluster.log(tp)
            Writer(log).plain(1)
            return str(log.end - 1)

    def transaction(self, transactional_id: str) -> Transaction:
        raise NotImplementedError

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[None]:
        self.cluster.groups.members[group] = ["member"]
        yield
        self.cluster.groups.members[group] = []

    def settle(self) -> None:
        pass
