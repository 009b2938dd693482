"""The writer lease as a job's driver holds it: taken, renewed in the background, withdrawn from tasks, taken back.

Tasks write under a token of it. What a driver knows of who may still write is a point in time: ``safe_at``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_mirror.config import load
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.errors import MissingRight, WritingEnded
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import Fenced

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5  # whether the lease is to be short


def wait_until_safe(held: HeldLease, status: StatusFile, stopping: threading.Event | None = None) -> None:
    """Wait until tasks that nobody has heard of must have noticed that their lease is lost."""
    pause_s = held.safe_at - held.clock()
    if pause_s > 0:
        status.update("waiting for earlier writers to stop")
        log.info("waiting %.1f s: earlier tasks of this mirror may still be writing", pause_s)
        (stopping or threading.Event()).wait(pause_s)


class HeldLease:
    """The writer lease as held by a job's driver, and what is known of who writes under it.

    :param wants_short: says whether it is to be short (:func:`.lease.shorten`); its keeper sees to that.
    :param clock: monotonic, in seconds.
    :ivar token: the lease in the form that is sent to tasks.
    :ivar safe_at: by the clock, from when on nobody writes who began before; infinite while tasks may, under this token.
    """

    def __init__(
        self, target: WireCluster, mirror: str, wants_short: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._target, self._mirror, self.clock = target, mirror, clock
        self.token = lease.take(target, mirror)
        self.safe_at = clock() + self.token.wait_s
        self.wants_short = wants_short
        self._lock, self._half = threading.Lock(), lease.Half()

    @property
    def is_safe(self) -> bool:
        """Whether nobody writes who began before."""
        return self.clock() >= self.safe_at

    @property
    def is_in_use(self) -> bool:
        """Whether tasks may write under the token."""
        return self.safe_at == float("inf")

    def begin(self) -> LeaseToken:
        """Return the token for tasks that begin now."""
        with self._lock:
            self.safe_at = float("inf")
            return self.token

    def all_reported(self) -> None:
        """Note that every task that began under the lease has ended: nobody needs to wait for it."""
        with self._lock:
            self.safe_at = self.clock()

    def withdraw(self) -> None:
        """Withdraw the lease, so that every task stops. Those that can't be heard have in :data:`lease.HANDOVER_S`.

        :raises Fenced: another job has taken it, so that they stop as well.
        """
        token = self.token
        try:
            token = lease.withdraw(self._target, token, self._half)
        except Fenced:
            self._lose(token)
            raise
        self._lose(token)

    def _lose(self, token: LeaseToken) -> None:
        with self._lock:
            self.token, self.safe_at = token, min(self.safe_at, self.clock() + lease.HANDOVER_S)
            self._half = lease.Half()

    def require_wanted(self) -> None:
        """Return unless the lease was taken to end all writing. :raises WritingEnded: it was."""
        if lease.is_writing_ended(self._target, self._mirror):
            raise WritingEnded(self._mirror)

    def is_forgotten(self) -> bool:
        """Return whether the coordinator has forgotten the lease, so that no other job has it."""
        return lease.is_forgotten(self._target, self._mirror)

    def take_back(self, pause: Callable[[float], object]) -> None:
        """Take the lease back from another job. When this returns, and only then, it is held, and writing is safe.

        :param pause: waits so many seconds; what it raises leaves the lease unused.
        :raises WritingEnded: it was taken for good. :raises TryAgain: see :func:`.lease.take`.
        """
        self.require_wanted()
        token = lease.take(self._target, self._mirror)
        wait_s = lease.HANDOVER_S if token.is_first else token.wait_s
        self.safe_at = max(self.safe_at, self.clock() + wait_s)
        pause(wait_s)
        self.token, self._half = token, lease.Half()  # not before: what follows the data would write at once

    def release(self) -> None:
        """Release the lease, unless a task may still write: then the next job has to wait for it."""
        if self.is_safe:
            lease.release(self._target, self.token)
        else:
            log.info("the writer lease stays held: a task may still write, and the next job waits until that is over")


@contextmanager
def writer_lease(
    reference: str, mirror: str, wants_short: Callable[[], bool] = lambda: False
) -> Iterator[HeldLease]:  # fmt: skip
    """Take the writer lease, renew it, and release it if the block ends without an exception and all tasks reported.

    After an exception it stays held: tasks of the failed Spark job may still be writing, and the next job waits for
    them.

    :param wants_short: see :class:`HeldLease`.
    """
    with WireCluster(load(reference, "target")) as target:
        held = HeldLease(target, mirror, wants_short, time.monotonic)
        if held.token.is_first:
            with ClusterAdmin(load(reference, "target")) as admin:
                if _renew_every_s(admin) < lease.RENEW_EVERY_S:  # it may have forgotten who held it a moment ago
                    held.safe_at = held.clock() + lease.HANDOVER_S
        with _kept(held, reference):
            yield held
        held.release()


@contextmanager
def _kept(held: HeldLease, reference: str) -> Iterator[None]:
    """Renew a lease in the background while the block runs."""
    ended = threading.Event()
    thread = threading.Thread(target=_Keeper(held, reference).keep, args=[ended], name="lease-keeper", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class _Keeper:
    """Renews a lease, and makes it short while that is wanted: in one thread, as :func:`.lease.shorten` requires."""

    def __init__(self, held: HeldLease, reference: str) -> None:
        self._held, self._reference = held, reference
        self._short: LeaseToken | None = None  # what was made short last
        self._every_s = 0.0  # how often it is renewed; 0: unknown
        self._due = self._change_due = float("-inf")

    def keep(self, ended: threading.Event) -> None:
        """Keep the lease until the job has ended."""
        while True:
            wanted, now = self._held.token if self._held.wants_short() else None, self._held.clock()
            if wanted != self._short and now >= self._change_due:
                self._change(wanted)
            elif now >= self._due:
                self._renew()
            if ended.wait(max(0.0, min(_LOOK_EVERY_S, self._due - self._held.clock()))):
                return

    def _renew(self) -> None:
        try:
            with ClusterAdmin(load(self._reference, "target")) as target:  # separate: connections belong to one thread
                if self._due > 0:  # also where a broker that is away has not told yet how often
                    lease.renew(target.wire, self._held.token)
                pause_s = self._every_s = self._every_s or _renew_every_s(target)
        except Fenced as e:
            pause_s = self._every_s or lease.CONFIRM_EVERY_S
            log.info("lease not renewed: %s", e)  # just withdrawn, or taken over: the tasks notice that
        except Exception as e:  # any error: without this thread the coordinator forgets the lease after a week
            pause_s = min(lease.RENEW_AGAIN_S, self._every_s or lease.CONFIRM_EVERY_S)
            log.warning("lease not renewed, next try in %.0f s: %s", pause_s, e)
        self._due = self._held.clock() + pause_s

    def _change(self, wanted: LeaseToken | None) -> None:
        short = wanted is not None
        try:
            with ClusterAdmin(load(self._reference, "target")) as target:
                lease.shorten(target.wire, wanted or self._held.token, short)
        except Fenced as e:  # of no use any more: whoever took it, or withdrew it, has another mark
            log.info("the lease is not made %s: %s", "short" if short else "longer", e)
        except Exception as e:  # any error: the cutover waits as long as for a lease that is not short
            self._change_due = self._held.clock() + lease.CONFIRM_EVERY_S
            log.warning("the lease is not made %s, tried again: %s", "short" if short else "longer", e)
            return
        else:
            log.info("the lease is %s", "short: a cutover runs" if short else "as long as before: no cutover runs now")
        self._short = wanted


def _renew_every_s(target: ClusterAdmin) -> float:
    """Return how often a lease has to be renewed: three times within what the target's coordinators remember it for.

    Each broker has a file of its own, and any of them may be the coordinator tomorrow: the shortest counts.
    """
    try:
        told = [one.get("transactional.id.expiration.ms") for one in target.broker_configs().values()]
    except MissingRight:
        told = [None]
    known_s = (lease.RENEW_UNKNOWN_S if e is None or e.value is None else int(e.value) / 3000 for e in told)
    return min([lease.RENEW_EVERY_S, *known_s])
