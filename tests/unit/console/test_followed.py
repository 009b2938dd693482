"""What ``follow`` and ``verify`` ask a job to do, by their words and by what the ledger keeps."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.console import copies
from airflow_mirror.console.main import main, parser
from airflow_mirror.console.verify import asked_for
from airflow_mirror.errors import ClusterUnreachable
from airflow_mirror.plan.ledger_store import keep
from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster
from tests.unit.cutover.builders import a_plan

PLAN = a_plan("orders")
CLUSTERS = ["--source", "env:S", "--target", "env:T"]


@pytest.fixture(autouse=True)
def clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ST":
        monkeypatch.setenv(name, '{"bootstrap.servers": "nowhere:1"}')


@pytest.mark.usefixtures("again_at_once")
@pytest.mark.parametrize(("more", "tries"), [([], 3), (["--fail-fast"], 1)])
def test_the_way_back_waits_for_clusters_that_are_away_as_any_tail_does(
    monkeypatch: pytest.MonkeyPatch, more: list[str], tries: int
) -> None:
    asked: list[str] = []

    def way_of(_: Any, mirror: str) -> tuple[Any, str]:
        asked.append(mirror)
        if len(asked) < 3:
            raise ClusterUnreachable("target", "nowhere:1", "refused")
        return SimpleNamespace(plan=PLAN), "env:S"

    monkeypatch.setattr(copies, "way_of", way_of)
    monkeypatch.setattr(copies, "sync_plan", lambda *_, **__: None)
    arguments = parser("follow").parse_args([*CLUSTERS, "--reverse-of", "flow", *more])
    with nullcontext() if tries == 3 else pytest.raises(ClusterUnreachable):
        found = copies._waited_for(arguments)
        assert (found.source, found.target, found.plan) == ("env:T", "env:S", f"{PLAN.hash}.json")
    assert len(asked) == tries
    if tries == 1:
        assert main(["follow", *CLUSTERS, "--reverse-of", "flow", *more]) == 1


def test_a_window_is_compared_as_it_was_resolved_by_the_plan(src: DrivenCluster, dst: LedgerCluster) -> None:
    """Resolved again, its end would be another one: records that came late are in the first one alone."""
    keep(PLAN, dst.state, dst.ledger)
    words = ["--source", "./src", "--target", "./dst", "--mirror", "flow", "--end", "2026-01-01T00:00:00Z"]
    plan, request = asked_for(parser("verify").parse_args(words))
    assert plan == PLAN and (request.plan, request.end) == (f"{PLAN.hash}.json", "2026-01-01T00:00:00Z")
    assert (request.source, request.target) == ("./src", "./dst")
