"""``airflow-mirror translate``: a row for each position, and a status that says whether a commit would be refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.config import ClientConfig
from airflow_mirror.console import translate as command
from airflow_mirror.console.main import main
from airflow_mirror.errors import GroupActive
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.group_translation import GroupMove
from airflow_mirror.sync.groups import GroupReport
from tests.builders import plan_of, topic_plan
from tests.unit.plan.builders import a_mirror

MOVES = (
    GroupMove(
        group="[billing]", source=TP("orders", 0), target=TP("dc1.orders", 0), source_offset=1_200, target_offset=1_174,
        before=None, action="commit", found="exact",
    ),
    GroupMove(
        group="shipping", source=TP("orders", 0), target=TP("orders", 0), source_offset=7, target_offset=7, before=9,
        action="kept", note="the group is 2 offsets further on the target", found="identical",
    ),
)  # fmt: skip


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """What the command asks for; ``report`` and ``plan`` are what it gets."""
    plan = plan_of(a_mirror(), topic_plan("orders", {0: 0}, source_topic_id="id"))
    seen = SimpleNamespace(report=GroupReport(moves=MOVES, committed=False), plan=plan, asked=None)

    def translate_groups(made: Plan, source: ClientConfig, target: ClientConfig, **asked: Any) -> GroupReport:
        assert made is seen.plan and (source.role, target.role) == ("source", "target")
        seen.asked = asked
        if isinstance(seen.report, Exception):
            raise seen.report
        return seen.report

    monkeypatch.setattr(command, "plan_to_read", lambda mirror, source, target: seen.plan)
    monkeypatch.setattr(command, "translate_groups", translate_groups)
    monkeypatch.setenv("COLUMNS", "200")
    for role in ("source", "target"):
        (tmp_path / role).write_text(f"bootstrap.servers={role}:9092\n")
    seen.words = ["translate", "--source", f"{tmp_path}/source", "--target", f"{tmp_path}/target"]
    return seen


def test_each_position_is_a_row_with_both_sides(seen: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(seen.words) == 0
    assert seen.asked == {"commit": False, "allow_rewind": False, "back": False, "allow_production": False}
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "[billing] orders-0 -> dc1.orders-0 1,200 1,174 exact commit" in rows
    assert "shipping orders-0 7 7 9 identical kept: the group is 2 offsets further on the target" in rows
    assert "nothing was committed (--yes does it)" in rows


def test_json_is_the_report(seen: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*seen.words, "--json", "--yes", "--back", "--allow-rewind", "--allow-production"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(seen.report.to_dict()))
    assert seen.asked == {"commit": True, "allow_rewind": True, "back": True, "allow_production": True}


def test_what_a_commit_would_refuse_is_said_with_status_1(
    seen: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    seen.report = GroupReport(
        moves=(), committed=False, without_positions=("idle",), problems=("offset 12: not there",), active=("live",)
    )
    assert main(seen.words) == 1
    printed = capsys.readouterr()
    assert printed.err.splitlines() == ["refused: offset 12: not there", "refused: group 'live' has members there"]
    assert "no group has a position in these topics" in printed.out
    assert "without a position in these topics: idle" in printed.out
    seen.report = GroupActive("live", "target", "Stable")
    assert main([*seen.words, "--yes"]) == 1


def test_a_target_without_the_topics_is_refused(seen: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    seen.plan = plan_of(a_mirror(), topic_plan("orders", {0: 0}, source_topic_id="id", target_exists=False))
    assert main(seen.words) == 1
    assert "the target has no topic 'orders'" in capsys.readouterr().err and seen.asked is None
