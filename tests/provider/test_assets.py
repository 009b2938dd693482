"""Copies, comparisons and cutovers tell their topics as the Kafka provider's assets: lineage, and events of an alias."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.apache.kafka.assets.kafka import create_asset
from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector
from airflow.sdk import Asset, AssetAlias, lineage
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.task_runner import _serialize_outlet_events
from airflow.serialization.serialized_objects import DagSerialization

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.request import Clusters
from airflow_mirror.cutover.rollback import run as rollback
from airflow_mirror.cutover.rollback.run import WayBack
from airflow_mirror.hooks import assets
from airflow_mirror.hooks.kafka import MirrorKafkaHook
from airflow_mirror.operators.cutover import CutoverOperator
from airflow_mirror.operators.mirror import StartMirrorOperator
from airflow_mirror.operators.rollback import RollbackCutoverOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator
from airflow_mirror.plan import Plan
from airflow_mirror.sync.lag import PartitionLag
from tests.builders import topic_plan
from tests.provider.conftest import PLAN, Started, store_plan

HERE, THERE = "kafka://127.0.0.1:1/t", "kafka://127.0.0.1:2/t"
ALIAS = AssetAlias("mirrored")


@pytest.fixture(autouse=True)
def _connected(connections: Callable[..., None]) -> None:
    pass


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], tuple[list[str], list[str]]]]:
    """Inputs and outputs, as Airflow's own collector has them for a plugin that reads lineage."""
    monkeypatch.setattr("airflow.sdk.plugins_manager.get_hook_lineage_readers_plugins", lambda: [object])
    lineage.get_hook_lineage_collector.cache_clear()

    def uris() -> tuple[list[str], list[str]]:
        found = get_hook_lineage_collector().collected_assets
        assert all(isinstance(one.context, MirrorKafkaHook) for one in (*found.inputs, *found.outputs))
        return [one.asset.uri for one in found.inputs], [one.asset.uri for one in found.outputs]

    yield uris
    lineage.get_hook_lineage_collector.cache_clear()


@pytest.fixture
def events(context: dict[str, Any]) -> Callable[[], list[dict[str, Any]]]:
    """What Airflow sends of a task's outlets when it has succeeded."""
    context["outlet_events"] = OutletEventAccessors()
    return lambda: cast("Any", list(_serialize_outlet_events(context["outlet_events"])))


def plan_with(home: Path, plan: Plan, **offsets: int) -> Plan:
    """A stored plan of these topics, each with so many offsets."""
    topics = tuple(
        topic_plan(name, {0: 0}, source_topic_id=name, ends={0: most}) for name, most in sorted(offsets.items())
    )
    return store_plan(home, replace(plan, topics=topics))


def event_of(found: dict[str, Any]) -> tuple[str, str, Any]:
    return found["source_alias_name"], found["dest_asset_key"]["uri"], found["extra"]


def test_copy_reads_the_sources_topics_and_writes_the_targets(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any], fake_spark: Started,
    collected: Callable[[], Any], events: Callable[[], Any],
) -> None:  # fmt: skip
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, outlets=[ALIAS]).execute(context)
    assert collected() == ([HERE], [THERE])
    assert Asset(THERE).uri == create_asset(server="127.0.0.1:2", topic="t").uri, "as the Kafka provider has it"
    assert [event_of(one) for one in events()] == [("mirrored", THERE, {"mirror": "m", "by": "copy", "source": HERE})]
    waits_for = Asset(THERE)
    assert events()[0]["dest_asset_key"] == {"name": waits_for.name, "uri": waits_for.uri}, "a DAG names no more"
    assert "hunter2" not in json.dumps(events()) and "PEM-of-src" not in str(collected())


