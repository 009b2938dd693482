"""What the sandbox makes of a ZooKeeper's answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import NodeNotReady, StartCancelled
from sandbox.ports import reserve
from sandbox.program import Installed
from sandbox.versions import release
from sandbox.zookeeper import ZooKeeper

DUMP = """SessionTracker dump:
Session Sets (2):
0 expire at Sun Nov 22 15:00:00 UTC 2026:
ephemeral nodes dump:
Sessions with Ephemerals (1):
0x100017fa6e80000:
\t/controller
\t/brokers/ids/11
"""


class Living:
    """Stands in for a process that runs."""

    def status(self) -> None:
        return None


class Server:
    """Answers four-letter commands as a ZooKeeper does: with a text and the end of the connection."""

    def __init__(self) -> None:
        self.answers = {b"srvr": "Zookeeper version: 3.4.13\nMode: standalone\n", b"dump": DUMP}
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.sendall(self.answers.get(connection.recv(4), "").encode())

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def zookeeper(tmp_path: Path, server: Server) -> ZooKeeper:
    port = reserve("source")
    port.release()
    port.number = server.port
    made = ZooKeeper("source", tmp_path, port, Installed(release("2.1.1"), Path("java"), ""))
    made.child = Living()  # type: ignore[assignment]
    return made


def test_server_that_knows_its_mode_is_ready(zookeeper: ZooKeeper) -> None:
    zookeeper.wait_ready(240, threading.Event())


@pytest.mark.parametrize("answer", ["", "This ZooKeeper instance is not currently serving requests\n"])
def test_server_that_does_not_serve_yet_is_not_ready(zookeeper: ZooKeeper, server: Server, answer: str) -> None:
    server.answers[b"srvr"] = answer
    with pytest.raises(NodeNotReady, match="'source', ZooKeeper was not ready after 0.3 s"):
        zookeeper.wait_ready(0.3, threading.Event())


def test_broker_waits_for_the_end_of_its_own_session_alone(zookeeper: ZooKeeper, server: Server) -> None:
    zookeeper.wait_forgotten(1, 240, threading.Event())  # 11 is somebody else
    with pytest.raises(NodeNotReady, match="the last session of node 11 has not ended"):
        zookeeper.wait_forgotten(11, 0.3, threading.Event())
    server.answers[b"dump"] = DUMP.replace("\t/brokers/ids/11\n", "")
    zookeeper.wait_forgotten(11, 240, threading.Event())


def test_silence_is_not_taken_for_the_end_of_a_session(zookeeper: ZooKeeper, server: Server) -> None:
    server.answers[b"dump"] = ""
    with pytest.raises(NodeNotReady, match="it does not answer"):
        zookeeper.wait_forgotten(1, 0.3, threading.Event())


def test_waiting_ends_when_the_cluster_is_stopped(zookeeper: ZooKeeper) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(StartCancelled):
        zookeeper.wait_forgotten(11, 240, cancelled)
