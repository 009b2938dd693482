"""A real cluster, as the conformance suite asks it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Decisions, Ledger
from airflow_mirror.ledger.state import State, state_of
from sandbox import Cluster
from tests.conformance.sides import Side, Transaction

_NEWS_S = 0.5  # in which one broker hears of what its controller did


class _Transaction(Transaction):
    def __init__(self, properties: dict[str, str], transactional_id: str) -> None:
        self._producer = Producer({**properties, "transactional.id": transactional_id, "linger.ms": 0})
        self._producer.init_transactions(60)
        self._is_open = False

    def write(self, tp: TopicPartition, value: bytes) -> None:
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True
        self._producer.produce(tp.topic, value, partition=tp.partition)
        assert self._producer.flush(60) == 0

    def end(self, *, commit: bool) -> None:
        (self._producer.commit_transaction if commit else self._producer.abort_transaction)(60)
        self._is_open = False
        time.sleep(_NEWS_S)  # the marker comes a moment after the answer


class RealSide(Side):
    """See the module. Close it.

    :param cluster: with an authorizer.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name, self._cluster = name, cluster
        self._admins: list[ClusterAdmin] = []
        self.admin = self.admin_of("admin")
        Ledger(self.admin).create()

    def close(self) -> None:
        self.admin.delete_acls(
            [one for one in self.admin.describe_acls() if one.name.startswith(self.name[:-2])], unfenced
        )
        for admin in self._admins:
            admin.close()

    def admin_of(self, user: str) -> ClusterAdmin:
        self._admins.append(ClusterAdmin(ClientConfig(self._cluster.properties(user), "target")))
        return self._admins[-1]

    def ledger(self) -> Decisions:
        return Ledger(self.admin_of("admin"))

    def state(self, *prefixes: str) -> State:
        return state_of(self.admin_of("admin"), *prefixes)

    def append(self, value: bytes) -> None:
        producer = Producer(self._cluster.admin_properties())
        producer.produce(DECISIONS, value)
        assert producer.flush(60) == 0

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def write(self, user: str, tp: TopicPartition, value: bytes) -> str:
        producer = Producer({**self._cluster.properties(user), "linger.ms": 0})
        answers: list[str] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            answers.append(str(message.offset()) if error is None else str(error.code()))

        producer.produce(tp.topic, value, partition=tp.partition, on_delivery=delivered)
        assert producer.flush(60) == 0
        return answers[0]

    def transaction(self, transactional_id: str) -> Transaction:
        return _Transaction(self._cluster.admin_properties(), transactional_id)

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[None]:
        consumer = Consumer({
            **self._cluster.admin_properties(), "group.id": group, "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        })  # fmt: skip
        try:
            consumer.subscribe([topic])
            deadline = time.monotonic() + 60
            while not consumer.assignment():
                if (message := consumer.poll(0.2)) is not None and message.error():
                    raise KafkaException(message.error())
                assert time.monotonic() < deadline
            yield
        finally:
            consumer.close()

    def settle(self) -> None:
        time.sleep(_NEWS_S)
