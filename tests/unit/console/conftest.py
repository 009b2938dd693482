"""What commands are given by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.builders import rule
from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster
from tests.memory.rules import Rules


class Time:
    """Seconds that pass in no time; ``meanwhile`` happens in each pause."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.meanwhile: Callable[[float], object] = lambda _: None

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile(seconds)


@pytest.fixture
def time() -> Time:
    return Time()


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


@pytest.fixture
def src(dst: LedgerCluster) -> Iterator[DrivenCluster]:
    """A file ``src`` beside ``dst`` names a source with an authorizer that has one rule: who writes to topic t.

    It is the cluster that :func:`~tests.builders.plan_of` plans for.
    """
    with DrivenCluster("source") as cluster:
        cluster.cluster_id = "s"
        cluster.rules = Rules(now=frozenset({rule("t", "WRITE", "ALLOW", "User:shop")}))
        named(cluster, "src")
        yield cluster


def named(cluster: DrivenCluster, name: str) -> None:
    """Have a file of this name lead to a cluster."""
    lines = [f"{key}={value}\n" for key, value in cluster.config.properties.items()]
    Path(name).write_text("".join(lines), encoding="utf-8")
