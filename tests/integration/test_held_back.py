"""Records behind an open transaction: who reads committed data gets none of them, and nobody says that all is copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sandbox import Cluster
from tests.integration import plain
from tests.integration.copying import assert_equal, create, ends, flow_of, wait_until, write
from tests.integration.warm_jobs import WarmJobs

pytestmark = pytest.mark.nights


@pytest.fixture
def open_transaction(source_cluster: Cluster, topic_name: str) -> Iterator[Callable[[], None]]:
    """One record of a transaction, and committed ones behind it; called, it commits."""
    create(source_cluster, topic_name)
    # Brokers abort it after a minute by default, and on a busy machine the test takes longer.
    hangs = {"transactional.id": f"hangs-{topic_name}", "transaction.timeout.ms": 900_000}
    producer = Producer({**source_cluster.properties(), **hangs})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic_name, b"first", partition=0)
    producer.flush(60)
    write(source_cluster, topic_name, 1000, 1, "lz4")
    yield lambda: producer.commit_transaction(60)


def test_records_behind_an_open_transaction_are_never_taken_for_copied(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, open_transaction: Callable[[], None],
    warm_jobs: WarmJobs, tmp_path: Path,
) -> None:  # fmt: skip
    flow = flow_of(tmp_path, source_cluster, target_cluster, topic_name)
    flow += ["--no-probe"]
    whose = f"{topic_name}-0: 1,001 offsets behind an open transaction since offset 0 (transactional id 'hangs-"
    log = tmp_path / "log"

    assert plain.copy(*flow, log=log) == 1
    said = log.read_text()
    assert f"error: not copied, because transactions of the source are open\n  - {whose}" in said
    assert f"open_transactions: topic '{topic_name}': {whose}" in said, "the warning of the plan"
    assert plain.copy(*flow, "--accept-open-transactions", log=log) == 0
    assert plain.summary_of(log)["open_transactions"][0].startswith(whose)
    assert (
        plain.copy(*flow, "--isolation", "read_uncommitted", "--name", f"{topic_name}-u", "--policy", "prefix", log=log)
        == 0
    )
    assert plain.summary_of(log)["records"] == 1001

    for level in ("records", "offsets"):
        assert warm_jobs.run("verify", *flow, "--level", level, log=log) == 1
        assert f"nothing is proven\n  - {whose}" in log.read_text()

    with plain.Follow(*flow, log=log) as follow:
        follow.says(
            f"0 offsets behind in 1 partition; {topic_name}-0: 1,001 offsets behind an open transaction since offset 0;"
        )
        open_transaction()
        wait_until(lambda: ends(target_cluster, topic_name)[0][2] == 1002, "it has caught up")
        follow.stop()
    assert_equal(source_cluster, target_cluster, topic_name)
    assert warm_jobs.run("verify", *flow, "--level", "records", log=log) == 0
    assert plain.summary_of(log)["records"] == 1001 and "open_transactions" not in plain.summary_of(log)
    assert plain.copy(*flow, log=log) == 0
