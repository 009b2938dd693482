"""``airflow-mirror plan``: what the target's ledger says decides whose topics are, and what blocks is a status."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.policy import DECISIONS, MAP_PARTITIONS, MAPS, STATE, WISHES
from airflow_mirror.console.clusters import both_of
from airflow_mirror.console.main import main
from airflow_mirror.console.plan import said
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.errors import LedgerMissing
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.records import BEGIN
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.markdown import render
from airflow_mirror.plan.owned import Owned
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.ledger import LedgerCluster
from tests.driven.validation import TopicConfig
from tests.unit.plan.builders import a_mirror


class World:
    """A source and a target that have the same topics, each with three records."""

    def __init__(self, src: DrivenCluster, dst: LedgerCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.src, self.dst, self._capsys = src, dst, capsys
        src.rules = None
        src.clock.now_ms = dst.clock.now_ms = int(time.time() * 1000)  # by which the records of a probe are judged
        self.said = ""

    def create(self, *names: str) -> None:
        for name in names:
            for cluster in (self.src, self.dst):
                Writer(cluster.create(name).logs[0]).plain(3)

    def own(self, name: str, mirror: str = "flow", **fields: Any) -> None:
        """Decide whose a topic is."""
        topic_id = self.dst.admin.topics([name])[name].topic_id
        one = Owned(**{"topic_id": topic_id, "mirror": mirror, "source_id": self.src.cluster_id, **fields})
        self.dst.ledger.decide(lambda _: {f"topic/{name}": one.value()})

    def src_id(self, topic: str) -> str:
        """Return the id of a topic at the source, as plans have it."""
        with ClusterAdmin(self.src.config) as admin:
            return admin.topics([topic])[topic].topic_id

    def run(self, *words: str) -> int:
        mirror = () if "--mirror" in words else ("--name", "flow")
        status = main(["plan", "--source", "src", "--target", "dst", *mirror, *words])
        self.out, self.said = self._capsys.readouterr()
        return status

    def plan(self, include: Iterable[str], *words: str) -> dict[str, Any]:
        """Return the plan of some topics."""
        self.status = self.run("--json", "--include", "|".join(include), *words)
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def world(src: DrivenCluster, dst: LedgerCluster, capsys: pytest.CaptureFixture[str]) -> World:
    return World(src, dst, capsys)


def test_topics_of_this_mirror_and_this_source_are_its_own(world: World) -> None:
    world.create(*(names := ["orders", "old", "theirs", "elsewhere", "unnamed", "users"]))
    world.own("orders")
    world.own("old", topic_id="another")
    world.own("theirs", mirror="audit")
    world.own("elsewhere", source_id="x")
    world.own("unnamed", topic_id="")
    plan = world.plan(names)
    assert plan["known_topics"] == {"orders": "identical", "unnamed": "identical"}
    assert {one["object"] for one in plan["findings"] if one["level"] == "block"} == {
        f"target topic {name!r}" for name in ("old", "theirs", "elsewhere", "users")
    }
    assert not world.dst.asked("DeleteTopics"), "no scratch topic"


def test_offset_maps_tell_in_which_mode_a_copy_began(world: World) -> None:
    world.create("orders", "users")
    for name in ("orders", "users"):
        world.own(name)
    world.dst.create(MAPS, MAP_PARTITIONS, TopicConfig(append_time=True, cleanup_policy="compact"))
    one = CopyRange(source_topic="users", target_topic="users", partition=0, start_offset=0, mode=MAPPED)
    MapStore("flow").begin(world.dst.admin.wire, one, 0, 0, unfenced)
    assert world.plan(["orders", "users"], "--probe")["known_topics"] == {"orders": "identical", "users": "mapped"}
    assert world.dst.asked("DeleteTopics"), "rights were tried out on a scratch topic"


def test_topic_that_was_copied_in_another_way_blocks_also_by_hand(world: World) -> None:
    world.create("orders", "users")
    for name, fields in (("orders", {"partitioning": "preserve"}), ("users", {"delivery": "transactional"})):
        world.own(name, **fields)
    world.dst.create(MAPS, MAP_PARTITIONS, TopicConfig(append_time=True, cleanup_policy="compact"))
    for name in ("orders", "users"):
        one = CopyRange(source_topic=name, target_topic=name, partition=0, start_offset=0, mode=MAPPED)
        MapStore("flow").begin(world.dst.admin.wire, one, 0, 0, unfenced)
    plan = world.plan(["orders", "users"], "--partitioning", "by_key")
    assert world.status == 1
    assert [(one["check"], one["object"]) for one in plan["findings"] if one["level"] == "block"] == [
        ("offsets", "target topic 'orders'"), ("offsets", "target topic 'users'"),
    ]  # fmt: skip


def test_keys_stay_in_their_places_when_the_target_topic_has_grown(world: World) -> None:
    """The ledger remembers the count: a job by hand has no last plan, and a topic may have been left out of it."""
    world.create("orders")
    world.own("orders", key_partitions=1)
    world.dst.grow("orders", 4)
    plan = world.plan(["orders"], "--partitioning", "by_key")
    assert [topic["key_partitions"] for topic in plan["topics"]] == [1]
    (told,) = (one for one in plan["findings"] if one["check"] == "partitions")
    assert told["level"] == "warn" and "among the first 1," in told["remedy"]


def test_the_last_plan_on_the_target_is_continued(world: World) -> None:
    """It knows modes and beginnings; unless it is for other clusters, or gone."""
    world.create("orders", "users")
    for name in ("orders", "users"):
        world.own(name)
    world.dst.topics["orders"].set({"retention.ms": "-1"})  # on hold
    topic_id = world.src_id("orders")
    mirror = a_mirror(name="flow", start="latest", keep_configs=["retention.ms"], topics=["orders", "users"])
    topic = topic_plan("orders", {0: 2}, source_topic_id=topic_id, configs={"retention.ms": "5"})
    clusters = {"source_cluster_id": world.src.cluster_id, "target_cluster_id": world.dst.cluster_id}
    last = replace(plan_of(mirror, topic, **clusters), known_topics={"orders": "mapped"})
    Path("flow.json").write_text(json.dumps(mirror.to_dict()), encoding="utf-8")

    def made() -> tuple[Any, Any, Any]:
        world.run("--json", "--mirror", "flow.json")
        plan = json.loads(world.out)
        found = {one["source_topic"]: one for one in plan["topics"]}["orders"]
        return plan["known_topics"], found["starts"], found["configs"].get("retention.ms")

    ledger_store.keep(last, world.dst.state, world.dst.ledger)
    assert made() == ({"orders": "mapped", "users": "identical"}, {"0": 2}, "5")
    ledger_store.keep(replace(last, source_cluster_id="another"), world.dst.state, world.dst.ledger)
    anew = ({"orders": "identical", "users": "identical"}, {"0": 0}, "-1")  # what they begin with the target tells
    assert made() == anew
    ledger_store.keep(last, world.dst.state, world.dst.ledger)
    world.dst.state.write({key: None for key in world.dst.state.read() if key.startswith("plan/")})
    assert made() == anew


@pytest.mark.parametrize(("offsets", "level"), [("auto", "block"), ("mapped", "warn")])
def test_what_others_wrote_into_a_topic_that_was_created_again_is_foreign(world: World, offsets: str, level: str) -> None:
    """The last plan knows it by name, and the mirror's own topic had another id."""
    world.create("orders", "users")
    world.own("orders", topic_id="another")
    world.own("users")
    mirror = a_mirror(name="flow", topics=["orders", "users"], keep_configs=["retention.ms"], offsets=offsets)
    topics = [
        topic_plan(t, {0: 0}, source_topic_id=world.src_id(t), configs={"retention.ms": "5"}) for t in mirror.topics
    ]
    clusters = {"source_cluster_id": world.src.cluster_id, "target_cluster_id": world.dst.cluster_id}
    mode = "mapped" if offsets == "mapped" else "identical"
    last = replace(plan_of(mirror, *topics, **clusters), known_topics={t: mode for t in mirror.topics})
    ledger_store.keep(last, world.dst.state, world.dst.ledger)
    Path("flow.json").write_text(json.dumps(mirror.to_dict()), encoding="utf-8")
    world.dst.topics["orders"].set({"retention.ms": "7"})
    world.run("--json", "--mirror", "flow.json")
    plan = json.loads(world.out)
    (found,) = [one for one in plan["findings"] if one["check"] == "target_data"]
    assert (found["level"], found["object"]) == (level, "target topic 'orders'")
    assert "it holds data that this mirror did not write" in found["evidence"]
    assert plan["topics"][0]["configs"]["retention.ms"] == "7", "its owner's"


