"""The clusters between which is copied, and how each system's clients reach them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import LEDGER
from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.admin import ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import UnknownTopic
from benchmarks.cases import TOPIC_SETTINGS
from sandbox import Cluster
from sandbox.certificates import Authority
from sandbox.cluster import start_all, stop_all
from sandbox.ports import ReservedPort, reserve
from sandbox.process import Child
from sandbox.settings import SASL_LISTENER, NodeAddresses

_SETTINGS = {
    # Deleted topics give their disk back before the next round, not a minute later.
    "log.segment.delete.delay.ms": "1000",
    # A pass of the log cleaner has to hold all keys of a partition.
    "log.cleaner.dedupe.buffer.size": str(128 << 20),
}


def _second_listener(protocol: str) -> dict[str, str]:
    """Return settings of a cluster whose second listener has no users."""
    return {
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{SASL_LISTENER}:{protocol}",
        "inter.broker.listener.name": "PLAINTEXT",
        "authorizer.class.name": "",  # a second listener is wanted, not its ACLs
    }


_NEWS_S = 30.0  # on a busy machine
HEAP_MB = 1024  # what Kafka's own start script gives a broker


@dataclass
class Endpoint:
    """One cluster of a world.

    :param tls: settings that clients need beside the address, as librdkafka names them; none without TLS.
    :param java_tls: the same for Java clients.
    :param own_listener: the systems that are measured come by the second listener, the one that may be far away.
    """

    cluster: Cluster
    tls: Mapping[str, str] = field(default_factory=dict)
    java_tls: Mapping[str, str] = field(default_factory=dict)
    own_listener: bool = False

    @property
    def properties(self) -> dict[str, str]:
        """Librdkafka settings of the systems that are measured."""
        return {"bootstrap.servers": self._bootstrap} | dict(self.tls)

    @property
    def java(self) -> dict[str, str]:
        """Java client settings of the systems that are measured."""
        return {"bootstrap.servers": self._bootstrap} | dict(self.java_tls)

    @property
    def plain(self) -> ClientConfig:
        """Settings for filling and watching: always the plain listener."""
        return ClientConfig({"bootstrap.servers": self.cluster.bootstrap}, self.cluster.name)

    @property
    def _bootstrap(self) -> str:
        return self.cluster.bootstrap_sasl if self.tls or self.own_listener else self.cluster.bootstrap

    @property
    def replicas(self) -> int:
        """Replication factor of topics here."""
        return min(3, self.cluster.node_count)

    def pids(self) -> list[int]:
        """Return the process ids of the brokers."""
        nodes = range(1, self.cluster.node_count + 1)
        return [pid for node in nodes if (pid := self.cluster.pid(node)) is not None]

    def create(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Create a topic that keeps everything; return when its brokers know that they lead it.

        :raises UnknownTopic: when they have not heard of it after half a minute.
        """
        configs = dict(TOPIC_SETTINGS) | dict(settings or {})
        with ClusterAdmin(self.plain) as admin:
            admin.create_topics([NewTopicSpec(topic, partitions, self.replicas, configs)], unfenced)
        deadline = time.monotonic() + _NEWS_S
        while True:
            try:
                with WireCluster(self.plain) as wire:
                    wire.log_ends([TopicPartition(topic, p) for p in range(partitions)])
                return
            except UnknownTopic:
                if time.monotonic() > deadline:
                    raise

    def clear(self, keep: tuple[str, ...] = ()) -> None:
        """Delete all topics but Kafka's own, the ledger and ``keep``: what a run left is never there for the next.

        The engine refuses a target whose ledger is gone while a writer lease of an earlier run is left, and leases can't
        be deleted. Names of runs are unique, so nothing of the ledger concerns a later one.
        """
        with ClusterAdmin(self.plain) as admin:
            left = [t for t in admin.topic_names() if not t.startswith("__") and t not in LEDGER.union(keep)]
            admin.delete_topics(left, unfenced)

    def ends(self, wire: WireCluster, topic: str, partitions: int) -> list[int]:
        """Return where readers of each partition end."""
        tps = [TopicPartition(topic, p) for p in range(partitions)]
        found = wire.high_watermarks(tps)
        return [found[tp] for tp in tps]


