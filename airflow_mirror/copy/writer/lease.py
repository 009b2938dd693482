"""The writer lease: one active job for each Mirror, from any machine, without a lock service.

The lease is a transactional id at the target's own coordinator. A starting job takes its next producer epoch
(InitProducerId), which nobody had before, and writes that epoch down beside it, as the id's transaction timeout: the
*mark*. Producer id and mark name one taking of the lease, whatever the epoch is later. Tasks confirm theirs every
couple of seconds (DescribeTransactions) and write only while the last confirmation is fresh. A job that ended cleanly
says so in the lease itself; after any other end a new job waits until every old task must have stopped (`handover`).
A cutover takes the lease to end all writing: its marks are of a range of their own, so that anybody sees that no job is
behind it, also when it was killed before it could write down what it took (ADR 14).

Why writing may continue after a pause of any length: nothing but the age of the last confirmed *question* allows a write,
so the first write after a pause comes after an answer to a question of that moment. Had another job taken the lease
meanwhile, the mark would be another one, for good: a mark states the epoch of its taking, which no other taking of that
producer id has, and only who knows the present epoch can write the present mark again. Only a coordinator that nobody
can ask makes a pause; one that names another mark makes an end.

A coordinator forgets an id that is idle for a week (transactional.id.expiration.ms), so the driver renews its lease. As
a rule it repeats the request that led to the present epoch (KIP-360): the coordinator gives the same answer and writes
it down again. But it keeps the epoch before the present one in memory only. Once it was restarted or moved the repeated
request is refused, and the renewal takes one epoch more, under the same mark: tasks notice nothing.

What the lease can't do: stop a request that a frozen process had already handed to its kernel. For records the continued
sequences do that (`identity`), for markers the guard (`padding`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.writer import handover
from airflow_mirror.errors import LeaseLost, LeaseUnconfirmed, TryAgain
from airflow_mirror.policy import lease_id
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import Fenced
from airflow_mirror.wire.transactions import TransactionClient, TransactionDescription

CONFIRM_EVERY_S = 2.0
RENEW_EVERY_S = 600.0
RENEW_AGAIN_S = 30.0  # after a renewal that failed
VALID_S = 6.0  # a task writes for at most this long after the send of its last confirmed question
HANDOVER_S = VALID_S + 1.0  # what a new job waits when the old one may still be writing
_UNCONFIRMED_S = 0.2
_FIRST_MARK_MS = handover.RELEASED_MS + 1
# The last epoch of a producer id is 32,766; the next one comes with another id, by which tasks would not know their lease
# any more. One that is taken so far up takes the rest of the epochs at once, a second for a thousand of them, so that a
# held lease has this many left for renewals: each restart of the coordinator costs one.
_WORN_EPOCH, _LAST_EPOCH = 31_000, 32_766
_FIRST_END_MS = _FIRST_MARK_MS + _LAST_EPOCH + 2  # of takings that end all writing
LONGEST_MARK_MS = _FIRST_END_MS + _LAST_EPOCH  # what transaction.max.timeout.ms must allow


@dataclass(frozen=True, kw_only=True)
class LeaseToken:
    """A held lease; travels to tasks.

    :param epoch: with which it was taken.
    :param mark_ms: the transaction timeout that names it.
    :param wait_s: how long after taking it nothing must be written yet.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    mark_ms: int
    wait_s: float

    def is_held(self, seen: TransactionDescription) -> bool:
        """Say whether the coordinator names this lease."""
        return (seen.producer_id, seen.timeout_ms) == (self.producer_id, self.mark_ms)


