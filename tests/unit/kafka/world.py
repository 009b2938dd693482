"""A cluster of one fake broker, and an admin facade that asks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka.protocol.admin import DescribeConfigsResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.admin import ClusterAdmin
from tests.unit.peer import FakeBroker, HangUp

LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 2, 3, 8, 9, 10
DESCRIBE_GROUPS, LIST_GROUPS = 15, 16
CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 19, 20, 29, 30, 31
DESCRIBE_CONFIGS, ALTER_CONFIGS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS, OFFSET_DELETE = 32, 33, 37, 44, 47
DESCRIBE_QUOTAS, ALTER_QUOTAS, DESCRIBE_USERS, ALTER_USERS = 48, 49, 50, 51
KEYS = (
    METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_GROUPS, LIST_GROUPS, CREATE_TOPICS, DELETE_TOPICS,
    DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_CONFIGS, ALTER_CONFIGS, CREATE_PARTITIONS,
    INCREMENTAL_ALTER_CONFIGS, OFFSET_DELETE, DESCRIBE_QUOTAS, ALTER_QUOTAS, DESCRIBE_USERS, ALTER_USERS,
)  # fmt: skip

Answer = Callable[[Any], Any]


class World:
    """A broker that knows topics by name: (partitions, overrides). Answers not given here are a test's own."""

    def __init__(self, served: Mapping[int, tuple[int, int]] | None = None, **settings: str) -> None:
        self.broker = FakeBroker()
        self.broker.served |= {key: (0, 20) for key in KEYS} | dict(served or {})
        self.topics: dict[str, tuple[int, dict[str, str]]] = {}
        self.broker.answers |= {
            METADATA: self._metadata,
            FIND_COORDINATOR: self._coordinator,
            DESCRIBE_CONFIGS: self._configs,
        }
        address = {"bootstrap.servers": f"127.0.0.1:{self.broker.port}"}
        self.admin = ClusterAdmin(ClientConfig(address | settings, "source"), timeout_s=60)

    def answer(self, key: int, *answers: Answer | Exception) -> None:
        """Answer one kind of request by these in turn; the last one from then on. An exception hangs up."""
        left = list(answers)

        def reply(request: Any) -> Any:
            one = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(one, Exception):
                raise one
            return one(request)

        self.broker.answers[key] = reply

    def asked(self, key: int) -> list[Any]:
        """Return the requests of one kind, in order."""
        return [message for k, message in self.broker.asked if k == key]

    def _metadata(self, request: Any) -> Any:
        response, topic = MetadataResponse, MetadataResponse.MetadataResponseTopic
        found = []
        for name in sorted(self.topics) if request.topics is None else [t.name for t in request.topics]:
            count = self.topics[name][0] if name in self.topics else 0
            partitions = [
                topic.MetadataResponsePartition(partition_index=p, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1, 2])
                for p in reversed(range(count))
            ]
            found.append(topic(error_code=0 if count else 3, name=name, partitions=partitions))
        here = response.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.broker.port)
        return response(brokers=[here], cluster_id="the-cluster", controller_id=1, topics=found)

    def _coordinator(self, request: Any) -> Any:
        response = FindCoordinatorResponse
        keys = request.coordinator_keys or []
        return response(
            node_id=1,
            host="",
            port=0,
            coordinators=[response.Coordinator(key=k, node_id=1, host="", port=0) for k in keys],
        )

    def _configs(self, request: Any) -> Any:
        response = DescribeConfigsResponse
        result = response.DescribeConfigsResult
        results = []
        for asked in request.resources:
            overrides = self.topics.get(asked.resource_name, (0, {}))[1]
            configs = [
                result.DescribeConfigsResourceResult(
                    name=k, value=v, config_source=1 if k in overrides else 5, is_default=k not in overrides
                )
                for k, v in {"cleanup.policy": "delete", **overrides}.items()
            ]
            code = 0 if asked.resource_name in self.topics else 3
            results.append(result(error_code=code, resource_type=2, resource_name=asked.resource_name, configs=configs))
        return response(results=results)


@contextmanager
def world(served: Mapping[int, tuple[int, int]] | None = None, **settings: str) -> Iterator[World]:
    """Yield a running world; keywords are settings, with ``_`` for ``.``."""
    made = World(served, **{key.replace("_", "."): value for key, value in settings.items()})
    try:
        with made.admin:
            yield made
    finally:
        made.broker.close()


LOST = HangUp()
