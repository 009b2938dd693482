"""Windows are copied once, oldest first; a second run writes nothing and says that all is equal."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox import Cluster
from sandbox.airflow import AirflowStandalone
from tests.e2e.records import create, fill, read_all
from tests.e2e.test_migration import explain

pytestmark = pytest.mark.drills

DAG = "kafka_window_backfill"
HOUR_MS = 3_600_000
DAY_MS = 1_772_323_200_000  # 2026-03-01T00:00:00Z
CONF = {"name": "windows", "topics": ["metered"], "source": "e2e_source", "target": "e2e_target"}


def window(hour: Any) -> Any:
    start, end = f"2026-03-01T{hour:02}:00:00+00:00", f"2026-03-01T{hour + 1:02}:00:00+00:00"
    return {"logical_date": start, "data_interval_start": start, "data_interval_end": end}


@pytest.fixture(scope="module")
def metered(airflow: AirflowStandalone, world: tuple[Cluster, Cluster]) -> Any:
    """Four hours of records, in order by hour (within an hour they fall and repeat)."""
    source, _ = world
    create(source.admin_properties(), "metered", 2, **{"retention.ms": "-1"})
    for hour in range(4):
        fill(source.properties("alice"), "metered", 200, seed=hour, at_ms=DAY_MS + hour * HOUR_MS + HOUR_MS // 2)
    airflow.turn_on(DAG)
    return read_all(source.admin_properties(), "metered")


def run(airflow: Any, hour: Any, run_id: Any = None) -> Any:
    run_id = airflow.trigger(DAG, CONF, run_id, **window(hour))
    return run_id, airflow.wait(DAG, run_id, timeout_s=1200)


@pytest.fixture(scope="module")
def copied(airflow: AirflowStandalone, world: tuple[Cluster, Cluster], metered: Any) -> Any:
    """Windows 1 and 2, one after the other: the run of the second, and what the target held after each."""
    held = []
    for hour in (1, 2):
        run_id, state = run(airflow, hour)
        assert state == "success", explain(airflow, run_id, DAG)
        held.append(read_all(world[1].admin_properties(), "metered"))
    return run_id, held


def test_two_windows_are_copied_and_second_run_writes_nothing(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster], metered: Any, copied: Any
) -> None:
    run_id, held = copied
    for hour, rows in zip((1, 2), held, strict=True):
        assert rows == [r for r in metered if DAY_MS + HOUR_MS <= r[2] < DAY_MS + (hour + 1) * HOUR_MS]
    # Again, by clearing the second window's run: compared, nothing written.
    airflow.clear(DAG, run_id, "copy_window", downstream=True)
    assert airflow.wait(DAG, run_id, timeout_s=1200) == "success"
    assert airflow.xcom(DAG, run_id, "copy_window")["records"] == 0
    assert airflow.xcom(DAG, run_id, "verify_window")["differences"] == []
    assert read_all(world[1].admin_properties(), "metered") == held[-1]


def test_backfill_with_airflows_defaults_copies_days_in_order(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster], metered: Any
) -> None:
    source, target = world
    create(source.admin_properties(), "daily", 1, **{"retention.ms": "-1"})
    for day in range(3):
        fill(source.properties("alice"), "daily", 100, seed=day, at_ms=DAY_MS + (31 + day) * 24 * HOUR_MS + HOUR_MS)
    made = airflow.api(
        "POST", "backfills",
        {
            "dag_id": DAG, "from_date": "2026-04-01T00:00:00Z", "to_date": "2026-04-03T00:00:00Z", "max_active_runs": 10,
            "dag_run_conf": {**CONF, "name": "daily", "topics": ["daily"]}, "reprocess_behavior": "none",
        },
    )  # fmt: skip
    runs = airflow.api("GET", f"dags/{DAG}/dagRuns?run_type=backfill&order_by=logical_date")["dag_runs"]
    assert made["id"] and len(runs) == 3, "a day is one run"
    for one in runs:
        assert airflow.wait(DAG, one["dag_run_id"], timeout_s=1200) == "success", explain(airflow, one["dag_run_id"], DAG)
    assert read_all(target.admin_properties(), "daily") == read_all(source.admin_properties(), "daily")


def test_window_older_than_the_copy_is_refused(airflow: AirflowStandalone, copied: Any) -> None:
    """Offsets cannot be put in front of what has been copied."""
    run_id, state = run(airflow, 0)
    assert state == "failed"
    assert "window from 2026-03-01T00:00:00+00:00: the copy of" in airflow.log(DAG, run_id, "copy_window")