def take(target: WireCluster, mirror: str, *, to_end: bool = False) -> LeaseToken:
    """Take the lease of ``mirror`` from whoever holds it.

    :param to_end: not to write, but to end the writing of others: :func:`is_anybody_writing` says no from then on.
    :raises TryAgain: if the coordinator can't be reached; a typed error if the principal lacks WRITE on the id.
    :raises Fenced: another job took it in the same moment.
    """
    client = TransactionClient(target, lease_id(mirror))
    taken = handover.take_over(client)
    producer_id, epoch = taken.producer_id, taken.epoch
    while epoch >= _WORN_EPOCH:
        producer_id, epoch = client.init(handover.HELD_MS, producer_id, epoch)
    first_mark_ms = _FIRST_END_MS if to_end else _FIRST_MARK_MS
    return _mark(client, producer_id, epoch, 0.0 if taken.given_back else HANDOVER_S, first_mark_ms)


def renew(target: WireCluster, token: LeaseToken) -> None:
    """Keep the coordinator from forgetting the lease; tasks notice nothing.

    :raises Fenced: it was taken over, or forgotten, or its epochs are used up.
    """
    client = TransactionClient(target, token.transactional_id)
    epoch = _epoch_of(client, token)
    if epoch > 0:
        try:
            client.init(token.mark_ms, token.producer_id, epoch - 1)
            return
        except Fenced:
            pass  # the coordinator was restarted, and does not know any more that this led to the present epoch
    if epoch >= _LAST_EPOCH:
        raise _gone(token)
    client.init(token.mark_ms, token.producer_id, epoch)


def withdraw(target: WireCluster, token: LeaseToken) -> LeaseToken:
    """Take the own lease anew: every task that holds ``token`` stops by itself, wherever it runs.

    The lease stays held: a new job must not start before those tasks have ended.

    :raises Fenced: another job holds it already; the tasks stop for that reason.
    """
    client = TransactionClient(target, token.transactional_id)
    # Two epochs, as in `take`: a renewal that comes late compares with one that is neither the last nor the present.
    producer_id, epoch = client.init(handover.HELD_MS, token.producer_id, _epoch_of(client, token))
    return _mark(client, producer_id, epoch, 0.0)


def release(target: WireCluster, token: LeaseToken) -> None:
    """Give the lease back, once every task has ended: the next job starts without waiting for them.

    Nothing happens if it was taken over.
    """
    client = TransactionClient(target, token.transactional_id)
    try:
        epoch = _epoch_of(client, token)
    except Fenced:
        return  # a newer job holds it: nothing of ours is left to release
    handover.give_back(client, token.producer_id, epoch)


def is_anybody_writing(target: WireCluster, mirror: str) -> bool:
    """Say whether a job holds the lease. One that was killed holds it still: this is about who may, not about who does.

    False when it was given back or never taken, when a cutover took it, and when a taking was cut off half way: no task
    can confirm it then.
    """
    seen = TransactionClient(target, lease_id(mirror)).describe()
    return seen is not None and _FIRST_MARK_MS <= seen.timeout_ms < _FIRST_END_MS


def confirm(target: WireCluster, token: LeaseToken) -> None:
    """Return if the lease is ours: whoever takes it from now on must wait for :data:`HANDOVER_S` before it writes.

    :raises LeaseLost: somebody took it.
    """
    seen = TransactionClient(target, token.transactional_id).describe()
    if seen is None or not token.is_held(seen):
        what = "that the id is unknown" if seen is None else f"epoch {seen.epoch}"
        raise LeaseLost(token.transactional_id, token.epoch, what)


def _mark(
    client: TransactionClient, producer_id: int, epoch: int, wait_s: float, first_mark_ms: int = _FIRST_MARK_MS
) -> LeaseToken:
    """Write down that the next epoch is a lease of its own."""
    mark_ms = first_mark_ms + epoch + 1
    producer_id, epoch = client.init(mark_ms, producer_id, epoch)
    return LeaseToken(
        transactional_id=client.transactional_id, producer_id=producer_id, epoch=epoch, mark_ms=mark_ms, wait_s=wait_s
    )


