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
from tests.builders import plan_of, topic_plan
from tests.unit.plan.builders import a_mirror

BLOCK = Finding("block", "a check", "topic 'orders'", "found")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """What the plans are; ``words`` are the command's."""
    plan = plan_of(a_mirror(), topic_plan("orders", {0: 0}, source_topic_id="id"))
    made = SimpleNamespace(plan=plan, refusals=[], night=decide(plan, ReadinessFacts(at_ms=1)))

    def planned(mirror: Any, source: ClusterAdmin, target: ClusterAdmin, *, probe: bool) -> Any:
        assert (mirror.name, source.role, target.role, probe) == ("flow", "source", "target", False)
        return made.plan, made.refusals

    monkeypatch.setattr(command, "planned", planned)

    def night_plan(*_: Any, trial_s: float, tasks: int) -> Any:
        made.tried = trial_s, tasks
        return made.night

    monkeypatch.setattr(command, "night_plan", night_plan)
    for role in ("source", "target"):
        (tmp_path / role).write_text(f"bootstrap.servers={role}:9092\n")
    made.words = ["readiness", "--source", f"{tmp_path}/source", "--target", f"{tmp_path}/target", "--name", "flow"]
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
    object.__setattr__(world.plan, "findings", (replace(BLOCK, check="another"),))
    assert main(world.words) == 1 and "blocked: another" in capsys.readouterr().err
    object.__setattr__(world.plan, "findings", ())
    world.refusals = ["in production"]
    assert main(world.words) == 1 and "blocked: in production" in capsys.readouterr().err
