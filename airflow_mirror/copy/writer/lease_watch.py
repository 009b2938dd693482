"""How a task knows that the writer lease is its own: it asks the coordinator, and goes by the age of the answer.

Who takes a lease, and what that means, says :mod:`.lease`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.errors import LeaseLost, LeaseUnconfirmed, TryAgain
from airflow_mirror.kafka.permit import since_boot_s as _now_s
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.transactions import TransactionClient, TransactionDescription

_UNCONFIRMED_S = 0.2


class Confirmation:
    """What is known about a lease, and how old that knowledge is. Uses no thread and no socket.

    :param clock: monotonic, in seconds.
    """

    def __init__(self, token: LeaseToken, clock: Callable[[], float]) -> None:
        self._token, self._clock = token, clock
        self._begun, self._confirmed = clock(), float("-inf")
        self._until, self._is_short = float("-inf"), False
        self._lost: LeaseLost | None = None
        self._cause: Exception | None = None  # why the last request got no response

    @property
    def lost(self) -> bool:
        """True once the lease is known to be lost."""
        return self._lost is not None

    @property
    def ask_again_s(self) -> float:
        """After how many seconds the coordinator is to be asked again: sooner if it was away, and may be back."""
        # A rejected login is retried less often.
        is_away = isinstance(self._cause, TryAgain) and self._clock() - self._confirmed > lease.CONFIRM_EVERY_S * 2
        every_s = lease.SHORT_CONFIRM_EVERY_S if self._is_short else lease.CONFIRM_EVERY_S
        return min(_UNCONFIRMED_S, every_s) if is_away else every_s

    def ask(self, describe: Callable[[], TransactionDescription | None]) -> None:
        """Query the coordinator and remember the result."""
        asked = self._clock()  # before the request: the response may have been true only then
        try:
            seen = describe()
        except Exception as e:  # any error: if the thread died of it, a job that could continue would end
            self._cause = e
            return
        # Once lost is lost for good: a coordinator that is cut off from its cluster may go on to describe the old
        # owner.
        self._lost = self._lost or self._token.loss(seen)
        # Other threads read these without a lock. In between they see a loss, which is final, or an older confirmation.
        if self._lost is None:
            self._is_short = seen is not None and self._token.is_short(seen)
            # One value, so that no other thread has this answer's time with that one's length.
            self._until = asked + (lease.SHORT_VALID_S if self._is_short else lease.VALID_S)
            self._confirmed, self._cause = asked, None

    def check_not_lost(self) -> None:
        """Return unless the lease is known to be lost.

        :raises LeaseLost: another job holds the lease, or the coordinator has forgotten it. Both are permanent.
        """
        if self._lost is not None:
            raise self._lost

    def check(self) -> None:
        """Return if the lease was ours at most :data:`.lease.VALID_S` ago, :data:`.lease.SHORT_VALID_S` if it is short.

        :raises LeaseLost: see :meth:`check_not_lost`.
        :raises LeaseUnconfirmed: the holder is unknown. A later call may succeed.
        """
        self.check_not_lost()
        # In this order: if the thread stops between the two, the confirmation looks older than it is, never fresher.
        until, now = self._until, self._clock()
        if now > until:
            silent_s = now - max(self._confirmed, self._begun)
            raise LeaseUnconfirmed(self._token.transactional_id, self._token.epoch, silent_s, self._cause)


class LeaseProof:
    """Confirms a lease when its thread asks for it: for one that writes now and then, on connections of its own."""

    def __init__(self, target: WireCluster, token: LeaseToken) -> None:
        self.token, self._cluster = token, target
        self._client = TransactionClient(target, token.transactional_id)
        self._known = Confirmation(token, _now_s)

    def confirm(self) -> None:
        """Ask the coordinator; errors as for :meth:`check`."""
        self._known.ask(lambda: _described(self._client, self._cluster))
        self._known.check()

    def check(self) -> None:
        """Return if the lease is ours, without asking; errors as for :meth:`Confirmation.check`."""
        self._known.check()


class LeaseWatch:
    """Confirms a lease in the background, so that :meth:`check` needs no round trip.

    :raises LeaseLost: from the constructor, if the lease is already lost.
    """

    def __init__(self, target: ClientConfig, token: LeaseToken) -> None:
        # Connections of its own: behind a batch that a slow target takes, a question would come too late. It gives up
        # after two seconds, so that another question follows before lease.VALID_S is over.
        self._cluster = WireCluster(target, client_id=f"{token.transactional_id}-lease", timeout_s=lease.CONFIRM_EVERY_S)
        self._client = TransactionClient(self._cluster, token.transactional_id)
        self._known = Confirmation(token, _now_s)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        try:
            # Before the task has anything to write with: one that starts late, under a lease that is lost by now, ends
            # here. An answer that does not come is no loss: `check` then refuses each write until one does.
            self._known.ask(self._describe)
            self._known.check_not_lost()
            self._thread.start()
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Return if the lease is ours, without waiting; errors as for :meth:`Confirmation.check`."""
        self._known.check()

    def close(self) -> None:
        """Stop confirming."""
        # The thread before its connections, which are used by one thread. The lease itself stays as it is: only its
        # driver knows when the last task has ended, and gives it back (`release`).
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._cluster.close()

    def _run(self) -> None:
        # Frozen and thawed, other threads may come first: until this one has asked again `check` finds the answer too
        # old.
        while not self._known.lost and not self._stop.wait(self._known.ask_again_s):
            self._known.ask(self._describe)

    def _describe(self) -> TransactionDescription | None:
        return _described(self._client, self._cluster)


def _described(client: TransactionClient, cluster: WireCluster) -> TransactionDescription | None:
    try:
        return client.describe()
    except TryAgain:
        raise
    except Exception:
        cluster.close()  # the connections may be unusable; the next request opens new ones
        raise