def test_checks_that_passed_are_one_line_unless_they_are_asked_for(world: World) -> None:
    world.create("orders")
    world.own("orders")
    assert world.run("--include", "orders") == 0
    (count,) = re.findall(r"\n\n(\d+) checks passed.\n\n", world.out)
    assert "| WARN | disk |" in world.out and "| ok |" not in world.out
    assert world.run("--include", "orders", "--every-check") == 0
    assert "checks passed" not in world.out and world.out.count("\n| ok |") == int(count) > 20
    plan = plan_of(a_mirror(), topic_plan("orders", {0: 0}, source_topic_id="id"))
    assert "\n\n0 checks passed.\n\n" in render(plan, every_check=False)


def test_long_block_is_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    assert said([str(Finding("block", "disk", "target brokers", "nearly full " * 20, "Free some. " * 20))]) == 1
    first, *more = capsys.readouterr().err.splitlines()
    assert first.startswith("blocked: disk: target brokers: nearly full") and len(more) > 2
    assert all(line.startswith(" " * 9) for line in more) and max(map(len, [first, *more])) <= 110


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_every_block_is_said_and_the_plan_is_printed_all_the_same(world: World, json: list[str]) -> None:
    world.create("orders", "users")
    world.own("orders", mirror="audit")
    assert world.run("--include", "orders|users", *json) == 1
    assert world.out.startswith("{" if json else "# Plan of mirror flow")
    lines = [line for line in world.said.splitlines() if line.startswith("blocked: ")]
    for line, about in zip(lines, ("target topic 'orders': it holds", "target topic 'users': it holds", ""), strict=True):
        assert about in line
    assert f"mirror 'audit' of cluster {world.src.cluster_id}" in world.said


