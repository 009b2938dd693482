"""``airflow-mirror configs``: a row for each setting that differs, and a status that says whether any does."""

from __future__ import annotations

import json
import time

import pytest

from airflow_mirror.console.main import main
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.ledger_store import keep
from airflow_mirror.plan.owned import Owned
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster
from tests.unit.plan.builders import a_mirror


class World:
    """A source with settings, a target on hold, and a plan of three topics, of which each side lacks one."""

    def __init__(self, src: DrivenCluster, dst: LedgerCluster) -> None:
        self.src, self.dst = src, dst
        src.clock.now_ms = dst.clock.now_ms = int(time.time() * 1000)  # by which the records of a probe are judged
        for topic in ("orders", "users"):
            src.create(topic)
        for topic in ("orders", "gone"):
            dst.create(topic).set({"retention.bytes": "-1", "cleanup.policy": "delete"})
        src.topics["orders"].set({"retention.bytes": "[5]"})
        dst.topics["orders"].set({"segment.bytes": "7"})

    def keep(self, *topics: str) -> None:
        """Keep a plan of topics, which are the mirror's."""
        with ClusterAdmin(self.src.config) as admin:
            ids = {name: info.topic_id for name, info in admin.topics().items()}
        plans = (topic_plan(name, {0: 0}, source_topic_id=ids.get(name, "id")) for name in topics)
        clusters = {"source_cluster_id": self.src.cluster_id, "target_cluster_id": self.dst.cluster_id}
        keep(plan_of(a_mirror(name="flow"), *plans, **clusters), self.dst.state, self.dst.ledger)
        owned = {name: info.topic_id for name, info in self.dst.admin.topics(list(topics)).items()}
        for name, topic_id in owned.items():
            one = Owned(topic_id=topic_id, mirror="flow", source_id=self.src.cluster_id)
            self.dst.ledger.decide(lambda _, name=name, one=one: {f"topic/{name}": one.value()})  # type: ignore[misc]

    @property
    def settings(self) -> dict[str, str]:
        """Those of topic orders on the target."""
        return self.dst.topics["orders"].settings

    def run(self, *words: str) -> int:
        return main(["configs", "--source", "src", "--target", "dst", "--name", "flow", *words])


@pytest.fixture
def world(src: DrivenCluster, dst: LedgerCluster, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("COLUMNS", "200")
    return World(src, dst)


def test_each_difference_is_a_row_and_what_is_not_compared_is_listed(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.keep("orders", "users", "gone")
    assert world.run("--after") == 1
    found = capsys.readouterr()
    rows = [line.split() for line in found.out.splitlines()[3:] if line.strip()]
    assert ["orders", "retention.bytes", "-1", "[5]"] in rows
    assert ["orders", "segment.bytes", "7", "the", "target's", "default"] in rows
    assert {row[0] for row in rows} == {"orders"}
    assert found.err.splitlines() == [
        "not compared: gone: the source has no such topic", "not compared: users: the target has no such topic",
    ]  # fmt: skip
    assert world.settings["retention.bytes"] == "-1"


def test_json_is_a_list_and_after_is_what_comes_with_the_end(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where nobody has stored a plan."""
    words = ["--include", "orders", "--json"]
    found = {}
    for after in ([], ["--after"]):
        world.run(*words, *after)
        found[bool(after)] = json.loads(capsys.readouterr().out)
    differs = {"topic": "orders", "key": "segment.bytes", "before": "7", "after": None}
    assert differs in found[True]
    assert {"topic": "orders", "key": "retention.bytes", "before": "-1", "after": "[5]"} in found[True]
    assert "retention.bytes" not in {one["key"] for one in found[False]}, "it is on hold"


def test_nothing_that_differs_is_said_with_status_0(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.keep("orders")
    world.run("--yes")
    capsys.readouterr()
    assert world.run() == 0
    assert capsys.readouterr().out == "nothing differs in 1 topic(s)\n"


def test_what_is_set_goes_by_a_plan_that_the_target_keeps(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --name every topic that both sides have would get the source's retention."""
    world.src.create("gone").set({"retention.bytes": "6"})
    assert world.run("--after", "--yes") == 2 and not world.dst.asked("IncrementalAlterConfigs")
    assert "the target keeps no plan of it" in capsys.readouterr().err
    world.keep("orders")
    assert world.run("--yes") == 0 and world.settings["retention.bytes"] == "-1"
    assert world.run("--after", "--yes") == 0 and world.settings["retention.bytes"] == "[5]"
    assert world.dst.topics["gone"].settings["retention.bytes"] == "-1", "no topic of the plan"


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_what_production_has_chosen_since_is_listed_and_stays(
    world: World, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    world.keep("orders")
    world.dst.ledger.decide(
        lambda now: {"topic/orders": {**now["topic/orders"], "opened_by": "p", "opened_at": "monday"}}
    )
    assert world.run("--after", "--yes") == 0 and world.settings["retention.bytes"] == "[5]"
    world.dst.topics["orders"].set({"retention.bytes": "9"})
    capsys.readouterr()
    assert world.run("--after", "--yes", *words) == 0 and world.settings["retention.bytes"] == "9"
    told = capsys.readouterr()
    line = "left alone, since it is in production: orders: retention.bytes: 9 -> [5]"
    assert line in (told.err if words else told.out).splitlines()


def test_a_topic_that_is_left_out_is_no_success(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.keep("orders", "users")
    assert world.run("--after", "--yes") == 1 and world.settings["retention.bytes"] == "[5]"
    capsys.readouterr()
    assert world.run("--after") == 1
    assert capsys.readouterr().out == "nothing differs in 1 topic(s)\n"


def test_where_nothing_is_compared_nothing_is_said_to_be_equal(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.keep("users", "gone")
    assert world.run() == 1
    assert capsys.readouterr().out == "nothing was compared\n"
