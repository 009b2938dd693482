"""Several follow processes of one name: they share the partitions, and the survivors go on whoever dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sandbox import Cluster
from tests.integration import plain
from tests.integration.copying import assert_equal, create, ends, properties_of, wait_until, write, write_transactions
from tests.integration.test_spark_jobs import end_job, submit

pytestmark = pytest.mark.parity

PARTITIONS = 4
SILENCE_S = 60.0  # how long the partitions of one that died may rest


class Traffic:
    """Small batches to every partition again and again, of irregular sizes, and now and then transactions."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "linger.ms": 5, "compression.type": "lz4"})
        number = 0
        while not self._ended.wait(0.05):
            number += 1
            for p in range(PARTITIONS):
                for i in range(1 + number * (p + 3) % 5):
                    producer.produce(self._topic, b"%d" % number * (i % 4), b"k%d" % i if i % 3 else None, partition=p)
            producer.flush()
            if number % 40 == 0:
                write_transactions(self._cluster, self._topic, seed=number, transactions=1, partitions=PARTITIONS)


@dataclass
class Flow:
    """A topic under traffic, and the processes that share it.

    :ivar them: each is killed in the end, whatever the test does.
    """

    source: Cluster
    target: Cluster
    topic: str
    directory: Path
    running: ExitStack
    them: list[plain.Follow] = field(default_factory=list)

    @property
    def arguments(self) -> list[str]:
        """Both clusters, and the mirror."""
        clusters = properties_of(self.directory, self.source, self.target)
        return [*clusters, "--include", self.topic, "--name", self.topic, "--no-probe"]

    def start(self, says: str, *more: str) -> plain.Follow:
        """Start a process, and wait until it says something."""
        log = self.directory / f"follow-{len(self.them)}.log"
        one = plain.Follow(*self.arguments, "--processes", "1", *more, log=log)
        self.them.append(self.running.enter_context(one))
        one.says(says)
        return one

    def rests(self, most_s: float = SILENCE_S) -> None:
        """Return once every partition got more records than it has now; fail if one rests longer."""
        since, before = time.monotonic(), self._copied()
        wait_until(lambda: all(end > before[p] for p, end in self._copied().items()), "all are copied", 300, 0.2)
        took_s = time.monotonic() - since
        print(f"every partition was copied again after {took_s:.1f} s")
        assert took_s < most_s

    def _copied(self) -> dict[int, int]:
        return {p: end for p, (_, _, end) in ends(self.target, self.topic, PARTITIONS).items()}


@contextmanager
def flow(source: Cluster, target: Cluster, topic: str, directory: Path) -> Iterator[Flow]:
    """Yield a topic under traffic; when the traffic has ended, all of it is on the target, once.

    Whoever runs then is killed: a copy finds what is left.
    """
    create(source, topic, PARTITIONS)
    write(source, topic, 50, 1)
    with ExitStack() as running:
        one = Flow(source, target, topic, directory, running)
        with Traffic(source, topic):
            yield one
    log = directory / "rest.log"
    assert plain.copy(*one.arguments, log=log) == 0, log.read_text()[-3000:]
    assert_equal(source, target, topic, PARTITIONS)


def test_who_joins_gets_a_share_and_who_leaves_gives_it_up_at_once(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    with flow(source_cluster, target_cluster, topic_name, tmp_path) as shared:
        tail = shared.start("behind in 4 partitions")
        second = shared.start("copying for the tail")
        tail.says("2 processes share the mirror; this process copies 2 partitions")
        shared.start("copying for the tail")
        tail.says("3 processes share the mirror")
        shared.rests()
        summary = second.stop()
        assert summary["records"] > 0
        assert summary["errors"] == []
        shared.rests(SILENCE_S / 2)
        third = shared.them[-1]
        third.kill()
        shared.rests()
        assert tail.stop()["errors"] == []


def test_a_survivor_takes_the_place_of_a_tail_that_is_killed_or_ends(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    with flow(source_cluster, target_cluster, topic_name, tmp_path) as shared:
        first = shared.start("behind in 4 partitions")
        second = shared.start("copying for the tail")
        shared.rests()
        first.kill()
        shared.rests()
        shared.start("copying for the tail")
        second.stop()
        shared.rests(SILENCE_S / 2)


def test_a_frozen_host_is_replaced_and_what_thaws_writes_nothing_more(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Frozen with requests in flight, as a virtual machine is: nobody can see that its processes have ended."""
    with flow(source_cluster, target_cluster, topic_name, tmp_path) as shared:
        tail = shared.start("behind in 4 partitions")
        shared.start("copying for the tail")
        shared.rests()
        os.killpg(tail.process.pid, signal.SIGSTOP)
        for pid in tail.workers():
            os.kill(pid, signal.SIGSTOP)
        shared.rests()
        os.killpg(tail.process.pid, signal.SIGCONT)
        assert tail.process.wait(120) == 1, tail.said[-3000:]
        assert "is another one now" in tail.said
        shared.rests()


def test_a_tail_on_spark_shares_with_nobody_and_is_replaced_when_asked(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    with flow(source_cluster, target_cluster, topic_name, tmp_path) as mixed:
        log = tmp_path / "spark.log"
        tail = submit("streaming_tail.py", *mixed.arguments, log=log)
        mixed.running.callback(end_job, tail)
        wait_until(lambda: "behind in 4 partitions" in log.read_text(), "the Spark tail copies", 300, 0.5)
        refused = mixed.start("error: ")
        assert refused.process.wait(60) == 1
        assert f"the tail of mirror {topic_name!r} runs already" in refused.said
        mixed.rests()

        taker = mixed.start("behind in 4 partitions", "--takeover")
        assert tail.wait(120) != 0, log.read_text()[-3000:]
        assert "is another one now" in log.read_text()
        mixed.rests()

        second = tmp_path / "refused.log"
        other = submit("streaming_tail.py", *mixed.arguments, log=second)
        mixed.running.callback(end_job, other)
        assert other.wait(240) == 1
        assert f"the tail of mirror {topic_name!r} runs already" in second.read_text()
        assert taker.stop()["errors"] == []
