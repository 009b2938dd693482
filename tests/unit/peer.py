"""A peer that is driven by the test: it does to a connection what a real broker won't do on request."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from functools import cache
from types import TracebackType
from typing import Any

from kafka.protocol.metadata import ApiVersionsResponse

from airflow_mirror.config import ClientConfig
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
        data = bytearray()  # TLS delivers 16 KB at a time: bytes would be copied for each
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)


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
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the accept that a thread waits in
        self._listener.close()
        for talk in self.talks:
            talk.socket.close()
        self._thread.join(60)
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
def connected(script: Callable[[Talk], object], timeout_s: float = 60.0, **properties: str) -> Any:
    """Yield (connection, peer) where the peer has greeted and goes on with ``script``."""

    def greet_first(talk: Talk) -> None:
        talk.greet()
        script(talk)

    with (
        Peer(greet_first) as peer,
        Connection.open("127.0.0.1", peer.port, settings(**properties), timeout_s) as connection,
    ):
        yield connection, peer


def whole(connection: Connection, correlation_id: int) -> bytes:
    """Receive an answer as one who serves others meanwhile: by a selector, and never waiting for the connection."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        for _ in range(10_000):
            connection.flush()
            if connection.arrived(correlation_id):
                return bytes(connection.receive(correlation_id))
            selector.modify(connection, selectors.EVENT_READ | selectors.EVENT_WRITE * connection.unsent)
            assert selector.select(240), "nothing comes, and nothing can be sent"
    raise AssertionError("it is woken for nothing")


class HangUp(Exception):
    """Raised by an answer of a :class:`FakeBroker`: close the connection instead."""


class FakeBroker:
    """Answers any number of connections from functions, one for each API key: request message -> response message.

    ``asked`` lists the requests in order, as (api key, decoded message). Start it before its port is used.
    """

    def __init__(self, node_id: int = 1) -> None:
        self.node_id = node_id
        self.answers: dict[int, Callable[[Any], Any]] = {}
        self.served = {k: (0, 20) for k in (0, 1, 2, 3, 10, 18, 21, 22, 23, 24, 26, 27, 61, 65)}
        self.asked: list[tuple[int, Any]] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def keys(self) -> list[int]:
        """Return the API keys asked for, in order."""
        return [key for key, _ in self.asked]

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the accept that a thread waits in
        self._listener.close()
        self.disconnect()

    def disconnect(self) -> None:
        """End every connection; new ones are taken."""
        for plain in self._sockets:
            with suppress(OSError):
                plain.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads, without which it stays open
            plain.close()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(plain)
            threading.Thread(target=self._serve, args=(Talk(plain),), daemon=True).start()

    def _serve(self, talk: Talk) -> None:
        try:
            talk.greet(self.served)
            while True:
                key, version, correlation_id, body = talk.read()
                request_class = _request_class(key)
                flexible = request_class.flexible_version_q(version)
                message = request_class.decode(body[flexible:], version=version)
                self.asked.append((key, message))
                response = bytes(self.answers[key](message).encode(version=version))
                talk.answer(correlation_id, b"\0" * flexible + response)
        except (EOFError, OSError, HangUp):
            talk.socket.close()


@cache
def _request_class(key: int) -> Any:
    from kafka.protocol import admin, consumer, metadata, producer

    for module in (metadata, consumer, producer, admin):
        for name in module.__all__:
            found = getattr(module, name)
            if name.endswith("Request") and key == found.API_KEY:
                return found
    raise KeyError(key)
