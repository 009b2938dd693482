"""Copy and follow in plain processes: one quick way through both."""

from __future__ import annotations

from pathlib import Path

from sandbox import Cluster
from tests.integration import plain
from tests.integration.copying import (
    assert_equal,
    create,
    ends,
    properties_of,
    wait_until,
    write,
    write_transactions,
)

PARTITIONS = 3


def total(cluster: Cluster, topic: str) -> int:
    return sum(end for _, _, end in ends(cluster, topic, PARTITIONS).values())


def test_what_was_copied_is_followed_without_spark(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Irregular data, then a stop by SIGTERM: equal, and every partition clean."""
    create(source_cluster, topic_name, PARTITIONS)
    for seed, codec in enumerate(("lz4", "none", "zstd")):
        write(source_cluster, topic_name, 300, seed, codec, partition=seed)
    write_transactions(source_cluster, topic_name, seed=1, transactions=4, partitions=PARTITIONS)
    flow = [*properties_of(tmp_path, source_cluster, target_cluster), "--include", topic_name, "--name", topic_name]
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
        summary = follow.stop()
    assert (summary["partitions"], summary["errors"], summary["gone"]) == (PARTITIONS, [], [])
    assert_equal(source_cluster, target_cluster, topic_name, PARTITIONS)
