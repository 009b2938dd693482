"""``airflow-mirror swap-fence``: finds the kept fence on the target, and says what it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.console import clusters
from airflow_mirror.console import swap_fence as command
from airflow_mirror.console.main import main
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.kept import Kept
from airflow_mirror.cutover.report import DONE, CutoverReport, FenceRecord
from tests.builders import rule
from tests.unit.cutover.builders import Acls
from tests.unit.ledger.memory import MemoryState


class Source(Acls):
    """A source with one writer; the principal is that of a certificate, which nobody knows here."""

    principal = None
    config = ClientConfig({"bootstrap.servers": "source:9092"}, "source")

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Source:
    one, state = Source(rule("orders", "WRITE", "ALLOW", "User:shop")), MemoryState()
    monkeypatch.setattr(command, "ClusterAdmin", lambda _: one)
    monkeypatch.setattr(clusters, "ClusterAdmin", lambda _: one)
    monkeypatch.setattr(command, "reports_of", lambda *_: state)
    for role in ("source", "target"):
        (tmp_path / role).write_text(f"bootstrap.servers={role}:9092\n")
    fence = AclFence(one)  # type: ignore[arg-type]
    intent = fence.intent(["orders"])
    fence.raise_(intent)
    for run, kept in (("monday", True), ("tuesday", False)):
        record = FenceRecord(kind="acl", intent=intent, requested=1.0, opened=2.0, kept=kept)
        record.lifted = None if kept else 3.0
        Kept(state, "flow", run, None).save(CutoverReport(mirror="flow", plan_hash="p", outcome=DONE, fence=record))
    return one


def swap(tmp_path: Path, *options: str, mirror: str = "flow") -> int:
    ends: list[Any] = [word for role in ("source", "target") for word in (f"--{role}", str(tmp_path / role))]
    return main(["swap-fence", "--mirror", mirror, "--home", str(tmp_path / "none"), *ends, *options])


def test_kept_fence_is_found_shown_and_swapped(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = set(source.acls)
    assert swap(tmp_path, "--principal", "User:CN=mirror", "--check") == 0 and source.acls == there
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("run monday: would be: ") for line in lines) and len(lines) == 3
    assert swap(tmp_path, "--principal", "User:CN=mirror") == 0
    assert "ALLOW WRITE on topic orders for User:CN=mirror" in capsys.readouterr().out
    assert rule("orders", "WRITE", "DENY") not in source.acls
    assert rule("orders", "WRITE", "DENY", "User:shop") in source.acls


def test_principal_that_nobody_knows_is_asked_for(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swap(tmp_path) == 2 and "which principal" in capsys.readouterr().err


def test_mirror_without_a_kept_fence_is_said(source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert swap(tmp_path, mirror="flo") == 2 and "no cutover of it has kept its fence" in capsys.readouterr().err
