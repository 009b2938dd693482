"""Copy and follow in plain processes: one quick way through both, and what they refuse."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_mirror.errors import LedgerMissing
from airflow_mirror.jobs.runner.active import Sign
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import SIGN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.plan.owned import owned_topics
from sandbox import Cluster
from tests.integration import plain
from tests.integration.copying import (
    assert_equal,
    config,
    create,
    ends,
    flow_of,
    wait_until,
    write,
    write_transactions,
)

PARTITIONS = 3


def total(cluster: Cluster, topic: str) -> int:
    return sum(end for _, _, end in ends(cluster, topic, PARTITIONS).values())


def said_in_time(target: ClusterAdmin, mirror: str) -> tuple[object, object]:
    """Return the lag and the headroom, in seconds, that the mirror's tail says in the ledger."""
    values = state_of(target, SIGN.below(mirror)).read()
    (sign,) = [Sign.decode(value) for key, value in values.items() if key.endswith("/sign")]
    return (sign.summary.get("lag_s"), sign.summary.get("headroom_s")) if sign else (None, None)


@pytest.mark.months
def test_what_was_copied_is_followed_without_spark(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Irregular data, a copying process that is killed, then a stop by SIGTERM: equal, and every partition clean."""
    create(source_cluster, topic_name, PARTITIONS, retention_ms="900000000000")
    for seed, codec in enumerate(("lz4", "none", "zstd")):
        write(source_cluster, topic_name, 300, seed, codec, partition=seed)
    write_transactions(source_cluster, topic_name, seed=1, transactions=4, partitions=PARTITIONS)
    flow = flow_of(tmp_path, source_cluster, target_cluster, topic_name)
    log = tmp_path / "copy.log"
    assert plain.copy(*flow, "--no-probe", "--processes", "2", log=log) == 0, log.read_text()[-3000:]
    summary = plain.summary_of(log)
    assert (summary["partitions"], summary["errors"]) == (PARTITIONS, [])
    assert_equal(source_cluster, target_cluster, topic_name, PARTITIONS)

    with plain.Follow(*flow, "--no-probe", "--processes", "2", log=tmp_path / "follow.log") as follow:
        follow.says("partitions")
        for seed in range(2):
            write(source_cluster, topic_name, 100, seed, "lz4", partition=seed)
            write_transactions(source_cluster, topic_name, seed=seed, transactions=2, partitions=PARTITIONS)
        end = total(source_cluster, topic_name)
        wait_until(lambda: total(target_cluster, topic_name) == end, "it has caught up")
        os.kill(follow.workers()[0], signal.SIGKILL)
        follow.says("ended with status -9")
        for seed in range(PARTITIONS):
            write(source_cluster, topic_name, 100, seed, "zstd", partition=seed)
        end = total(source_cluster, topic_name)
        wait_until(lambda: total(target_cluster, topic_name) == end, "it goes on under the next lease")
        with ClusterAdmin(config(target_cluster)) as target:
            wait_until(lambda: said_in_time(target, topic_name) == (0, 900_000_000), "it is level, and kept for long")
        summary = follow.stop()
    assert (summary["partitions"], summary["errors"], summary["gone"]) == (PARTITIONS, [], [])
    assert_equal(source_cluster, target_cluster, topic_name, PARTITIONS)


@pytest.mark.parametrize("hold", [(), ("--hold",)], ids=["plain", "hold"])
def test_topic_that_holds_somebody_elses_records_is_left_alone_as_a_whole(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, hold: tuple[str, ...]
) -> None:
    """Also its partitions that are empty, its settings, and whose it is."""
    for cluster in (source_cluster, target_cluster):
        create(cluster, topic_name, PARTITIONS, retention_ms="-1" if not hold else "900000000000")
    for partition in range(PARTITIONS):
        write(source_cluster, topic_name, 50, seed=partition, partition=partition)
    write(target_cluster, topic_name, 30, seed=9)
    before = ends(target_cluster, topic_name, PARTITIONS)
    flow = flow_of(tmp_path, source_cluster, target_cluster, topic_name)
    log = tmp_path / "copy.log"
    assert plain.copy(*flow, "--no-probe", *hold, log=log) == 2
    assert "it holds data that this mirror did not write" in log.read_text()
    assert ends(target_cluster, topic_name, PARTITIONS) == before
    with ClusterAdmin(config(target_cluster)) as target:
        kept = target.topic_configs([topic_name])[topic_name]["retention.ms"].value
        assert kept == ("-1" if not hold else "900000000000")
        with suppress(LedgerMissing):
            assert topic_name not in owned_topics(Ledger(target))


def test_window_that_is_none_is_refused_before_anything_is_made(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    create(source_cluster, topic_name, PARTITIONS)
    flow = flow_of(tmp_path, source_cluster, target_cluster, topic_name)
    log = tmp_path / "copy.log"
    assert plain.copy(*flow, "--no-probe", "--end", "yesterday", log=log) == 2
    assert "end='yesterday'\n  why: not a point in time" in log.read_text()
    with ClusterAdmin(config(target_cluster)) as target:
        assert topic_name not in target.topic_names()
