"""How long a fence is up: ``python -m benchmarks.fence [--partitions 2000] [--groups 300] [--producers 50]``.

Each round is a whole cutover by ACL between two clusters of its own, at zero lag: producers write to every partition
until the fence, a tail of the engine copies, and each group has a live member that commits where the log ends every five
seconds, as consumers do. Everything that was there before was compared. Prints the seconds of each step, and of the
fence as nobody could write to either cluster; then one JSON object with the median and the 95th percentile.

Producers, tail and members are three processes beside the cutover's. Producers and members are some by the protocol: 50
clients that batch, refresh and retry, and 300 consumers, would cost the machine more than what is measured; brokers get
the same requests. Brokers, and all of this, share one machine.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import json
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig, load
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.platform import PATIENCE_S, Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import Clusters, CutoverRequest
from airflow_mirror.cutover.run import run_cutover
from airflow_mirror.errors import MirrorError
from airflow_mirror.jobs.driver.held_lease import writer_lease
from airflow_mirror.jobs.runner.active import heard_by
from airflow_mirror.jobs.runner.cutover_signs import CutoverSigns
from airflow_mirror.kafka.admin import ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.build import build
from airflow_mirror.plan.ledger_store import keep_on
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import begin
from airflow_mirror.verify.remaining import verify_rest
from airflow_mirror.wire import codec, records
from airflow_mirror.wire import produce as wire_produce
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.errors import RETRIABLE
from airflow_mirror.wire.records import Record
from airflow_mirror.wire.routing import Router, pipelined
from sandbox import Cluster

_SMALL = {"log.index.size.max.bytes": "4096", "log.cleaner.dedupe.buffer.size": str(16 << 20)}
_KEEPS = {"retention.ms": "-1", "retention.bytes": "-1"}
_A_TOPIC = 100  # partitions
_WRITE_EVERY_S = 2.0  # to each partition: the log ends must stand still for longer, but not for more than three seconds
_PRODUCE_TIMEOUT_MS = 30_000
_COMMIT_EVERY_S, _HEARTBEAT_EVERY_S = 5.0, 3.0  # a consumer's defaults
_LIMITS = Limits(quiet_at_most_s=5.0, max_fence_s=120.0)
_MIRROR = "fence-bench"
_SOURCE, _TARGET, _USER = "FENCE_SOURCE", "FENCE_TARGET", "FENCE_USER"


# --- what lives beside the cutover ------------------------------------------------------------------------------------


def produce(topics: Sequence[str], count: int) -> None:
    """Write to each partition every two seconds, each of ``count`` producers to its share; go on when refused."""
    config = load(f"env:{_USER}", "source")
    tps = [TopicPartition(topic, p) for topic in topics for p in range(_A_TOPIC)]
    with ExitStack() as stack:
        producers = [stack.enter_context(WireCluster(config)) for _ in range(count)]
        shares = list[dict[int, list[TopicPartition]]]()
        for number, producer in enumerate(producers):
            by_leader: dict[int, list[TopicPartition]] = {}
            for tp in tps[number::count]:
                by_leader.setdefault(producer.leader(tp).node_id, []).append(tp)
            shares.append(by_leader)
        print("alive", flush=True)
        begun, lives = time.monotonic(), _has_parent()
        for turn in takewhile(lambda _: lives(), itertools.count()):
            producer, share = producers[turn % count], shares[turn % count]
            record = Record(0, time.time_ns() // 1_000_000, b"k", b"v" * 100, [])
            batch = records.encode([record], codec.NONE, -1, -1, -1)
            for node_id, mine in share.items():
                connection = producer.connection(node_id)
                body = wire_produce.encode(dict.fromkeys(mine, batch), _PRODUCE_TIMEOUT_MS)
                connection.receive(connection.send(wire_produce.API_KEY, wire_produce.API_VERSION, body))
            time.sleep(max(0.0, begun + (turn + 1) * _WRITE_EVERY_S / count - time.monotonic()))


def follow(plan_file: str) -> None:
    """Copy everything under the writer lease until somebody takes it."""
    plan = Plan.load(plan_file)
    ranges = [
        CopyRange(
            source_topic=t.source_topic, target_topic=t.target_topic, partition=p, start_offset=0, end_offset=None,
            source_topic_id=t.source_topic_id,
        )
        for t in plan.topics
        for p in range(t.partitions)
    ]  # fmt: skip
    source, target, runs, lives = f"env:{_SOURCE}", f"env:{_TARGET}", threading.Event(), _has_parent()
    with writer_lease(target, _MIRROR, runs.is_set) as held:
        threading.Thread(target=_hear, args=[runs], daemon=True).start()
        time.sleep(held.token.wait_s)
        print("alive", flush=True)
        work = CopyWork(source=source, target=target, options=CopyOptions(mirror=_MIRROR), lease=held.token)
        copy_ranges(work, ranges, None, lambda: not lives())


def _hear(runs: threading.Event) -> None:
    """Say whether the cutover gives signs of life, as a tail's driver hears it."""
    signs = CutoverSigns()
    with ClusterAdmin(load(f"env:{_TARGET}", "target")) as admin:
        state = state_of(admin, *heard_by(_MIRROR))
        while True:
            (runs.set if signs.look(state.read(), _MIRROR) else runs.clear)()
            time.sleep(1.0)


