"""Plans by hash."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_mirror.errors import InputError, MissingRight
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.plan import PlanDirectory, missing_topics, require_plan_of, store
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.selection import other_topics
from airflow_mirror.plan.upstream import Upstream
from tests.unit.plan.builders import a_mirror
from tests.unit.plan.test_model import a_plan


class FakeCluster:
    """Topic name -> topic id. :ivar hidden: names that the principal may not describe, whether they are there or not."""

    def __init__(self, ids: dict[str, str], hidden: Collection[str] = ()) -> None:
        self.ids, self.hidden = ids, hidden
        self.wire = SimpleNamespace(sound_out=lambda _: None)

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicInfo]:
        if names is not None and (denied := sorted({*names}.intersection(self.hidden))):
            raise MissingRight(f"describe {denied}", "TOPIC_AUTHORIZATION_FAILED", "User:m")
        wanted = {*self.ids}.difference(self.hidden) if names is None else names
        return {n: TopicInfo(n, self.ids[n], 1, 1) for n in wanted if n in self.ids}

    def topic_names(self) -> list[str]:
        return list(self.ids)


def test_a_plan_is_found_by_its_hash_alone(tmp_path: Path) -> None:
    plans = PlanDirectory(tmp_path / "plans")
    first, second = a_plan(), a_plan(end=60001)
    assert [plans.save(first).stem, plans.save(second).stem] == [first.hash, second.hash]
    assert (plans.load(first.hash), plans.load(second.hash)) == (first, second)


def test_an_unknown_or_swapped_plan_is_refused(tmp_path: Path) -> None:
    plans = PlanDirectory(tmp_path)
    plans.save(a_plan())
    assert plans.load("0" * 64) is None
    with pytest.raises(InputError, match="'../../etc' is not a plan's hash"):
        plans.load("../../etc")
    other = a_plan(end=60001)
    plans.path(other.hash).write_text(a_plan().to_json())
    with pytest.raises(InputError, match=f"holds plan {a_plan().hash}"):
        plans.load(other.hash)


def test_only_the_last_plans_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEEP", 2)
    plans = PlanDirectory(tmp_path)
    made = [a_plan(end=60000 + n) for n in range(4)]
    for age, plan in enumerate(made):
        path = plans.save(plan)
        os.utime(path, (age, age))
        path.with_suffix(".night.html").touch()
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith(".")) == sorted(
        f"{p.hash}{suffix}" for p in made[2:] for suffix in (".json", ".md", ".night.html")
    )


def test_a_plan_that_another_task_removes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both save one at once, and find the same oldest ones."""
    monkeypatch.setattr(store, "KEEP", 1)
    plans, (first, second, third) = PlanDirectory(tmp_path), [a_plan(end=60000 + n) for n in range(3)]
    for age, plan in enumerate((first, second)):
        os.utime(plans.save(plan), (age, age))
    glob = Path.glob

    def found(directory: Path, pattern: str) -> list[Path]:
        paths = list(glob(directory, pattern))
        plans.path(first.hash).unlink(missing_ok=True)
        return paths

    plans.path(first.hash).write_text(first.to_json())
    monkeypatch.setattr(Path, "glob", found)
    plans.save(third)
    assert [plan for plan in (first, second, third) if plans.load(plan.hash)] == [third]


def test_plan_of_another_mirror_or_blocked_plan_is_refused() -> None:
    plan = a_plan()
    require_plan_of(plan, plan.mirror)
    require_plan_of(
        plan, replace(plan.mirror, max_bytes_per_second=1, merge_below=0, sync_groups=False, sync_topics=False)
    )
    require_plan_of(plan, replace(plan.mirror, max_bytes_per_second=1, merge_below=0, sync_groups=False))
    require_plan_of(plan, replace(plan.mirror, sync_log_starts=False, log_start_delay_s=60))
    with pytest.raises(InputError) as caught:
        require_plan_of(plan, replace(plan.mirror, target="kafka_dc3"))
    assert str(caught.value) == (
        f"plan {plan.hash[:12]} was made for another mirror (target: planned 'kafka_dc2', now 'kafka_dc3'). Give all "
        "tasks of "
        "a run the same mirror, and plan again when it changes."
    )
    with pytest.raises(InputError, match="block this mirror; nothing was written"):
        require_plan_of(replace(plan, findings=(Finding("block", "x", "y", "z"),)), plan.mirror)


def test_topics_that_appeared_since_the_plan_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Upstream(traces=frozenset({"orders.heartbeats", "users"}))
    monkeypatch.setattr("airflow_mirror.plan.selection.read_upstream", lambda *_: known)
    plan = replace(a_plan(), mirror=a_mirror(topics=["ord.*", "users", ".*raw"], exclude_topics=["ordinary"]))
    source = FakeCluster(
        dict.fromkeys(
            ["orders", "orders.eu", "orders.heartbeats", "ordinary", "users", "clicks", "__consumer_offsets"], "i"
        )
    )
    assert missing_topics(plan, source) == ["orders.eu"], "traces of other mirrors are not missing"
    everything = replace(plan, mirror=a_mirror(topics=[".*"]))
    ledger = FakeCluster(dict.fromkeys(["airflow-mirror.decisions", "airflow-mirror.orders"], "i"))
    assert missing_topics(everything, ledger) == ["airflow-mirror.orders"], "a ledger is never copied"
    assert missing_topics(plan, FakeCluster({"orders": "i"})) == []


def test_topics_left_out_are_those_of_applications() -> None:
    available = ["audit", "clicks", "orders", "orders.eu", "__internal"]
    mirror = a_mirror(topics=["orders.*"], exclude_topics=["orders.eu"])
    assert other_topics(mirror, available) == ("audit", "clicks", "orders.eu")
