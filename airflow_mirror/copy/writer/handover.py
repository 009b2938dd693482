"""Held or given back: what the transaction timeout of a transactional id says about its last owner.

The coordinator keeps a timeout with each id and shows it to anybody. No data are ever written in transactions under
these ids (a marker's live for milliseconds), so the timeout is free to say how an owner ended. See ``docs/adr/0002``.
"""

from __future__ import annotations

from typing import NamedTuple

from airflow_mirror.wire.errors import Fenced
from airflow_mirror.wire.transactions import TransactionClient

HELD_MS = 60_000
RELEASED_MS = 61_000  # every other timeout means held


class TakenOver(NamedTuple):
    """A transactional id that is ours now.

    :param given_back: the owner before had given it back, or there was none: nobody needs to be waited for.
    """

    producer_id: int
    epoch: int
    given_back: bool


def take_over(client: TransactionClient) -> TakenOver:
    """Take an id over from whoever holds it."""
    before = client.describe()
    producer_id, epoch = client.init(HELD_MS)
    if before is None:
        return TakenOver(producer_id, epoch, epoch == 0)
    # Any other epoch than the next one: somebody took the id between our two questions.
    follows = producer_id == before.producer_id and epoch == before.epoch + 1
    return TakenOver(producer_id, epoch, before.timeout_ms == RELEASED_MS and follows)


def give_back(client: TransactionClient, producer_id: int, epoch: int) -> None:
    """Say that nothing of ours is under way; nothing happens if somebody else took the id meanwhile."""
    try:
        client.init(RELEASED_MS, producer_id, epoch)
    except Fenced:
        pass
