"""How a task connects to its two clusters. Passed to the loop: by `task` in a job, by tests as they need it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from airflow_mirror.config import ClientConfig
from airflow_mirror.wire.cluster import WireCluster


class Clusters(NamedTuple):
    """Opens the source and the target, once per thread: a cluster object belongs to the thread that uses it.

    Both callables take a client id.
    """

    source: Callable[[str], WireCluster]
    target: Callable[[str], WireCluster]

    @classmethod
    def of(cls, source: ClientConfig, target: ClientConfig) -> Clusters:
        """Return the openers for clusters with these settings."""
        return cls(partial(WireCluster, source), partial(WireCluster, target))
