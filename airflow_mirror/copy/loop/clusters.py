"""How a task reaches its two clusters. Given to the loop from outside: by `task` in a job, by tests as they need it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from airflow_mirror.config import ClientConfig
from airflow_mirror.wire.cluster import WireCluster


class Clusters(NamedTuple):
    """Opens the source and the target, each call for another thread: a cluster belongs to the thread that uses it.

    Both take a client id.
    """

    source: Callable[[str], WireCluster]
    target: Callable[[str], WireCluster]

    @classmethod
    def of(cls, source: ClientConfig, target: ClientConfig) -> Clusters:
        """Return how the clusters of these settings are reached."""
        return cls(partial(WireCluster, source), partial(WireCluster, target))
