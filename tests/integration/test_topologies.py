"""Who writes where, on three real clusters: each topology delivers every record once, and none goes in a circle."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.console.main import main
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import InputError, LedgerLost, NeedsHuman, TopicsOwned
from airflow_mirror.jobs.driver.prepare import CopyJob, resolve_ranges
from airflow_mirror.jobs.planning import plan_to_read
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import SETTINGS, Ledger
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan
from airflow_mirror.plan.owned import owned_topics
from airflow_mirror.plan.ownership import begin, claim, mark_cut_over, release
from airflow_mirror.plan.upstream import upstream_of
from airflow_mirror.sync.loops import LoopWatch
from airflow_mirror.sync.topics import create_target_topics
from airflow_mirror.verify.remaining import verify_rest
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster, clusters
from tests.builders import plan_of, topic_plan
from tests.integration import copying
from tests.integration.copying import config, create, ends, properties_of, read, wait_until, write
from tests.integration.test_spark_jobs import end_job, submit

pytestmark = pytest.mark.months

SHARED = {"ownership": "shared", "delivery": "transactional", "sync_groups": False, "sync_configs": False}


@pytest.fixture(scope="module")
def sites() -> Iterator[dict[str, Cluster]]:
    with clusters("a", "b", "c", overrides={"broker.session.timeout.ms": "60000"}) as several:
        yield {cluster.name: cluster for cluster in several}


@dataclass
class World:
    """Mirrors between the clusters, each done in the steps of a job; nothing but the clusters remembers anything."""

    sites: dict[str, Cluster]
    topic: str
    close: ExitStack
    admins: dict[str, ClusterAdmin] = field(default_factory=dict)
    last: dict[str, Plan] = field(default_factory=dict)  # plans by source

    def __post_init__(self) -> None:
        for name, cluster in self.sites.items():
            self.admins[name] = self.close.enter_context(ClusterAdmin(config(cluster), timeout_s=120))

    def fill(self, *where: str, topic: str | None = None, count: int = 30) -> None:
        """Let an application create the topic and write to it, other records in each cluster."""
        for site in where:
            create(self.sites[site], topic or self.topic)
            write(self.sites[site], topic or self.topic, count, seed=ord(site))

    def plan(self, here: str, there: str, **fields: Any) -> Plan:
        found = {"name": f"{here}-{there}-{self.topic[-8:]}", "topics": [f"(.*[.])?{self.topic}"], **fields}
        mirror = Mirror(source=here, target=there, **found)
        plan = plan_to_read(mirror, self.admins[here], self.admins[there])
        plan.raise_if_blocked()
        return plan

    def start(self, here: str, there: str, **fields: Any) -> Plan:
        plan = self.plan(here, there, **fields)
        ledger = begin(plan, self.admins[there])
        upstream = upstream_of(plan, Ledger(self.admins[here]).peek())
        create_target_topics(plan, self.admins[there], unfenced)
        claim(ledger, plan, self.admins[there], upstream.of)
        return plan

    def flow(self, here: str, there: str, **fields: Any) -> Plan:
        """Copy everything that is there now."""
        plan = self.last[here] = self.start(here, there, **fields)
        ranges = self.ranges(here)
        results = copying.copy(
            self.sites[here], self.sites[there], ranges, plan.mirror.name, delivery=plan.mirror.delivery
        )
        assert [(r.error, r.done) for r in results] == [(None, True)] * len(ranges)
        return plan

    def ranges(self, here: str) -> list[CopyRange]:
        """Return what is there now, as the last plan says."""
        plan = self.last[here]
        job = CopyJob(mirror=plan.mirror, source="", target="", plan=plan, options=CopyOptions(mirror=plan.mirror.name))
        with WireCluster(config(self.sites[here])) as source:
            return resolve_ranges(job, source, "earliest", "latest")[0]

    def records(self, site: str, topic: str | None = None) -> list[Any]:
        """What a consumer reads there, without offsets."""
        return [seen[1:] for seen in read(self.sites[site], topic or self.topic)]

    def topics(self, site: str) -> list[str]:
        return [name for name in self.admins[site].topic_names() if self.topic in name]

    def upstream(self, site: str, topic: str | None = None) -> list[str]:
        """The clusters upstream of a topic, by their names here."""
        names = {self.admins[name].cluster_id(): name for name in self.sites}
        return sorted(names[one] for one in owned_topics(Ledger(self.admins[site]))[topic or self.topic].feeds)


@pytest.fixture
def world(sites: dict[str, Cluster], topic_name: str) -> Iterator[World]:
    with ExitStack() as close:
        yield World(sites, topic_name, close)


def test_active_and_passive_change_roles_after_a_cutover(world: World) -> None:
    """Before it, the way back would be a circle."""
    world.fill("a")
    there = world.flow("a", "b")
    assert read(world.sites["b"], world.topic) == read(world.sites["a"], world.topic)
    with pytest.raises(InputError, match=f"topic '{world.topic}': its records come from the target"):
        world.plan("b", "a")
    ids = {world.topic: world.admins["b"].topics([world.topic])[world.topic].topic_id}
    mark_cut_over(Ledger(world.admins["b"]), there, ids, "2026-01-31T12:00:00+00:00")
    write(world.sites["b"], world.topic, 20, seed=3)
    Ledger(world.admins["a"]).create()  # as "airflow-mirror ledger init" does, where data came before the first plan
    world.flow("b", "a")
    assert len(world.records("a")) == 50 and world.records("a") == world.records("b")


def test_active_and_active_by_prefix_copy_each_record_once(world: World) -> None:
    """Both select everything, again and again: what came from the other side does not go back."""
    world.fill("a", "b")
    for here, there in ("ab", "ba") * 2:
        plan = world.flow(here, there, policy="prefix")
    assert [f.evidence.rpartition(": ")[2] for f in plan.findings if f.check == "loops"] == [f"a.{world.topic}"]
    for here, there in ("ab", "ba"):
        assert world.topics(there) == sorted([world.topic, f"{here}.{world.topic}"])
        assert world.records(there, f"{here}.{world.topic}") == world.records(here)


def test_active_and_active_share_names_of_disjoint_topics(world: World) -> None:
    one, other = f"one-{world.topic}", f"other-{world.topic}"
    world.fill("a", topic=one)
    world.fill("b", topic=other)
    world.flow("a", "b", topics=["one-.*"], exclude_topics=[f"(?!.*{world.topic}).*"])
    world.flow("b", "a", topics=[other])
    assert [world.records(site, topic) for topic in (one, other) for site in "ab"] == [
        world.records(site, topic) for site, topic in (("a", one), ("a", one), ("b", other), ("b", other))
    ]


def test_fan_in_by_prefix_keeps_sources_apart(world: World) -> None:
    world.fill("a", "b")
    for here in "ab":
        world.flow(here, "c", policy="prefix")
        assert world.records("c", f"{here}.{world.topic}") == world.records(here)


def merged(world: World) -> None:
    """What is on ``c`` are all records of ``a`` and ``b``, each once, in the order of its source; and maps say so."""
    there = world.records("c")
    for here in "ab":
        ours = world.records(here)
        assert [record for record in there if record in ours] == ours
        found = verify_rest(world.last[here], *(config(world.sites[site]) for site in (here, "c")), level="records")
        ends_here = {TopicPartition(world.topic, 0): ends(world.sites[here], world.topic)[0][1]}
        assert [(one.equal, one.records) for one in found(ends_here)] == [(True, len(ours))]
    assert len(there) == len(world.records("a")) + len(world.records("b"))


def test_fan_in_to_a_shared_topic_goes_on_after_each_other(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exclusive mirror gets it neither before the last one has given it up, nor does a sharing one get another's."""
    world.fill("a", "b")
    for round_ in range(2):
        for here in "ab":
            world.flow(here, "c", **SHARED)
            write(world.sites[here], world.topic, 10, seed=10 * ord(here) + round_)
    for here in "ab":
        world.flow(here, "c", **SHARED)
    merged(world)
    assert world.upstream("c") == ["a", "b"]
    _, _, _, target = properties_of(tmp_path, world.sites["a"], world.sites["c"])
    assert main(["ledger", "show", "--target", target, "--json"]) == 0
    shown = [row for row in json.loads(capsys.readouterr().out) if row["topic"] == world.topic]
    assert [(row["mirror"], row["state"]) for row in shown] == [
        (world.last[here].mirror.name, "the mirror's") for here in "ab"
    ]
    alone = replace(world.last["a"], mirror=replace(world.last["a"].mirror, name="alone", ownership="exclusive"))
    with pytest.raises(TopicsOwned, match="shared by mirror 'a-c-.*, mirror 'b-c-"):
        claim(Ledger(world.admins["c"]), alone, world.admins["c"])
    with pytest.raises(InputError, match="its records come from the target"):
        world.plan("c", "b")
    ledger = Ledger(world.admins["c"])
    assert release(ledger, world.last["a"].mirror.name, lambda: None) == [world.topic]
    assert world.upstream("c") == ["b"]


