"""Local Kafka clusters of real brokers, from 0.11 to 4.4.0, for the demo, for tests and for drills.

    with clusters("source", "target") as (source, target):
        print(source.bootstrap, target.bootstrap)

Every node is a child process on this machine, with free ports and a data directory of its own. Nothing is left running
or lying around when the program ends, however it ends (`sandbox.process` says how). ``python -m sandbox --help`` has the
same from the command line.

Not for production: no TLS, passwords that are in this repository, and all nodes of a cluster share one disk.
"""

from __future__ import annotations

from sandbox.cluster import Cluster, clusters
from sandbox.errors import DiskFull, JarsUnavailable, NodeFailed, NodeNotReady, OldJavaUnavailable, PortInUse

__all__ = [
    "Cluster",
    "DiskFull",
    "JarsUnavailable",
    "NodeFailed",
    "NodeNotReady",
    "OldJavaUnavailable",
    "PortInUse",
    "clusters",
]
