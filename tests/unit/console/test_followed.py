"""What ``follow`` and ``verify`` ask a job to do, by their words and by what the ledger keeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.console import copies, verify
from airflow_mirror.console.main import main
from airflow_mirror.errors import ClusterUnreachable
from airflow_mirror.jobs.plain import run
from airflow_mirror.jobs.request import TailRequest, VerifyRequest
from tests.unit.cutover.builders import a_plan

PLAN = a_plan("orders")
CLUSTERS = ["--source", "env:S", "--target", "env:T"]


@pytest.fixture(autouse=True)
def clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ST":
        monkeypatch.setenv(name, '{"bootstrap.servers": "nowhere:1"}')


@pytest.mark.usefixtures("again_at_once")
@pytest.mark.parametrize(("more", "tries", "status"), [([], 3, 0), (["--fail-fast"], 1, 1)])
def test_the_way_back_waits_for_clusters_that_are_away_as_any_tail_does(
    monkeypatch: pytest.MonkeyPatch, more: list[str], tries: int, status: int
) -> None:
    asked: list[str] = []
    seen: list[TailRequest] = []

    def way_of(_: Any, mirror: str) -> tuple[Any, str]:
        asked.append(mirror)
        if len(asked) < 3:
            raise ClusterUnreachable("target", "nowhere:1", "refused")
        return SimpleNamespace(plan=PLAN), "env:S"

    def work(request: TailRequest, _: object) -> Any:
        seen.append(request)
        return {}, None

    monkeypatch.setattr(copies, "way_of", way_of)
    monkeypatch.setattr(copies, "sync_plan", lambda *_, **__: None)
    monkeypatch.setattr(run, "work", work)
    assert main(["follow", *CLUSTERS, "--reverse-of", "flow", *more]) == status
    assert len(asked) == tries
    if status == 0:
        assert (seen[0].source, seen[0].target, seen[0].plan) == ("env:T", "env:S", f"{PLAN.hash}.json")


def test_a_window_is_compared_as_it_was_resolved_by_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolved again, its end would be another one: records that came late are in the first one alone."""
    seen: list[VerifyRequest] = []

    def work(request: VerifyRequest, *_: object) -> Any:
        seen.append(request)
        return {}, None

    monkeypatch.setattr(verify, "last_plan", lambda _: PLAN)
    monkeypatch.setattr(verify, "_work", work)
    assert main(["verify", *CLUSTERS, "--mirror", "flow", "--end", "2026-01-01T00:00:00Z"]) == 0
    assert (seen[0].plan, seen[0].end) == (f"{PLAN.hash}.json", "2026-01-01T00:00:00Z")