def test_fan_in_at_the_same_time_holds_each_record_once(world: World) -> None:
    """Both are killed again and again while the other one writes, in the middle of transactions."""
    world.fill("a", "b", count=700)
    chance, ranges = random.Random(7), {}
    for here in "ab":
        world.last[here] = world.start(here, "c", **SHARED)
        ranges[here] = world.ranges(here)

    def copier(here: str) -> subprocess.Popen[str]:
        return copying.copier_process(
            world.sites[here], world.sites["c"], ranges[here], world.last[here].mirror.name, wait=False,
            delivery="transactional", transaction_bytes=9000, max_bytes_per_second=40_000, merge_below=0,
        )  # fmt: skip

    running = {here: copier(here) for here in "ab"}
    for victim in "abab":
        before = ends(world.sites["c"], world.topic)
        wait_until(lambda b=before: ends(world.sites["c"], world.topic) != b, "they write")
        time.sleep(chance.random())
        if running[victim].poll() is None:
            os.killpg(running[victim].pid, signal.SIGKILL)
        running[victim].communicate()
        running[victim] = copier(victim)
    for process in running.values():
        assert [(r.error, r.done) for r in copying.results_of(process)] == [(None, True)]
    copying.await_stable(world.sites["c"], world.topic)
    merged(world)


