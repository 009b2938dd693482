"""What the tests of Kerberos share: two realms, and a cluster in each.

The source's brokers demand a new login every ten seconds and name principals by their first part; the target's demand
none and have a rule of their own. Clients get tickets from keytabs of their realm; the referee goes by the open listener.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from sandbox.cluster import start_all, stop_all
from sandbox.kdc import Realm

SESSION_S = 10.0
RULE = "RULE:[1:$1@$0](.*@TWO.TEST)s/@.*/-two/,DEFAULT"
USER = "mirror"
OWN = {"source": f"User:{USER}", "target": f"User:{USER}-two"}


@dataclass(frozen=True)
class Side:
    """A cluster and its realm."""

    role: str
    cluster: Cluster
    realm: Realm

    def settings(self, principal: str = USER, **more: str) -> dict[str, str]:
        """Settings of a principal; ``_`` in a keyword stands for ``.``, and an empty value takes a setting away."""
        changed = self.cluster.kerberos_properties(principal) | {k.replace("_", "."): v for k, v in more.items()}
        return {key: value for key, value in changed.items() if value}

    def config(self, principal: str = USER, **more: str) -> ClientConfig:
        return ClientConfig(self.settings(principal, **more), self.role)

    def admin(self, principal: str = USER) -> ClusterAdmin:
        return ClusterAdmin(self.config(principal), timeout_s=120)

    def wire(self, settings: dict[str, str] | None = None, timeout_s: float = 90.0) -> WireCluster:
        return WireCluster(ClientConfig(settings or self.settings(), self.role), timeout_s=timeout_s)


@dataclass(frozen=True)
class World:
    """Both sides. ``krb5_config`` is what ``KRB5_CONFIG`` must be, here and in every process of a test."""

    source: Side
    target: Side
    krb5_config: str


@contextmanager
def two_realms() -> Iterator[World]:
    """Start realms and clusters; the process's Kerberos is theirs for the block."""
    before = os.environ.get("KRB5_CONFIG")
    with ExitStack() as stack:
        one, two = stack.enter_context(Realm("ONE.TEST")), stack.enter_context(Realm("TWO.TEST"))
        config = f"{one.config}:{two.config}"
        os.environ["KRB5_CONFIG"] = config
        for realm in (one, two):
            realm.add(USER)
        demands = {"listener.name.sasl_plaintext.gssapi.connections.max.reauth.ms": str(int(SESSION_S * 1000))}
        source = Cluster("source", authorizer=True, kerberos=one, overrides=demands, ready_timeout_s=400)
        rules = {"sasl.kerberos.principal.to.local.rules": RULE}
        target = Cluster("target", authorizer=True, kerberos=two, overrides=rules, ready_timeout_s=400)
        try:
            start_all([source, target])
            yield World(Side("source", source, one), Side("target", target, two), config)
        finally:
            stop_all([source, target])
            if before is None:
                del os.environ["KRB5_CONFIG"]
            else:
                os.environ["KRB5_CONFIG"] = before