@dataclass
class World:
    """A source and a target that run."""

    source: Endpoint
    target: Endpoint


@contextmanager
def world(name: str, work: Path, min_free_mb: int) -> Iterator[World]:
    """Start the clusters of a world; stop them and delete their data at the end.

    :param name: ``plain``, ``tls`` or ``three``, as of :class:`benchmarks.cases.Case`.
    :param work: where certificates go.
    :param min_free_mb: disk space that each cluster must find.
    """
    tls: tuple[dict[str, str], dict[str, str]] = ({}, {})
    overrides = dict(_SETTINGS)
    if name == "tls":
        overrides |= _second_listener("SSL") | Authority("benchmark").broker_settings(work)
        tls = _client_tls(work / "ca.pem")
    sizes = {"source": 1, "target": 3 if name == "three" else 1}
    several = [
        Cluster(end, nodes, overrides, name == "tls", heap_mb=HEAP_MB, min_free_mb=min_free_mb)
        for end, nodes in sizes.items()
    ]
    try:
        start_all(several)
        yield World(*(Endpoint(cluster, *tls) for cluster in several))
    finally:
        stop_all(several)


class FarCluster(Cluster):
    """A cluster of one node whose second listener is far away; the first is at hand, for those who only watch.

    :param delay_ms: of each direction.
    """

    def __init__(self, name: str, delay_ms: float, **kw: Any) -> None:
        super().__init__(name, 1, _SETTINGS | _second_listener("PLAINTEXT"), True, heap_mb=HEAP_MB, **kw)
        self._delay_ms = delay_ms
        self._way: tuple[Child, ReservedPort] | None = None

    def advertised(self, node_id: int, own: NodeAddresses) -> NodeAddresses:
        """Start the proxy; clients come by it, and those who only watch go straight."""
        assert own.sasl is not None
        port, work = reserve(self.name), self.directory
        command = [
            sys.executable, "-m", "sandbox.proxy", own.sasl, "--port", str(port.number),
            "--delay-ms", str(self._delay_ms),
        ]  # fmt: skip
        environment = dict(os.environ) | {"PYTHONPATH": str(Path(__file__).parents[1])}
        self._way = Child(command, work / "proxy.log", work, environment), port
        return replace(own, sasl=port.address)

    @property
    def bootstrap_sasl(self) -> str:
        """The proxy's address: clients never learn the broker's own."""
        assert self._way is not None
        return self._way[1].address

    def stop(self) -> None:
        """End the node and the proxy."""
        super().stop()
        if self._way is not None:
            (child, port), self._way = self._way, None
            child.terminate(5)
            port.release()


@contextmanager
def far_world(far: str, delay_ms: float, min_free_mb: int) -> Iterator[World]:
    """Start two clusters of which one is far from those who copy, and near to all who only watch.

    :param far: ``source`` or ``target``.
    :param delay_ms: of each direction.
    """
    several: list[Cluster] = [
        FarCluster(end, delay_ms, min_free_mb=min_free_mb)
        if end == far
        else Cluster(end, 1, _SETTINGS, heap_mb=HEAP_MB, min_free_mb=min_free_mb)
        for end in ("source", "target")
    ]
    try:
        start_all(several)
        yield World(*(Endpoint(cluster, own_listener=cluster.name == far) for cluster in several))
    finally:
        stop_all(several)


def _client_tls(ca: Path) -> tuple[dict[str, str], dict[str, str]]:
    return (
        {"security.protocol": "SSL", "ssl.ca.location": str(ca)},
        {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca)},
    )
