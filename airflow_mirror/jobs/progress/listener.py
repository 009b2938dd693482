"""Where tasks report to: a TCP port of the driver, served by one thread.

Whoever reaches the port may try. What is taken is bounded: a first line with the job's token within seconds, lines and
bytes per second limited, rows of partitions that this job copies and of no others. Anything else ends that connection.
The token is no strong secret (see `copy.report`): who has it can write wrong progress and nothing else. With a local
master the port is bound to the loopback interface, otherwise to Spark's own driver address, which executors reach.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import selectors
import socket
import threading
import time
from typing import Any, NamedTuple

from airflow_mirror.copy.reporter import END, ReportAddress
from airflow_mirror.jobs.progress.reports import Live, Run

log = logging.getLogger(__name__)

MAX_LINE = 1 << 20  # bytes; 200 rows with the longest topic names and error texts are about half of that
MAX_FIRST_LINE = 4096
MAX_BYTES_PER_S = 16 << 20  # of one task: 50,000 partitions that all changed
MAX_PEERS = 2000
_GREET_WITHIN_S = 5.0
_SILENT_S = 60.0  # a task sends something every second; after so long its machine is gone
_TURN_S = 0.5


class Hosts(NamedTuple):
    """The address to bind, and the name under which executors reach it."""

    bind: str
    advertise: str


LOOPBACK = Hosts("127.0.0.1", "127.0.0.1")


def hosts_of(spark: Any) -> Hosts:
    """Return where the driver of this session is reached: what Spark itself uses, or loopback for a local master."""
    context = spark.sparkContext
    if context.master == "local" or context.master.startswith("local["):
        return LOOPBACK
    conf = context.getConf()
    host = conf.get("spark.driver.host", "")
    return Hosts(conf.get("spark.driver.bindAddress", host), host)


class _Unwelcome(Exception):
    """This connection is none of ours, or misbehaves."""


class _Peer:
    """One connection and what it is allowed."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.heard = self.second = time.monotonic()
        self.bytes_this_second = 0
        self.unread = bytearray()
        self.run: Run | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes that arrived; return the lines that are complete.

        :raises _Unwelcome: when they are too many, or a line is too long.
        """
        now = time.monotonic()
        if self.run is not None:
            self.heard = now
        if now - self.second >= 1:
            self.second, self.bytes_this_second = now, 0
        self.bytes_this_second += len(data)
        self.unread += data
        *lines, rest = self.unread.split(b"\n")
        limit = MAX_FIRST_LINE if self.run is None else MAX_LINE
        if self.bytes_this_second > MAX_BYTES_PER_S or (not lines and len(rest) > limit):
            raise _Unwelcome("it sends too much")
        self.unread = rest
        return [bytes(line) for line in lines]


class Listener:
    """Receives the reports of tasks and hands them to ``live``, from its construction until :meth:`close`.

    :raises OSError: when ``hosts.bind`` can't be bound.
    """

    def __init__(self, live: Live, hosts: Hosts = LOOPBACK) -> None:
        self._live = live
        family = socket.getaddrinfo(hosts.bind, 0, type=socket.SOCK_STREAM)[0][0]
        self._server = socket.create_server((hosts.bind, 0), family=family, backlog=256)
        self._server.setblocking(False)
        self.address = ReportAddress(hosts.advertise, self._server.getsockname()[1], secrets.token_urlsafe(24))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ, None)
        self._peers: set[_Peer] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
        self._thread.start()

    def end_tasks(self) -> None:
        """Ask every task that is connected to end, if it copies for a while and not up to an end."""
        for peer in list(self._peers):
            try:
                if peer.run is not None:
                    peer.connection.send(END)
            except OSError as e:  # it is about to end, or frozen
                log.debug("a task can't be told anything: %s", e)

    def close(self) -> None:
        """Stop listening and drop every connection."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._selector.select(_TURN_S):
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.data)
            self._drop_silent()
        for peer in list(self._peers):
            self._drop(peer)
        self._server.close()
        self._selector.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError as e:  # out of file descriptors, or the peer is gone already
            log.info("a task's report was not accepted: %s", e)
            self._stop.wait(0.1)
            return
        if len(self._peers) >= MAX_PEERS:
            connection.close()
            return
        connection.setblocking(False)
        peer = _Peer(connection)
        self._peers.add(peer)
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.connection.recv(1 << 18)
            if not data:
                raise _Unwelcome("it ended")
            for line in peer.feed(data):
                self._take(peer, line)
        except BlockingIOError:
            return
        except (OSError, _Unwelcome, ValueError, RecursionError) as e:
            log.debug("connection of a task ended: %s", e)
            self._drop(peer)

    def _take(self, peer: _Peer, line: bytes) -> None:
        if peer.run is None and len(line) > MAX_FIRST_LINE:
            raise _Unwelcome("it greets at length")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise _Unwelcome("it sends no objects")
        if peer.run is not None:
            rows = message.get("rows")
            self._live.take(peer.run, rows if isinstance(rows, list) else [])
            return
        token, run_id, epoch = message.get("token"), message.get("run"), message.get("epoch")
        if not isinstance(token, str) or not hmac.compare_digest(token.encode(), self.address.token.encode()):
            raise _Unwelcome("wrong token")
        if not isinstance(run_id, str) or not isinstance(epoch, int):
            raise _Unwelcome("it does not say who it is")
        peer.run = self._live.begin(run_id[:64], epoch)
        if peer.run is None:
            raise _Unwelcome(f"it copies under the older lease epoch {epoch}")

    def _drop_silent(self) -> None:
        now = time.monotonic()
        for peer in list(self._peers):
            if now - peer.heard > (_GREET_WITHIN_S if peer.run is None else _SILENT_S):
                self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        self._selector.unregister(peer.connection)
        peer.connection.close()
        self._peers.discard(peer)
        if peer.run is not None:
            self._live.end(peer.run)
