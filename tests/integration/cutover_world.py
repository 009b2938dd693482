"""What the tests of the cutover share: two clusters' worth of topics, a writer, a consumer, and a tail to copy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as WireTopicPartition

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.copy.writer.lease_watch import LeaseWatch
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.errors import BrokerError, LeaseLost, MirrorCutOver
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition, NewTopicSpec
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.ledger_store import keep_on
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import claim
from airflow_mirror.plan.store import write as write_plan
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.builders import plan_of, topic_plan
from tests.waiting import wait_until

PARTITIONS = 2


def kept_in(on: Platform, mirror: str, run_dir: Path) -> ReportStore:
    """The report of the run that has this directory on some host."""
    return ReportStore(on.target.reports(mirror), mirror, run_dir.name, run_dir)


@dataclass
class World:
    """A source with an authorizer, a target, one topic on both, a mirror of it with its plan."""

    source_cluster: Cluster
    target_cluster: Cluster
    topic: str
    directory: Path
    groups: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = ClusterAdmin(ClientConfig(self.source_cluster.admin_properties(), "source"), timeout_s=120)
        self.target = ClusterAdmin(ClientConfig(self.target_cluster.admin_properties(), "target"), timeout_s=120)
        for admin in (self.source, self.target):
            # Without this, retention would delete records of 2023 within minutes.
            admin.create_topics([NewTopicSpec(self.topic, PARTITIONS, 1, {"retention.ms": "-1"})], unfenced)
            wait_until(lambda admin=admin: self.topic in admin.topics([self.topic]))
        self.mirror = Mirror(
            name=f"flow-{self.topic[-8:]}", source="src", target="dst", topics=[self.topic], groups=[f"{self.topic}-.*"]
        )
        self.tps = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]

    def close(self) -> None:
        """Take the topic's ACLs away and close the admins."""
        self.source.delete_acls(self.source.describe_acls(resource_type="TOPIC", name=self.topic), unfenced)
        self.source.close()
        self.target.close()

    @property
    def on(self) -> Platform:
        """Both clusters, as a process that begins now finds them."""
        return Platform.of(self.source, self.target)

    def kept(self, run_dir: Path | None = None) -> ReportStore:
        """The report of a run, as its worker finds it."""
        return kept_in(self.on, self.mirror.name, run_dir or self.run_dir)

    @property
    def run_dir(self) -> Path:
        return self.directory / "run"

    def plan(self, partitions: int = PARTITIONS) -> Plan:
        info = self.source.topics([self.topic])[self.topic]
        zeros = dict.fromkeys(range(partitions), 0)
        return plan_of(
            self.mirror, topic_plan(self.topic, zeros, source_topic_id=info.topic_id),
            source_cluster_id=self.source.cluster_id(), target_cluster_id=self.target.cluster_id(),
        )  # fmt: skip

    def keep(self, plan: Plan) -> Plan:
        """Keep a plan on the target, as who has made it does, and claim its topics, as who copies does."""
        ledger = Ledger(self.target)
        ledger.create()
        keep_on(self.target, plan, ledger)
        with suppress(MirrorCutOver):  # whoever looks at a finished cutover copies no more
            claim(ledger, plan, self.target)
        return plan

    def write(self, count: int, user: str | None = "admin") -> None:
        """Write records to the source, every third without a value."""
        producer = Producer(self.source_cluster.properties(user))
        for i in range(count):
            value, key = b"value %d" % i, None if i % 3 else b""
            producer.produce(self.topic, value, key, i % 2, timestamp=1_700_000_000_000 - i * 7)
        assert producer.flush(120) == 0

    @property
    def called(self) -> Path:
        """The file in which is said that a person was called."""
        return self.directory / "called"

    def process(
        self, run_dir: Path | None = None, kill_after: int = 0, max_fence_s: float = 900.0
    ) -> subprocess.Popen[bytes]:  # fmt: skip
        """Start a cutover in a process of its own (``cutover_once.py``), which kills itself, or does not."""
        plan = self.directory / "plan.json"
        if not plan.exists():
            write_plan(self.plan(), plan)
        self.keep(Plan.load(plan))
        settings = {"SOURCE": self.source.config.dump(), "TARGET": self.target.config.dump()}
        script, root = Path(__file__).with_name("cutover_once.py"), str(Path(__file__).parents[2])
        command = [sys.executable, str(script), str(run_dir or self.run_dir), str(plan), str(kill_after)]
        settings |= {"MAX_FENCE_S": str(max_fence_s), "CALLED": str(self.called)}
        env = {**os.environ, **settings, "PYTHONPATH": root}
        return subprocess.Popen(command, env=env, cwd=root)

    def lose(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a cutover, once its fence is up, with the guard that it has started: its host is lost."""
        wait_until(lambda: "DENY WRITE User:*" in self.acls() or process.poll() is not None, timeout_s=300)
        assert process.poll() is None
        guards = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(guards) == 1
        for pid in (*map(int, guards), process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait(60)

    def group(self, suffix: str, offsets: dict[int, int], cluster: str = "source") -> str:
        """Commit positions for a group without members."""
        name = f"{self.topic}-{suffix}"
        admin = self.source if cluster == "source" else self.target
        positions = {TopicPartition(self.topic, p): GroupPosition(o, "note") for p, o in offsets.items()}
        deadline = time.monotonic() + 120
        while True:
            try:
                admin.commit_group_offsets(name, positions, unfenced)
                return name
            except BrokerError:  # a young cluster's coordinator is not where it will be
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def positions(self, group: str, cluster: str = "target") -> dict[int, int]:
        admin = self.source if cluster == "source" else self.target
        return {tp.partition: p.offset for tp, p in admin.group_offsets(group).items()}

    def behind(self) -> int:
        """How many records the target lacks."""
        there, here = self.target.offsets(self.tps), self.source.offsets(self.tps)
        return sum(here[tp] - there[tp] for tp in self.tps)

    def acls(self) -> list[str]:
        """The ACLs on the source topic, as short text."""
        found = self.source.describe_acls(resource_type="TOPIC", name=self.topic)
        return [f"{a.permission} {a.operation} {a.principal}" for a in found]


class HeardFence(AclFence):
    """A fence that is raised once the broker lists it, and the given writer was refused.

    The controller has an ACL before the broker hears of it. On a slow machine that takes longer than the short times of
    these tests, and a write in between would be a leak. A refusal answers everything that was sent before it, too.
    """

    def __init__(self, source: ClusterAdmin, writer: Writer | None = None) -> None:
        super().__init__(source, open_by_default=True)
        self._writer = writer

    def raise_(self, intent: Intent, name: str, permit: Permit) -> None:
        super().raise_(intent, name, permit)
        with suppress(AssertionError):  # one that a guard has lifted is never up: the cutover is to find that out
            wait_until(lambda: self.is_up(intent), timeout_s=30)
        if (writer := self._writer) is not None:
            refused = writer.refused
            wait_until(lambda: writer.refused > refused)


class Writer:
    """A producer that keeps writing until stopped; counts what was acknowledged and what was refused.

    :ivar begun: how many producers it has had. What one has sent is answered before the next begins.
    """

    def __init__(self, properties: dict[str, str], topic: str, every_s: float = 0.02) -> None:
        self._properties, self._topic, self._every_s = properties, topic, every_s
        self._stop, self._lock = threading.Event(), threading.Lock()
        self.acknowledged = self.refused = self.begun = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        self.wait_acknowledged(5)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(180)

    def wait_acknowledged(self, more: int, timeout_s: float = 120.0) -> None:
        """Wait until ``more`` further records were acknowledged."""
        goal, deadline = self.acknowledged + more, time.monotonic() + timeout_s
        while self.acknowledged < goal:
            assert time.monotonic() < deadline, f"no more records acknowledged; {self.refused} refused"
            time.sleep(0.02)

    def _report(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.refused += 1

    def _run(self) -> None:
        # The application's way to live through a fence: a new producer, with fresh metadata, after a refusal.
        number = 0
        while not self._stop.is_set():
            # A refusal comes at once; a record that was given up but written all the same would be counted wrong.
            timeout = {"message.timeout.ms": "120000"}
            producer = Producer({**self._properties, **timeout, "linger.ms": "0", "log_level": "0"})
            self.begun += 1
            refused = self.refused
            while not self._stop.is_set() and self.refused == refused:
                try:
                    producer.produce(self._topic, b"value %d" % number, b"key", number % PARTITIONS, self._report)
                except KafkaException:
                    self.refused += 1
                producer.poll(0)
                number += 1
                self._stop.wait(self._every_s)
            producer.flush(150)
            self._stop.wait(0.2)


@contextmanager
def writer_lease(world: World) -> Iterator[LeaseToken]:
    """Hold the mirror's writer lease, as a job that copies nothing; released at the end, unless it was taken."""
    with WireCluster(world.target.config) as wire:
        token = lease.take(wire, world.mirror.name)
        yield token
        lease.release(wire, token)


class Tail:
    """Copies the topic record by record, under the lease; offsets stay equal because the source has no holes."""

    def __init__(self, world: World) -> None:
        self._world, self._stop, self._stack = world, threading.Event(), ExitStack()
        self._thread = threading.Thread(target=self._run_while_held, daemon=True)

    def __enter__(self) -> Self:
        self._token = self._stack.enter_context(writer_lease(self._world))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(120)
        self._stack.close()

    def _run_while_held(self) -> None:
        with suppress(LeaseLost), closing(LeaseWatch(self._world.target.config, self._token)) as watch:
            self._run(watch.check)

    def _run(self, check: Callable[[], None]) -> None:
        world = self._world
        source, target = world.source_cluster.admin_properties(), world.target_cluster.admin_properties()
        producer = Producer({**target, "linger.ms": "0"})
        consumer = Consumer(
            {
                **source,
                "group.id": "unused",
                "enable.auto.commit": "false",
                "auto.offset.reset": "error",
                "log_level": "0",
            }
        )
        # An admin of its own: the world's belong to the test's thread.
        with closing(ClusterAdmin(world.target.config, timeout_s=120)) as admin:
            ends = admin.offsets(world.tps)
        consumer.assign([WireTopicPartition(world.topic, tp.partition, ends[tp]) for tp in world.tps])
        while not self._stop.is_set():
            message = consumer.poll(0.05)
            check()
            if message is None:
                self._stop.wait(0.01)
            elif message.error() is None:
                kind, timestamp = message.timestamp()
                producer.produce(
                    world.topic, message.value(), message.key(), message.partition(),
                    timestamp=timestamp, headers=message.headers() or [],
                )  # fmt: skip
                producer.poll(0)
        consumer.close()
        producer.flush(240)


class EngineTail(Tail):
    """A tail of the real engine, which goes on in turns, as the streaming job does: also after one ended badly."""

    def _run_while_held(self) -> None:
        world = self._world
        os.environ["CUTOVER_SOURCE"], os.environ["CUTOVER_TARGET"] = (
            admin.config.dump() for admin in (world.source, world.target)
        )
        with closing(ClusterAdmin(world.source.config, timeout_s=120)) as admin:
            identity = admin.topics([world.topic])[world.topic].topic_id
        ranges = [
            CopyRange(
                source_topic=world.topic,
                target_topic=world.topic,
                partition=tp.partition,
                start_offset=0,
                end_offset=None,
                source_topic_id=identity,
            )
            for tp in world.tps
        ]
        work = CopyWork(
            source="env:CUTOVER_SOURCE",
            target="env:CUTOVER_TARGET",
            options=CopyOptions(mirror=world.mirror.name),
            lease=self._token,
        )
        while not self._stop.is_set():
            self.turns += 1
            copy_ranges(work, ranges, duration_s=5, should_stop=self._stop.is_set)
            self._stop.wait(0.2)

    turns = 0


class Member:
    """A live member of a group on the source, in a thread of its own: has read something once the block begins.

    :param crawl_s: commit one offset further in partition 0 every so many seconds, instead of reading on.
    """

    def __init__(self, world: World, group: str, crawl_s: float = 0) -> None:
        self._world, self._group, self._crawl_s = world, group, crawl_s
        self._stop, self._begun = threading.Event(), threading.Event()
        self.commits = 0  # answered ones, while it crawls
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Member:
        self._thread.start()
        assert self._begun.wait(120), "the consumer got no record"
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        consumer = Consumer(
            {
                **self._world.source_cluster.properties("alice"),
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": str(not self._crawl_s).lower(),
                "auto.commit.interval.ms": "200",
                "log_level": "0",
            }
        )
        consumer.subscribe([self._world.topic])
        at, committed = 0, float("-inf")
        while not self._stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._begun.set()
            elif not self._begun.is_set():
                continue
            if self._crawl_s and time.monotonic() - committed > self._crawl_s:
                consumer.pause(consumer.assignment())
                at, committed = at + 1, time.monotonic()
                position = WireTopicPartition(self._world.topic, 0, at)
                consumer.commit(offsets=[position], asynchronous=False)
                self.commits += 1
        consumer.close()
