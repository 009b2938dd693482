"""The writer lease: at most one active job per Mirror, from any machine, without a lock service.

The lease is a transactional id at the target's coordinator. A starting job calls InitProducerId, which gives it a new
producer epoch, and stores that epoch as the id's transaction timeout: the *mark*. Producer id and mark identify one
acquisition of the lease, even if the epoch advances later. Tasks confirm the lease every few seconds
(DescribeTransactions) and write only while the last confirmation is fresh. A job that ends cleanly releases the lease;
after any other end a new job waits until every old task must have stopped (`handover`). A cutover takes the lease to end
all writing. Its marks have a range of their own, so any client can tell that no job holds the lease, even if the cutover
was killed before it recorded that it took it (ADR 14). While a cutover runs, the lease is *short*: held under a second
mark, with which a task stops sooner, so that the cutover waits for less (ADR 55).

Writing may safely resume after a pause of any length. Only the age of the last confirmed *request* permits a write, so
the first write after a pause follows a response to a request sent after that pause. If another job had taken the lease
meanwhile, the mark would differ permanently: a mark encodes the epoch of its acquisition, which no other acquisition of
that producer id has, and only a client that knows the current epoch can write the current mark again. An unreachable
coordinator pauses the writer; a different mark ends it.

A coordinator forgets an id that is idle for a week (transactional.id.expiration.ms; clusters may say less), so the driver
renews its lease three times within that.
Normally the renewal repeats the request that led to the current epoch (KIP-360): the coordinator returns the same
response and persists it again. The coordinator keeps the previous epoch only in memory, however. After a restart or a
move of the coordinator it rejects the repeated request, and the renewal then advances the epoch by one under the same
mark. Tasks notice nothing.

The lease can't stop a request that a frozen process has already handed to its kernel. Contiguous sequences cover that
case for records (`identity`), and the guard covers it for markers (`padding`).
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mirror.common.policy import lease_id
from airflow_mirror.copy.writer import handover
from airflow_mirror.errors import LeaseLost
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import Fenced
from airflow_mirror.wire.transactions import TransactionClient, TransactionDescription

# Three questions fit into VALID_S: one answer may be lost, or late, and no task pauses for it.
CONFIRM_EVERY_S = 2.0
RENEW_EVERY_S = 600.0  # at most
RENEW_UNKNOWN_S = 60.0  # where the target does not tell when it forgets
RENEW_AGAIN_S = 30.0  # after a renewal that failed
VALID_S = 6.0  # a task writes for at most this long after it sent its last confirmed request
# The second more is for bytes that went to the kernel at the last moment at which a task was allowed to write.
HANDOVER_S = VALID_S + 1.0  # how long a new job waits if the old one may still be writing
SHORT_CONFIRM_EVERY_S = 0.25
SHORT_VALID_S = 1.0
SHORT_HANDOVER_S = SHORT_VALID_S + 1.0
# The ranges of the timeout never meet: below are 60,000 (held, or a taking that was cut off) and 61,000 (released),
# then the marks of jobs, one for each epoch, then the same ones of leases that are short, then the marks of those who end
# all writing.
_FIRST_MARK_MS = handover.RELEASED_MS + 1
# The last epoch of a producer id is 32,766 (TransactionMetadata.isEpochExhausted). After that the coordinator assigns
# another producer id, and tasks would no longer recognise their lease. An acquisition from _WORN_EPOCH on therefore uses
# up the remaining epochs at once (about a second per thousand). So a held lease has at least the difference left for
# renewals: each coordinator restart costs one.
_WORN_EPOCH, _LAST_EPOCH = 31_000, 32_766
_SHORT_BY_MS = _LAST_EPOCH + 2  # from the mark of an acquisition to the one that it has while it is short
_FIRST_END_MS = _FIRST_MARK_MS + 2 * _SHORT_BY_MS  # of acquisitions that end all writing
_SPARED_EPOCHS = 500  # for renewals: a lease with fewer left is not made short
LONGEST_MARK_MS = _FIRST_END_MS + _LAST_EPOCH  # transaction.max.timeout.ms must be at least this


@dataclass(frozen=True, kw_only=True)
class LeaseToken:
    """A held lease, in the form that is sent to tasks.

    :param epoch: producer epoch at acquisition.
    :param mark_ms: transaction timeout that identifies this acquisition.
    :param wait_s: seconds after acquisition during which nothing may be written.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    mark_ms: int
    wait_s: float

    @property
    def is_first(self) -> bool:
        """Whether the coordinator did not know the id, or had forgotten it."""
        return self.epoch == 1

    @property
    def short_mark_ms(self) -> int:
        """The transaction timeout that identifies this acquisition while the lease is short."""
        return self.mark_ms + _SHORT_BY_MS

    def is_held(self, seen: TransactionDescription) -> bool:
        """Return whether the coordinator's description names this lease."""
        return seen.producer_id == self.producer_id and seen.timeout_ms in (self.mark_ms, self.short_mark_ms)

    def is_short(self, seen: TransactionDescription) -> bool:
        """Return whether the coordinator's description names this lease, and says that it is short."""
        return (seen.producer_id, seen.timeout_ms) == (self.producer_id, self.short_mark_ms)

    def loss(self, seen: TransactionDescription | None) -> LeaseLost | None:
        """Return why the lease is lost by the coordinator's description; None: it is held."""
        if seen is None:
            return LeaseLost(self.transactional_id, self.epoch, None)
        return None if self.is_held(seen) else LeaseLost(self.transactional_id, self.epoch, f"epoch {seen.epoch}")


