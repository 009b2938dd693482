"""What a tail's driver does again and again beside the copy: a thread for each kind, with connections of its own.

Nothing waits for it, and no failure of it ends anything: it reports, and tries again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from airflow_mirror.errors import LeaseLost, MirrorError
from airflow_mirror.jobs.runner.status import words
from airflow_mirror.sync.passes import PassReport
from airflow_mirror.sync.write_permit import Stopped, WritePermit

log = logging.getLogger(__name__)

_JOIN_S = 10.0
_SAY_EVERY_S = 60.0
_SHARE = 4  # passes may take this fraction of a core, however much there is to do


OnePass = Callable[[int], PassReport]
"""Makes one pass. Receives the time, in milliseconds since the epoch."""


class Recurring:
    """Makes a pass every ``interval_s``.

    :param name: of what the passes do, as in ``groups``: the key of its report in the job's status, too.
    :param connect: returns a context that yields the function of a pass, on connections that it closes.
    :param right: with which the passes write.
    :param tell: receives what is to stand in the job's status.
    """

    def __init__(
        self, name: str, connect: Callable[[], AbstractContextManager[OnePass]], right: WritePermit, interval_s: float,
        tell: Callable[[dict[str, Any]], None],
    ) -> None:  # fmt: skip
        self._name, self._connect, self._right, self._interval_s, self._tell = name, connect, right, interval_s, tell
        self._stop, self._renew = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._said, self._said_at = (0, ""), 0.0

    def start(self) -> None:
        """Begin."""
        # Before the first pass: one that hangs tells nothing, and would be missed by nobody.
        self._tell({**self._now(), "said": [], "took_s": None})
        self._thread.start()

    def renew(self) -> None:
        """Go on with what ``connect`` yields anew: what the passes were given has changed."""
        self._renew.set()

    def stop(self, join_s: float = _JOIN_S) -> None:
        """End. When this returns, nothing is being written, and nothing will be.

        It waits for what is being written, not for a cluster that does not answer: what the thread reads after this has
        no effect any more.

        :param join_s: how long at most the thread itself is waited for.
        """
        self._stop.set()
        self._right.end()
        if self._thread.is_alive():
            self._thread.join(join_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._renew.clear()
                with self._connect() as one_pass:
                    self._repeat(one_pass)
            except Stopped:
                return
            except Exception as e:  # a mistake of ours: the copy goes on, and this on new connections
                self._report_failure(e)
                self._stop.wait(self._interval_s)

    def _repeat(self, one_pass: OnePass) -> None:
        while not self._stop.is_set() and not self._renew.is_set():
            begun, busy = time.monotonic(), time.thread_time()
            try:
                report = one_pass(int(time.time() * 1000))
                self._report(report.to_dict(), f"{self._name}: {report}", logging.INFO)
            except Stopped:
                raise
            except MirrorError as e:  # not on new connections: these still know what was sent and not answered
                self._report_failure(e)
            left_s = begun + self._interval_s - time.monotonic()
            self._stop.wait(max(left_s, (_SHARE - 1) * (time.thread_time() - busy)))

    def _report_failure(self, error: Exception) -> None:
        # A lost lease ends the whole job, which says why, once.
        level = logging.DEBUG if isinstance(error, LeaseLost) else logging.WARNING
        said = words(error)
        self._report({"error": said[:1000]}, f"{self._name} don't follow now: {said}", level)

    def _report(self, found: dict[str, Any], line: str, level: int) -> None:
        now, said = time.monotonic(), (level, line)
        # What stays the same is said once, and what changes with every pass not each time.
        if said != self._said and (level != self._said[0] or now - self._said_at > _SAY_EVERY_S):
            self._said, self._said_at = said, now
            log.log(level, "%s", line)
        self._tell({**self._now(), **found})

    def _now(self) -> dict[str, Any]:
        return {"at": time.time(), "every_s": self._interval_s, "error": None}