def test_tail_that_begins_has_copied_nothing_that_a_dag_could_wait_for(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any], fake_spark: Started, home: Path,
    collected: Callable[[], Any], events: Callable[[], Any], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A bulk copy that waits for it has."""
    fake_spark[1]["is"] = "copying"
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail", outlets=[ALIAS]).execute(context)
    assert collected() == ([HERE], [THERE]) and events() == []
    monkeypatch.setattr("airflow_mirror.sync.lag.measure", lambda *_: [PartitionLag(TopicPartition("t", 0), 9, 9)])
    monkeypatch.setattr("airflow_mirror.sync.lag.require_planned_topics", lambda *_: None)
    StartMirrorOperator(plan=PLAN, task_id="b", mirror=mirror, outlets=[ALIAS]).execute(context)
    assert [event_of(one)[1] for one in events()] == [THERE]


def test_comparison_reads_both_sides(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any], fake_spark: Started,
    collected: Callable[[], Any], events: Callable[[], Any],
) -> None:  # fmt: skip
    VerifyMirrorOperator(plan=PLAN, task_id="v", mirror=mirror, outlets=[ALIAS]).execute(context)
    assert collected() == ([HERE, THERE], [])
    assert [event_of(one)[2]["by"] for one in events()] == ["verify"]


def test_cutover_tells_its_topics_beside_its_summary(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any], collected: Callable[[], Any], events: Callable[[], Any],
    cut_over_by: Callable[..., None],
) -> None:  # fmt: skip
    report = CutoverReport(mirror="m", plan_hash=PLAN, outcome="cut_over")
    cut_over_by(lambda *_, **__: report)
    switched = Asset("switched")
    CutoverOperator(plan=PLAN, task_id="c", mirror=mirror, outlets=[switched, ALIAS]).execute(context)
    assert collected() == ([HERE], [THERE])
    by_key = {one["dest_asset_key"]["name"]: one["extra"] for one in events()}
    assert by_key[THERE]["by"] == "cutover" and by_key["switched"]["outcome"] == "cut_over"


def test_rollback_reads_the_target_and_writes_the_old_source(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any], collected: Callable[[], Any], events: Callable[[], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    back = replace(plan, mirror=replace(plan.mirror, name="m-reverse", source="dst", target="src"))
    report = CutoverReport(mirror="m-reverse", plan_hash=back.hash, outcome="cut_over")
    way = WayBack(mirror="m", plan=back, decided=cast("Any", None), report_of=cast("Any", None))
    clusters = Clusters(on=Platform.of(*cast("Any", ("dst", "src"))), fence=cast("Any", None), verify=lambda _: [])
    monkeypatch.setattr("airflow_mirror.hooks.kafka.admins_of", lambda _: nullcontext(("src", "dst")))
    monkeypatch.setattr(rollback, "way_back", lambda *_: way)
    monkeypatch.setattr(rollback, "roll_back", lambda *_, **__: report)
    monkeypatch.setattr(RollbackCutoverOperator, "_connected", lambda *_: nullcontext((clusters, None)))
    monkeypatch.setattr(RollbackCutoverOperator, "stored_plan", lambda *_: back)
    RollbackCutoverOperator(task_id="r", mirror=mirror, outlets=[Asset("switched"), ALIAS]).execute(context)
    assert collected() == ([THERE], [HERE])
    by_key = {one["dest_asset_key"]["name"]: one["extra"] for one in events()}
    assert by_key[HERE] == {"mirror": "m-reverse", "by": "rollback", "source": THERE}
    assert by_key["switched"]["outcome"] == "cut_over"


def test_where_there_are_too_many_the_largest_are_told_and_the_rest_is_said_once(
    context: dict[str, Any], plan: Plan, home: Path, collected: Callable[[], Any], events: Callable[[], Any],
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(lineage, "MAX_COLLECTED_ASSETS", 3)
    monkeypatch.setattr(assets, "MOST_EVENTS", 2)
    many = plan_with(home, plan, a=5, b=700, c=5, d=60)
    assets.tell_lineage(many.mirror, many, reads=("source", "target"), writes=("target",))
    inputs, outputs = collected()
    assert inputs == ["kafka://127.0.0.1:1/b", "kafka://127.0.0.1:2/b", "kafka://127.0.0.1:1/d"], "of both sides the same"
    assert outputs == [f"kafka://127.0.0.1:2/{name}" for name in "bda"]
    said = [r.getMessage() for r in caplog.records if r.name == assets.__name__]
    assert said == [
        "lineage: 4 of 12 topics were left out, as kafka://127.0.0.1:1/a, kafka://127.0.0.1:1/c, kafka://127.0.0.1:2/c "
        "and 1 more"
    ]  # fmt: skip
    task = StartMirrorOperator(task_id="t", mirror=many.mirror, outlets=[ALIAS, AssetAlias("another")])
    assets.tell_events(task, cast("Any", context), many.mirror, many, "copy")
    assert [event_of(one)[:2] for one in events()] == [
        (alias, f"kafka://127.0.0.1:2/{topic}") for alias in ("mirrored", "another") for topic in "bd"
    ]
    assert caplog.records[-1].getMessage() == "events of 2 topics were left out: a task gives 2"


def test_what_reads_lineage_fails_no_copy(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any], fake_spark: Started, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Airflow's collector, and the accessor of events."""

    def broken() -> Any:
        raise RuntimeError("a plugin of somebody's")

    monkeypatch.setattr(assets, "get_hook_lineage_collector", broken)
    context["outlet_events"] = None
    task = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, outlets=[ALIAS])
    assert task.execute(context)["job_dir"]
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert [one.partition(": ")[0] for one in said] == ["topics were not told as assets"] * 2
    assert "a plugin of somebody's" in said[0]


