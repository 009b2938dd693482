"""MirrorMaker 2's three words for exactly-once, and a kill in the middle of each: every record is there once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_mirror.mirror import Mirror
from sandbox import Cluster
from tests.integration import plain
from tests.integration.copying import create, ends, properties_of, read, wait_until, write, write_transactions

pytestmark = pytest.mark.parity
FILE = """
clusters = one, two
one.bootstrap.servers = {source}
two.bootstrap.servers = {target}
one->two.enabled = true
one->two.topics = {topic}
one.consumer.isolation.level = read_committed
replication.factor = 1
two.exactly.once.source.support = {value}
"""


@pytest.mark.parametrize("value", ["disabled", "preparing", "enabled"])
def test_nothing_is_twice_after_kill_9_whatever_the_file_asks_for(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, value: str
) -> None:
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 600, 1, "lz4", **{"batch.size": "4000"})
    write_transactions(source_cluster, topic_name, seed=3, transactions=6)
    end = ends(source_cluster, topic_name)[0][2]
    file = tmp_path / "mm2.properties"
    file.write_text(
        FILE.format(source=source_cluster.bootstrap, target=target_cluster.bootstrap, topic=topic_name, value=value)
    )
    (mirror,) = Mirror.from_properties(file)
    assert mirror.delivery == "idempotent"
    slow = mirror.to_dict() | {"name": topic_name, "max_bytes_per_second": 30_000}
    job = tmp_path / "mirror.json"
    job.write_text(json.dumps(slow))
    flow = [
        *properties_of(tmp_path, source_cluster, target_cluster),
        "--mirror",
        str(job),
        "--no-probe",
        "--processes",
        "1",
    ]
    copied = f"one.{topic_name}"

    def at() -> int:
        try:
            return ends(target_cluster, copied)[0][2]
        except Exception:  # not there yet
            return 0

    with plain.Follow(*flow, log=tmp_path / "first.log") as first:
        wait_until(lambda: 0 < at() < end, "it is in the middle", 240, 0.05)
        first.kill()
    assert 0 < at() < end, "killed in the middle"
    job.write_text(json.dumps(slow | {"max_bytes_per_second": None}))
    with plain.Follow(*flow, log=tmp_path / "second.log") as second:
        wait_until(lambda: at() == end or second.process.poll() is not None, "the next one has caught up", 300)
        second.stop()
    assert read(target_cluster, copied) == read(source_cluster, topic_name)
