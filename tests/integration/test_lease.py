"""A lease outlives a coordinator that forgets what is idle."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import LeaseWatch
from airflow_mirror.errors import LeaseLost
from airflow_mirror.jobs.driver.prepare import writer_lease
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import Fenced
from airflow_mirror.wire.transactions import TransactionClient
from sandbox import Cluster
from tests.integration.copying import config, wait_until

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


def test_a_held_lease_is_renewed_and_its_tasks_notice_nothing(
    oblivious: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.3)
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
        with pytest.raises(LeaseLost, match="unknown"):
            LeaseWatch(config(oblivious), forgotten)
        seen = TransactionClient(wire, held.token.transactional_id).describe()
        assert seen is not None and (seen.producer_id, seen.epoch) == (held.token.producer_id, held.token.epoch)
        taken_over = lease.take(wire, "kept")
        assert taken_over.wait_s == lease.HANDOVER_S  # a renewed lease is a held one
        with pytest.raises(Fenced):
            lease.renew(wire, held.token)
