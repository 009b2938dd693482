"""A mirror under the clusters' quotas: it is slow, says why, and ends when it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.kafka.quotas import QuotaEntity
from sandbox import Cluster
from sandbox.cluster import clusters
from tests.integration import plain
from tests.integration.copying import config, create, flow_of, write


@pytest.fixture(scope="module")
def pair() -> Iterator[list[Cluster]]:
    with clusters("slow-source", "slow-target", nodes=1) as both:
        yield both


def limit(cluster: Cluster, **values: float | None) -> None:
    """Set quotas for every client."""
    with ClusterAdmin(config(cluster)) as admin:
        admin.alter_quotas({QuotaEntity.of(client_id=None): values}, unfenced)


QUOTAS = {
    "ledger": (1, "consumer_byte_rate", 500.0),  # before anything is copied
    "requests": (1, "request_percentage", 1.0),
    "source": (0, "consumer_byte_rate", 2000.0),
    "target": (1, "producer_byte_rate", 2000.0),
}


@pytest.mark.faults
@pytest.mark.parametrize("what", QUOTAS)
def test_a_tail_below_a_quota_says_so_and_ends_within_seconds(
    pair: list[Cluster], topic_name: str, tmp_path: Path, what: str
) -> None:
    side, key, value = QUOTAS[what]
    create(pair[0], topic_name, 3)
    for p in range(3):
        write(pair[0], topic_name, 300, p, "lz4", partition=p)
    flow = [*flow_of(tmp_path, *pair, topic=topic_name), "--no-probe"]
    limit(pair[side], **{key: value})
    try:
        with plain.Follow(*flow, log=tmp_path / "follow.log") as follow:
            words = {"ledger": "throttles this client", "requests": "quotas apply"}
            follow.says(words.get(what, f"throttled by quota: the {what} by"))
            follow.stop(within_s=10)
        assert "no leader answered" not in follow.said and "no answer within" not in follow.said
    finally:
        limit(pair[side], **{key: None})
