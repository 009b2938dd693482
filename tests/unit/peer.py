"""A peer that is driven by the test: it does to a connection what a real broker won't do on request."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from kafka.protocol.metadata import ApiVersionsResponse

from airflow_mirror.kafka.config import ClientConfig
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.settings import WireSettings

SERVED = {0: (3, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 18: (0, 4), 23: (2, 4)}


class Talk:
    """The peer's side of one connection."""

    def __init__(self, plain: socket.socket) -> None:
        self.socket = plain
        self.bodies: list[bytes] = []

    def read(self) -> tuple[int, int, int, bytes]:
        """Return (api key, version, correlation id, what follows in the frame) of the next request."""
        (size,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(size)
        key, version, correlation_id, length = struct.unpack_from(">hhih", frame)
        self.bodies.append(frame[10 + length :])
        return key, version, correlation_id, self.bodies[-1]

    def answer(self, correlation_id: int, body: bytes) -> None:
        self.socket.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)

    def greet(self, served: dict[int, tuple[int, int]] = SERVED) -> None:
        """Answer ApiVersions as a broker does."""
        _key, version, correlation_id, _ = self.read()
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=k, min_version=lo, max_version=hi) for k, (lo, hi) in served.items()
        ]
        self.answer(correlation_id, bytes(ApiVersionsResponse(api_keys=keys).encode(version=version)))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data


class Peer:
    """Listens, and runs ``script`` for each connection in turn until the block ends; its errors fail the test."""

    def __init__(self, script: Callable[[Talk], object], connections: int = 1) -> None:
        self._script, self._connections = script, connections
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.talks: list[Talk] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Peer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._listener.close()
        for talk in self.talks:
            talk.socket.close()
        self._thread.join(5)
        if self._error is not None and kind is None:
            raise self._error

    def _run(self) -> None:
        for _ in range(self._connections):
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            self.talks.append(Talk(plain))
            try:
                self._script(self.talks[-1])
            except (EOFError, OSError):
                pass  # the test hung up
            except BaseException as e:
                self._error = e


def settings(**properties: str) -> WireSettings:
    """Return settings; ``_`` in a keyword stands for ``.``."""
    values = {key.replace("_", "."): value for key, value in properties.items()}
    return WireSettings.from_config(ClientConfig({"bootstrap.servers": "peer:9092"} | values, "source"))


@contextmanager
def connected(script: Callable[[Talk], object], timeout_s: float = 5.0, **properties: str) -> Any:
    """Yield (connection, peer) where the peer has greeted and goes on with ``script``."""

    def greet_first(talk: Talk) -> None:
        talk.greet()
        script(talk)

    with (
        Peer(greet_first) as peer,
        Connection.open("127.0.0.1", peer.port, settings(**properties), timeout_s) as connection,
    ):
        yield connection, peer
