"""The writer lease: who holds it, what is a pause and what is the end."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from airflow_mirror.common.policy import lease_id
from airflow_mirror.copy.writer import handover, lease, lease_watch
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.copy.writer.lease_watch import Confirmation, LeaseProof, LeaseWatch
from airflow_mirror.errors import LeaseLost, LeaseUnconfirmed, TryAgain
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import Fenced
from airflow_mirror.wire.transactions import TransactionClient, TransactionDescription
from tests.unit.coordinator import LAST_EPOCH, Coordinator, Entry
from tests.unit.peer import HangUp
from tests.waiting import wait_until


def is_held(target: WireCluster, token: LeaseToken) -> bool:
    seen = TransactionClient(target, token.transactional_id).describe()
    return seen is not None and token.is_held(seen)


# --- taking, renewing, giving back ------------------------------------------------------------------------------------


def test_only_a_held_lease_is_taken_after_a_pause(target: WireCluster) -> None:
    """A fresh or released one is taken at once."""
    first = lease.take(target, "m")
    held = lease.take(target, "m")
    lease.release(target, first)  # not its to give back any more
    again = lease.take(target, "m")
    lease.release(target, again)
    released = lease.take(target, "m")
    assert [t.wait_s for t in (first, held, again, released)] == [0.0, lease.HANDOVER_S, lease.HANDOVER_S, 0.0]
    assert [is_held(target, t) for t in (first, held, again, released)] == [False, False, False, True]


@pytest.mark.parametrize("before", ["never taken", "released"])
def test_a_lease_that_ends_all_writing_is_never_taken_without_a_pause(target: WireCluster, before: str) -> None:
    """What a cutover opens must not depend on how well a job counted its tasks."""
    if before == "released":
        lease.release(target, lease.take(target, "m"))
    assert lease.take(target, "m", to_end=True).wait_s == lease.HANDOVER_S


def test_a_renewal_leaves_the_epoch_as_it_is(coordinator: Coordinator, target: WireCluster) -> None:
    token = lease.take(target, "m")
    for _ in range(3):
        lease.renew(target, token)
    assert is_held(target, token) and coordinator.ids[token.transactional_id].epoch == token.epoch


def test_a_lease_is_renewed_after_every_restart_of_its_coordinator(coordinator: Coordinator, target: WireCluster) -> None:
    """It forgets which request led to the present epoch, so each restart costs one."""
    token = lease.take(target, "m")
    for restarts in range(1, 60):
        coordinator.restart()
        for _ in range(2):
            lease.renew(target, token)
        assert is_held(target, token)
        assert coordinator.ids[token.transactional_id].epoch == token.epoch + restarts
    lease.release(target, token)
    assert lease.take(target, "m").wait_s == 0.0


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("by", ["another job", "its own driver", "a job that died in between"])
def test_late_renewal_cannot_undo_the_taking_of_a_lease(
    coordinator: Coordinator, target: WireCluster, by: str, restarted: bool
) -> None:
    """A renewal looked at the lease, and its requests arrive when it is taken already."""
    old = lease.take(target, "m")
    if restarted:
        coordinator.restart()
        lease.renew(target, old)
    epoch = coordinator.ids[old.transactional_id].epoch
    if by == "another job":
        new = lease.take(target, "m")
    elif by == "its own driver":
        new = lease.withdraw(target, old)
    else:
        handover.take_over(TransactionClient(target, lease_id("m")))
    for expected in (epoch - 1, epoch):
        with pytest.raises(Fenced):
            TransactionClient(target, old.transactional_id).init(old.mark_ms, old.producer_id, expected)
    assert not is_held(target, old)
    with pytest.raises(Fenced):
        lease.renew(target, old)
    assert by == "a job that died in between" or is_held(target, new)


@pytest.mark.repeats
def test_marks_of_all_takings_of_a_producer_id_differ(coordinator: Coordinator, target: WireCluster) -> None:
    rng, marks = random.Random(3), list[int]()
    for _ in range(200):
        token = lease.take(target, "m", to_end=rng.random() < 0.2)
        marks.append(token.mark_ms)
        for _ in range(rng.randrange(3)):
            coordinator.restart()
            lease.renew(target, token)
        if rng.random() < 0.3:
            marks.append(lease.withdraw(target, token).mark_ms)
    assert len(set(marks)) == len(marks)
    assert handover.HELD_MS not in marks and handover.RELEASED_MS not in marks


def test_a_lease_says_itself_whether_a_job_is_behind_it(target: WireCluster) -> None:
    """Nobody needs to remember what a cutover took: one that was killed in that moment could not."""
    assert not lease.is_anybody_writing(target, "m")
    job = lease.take(target, "m")
    assert lease.is_anybody_writing(target, "m")
    lease.renew(target, job)
    job = lease.withdraw(target, job)
    assert lease.is_anybody_writing(target, "m")
    cutover = lease.take(target, "m", to_end=True)
    assert cutover.wait_s == lease.HANDOVER_S and is_held(target, cutover) and not is_held(target, job)
    assert not lease.is_anybody_writing(target, "m")
    again = lease.take(target, "m")
    assert lease.is_anybody_writing(target, "m") and not is_held(target, cutover)
    handover.take_over(TransactionClient(target, lease_id("m")))  # a taking that was cut off
    assert not lease.is_anybody_writing(target, "m") and not is_held(target, again)
    lease.release(target, lease.take(target, "m"))
    assert not lease.is_anybody_writing(target, "m")


def test_job_marks_never_equal_cutover_marks_at_any_epoch(coordinator: Coordinator, target: WireCluster) -> None:
    name = lease_id("m")
    for epoch in (0, 17, lease._WORN_EPOCH - 2):
        coordinator.ids[name] = Entry(7, epoch, handover.RELEASED_MS)
        job = lease.take(target, "m")
        coordinator.ids[name] = Entry(7, epoch, handover.RELEASED_MS)
        end = lease.take(target, "m", to_end=True)
        assert (job.producer_id, job.epoch) == (end.producer_id, end.epoch)
        assert job.mark_ms < lease._FIRST_END_MS < end.mark_ms <= lease.LONGEST_MARK_MS


@pytest.mark.parametrize("epoch", [pytest.param(31_000, marks=pytest.mark.repeats), LAST_EPOCH - 1, LAST_EPOCH])
def test_nearly_worn_lease_is_taken_under_a_new_producer_id(
    coordinator: Coordinator, target: WireCluster, epoch: int
) -> None:
    """A lease is worn at the end of its epochs."""
    name = lease_id("m")
    coordinator.ids[name] = Entry(7, epoch, handover.RELEASED_MS)
    token = lease.take(target, "m")
    assert token.producer_id != 7 and token.epoch < 10 and is_held(target, token)
    coordinator.restart()
    lease.renew(target, token)
    assert is_held(target, token)


def test_lease_without_epochs_left_is_kept_but_not_renewed(coordinator: Coordinator, target: WireCluster) -> None:
    """A renewal would get another producer id."""
    token = lease.take(target, "m")
    coordinator.ids[token.transactional_id].epoch = LAST_EPOCH
    coordinator.restart()
    with pytest.raises(Fenced):
        lease.renew(target, token)
    assert is_held(target, token)


def test_lost_answer_at_the_end_of_a_taking_changes_nothing(coordinator: Coordinator, target: WireCluster) -> None:
    answer, lost = coordinator._init, list[bool]()

    def lose_one(request: object) -> object:
        said = answer(request)
        if len(lost) < 1 and getattr(request, "producer_epoch", -1) >= 0:
            lost.append(True)
            raise HangUp
        return said

    coordinator.answers[22] = lose_one
    token = lease.take(target, "m")
    assert lost and is_held(target, token) and token.epoch == 1


# --- confirming -------------------------------------------------------------------------------------------------------


class Script:
    """A clock and a coordinator for one thread: time passes only where the test says so."""

    def __init__(self, token: LeaseToken) -> None:
        self.now, self.token, self.holder = 0.0, token, token
        self.on_the_way: Callable[[], None] = lambda: None  # happens between the answer and its arrival
        self.to_s = self.back_s = 0.0
        self.error: Exception | None = None

    def clock(self) -> float:
        return self.now

    def describe(self) -> TransactionDescription | None:
        self.now += self.to_s
        if self.error is not None:
            raise self.error
        held = self.holder
        self.on_the_way()
        self.now += self.back_s
        return TransactionDescription(held.producer_id, held.epoch, "Empty", held.mark_ms)


def token(epoch: int) -> LeaseToken:
    return LeaseToken(transactional_id="m", producer_id=1, epoch=epoch, mark_ms=70_000 + epoch, wait_s=0.0)


@pytest.fixture
def script() -> Script:
    return Script(token(1))


@pytest.fixture
def known(script: Script) -> Confirmation:
    known = Confirmation(script.token, script.clock)
    known.ask(script.describe)
    return known


ERRORS = [TryAgain("no broker"), KeyError("epoch"), ValueError("no Kafka"), OSError(9, "bad"), AttributeError("none")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_unconfirmed_lease_is_a_pause_of_any_length(known: Confirmation, script: Script, error: Exception) -> None:
    script.error = error
    script.now += lease.VALID_S
    known.ask(script.describe)
    known.check()
    for _ in range(3):
        script.now += 100_000
        known.ask(script.describe)
        with pytest.raises(LeaseUnconfirmed, match=str(error.args[0])):
            known.check()
    script.error = None
    known.ask(script.describe)
    known.check()


def test_lease_taken_during_a_pause_is_lost_for_good(known: Confirmation, script: Script) -> None:
    script.error = TryAgain("no broker")
    script.now += 1_000
    known.ask(script.describe)
    script.error, script.holder = None, token(5)
    known.ask(script.describe)
    with pytest.raises(LeaseLost, match="epoch 5"):
        known.check()
    script.holder = script.token
    known.ask(script.describe)
    with pytest.raises(LeaseLost):
        known.check()


def test_an_answer_is_as_old_as_its_question(known: Confirmation, script: Script) -> None:
    script.now += 1_000
    script.back_s = lease.VALID_S + 0.1
    known.ask(script.describe)
    with pytest.raises(LeaseUnconfirmed, match="the answers arrive too late"):
        known.check()
    script.back_s = lease.VALID_S - 0.1
    known.ask(script.describe)
    known.check()


@pytest.mark.repeats
def test_an_old_task_never_writes_when_a_new_job_may() -> None:
    """Whatever is slow, silent or frozen: what it writes, it writes before the new job's first write."""
    rng, margins = random.Random(11), list[float]()
    for _ in range(300):
        script = Script(token(1))
        known = Confirmation(script.token, script.clock)
        taken_at = float("inf")

        def take(script: Script = script) -> None:
            nonlocal taken_at
            if rng.random() < 0.02 and taken_at == float("inf"):
                script.holder, taken_at = token(9), script.now

        script.on_the_way = take
        for _ in range(100):
            script.to_s, script.back_s = rng.choice([0.0, 0.01, 3.0, 20.0]), rng.choice([0.0, 0.01, 3.0, 20.0])
            script.error = TryAgain("silent") if rng.random() < 0.4 else None
            known.ask(script.describe)
            for _ in range(rng.randrange(4)):
                try:
                    known.check()
                except (LeaseLost, LeaseUnconfirmed):
                    pass
                else:
                    margins.append(taken_at + lease.HANDOVER_S - script.now)
                script.now += rng.choice([0.0, 0.5, 2.0, 5.9, 7.0, 60.0])
                take()
    assert min(margins) > 0
    assert min(margins) < 2.0, "it came close"


