"""How a task reaches its two clusters. Given to the loop from outside: by `task` in a job, by tests as they need it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.opening.answers import PrereadCluster


class Clusters(NamedTuple):
    """Opens the source and the target, each call for another thread: a cluster belongs to the thread that uses it.

    Both take a client id.
    """

    source: Callable[[str], PrereadCluster]
    target: Callable[[str], PrereadCluster]

    @classmethod
    def of(cls, source: ClientConfig, target: ClientConfig) -> Clusters:
        """Return how the clusters of these settings are reached."""
        return cls(partial(PrereadCluster, source), partial(PrereadCluster, target))
