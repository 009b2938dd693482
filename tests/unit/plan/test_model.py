from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.errors import InputError
from airflow_mirror.plan import Plan
from airflow_mirror.plan.amendment import next_amendment
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.holes import HoleSamples
from airflow_mirror.plan.markdown import render
from airflow_mirror.plan.model import Amendment, Capabilities, HoleEstimate
from airflow_mirror.plan.store import write as write_plan
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic

GOLDEN = Path(__file__).parents[2] / "golden"
NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)


def a_plan(now: datetime = NOW, end: int = 60000) -> Plan:
    source = a_cluster(
        a_topic("audit|raw", spans=((0, 0),), replicas=1),
        a_topic("orders", spans=((54321, end), (0, 5)), retention_ms="86400000", max_message_bytes="5000000"),
        a_topic(
            "users",
            spans=((0, 11893),),
            stable={0: 11800},
            cleanup_policy="compact",
            min_insync_replicas="2",
            preallocate="true",
            remote_storage_enable="true",
        ),
        groups={
            "billing": {"orders-0": 59000, "orders-1": 5, "users-0": 0},
            "reports": {"users-0": 11893, "clicks-0": 4},
            "idle": {},
        },
    )
    mirror = a_mirror(topics=["orders", "users", r"audit\|raw"], policy="prefix", source_alias="dc1")
    target = a_cluster(
        a_topic("dc1.audit|raw", spans=((0, 0), (0, 0)), compression_type="lz4"), cluster_id="c2", brokers=2
    )
    samples = HoleSamples({"orders": HoleEstimate(0, 0, 0.0, 5684), "users": HoleEstimate(5192, 1701, 0.44, 4007)})
    return decide(mirror, source, target, {"dc1.clicks": "mapped"}, now, samples, Capabilities(markers="direct"))


@pytest.mark.parametrize(("name", "write"), [("plan.json", Plan.to_json), ("plan.md", render)])
def test_a_plan_is_written_as_it_always_was(name: str, write: Callable[..., Any]) -> None:
    """Re-made by UPDATE_GOLDEN=1; review the difference."""
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(write(a_plan()), encoding="utf-8")
    assert write(a_plan()) == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("mirror", "held"),
    [
        ({}, "`cleanup.policy=delete`, no retention, "),
        ({"hold_retention_ms": 86_400_000}, "`cleanup.policy=delete`, `retention.ms=86400000`, "),
        ({"compacted_hold": "lag"}, "`cleanup.policy=delete` (a compacted one its own, and `min.compaction.lag.ms=922"),
    ],
)
def test_a_plan_says_how_its_topics_are_on_hold(mirror: dict[str, Any], held: str) -> None:
    made = decide(a_mirror(**mirror), a_cluster(a_topic()), a_cluster(cluster_id="c2"), (), NOW)
    assert f"During the copy every topic has {held}" in render(made)


def test_a_plan_survives_its_json() -> None:
    made = a_plan()
    again = Plan.from_json(made.to_json())
    assert again == made and again.hash == made.hash
    assert again.topics[1].starts == {0: 54321, 1: 0}


def test_plan_without_key_partitioning_is_written_as_before_there_was_a_count() -> None:
    """So that it keeps its hash, and is loaded by a version that knows of none. So is an amendment."""
    made = a_plan()
    assert "key_partitions" not in made.to_json()
    keyed = replace(made, topics=tuple(replace(t, key_partitions=4) for t in made.topics))
    again = Plan.from_json(keyed.to_json())
    assert again == keyed and again.hash != made.hash and again.topics[0].key_partitions == 4
    one, other = (next_amendment(made, plan.topics, [], made.created_at) for plan in (made, keyed))
    assert "key_partitions" not in one.to_json() and Amendment.from_json(other.to_json()) == other


def test_plan_hash_depends_on_content_not_on_time() -> None:
    assert a_plan().hash == a_plan(NOW + timedelta(days=1)).hash
    assert a_plan().hash != a_plan(end=60001).hash


def test_saved_plan_has_a_readable_twin_and_no_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "home" / "dc1-to-dc2" / "plan.json"
    write_plan(a_plan(), path)
    write_plan(a_plan(end=60001), path)
    assert Plan.load(path) == a_plan(end=60001)
    assert sorted(p.name for p in path.parent.iterdir()) == ["plan.json", "plan.md"]


def test_an_edited_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(a_plan().to_json().replace("60000", "70000"))
    with pytest.raises(InputError, match="edited"):
        Plan.load(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 2, "hash": "x", "mirror": {}}'])
def test_what_is_no_plan_is_refused_in_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(InputError, match="PlanMirrorOperator"):
        Plan.load(path)


def test_a_plan_of_another_version_is_refused() -> None:
    values = json.loads(a_plan().to_json())
    with pytest.raises(InputError, match="version 2"):
        Plan.from_json(json.dumps({**values, "version": 1}))


def test_a_missing_plan_names_the_file_and_the_operator(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="plan.json.*PlanMirrorOperator"):
        Plan.load(tmp_path / "plan.json")


def test_the_summary_stays_small_at_ten_thousand_partitions() -> None:
    source = a_cluster(*(a_topic(f"t{i}", spans=((i, i + 10),) * 100) for i in range(100)))
    made = decide(a_mirror(), source, a_cluster(cluster_id="c2"), (), NOW)
    assert made.summary()["partitions"] == 10_000
    assert len(json.dumps(made.summary())) < 1000