def _epoch_of(client: TransactionClient, token: LeaseToken) -> int:
    """Return the present epoch of a lease that is still ours."""
    seen = client.describe()
    if seen is None or not token.is_held(seen):
        raise _gone(token)
    return seen.epoch


def _gone(token: LeaseToken) -> Fenced:
    return Fenced(f"writer lease {token.transactional_id!r}", ErrorCode.PRODUCER_FENCED, token.producer_id, token.epoch)


def _now_s() -> float:
    """Return seconds of a clock that counts on while the machine sleeps, as CLOCK_MONOTONIC does not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Confirmation:
    """What is known of a lease, and how old that is. No thread and no socket in here.

    :param clock: seconds; never goes back.
    """

    def __init__(self, token: LeaseToken, clock: Callable[[], float]) -> None:
        self._token, self._clock = token, clock
        self._begun, self._confirmed = clock(), float("-inf")
        self._lost: str | None = None
        self._cause: Exception | None = None  # why the last question has no answer

    @property
    def lost(self) -> bool:
        """True once the lease is known not to be ours any more."""
        return self._lost is not None

    @property
    def is_hurried(self) -> bool:
        """True while a coordinator is missed that may be back any moment. A refused login is not tried so often."""
        return isinstance(self._cause, TryAgain) and self._clock() - self._confirmed > CONFIRM_EVERY_S * 2

    def ask(self, describe: Callable[[], TransactionDescription | None]) -> None:
        """Ask the coordinator, and remember what it said."""
        asked = self._clock()  # before the question: the answer may have been true only then
        try:
            seen = describe()
        except Exception as e:  # of whatever kind: a thread that died of it would end a job that could go on
            self._cause = e
            return
        if seen is None:
            self._lost = "that the id is unknown"
        elif not self._token.is_held(seen):
            self._lost = f"epoch {seen.epoch}"
        else:
            self._confirmed, self._cause = asked, None

    def check_not_lost(self) -> None:
        """Return unless the lease is known not to be ours.

        :raises LeaseLost: another job holds it, or the coordinator has forgotten it. It won't be ours again.
        """
        if self._lost is not None:
            raise LeaseLost(self._token.transactional_id, self._token.epoch, self._lost)

    def check(self) -> None:
        """Return if the lease was ours at most :data:`VALID_S` ago.

        :raises LeaseLost: as above.
        :raises LeaseUnconfirmed: nobody knows. It may be confirmed again by the next call.
        """
        self.check_not_lost()
        confirmed, now = self._confirmed, self._clock()
        if now - confirmed > VALID_S:
            silent_s = now - max(confirmed, self._begun)
            raise LeaseUnconfirmed(self._token.transactional_id, self._token.epoch, silent_s, self._cause)


class LeaseWatch:
    """Confirms a lease in the background and answers :meth:`check` without a round trip.

    :raises LeaseLost: from the constructor, if the lease is known not to be ours to begin with.
    """

    def __init__(self, target: ClientConfig, token: LeaseToken) -> None:
        self._cluster = WireCluster(target, client_id=f"{token.transactional_id}-lease", timeout_s=CONFIRM_EVERY_S)
        self._client = TransactionClient(self._cluster, token.transactional_id)
        self._known = Confirmation(token, _now_s)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        try:
            self._known.ask(self._describe)
            self._known.check_not_lost()
            self._thread.start()
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Return if the lease is ours, never waits; errors as for :meth:`Confirmation.check`."""
        self._known.check()

    def close(self) -> None:
        """Stop confirming."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._cluster.close()

    def _run(self) -> None:
        while not self._known.lost and not self._stop.wait(_UNCONFIRMED_S if self._known.is_hurried else CONFIRM_EVERY_S):
            self._known.ask(self._describe)

    def _describe(self) -> TransactionDescription | None:
        try:
            return self._client.describe()
        except TryAgain:
            raise
        except Exception:
            self._cluster.close()  # whatever the connections are like now; the next question opens others
            raise
