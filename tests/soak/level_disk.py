"""Does the target's disk stay level while a tail runs? ``make soak-disk``, an hour.

    python -m tests.soak.level_disk [--minutes 60] [--retention-s 600]

One topic has a short retention at the source, another is compacted there. Both are written all the time. From the middle
on the target's logs must not grow, and in the end both topics must compare equal. Exit status 0 if all of that holds. One
line a minute on stdout; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from sandbox.cluster import start_all, stop_all
from tests.integration.copying import config, create, properties_of, wait_until
from tests.integration.test_compacted_sides import BOTH, CLEANING, compare
from tests.integration.test_spark_jobs import end_job, stop, submit

SHORT, COMPACTED = "short", "compacted"
_TPS = [TopicPartition(SHORT, 0), TopicPartition(COMPACTED, 0)]
_GROWTH = 1.25  # segments go as wholes
_KEYS = 200


@contextmanager
def traffic(source: Cluster) -> Iterator[None]:
    """Write to both topics, some 100 KB a second, until the block ends."""
    ended, rng = threading.Event(), random.Random(1)

    def write() -> None:
        producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 100})
        while not ended.wait(0.1):
            for _ in range(4):
                producer.produce(SHORT, rng.randbytes(2000), b"k", partition=0)
                value = rng.randbytes(500) if rng.random() < 0.9 else None
                producer.produce(COMPACTED, value, b"k%d" % rng.randrange(_KEYS), partition=0)
            producer.poll(0)
        producer.flush(60)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def run(source: Cluster, target: Cluster, minutes: int, retention_s: int, directory: Path) -> dict[str, object]:
    """Return what was measured, ``failures`` among it."""
    create(source, SHORT, retention_ms=str(retention_s * 1000), segment_ms="10000")
    settings = {key.replace(".", "_"): value for key, value in CLEANING.items()}
    create(source, COMPACTED, cleanup_policy="compact", **settings)
    mirror = {"name": "level", "source": "s", "target": "t", "topics": [SHORT, COMPACTED], "log_start_delay_s": 60}
    (directory / "mirror.json").write_text(json.dumps(mirror))
    log, arguments = directory / "tail.log", ["--mirror", str(directory / "mirror.json")]
    arguments += ["--job-dir", str(directory / "job")]
    sizes: list[list[int]] = []
    tail = submit("streaming_tail.py", *properties_of(directory, source, target), *arguments, log=log)
    try:
        with ClusterAdmin(config(target)) as admin, WireCluster(config(target)) as wire:
            wait_until(lambda: {SHORT, COMPACTED} <= admin.topics([SHORT, COMPACTED]).keys(), "the tail has begun")
            with traffic(source):
                for minute in range(minutes):
                    time.sleep(60)
                    found = wire.log_sizes(_TPS)
                    sizes.append([found[tp] for tp in _TPS])
                    shown = ", ".join(f"{tp.topic} {found[tp]:,} bytes" for tp in _TPS)
                    print(f"minute {minute + 1}: {shown}", flush=True)
            with WireCluster(config(source)) as here:
                wait_until(lambda: wire.log_ends(_TPS) == here.log_ends(_TPS), "the target has everything")
            cleaned_on = {COMPACTED: BOTH}
            verdicts = [
                compare((source, target), tp.topic, "records", cleaned_on=cleaned_on.get(tp.topic, ())) for tp in _TPS
            ]
        stop(tail, log)
    finally:
        end_job(tail)
    failures = [str(verdict) for verdict in verdicts if not verdict.equal]
    half = minutes // 2
    for number, tp in enumerate(_TPS):
        before, after = (max(row[number] for row in rows) for rows in (sizes[:half], sizes[half:]))
        if after > before * _GROWTH:
            failures.append(f"{tp.topic}: {after:,} bytes at most in the second half, {before:,} in the first one")
    follows = json.loads((directory / "job" / "status.json").read_text())["follows"]["log_starts"]
    return {"failures": failures, "compared": [str(verdict) for verdict in verdicts], "follows": follows}


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.level_disk", description=__doc__)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--retention-s", type=int, default=600)
    arguments = parser.parse_args()
    source, target = clusters = Cluster("soak-source"), Cluster("soak-target")
    start_all(clusters)
    try:
        with tempfile.TemporaryDirectory(prefix="level-disk-") as directory:
            found = run(source, target, arguments.minutes, arguments.retention_s, Path(directory))
    finally:
        stop_all(clusters)
    print(json.dumps(found))
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
