"""Topics of a running mirror pass to a mirror of their own, a wave's: both go on, and each is cut over alone."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.console.main import main
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.failover.check import mirror_of
from airflow_mirror.cutover.platform import PATIENCE_S, Platform, Side
from airflow_mirror.errors import VerificationFailed
from airflow_mirror.hooks.remembered import proofs_of
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build, ledger_store
from airflow_mirror.plan.owned import owned_topics, target_ids
from airflow_mirror.plan.ownership import begin, claim
from airflow_mirror.plan.requirements import require_active
from airflow_mirror.plan.store import write as write_plan
from airflow_mirror.sync.configs import sync_configs
from airflow_mirror.sync.topics import create_target_topics
from airflow_mirror.verify.remaining import verify_rest
from sandbox import Cluster
from tests.cutting_over import cut_over as cut
from tests.integration.copying import assert_equal, config, create, ends, properties_of, wait_until, write
from tests.integration.cutover_once import LIMITS
from tests.integration.cutover_world import kept_in

pytestmark = pytest.mark.months

ROOT = Path(__file__).parents[2]
RECORDS = 100


class World:
    """A mirror of three topics; a group reads two of them, another one the third."""

    def __init__(self, source: Cluster, target: Cluster, name: str, directory: Path, close: ExitStack) -> None:
        self.clusters, self.directory, self._close = (source, target), directory, close
        self.source, self.target = (close.enter_context(ClusterAdmin(config(c), 120)) for c in self.clusters)
        self.orders, self.pay, self.users = topics = [f"{name}-{topic}" for topic in ("orders", "pay", "users")]
        self.billing, self.mail = f"{name}-billing", f"{name}-mail"
        self.ledger = Ledger(self.target, PATIENCE_S)
        self.old, self.new = f"all-{name[-8:]}", f"wave-{name[-8:]}"
        self.mirror = Mirror(
            name=self.old, source="src", target="dst", topics=[f"{name}-.*"], groups=[f"{name}-.*"], group_interval_s=1,
        )  # fmt: skip
        for topic in topics:
            create(source, topic, retention_ms="900000000000")
            write(source, topic, RECORDS, seed=1)
        self.stands(self.billing, {self.orders: 50, self.pay: 60})
        self.stands(self.mail, {self.users: 70})

    def stands(self, group: str, offsets: dict[str, int]) -> None:
        positions = {TopicPartition(topic, 0): GroupPosition(offset) for topic, offset in offsets.items()}
        self.source.commit_group_offsets(group, positions, unfenced)

    def plan(self, mirror: Mirror) -> Plan:
        """Plan as the task of a DAG does, from what the target keeps of the mirror's last plan."""
        self.ledger.create()
        last = ledger_store.last_hash(self.ledger.values(), mirror.name)
        before = ledger_store.fetch(last, mirror.name, self.target, self.ledger) if last else None
        known = before.known_topics if before else {}
        plan = build(mirror, self.source, self.target, known, probe_target=False)
        plan.raise_if_blocked()
        begin(plan, self.target)
        require_active(self.ledger, plan, self.target)
        ledger_store.keep(plan, state_of(self.target, PLAN.below(mirror.name)), self.ledger)
        create_target_topics(plan, self.target, unfenced)
        claim(self.ledger, plan, self.target)
        sync_configs(plan, self.source, self.target, unfenced)
        return plan

    def tail(self, plan: Plan) -> Tail:
        return self._close.enter_context(Tail(plan, *self.clusters, self.directory))

    def split(self, *options: str) -> int:
        clusters = properties_of(self.directory, *self.clusters)
        return main(["split", *clusters, "--mirror", self.old, "--to", self.new, *options])

    def at(self, group: str) -> dict[str, int]:
        return {tp.topic: position.offset for tp, position in self.target.group_offsets(group).items()}

    def level(self, *topics: str) -> bool:
        here, there = self.clusters
        return all(ends(here, topic) == ends(there, topic) for topic in topics)


class Tail:
    """A tail in a process of its own (``tail_main.py``); killed at the end."""

    def __init__(self, plan: Plan, source: Cluster, target: Cluster, directory: Path) -> None:
        files = [directory / f"{plan.mirror.name}.{what}.json" for what in ("mirror", "plan")]
        files[0].write_text(json.dumps(plan.mirror.to_dict()))
        write_plan(plan, files[1])
        self.log = directory / f"{plan.mirror.name}.log"
        clusters = {"TEST_SOURCE": config(source).dump(), "TEST_TARGET": config(target).dump()}
        command = [sys.executable, str(Path(__file__).with_name("tail_main.py")), *map(str, files)]
        with self.log.open("wb") as out:
            env = os.environ | clusters | {"PYTHONPATH": str(ROOT)}
            self._process = subprocess.Popen(command, env=env, stdout=out, stderr=out, start_new_session=True)

    def __enter__(self) -> Tail:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        return self._process.wait(120)


