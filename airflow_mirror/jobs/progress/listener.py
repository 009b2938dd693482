"""The TCP port of the driver to which tasks report, and on which they are told what to do, served by one thread.

Everything on it is encrypted (`certificate`). Anybody who reaches the port may connect, so input is limited: handshake
and token must come first and within seconds, lines and bytes per second are bounded, and only rows of this job's
partitions are accepted. Anything else ends the connection. Whoever has the token can forge progress, and take what was
meant for a task (`copy.reporter`).
With a local master the port is bound to the loopback interface, otherwise to Spark's own driver address.
"""

from __future__ import annotations

import asyncio
import heapq
import hmac
import json
import logging
import math
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from airflow_mirror.copy.instructions import Instruction
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.reporter import ROWS_PER_LINE
from airflow_mirror.jobs.progress.certificate import Identity, new_identity
from airflow_mirror.jobs.progress.table import PATIENCE_S, Table

log = logging.getLogger(__name__)

SWITCH = "spark.airflow_mirror.progress"  # a Spark setting; false: the driver listens for no reports
MAX_LINE = 1 << 20  # bytes; 200 rows with the longest topic names and error texts are about half of that


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What whoever reaches the port may do.

    :ivar bytes_per_s: of one task: 40,000 partitions that all changed; what is faster waits in its own socket.
    :ivar silent_s: a task sends something every second; after so long its machine is gone, and after ``fresh_s`` it is
        told nothing.
    :ivar taken_within_s: a task reads and reports once a second, or a little less often with very many partitions.
    """

    bytes_per_s: float = 16 << 20
    peers: int = 2000
    greet_within_s: float = 5.0
    silent_s: float = 60.0
    fresh_s: float = PATIENCE_S
    taken_within_s: float = 10.0


LIMITS = Limits()


class Hosts(NamedTuple):
    """The address to bind, and the name by which executors reach it."""

    bind: str
    advertise: str


LOOPBACK = Hosts("127.0.0.1", "127.0.0.1")


def hosts_of(context: Any) -> Hosts | None:
    """Return the address of this context's driver: the one that Spark uses, or loopback for a local master.

    None: by a Spark setting it must not listen.
    """
    conf = context.getConf()
    if conf.get(SWITCH, "true").strip().lower() == "false":
        return None
    if context.master == "local" or context.master.startswith("local["):
        return LOOPBACK
    host = conf.get("spark.driver.host", "")
    return Hosts(conf.get("spark.driver.bindAddress", host), host)


@dataclass(eq=False, kw_only=True)
class _Task:
    """A connection of a task.

    :ivar run: its id; empty: it has not reported yet. :ivar deal: by which it copies.
    :ivar partitions: how many it has, about. :ivar ends: it was told to end. :ivar heard_at: monotonic.
    """

    peer: asyncio.StreamWriter
    run: str = ""
    deal: int = 0
    partitions: int = 0
    ends: bool = False
    heard_at: float = -math.inf


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
        self._tasks: set[_Task] = set()
        self._numbers = count(1)
        self._untaken: dict[int, tuple[str, float]] = {}  # instruction -> run that was told, and when
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(server,), name="listener", daemon=True)
        self._thread.start()

    def end_tasks(self) -> None:
        """Ask every connected task to end, if it copies for a duration and not to an end."""

        def tell() -> None:
            for task in self._tasks:
                task.ends = True
                task.peer.write(Instruction(number=next(self._numbers)).to_line())

        self._soon(tell)

    def hand_out(self, ranges: Sequence[CopyRange], options: CopyOptions, before: int) -> None:
        """Have tasks that run copy these ranges as well, each range one of them; the one with the fewest first.

        :meth:`has_untaken` says whether they have taken them, or there was no task to take them.

        :param before: the first deal that has them: tasks of an earlier one have not.
        """
        self._soon(self._hand_out, ranges, options, before)

    def has_untaken(self) -> bool:
        """Say whether a task has not taken in time what it was told, or nobody was there to be told."""
        since = time.monotonic() - self._limits.taken_within_s
        return any(told_at < since for _, told_at in list(self._untaken.values()))

    def begin_turn(self) -> None:
        """Forget what tasks were told: all of them have ended, and who comes next copies by a newer deal."""
        self._soon(self._untaken.clear)

    def _soon(self, call: Callable[..., object], *given: object) -> None:
        """Have the listener's thread do something; nothing once it is closed, when no task is connected any more."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *given)

    def _hand_out(self, ranges: Sequence[CopyRange], options: CopyOptions, before: int) -> None:
        # Whoever has not reported yet may be of this deal, and have them already; who is silent may be frozen.
        since = time.monotonic() - self._limits.fresh_s
        able = [one for one in self._tasks if one.heard_at > since and one.deal < before and not one.ends]
        heap = [(task.partitions, place) for place, task in enumerate(able)]
        heapq.heapify(heap)
        parts: list[list[CopyRange]] = [[] for _ in able]
        if not able:
            self._untaken[next(self._numbers)] = "", -math.inf
            return
        for one in ranges:
            load, place = heapq.heappop(heap)
            parts[place].append(one)
            heapq.heappush(heap, (load + 1, place))
        for task, part in zip(able, parts, strict=True):
            task.partitions += len(part)
            for first in range(0, len(part), ROWS_PER_LINE):
                number = next(self._numbers)
                # Noted as told before it is. One that is lost, with its connection or its task, is never told again:
                # the turn ends for it.
                self._untaken[number] = task.run, time.monotonic()
                told = Instruction(number=number, ranges=part[first : first + ROWS_PER_LINE], options=options)
                task.peer.write(told.to_line())

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
            for task in self._tasks:  # from Python 3.12 on, the server's end waits for that of each connection
                task.peer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, peer: asyncio.StreamWriter) -> None:
        task = _Task(peer=peer)
        try:
            if len(self._tasks) >= self._limits.peers:
                raise ValueError("there are too many")
            self._tasks.add(task)
            # Exactly so many bytes: a stranger must not make us keep a whole line.
            # Not `wait_for`: in Python 3.11 it loses a cancellation that comes with what it waits for, and the
            # conversation would go on for as long as the task copies.
            async with asyncio.timeout(self._limits.greet_within_s):
                greeting = await reader.readexactly(len(self._greeting))
            if not hmac.compare_digest(greeting, self._greeting):
                raise ValueError("wrong token")
            while line := await self._line_of(reader):
                message = json.loads(line)
                self._hear(task, message)
                self._table.take(message["run"], message["rows"], message["held"], message.get("throttled"))
                await asyncio.sleep(len(line) / self._limits.bytes_per_s)
        except (OSError, EOFError, TimeoutError, LookupError, TypeError, ValueError, RecursionError) as e:
            log.debug("connection of a task ended: %s", e)
        except asyncio.CancelledError:
            pass  # the listener closes, and Python 3.11 would log the cancellation of a conversation as an error
        finally:
            self._tasks.discard(task)
            peer.transport.abort()  # not close(), which waits for a goodbye, also of those who never say one

    def _hear(self, task: _Task, message: Any) -> None:
        """Note which task it is, and what it has taken.

        :raises LookupError: or TypeError, ValueError, if it says none of that.
        """
        task.run, task.deal, taken = str(message["run"])[:64], int(message["deal"]), int(message["taken"])
        task.heard_at = time.monotonic()
        task.partitions = max(task.partitions, len(message["rows"]))
        for number, (run, _) in list(self._untaken.items()):
            if run == task.run and number <= taken:
                del self._untaken[number]

    async def _line_of(self, reader: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(self._limits.silent_s):
            return await reader.readline()
