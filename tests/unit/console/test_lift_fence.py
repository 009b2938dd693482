"""``airflow-mirror lift-fence``: every fence of a mirror is found by its reports, and one that stays up is said."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.console import lift_fence as command
from airflow_mirror.console.main import main
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.fence import CallableFence
from airflow_mirror.cutover.report import CutoverReport, FenceRecord
from airflow_mirror.errors import LedgerMissing
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import PlanDirectory
from tests.builders import plan_of, topic_plan

CALLS: list[str] = []


def gate(source: Any) -> CallableFence:
    """A fence of somebody's own; it does not open for the run that is stuck."""
    assert source.config.role == "source"
    return CallableFence(lambda: None, lambda: CALLS.append(source.config.bootstrap))


def stuck(source: Any) -> CallableFence:
    """A fence that does not open."""

    def off() -> None:
        raise LedgerMissing()

    return CallableFence(lambda: None, off)


class Cluster:
    """An admin that is asked for nothing."""

    def __init__(self, config: ClientConfig) -> None:
        self.config, self.role = config, config.role

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class NoLedger:
    """Nothing was decided."""

    def __init__(self, target: Cluster) -> None:
        assert target.role == "target"

    def decide(self, change: Any) -> None:
        return None


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    CALLS.clear()
    monkeypatch.setattr(command, "ClusterAdmin", Cluster)
    monkeypatch.setattr(command, "Ledger", NoLedger)
    monkeypatch.setattr(
        "airflow_mirror.cutover.run.end_writing", lambda target, mirror: CALLS.append(f"lease of {mirror}")
    )
    return tmp_path


@pytest.fixture
def clusters(tmp_path: Path) -> list[str]:
    words = []
    for role in ("source", "target"):
        (tmp_path / role).write_text(f"bootstrap.servers={role}:9092\n")
        words += [f"--{role}", str(tmp_path / role)]
    return words


def fenced(home: Path, run: str, plan_hash: str = "", **changes: Any) -> Path:
    """A run that ended while its fence was up."""
    record = FenceRecord(kind="callable", intent={"topics": ["orders"]}, requested=time.time())
    report = CutoverReport(mirror="flow", plan_hash=plan_hash, fence=record)
    report.outcome = changes.pop("outcome", reports.RUNNING)
    for name, value in changes.items():
        setattr(record, name, value)
    report.save(home / "flow" / "runs" / run)
    return home / "flow" / "runs" / run


def lift(home: Path, *options: str, fence: str = "gate") -> int:
    return main(["lift-fence", "--mirror", "flow", "--home", str(home), "--fence", f"{__name__}.{fence}", *options])


def is_up(run_dir: Path) -> bool:
    report = CutoverReport.load(run_dir)
    return report is not None and report.is_fenced


def test_every_run_of_a_mirror_is_looked_at(home: Path, clusters: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    runs = [fenced(home, "monday"), fenced(home, "tuesday")]
    fenced(home, "done", lifted=time.time())
    assert lift(home, *clusters) == 0
    assert not any(map(is_up, runs)) and CALLS == ["source:9092"] * 2
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"run {day}: lifted: callable, topics orders" for day in ("monday", "tuesday")]
    assert lift(home, *clusters) == 0
    assert "no fence of mirror 'flow' is up" in capsys.readouterr().out and len(CALLS) == 2


def test_a_finished_cutovers_fence_stays_unless_told(
    home: Path, clusters: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    kept = fenced(home, "done", outcome=reports.DONE, kept=True)
    assert lift(home, *clusters) == 0
    assert is_up(kept) and CALLS == [] and "--kept-too lifts it" in capsys.readouterr().out
    assert lift(home, *clusters, "--kept-too") == 0
    assert not is_up(kept) and CALLS == ["lease of flow", "source:9092"]  # no tail may copy what is written then


def test_one_that_can_not_be_lifted_keeps_no_other_up(
    home: Path, clusters: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    broken = fenced(home, "broken") / "report.json"
    broken.write_text("{")
    good = fenced(home, "good")
    assert lift(home, *clusters) == 1
    assert not is_up(good)
    printed = capsys.readouterr()
    assert "error: run broken: " in printed.err and "is not a cutover report" in printed.err
    assert "run good: lifted" in printed.out


def test_fence_that_does_not_open_is_an_error(
    home: Path, clusters: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = fenced(home, "monday")
    assert lift(home, *clusters, fence="stuck") == 1
    assert is_up(run) and "error: run monday: " in capsys.readouterr().err


def test_clusters_are_those_of_the_plan_that_was_cut_over(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror = Mirror(name="flow", source="kafka_dc1", target="kafka_dc2")
    plan = plan_of(mirror, topic_plan("orders", {0: 0}, source_topic_id="id"))
    PlanDirectory(home / "flow" / "plans").save(plan)
    fenced(home, "monday", plan_hash=plan.hash)
    asked = []

    def config_of(name: str, role: str) -> ClientConfig:
        asked.append((role, name))
        return ClientConfig({"bootstrap.servers": "b:1"}, role)

    monkeypatch.setattr(command, "config_of", config_of)
    assert lift(home) == 0
    assert asked == [("source", "kafka_dc1"), ("target", "kafka_dc2")]
    fenced(home, "tuesday", plan_hash="0" * 64)
    assert lift(home) == 1
    assert f"which cluster is the source, plan {home}/flow/plans/000" in capsys.readouterr().err


def test_a_mirror_that_is_not_there_is_named_with_those_that_are(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(home, "monday")
    assert main(["lift-fence", "--mirror", "flwo", "--home", str(home)]) == 2
    assert "has no such mirror. There: flow." in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "airflow_mirror.hooks.home", None)
    assert main(["lift-fence", "--mirror", "flow"]) == 2
    assert "--home is missing" in capsys.readouterr().err