def take(
    target: WireCluster, mirror: str, *, to_end: bool = False, short: TransactionDescription | None = None
) -> LeaseToken:  # fmt: skip
    """Take the lease of ``mirror`` over from its current holder.

    :param to_end: take it to end the writing of others, not to write; :func:`is_anybody_writing` then returns False, and
        the wait is never left out.
    :param short: as :func:`seen_short` has returned it at least :data:`HANDOVER_S` ago: if nothing has changed since, the
        wait is :data:`SHORT_HANDOVER_S`.
    :raises TryAgain: the coordinator can't be reached; a typed error if the principal lacks WRITE on the id.
    :raises Fenced: another job took the lease at the same moment.
    """
    client = TransactionClient(target, lease_id(mirror))
    # Two requests. This one compares with nothing: it fences whoever holds the lease. A lost answer is repeated and
    # takes one epoch more, by which `handover` knows that it can't be sure, so that we wait. Who dies behind it leaves
    # 60,000 ms, which no task can confirm: the old ones stop, `is_anybody_writing` says no, and the next job to take
    # the lease waits, because nothing says "released".
    # From a process that was frozen right before its bytes it comes late, and takes the lease from whoever has it by
    # then. So who holds one looks once more whether the topics are still its own (`require_still_ours`).
    taken = handover.take_over(client)
    producer_id, epoch = taken.producer_id, taken.epoch
    # Each of these compares with the epoch before it: if another job takes the lease meanwhile, this one ends as
    # Fenced, without a mark. Behind 32,766 comes another producer id with epoch 0, which ends the loop. A death in here
    # leaves what one behind the first request does.
    while epoch >= _WORN_EPOCH:
        producer_id, epoch = client.init(handover.HELD_MS, producer_id, epoch)
    if to_end:  # what opens a target believes no job that its tasks have ended
        # The same epoch and mark as then, and ours is the next one: the lease was short all the time between. A task that
        # writes now does so by an answer from behind the first look, so it has read that, and writes for a second more.
        was_short = short is not None and taken.before == short and taken.follows
        return _mark(client, producer_id, epoch, SHORT_HANDOVER_S if was_short else HANDOVER_S, _FIRST_END_MS)
    return _mark(client, producer_id, epoch, 0.0 if taken.given_back else HANDOVER_S)