@dataclass
class Member:
    """The one member of a group, which has every partition of a topic. ``due`` are the times of its next requests."""

    group: str
    topic: str
    id: str = ""
    generation: int = -1
    commit_due: float = 0.0
    heartbeat_due: float = 0.0


def consume(topics: Sequence[str], count: int) -> None:
    """Keep ``count`` groups alive, each with one member that commits where its topic ends."""
    config = load(f"env:{_SOURCE}", "source")
    members = {group: Member(group, topics[n % len(topics)]) for n, group in enumerate(_groups(count))}
    with WireCluster(config, timeout_s=120) as wire:
        by_broker, lost = Router(wire).coordinators(list(members))
        while lost:
            time.sleep(0.5)
            by_broker, lost = Router(wire).coordinators(list(members))
        for node_id, groups in by_broker.items():
            for number, group in enumerate(groups):
                _join(wire.connection(node_id), members[group])
                members[group].commit_due = time.monotonic() + _COMMIT_EVERY_S * number / len(groups)
        print("alive", flush=True)
        tps = [TopicPartition(topic, p) for topic in topics for p in range(_A_TOPIC)]
        lives = _has_parent()
        while lives():
            ends, now = wire.last_stable(tps), time.monotonic()
            for node_id, groups in by_broker.items():
                connection = wire.connection(node_id)
                commits = [members[group] for group in groups if members[group].commit_due <= now]
                beats = [members[group] for group in groups if members[group].heartbeat_due <= now]
                _commit(connection, commits, ends)
                _beat(connection, beats)
                for member in commits:
                    member.commit_due = now + _COMMIT_EVERY_S
                for member in beats:
                    member.heartbeat_due = now + _HEARTBEAT_EVERY_S
            time.sleep(0.2)


def _join(connection: Connection, member: Member) -> None:
    from kafka.protocol.consumer.group import JoinGroupRequest as Join
    from kafka.protocol.consumer.group import SyncGroupRequest as Sync

    request = Join(
        group_id=member.group, session_timeout_ms=300_000, rebalance_timeout_ms=30_000, member_id="",
        protocol_type="consumer", protocols=[Join.JoinGroupRequestProtocol(name="range", metadata=b"")], version=2,
    )  # fmt: skip
    while (joined := connection.request(request, 2)).error_code in RETRIABLE:  # a young coordinator loads its groups
        time.sleep(0.5)
    assert not joined.error_code, joined
    member.id, member.generation = joined.member_id, joined.generation_id
    assigned = [Sync.SyncGroupRequestAssignment(member_id=member.id, assignment=b"")]
    its = Sync(
        group_id=member.group, generation_id=member.generation, member_id=member.id, assignments=assigned, version=1
    )
    synced = connection.request(its, 1)
    assert not synced.error_code, synced


