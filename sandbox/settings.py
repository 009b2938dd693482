"""Which settings a node gets. Values in, values out: nothing is read or started here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Users of the SASL listener. They protect nothing: they exist so that ACLs have somebody to be about.
SUPER_USER = "admin"
USERS = {SUPER_USER: "admin-secret", "alice": "alice-secret", "mirror": "mirror-secret"}
SASL_LISTENER = "SASL_PLAINTEXT"
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True)
class NodeAddresses:
    """Where one node listens; each is ``host:port``. ``sasl`` is None without an authorizer."""

    plain: str
    controller: str
    sasl: str | None = None


def node_settings(
    node_id: int, addresses: Sequence[NodeAddresses], data: Path, overrides: Mapping[str, str], authorizer: bool
) -> dict[str, str]:
    """Return ``server.properties`` of node ``node_id`` (from 1) of a cluster that listens at ``addresses``.

    Every node is broker and controller. ``overrides`` win over everything.
    """
    own = addresses[node_id - 1]
    voters = ",".join(f"{i}@{a.controller}" for i, a in enumerate(addresses, 1))
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{own.plain},CONTROLLER://{own.controller}",
        "advertised.listeners": f"PLAINTEXT://{own.plain}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        **_small_and_quick(len(addresses)),
    }
    if authorizer:
        settings.update(_secured(settings, own))
    return settings | dict(overrides)


def _small_and_quick(nodes: int) -> dict[str, str]:
    """Return what makes a cluster of a few local nodes start fast and show its effects soon."""
    replicas, min_isr = str(min(nodes, 3)), "2" if nodes >= 3 else "1"
    return {
        "auto.create.topics.enable": "false",  # a misspelt topic has to be an error
        "delete.topic.enable": "true",
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min_isr,
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": min_isr,
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A killed node may register again only when its old session is over; 9 s by default.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
        # Retention and compaction show within seconds, not minutes.
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "5000",
        "log.cleaner.backoff.ms": "1000",
        # The default, 128 MB, is a quarter of the heap, and is taken at the start.
        "log.cleaner.dedupe.buffer.size": "16777216",
        # Index files are allocated in full for each partition's active segment, twice 10 MB by default.
        "log.index.size.max.bytes": "2097152",
    }


def _secured(settings: Mapping[str, str], own: NodeAddresses) -> dict[str, str]:
    """Return what the authorizer adds.

    Nodes talk to each other as the super user. Over the open listener they would be ANONYMOUS, and the first ACL that a
    test puts on the cluster resource would lock the brokers out of their own controller.
    """
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    jaas = f'{_PLAIN_LOGIN} required username="{SUPER_USER}" password="{USERS[SUPER_USER]}" {users};'
    return {
        "listeners": f"{settings['listeners']},{SASL_LISTENER}://{own.sasl}",
        "advertised.listeners": f"{settings['advertised.listeners']},{SASL_LISTENER}://{own.sasl}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": SASL_LISTENER,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"listener.name.{SASL_LISTENER.lower()}.plain.sasl.jaas.config": jaas,
        "listener.name.controller.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{SUPER_USER}",
        "allow.everyone.if.no.acl.found": "true",
    }


def to_properties(settings: Mapping[str, str]) -> str:
    """Return ``settings`` as the text of a Java properties file."""
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items())