def renew(target: WireCluster, token: LeaseToken) -> None:
    """Keep the coordinator from expiring the lease. Tasks notice nothing.

    :raises Fenced: the lease was taken over or forgotten, or its epochs are used up.
    """
    client = TransactionClient(target, token.transactional_id)
    # Between this look and the requests below another job may take the lease. That moves the epoch on by two, and
    # leaves neither ours nor the one before it as the current or the previous one: both requests are refused, however
    # late they arrive. Dying anywhere in here changes nothing either, because tasks know the mark and not the epoch.
    seen = _seen(client, token)
    epoch = seen.epoch
    if epoch > 0:
        try:
            # Answered with the present epoch, and written to the coordinator's log again, which is what puts its expiry
            # off. Under the mark that it has: a short lease stays short, since whoever makes it longer takes an epoch.
            client.init(seen.timeout_ms, token.producer_id, epoch - 1)
            return
        except Fenced:
            pass  # a restarted coordinator no longer knows that this led to the current epoch
    # Rather no renewal than another producer id, by which all tasks would take their lease for lost: they go on until
    # the coordinator forgets the id, days later.
    if epoch >= _LAST_EPOCH:
        raise _gone(token)
    # If the answer is lost, and the coordinator too, the repetition is refused although the first one counts: the
    # caller logs that, and its next renewal reads the epoch again.
    client.init(seen.timeout_ms, token.producer_id, epoch)


def shorten(target: WireCluster, token: LeaseToken, short: bool) -> None:
    """Make a lease short, or as long as before: see the module. Only its holder may, and in the thread that renews it.

    A no-op if it is so already, or has no epochs left for that. Tasks go on; each learns it by its next answer.

    :raises Fenced: the lease was taken over or forgotten.
    """
    client = TransactionClient(target, token.transactional_id)
    seen = _seen(client, token)
    if token.is_short(seen) == short or seen.epoch >= _LAST_EPOCH - _SPARED_EPOCHS:
        return
    # One epoch for each change, so that who sees the same epoch twice knows that nothing lies between. Taken over, or
    # withdrawn, behind our look: two epochs further, and refused. Amid a withdrawal it may be applied as a repetition of
    # its first request, and the second one replaces it, from which on nobody confirms. Dies before or behind it: the
    # lease stays as it is, and the next holder has a mark of its own.
    client.init(token.short_mark_ms if short else token.mark_ms, token.producer_id, seen.epoch)


@dataclass
class Half:
    """A withdrawal's first request, for who calls again because the second one had no answer.

    :ivar at: producer id and epoch that it leads to; None: there was none.
    """

    at: tuple[int, int] | None = None


def withdraw(target: WireCluster, token: LeaseToken, half: Half | None = None) -> LeaseToken:
    """Take our own lease again, so that every task that holds ``token`` stops, wherever it runs.

    The lease stays held: a new job must not start before those tasks have ended.

    :param half: of an earlier call for this token, which got so far; it is completed.
    :raises Fenced: another job already holds the lease; the tasks stop for that reason.
    """
    client = TransactionClient(target, token.transactional_id)
    # Two epochs, as in `take`: a late renewal then carries an epoch that is neither the previous nor the current one.
    # From the first of them on no task confirms, since 60,000 ms is nobody's mark: six seconds later none writes. Dying
    # between the two is the same as in `take`; dying behind them leaves a mark without tasks, and the next job waits in
    # vain.
    half, seen = half or Half(), client.describe()
    # By comparison as ever: who takes the lease in this moment has made the same request, of which one is refused; and
    # of the next one, too.
    if seen is None or seen.timeout_ms != handover.HELD_MS or half.at != (seen.producer_id, seen.epoch):
        epoch = _ours(seen, token).epoch
        half.at = token.producer_id, epoch + 1  # before it, since its answer may be lost
        half.at = client.init(handover.HELD_MS, token.producer_id, epoch)
    return _mark(client, *half.at, 0.0)


