"""The DAG of MirrorMaker 2's file: its flows, its form, and what it reads."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowFailException,
)
from jinja2 import Environment, StrictUndefined

from airflow_mirror.example_dags.kafka_mirrormaker import mirrormaker

# --- a file of MirrorMaker 2 -----------------------------------------------------------------------------------------

TWO_WAYS = """\
clusters = dc1, dc2
dc1.bootstrap.servers = a:1
dc2.bootstrap.servers = b:1
dc2.security.protocol = SASL_SSL
dc2.sasl.mechanism = PLAIN
dc2.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";
dc1->dc2.enabled = true
dc2->dc1.enabled = true
"""


def test_each_flow_of_a_file_has_a_tail_kept_as_a_replication_has(bag: Any) -> None:
    dag, stop = bag.dags["kafka_mirrormaker"], bag.dags["kafka_mirrormaker_stop"]
    order = [task.task_id for task in dag.topological_sort()]
    assert order == [
        "read_file", "flow.is_start_wanted", "flow.plan", "flow.create_topics", "flow.sync_configs", "flow.start_tail",
    ]  # fmt: skip
    alone = bag.dags["kafka_replication"]
    for task in dag.tasks[1:]:
        assert [group.group_id for group in task.iter_mapped_task_groups()] == ["flow"]
        assert {"all_success"} == {task.trigger_rule}, "what fails or is skipped is a flow's own"
        assert type(task) is type(alone.get_task(task.task_id.partition(".")[2])) and task.retries == 1
    assert "xcom_pull('flow.is_start_wanted', key='lost', map_indexes=ti.map_index)" in dag.tasks[-1].replaces
    assert stop.task_ids == ["read_file", "stop_tail"] and stop.get_task("stop_tail").is_mapped


def test_a_flow_is_called_by_its_name(bag: Any) -> None:
    mirror = {"name": "dc1-to-dc2"}
    render = Environment(undefined=StrictUndefined).from_string
    for task in (*bag.dags["kafka_mirrormaker"].tasks[1:], bag.dags["kafka_mirrormaker_stop"].get_task("stop_tail")):
        in_python = task.task_id.endswith("is_start_wanted")
        ready = SimpleNamespace(op_kwargs={"mirror": mirror}) if in_python else SimpleNamespace(mirror=mirror)
        assert render(task.map_index_template).render(task=ready) == "dc1-to-dc2", task.task_id


def test_a_file_is_read_without_its_secrets_and_refused_without_a_retry(bag: Any, tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(TWO_WAYS)
    read = bag.dags["kafka_mirrormaker"].get_task("read_file").python_callable
    both = read({"files": [str(file)], "clusters": []})
    assert [one["name"] for one in both] == ["dc1-to-dc2", "dc2-to-dc1"] and "hunter2" not in str(both)
    assert [one["name"] for one in read({"files": [str(file)], "clusters": ["dc1"]})] == ["dc2-to-dc1"]
    said = r"clusters dc3\n  why: no enabled flow leads there\n  do:  Name some of these: dc1, dc2"
    with pytest.raises(AirflowFailException, match=said):
        read({"files": [str(file)], "clusters": ["dc3"]})
    store = file.with_name("x.jks")
    store.write_bytes(b"\xfe\xed\xfe\xed")
    file.write_text(TWO_WAYS + f"dc2.ssl.truststore.location = {store}\n")
    with pytest.raises(AirflowFailException, match=r"(?s)InputError: .*dc2\.ssl\.truststore\.location"):
        read({"files": [str(file)], "clusters": []})


def test_scheduled_runs_of_a_file_take_what_the_dags_file_says() -> None:
    dag, stop = mirrormaker("into_dc2", ["/etc/mm2.properties"], clusters=["dc2"], attached=True, grace_s=5.0)
    assert (dag.dag_id, stop.dag_id) == ("into_dc2", "into_dc2_stop") and stop.schedule is None
    assert dag.schedule == timedelta(minutes=5) and dag.params["attached"] is True and stop.params["grace_s"] == 5.0
    assert all(
        one.params["files"] == ["/etc/mm2.properties"] and one.params["clusters"] == ["dc2"] for one in (dag, stop)
    )
    with pytest.raises(TypeError, match="no form has a field cluster"):
        mirrormaker("x", ["f"], cluster="dc2")


@pytest.mark.parametrize("dag_id", ["kafka_mirrormaker", "kafka_mirrormaker_stop"])
def test_every_field_of_a_file_is_explained(bag: Any, dag_id: str) -> None:
    params = bag.dags[dag_id].params
    assert all(params.get_param(name).schema["description_md"] for name in params)