@pytest.fixture
def world(source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as close:
        yield World(source_cluster, target_cluster, topic_name, tmp_path, close)


def test_wave_of_a_running_mirror_is_cut_over_alone(
    world: World, capsys: pytest.CaptureFixture[str], unhurried: None
) -> None:
    """Nothing is copied or compared again, groups still follow in both directions, and the others' tail never stops."""
    wave, others = (world.orders, world.pay), (world.users,)
    whole = world.plan(world.mirror)
    tail = world.tail(whole)
    wait_until(lambda: world.level(*wave, *others), "all is copied")
    followed = {world.orders: 50, world.pay: 60}
    wait_until(
        lambda: world.at(world.billing) == followed and world.at(world.mail) == {world.users: 70},
        "groups follow",
        240,
        0.5,
    )
    compared = {TopicPartition(topic, 0): (0, RECORDS) for topic in (*wave, *others)}
    proofs_of(world.mirror, world.target).add(whole, target_ids(whole, world.target), "batches", compared)

    topics = ",".join(wave)
    before = world.ledger.values()
    assert world.split("--topics", topics, "--yes") == 2 and "its tail runs on host" in capsys.readouterr().err
    assert tail.stop() == 0, tail.log.read_text()
    assert world.split("--topics", world.orders, "--yes") == 2
    assert f"group '{world.billing}' also reads {world.pay}" in capsys.readouterr().err
    assert world.split("--topics", topics) == 0 and "nothing was changed" in capsys.readouterr().out
    assert world.ledger.values() == before
    assert world.split("--topics", topics, "--yes") == 0
    assert {topic: one.mirror for topic, one in owned_topics(world.ledger).items() if topic in (*wave, *others)} == {
        **dict.fromkeys(wave, world.new), **dict.fromkeys(others, world.old)
    }  # fmt: skip
    for mirror, its in ((world.old, others), (world.new, wave)):  # a disaster at this moment
        assert {t.source_topic for t in mirror_of(Side(world.target), mirror)[0].topics} == set(its)
    capsys.readouterr()
    assert world.split("--topics", topics, "--yes", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["steps"] == [] and told["groups"] == [world.billing], "the second time nothing is left"

    refused = world.tail(whole)  # its Mirror still selects them
    assert refused.ended() == 2 and f"mirror '{world.new}'" in refused.log.read_text()
    rest = world.tail(world.plan(dataclasses.replace(world.mirror, exclude_topics=told["exclude_topics"])))
    plan = world.plan(Mirror.from_dict(told["mirror"]))
    assert [t.source_topic for t in plan.topics] == sorted(wave)
    verified = proofs_of(plan.mirror, world.target).ends(plan, target_ids(plan, world.target), "batches")
    assert verified == dict.fromkeys((TopicPartition(topic, 0) for topic in wave), RECORDS)

    world.stands(world.billing, {world.orders: 20, world.pay: 61})
    for topic in (*wave, *others):
        write(world.clusters[0], topic, 10, seed=2)
    moving = world.tail(plan)
    wait_until(lambda: world.level(*wave, *others), "both go on where the one ended")
    moved = {world.orders: 20, world.pay: 61}
    wait_until(lambda: world.at(world.billing) == moved, "a group that is set back is still known as ours", 240, 0.5)

    def differs(_: object) -> list[Any]:
        """What is written to the other mirror's topic behind the fence comes through it."""
        write(world.clusters[0], world.users, 5, seed=3)
        wait_until(lambda: world.level(*others), "the others are copied behind the wave's fence")
        raise VerificationFailed(["a difference that somebody made up"])

    with pytest.raises(VerificationFailed):
        cut_over(world, plan, verify=differs)
    moving.ended()  # a cutover ends its tail
    assert rest.lives, rest.log.read_text()
    write(world.clusters[0], world.pay, 10, seed=4)
    moving = world.tail(plan)
    wait_until(lambda: world.level(*wave), "after backing out the wave's tail goes on")
    cut_over(world, plan)
    moving.ended()
    assert rest.lives, rest.log.read_text()
    opened = {topic for topic, one in owned_topics(world.ledger).items() if one.opened_by == plan.hash}
    assert opened == set(wave)
    write(world.clusters[0], world.users, 10, seed=5)
    write(world.clusters[0], world.pay, 10, seed=6)
    wait_until(lambda: world.level(*others), "the others are copied behind the wave's opening")
    assert not world.level(world.pay), "what the old cluster takes after the opening stays there"
    for topic in (world.orders, world.users):
        assert_equal(*world.clusters, topic)


def cut_over(world: World, plan: Plan, **changed: Any) -> None:
    given = {"verify": verify_rest(plan, world.source.config, world.target.config), **changed}
    on = Platform.of(world.source, world.target)
    cut(
        on, plan, kept_in(on, plan.mirror.name, world.directory / "run"), keep_fence=False, limits=LIMITS,
        fence=CallableFence(lambda: None, lambda: None),
        accept_ledger_writers=["User:*"], **given,
    )  # fmt: skip
