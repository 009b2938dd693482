"""``airflow-mirror lift-fence``: every fence of a mirror is found on the target, and one that stays up is said."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.console import clusters
from airflow_mirror.console import lift_fence as command
from airflow_mirror.console.main import main
from airflow_mirror.cutover import kept
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.fence import CallableFence
from airflow_mirror.cutover.report import CutoverReport, FenceRecord
from airflow_mirror.errors import LedgerMissing, TryAgain
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.kept import keep as keep_plan
from tests.builders import plan_of, topic_plan
from tests.unit.ledger.memory import MemoryLedger, MemoryState

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


class Target(MemoryState):
    """The state on the target; it answers or not."""

    is_away = False

    def read(self) -> dict[str, bytes]:
        if self.is_away:
            raise TryAgain("no broker answered")
        return super().read()

    def write(self, values: Mapping[str, bytes | None]) -> None:
        self.read()
        super().write(values)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    CALLS.clear()
    one = Target()
    for module in (clusters, command):
        monkeypatch.setattr(module, "ClusterAdmin", Cluster)
    for module in (command, kept):
        monkeypatch.setattr(module, "state_of", lambda *_, **__: one)
    ledger = MemoryLedger()
    monkeypatch.setattr(command, "Ledger", lambda target, _: ledger if target.role == "target" else None)
    monkeypatch.setattr(
        "airflow_mirror.cutover.run.end_writing", lambda target, mirror: CALLS.append(f"lease of {mirror}")
    )
    return one


def fenced(target: Target, run: str, plan_hash: str = "", **changes: Any) -> str:
    """A run that ended while its fence was up, on a host that is lost."""
    record = FenceRecord(kind="callable", intent={"topics": ["orders"]}, requested=time.time())
    report = CutoverReport(mirror="flow", plan_hash=plan_hash, fence=record)
    report.outcome = changes.pop("outcome", reports.RUNNING)
    for name, value in changes.items():
        setattr(record, name, value)
    kept.Kept(target, "flow", run, None).save(report)
    return run


def lift(home: Path, *options: str, fence: str = "gate", source: bool = True) -> int:
    words = ["lift-fence", "--mirror", "flow", "--home", str(home), "--fence", f"{__name__}.{fence}"]
    for role in ("source", "target") if source else ("target",):
        (home / role).write_text(f"bootstrap.servers={role}:9092\n")
        words += [f"--{role}", str(home / role)]
    return main([*words, *options])


def is_up(target: Target, run: str) -> bool:
    return run in [one.run for one in kept.fences_up(target.read(), "flow")]


def test_every_run_of_a_mirror_is_looked_at_from_a_host_without_files(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [fenced(target, "monday"), fenced(target, "tuesday")]
    fenced(target, "done", lifted=time.time())
    assert lift(tmp_path) == 0
    assert not any(is_up(target, run) for run in runs) and CALLS == ["source:9092"] * 2
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"run {day}: lifted: callable, topics orders" for day in ("monday", "tuesday")]
    assert lift(tmp_path) == 0
    assert "no fence of mirror 'flow' is up" in capsys.readouterr().out and len(CALLS) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"], "nothing is written to this host"


def test_a_finished_cutovers_fence_stays_unless_told(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = fenced(target, "done", outcome=reports.DONE, kept=True)
    assert lift(tmp_path) == 0
    assert is_up(target, run) and CALLS == [] and "--kept-too lifts it" in capsys.readouterr().out
    assert lift(tmp_path, "--kept-too") == 0
    assert not is_up(target, run) and CALLS == ["lease of flow", "source:9092"]  # no tail may copy what is written then


def test_one_that_can_not_be_lifted_keeps_no_other_up(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target.write({"report/flow/broken/000001-x/0/1": b"{"})
    good = fenced(target, "good")
    assert lift(tmp_path) == 1
    assert not is_up(target, good)
    printed = capsys.readouterr()
    assert "error: run broken: " in printed.err and "is not a cutover report" in printed.err
    assert "run good: lifted" in printed.out


def test_fence_that_does_not_open_is_an_error(target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = fenced(target, "monday")
    assert lift(tmp_path, fence="stuck") == 1
    assert is_up(target, run) and "error: run monday: " in capsys.readouterr().err


def test_fence_comes_down_by_the_file_where_the_target_is_away(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Producers must be able to write to the source again, whatever became of the target."""
    fenced(target, "monday")
    report = kept.Kept(target, "flow", "monday", None).load()
    assert report is not None
    report.save(tmp_path / "flow" / "runs" / "monday")
    target.is_away = True
    assert lift(tmp_path) == 0
    printed = capsys.readouterr()
    assert CALLS == ["source:9092"] and "the target can't be asked (no broker answered)" in printed.err
    assert "but the target still says that it is up: no broker answered" in printed.out
    (elsewhere := tmp_path / "elsewhere").mkdir()
    assert lift(elsewhere) == 1 and "no broker answered" in capsys.readouterr().err


def test_source_is_that_of_the_plan_that_was_cut_over(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror = Mirror(name="flow", source="kafka_dc1", target="kafka_dc2")
    plan = plan_of(mirror, topic_plan("orders", {0: 0}, source_topic_id="id"))
    monkeypatch.setattr("airflow_mirror.plan.kept.state.state_of", lambda *_, **__: target)
    keep_plan(plan, target, MemoryLedger())
    fenced(target, "monday", plan_hash=plan.hash)
    asked = []

    def config_of(name: str, role: str) -> ClientConfig:
        asked.append((role, name))
        return ClientConfig({"bootstrap.servers": "b:1"}, role)

    monkeypatch.setattr(command, "config_of", config_of)
    assert lift(tmp_path, source=False) == 0
    assert asked == [("source", "kafka_dc1")]
    fenced(target, "tuesday", plan_hash="0" * 64)
    assert lift(tmp_path, source=False) == 1
    assert "error: run tuesday: which cluster is the source" in capsys.readouterr().err


def test_a_mirror_that_nobody_knows_is_named_with_those_that_are_known(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(target, "monday")
    (tmp_path / "dst").write_text("bootstrap.servers=dst:9092\n")
    monkeypatch.setitem(sys.modules, "airflow_mirror.hooks.home", None)
    assert main(["lift-fence", "--mirror", "flwo", "--target", str(tmp_path / "dst")]) == 2
    assert "the target has no report of a cutover of it. It has of: flow." in capsys.readouterr().err
