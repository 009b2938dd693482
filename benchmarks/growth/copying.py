"""One task of a copy, as a process of its own: ``python -m benchmarks.growth.copying SPEC`` with the JSON of `Part`.

The engine alone: Spark's start, the plan and the lease don't grow with what is copied.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.wire.cluster import WireCluster
from benchmarks.many_partitions import whole_of


@dataclass(frozen=True)
class Part:
    """What one task copies.

    :param source: librdkafka settings; ``target`` alike. :param topics: of both, in this order.
    """

    source: dict[str, str]
    target: dict[str, str]
    topics: tuple[str, str]
    partitions: list[int]

    def dump(self) -> str:
        """Return the JSON that the process is given."""
        return json.dumps(asdict(self))


def run(part: Part) -> dict[str, float]:
    """Copy everything; return CPU seconds of this process from the first request on, and seconds by the clock."""
    source, target = ClientConfig(part.source, "source"), ClientConfig(part.target, "target")
    topic, to = part.topics
    with WireCluster(source) as wire:
        wire.refresh([topic])
        ranges = whole_of(wire, [TopicPartition(topic, p) for p in part.partitions], to)
    cpu, begun = time.process_time(), time.monotonic()
    loop = CopyLoop(ranges, Clusters.of(source, target), CopyOptions(mirror="growth"), lambda: None)
    loop.run(lambda: False)
    failed = [str(p.error) for p in loop.partitions if p.error]
    if failed or not all(p.done for p in loop.partitions):
        raise RuntimeError(f"not copied: {failed[:3]}")
    return {"cpu_s": time.process_time() - cpu, "seconds": time.monotonic() - begun}


if __name__ == "__main__":
    print(json.dumps(run(Part(**json.loads(sys.argv[1])))))