def test_the_watching_thread_survives_every_kind_of_answer(
    coordinator: Coordinator, target: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "CONFIRM_EVERY_S", 0.02)
    held = lease.take(target, "m")
    watch = LeaseWatch(coordinator.config, held)
    asked = threading.Event()

    def hang_up() -> None:
        asked.set()
        raise HangUp

    try:
        good = coordinator.answers[65]
        for answer in (lambda _: hang_up(), lambda _: asked.set() or coordinator.answers[10](None)):
            coordinator.answers[65] = answer  # the second: an answer to another question
            asked.clear()
            assert asked.wait(240)
            coordinator.answers[65] = good
            before = watch._known._confirmed
            wait_until(lambda before=before: watch._known._confirmed > before, "it asks again")
            watch.check()
        coordinator.ids[held.transactional_id].timeout_ms += 1
        wait_until(lambda: watch._known.lost, "it hears of the loss")
        with pytest.raises(LeaseLost):
            watch.check()
    finally:
        watch.close()


def test_watch_begins_paused_when_nobody_can_be_asked(
    coordinator: Coordinator, target: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "CONFIRM_EVERY_S", 0.02)
    held = lease.take(target, "m")

    def hang_up() -> None:
        raise HangUp

    coordinator.fails = hang_up
    watch = LeaseWatch(coordinator.config, held)
    try:
        with pytest.raises(LeaseUnconfirmed):
            watch.check()
        coordinator.fails = lambda: None
        wait_until(lambda: watch._known._confirmed > 0, "it is confirmed")
        watch.check()
    finally:
        watch.close()


