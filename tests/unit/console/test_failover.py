"""``airflow-mirror failover``: which words it takes, what it does then, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from airflow_mirror.console.main import main
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.direction import direction
from airflow_mirror.plan.ledger_store import keep
from airflow_mirror.plan.owned import Owned
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.ledger import LedgerCluster
from tests.unit.console.conftest import Time
from tests.unit.plan.builders import a_mirror


class World:
    """A mirror whose tail lives, and has not said whether it sees the source."""

    def __init__(self, src: DrivenCluster, dst: LedgerCluster, time: Time) -> None:
        self.src, self.dst, self.time = src, dst, time
        for cluster in (src, dst):
            Writer(cluster.create("t").logs[0]).plain(3)
        with ClusterAdmin(src.config) as admin:
            topic = topic_plan("t", {0: 0}, source_topic_id=admin.topics(["t"])["t"].topic_id)
        clusters = {"source_cluster_id": src.cluster_id, "target_cluster_id": dst.cluster_id}
        plan = plan_of(a_mirror(name="m", source="src"), topic, **clusters)
        keep(plan, dst.state, dst.ledger)
        topic_id = dst.admin.topics(["t"])["t"].topic_id
        tail = ActiveTail(mirror={"name": "m"}, plan=plan.hash, inputs="i", directory="", host="host-a", where="host-a")
        own = Owned(topic_id=topic_id, mirror="m", source_id=src.cluster_id)
        dst.ledger.decide(lambda _: {"topic/t": own.value(), "active/m": tail.value()})
        signs = Heartbeat(dst.state, tail)
        signs.give("RUNNING")
        time.meanwhile = lambda _: signs.give("RUNNING")
        src.requests.clear()
        self.before = self.decided

    @property
    def decided(self) -> Mapping[str, Any]:
        return dict(self.dst.ledger.values())

    def run(self, *words: str) -> int:
        return main(["failover", "--target", "dst", "m", *words], self.time)


@pytest.fixture
def world(src: DrivenCluster, dst: LedgerCluster, time: Time) -> World:
    return World(src, dst, time)


def test_each_word_asks_for_its_part_alone(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.run() == 0 and world.decided == world.before
    *_, last = (said := capsys.readouterr().out).splitlines()
    assert last == "nothing was changed (--yes does it)" and "a failover would be refused without force" in said
    assert world.run("--yes", "--force") == 0
    assert (found := direction(world.decided, "m")) is not None and found.by == "failover"
    assert "mirror 'm' was failed over at" in capsys.readouterr().out and not world.src.requests
    assert world.run("--after", "--source", "src") == 0 and world.src.requests
    assert capsys.readouterr().out == "the source took nothing after the last copied offset\n"


def test_json_is_all_that_is_printed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.run("--json", "--yes", "--force") == 0
    assert json.loads(capsys.readouterr().out)["direction"]["by"] == "failover"


@pytest.mark.parametrize("words", [("--after",), ("--source", "src"), ("--yes", "--source", "src"), ("--force",)])
def test_a_source_is_asked_only_for_what_it_took(world: World, words: tuple[str, ...]) -> None:
    assert world.run(*words) == 2 and not world.src.requests and world.decided == world.before


def test_a_refusal_is_told_and_changes_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.run("--yes") == 2 and world.decided == world.before
    assert "cut off from here is not gone" in capsys.readouterr().err