def _commit(connection: Connection, members: Sequence[Member], ends: dict[TopicPartition, int]) -> None:
    from kafka.protocol.consumer.group import OffsetCommitRequest as Commit

    topic = Commit.OffsetCommitRequestTopic
    messages = [
        Commit(
            group_id=member.group, generation_id_or_member_epoch=member.generation, member_id=member.id,
            retention_time_ms=-1, version=2, topics=[
                topic(name=member.topic, partitions=[
                    topic.OffsetCommitRequestPartition(
                        partition_index=p, committed_offset=ends[TopicPartition(member.topic, p)], committed_metadata=""
                    )
                    for p in range(_A_TOPIC)
                ])
            ],
        )
        for member in members
    ]  # fmt: skip
    for answer in pipelined(connection, messages, 2):
        codes = {p.error_code for t in answer.topics for p in t.partitions} - {0}
        assert not codes, f"commits of members are refused: {codes}"


def _beat(connection: Connection, members: Sequence[Member]) -> None:
    from kafka.protocol.consumer.group import HeartbeatRequest as Beat

    messages = [
        Beat(group_id=member.group, generation_id=member.generation, member_id=member.id, version=1) for member in members
    ]
    for answer in pipelined(connection, messages, 1):
        assert not answer.error_code, answer


def _has_parent() -> Callable[..., bool]:
    """Return the question whether this process's parent lives: nothing stays behind of one that was killed."""
    parent = os.getppid()
    return lambda *_: os.getppid() == parent


def _groups(count: int) -> list[str]:
    return [f"fence-{number:04}" for number in range(count)]


# --- the cutovers -----------------------------------------------------------------------------------------------------


class Profiled(AclFence):
    """A fence behind which a profile runs."""

    def __init__(self, source: ClusterAdmin, profile: cProfile.Profile | None) -> None:
        super().__init__(source, open_by_default=True)
        self._profile = profile

    def raise_(self, intent: Intent, name: str, permit: Permit) -> None:
        """Raise it, and begin to watch."""
        if self._profile is not None:
            self._profile.enable()
        super().raise_(intent, name, permit)


