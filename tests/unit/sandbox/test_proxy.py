"""The proxy delivers every byte in order, and a delay is one: nothing arrives early."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from sandbox.proxy import FaultProxy


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets, for one connection."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(ConnectionResetError):  # the proxy's way to close
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        yield listener.getsockname()[:2]
        server.join(10)


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[FaultProxy]:
    one = FaultProxy()
    one.upstream = echo
    yield one.start()
    one.close()


def read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := connection.recv(1 << 20)):
        data += more
    return data


def test_proxy_delays_each_direction(proxy: FaultProxy) -> None:
    proxy.delay_s = 0.03
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        began = time.monotonic()
        connection.sendall(b"there and back")
        assert read(connection, 14) == b"there and back"
        assert time.monotonic() - began >= 0.06


def test_proxy_delivers_more_than_a_window_in_order(proxy: FaultProxy) -> None:
    proxy.delay_s = 0.05  # long enough for the window to close
    sent = os.urandom(10 << 20)
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        sender = threading.Thread(target=connection.sendall, args=(sent,))
        sender.start()
        assert read(connection, len(sent)) == sent
        sender.join(10)
