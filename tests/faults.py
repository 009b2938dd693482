"""Clusters that tell their clients to come through a network that misbehaves on request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sandbox import Cluster
from sandbox.proxy import FaultProxy
from sandbox.settings import NodeAddresses


class ProxiedNodes(Cluster):
    """A cluster whose clients reach each node through a proxy of its own. The nodes reach each other that way, too."""

    def __init__(self, name: str, nodes: int = 3, overrides: dict[str, str] | None = None, **kw: Any) -> None:
        self.proxies = [FaultProxy().start() for _ in range(nodes)]
        super().__init__(name, nodes, overrides, **kw)

    def advertised(self, node_id: int, own: NodeAddresses) -> NodeAddresses:
        proxy = self.proxies[node_id - 1]
        host, _, port = own.plain.rpartition(":")
        proxy.upstream = host, int(port)
        return replace(own, plain=proxy.address)

    def stop(self) -> None:
        super().stop()
        for proxy in self.proxies:
            proxy.close()


class ProxiedCluster(ProxiedNodes):
    """A cluster of one node, with :attr:`proxy` before it: not even their first request goes past it."""

    def __init__(self, name: str, overrides: dict[str, str] | None = None, **kw: Any) -> None:
        super().__init__(name, 1, overrides, **kw)
        (self.proxy,) = self.proxies

    @property
    def bootstrap(self) -> str:
        """The proxy's address: clients never learn the broker's own."""
        return self.proxy.address

    @property
    def direct(self) -> str:
        """The broker's own address; the first answer sends a client to the proxy all the same."""
        return super().bootstrap
