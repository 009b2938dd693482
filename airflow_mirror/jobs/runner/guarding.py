"""Starts the process that lifts the fence of a cutover that died (:mod:`airflow_mirror.cutover.guard`).

A cutover starts one for itself, and a tail's driver another one, on its own host or in its own pod. It is started by
its name, because a driver imports nothing of the cutover. What it needs to know goes through a pipe: arguments and
environment can be read by others. Closing the pipe, which the kernel does for one that was killed, tells it that it is
alone.
"""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import TryAgain

_MODULE = "airflow_mirror.cutover.guard"
_START_S = 60.0
READY = b"ready\n"
_LOG = logging.getLogger("airflow_mirror.guard")


@contextmanager
def guarded(
    source: ClientConfig,
    target: ClientConfig,
    mirror: str,
    *,
    every_s: float,
    alarm: str = "",
    fence: str = "acl",
    log: Path | None = None,
    wait_s: float | None = None,
) -> Iterator[Callable[[], None]]:
    """Have a mirror's fence guarded until the block ends, and longer as long as a fence stands then.

    :param every_s: how often it is looked whether a fence stands. :param log: file of the guard; None: our own stderr.
    :param alarm: path of the function by which the guard calls a person; "": none.
    :param fence: ``acl``, or path of the function that makes the fence, without which the guard can't lift it.
    :param wait_s: how long to wait at the end until no fence stands: where this process ends, its pod may, and the guard
        with it. None: this process is the one that raises fences, and its guard must outlive it.
    :return: a function that returns once the guard is at work, and raises :class:`TryAgain` if it is not.
    """
    order = {
        "mirror": mirror, "every_s": every_s, "beside_owner": wait_s is None, "alarm": alarm, "fence": fence,
        "source": _told(source), "target": _told(target),
    }  # fmt: skip
    with nullcontext() if log is None else _opened(log) as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,  # what ends our process group must not end it
        )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    deadline, is_ready = time.monotonic() + _START_S, False
    try:
        with suppress(BrokenPipeError):  # `ready` says it
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()

        def ready() -> None:
            nonlocal is_ready
            assert process.stdout is not None
            if not is_ready and select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                is_ready = process.stdout.readline() == READY
            if not is_ready or process.poll() is not None:
                raise TryAgain(
                    "the process that guards the fence", f"it did not start within {_START_S:.0f} s, or has ended"
                )

        yield ready
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        if wait_s is None:  # it outlives us; as long as we live somebody has to hear that it has ended
            threading.Thread(target=process.wait, name="guard", daemon=True).start()
        else:
            try:
                process.wait(wait_s)
            except subprocess.TimeoutExpired:
                _LOG.error("a fence of mirror %r still stands, and its guard ends with this process", mirror)


def _told(config: ClientConfig) -> dict[str, Any]:
    """Return what makes the settings there. It lives as long as a tail, and reads their file again as that does."""
    return {"properties": dict(config.properties), "reference": config.reference}


def _opened(log: Path) -> IO[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    return log.open("ab")
