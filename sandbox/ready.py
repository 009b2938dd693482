"""When a node counts as ready: it answers, it is not fenced, and its partitions have leaders."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sandbox.errors import NodeNotReady, StartCancelled
from sandbox.node import Node
from sandbox.ports import HOST
from sandbox.program import Program

_POLL_S = 0.1


def wait(node: Node, address: str, timeout_s: float, cancel: threading.Event) -> None:
    """Return when ``node``, asked at its own ``address``, is ready.

    :raises NodeFailed, DiskFull, PortInUse, NodeNotReady, StartCancelled: see :func:`until`.
    """
    admin: AdminClient | None = None

    def missing() -> str:
        nonlocal admin
        # librdkafka doubles its pause after each refused connection; it is made only when somebody listens.
        if admin is None and not _listens(address):
            return "it does not listen yet"
        admin = admin or AdminClient({"bootstrap.servers": address, "log_level": 0}, logger=_silent())
        return _missing(admin, node.node_id)

    until(node, missing, timeout_s, cancel)


def until(program: Program, missing: Callable[[], str], timeout_s: float, cancel: threading.Event) -> None:
    """Return when ``missing`` returns an empty string; otherwise it returns what ``program`` still lacks.

    :raises NodeFailed, DiskFull, PortInUse: when its process ended.
    :raises NodeNotReady: after ``timeout_s`` seconds.
    :raises StartCancelled: when ``cancel`` was set.
    """
    deadline = time.monotonic() + timeout_s
    seen = "it was not asked yet"
    while time.monotonic() < deadline:
        if cancel.is_set():
            raise StartCancelled(program.cluster, program.part)
        if (status := program.child.status() if program.child is not None else -9) is not None:
            raise program.failure(status)
        seen = missing()
        if not seen:
            return
        time.sleep(_POLL_S)
    raise NodeNotReady(program.cluster, program.part, timeout_s, seen, program.log_tail())


def _listens(address: str) -> bool:
    try:
        with socket.create_connection((HOST, int(address.rpartition(":")[2])), timeout=1):
            return True
    except OSError:
        return False


def _missing(admin: AdminClient, node_id: int) -> str:
    """Return what the node still lacks, or an empty string."""
    # Every broker from 0.11 on serves this client's metadata request.
    try:
        metadata = admin.list_topics(timeout=2)
    except KafkaException as e:
        return f"it listens but does not answer: {e.args[0].str()}"
    if node_id not in metadata.brokers:
        return "it answers but is not, or not yet, part of its cluster"
    # A node that comes back is in the list a little before the partitions that only it holds have a leader again.
    leaderless = [
        f"{topic.topic}-{partition.id}"
        for topic in metadata.topics.values()
        for partition in topic.partitions.values()
        if partition.leader == -1 and node_id in partition.replicas
    ]
    return f"no leader yet for {', '.join(leaderless[:3])}" if leaderless else ""


def _silent() -> logging.Logger:
    # Failed connections are what waiting is about; librdkafka would print each to standard error.
    logger = logging.getLogger("sandbox.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