def release(target: WireCluster, token: LeaseToken) -> None:
    """Release the lease after every task has ended, so that the next job starts without waiting.

    A no-op if another job has taken the lease over.
    """
    client = TransactionClient(target, token.transactional_id)
    try:
        epoch = _seen(client, token).epoch
    except Fenced:
        return  # a newer job holds it
    # Last of all: whoever takes the lease next believes it, and does not wait. Dying before it costs that one seven
    # seconds and nothing else. If somebody takes the lease behind our look, the comparison fails and theirs stays.
    handover.give_back(client, token.producer_id, epoch)


def is_anybody_writing(target: WireCluster, mirror: str) -> bool:
    """Return whether a job holds the lease, that is, whether one may write. A job that was killed still holds it.

    False if the lease was released or never taken, if a cutover took it, or if an acquisition was interrupted half way:
    no task can confirm the lease in those cases.
    """
    seen = TransactionClient(target, lease_id(mirror)).describe()
    # As it is now. A job may take it behind the answer: so who opens a target, or gives its topics up, takes the lease,
    # by a mark that no job has.
    return seen is not None and _FIRST_MARK_MS <= seen.timeout_ms < _FIRST_END_MS


def is_forgotten(target: WireCluster, mirror: str) -> bool:
    """Return whether the coordinator does not know the lease: nobody has taken it, or not since it was forgotten."""
    return TransactionClient(target, lease_id(mirror)).describe() is None


def is_writing_ended(target: WireCluster, mirror: str) -> bool:
    """Return whether the lease was taken to end all writing: by a cutover, or by who gave up the mirror's topics."""
    seen = TransactionClient(target, lease_id(mirror)).describe()
    return seen is not None and seen.timeout_ms >= _FIRST_END_MS


def seen_short(target: WireCluster, mirror: str) -> TransactionDescription | None:
    """Return what the coordinator knows of a job's lease that is short; None: it is not, or no job holds it."""
    seen = TransactionClient(target, lease_id(mirror)).describe()
    return seen if seen is not None and _FIRST_MARK_MS + _SHORT_BY_MS <= seen.timeout_ms < _FIRST_END_MS else None


def confirm(target: WireCluster, token: LeaseToken) -> None:
    """Return if the lease is ours: a job that takes it from now on must wait :data:`HANDOVER_S` before it writes.

    :raises LeaseLost: another job took the lease.
    """
    if (loss := token.loss(TransactionClient(target, token.transactional_id).describe())) is not None:
        raise loss


def _mark(
    client: TransactionClient, producer_id: int, epoch: int, wait_s: float, first_mark_ms: int = _FIRST_MARK_MS
) -> LeaseToken:
    """Advance the epoch and record it as the mark of a new acquisition."""
    # The last request of an acquisition. Before it no task can confirm a token, the old ones are fenced, and whoever
    # dies here leaves a lease under which nobody writes; the next job takes it, and waits. The mark has the epoch that
    # this request leads to, which is therefore computed beforehand. A lost answer is repeated and gets the same epoch;
    # if the coordinator died too, it is refused, and a mark stands of which nobody has the token: the next job waits for
    # nobody.
    mark_ms = first_mark_ms + epoch + 1
    producer_id, epoch = client.init(mark_ms, producer_id, epoch)
    return LeaseToken(
        transactional_id=client.transactional_id, producer_id=producer_id, epoch=epoch, mark_ms=mark_ms, wait_s=wait_s
    )


def _seen(client: TransactionClient, token: LeaseToken) -> TransactionDescription:
    """Return what the coordinator knows of a lease that is still ours. :raises Fenced: it is not."""
    return _ours(client.describe(), token)


def _ours(seen: TransactionDescription | None, token: LeaseToken) -> TransactionDescription:
    if seen is None or not token.is_held(seen):
        raise _gone(token)
    return seen


def _gone(token: LeaseToken) -> Fenced:
    return Fenced(f"writer lease {token.transactional_id!r}", ErrorCode.PRODUCER_FENCED, token.producer_id, token.epoch)
