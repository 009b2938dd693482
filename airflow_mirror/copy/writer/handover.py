"""Record in a transactional id's timeout whether its last owner still holds it or released it.

The coordinator stores a transaction timeout with each id, and DescribeTransactions returns it. These ids never carry data
transactions (only markers, which stay open for milliseconds), so the timeout is free to encode how the last owner
ended. See ``docs/adr/0002``.
"""

from __future__ import annotations

from typing import NamedTuple

from airflow_mirror.wire.errors import Fenced
from airflow_mirror.wire.transactions import TransactionClient, TransactionDescription

# It is kept with the id (TransactionMetadata) for as long as the coordinator knows that, across its restarts, and told by
# DescribeTransactions (KIP-664).
HELD_MS = 60_000
RELEASED_MS = 61_000  # every other timeout means held


class TakenOver(NamedTuple):
    """A transactional id that this process now owns.

    :param before: what was known of it right before; None: nothing.
    :param follows: nobody else has taken it between that look and our request.
    """

    producer_id: int
    epoch: int
    before: TransactionDescription | None
    follows: bool

    @property
    def given_back(self) -> bool:
        """Whether the previous owner released the id, or there was none, so that the new owner need not wait."""
        return self.follows and (self.before is None or self.before.timeout_ms == RELEASED_MS)


def take_over(client: TransactionClient) -> TakenOver:
    """Take over an id with InitProducerId, fencing its current owner."""
    before = client.describe()  # before the takeover, which replaces what the last owner has left
    # From here on the id says "held". Who dies behind this line, before any use of it, makes the next owner wait for
    # nobody.
    producer_id, epoch = client.init(HELD_MS)
    # Epoch 0 is the first one of an id that nobody had, or of one that the coordinator has forgotten, which its holder
    # could not confirm any more. Any other epoch was reached by somebody behind our question.
    if before is None:
        return TakenOver(producer_id, epoch, before, epoch == 0)
    # If the epoch did not advance by exactly one, another owner took the id between our two requests.
    follows = producer_id == before.producer_id and epoch == before.epoch + 1
    return TakenOver(producer_id, epoch, before, follows)


def give_back(client: TransactionClient, producer_id: int, epoch: int) -> None:
    """Release the id: this owner has nothing in flight. A no-op if another owner has taken the id over."""
    try:
        # It compares, so that a late one can't release what somebody else holds. Repeated after a lost answer it is
        # answered as at first, as long as the coordinator lives.
        client.init(RELEASED_MS, producer_id, epoch)
    except Fenced:
        # The id is somebody else's, or ours was released and the coordinator died with the answer: nothing is left to
        # give back.
        pass