def test_fan_out_is_two_mirrors_of_one_source(world: World) -> None:
    world.fill("a")
    for there in "bc":
        world.flow("a", there)
        assert read(world.sites[there], world.topic) == read(world.sites["a"], world.topic)


def test_a_chain_of_three_ends_where_it_would_close(world: World) -> None:
    world.fill("a")
    for here, there in ("ab", "bc"):
        world.flow(here, there)
    assert read(world.sites["c"], world.topic) == read(world.sites["a"], world.topic)
    assert world.upstream("c") == ["a", "b"]
    for back in "ab":
        with pytest.raises(InputError, match="its records come from the target"):
            world.plan("c", back)


def test_a_mesh_of_three_by_prefix_is_no_ring(world: World) -> None:
    """Each of six mirrors selects everything. A copy of a copy is one, but nothing comes home, and nothing would."""
    world.fill(*"abc")
    mesh = list(itertools.permutations("abc", 2))
    for here, there in mesh:
        world.flow(here, there, policy="prefix")
    for here, there in mesh:
        planned = [t.source_topic for t in world.plan(here, there, policy="prefix").topics]
        assert world.topic in planned and f"{there}.{world.topic}" not in planned
    for site in "abc":
        for topic in world.topics(site):
            assert topic.split(".")[-2:-1] != [site], f"{topic} came back to {site}"
            assert world.records(site, topic) == world.records(topic.split(".")[-2] if "." in topic else site)


def test_tails_stop_a_ring_whose_plans_were_made_at_once(world: World) -> None:
    """Every topic is empty: each plan is right by what it can see."""
    for site in "abc":
        create(world.sites[site], world.topic)
    ring = [(here, there, world.plan(here, there)) for here, there in ("ab", "bc", "ca")]
    watches = []
    for here, there, plan in ring:
        ledger = begin(plan, world.admins[there])
        watches.append(LoopWatch(plan, Ledger(world.admins[here]).peek, ledger, world.admins[there]))

    def stopped() -> list[NeedsHuman]:
        found = []
        for one in reversed(watches):
            try:
                one.look()
            except NeedsHuman as e:
                found.append(e)
        return found

    looks = next(n for n in range(1, 9) if stopped())
    assert looks <= 3
    with pytest.raises(InputError, match="its records come from the target"):
        for here, there, _ in ring:
            world.plan(here, there)


def test_a_tail_ends_when_its_records_come_back(world: World, tmp_path: Path) -> None:
    """A mirror in the other direction begins while it runs, started by somebody whose version knows nothing of rings."""
    world.fill("a")
    log, properties = tmp_path / "tail.log", properties_of(tmp_path, world.sites["a"], world.sites["b"])
    tail = submit("streaming_tail.py", *properties, "--include", world.topic, "--name", world.topic, log=log)
    try:
        wait_until(
            lambda: world.topic in world.admins["b"].topic_names() and ends(world.sites["b"], world.topic)[0][2] == 30,
            "the tail copies", 120, 0.5,
        )  # fmt: skip
        back = plan_of(
            Mirror(name="back", source="b", target="a", topics=[world.topic]),
            topic_plan(world.topic, {0: 0}, source_topic_id=""), source_cluster_id=world.admins["b"].cluster_id(),
        )  # fmt: skip
        Ledger(world.admins["a"]).create()
        claim(Ledger(world.admins["a"]), back, world.admins["a"])
        assert tail.wait(120) == 1
    finally:
        end_job(tail)
    assert f"{world.topic}: mirror 'back' of cluster" in log.read_text()


def test_a_source_ledger_that_is_lost_blocks_a_plan(world: World) -> None:
    world.fill("a")
    admin = world.admins["a"]
    if DECISIONS in admin.topic_names():
        admin.delete_topics([DECISIONS], unfenced)
        wait_until(lambda: DECISIONS not in admin.topic_names(), "the ledger is gone")
    world.plan("a", "b")
    create(world.sites["a"], DECISIONS, **{k.replace(".", "_"): v for k, v in SETTINGS.items()})
    world.plan("a", "b")  # its creation was cut short: nothing was decided in it
    write(world.sites["a"], DECISIONS, 1, seed=1)
    with pytest.raises(LedgerLost):
        Ledger(admin).peek()
    with pytest.raises(InputError, match="source cluster: its ledger can't be read"):
        world.plan("a", "b")
    admin.delete_topics([DECISIONS], unfenced)
    wait_until(lambda: DECISIONS not in admin.topic_names(), "what stood in its place is gone")
    Ledger(admin).create()  # a mirror to this cluster would find the traces of one that was lost
