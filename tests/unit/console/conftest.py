"""What commands are given by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files ``src``, ``dst``, ``planned`` name clusters at which nobody answers: for who opens them and asks nothing."""
    monkeypatch.chdir(tmp_path)
    for name in ("src", "dst", "planned"):
        Path(name).write_text(f"bootstrap.servers={name}:1\n", encoding="utf-8")


@pytest.fixture
def dst(ledger_target: LedgerCluster, monkeypatch: pytest.MonkeyPatch) -> LedgerCluster:
    """A file ``dst`` names a target that has a ledger."""
    monkeypatch.chdir(Path(ledger_target.reference).parent)
    named(ledger_target, "dst")
    return ledger_target


def named(cluster: DrivenCluster, name: str) -> None:
    """Have a file of this name lead to a cluster."""
    lines = [f"{key}={value}\n" for key, value in cluster.config.properties.items()]
    Path(name).write_text("".join(lines), encoding="utf-8")
