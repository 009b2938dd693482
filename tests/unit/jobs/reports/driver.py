"""A driver, tasks, and strangers that call: what the tests of reports share."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_mirror.copy.loop.counters import COUNTERS
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.reporter import Pace, Reporter, trusting
from airflow_mirror.jobs.progress.listener import Limits, Listener
from airflow_mirror.jobs.progress.table import Key, Row, Table
from tests.waiting import wait_until

if TYPE_CHECKING:
    import pytest

RANGES = [
    CopyRange(source_topic="orders", target_topic="orders", partition=p, start_offset=0, end_offset=1000)
    for p in range(3)
]
FIRST, SECOND, THIRD = KEYS = [("orders", p, p) for p in range(3)]


def told(table: Table) -> dict[Key, Row]:
    """The rows on which a task reported."""
    return {row.key: row for row in table.rows() if row.counters}


# On a busy machine, patience that ends is not what these tests are about.
PATIENT = Limits(greet_within_s=60.0)
QUICK = Pace(every_s=0.02, retry_s=0.02, timeout_s=60.0)
reporting = partial(Reporter, pace=QUICK)


def listening(table: Table, limits: Limits = PATIENT) -> contextlib.closing[Listener]:
    return contextlib.closing(Listener(table, limits=limits))


def copies(ranges: list[CopyRange] = RANGES) -> list[PartitionCopy]:
    return [PartitionCopy(r, True, 1 << 20, state=State.READY, opened=True) for r in ranges]


def at(driver: Listener) -> tuple[str, int]:
    host, port, _, _ = driver.address.split()
    return host, int(port)


def dial(driver: Listener) -> ssl.SSLSocket:
    """Connect as a task does, with its certificate in hand."""
    return trusting(driver.address.split()[3]).wrap_socket(socket.create_connection(at(driver), 60))


def call(driver: Listener, *lines: Any, end: bool = True) -> bytes:
    """Connect as anybody could, send lines and return what the driver did with the connection: b"" means closed."""
    others = len(driver._tasks)
    with dial(driver) as stranger:
        try:
            for line in lines:
                stranger.sendall((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
            if end:
                stranger.unwrap()
                wait_until(lambda: len(driver._tasks) <= others)  # TLS says goodbye before all is read
                return b""
            return stranger.recv(1)
        except TimeoutError:
            raise
        except OSError:  # closed while we were still talking
            return b""


def token(driver: Listener) -> bytes:
    return driver.address.split()[2].encode()


def told_by(run: str, *rows: Any) -> dict[str, Any]:
    return {"run": run, "deal": 1, "taken": 0, "held": 0, "rows": list(rows)}


def row(partition: int = 0, position: int = 10, state: str = "copying", **counters: Any) -> dict[str, Any]:
    return {
        "topic": "orders", "partition": partition, "target_partition": partition, "state": state,
        "position": position, "end": 1000, "error": None, **dict.fromkeys(COUNTERS, 0), **counters,
    }  # fmt: skip


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the job's log has; a login of another test may still be renewed in the background."""
    return [one.getMessage() for one in caplog.records if one.name.startswith("airflow_mirror.jobs")]
