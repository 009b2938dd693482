"""How long a plan takes for many partitions: ``python -m benchmarks.planning [--topics 1000] [--partitions 10]``.

Starts two clusters of one node each, creates the topics on the source with a few records in every partition, and times
each part of the planning: seconds by the clock, and CPU seconds of this process. Creating the topics takes far longer.
Exit status 1 when a plan for up to 10,000 partitions takes longer than 10 s.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from confluent_kafka import Producer

from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.admin import ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import holes
from airflow_mirror.plan.build import build, decide
from airflow_mirror.plan.inventory import read_source, read_target
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.probe import probe
from airflow_mirror.plan.selection import select_topics
from airflow_mirror.sync.topics import settle
from sandbox import Cluster, clusters

T = TypeVar("T")

# Files of each partition's first segment, allocated in full: 2 x 10 MB by default, which 10,000 partitions can't have.
_SMALL = {"log.index.size.max.bytes": "4096", "num.replica.fetchers": "1", "num.network.threads": "3"}
_AT_ONCE = 100  # topics a request
WHOLE = "all of it, plan.build"

# "Within seconds" is what was asked for. Ten of them leave room for a machine that brokers and plan share; a request for
# each partition, or a loop over all partitions inside another one, has none.
PROMISED_S, PROMISED_PARTITIONS = 10.0, 10_000
_PATIENT = {"topic.metadata.propagation.max.ms": "300000", "message.timeout.ms": "600000"}


def fill(source: Cluster, topics: int, partitions: int, records: int) -> None:
    """Create ``topics`` topics and write ``records`` records to each of their partitions."""
    names = [f"t{number:05}" for number in range(topics)]
    with ClusterAdmin(ClientConfig(source.admin_properties(), "source"), timeout_s=120) as admin:
        for at in range(0, topics, _AT_ONCE):
            admin.create_topics([NewTopicSpec(name, partitions, 1, {}) for name in names[at : at + _AT_ONCE]], unfenced)
        # A broker knows of the last ones some seconds later.
        settle(lambda: sorted({*names} - admin.topics(names).keys()), "topics", within_s=120)
    producer = Producer(
        {**source.admin_properties(), "linger.ms": "50", "queue.buffering.max.messages": "1000000", **_PATIENT}
    )
    for _ in range(records):
        for name in names:
            for partition in range(partitions):
                producer.produce(name, b"v" * 100, b"k", partition=partition)
        producer.flush(300)


class Clock:
    """Times the parts of something and prints each."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, what: str, do: Callable[[], T]) -> T:
        """Do it, print and keep how long it took."""
        begun, cpu = time.perf_counter(), time.process_time()
        answer = do()
        self.seconds[what] = round(time.perf_counter() - begun, 3)
        print(f"{what:<30} {self.seconds[what]:8.2f} s {time.process_time() - cpu:8.2f} CPU s", file=sys.stderr)
        return answer


def measure(source: Cluster, target: Cluster) -> dict[str, float]:
    """Plan once, part by part as `plan.build` does, and once as a whole; return the seconds of each."""
    clock = Clock()
    mirror = Mirror.from_dict({"name": "plan-bench", "source": "a", "target": "b", "topics": [".*"]})
    with (
        ClusterAdmin(ClientConfig(source.admin_properties(), "source")) as here,
        ClusterAdmin(ClientConfig(target.admin_properties(), "target")) as there,
    ):
        names = clock("select topics", lambda: select_topics(mirror, here))
        empty = clock("read the target", lambda: read_target(mirror, there, names))
        full = clock("read the source", lambda: read_source(mirror, here, names))
        samples = clock("sample holes", lambda: holes.sample(here.config, full.topics, committed=True))
        rights = clock("probe the target", lambda: probe(there, mirror.name))
        made = clock("decide", lambda: decide(mirror, full, empty, (), datetime.now(UTC), samples, rights))
        text = clock("to JSON and back", lambda: Plan.from_json(made.to_json()).to_json())
        print(f"{len(text) / 1e6:.1f} MB of JSON", file=sys.stderr)
        clock(WHOLE, lambda: build(mirror, here, there))
    return clock.seconds


def too_slow(partitions: int, seconds: float) -> str | None:
    """Say by how much a plan is slower than promised; nothing is promised for more partitions."""
    if partitions > PROMISED_PARTITIONS or seconds <= PROMISED_S:
        return None
    return f"planning {partitions:,} partitions took {seconds:.1f} s, longer than {PROMISED_S:g} s"


@contextmanager
def profiled(wanted: bool) -> Iterator[None]:
    """Print where the time went."""
    if not wanted:
        yield
        return
    profile = cProfile.Profile()
    profile.enable()
    yield
    profile.disable()
    pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(45)


def main(argv: Sequence[str]) -> int:
    """Measure and print one JSON object; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=10, help="of each topic")
    parser.add_argument("--records", type=int, default=3, help="of each partition")
    parser.add_argument("--profile", action="store_true", help="print where the time went")
    given = parser.parse_args(argv)
    options: dict[str, Any] = {"overrides": _SMALL, "heap_mb": 2048, "ready_timeout_s": 240.0}
    with clusters("source", "target", **options) as (source, target):
        Clock()("create and fill the topics", lambda: fill(source, given.topics, given.partitions, given.records))
        with profiled(given.profile):
            seconds = measure(source, target)
    partitions = given.topics * given.partitions
    print(json.dumps({"partitions": partitions, **seconds}), flush=True)
    if given.profile:  # the profiler's own time is most of what it shows
        return 0
    if (wrong := too_slow(partitions, seconds[WHOLE])) is not None:
        print(f"benchmarks.planning: {wrong}", file=sys.stderr)
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
