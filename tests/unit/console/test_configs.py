"""``airflow-mirror configs``: a row for each setting that differs, and a status that says whether any does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from airflow_mirror.console import configs as command
from airflow_mirror.console.main import main
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.config_diff import Change
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.configs import ConfigsReport
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster
from tests.unit.console.conftest import named
from tests.unit.plan.builders import a_mirror

CHANGES = Change("orders", "retention.ms", "-1", "[5]"), Change("orders", "segment.ms", "7", None)


@pytest.fixture
def src(dst: LedgerCluster) -> Iterator[DrivenCluster]:
    with DrivenCluster("source") as cluster:
        named(cluster, "src")
        yield cluster


@pytest.fixture
def seen(src: DrivenCluster, dst: LedgerCluster, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the command asks for; ``changes`` are what it gets."""
    names = ("orders", "users", "gone")
    plan = plan_of(a_mirror(), *(topic_plan(name, {0: 0}, source_topic_id=f"id-{name}") for name in names))
    seen = SimpleNamespace(
        last=plan, now=replace(plan, topics=plan.topics[:1]), changes=CHANGES, asked=None,
    )  # fmt: skip
    for cluster, topics in ((src, ("orders", "users")), (dst, ("orders", "gone"))):
        for topic in topics:
            cluster.create(topic)

    def sync_plan(plan: Plan, source: ClusterAdmin, target: ClusterAdmin, *, hold: bool, dry_run: bool) -> ConfigsReport:
        assert (source.role, target.role) == ("source", "target")
        seen.asked, seen.dry_run = ([t.source_topic for t in plan.topics], hold, plan.mirror.name), dry_run
        return ConfigsReport(hold, seen.changes, not dry_run or not seen.changes)

    monkeypatch.setattr(command, "last_between", lambda *_: seen.last)
    monkeypatch.setattr(command, "plan_to_read", lambda *_: seen.now)
    monkeypatch.setattr(command, "sync_plan", sync_plan)
    monkeypatch.setenv("COLUMNS", "200")
    seen.words = ["configs", "--source", "src", "--target", "dst", "--name", "flow"]
    return seen


def test_each_difference_is_a_row_and_what_is_not_compared_is_listed(
    seen: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(seen.words) == 1
    found = capsys.readouterr()
    rows = [line.split() for line in found.out.splitlines()[3:] if line.strip()]
    assert rows == [["orders", "retention.ms", "-1", "[5]"], ["orders", "segment.ms", "7", "the", "target's", "default"]]
    assert found.err.splitlines() == [
        "not compared: gone: the source has no such topic", "not compared: users: the target has no such topic",
    ]  # fmt: skip
    assert seen.asked == (["orders"], True, "flow")


def test_json_is_a_list_and_after_is_what_comes_with_the_end(
    seen: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    seen.last = None  # nobody has stored a plan
    assert main([*seen.words, "--after", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[1] == {
        "topic": "orders",
        "key": "segment.ms",
        "before": "7",
        "after": None,
    }
    assert seen.asked == (["orders"], False, "flow")


def test_nothing_that_differs_is_said_with_status_0(seen: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    seen.changes = ()
    assert main(seen.words) == 0
    assert capsys.readouterr().out == "nothing differs in 1 topic(s)\n"


def test_what_is_set_goes_by_a_plan_that_the_target_keeps(
    seen: SimpleNamespace, src: DrivenCluster, dst: LedgerCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --name every topic that both sides have would get the source's retention."""
    src.create("gone"), dst.create("users")
    seen.last = replace(seen.last, topics=seen.last.topics[:1])
    assert main([*seen.words, "--yes"]) == 0 and not seen.dry_run
    assert main([*seen.words, "--after", "--yes"]) == 0 and not seen.dry_run
    assert seen.asked == (["orders"], False, seen.last.mirror.name)
    seen.last, seen.asked = None, None
    assert main([*seen.words, "--after", "--yes"]) == 2 and seen.asked is None
    assert "the target keeps no plan of it" in capsys.readouterr().err


def test_a_topic_that_is_left_out_is_no_success(seen: SimpleNamespace) -> None:
    assert main([*seen.words, "--after", "--yes"]) == 1 and seen.asked is not None
