"""A lease that is short while a cutover runs: who makes it so, what tasks do by it, and how long a taking waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_mirror.common.policy import lease_id
from airflow_mirror.copy.writer import handover, lease
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.copy.writer.lease_watch import Confirmation
from airflow_mirror.errors import LeaseLost, LeaseUnconfirmed, TryAgain
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import Fenced
from airflow_mirror.wire.transactions import TransactionClient, TransactionDescription
from tests.unit.coordinator import Coordinator, Entry

NAME = lease_id("m")


def seen(target: WireCluster) -> TransactionDescription:
    found = TransactionClient(target, NAME).describe()
    assert found is not None
    return found


def test_a_lease_becomes_short_and_long_again_and_stays_held(target: WireCluster) -> None:
    token = lease.take(target, "m")
    first = seen(target)
    lease.shorten(target, token, True)
    short = seen(target)
    assert token.is_held(short) and token.is_short(short) and lease.seen_short(target, "m") == short
    assert short.epoch == first.epoch + 1
    lease.shorten(target, token, True)
    assert seen(target) == short, "nothing to do"
    lease.shorten(target, token, False)
    assert (seen(target).timeout_ms, seen(target).epoch) == (first.timeout_ms, first.epoch + 2)
    assert lease.seen_short(target, "m") is None and token.is_held(seen(target))


def test_a_renewal_keeps_a_lease_short_also_behind_a_restart(coordinator: Coordinator, target: WireCluster) -> None:
    token = lease.take(target, "m")
    lease.shorten(target, token, True)
    before = seen(target)
    lease.renew(target, token)
    assert seen(target) == before
    coordinator.restart()
    lease.renew(target, token)
    assert token.is_short(seen(target)) and seen(target).epoch == before.epoch + 1


def test_a_short_lease_is_a_jobs_and_neither_its_marks_nor_those_who_end_writing_ever_meet(
    coordinator: Coordinator, target: WireCluster
) -> None:
    marks = set[int]()
    for epoch in (0, 17, 12_000, lease._WORN_EPOCH - 2):
        for to_end in (False, True):
            coordinator.ids[NAME] = Entry(7, epoch, handover.RELEASED_MS)
            token = lease.take(target, "m", to_end=to_end)
            marks.add(token.mark_ms)
            if not to_end:
                lease.shorten(target, token, True)
                assert lease.is_anybody_writing(target, "m") and not lease.is_writing_ended(target, "m")
                marks.add(seen(target).timeout_ms)
    assert len(marks) == 12 and max(marks) <= lease.LONGEST_MARK_MS
    assert lease.is_writing_ended(target, "m") and lease.seen_short(target, "m") is None


def test_a_lease_with_few_epochs_left_keeps_them_for_renewals(coordinator: Coordinator, target: WireCluster) -> None:
    token = LeaseToken(transactional_id=NAME, producer_id=7, epoch=2, mark_ms=61_003, wait_s=0.0)
    coordinator.ids[NAME] = Entry(7, lease._LAST_EPOCH - 10, token.mark_ms)
    lease.shorten(target, token, True)
    assert not token.is_short(seen(target))


def test_a_lease_that_was_lost_is_not_made_short(target: WireCluster) -> None:
    mine, theirs = lease.take(target, "m"), lease.take(target, "m")
    for short in (True, False):
        with pytest.raises(Fenced):
            lease.shorten(target, mine, short)
    assert theirs.is_held(seen(target))
    newer = lease.withdraw(target, theirs)
    lease.shorten(target, newer, True)
    with pytest.raises(Fenced):
        lease.shorten(target, theirs, False)
    assert newer.is_short(seen(target))


Change = Callable[[WireCluster, LeaseToken], object]


def longer_and_short(target: WireCluster, token: LeaseToken) -> None:
    lease.shorten(target, token, False)
    lease.shorten(target, token, True)


def withdrawn_and_short(target: WireCluster, token: LeaseToken) -> None:
    lease.shorten(target, lease.withdraw(target, token), True)


CHANGES: list[tuple[Change, float]] = [
    (lambda *_: None, lease.SHORT_HANDOVER_S),
    (lambda target, token: lease.renew(target, token), lease.SHORT_HANDOVER_S),
    (lambda target, token: lease.shorten(target, token, False), lease.HANDOVER_S),
    (longer_and_short, lease.HANDOVER_S),
    (withdrawn_and_short, lease.HANDOVER_S),
    (lambda target, _: lease.take(target, "m"), lease.HANDOVER_S),
]


@pytest.mark.parametrize(
    ("change", "wait_s"), CHANGES, ids=["nothing", "renewed", "longer", "longer, short", "withdrawn", "taken"]
)
def test_a_taking_waits_for_less_only_if_nothing_has_changed(
    target: WireCluster, change: Change, wait_s: float
) -> None:  # fmt: skip
    token = lease.take(target, "m")
    lease.shorten(target, token, True)
    before = lease.seen_short(target, "m")
    change(target, token)
    assert lease.take(target, "m", to_end=True, short=before).wait_s == wait_s


def test_a_taking_waits_for_all_of_it_if_the_lease_changed_behind_its_look(
    coordinator: Coordinator, target: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = lease.take(target, "m")
    lease.shorten(target, token, True)
    before = lease.seen_short(target, "m")
    describe = TransactionClient.describe

    def changes_behind(client: TransactionClient) -> TransactionDescription | None:
        found = describe(client)
        monkeypatch.setattr(TransactionClient, "describe", describe)
        with coordinator.cluster() as another:
            lease.shorten(another, token, False)
        return found

    monkeypatch.setattr(TransactionClient, "describe", changes_behind)
    assert lease.take(target, "m", to_end=True, short=before).wait_s == lease.HANDOVER_S


def test_a_taking_to_write_waits_for_all_of_it(target: WireCluster) -> None:
    token = lease.take(target, "m")
    lease.shorten(target, token, True)
    assert lease.take(target, "m", short=lease.seen_short(target, "m")).wait_s == lease.HANDOVER_S


def test_a_task_writes_for_a_second_behind_an_answer_that_says_short_and_asks_more_often() -> None:
    token, now = LeaseToken(transactional_id=NAME, producer_id=7, epoch=2, mark_ms=61_003, wait_s=0.0), 100.0
    known = Confirmation(token, lambda: now)
    long, short = (TransactionDescription(7, 2, "Empty", mark) for mark in (token.mark_ms, token.short_mark_ms))

    def silent() -> None:
        raise TryAgain("no broker")

    known.ask(lambda: long)
    assert known.ask_again_s == lease.CONFIRM_EVERY_S
    now += 5.9
    known.check()
    known.ask(lambda: short)
    assert known.ask_again_s == lease.SHORT_CONFIRM_EVERY_S
    now += 0.9
    known.check()
    known.ask(silent)
    now += 0.2
    with pytest.raises(LeaseUnconfirmed):
        known.check()
    known.ask(lambda: long)
    now += 5.9
    known.check()
    assert known.ask_again_s == lease.CONFIRM_EVERY_S
    known.ask(lambda: TransactionDescription(7, 4, "Empty", token.short_mark_ms + 1))
    with pytest.raises(LeaseLost):
        known.check()
