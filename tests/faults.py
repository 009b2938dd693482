"""Clusters that tell their clients to come through a network that misbehaves on request."""

from __future__ import annotations

from typing import Any, Self

from sandbox import Cluster
from sandbox.proxy import FaultProxy


class ProxiedCluster(Cluster):
    """A one-node cluster that sends its clients through :attr:`proxy`, by the address that it advertises."""

    def __init__(self, name: str, overrides: dict[str, str] | None = None, **kw: Any) -> None:
        self.proxy = FaultProxy().start()
        advertised = {"advertised.listeners": f"PLAINTEXT://{self.proxy.address}"}
        super().__init__(name, 1, (overrides or {}) | advertised, **kw)

    def start(self) -> Self:
        # The proxy must answer before the node counts as ready: readiness is asked for at the advertised address too.
        super().start()
        return self

    def wait_ready(self, node_ids: Any = None) -> None:
        self._aim()
        super().wait_ready(node_ids)

    def stop(self) -> None:
        super().stop()
        self.proxy.close()

    @property
    def bootstrap(self) -> str:
        """The proxy's address: clients never learn the broker's own."""
        return self.proxy.address

    @property
    def direct(self) -> str:
        """The broker's own address; the first answer sends a client to the proxy all the same."""
        return super().bootstrap

    def _aim(self) -> None:
        host, _, port = super().bootstrap.rpartition(":")
        self.proxy.upstream = host, int(port)


class ProxiedNodes(Cluster):
    """A cluster whose clients reach each node through a proxy of its own. The nodes reach each other that way, too."""

    def __init__(self, name: str, nodes: int = 3, **kw: Any) -> None:
        self.proxies = [FaultProxy().start() for _ in range(nodes)]
        super().__init__(name, nodes, **kw)

    def _prepare(self, installed: Any) -> None:
        super()._prepare(installed)
        for proxy, node, address in zip(self.proxies, self._nodes, self._addresses, strict=True):
            host, _, port = address.plain.rpartition(":")
            proxy.upstream = host, int(port)
            node._settings = {**node._settings, "advertised.listeners": f"PLAINTEXT://{proxy.address}"}

    def stop(self) -> None:
        super().stop()
        for proxy in self.proxies:
            proxy.close()