def test_nobody_collects_and_nothing_is_said(plan: Plan, caplog: pytest.LogCaptureFixture) -> None:
    assets.tell_lineage(plan.mirror, plan)
    assert [r for r in caplog.records if r.levelno > logging.INFO] == []


@pytest.mark.parametrize(
    ("servers", "named"),
    [
        ("b:9093,a:9092", "b:9093"),
        (" kafka1 , kafka2", "kafka1:9092"),
        ("PLAINTEXT://a:1", "a:1"),
        ("[::1]:7", "[::1]:7"),
    ],
)
def test_cluster_is_named_by_its_first_broker(connections: Callable[..., None], servers: str, named: str) -> None:
    connections("one", **{"bootstrap.servers": servers, "sasl.username": "u", "sasl.password": "hunter2"})
    assert assets.server_of(MirrorKafkaHook("one")) == named
    assert Asset(f"kafka://{named}/t").uri == f"kafka://{named}/t", "no part of it is another one to Airflow"


def test_dag_waits_for_topics_as_the_page_says(tmp_path: Path) -> None:
    """By Airflow's own code, in a file that is made of the page's block; the page's aliases are the shipped DAGs'."""
    page = (Path(__file__).parents[2] / "docs" / "operators.md").read_text(encoding="utf-8")
    (block,) = (one for one in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "AssetAlias(" in one)
    (tmp_path / "waits.py").write_text(block)
    bag = DagBag(str(tmp_path))
    assert bag.import_errors == {} and set(bag.dags) == {"after_a_cutover", "read_orders"}
    waits_for: Any = bag.dags["read_orders"].timetable.asset_condition
    assert waits_for.uri == "kafka://kafka2.example.com:9093/orders" == waits_for.name
    alias: Any = bag.dags["after_a_cutover"].timetable.asset_condition
    assert alias.name == "kafka_topics_cut_over"
    told = dict.fromkeys(re.findall(r"^\| `(kafka_topics_\w+)`", page, re.M))
    assert list(told) == list(dict.fromkeys(name for _, _, name in aliases_of_shipped_dags()))


def aliases_of_shipped_dags() -> Iterator[tuple[str, str, str]]:
    """(DAG, task, alias), after a round through Airflow's serialization, by which its scheduler knows them."""
    for name in ("kafka_migration", "kafka_window_backfill", "kafka_failback"):
        dag = import_module(f"airflow_mirror.example_dags.{name}").dag
        for task in DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag)).tasks:
            for outlet in task.outlets:
                if outlet.name.startswith("kafka_topics_"):
                    yield name, task.task_id, outlet.name


def test_shipped_dags_tell_their_topics() -> None:
    assert list(aliases_of_shipped_dags()) == [
        ("kafka_migration", "bulk_copy", "kafka_topics_copied"),
        ("kafka_migration", "verify", "kafka_topics_compared"),
        ("kafka_migration", "cutover", "kafka_topics_cut_over"),
        ("kafka_window_backfill", "copy_window", "kafka_topics_copied"),
        ("kafka_window_backfill", "verify_window", "kafka_topics_compared"),
        ("kafka_failback", "rollback", "kafka_topics_moved_back"),
    ]