def test_a_lease_of_another_is_refused_at_once(coordinator: Coordinator, target: WireCluster) -> None:
    old = lease.take(target, "m")
    lease.take(target, "m")
    with pytest.raises(LeaseLost, match="epoch 3"):
        LeaseWatch(coordinator.config, old)
    coordinator.ids.clear()
    with pytest.raises(LeaseLost, match=r"has forgotten the id.*no other job took it"):
        LeaseWatch(coordinator.config, old)
    with pytest.raises(LeaseLost, match="has forgotten the id"):
        lease.confirm(target, old)


# --- confirmed when asked ---------------------------------------------------------------------------------------------


def test_proof_is_good_for_seconds_and_asked_for_again(target: WireCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(lease_watch, "_now_s", lambda: now)
    proof = LeaseProof(target, lease.take(target, "m"))
    with pytest.raises(LeaseUnconfirmed):
        proof.check()
    proof.confirm()
    now += lease.VALID_S
    proof.check()
    now += 0.1  # the process was frozen
    with pytest.raises(LeaseUnconfirmed):
        proof.check()
    proof.confirm()
    proof.check()


def test_proof_of_a_lease_that_another_took_is_gone_for_good(target: WireCluster) -> None:
    proof = LeaseProof(target, lease.take(target, "m"))
    proof.confirm()
    lease.take(target, "m")
    proof.check()  # it may still be used: whoever took it waits
    for _ in range(2):
        with pytest.raises(LeaseLost):
            proof.confirm()
        with pytest.raises(LeaseLost):
            proof.check()


def test_proof_asks_on_new_connections_after_a_mistake(target: WireCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    token, closed = lease.take(target, "m"), list[bool]()

    def mistake(_: TransactionClient) -> None:
        raise KeyError("no such field")

    monkeypatch.setattr(target, "close", lambda: closed.append(True))
    proof = LeaseProof(target, token)
    with monkeypatch.context() as broken:
        broken.setattr(TransactionClient, "describe", mistake)
        with pytest.raises(LeaseUnconfirmed, match="no such field"):
            proof.confirm()
    assert closed
    proof.confirm()
