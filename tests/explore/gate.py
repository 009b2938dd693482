"""A fence that is a function of the site: a gateway lets the application write to the source, or does not.

It has no name there: each attempt's is the same, and none tells whose it is.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_mirror.cutover.callable_fence import CallableFence
from tests.builders import rule
from tests.memory.asking import touching

if TYPE_CHECKING:
    from airflow_mirror.kafka.permit import Permit
    from tests.memory.admin import MemoryAdmin

NAME, ASKING = "tests.explore.gate.gateway", "tests.explore.gate.asking_gateway"
OPENS = "source: the gateway opens"
OPENS_IF = f"{OPENS} if it may"  # of a function that asks its permit


def asking_gateway(source: MemoryAdmin) -> CallableFence:
    """Return the fence of functions that ask their permit right before what they do."""
    cluster, ask = source.cluster, partial(source._hook, at=source.role, touches=touching("acl", "TOPIC"), effect=True)

    def shut(permit: Permit) -> Any:
        return ask("source: the gateway shuts", lambda: cluster.create_acls(*shut_by(*cluster.topics)), check=permit)

    def let_in(permit: Permit) -> Any:
        return ask(OPENS_IF, lambda: cluster.delete_acls(*shut_by(*cluster.topics)), check=permit)

    return CallableFence(shut, let_in, gateway(source)._check)


def gateway(source: MemoryAdmin) -> CallableFence:
    """Return the fence. What a `--fence` names: the guard imports it by that."""
    cluster, ask = source.cluster, partial(source._hook, at=source.role, touches=touching("acl", "TOPIC"))

    def shut() -> Any:
        return ask("source: the gateway shuts", lambda: cluster.create_acls(*shut_by(*cluster.topics)), effect=True)

    def let_in() -> Any:
        return ask(OPENS, lambda: cluster.delete_acls(*shut_by(*cluster.topics)), effect=True)

    def is_shut() -> bool:
        there = cluster.rules.now
        return ask("source: is the gateway shut", lambda: there.issuperset(shut_by(*cluster.topics)))

    return CallableFence(shut, let_in, is_shut)


def shut_by(*topics: str) -> list[Any]:
    """Return how a shut gateway is told in the cluster's rules, by which the application is refused."""
    return [rule(topic, "WRITE", "DENY", "User:app") for topic in topics]
