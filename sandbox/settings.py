"""Which settings a node gets. Values in, values out: nothing is read or started here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.versions import DEFAULT_VERSION, Release
from sandbox.versions import release as release_of

# Users of the SASL listener. They protect nothing: they exist so that ACLs have somebody to be about.
SUPER_USER = "admin"
USERS = {SUPER_USER: "admin-secret", "alice": "alice-secret", "mirror": "mirror-secret"}
SASL_LISTENER = "SASL_PLAINTEXT"
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_KERBEROS_LOGIN = "com.sun.security.auth.module.Krb5LoginModule"


# The first of the sandbox's releases that knows a setting; what is not here is known to all of them.
_SINCE = {
    "share.coordinator.state.topic.replication.factor": (4, 0),
    "share.coordinator.state.topic.min.isr": (4, 0),
    "share.coordinator.state.topic.num.partitions": (4, 0),
    "log.initial.task.delay.ms": (3, 9),
}


@dataclass(frozen=True)
class NodeAddresses:
    """Where one node listens, each ``host:port``; ``controller`` with KRaft only, ``sasl`` with an authorizer only."""

    plain: str
    controller: str | None = None
    sasl: str | None = None


@dataclass(frozen=True)
class BrokerLogin:
    """What brokers log in with by Kerberos.

    :param principal: with its realm.
    :param config: the ``krb5.conf``.
    """

    principal: str
    keytab: Path
    config: Path

    @property
    def module(self) -> str:
        """The line of a login file, or of a listener's setting."""
        return (
            f'{_KERBEROS_LOGIN} required useKeyTab=true storeKey=true keyTab="{self.keytab}" '
            f'principal="{self.principal}";'
        )


def node_settings(
    node_id: int, addresses: Sequence[NodeAddresses], data: Path, overrides: Mapping[str, str], authorizer: bool,
    *, advertised: NodeAddresses | None = None, release: Release | None = None, zookeeper: str | None = None,
    kerberos: BrokerLogin | None = None,
) -> dict[str, str]:  # fmt: skip
    """Return ``server.properties`` of node ``node_id`` (from 1) of a cluster that listens at ``addresses``.

    :param overrides: win over everything.
    :param advertised: where clients are sent; where the node listens when None.
    :param release: leaves out what it does not know; the sandbox's default release when None.
    :param zookeeper: ZooKeeper's ``host:port``; when None, every node is broker and controller (KRaft).
    :param kerberos: the listener for users takes GSSAPI as well.
    """
    release = release or release_of(DEFAULT_VERSION)
    own = addresses[node_id - 1]
    advertised = advertised or own
    settings = {
        **(_kraft(node_id, addresses) if zookeeper is None else _with_zookeeper(node_id, own, zookeeper)),
        "advertised.listeners": f"PLAINTEXT://{advertised.plain}",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data),
        **_small_and_quick(len(addresses)),
    }
    if authorizer:
        settings.update(_secured(settings, own, advertised, release))
        if kerberos is not None:
            settings.update(_with_kerberos(kerberos, release))
    known = {key: value for key, value in settings.items() if release.number >= _SINCE.get(key, ())}
    return known | dict(overrides)


def _kraft(node_id: int, addresses: Sequence[NodeAddresses]) -> dict[str, str]:
    own = addresses[node_id - 1]
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{i}@{a.controller}" for i, a in enumerate(addresses, 1)),
        "listeners": f"PLAINTEXT://{own.plain},CONTROLLER://{own.controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        # A killed node may register again only when its old session is over; 9 s by default.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
    }


def _with_zookeeper(node_id: int, own: NodeAddresses, zookeeper: str) -> dict[str, str]:
    return {
        "broker.id": str(node_id),
        "zookeeper.connect": zookeeper,
        # A killed node may register again only when its old session is over; 6 s by default, 18 s from 2.5 on.
        "zookeeper.session.timeout.ms": "4000",
        "zookeeper.connection.timeout.ms": "60000",
        "listeners": f"PLAINTEXT://{own.plain}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
    }


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
        # Retention and compaction show within seconds, not minutes.
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "5000",
        "log.cleaner.backoff.ms": "1000",
        # The default, 128 MB, is a quarter of the heap, and is taken at the start.
        "log.cleaner.dedupe.buffer.size": "16777216",
        # Index files are allocated in full for each partition's active segment, twice 10 MB by default.
        "log.index.size.max.bytes": "2097152",
    }


def _secured(
    settings: Mapping[str, str], own: NodeAddresses, advertised: NodeAddresses, release: Release
) -> dict[str, str]:
    """Return what the authorizer adds.

    Nodes talk to each other as the super user. Over the open listener they would be ANONYMOUS, and the first ACL that a
    test puts on the cluster resource would lock the brokers out of their own controller.
    """
    added = {
        "listeners": f"{settings['listeners']},{SASL_LISTENER}://{own.sasl}",
        "advertised.listeners": f"{settings['advertised.listeners']},{SASL_LISTENER}://{advertised.sasl}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{SASL_LISTENER}:SASL_PLAINTEXT",
        "inter.broker.listener.name": SASL_LISTENER,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "super.users": f"User:{SUPER_USER}",
        "allow.everyone.if.no.acl.found": "true",
    }
    if not _logins_from_a_file_alone(release):
        added[f"listener.name.{SASL_LISTENER.lower()}.plain.sasl.jaas.config"] = _login()
    if "process.roles" in settings:
        added["listener.security.protocol.map"] += ",CONTROLLER:SASL_PLAINTEXT"
        added["sasl.mechanism.controller.protocol"] = "PLAIN"
        added["listener.name.controller.plain.sasl.jaas.config"] = _login()
        added["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    elif release.number >= (2, 4):
        added["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
    else:
        added["authorizer.class.name"] = "kafka.security.auth.SimpleAclAuthorizer"
    return added


def _with_kerberos(kerberos: BrokerLogin, release: Release) -> dict[str, str]:
    """Return what makes the listener for users take GSSAPI too; brokers go on talking to each other by PLAIN."""
    service, mechanisms = {"sasl.kerberos.service.name": kerberos.principal.partition("/")[0]}, "PLAIN,GSSAPI"
    if _logins_from_a_file_alone(release):
        return service | {"sasl.enabled.mechanisms": mechanisms}
    listener = f"listener.name.{SASL_LISTENER.lower()}"  # alone: the controllers' has no such login
    return service | {
        f"{listener}.sasl.enabled.mechanisms": mechanisms,
        f"{listener}.gssapi.sasl.jaas.config": kerberos.module,
    }


def jaas(release: Release, kerberos: BrokerLogin | None = None) -> str | None:
    """Return the login file that brokers of ``release`` need for the SASL listener, or None: it is in the settings."""
    if not _logins_from_a_file_alone(release):
        return None
    modules = [_login(), *([kerberos.module] if kerberos is not None else [])]
    return "KafkaServer {\n  " + "\n  ".join(modules) + "\n};\n"


def _logins_from_a_file_alone(release: Release) -> bool:
    return release.number < (1, 1)


def _login() -> str:
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    return f'{_PLAIN_LOGIN} required username="{SUPER_USER}" password="{USERS[SUPER_USER]}" {users};'


def to_properties(settings: Mapping[str, str]) -> str:
    """Return ``settings`` as the text of a Java properties file."""
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items())
