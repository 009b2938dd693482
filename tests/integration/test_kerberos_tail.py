"""A tail whose tickets end several times while it runs, with the KDC killed and hung meanwhile.

``KERBEROS_TICKET_S`` is how long a ticket lives, 60 s by default; the tail runs for five of these lives. The source's
brokers demand a new login every ten seconds, the target's never do.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease_watch import LeaseWatch
from airflow_mirror.errors import LeaseUnconfirmed, MirrorError
from airflow_mirror.kafka.admin import ClusterAdmin
from sandbox import Cluster
from sandbox.kdc import Realm
from tests.integration.copying import assert_equal, config, copy, create, ends, ranges_of, read, wait_until
from tests.integration.realms import World

pytestmark = pytest.mark.kerberos

TICKET_S = float(os.environ.get("KERBEROS_TICKET_S", "60"))
PARTITIONS = 2


class Writer:
    """Writes numbered records to both partitions until the block ends, over the open listener."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        # Else it writes a batch twice on a machine so busy that an answer comes late, and the copy has both.
        conf = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "enable.idempotence": True}
        self._producer, self._topic = Producer(conf), topic
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._run, daemon=True)
        self.written = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert self._producer.flush(120) == 0

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            self._producer.produce(self._topic, b"%d" % self.written, partition=self.written % PARTITIONS)
            self._producer.poll(0)
            self.written += 1


class Tail:
    """Turns of the real engine under one lease, with another watch on that lease which says how it is."""

    def __init__(self, realms: World, topic: str) -> None:
        self._realms, self.topic = realms, topic
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._run, daemon=True)
        self.unconfirmed, self.looks, self.turns, self.errors = 0, 0, 0, list[MirrorError]()

    def __enter__(self) -> Tail:
        os.environ["TEST_SOURCE"] = self._realms.source.config("short").dump()
        os.environ["TEST_TARGET"] = self._realms.target.config("short").dump()
        with self._realms.target.wire() as wire:
            self._token = lease.take(wire, self.topic)
        self._watch = LeaseWatch(self._realms.target.config("short"), self._token)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(120)
        self._watch.close()
        with self._realms.target.wire() as wire:
            lease.confirm(wire, self._token)  # nobody else has it
            lease.release(wire, self._token)

    def look(self) -> None:
        """Ask whether the lease is confirmed; a lost one ends the test."""
        self.looks += 1
        try:
            self._watch.check()
        except LeaseUnconfirmed:
            self.unconfirmed += 1

    def _run(self) -> None:
        with ClusterAdmin(config(self._realms.source.cluster)) as admin:
            identity = admin.topics([self.topic])[self.topic].topic_id
        ranges = [
            CopyRange(
                source_topic=self.topic, target_topic=self.topic, partition=p, start_offset=0, end_offset=None,
                source_topic_id=identity,
            )
            for p in range(PARTITIONS)
        ]  # fmt: skip
        work = CopyWork(
            source="env:TEST_SOURCE", target="env:TEST_TARGET", options=CopyOptions(mirror=self.topic), lease=self._token
        )
        while not self._stop.is_set():
            self.turns += 1
            results = copy_ranges(work, ranges, duration_s=2 * TICKET_S, should_stop=self._stop.is_set)
            self.errors += [r.error for r in results if r.error]


@pytest.fixture
def kdcs(realms: World) -> Iterator[list[Realm]]:
    both = [realms.source.realm, realms.target.realm]
    for realm in both:
        realm.add("short", max_life_s=int(TICKET_S))
    yield both
    for realm in both:
        realm.resume_or_restart()
        realm.remove("short")


def test_a_tail_outlives_its_tickets_and_its_kdcs(
    realms: World, kdcs: list[Realm], topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 records lost, 0 twice; the lease confirmed all the time, also while no KDC answers for longer than a ticket."""
    source, target = realms.source.cluster, realms.target.cluster
    for cluster in (source, target):
        create(cluster, topic_name, PARTITIONS)
    began = time.monotonic()

    def copied() -> int:
        return sum(end for _, _, end in ends(target, topic_name, PARTITIONS).values())

    def go_on(lives: float) -> None:
        """Look at the lease until so many lives of a ticket have passed since the beginning."""
        while time.monotonic() < began + lives * TICKET_S:
            tail.look()
            time.sleep(0.1)

    with Writer(source, topic_name) as writer, Tail(realms, topic_name) as tail:
        wait_until(lambda: copied() > 50, "the tail copies")
        tail._watch.check()
        began = time.monotonic()
        go_on(1.0)
        for kdc in kdcs:
            kdc.kill()
        at_kill = copied()
        go_on(1.4)  # less than half of a life: nobody may notice
        assert copied() > at_kill + 20, "a killed KDC held the copy up"
        for kdc in kdcs:
            kdc.resume_or_restart()
        go_on(2.4)  # the tickets are renewed
        for kdc in kdcs:
            kdc.pause()
        at_pause = copied()
        go_on(2.8)
        assert copied() > at_pause + 20, "a hung KDC held the copy up"
        go_on(4.0)  # longer than any ticket lives: the source's sessions end now
        for kdc in kdcs:
            kdc.resume_or_restart()
        go_on(5.0)
        wait_until(lambda: copied() > at_pause + 50, "the tail goes on")
        running_s = time.monotonic() - began
    rest = copy(source, target, ranges_of(source, topic_name, PARTITIONS), topic_name)  # what was written last
    assert [r.error for r in rest] == [None] * PARTITIONS
    assert_equal(source, target, topic_name, PARTITIONS)
    numbers = [int(value or b"") for p in range(PARTITIONS) for *_, value, _ in read(target, topic_name, p)]
    assert sorted(numbers) == list(range(writer.written)), "lost or twice"
    print(
        f"{running_s:.0f} s, tickets of {TICKET_S:.0f} s, {tail.turns} turns, {writer.written} records; the lease was "
        f"unconfirmed at {tail.unconfirmed} of {tail.looks} looks; errors of turns: {tail.errors}"
    )
    assert tail.unconfirmed == 0 and tail.looks > 5 * TICKET_S
