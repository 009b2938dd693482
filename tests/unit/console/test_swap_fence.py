"""``airflow-mirror swap-fence``: finds the kept fence on the target, and says what it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.console import clusters
from airflow_mirror.console import swap_fence as command
from airflow_mirror.console.main import main
from airflow_mirror.cutover.decision import OPENED, FenceState, note_copy
from airflow_mirror.cutover.fence import AclFence, name_of
from airflow_mirror.cutover.platform import Side
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.ledger_store import keep as keep_plan
from tests.builders import plan_of, rule, topic_plan
from tests.unit.cutover.builders import Acls
from tests.unit.ledger.memory import MemoryLedger, MemoryState

PLAN = plan_of(
    Mirror(name="flow", source="kafka_dc1", target="kafka_dc2"), topic_plan("orders", {0: 0}, source_topic_id="id")
)


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
    one, state, ledger = Source(rule("orders", "WRITE", "ALLOW", "User:shop")), MemoryState(), MemoryLedger()
    monkeypatch.setattr(command, "ClusterAdmin", lambda _: one)
    monkeypatch.setattr(clusters, "ClusterAdmin", lambda _: one)
    monkeypatch.setattr(Side, "ledger", ledger)
    monkeypatch.setattr(Side, "state", lambda *_, **__: state)
    for role in ("source", "target"):
        (tmp_path / role).write_text(f"bootstrap.servers={role}:9092\n")
    fence = AclFence(one)  # type: ignore[arg-type]
    intent = fence.intent(["orders"])
    fence.raise_(intent, name_of("flow", "monday", "i"), unfenced)
    keep_plan(PLAN, state, ledger)
    there = FenceState(
        run="monday", attempt=1, id="i", plan=PLAN.hash, revision=PLAN.revision, owner="o", max_fence_s=60.0,
        phase=OPENED, intent=intent.value(),
    )  # fmt: skip
    note_copy(ledger, "flow", there)
    return one


def swap(tmp_path: Path, *options: str, mirror: str = "flow") -> int:
    ends: list[Any] = [word for role in ("source", "target") for word in (f"--{role}", str(tmp_path / role))]
    return main(["swap-fence", "--mirror", mirror, *ends, *options])


def test_kept_fence_is_found_shown_and_swapped(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = set(source.acls)
    assert swap(tmp_path, "--principal", "User:CN=mirror") == 0 and source.acls == there
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("would be: ") for line in lines) and len(lines) == 3
    assert swap(tmp_path, "--principal", "User:CN=mirror", "--yes") == 0
    assert "ALLOW WRITE on topic orders for User:CN=mirror" in capsys.readouterr().out
    assert rule("orders", "WRITE", "DENY") not in source.acls
    assert rule("orders", "WRITE", "DENY", "User:shop") in source.acls


def test_principal_that_nobody_knows_is_asked_for(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swap(tmp_path) == 2 and "which principal" in capsys.readouterr().err


def test_mirror_without_a_kept_fence_is_said(source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert swap(tmp_path, "--principal", "User:m", mirror="flo") == 1
    assert "no cutover of mirror 'flo' has finished with" in capsys.readouterr().err