class World:
    """Two clusters, and a mirror between them that has copied what was written before."""

    def __init__(self, source: Cluster, target: Cluster, given: argparse.Namespace, directory: Path) -> None:
        self.given, self.directory = given, directory
        self.topics = [f"t{number:03}" for number in range(max(1, given.partitions // _A_TOPIC))]
        here, there = (ClientConfig(c.admin_properties(), role) for c, role in ((source, "source"), (target, "target")))
        user = ClientConfig(source.properties("alice"), "source")
        self.environment = {_SOURCE: here.dump(), _TARGET: there.dump(), _USER: user.dump()}
        self.source, self.target = ClusterAdmin(here, timeout_s=120), ClusterAdmin(there, timeout_s=120)
        for admin in (self.source, self.target):
            for topic in self.topics:
                admin.create_topics([NewTopicSpec(topic, _A_TOPIC, 1, _KEEPS)], unfenced)
            while len(admin.topics(self.topics)) < len(self.topics):
                time.sleep(0.5)
        mirror = Mirror(name=_MIRROR, source="a", target="b", topics=self.topics, groups=["fence-.*"])
        Ledger(self.target, PATIENCE_S).create()
        self.plan = build(mirror, self.source, self.target)
        self.plan.raise_if_blocked()
        keep_on(self.target, self.plan, begin(self.plan, self.target))
        self.plan_file = directory / "plan.json"
        self.plan_file.write_text(self.plan.to_json())
        self.tps = [TopicPartition(topic, p) for topic in self.topics for p in range(_A_TOPIC)]
        self.profile = cProfile.Profile() if given.profile else None
        self.compared: dict[TopicPartition, int] = {}

    @contextmanager
    def beside(self, what: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """Run one of the processes that live beside the cutover."""
        command = [sys.executable, "-m", "benchmarks.fence", "--as", what, *map(str, arguments), *self.topics]
        environment = {**os.environ, **self.environment}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def round(self, number: int) -> CutoverReport:
        """Cut over, and let that be done once more."""
        with self.beside("tail", self.plan_file) as tail:
            require_alive(tail)
            self._caught_up()
            compared = self._compare()
            config = self.source.config, self.target.config
            on, run_dir = Platform.of(self.source, self.target), self.directory / f"run-{number}"
            try:
                report = run_cutover(
                    CutoverRequest(plan=self.plan, limits=_LIMITS, keep_fence=False, accept_ledger_writers=["User:*"]),
                    Clusters(
                        on=on, fence=Profiled(self.source, self.profile), compared_to=compared,
                        verify=verify_rest(self.plan, *config, compared),
                    ),
                    ReportStore(on.target.reports(_MIRROR), _MIRROR, run_dir.name, run_dir),
                )  # fmt: skip
            except MirrorError:
                if (left := CutoverReport.load(run_dir)) is not None:
                    print(f"round {number} ended early: {_steps(left)}", file=sys.stderr)
                raise
            if self.profile is not None:
                self.profile.disable()
            on.target.ledger.decide(lambda _: {f"topic/{t.target_topic}": None for t in self.plan.topics})
        return report

    def _caught_up(self) -> None:
        """Wait until the tail is no more behind than what is written in a second."""
        deadline = time.monotonic() + 300
        while self._behind() > len(self.tps) / _WRITE_EVERY_S:
            assert time.monotonic() < deadline, "the tail does not catch up"
            time.sleep(1)

    def _behind(self) -> int:
        here, there = (admin.wire.last_stable(self.tps) for admin in (self.source, self.target))
        return sum(here.values()) - sum(there.values())

    def _compare(self) -> dict[TopicPartition, int]:
        """Compare all that is there, as VerifyMirrorOperator does before a cutover."""
        ends = self.target.wire.last_stable(self.tps)
        found = verify_rest(self.plan, self.source.config, self.target.config, self.compared)(ends)
        assert all(one.equal for one in found)
        self.compared = ends
        return ends


def require_alive(process: subprocess.Popen[str]) -> None:
    """Wait until a process says that it does its work."""
    assert process.stdout is not None and process.stdout.readline().strip() == "alive"


def measure(world: World) -> dict[str, Any]:
    """Print each round, and return the figures of all."""
    fences, steps = list[float](), list[dict[str, float]]()
    given = world.given
    with world.beside("members", given.groups) as members, world.beside("producers", given.producers) as writers:
        require_alive(members)
        require_alive(writers)
        time.sleep(3)
        for number in range(given.rounds):
            report = world.round(number)
            assert report.fence is not None and report.fence.seconds is not None
            fences.append(report.fence.seconds)
            steps.append({step.name: step.seconds for step in report.steps})
            why = {g.settled for g in report.groups}
            predicted = report.predicted.get("seconds")
            print(
                f"round {number}: fence {fences[-1]:.2f} s (predicted {predicted}): {_steps(report)}; "
                f"{len(report.groups)} groups {why}, "
                f"{sum(row['records'] for row in report.verification)} records compared",
                file=sys.stderr,
            )
            assert members.poll() is None and writers.poll() is None and len(report.groups) == given.groups
    return {
        "partitions": len(world.tps), "groups": given.groups, "producers": given.producers, "rounds": given.rounds,
        "fence_median_s": round(statistics.median(fences), 2), "fence_p95_s": round(p95(fences), 2),
        "steps_median_s": {name: round(statistics.median(s[name] for s in steps), 2) for name in steps[0]},
    }  # fmt: skip


def _steps(report: CutoverReport) -> str:
    return ", ".join(f"{step.name} {step.seconds:.2f}" for step in report.steps)


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile, between the two values around it."""
    return values[0] if len(values) == 1 else statistics.quantiles(values, n=20, method="inclusive")[18]


def main(argv: Sequence[str]) -> int:
    """Measure and print one JSON object; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fence", description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=2000, help=f"in topics of {_A_TOPIC}")
    parser.add_argument("--groups", type=int, default=300, help="each reads one topic")
    parser.add_argument("--producers", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--profile", action="store_true", help="print where the time behind the fence went")
    parser.add_argument("--as", dest="role", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.role:
        what, argument, *topics = given.role
        if what == "tail":
            follow(argument)
        else:
            {"members": consume, "producers": produce}[what](topics, int(argument))
        return 0
    options: dict[str, Any] = {"overrides": _SMALL, "heap_mb": 1024, "ready_timeout_s": 240.0}
    with ExitStack() as stack:
        source = stack.enter_context(Cluster("fence-source", authorizer=True, **options))
        target = stack.enter_context(Cluster("fence-target", **options))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="airflow-mirror-fence-")))
        world = World(source, target, given, directory)
        print(json.dumps(measure(world)), flush=True)
        if world.profile is not None:
            pstats.Stats(world.profile, stream=sys.stderr).sort_stats("cumulative").print_stats(60)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
