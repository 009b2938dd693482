"""A stand-in for a managed cluster: stock brokers that forbid what it is known to forbid.

That is :data:`airflow_mirror.plan.targets.KINDS`. The same table is docs/managed.md, so that the page and the stand-in
can't differ. Rules about topics are policies of the brokers (``java/TargetRules.java``); requests that the cluster
doesn't serve end at a :class:`~sandbox.gate.Gate`. A user may do nothing but what ACLs say. What nobody knows of the real
cluster, the stand-in does as Kafka does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_mirror.plan.targets import KINDS
from airflow_mirror.wire.stream import api_name
from sandbox import Cluster, cloud
from sandbox.gate import Gate
from sandbox.settings import SUPER_USER, NodeAddresses

_RULES = Path(__file__).with_name("java") / "TargetRules.java"
_KEYS = {api_name(key): key for key in range(100)}


class StrictCluster(Cluster):
    """Three nodes whose clients log in; who comes without a password may do everything, and is no client.

    :param directory: for the classes and the rules of its brokers.
    :param session_s: users may log in by the tokens of clouds as well, for so many seconds; None: they may not.
    """

    def __init__(
        self, name: str, directory: Path, overrides: Mapping[str, str] | None = None, session_s: float | None = None,
        **kw: Any,
    ) -> None:  # fmt: skip
        self._file = directory / "rules.properties"
        self._file.touch()
        self._gates = [Gate().start() for _ in range(3)]
        settings = {
            "create.topic.policy.class.name": "TargetRules$OnCreate",
            "alter.config.policy.class.name": "TargetRules$OnAlter",
            "target.rules": str(self._file),
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{SUPER_USER};User:ANONYMOUS",
            "inter.broker.listener.name": "PLAINTEXT",  # brokers send each other what clients may not
        }
        sources = [_RULES]
        if session_s is not None:
            sources.append(cloud.VALIDATOR)
            settings |= cloud.overrides(session_s)
        classes = cloud.compiled(directory, sources)
        super().__init__(name, 3, {**settings, **(overrides or {})}, True, classes=classes, **kw)

    def be(self, kind: str) -> None:
        """Be a stand-in for another kind from now on, a key of the table."""
        self.obey(KINDS[kind].rules)

    def obey(self, rules: Mapping[str, str]) -> None:
        """Have other rules from now on, as a kind has them."""
        self._file.write_text("".join(f"{key}={value}\n" for key, value in rules.items()), encoding="utf-8")
        for gate in self._gates:
            gate.closed = [_KEYS[name] for name in rules.get("unserved", "").split()]
            gate.cut()

    def advertised(self, node_id: int, own: NodeAddresses) -> NodeAddresses:
        """Send clients that log in to a node's gate."""
        gate = self._gates[node_id - 1]
        host, _, port = str(own.sasl).rpartition(":")
        gate.upstream = host, int(port)
        return replace(own, sasl=gate.address)

    @property
    def bootstrap_sasl(self) -> str:
        """The gates' addresses: not even a client's first request goes past them."""
        return ",".join(gate.address for gate in self._gates)

    def stop(self) -> None:
        """End brokers and gates."""
        super().stop()
        for gate in self._gates:
            gate.close()
