"""The writer lease: one active job for each Mirror, from any machine, without a lock service.

The lease is a transactional id at the target's own coordinator; its producer epoch is the fencing token. A starting job
takes the next epoch (InitProducerId). Tasks confirm theirs every couple of seconds (DescribeTransactions) and write
only while the last confirmation is fresh. A job that ended cleanly says so in the lease itself, by a transaction
timeout that means "released"; after any other end a new job waits until every old task must have stopped.

A coordinator forgets an id that is idle for a week (transactional.id.expiration.ms). So the driver renews its lease, but
without a new epoch: it repeats the request that led to the present one (KIP-360), and the coordinator gives the same
answer and writes it down again. Only comparing requests can be repeated, so a lease is taken by two of them: one takes it
from whoever holds it, the other compares.

What the lease can't do: stop a request that a frozen process had already handed to its kernel. For records the continued
sequences do that (`identity`), for markers the guard (`padding`).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.writer import identity
from airflow_mirror.errors import LeaseLost, TryAgain
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import Fenced
from airflow_mirror.wire.transactions import TransactionClient

CONFIRM_EVERY_S = 2.0
RENEW_EVERY_S = 600.0
VALID_S = 6.0  # a task writes for at most this long after the send of its last confirmed question
HANDOVER_S = VALID_S + 1.0  # what a new job waits when the old one may still be writing
PATIENCE_S = 120.0  # how long a task waits for a coordinator that can't be asked, without writing
_UNCONFIRMED_S = 0.2
_HELD_MS = 60_000
_RELEASED_MS = 61_000


@dataclass(frozen=True)
class LeaseToken:
    """A held lease; travels to tasks. ``wait_s``: how long after taking it nothing must be written yet."""

    transactional_id: str
    producer_id: int
    epoch: int
    wait_s: float


def take(target: WireCluster, mirror: str) -> LeaseToken:
    """Take the lease of ``mirror`` from whoever holds it.

    :raises TryAgain: if the coordinator can't be reached; a typed error if the principal lacks WRITE on the id.
    :raises Fenced: another job took it in the same moment.
    """
    client = TransactionClient(target, identity.lease_id(mirror))
    before = client.describe()
    producer_id, epoch = client.init(_HELD_MS)
    if before is None:
        clean = epoch == 0
    else:
        # Any other epoch than the next one: somebody took the lease between our two questions.
        follows = producer_id == before.producer_id and epoch == before.epoch + 1
        clean = before.timeout_ms == _RELEASED_MS and follows
    producer_id, epoch = client.init(_HELD_MS, producer_id, epoch)
    return LeaseToken(identity.lease_id(mirror), producer_id, epoch, 0.0 if clean else HANDOVER_S)


def renew(target: WireCluster, token: LeaseToken) -> None:
    """Keep the coordinator from forgetting the lease. Its epoch stays, and tasks notice nothing.

    :raises Fenced: it was taken over.
    """
    TransactionClient(target, token.transactional_id).init(_HELD_MS, token.producer_id, token.epoch - 1)


def withdraw(target: WireCluster, token: LeaseToken) -> LeaseToken:
    """Take the own lease anew: every task that holds ``token`` stops by itself, wherever it runs.

    The lease stays held: a new job must not start before those tasks have ended.

    :raises Fenced: another job holds it already; the tasks stop for that reason.
    """
    producer_id, epoch = TransactionClient(target, token.transactional_id).init(_HELD_MS, token.producer_id, token.epoch)
    return LeaseToken(token.transactional_id, producer_id, epoch, 0.0)


def release(target: WireCluster, token: LeaseToken) -> None:
    """Give the lease back, once every task has ended: the next job starts without waiting for them.

    Nothing happens if it was taken over.
    """
    try:
        TransactionClient(target, token.transactional_id).init(_RELEASED_MS, token.producer_id, token.epoch)
    except Fenced:
        pass  # a newer job holds it: nothing of ours is left to release


def holder(target: WireCluster, mirror: str) -> tuple[int, int] | None:
    """Return producer id and epoch of the job that holds the lease; None if it was released, or nobody ever took it.

    A job that was killed holds its lease still: this says who may be writing, not who is.
    """
    seen = TransactionClient(target, identity.lease_id(mirror)).describe()
    return None if seen is None or seen.timeout_ms == _RELEASED_MS else (seen.producer_id, seen.epoch)


def confirm(target: WireCluster, token: LeaseToken) -> None:
    """Return if the lease is ours: whoever takes it from now on must wait for :data:`HANDOVER_S` before it writes.

    :raises LeaseLost: somebody took it.
    """
    seen = TransactionClient(target, token.transactional_id).describe()
    if seen is None or (seen.producer_id, seen.epoch) != (token.producer_id, token.epoch):
        what = "that the id is unknown" if seen is None else f"epoch {seen.epoch}"
        raise LeaseLost(token.transactional_id, token.epoch, what)


class LeaseWatch:
    """Confirms a lease in the background and answers :meth:`check` without a round trip.

    :raises LeaseLost: from the constructor, if the lease is not ours to begin with.
    """

    def __init__(self, target: ClientConfig, token: LeaseToken) -> None:
        self._token = token
        self._cluster = WireCluster(target, client_id=f"{token.transactional_id}-lease", timeout_s=CONFIRM_EVERY_S)
        self._client = TransactionClient(self._cluster, token.transactional_id)
        self._lost: str | None = None
        self._confirmed = float("-inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        try:
            self._confirm()
            self._thread.start()
            self.check()
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Return if the lease was ours at most :data:`VALID_S` ago. Waits while the coordinator can't be asked.

        A broker that dies is replaced, or back, within seconds; until then nothing is written, and that is all that the
        lease demands. Whether somebody else took it meanwhile is the first thing that the coordinator tells.

        :raises LeaseLost: somebody took it, or the coordinator said nothing for :data:`PATIENCE_S`.
        """
        begun = time.monotonic()
        while True:
            if self._lost is not None:
                raise LeaseLost(self._token.transactional_id, self._token.epoch, self._lost)
            now = time.monotonic()
            if now - self._confirmed <= VALID_S:
                return
            if now - begun > PATIENCE_S:
                raise LeaseLost(self._token.transactional_id, self._token.epoch, f"nothing for {now - begun:.0f} s")
            time.sleep(_UNCONFIRMED_S)

    def close(self) -> None:
        """Stop confirming."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._cluster.close()

    def _run(self) -> None:
        while self._lost is None and not self._stop.wait(self._pause_s()):
            self._confirm()

    def _pause_s(self) -> float:
        late = time.monotonic() - self._confirmed > CONFIRM_EVERY_S * 2
        return _UNCONFIRMED_S if late else CONFIRM_EVERY_S

    def _confirm(self) -> None:
        asked = time.monotonic()  # before the question: the answer may have been true only then
        try:
            seen = self._client.describe()
        except TryAgain:
            return  # not an answer; `check` fails once the last one is too old
        if seen is None:
            self._lost = "that the id is unknown"
        elif (seen.producer_id, seen.epoch) != (self._token.producer_id, self._token.epoch):
            self._lost = f"epoch {seen.epoch}"
        else:
            self._confirmed = asked
