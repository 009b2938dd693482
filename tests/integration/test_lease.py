"""A lease outlives a coordinator that forgets what is idle."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator

import pytest

from airflow_mirror.common.policy import lease_id
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease_watch import LeaseWatch
from airflow_mirror.errors import LeaseLost, LeaseUnconfirmed
from airflow_mirror.jobs.driver.held_lease import writer_lease
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import Fenced
from airflow_mirror.wire.transactions import TransactionClient
from sandbox import Cluster
from tests.integration.copying import config, wait_until
from tests.unit.coordinator import Coordinator

EXPIRY_S = 6


@pytest.fixture(scope="module")
def oblivious() -> Iterator[Cluster]:
    """It forgets after seconds what others forget after a week."""
    settings = {
        "transactional.id.expiration.ms": str(EXPIRY_S * 1000),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    with Cluster("oblivious", overrides=settings, ready_timeout_s=180) as cluster:
        yield cluster


@pytest.mark.faults
def test_a_held_lease_is_renewed_and_its_tasks_notice_nothing(
    oblivious: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as these brokers forget, who say when they do."""
    monkeypatch.setenv("OBLIVIOUS", json.dumps({"bootstrap.servers": oblivious.bootstrap}))
    with writer_lease("env:OBLIVIOUS", "kept") as held, WireCluster(config(oblivious)) as wire:
        # A lease that nobody renews is forgotten meanwhile: so long has the other one outlived its time.
        forgotten = lease.take(wire, "forgotten")
        client = TransactionClient(wire, forgotten.transactional_id)
        watch = LeaseWatch(config(oblivious), held.token)
        try:
            wait_until(lambda: client.describe() is None, "the other lease is forgotten")
            time.sleep(lease.CONFIRM_EVERY_S + 1)
            watch.check()
        finally:
            watch.close()
        with pytest.raises(LeaseLost, match="no other job took it"):
            LeaseWatch(config(oblivious), forgotten)
        assert lease.is_forgotten(wire, "forgotten") and not lease.is_forgotten(wire, "kept")
        seen = TransactionClient(wire, held.token.transactional_id).describe()
        assert seen is not None and (seen.producer_id, seen.epoch) == (held.token.producer_id, held.token.epoch)
        taken_over = lease.take(wire, "kept")
        assert taken_over.wait_s == lease.HANDOVER_S  # a renewed lease is a held one
        with pytest.raises(Fenced):
            lease.renew(wire, held.token)


# --- over a restart of the coordinator --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def restarted() -> Iterator[Cluster]:
    with Cluster("restarted", ready_timeout_s=180) as cluster:
        yield cluster


@pytest.mark.faults
def test_a_held_lease_is_renewed_after_its_coordinator_was_restarted(
    restarted: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator forgets then which request led to the present epoch; the renewal takes one more."""
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.3)
    monkeypatch.setattr(lease, "RENEW_AGAIN_S", 0.3)
    monkeypatch.setenv("RESTARTED", json.dumps({"bootstrap.servers": restarted.bootstrap}))
    with writer_lease("env:RESTARTED", "kept") as held, WireCluster(config(restarted), timeout_s=90) as wire:
        client = TransactionClient(wire, held.token.transactional_id)

        def epoch() -> int:
            seen = client.describe()
            assert seen is not None and held.token.is_held(seen)
            return seen.epoch

        watch = LeaseWatch(config(restarted), held.token)
        try:
            for restarts in (1, 2):
                restarted.kill(1)
                with pytest.raises(LeaseUnconfirmed, match="Nothing is written"):
                    wait_until(lambda: watch.check() is not None, "nobody can confirm the lease")
                restarted.restart(1)
                wait_until(lambda restarts=restarts: epoch() == held.token.epoch + restarts, "the lease is renewed")
                wait_until(lambda: confirmed(watch), "the watch knows it")
        finally:
            watch.close()
        assert lease.take(wire, "kept").wait_s == lease.HANDOVER_S
        with pytest.raises(Fenced):
            lease.renew(wire, held.token)
        with pytest.raises(LeaseLost):
            LeaseWatch(config(restarted), held.token)


def confirmed(watch: LeaseWatch) -> bool:
    try:
        watch.check()
    except LeaseUnconfirmed:
        return False
    return True


@pytest.mark.faults
def test_coordinator_of_unit_tests_answers_like_a_real_one(restarted: Cluster) -> None:
    """Taking over, comparing with each of the last epochs, over a restart too."""
    rng = random.Random(8)
    questions = [rng.choice(["take", "compare 0", "compare 0", "compare -1", "compare -2"]) for _ in range(60)]
    questions[40:40] = ["restart", "compare -1", "compare 0", "compare -1", "restart", "compare -1"]
    pretended = Coordinator()
    with WireCluster(config(restarted), timeout_s=90) as real, pretended.cluster() as unreal:
        answers = [
            answered(TransactionClient(wire, "compared"), questions, restart)
            for wire, restart in ((real, lambda: restarted.restart(1)), (unreal, pretended.restart))
        ]
    pretended.close()
    assert answers[0] == answers[1]
    assert {"refused", "unchanged"} <= {said for said, _, _ in answers[0]}


def answered(
    client: TransactionClient, questions: list[str], restart: Callable[[], None]
) -> list[tuple[str, int | None, int | None]]:
    """Return what each question came to, and what the coordinator shows then."""
    producer_id, epoch = -1, -1
    answers = []
    for number, question in enumerate(questions):
        said = "changed"
        if question == "restart":
            restart()
        try:
            if question == "take":
                now = client.init(60_000 + number)
            elif question.startswith("compare") and epoch + int(question[8:]) >= 0:
                now = client.init(60_000 + number, producer_id, epoch + int(question[8:]))
            else:
                now = producer_id, epoch
            said = "unchanged" if now == (producer_id, epoch) else said
            producer_id, epoch = now
        except Fenced:
            said = "refused"
        seen = client.describe()
        answers.append((said, *((seen.epoch, seen.timeout_ms) if seen else (None, None))))
    return answers


@pytest.mark.faults
def test_worn_lease_continues_under_another_producer_id(restarted: Cluster) -> None:
    """A lease is worn when it has used up its epochs."""
    with WireCluster(config(restarted), timeout_s=90) as wire:
        client = TransactionClient(wire, lease_id("worn"))
        producer_id, epoch = client.init(60_000)
        while epoch < lease._WORN_EPOCH - 1:
            _, epoch = client.init(60_000, producer_id, epoch)
        token = lease.take(wire, "worn")
        assert token.producer_id != producer_id and token.epoch == 1
        lease.renew(wire, token)
        seen = client.describe()
        assert seen is not None and token.is_held(seen)
