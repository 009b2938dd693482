"""The sensor looks until its time is over, keeps what it saw, and fails without a retry where somebody writes."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.after import After, GroupAfter
from airflow_mirror.cutover.platform import Side
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.hooks.home import report_dir
from airflow_mirror.mirror import Mirror
from airflow_mirror.sensors.after import WatchCutoverSensor
from tests.provider.conftest import InMemory


def seen(seconds: float, **fields: Any) -> After:
    groups = [GroupAfter(group="g", state="Stable", committed=True, lag=0)]
    given = {"moved": {}, "fence": "up", "copied_by": "", "groups": groups, **fields}
    return After(mirror="m", seconds=seconds, **given)


@pytest.fixture
def found(clusters: InMemory, monkeypatch: pytest.MonkeyPatch) -> list[After]:
    """What the next looks see."""
    looks: list[After] = []
    monkeypatch.setattr("airflow_mirror.cutover.after.look_after", lambda *_: looks.pop(0))
    monkeypatch.setattr("airflow_mirror.cutover.report_store.reports_of", lambda *_: None)
    monkeypatch.setattr(ReportStore, "load", lambda _: CutoverReport(mirror="m", plan_hash="p"))
    monkeypatch.setattr(Side, "plan", lambda *_: None)
    who = SimpleNamespace(waiting=["group 'g' has not come to the target"], unseen=["groups: no"])
    monkeypatch.setattr("airflow_mirror.extras.clients.inventory.look", lambda *_: who)
    return looks


def test_sensor_is_done_when_its_time_is_over(
    context: dict[str, Any], mirror: dict[str, Any], found: list[After]
) -> None:
    sensor = WatchCutoverSensor(task_id="w", mirror=mirror, watch_s="600")
    assert sensor.reschedule, "it keeps no slot for ten minutes"
    found += [seen(599.0), seen(600.0)]
    assert [sensor.poke(context).is_done for _ in range(2)] == [False, True]
    kept = json.loads((report_dir(Mirror.from_dict(mirror), "manual__1") / "after.json").read_text())
    assert kept["waiting"] == ["group 'g' has not come to the target", "not seen: groups: no"]
    assert kept["seconds"] == 600.0 and kept["groups"] == [{"group": "g", "state": "Stable", "committed": True, "lag": 0}]


def test_source_that_is_written_to_fails_the_task_for_good(
    context: dict[str, Any], mirror: dict[str, Any], found: list[After]
) -> None:
    found.append(seen(30.0, moved={TopicPartition("orders", 1): 3}))
    with pytest.raises(AirflowFailException, match=r"SourceNotSilent: .*orders-1 by 3"):
        WatchCutoverSensor(task_id="w", mirror=mirror).poke(context)
    kept = json.loads((report_dir(Mirror.from_dict(mirror), "manual__1") / "after.json").read_text())
    assert kept["moved"] == {"orders-1": 3}, "what was seen is kept"
