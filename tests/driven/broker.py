"""One broker: a listening socket, and a thread for each connection. What it answers, the cluster and its script say."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.driven import protocol
from tests.driven.protocol import Frame
from tests.driven.refused import HungUp
from tests.driven.script import WAIT_S
from tests.driven.sessions import Sessions

if TYPE_CHECKING:
    from tests.driven.cluster import DrivenCluster, Topic

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


class Broker:
    """A node of a driven cluster. Its port stays the same when it is stopped and started.

    :ivar served: API key -> (lowest, highest) version; change it to look like an older broker.
    :ivar deaf_to: API keys of requests of which it reads no more than the beginning, as long as they stand in here.
    :ivar sessions: its fetch sessions, which end when it stops.
    :ivar settings: of its own that it tells; None: of one that it hides.
    :ivar heard: topics as they were when it was cut off from the other brokers; None: it hears of everything.
    :ivar advertises: the host and port that its cluster tells clients; None: where it listens.
    """

    def __init__(self, cluster: DrivenCluster, node_id: int, served: dict[int, tuple[int, int]]) -> None:
        self.cluster, self.node_id, self.served = cluster, node_id, dict(served)
        self.port = 0
        self.advertises: tuple[str, int] | None = None
        self.settings: dict[str, str | None] = {}
        self.deaf_to: set[int] = set()
        self.sessions = Sessions()
        self.heard: dict[str, Topic] | None = None
        self.deaf = threading.Event()  # a request has come that it is deaf to
        self._port_holder: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self.start()

    @property
    def running(self) -> bool:
        """Whether it listens."""
        return self._listener is not None

    @property
    def address(self) -> tuple[str, int]:
        """Where clients are sent."""
        return self.advertises or ("127.0.0.1", self.port)

    def start(self) -> None:
        """Listen."""
        if self._port_holder is None:
            self._hold_port()
        self._listener = socket.create_server(("127.0.0.1", self.port), reuse_port=True)
        threading.Thread(target=self._accept, args=(self._listener,), name=f"broker-{self.node_id}", daemon=True).start()

    def stop(self) -> None:
        """Stop listening and reset every connection."""
        listener, self._listener = self._listener, None
        self.sessions.evict()
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # ends the accept that a thread waits in
            listener.close()
        self.disconnect()

    def close(self) -> None:
        """Stop, and give the port back."""
        self.stop()
        if self._port_holder is not None:
            self._port_holder.close()

    def disconnect(self) -> None:
        """Reset every connection; new ones are taken."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.reset()

    def _hold_port(self) -> None:
        # A socket that never listens. Without it another cluster may get the port while the broker is stopped: a client
        # of this one would then ask that one, and find its topics created again.
        holder = self._port_holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", self.port))
        self.port = holder.getsockname()[1]

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            link = _Link(plain)
            with self._lock:
                self._links.add(link)
            if not self.running:
                link.reset()
            threading.Thread(target=self._serve, args=(link,), name=f"broker-{self.node_id}", daemon=True).start()

    def _serve(self, link: _Link) -> None:
        try:
            while (content := link.read(self._listen)) is not None:
                frame = protocol.parse(content)
                if not self._answer(link, frame):
                    return
        except OSError:
            pass  # the client hung up, or the test had the broker stopped
        except Exception as e:
            self.cluster.failed(e)
        finally:
            link.reset()
            with self._lock:
                self._links.discard(link)

    def _listen(self, key: int) -> None:
        """Wait until a request may be read on."""
        with self.cluster.news:
            if key in self.deaf_to:
                self.deaf.set()
                self.cluster.news.wait_for(lambda: key not in self.deaf_to or not self.running, WAIT_S)

    def _answer(self, link: _Link, frame: Frame) -> bool:
        """Answer one request as the script says; return whether the connection goes on."""
        lowest, highest = self.served.get(frame.key, (1, 0))
        if frame.key == protocol.API_VERSIONS and frame.version > highest:
            frame = frame._replace(version=0, body=memoryview(b""), too_new=True)
        elif not lowest <= frame.version <= highest:
            return False  # a broker hangs up
        try:
            outcome = self.cluster.serve(self, frame)
        except HungUp:
            return False
        if outcome.content is not None:  # as with acks=0
            link.send(outcome.content if outcome.only is None else outcome.content[: outcome.only])
        if outcome.freeze:
            link.frozen.wait(WAIT_S)
        return outcome.only is None and not outcome.freeze


class _Link:
    """A connection, seen from the broker."""

    def __init__(self, plain: socket.socket) -> None:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain
        self._lock = threading.Lock()
        self.frozen = threading.Event()

    def read(self, listen: Callable[[int], None]) -> bytes | None:
        """Return the next frame, None at the end.

        :param listen: called with its API key before the rest is read.
        """
        head = self._exactly(6)
        if head is None:
            return None
        listen(int.from_bytes(head[4:], "big"))
        rest = self._exactly(int.from_bytes(head[:4], "big") - 2)
        return None if rest is None else head[4:] + rest

    def send(self, content: bytes) -> None:
        """Send everything."""
        self._socket.sendall(content)

    def reset(self) -> None:
        """Close with RST, and wake the thread that reads."""
        self.frozen.set()
        with self._lock, suppress(OSError):
            if self._socket.fileno() >= 0:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                # A thread that waits in recv would keep the socket open; SHUT_RD wakes it and sends nothing.
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RD)
                self._socket.close()

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            count = self._socket.recv_into(view[at:], 0, socket.MSG_WAITALL)
            if not count:
                return None
            at += count
        return bytes(data)
