"""Consumer groups follow while a tail runs: a thread of the driver, with connections of its own.

Nothing waits for it, and no failure of it ends anything: it reports, and tries again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from airflow_mirror.config import load
from airflow_mirror.errors import MirrorError
from airflow_mirror.jobs.driver.prepare import CopyJob, HeldLease
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.following.follower import Follower
from airflow_mirror.sync.following.report import FollowReport
from airflow_mirror.sync.following.right import Right, Stopped
from airflow_mirror.sync.maps import OffsetMaps

log = logging.getLogger(__name__)

_STATE_PATIENCE_S = 10.0  # `stop` waits for a note that is being written
_JOIN_S = 10.0
_SAY_EVERY_S = 60.0
_SHARE = 4  # passes may take this fraction of a core, whatever the number of groups

Follow = Callable[[int], FollowReport]


class GroupsThread:
    """Makes a pass every ``interval_s``.

    :param connect: yields the function that makes one pass, on connections that its block closes.
    :param right: that the passes use.
    :param tell: receives what is to stand in the job's status.
    """

    def __init__(
        self, connect: Callable[[], Any], right: Right, interval_s: float, tell: Callable[[dict[str, Any]], None]
    ) -> None:
        self._connect, self._right, self._interval_s, self._tell = connect, right, interval_s, tell
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="groups", daemon=True)
        self._said, self._said_at = (0, ""), 0.0

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End. When this returns, no position is being set, and none will be.

        It waits for what is being written, not for a cluster that does not answer: what the thread reads after this has
        no effect any more.
        """
        self._stop.set()
        self._right.end()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._connect() as follow:
                    self._follow(follow)
            except Stopped:
                return
            except Exception as e:  # a mistake of ours: the copy goes on, and the groups on new connections
                self._report_failure(e)
                self._stop.wait(self._interval_s)

    def _follow(self, follow: Follow) -> None:
        while not self._stop.is_set():
            begun, busy = time.monotonic(), time.thread_time()
            try:
                report = follow(int(time.time() * 1000))
                self._report(report.to_dict(), f"groups: {report}", logging.INFO)
            except Stopped:
                raise
            except MirrorError as e:  # not on new connections: these still know which note was sent and not answered
                self._report_failure(e)
            left_s = begun + self._interval_s - time.monotonic()
            self._stop.wait(max(left_s, (_SHARE - 1) * (time.thread_time() - busy)))

    def _report_failure(self, error: Exception) -> None:
        self._report({"error": str(error)[:1000]}, f"groups don't follow now: {error}", logging.WARNING)

    def _report(self, found: dict[str, Any], line: str, level: int) -> None:
        now, said = time.monotonic(), (level, line)
        # What stays the same is said once, and what changes with every pass not each time.
        if said != self._said and (level != self._said[0] or now - self._said_at > _SAY_EVERY_S):
            self._said, self._said_at = said, now
            log.log(level, "%s", line)
        try:
            self._tell({"at": time.time(), "error": None, **found})
        except OSError as e:  # a full disk
            log.warning("status.json not written: %s", e)


def groups_thread(job: CopyJob, held: HeldLease, status: StatusFile) -> GroupsThread:
    """Return the thread in which a job's groups follow.

    :param held: the job's lease; may be withdrawn and taken again meanwhile.
    """
    right, plan = Right(lambda: held.token), job.plan

    @contextmanager
    def connect() -> Iterator[Follow]:
        settings = load(job.source, "source"), load(job.target, "target")
        with ExitStack() as closing:
            source, target = (closing.enter_context(ClusterAdmin(one)) for one in settings)
            maps = closing.enter_context(OffsetMaps(plan, *settings))
            state = state_of(target, notes.prefix(plan.mirror.name), patience_s=_STATE_PATIENCE_S)
            yield Follower(plan, source, target, maps.to_target, state, Ledger(target), right).follow

    return GroupsThread(connect, right, job.mirror.group_interval_s, lambda found: status.update(groups=found))
