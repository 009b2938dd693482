"""The TCP port of the driver to which tasks report, served by one thread.

Everything on it is encrypted (`certificate`). Anybody who reaches the port may connect, so input is limited: handshake
and token must come first and within seconds, lines and bytes per second are bounded, and only rows of this job's
partitions are accepted. Anything else ends the connection. Whoever has the token can forge progress and nothing else.
With a local master the port is bound to the loopback interface, otherwise to Spark's own driver address.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import socket
import threading
from typing import Any, NamedTuple

from airflow_mirror.copy.reporter import END
from airflow_mirror.jobs.progress.certificate import Identity, new_identity
from airflow_mirror.jobs.progress.table import Table

log = logging.getLogger(__name__)

SWITCH = "spark.airflow_mirror.progress"  # of a Spark session; false: the driver listens for no reports
MAX_LINE = 1 << 20  # bytes; 200 rows with the longest topic names and error texts are about half of that


class Limits(NamedTuple):
    """What whoever reaches the port may do.

    :ivar bytes_per_s: of one task: 40,000 partitions that all changed; what is faster waits in its own socket.
    :ivar silent_s: a task sends something every second; after so long its machine is gone.
    """

    bytes_per_s: float = 16 << 20
    peers: int = 2000
    greet_within_s: float = 5.0
    silent_s: float = 60.0


LIMITS = Limits()


class Hosts(NamedTuple):
    """The address to bind, and the name by which executors reach it."""

    bind: str
    advertise: str


LOOPBACK = Hosts("127.0.0.1", "127.0.0.1")


def hosts_of(spark: Any) -> Hosts | None:
    """Return the address of this session's driver: the one that Spark uses, or loopback for a local master.

    None: by a setting of the session it must not listen.
    """
    context = spark.sparkContext
    conf = context.getConf()
    if conf.get(SWITCH, "true").strip().lower() == "false":
        return None
    if context.master == "local" or context.master.startswith("local["):
        return LOOPBACK
    host = conf.get("spark.driver.host", "")
    return Hosts(conf.get("spark.driver.bindAddress", host), host)


class Listener:
    """Receives the reports of tasks and passes them to ``table``, from construction until :meth:`close`.

    :param identity: what it proves itself by; None: a new one.
    :ivar address: for `copy.reporter.Reporter`.
    :raises OSError: when ``hosts.bind`` can't be bound.
    """

    def __init__(
        self, table: Table, hosts: Hosts = LOOPBACK, limits: Limits = LIMITS, identity: Identity | None = None
    ) -> None:
        self._table, self._limits = table, limits
        family = socket.getaddrinfo(hosts.bind, 0, type=socket.SOCK_STREAM)[0][0]
        server = socket.create_server((hosts.bind, 0), family=family, backlog=256)
        token = secrets.token_urlsafe(24)
        identity = identity or new_identity()
        self._tls = identity.context
        self.address = f"{hosts.advertise} {server.getsockname()[1]} {token} {identity.certificate}"
        self._greeting = f"{token}\n".encode()
        self._peers: set[asyncio.StreamWriter] = set()
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(server,), name="listener", daemon=True)
        self._thread.start()

    def end_tasks(self) -> None:
        """Ask every connected task to end, if it copies for a duration and not to an end."""

        def tell() -> None:
            for peer in self._peers:
                peer.write(END)

        self._loop.call_soon_threadsafe(tell)

    def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _run(self, server: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # which ends every conversation as it closes
            runner.run(self._serve(server))

    async def _serve(self, server: socket.socket) -> None:
        async with await asyncio.start_server(
            self._converse, sock=server, limit=MAX_LINE, ssl=self._tls,
            ssl_handshake_timeout=self._limits.greet_within_s,
        ):  # fmt: skip
            await self._stop.wait()
            for peer in self._peers:  # from Python 3.12 on, the server's end waits for that of each connection
                peer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, peer: asyncio.StreamWriter) -> None:
        try:
            if len(self._peers) >= self._limits.peers:
                raise ValueError("there are too many")
            self._peers.add(peer)
            # Exactly so many bytes: a stranger must not make us keep a whole line.
            # Not `wait_for`: in Python 3.11 it loses a cancellation that comes with what it waits for, and the
            # conversation would go on for as long as the task copies.
            async with asyncio.timeout(self._limits.greet_within_s):
                greeting = await reader.readexactly(len(self._greeting))
            if not hmac.compare_digest(greeting, self._greeting):
                raise ValueError("wrong token")
            while line := await self._line_of(reader):
                message = json.loads(line)
                self._table.take(message["run"], message["rows"], message["held"], message.get("throttled"))
                await asyncio.sleep(len(line) / self._limits.bytes_per_s)
        except (OSError, EOFError, TimeoutError, LookupError, TypeError, ValueError, RecursionError) as e:
            log.debug("connection of a task ended: %s", e)
        except asyncio.CancelledError:
            pass  # the listener closes, and Python 3.11 would log the cancellation of a conversation as an error
        finally:
            self._peers.discard(peer)
            peer.transport.abort()  # not close(), which waits for a goodbye, also of those who never say one

    async def _line_of(self, reader: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(self._limits.silent_s):
            return await reader.readline()
