"""``airflow-mirror readiness``: what it prints, and an exit status that scripts can use."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.console import readiness as command
from airflow_mirror.console.main import main
from airflow_mirror.extras.readiness.build import decide
from airflow_mirror.extras.readiness.look import ReadinessFacts
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import Owned
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.ledger import LedgerCluster
from tests.unit.plan.builders import a_mirror

BLOCK = Finding("block", "a check", "topic 'orders'", "found")


@pytest.fixture
def world(src: DrivenCluster, dst: LedgerCluster, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A topic that is planned; ``words`` are the command's, and ``night`` is what the night's plan is."""
    for cluster in (src, dst):
        Writer(cluster.create("orders").logs[0]).plain(3)
    plan = plan_of(a_mirror(), topic_plan("orders", {0: 0}, source_topic_id="id"))
    made = SimpleNamespace(night=decide(plan, ReadinessFacts(at_ms=1)), src=src, dst=dst)

    def night_plan(plan: Plan, source: ClusterAdmin, target: ClusterAdmin, *, trial_s: float, tasks: int) -> Any:
        assert (plan.mirror.name, source.role, target.role) == ("flow", "source", "target")
        assert not dst.asked("DeleteTopics"), "rights are not tried out"
        made.tried = trial_s, tasks
        return made.night

    def own(topic_id: str = "", **fields: Any) -> None:
        one = Owned(topic_id=topic_id, mirror="flow", source_id=src.cluster_id, **fields)
        dst.ledger.decide(lambda _: {"topic/orders": one.value()})

    monkeypatch.setattr(command, "night_plan", night_plan)
    made.own = own
    own()
    made.words = ["readiness", "--source", "src", "--target", "dst", "--name", "flow", "--include", "orders"]
    return made


def test_it_is_told_to_people_and_to_programs(
    world: SimpleNamespace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:  # fmt: skip
    assert main(world.words) == 0
    assert capsys.readouterr().out.startswith("# The night of mirror dc1-to-dc2") and world.tried == (0.0, 2)
    assert main([*world.words, "--trial", "--tasks", "8"]) == 0 and world.tried == (10.0, 8)
    capsys.readouterr()
    page = tmp_path / "night.html"
    assert main([*world.words, "--json", "--html", str(page)]) == 0
    assert json.loads(capsys.readouterr().out)["waves"][0]["topics"] == ["orders"]
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_structural_change_since_an_earlier_one_blocks(
    world: SimpleNamespace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:  # fmt: skip
    earlier = tmp_path / "night.json"
    earlier.write_text(world.night.to_json(), encoding="utf-8")
    words = [*world.words, "--since", str(earlier)]
    assert main(words) == 0
    world.night = replace(world.night, topics={})
    assert main(words) == 1
    printed = capsys.readouterr()
    assert "blocked: drift: topic 'orders': it is gone." in printed.err and "| BLOCK | drift |" in printed.out
    earlier.write_text("{}", encoding="utf-8")
    assert main(words) == 2 and main([*world.words, "--since", "nowhere.json"]) == 2


def test_blocks_of_either_plan_are_said_and_a_status(world: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    world.night = replace(world.night, findings=[BLOCK, replace(BLOCK, level="warn")])
    assert main(world.words) == 1 and capsys.readouterr().err == "blocked: a check: topic 'orders': found\n"
    world.night = replace(world.night, findings=[])
    world.own("another")
    assert main(world.words) == 1 and "blocked: target_data: target topic 'orders'" in capsys.readouterr().err
    topic_id = world.dst.admin.topics(["orders"])["orders"].topic_id
    world.own(topic_id, opened_by="x", opened_at="noon")
    assert main(world.words) == 1 and "blocked: mirror" in (said := capsys.readouterr().err) and "orders" in said
