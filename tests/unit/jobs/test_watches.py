"""What a tail's driver watches knows which topics the job has claimed, also those that join later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.jobs.driver import watches
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.mirror import Mirror
from tests.builders import plan_of, topic_plan

if TYPE_CHECKING:
    import pytest


def test_watches_know_topics_by_the_ids_that_the_job_has_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise they would set, and claim, what somebody else created under the name."""
    known: list[Mapping[str, str] | None] = []

    class Watching:
        def __init__(self, *_: object, ids: Mapping[str, str]) -> None:
            known.append(ids)

        def follow(self, _: object, ids: Mapping[str, str]) -> None:
            known.append(ids)

    for name in ("HoldWatch", "LoopWatch"):
        monkeypatch.setattr(watches, name, Watching)
    for name in ("load", "WireCluster", "ClusterAdmin", "Ledger"):
        monkeypatch.setattr(watches, name, lambda *_: SimpleNamespace(close=lambda: None, peek=None))
    mirror = Mirror(name="m", source="src", target="dst")
    plan = plan_of(mirror, topic_plan("a", {0: 0}, source_topic_id="id-a"))
    job = CopyJob(
        mirror=mirror, source="s", target="t", plan=plan, options=CopyOptions(mirror="m"), target_ids={"a": "id-there"}
    )
    nothing: Any = None
    with watches.Watches(job, nothing, nothing, {}) as watch:
        watch.follow(replace(job, target_ids={"a": "id-there", "b": "id-joined"}))
    assert known == [{"a": "id-there"}] * 2 + [{"a": "id-there", "b": "id-joined"}] * 2
