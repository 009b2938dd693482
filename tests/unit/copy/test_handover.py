"""Whether the last owner of a transactional id must be waited for."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mirror.copy.writer import handover
from airflow_mirror.wire.transactions import TransactionDescription

RELEASED, HELD = handover.RELEASED_MS, handover.HELD_MS


class Client:
    """An id as the coordinator describes it, and what the next owner is given."""

    def __init__(self, before: TransactionDescription | None, given: tuple[int, int]) -> None:
        self.before, self.given = before, given

    def describe(self) -> TransactionDescription | None:
        return self.before

    def init(self, timeout_ms: int) -> tuple[int, int]:
        assert timeout_ms == HELD
        return self.given


@pytest.mark.parametrize(
    ("before", "given", "given_back"),
    [
        (None, (40, 0), True),
        (None, (40, 1), False),  # somebody took an id that nobody knew, between our two questions
        (TransactionDescription(40, 6, "Empty", RELEASED), (40, 7), True),
        (TransactionDescription(40, 6, "Empty", HELD), (40, 7), False),
        (TransactionDescription(40, 6, "Empty", RELEASED), (40, 8), False),  # here, too
        (TransactionDescription(40, 6, "Empty", RELEASED), (41, 0), False),
    ],
)
def test_only_the_next_owner_after_release_need_not_wait(
    before: TransactionDescription | None, given: tuple[int, int], given_back: bool
) -> None:
    client: Any = Client(before, given)
    taken = handover.take_over(client)
    assert (taken.producer_id, taken.epoch, taken.given_back) == (*given, given_back)
