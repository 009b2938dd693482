"""What a running task tells its driver: once a second, where its partitions are and what it did so far.

On the same connection the driver gives instructions (`instructions`): to end, or to copy more partitions besides.

Best effort, both ways, and never at the copy's cost: a thread of its own reads the partitions' numbers and sends those
that changed. A driver that is gone, frozen or unreachable is tried again every few seconds; what it misses is dropped.

The connection to `jobs.progress.listener` is TLS, always: names of topics are nobody's business on the way, and a
setting that says when to encrypt would be one to forget. On it go the token, then JSON lines with the task's id, how many
fetched bytes it holds, how long brokers throttle it, and rows. A row is that of ``status.json`` without lag and rates:
topic names, offsets, counts and error texts, no records and no settings. The token keeps strangers' rows out: who has it
can write wrong progress, and take the instructions meant for a task; the driver ends a turn whose tasks don't take them.
"""

from __future__ import annotations

import base64
import json
import logging
import secrets
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from airflow_mirror.copy.instructions import Instruction
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.phase import phase_of
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import LeaseLost

log = logging.getLogger(__name__)

ROWS_PER_LINE = 200  # about 80 KB; the listener refuses much longer lines
MAX_ERROR_CHARS = 300
_SHARE = 20  # reading the numbers may take one part in so many of a core, whatever the number of partitions


class Pace(NamedTuple):
    """How often a task reports, and how long it waits for its driver.

    :ivar timeout_s: of a connect or a send. :ivar retry_s: behind a connection that failed.
    :ivar goodbye_s: how long the last report may hold up the end of the task.
    """

    every_s: float = 1.0
    timeout_s: float = 2.0
    retry_s: float = 5.0
    goodbye_s: float = 1.0


PACE = Pace()


class Reporter:
    """Reports on ``partitions`` as long as the ``with`` block runs, and once more at its end.

    :param report_to: host, port, token and certificate of the driver, with a space between; None reports to nobody.
    :param gauges: returns what is so of the task at this moment, as :meth:`.CopyLoop.gauges`.
    :param take_in: called with ranges to copy as well, and how; by the reporter's thread.
    :param deal: number of the deal by which the task copies (:attr:`.CopyWork.deal`).
    :ivar asked_to_end: the driver wants the task to end: it has other work for it, or wants to know how it went.
    :ivar is_connected: the driver listens, as far as is known: what it says next will be heard.
    """

    asked_to_end = False
    is_connected = False

    def __init__(
        self, report_to: str | None, partitions: Sequence[PartitionCopy],
        gauges: Callable[[], dict[str, Any]] = lambda: {"held": 0}, *,
        take_in: Callable[[Sequence[CopyRange], CopyOptions], None] = lambda *_: None, deal: int = 0, pace: Pace = PACE,
    ) -> None:  # fmt: skip
        self._report_to, self._partitions, self._gauges = report_to, partitions, gauges
        self._take_in, self._deal, self._taken, self._pace = take_in, deal, 0, pace
        self._run_id = secrets.token_hex(8)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)

    def __enter__(self) -> Reporter:
        if self._report_to is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        if self._report_to is not None:
            # The result is returned in any case, and says the same and more: a goodbye that is not heard costs the
            # driver nothing.
            self._thread.join(self._pace.goodbye_s)

    def _run(self) -> None:
        try:
            host, port, token, certificate = (self._report_to or "").split()
            tls, missed = trusting(certificate), 0
            while not self._ended.is_set():
                reached = False
                try:
                    with (
                        socket.create_connection((host, int(port)), self._pace.timeout_s) as plain,
                        tls.wrap_socket(plain) as driver,
                    ):
                        # Each connection begins with it: the driver may be another process than the one before, behind
                        # the same address.
                        driver.sendall(f"{token}\n".encode())
                        reached = True
                        self._report(driver)
                        driver.unwrap()  # says that this is all: what came before an end without a word may be lost
                except OSError as e:
                    # One that hangs up has most often come to its end, and so does this task; so has one that is not
                    # there when a task that has just begun looks for it. If not, the next try tells.
                    missed = 0 if reached else missed + 1
                    log.log(
                        logging.INFO if missed > 1 else logging.DEBUG,
                        "the driver at %s:%s does not listen: %s",
                        host,
                        port,
                        e,
                    )
                    self.is_connected = False
                    self._ended.wait(self._pace.retry_s)
        except Exception:  # whatever it is, it is no reason to stop the copy
            log.info("progress is no longer reported", exc_info=True)
        finally:
            self.is_connected = False

    def _report(self, driver: ssl.SSLSocket) -> None:
        """Report until the copy has ended, and once more then."""
        told: dict[PartitionCopy, tuple[Any, ...]] = {}  # to the driver
        said = select.poll()  # select() can't take descriptors from 1024 on, which a task of many brokers has
        said.register(driver, select.POLLIN)
        last, heard = False, b""
        while not last:
            last, begun = self._ended.is_set(), time.thread_time()
            # Where a partition stands that was not opened yet is not known.
            now = {p: basis_of(p) for p in self._partitions if p.opened or has_stopped(p)}
            changed = [row_of(p) for p, basis in now.items() if basis != told.get(p)]
            # Noted as told before it is: if the line is lost, the connection is too, and the next one begins with
            # everything.
            told = now
            for i in range(0, len(changed) + 1, ROWS_PER_LINE):  # the last line may be empty: it says "still here"
                line = {
                    "run": self._run_id, "deal": self._deal, "taken": self._taken, **self._gauges(),
                    "rows": changed[i : i + ROWS_PER_LINE],
                }  # fmt: skip
                driver.sendall(json.dumps(line).encode() + b"\n")
            self.is_connected = True
            if said.poll(0):
                *lines, heard = (heard + _said(driver)).split(b"\n")
                for line_heard in lines:
                    self._obey(Instruction.from_line(line_heard))
            self._ended.wait(max(self._pace.every_s, _SHARE * (time.thread_time() - begun)))

    def _obey(self, instruction: Instruction) -> None:
        # Only ever set: an instruction that was heard holds, also if the connection is lost behind it.
        if instruction.options is None:
            self.asked_to_end = True
        else:
            self._take_in(instruction.ranges, instruction.options)
        # Not before: whoever reads it takes the partitions for copied, until the turn is over.
        self._taken = instruction.number


