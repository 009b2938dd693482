"""Many partitions in one task: ``python -m benchmarks.many_partitions [--topics 100] [--partitions 10]``.

Copies them with the engine alone, in this process, and prints how long it took to open them all, to copy a few records
of each, to open them again where they ended, and what a turn of the loop costs while nearly all are idle: seconds by the
clock and CPU seconds. Spark adds its start and splits the partitions over its tasks.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.jobs.driver.weights import bytes_to_copy
from airflow_mirror.wire.cluster import WireCluster
from benchmarks.planning import fill
from sandbox import Cluster, clusters

_SMALL = {"log.index.size.max.bytes": "4096"}
_TRICKLE_S = 8.0


def settings(cluster: Cluster) -> ClientConfig:
    """Return how the engine reaches a cluster."""
    return ClientConfig(cluster.admin_properties(), cluster.name)


def ranges_of(source: Cluster, topics: int, partitions: int) -> list[CopyRange]:
    """Return the whole of every topic as it stands now."""
    names = [f"t{number:05}" for number in range(topics)]
    with WireCluster(settings(source)) as wire:
        wire.refresh(names)
        return whole_of(wire, [TopicPartition(name, p) for name in names for p in range(partitions)])


def whole_of(wire: WireCluster, tps: Sequence[TopicPartition], to: str | None = None) -> list[CopyRange]:
    """Return the whole of partitions as they stand now. :param to: the target's topic; None: of the same name."""
    ends = wire.high_watermarks(tps)
    return [
        CopyRange(
            source_topic=tp.topic,
            target_topic=to or tp.topic,
            partition=tp.partition,
            start_offset=0,
            end_offset=ends[tp],
            source_topic_id=wire.topic_id(tp.topic),
        )
        for tp in tps
    ]


class Measured:
    """One run of the loop: when each phase was over.

    :ivar opened_s: until every partition was open.
    :ivar total_s: until the loop ended.
    :ivar cpu_s: of the thread that ran it.
    """

    def __init__(self, source: Cluster, target: Cluster, ranges: Sequence[CopyRange]) -> None:
        self._loop = CopyLoop(
            ranges, Clusters.of(settings(source), settings(target)), CopyOptions(mirror="many"), lambda: None
        )
        self.opened_s = self.total_s = self.cpu_s = 0.0
        self.turns = 0

    def run(self, stop_at: float | None = None, profile: bool = False) -> Measured:
        """Run it to its end, or until ``stop_at`` seconds after all partitions were open."""
        begun, cpu = time.perf_counter(), time.thread_time()

        def should_stop() -> bool:
            if not self.opened_s and all(p.opened for p in self._loop.partitions):
                self.opened_s = time.perf_counter() - begun
                self.cpu_s = time.thread_time() - cpu
            if stop_at is None or not self.opened_s:
                return False
            self.turns += 1
            return time.perf_counter() - begun - self.opened_s > stop_at

        watch = cProfile.Profile()
        if profile:
            watch.enable()
        self._loop.run(should_stop)
        if profile:
            watch.disable()
            pstats.Stats(watch, stream=sys.stderr).sort_stats("tottime").print_stats(25)
        self.total_s = time.perf_counter() - begun
        self.loop_cpu_s = time.thread_time() - cpu - self.cpu_s
        failed = [str(p.error) for p in self._loop.partitions if p.error]
        assert not failed, failed[:3]
        return self


def trickle(source: Cluster, stop: threading.Event) -> None:
    """Append a record to one and the same partition every 10 ms."""
    producer = Producer({**source.admin_properties(), "linger.ms": "0"})
    while not stop.wait(0.01):
        producer.produce("t00000", b"v" * 100, partition=0)
        producer.flush(10)


def measure(source: Cluster, target: Cluster, topics: int, partitions: int, profile: bool) -> dict[str, Any]:
    """Copy everything, open it again, and follow it while one partition trickles."""
    ranges = ranges_of(source, topics, partitions)
    found: dict[str, Any] = {"partitions": len(ranges)}
    with WireCluster(settings(source)) as here, WireCluster(settings(target)) as there:
        begun = time.perf_counter()
        bytes_to_copy(here, there, ranges)
        found["weigh_s"] = time.perf_counter() - begun
    first = Measured(source, target, ranges).run(profile=profile)
    found |= {"open_empty_s": first.opened_s, "open_empty_cpu_s": first.cpu_s, "copy_s": first.total_s - first.opened_s}
    again = Measured(source, target, ranges).run(profile=profile)
    found |= {"open_copied_s": again.opened_s, "open_copied_cpu_s": again.cpu_s}
    followed = [replace(r, end_offset=None) for r in ranges]
    idle = Measured(source, target, followed).run(_TRICKLE_S)
    found |= {"idle_turns_per_s": idle.turns / _TRICKLE_S, "idle_cpu_share": idle.loop_cpu_s / _TRICKLE_S}
    stop = threading.Event()
    writer = threading.Thread(target=trickle, args=(source, stop), daemon=True)
    writer.start()
    busy = Measured(source, target, followed).run(_TRICKLE_S, profile)
    stop.set()
    writer.join()
    found |= {
        "trickle_turns_per_s": busy.turns / _TRICKLE_S, "trickle_cpu_ms_per_turn": busy.loop_cpu_s / busy.turns * 1000
    }  # fmt: skip
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in found.items()}


def main(argv: Sequence[str]) -> int:
    """Measure and print one JSON object; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_partitions", description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=10, help="of each topic")
    parser.add_argument("--records", type=int, default=20, help="of each partition")
    parser.add_argument("--profile", action="store_true", help="print where the time went")
    given = parser.parse_args(argv)
    options: dict[str, Any] = {"overrides": _SMALL, "heap_mb": 1024, "ready_timeout_s": 240.0}
    with clusters("source", "target", **options) as (source, target):
        fill(source, given.topics, given.partitions, given.records)
        fill(target, given.topics, given.partitions, 0)
        print(json.dumps(measure(source, target, given.topics, given.partitions, given.profile)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
