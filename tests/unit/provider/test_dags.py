"""The shipped DAGs parse, survive serialization, and say what they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pendulum
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization

from airflow_mirror.mirror import DEFAULT_EXCLUDED_GROUPS

DAGS = Path(__file__).parents[3] / "dags"
IDS = {"kafka_migration", "kafka_window_backfill", "kafka_dr_drill"}


@pytest.fixture(scope="module")
def bag() -> Any:
    return DagBag(str(DAGS))


def test_every_file_parses(bag: Any) -> None:
    assert bag.import_errors == {}
    assert set(bag.dags) >= IDS


def test_form_leaves_out_the_groups_that_a_mirror_leaves_out(bag: Any) -> None:
    assert list(bag.dags["kafka_migration"].params["exclude_groups"]) == list(DEFAULT_EXCLUDED_GROUPS)


def test_every_dag_survives_serialization(bag: Any) -> None:
    for dag in bag.dags.values():
        again = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
        assert set(again.task_dict) == set(dag.task_dict)


def test_parsing_imports_neither_spark_nor_kafka() -> None:
    code = f"""
import sys
sys.path.insert(0, {str(DAGS)!r})
import {", ".join(sorted(IDS))}
heavy = [m for m in ("pyspark", "confluent_kafka", "kafka", "pyarrow", "pandas") if m in sys.modules]
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_form_explains_every_field_of_the_migration(bag: Any) -> None:
    params = bag.dags["kafka_migration"].params
    for name in params:
        param = params.get_param(name)
        assert param.description or param.schema.get("description_md"), name
        assert param.schema.get("section"), name
    assert params["approval"] is False


def test_migration_tasks_run_in_order_from_plan_to_restore(bag: Any) -> None:
    """The tail is stopped after the cutover."""
    dag = bag.dags["kafka_migration"]
    order = ["plan", "create_topics", "sync_configs", "bulk_copy", "start_tail", "wait_for_catch_up", "verify", "cutover",
             "stop_tail", "restore_configs"]  # fmt: skip
    for before, after in zip(order, order[1:], strict=False):
        assert after in dag.get_task(before).get_flat_relative_ids(upstream=False), (before, after)
    assert dag.get_task("approve_cutover").downstream_task_ids == {"cutover"}
    assert dag.get_task("is_approval_wanted").downstream_task_ids == {"approve_cutover", "cutover"}


def test_windows_have_a_length(bag: Any) -> None:
    dag = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(bag.dags["kafka_window_backfill"]))
    window = dag.timetable.infer_manual_data_interval(run_after=pendulum.datetime(2026, 5, 1, 10, 20, tz="UTC"))
    assert (window.end - window.start).total_seconds() == 3600


def test_the_drill_cleans_up_whatever_happens(bag: Any) -> None:
    dag = bag.dags["kafka_dr_drill"]
    assert {t.task_id for t in dag.teardowns} == {"stop_tail", "clean_up"}
    assert dag.get_task("clean_up").on_failure_fail_dagrun


def test_dags_with_a_schedule_wait_until_someone_turns_them_on(bag: Any) -> None:
    assert {d.dag_id for d in bag.dags.values() if d.is_paused_upon_creation} == IDS - {"kafka_migration"}
