"""What a running task tells its driver: one JSON line a second with where its partitions are and what it did so far.

The driver says one thing only, on the same connection: end now, another turn is to begin.

Best effort, both ways, and never at the copy's cost: a thread of its own reads the partitions' numbers and sends those
that changed. A driver that is gone, frozen or unreachable is tried again every few seconds; what it misses is dropped.

The lines go over plain TCP to the listener of `jobs.listener`. They hold topic names, offsets, counts and error texts,
no records and no settings. The token in the address keeps strangers' rows out by accident more than by force: a tail
passes it through a Spark option, which Spark shows in query plans. Who has it can write wrong progress and nothing else.
"""

from __future__ import annotations

import json
import logging
import secrets
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from types import TracebackType
from typing import Any

from airflow_mirror.copy.loop.partition import COUNTERS, PartitionCopy
from airflow_mirror.copy.phase import Phase, phase_of

log = logging.getLogger(__name__)

EVERY_S = 1.0
ROWS_PER_LINE = 200  # about 60 KB; the listener refuses much longer lines
MAX_ERROR_CHARS = 300
END = b"end\n"  # all that a driver ever says
_SHARE = 20  # reading the numbers may take one part in so many of a core, whatever the number of partitions
_TIMEOUT_S = 2.0  # of a connect or a send
_RETRY_S = 5.0
_GOODBYE_S = 1.0  # how long the last report may hold up the end of the task

_counters_of = attrgetter(*COUNTERS)


@dataclass(frozen=True)
class ReportAddress:
    """Where the driver listens, and the token that it asks for."""

    host: str
    port: int
    token: str

    def dump(self) -> str:
        """Return the text that travels in ``CopyWork.report_to``."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> ReportAddress:
        """Inverse of :meth:`dump`.

        :raises ValueError: or TypeError, KeyError, when it is something else.
        """
        values = json.loads(text)
        return cls(str(values["host"]), int(values["port"]), str(values["token"]))


class Reporter:
    """Reports on ``partitions`` as long as the ``with`` block runs, and once more at its end.

    :param report_to: :meth:`ReportAddress.dump`; None reports to nobody.
    :param epoch: of the writer lease that the task copies under.
    :ivar asked_to_end: the driver wants the task to end: it has other work for it, or wants to know how it went.
    """

    asked_to_end = False

    def __init__(self, report_to: str | None, epoch: int, partitions: Sequence[PartitionCopy]) -> None:
        self._report_to, self._epoch, self._partitions = report_to, epoch, partitions
        self._run_id = secrets.token_hex(8)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)
        self._socket: socket.socket | None = None
        self._retry_at = 0.0
        self._sent: dict[int, tuple[Any, ...]] = {}  # index of a partition -> what the driver knows of it

    def __enter__(self) -> Reporter:
        if self._report_to is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        if self._report_to is not None:
            self._thread.join(_GOODBYE_S)

    def _run(self) -> None:
        try:
            address = ReportAddress.parse(self._report_to or "")
            stopped = False
            while not stopped:
                begun = time.thread_time()
                self._report(address)
                stopped = self._stop.wait(max(EVERY_S, _SHARE * (time.thread_time() - begun)))
            self._report(address)
        except Exception:  # whatever it is, it is no reason to stop the copy
            log.info("progress is no longer reported", exc_info=True)
        finally:
            self._disconnect()

    def _report(self, address: ReportAddress) -> None:
        if self._socket is None and (self._stop.is_set() or time.monotonic() < self._retry_at):
            return
        try:
            if self._socket is None:
                self._socket = socket.create_connection((address.host, address.port), _TIMEOUT_S)
                self._send({"token": address.token, "run": self._run_id, "epoch": self._epoch})
            for rows in self._changed():
                self._send({"rows": rows})
            self._hear()
        except OSError as e:
            log.info("the driver at %s:%d does not listen: %s", address.host, address.port, e)
            self._retry_at = time.monotonic() + _RETRY_S
            self._disconnect()

    def _send(self, line: dict[str, Any]) -> None:
        assert self._socket is not None
        self._socket.sendall(json.dumps(line).encode() + b"\n")

    def _hear(self) -> None:
        assert self._socket is not None
        if select.select([self._socket], [], [], 0)[0]:
            if not self._socket.recv(64):
                raise ConnectionResetError("it hung up")
            self.asked_to_end = True

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._sent.clear()

    def _changed(self) -> Iterator[list[dict[str, Any]]]:
        """Yield what changed since the last report, some rows at a time; the last may be empty: it says "still here"."""
        rows: list[dict[str, Any]] = []
        for index, p in enumerate(self._partitions):
            if not p.opened and p.error is None:
                continue  # not opened yet: where it stands is not known
            now = (state_of(p), p.settled_position, _end(p), *_counters_of(p.counters))
            if self._sent.get(index) != now:
                self._sent[index] = now
                rows.append(_row(p, *now))
            if len(rows) == ROWS_PER_LINE:
                yield rows
                rows = []
        yield rows


def state_of(p: PartitionCopy) -> Phase:
    """Name what a partition's copy is doing. It is opening again whenever something failed."""
    return phase_of(
        stopped=p.error is not None, done=p.done, opening=not p.is_open,
        at_end=p.range.end_offset is None and not p.is_behind,
    )  # fmt: skip


def _end(p: PartitionCopy) -> int | None:
    """Where the copy of a partition ends: as planned, or where the source's log ended in the last fetch."""
    return p.range.end_offset if p.range.end_offset is not None else p.available_end if p.available_end >= 0 else None


def _row(p: PartitionCopy, state: str, position: int, end: int | None, *counters: int) -> dict[str, Any]:
    return {
        "topic": p.range.source_topic, "partition": p.range.partition, "target_partition": p.range.target.partition,
        "state": state, "position": position, "end": end, "error": str(p.error)[:MAX_ERROR_CHARS] if p.error else None,
        "counters": dict(zip(COUNTERS, counters, strict=True)),
    }  # fmt: skip