def test_topics_in_production_and_a_lost_ledger_block(world: World) -> None:
    world.create("orders")
    world.own("orders", opened_by="abc", opened_at="2026-01-01")
    assert set(world.plan(["orders"])["known_topics"]) == {"orders"}
    assert world.status == 1 and "orders" in world.said
    world.dst.ledger.decide(lambda _: BEGIN.put({"topic_id": "another"}))
    assert world.run("--include", "orders") == 1
    assert "was created again" in world.said and world.out == "", "no plan, and no advice about the topics"
    for topic in (DECISIONS, STATE, WISHES):
        world.dst.delete(topic)
    world.dst.create("orders")  # nobody has begun: the plan's own checks say whether the topics hold data
    assert world.plan(["orders"])["known_topics"] == {"orders": "identical"} and world.status == 0
    Writer(world.dst.topics["orders"].logs[0]).plain(1)
    for offsets in ("identical", "mapped"):  # the latter would only warn of data that stay
        world.plan(["orders"], "--offsets", offsets)
        assert world.status == 1 and "ledger init" in world.said, "no job would begin"
    assert world.plan(["orders"])["known_topics"] == {} and world.status == 1


def test_without_clusters_and_mirror_nothing_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--include", "orders"]) == 2
    assert "--source is missing" in capsys.readouterr().err


def test_a_mirror_names_its_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("kafka_dc1", "kafka_dc2", "given"):
        Path(name).write_text(f"bootstrap.servers={name}:1\n", encoding="utf-8")
    arguments = argparse.Namespace(source=None, target="given", mirror="mirror.json")
    source, target = both_of(arguments, a_mirror(source="kafka_dc1", target="kafka_dc2"))
    assert [(one.role, one.bootstrap) for one in (source, target)] == [("source", "kafka_dc1:1"), ("target", "given:1")]


def test_a_first_plan_onto_an_empty_target_is_no_reason_to_warn() -> None:
    """It said that 'here data were written before', of a target on which nothing is."""
    ledger = SimpleNamespace(values=lambda: (_ for _ in ()).throw(LedgerMissing()))
    told: list[str] = []
    assert ledger_store.last_between("m", None, None, ledger, told.append) is None and told == []  # type: ignore[arg-type]