def trusting(certificate: str) -> ssl.SSLContext:
    """Return what connects to the driver of this certificate, and to nobody else.

    :param certificate: base64 of its DER.
    :raises ValueError: it is none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the certificate is the driver's own, wherever executors reach it
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=base64.b64decode(certificate, validate=True))
    return context


def _said(driver: ssl.SSLSocket) -> bytes:
    """Return what the driver has said by now; nothing if what arrived was TLS's own.

    :raises ConnectionResetError: it hung up.
    """
    timeout_s, said = driver.gettimeout(), b""
    driver.setblocking(False)
    try:
        while True:
            if not (part := driver.recv(1 << 16)):
                raise ConnectionResetError("it hung up")
            said += part
    except ssl.SSLWantReadError:
        return said
    finally:
        driver.settimeout(timeout_s)


def basis_of(p: PartitionCopy) -> tuple[Any, ...]:
    """Return all that a row is made of. Many partitions rest: this takes half as long as to make their rows."""
    # Read beside the loop, which changes them: one may be older than the next. The next second corrects a row, and what
    # counts is the task's result.
    counts = p.delays.batches, *vars(p.counters).values()
    return p.state, p.error, p.position, p.committed, p.fetch_offset, p.available_end, p.held, *counts


def has_stopped(p: PartitionCopy) -> bool:
    """Return whether an error has stopped a partition.

    A lost lease ends its task and stops none: the driver itself withdraws one, for another rate say, and lets all go on
    under the next. It alone knows whether another job took it, and hears of the loss by the task's results.
    """
    return p.error is not None and not isinstance(p.error, LeaseLost)


def row_of(p: PartitionCopy) -> dict[str, Any]:
    """Return a partition's row. Its state is "opening" again whenever something failed.

    The end is the planned one, or where the source's log ended in the last fetch; None before the first fetch. The
    timestamp is that of the last record on the target, 0 if unknown.
    """
    one, stopped = p.range, has_stopped(p)
    end = p.available_end if one.end_offset is None else one.end_offset
    state = phase_of(
        stopped=stopped, done=p.done, opening=not p.is_open,
        at_end=one.end_offset is None and not p.is_behind,
    )  # fmt: skip
    return {
        "topic": one.source_topic, "partition": one.partition, "target_partition": one.target.partition, "state": state,
        "position": p.settled_position, "end": end if end >= 0 else None,
        "held": p.held if one.end_offset is None else 0,
        "error": str(p.error)[:MAX_ERROR_CHARS] if stopped else None, **vars(p.counters),
        "timestamp_ms": p.delays.timestamp_ms or max(0, p.timestamp), "delays": p.delays.read(),
    }  # fmt: skip
