"""``airflow-mirror plan``: what the target's ledger says decides whose topics are, and what blocks is a status."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.console import plan as command
from airflow_mirror.console.clusters import both_of
from airflow_mirror.console.main import main
from airflow_mirror.errors import LedgerLost, LedgerMissing, PlanNotKept
from airflow_mirror.jobs import planning as jobs_planning
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.build import Before
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import Owned
from airflow_mirror.plan.start_offsets import Begun
from tests.builders import plan_of, topic_plan
from tests.unit.plan.builders import a_mirror


class Cluster:
    """A cluster whose topics are all there, with the id of their name."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def cluster_id(self) -> str:
        return f"id of {self.config.role}"

    def topic_names(self) -> list[str]:
        return ["orders", "old", "theirs", "elsewhere", "unnamed", "users"]

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, f"id-{name}", 1, 1) for name in names}


class Decided:
    """A ledger that says this."""

    def __init__(self, last: str | None = None, **topics: Owned) -> None:
        self.last, self.topics = last, topics

    def values(self) -> dict[str, Any]:
        values: dict[str, Any] = {f"topic/{name}": one.value() for name, one in self.topics.items()}
        return values | ({"plan/flow": {"v": 1, "hash": self.last}} if self.last else {})


def owned(topic_id: str, mirror: str = "flow", source_id: str = "id of source", **more: Any) -> Owned:
    return Owned(topic_id=topic_id, mirror=mirror, source_id=source_id, **more)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """What the command asks for; ``ledger`` and ``findings`` are what it finds."""
    seen = SimpleNamespace(ledger=Decided(), findings=(), known=None, probes=None)

    def build(mirror: Any, source: Any, target: Any, known: Any, *, before: Before, **options: Any) -> Plan:
        seen.known, seen.probes, seen.begun = known, options["probe_target"], before.begun
        seen.earlier = before.configs
        assert (source.config.role, target.config.role) == ("source", "target")
        made = plan_of(mirror, topic_plan("orders", {0: 0}, source_topic_id="id"), source_cluster_id="id of source")
        object.__setattr__(made, "findings", seen.findings)
        return made

    monkeypatch.setattr(command, "ClusterAdmin", Cluster)
    monkeypatch.setattr(command, "Ledger", lambda target: seen.ledger)
    monkeypatch.setattr(jobs_planning, "build", build)
    monkeypatch.setattr(jobs_planning, "copy_modes", lambda mirror, names, target: dict.fromkeys(names, "identical"))
    for role in ("source", "target"):
        (tmp_path / role).write_text(f"bootstrap.servers={role}:9092\n")
    seen.words = ["plan", "--source", f"{tmp_path}/source", "--target", f"{tmp_path}/target", "--name", "flow"]
    return seen


def test_topics_of_this_mirror_and_this_source_are_its_own(seen: SimpleNamespace) -> None:
    seen.ledger = Decided(
        orders=owned("id-orders"), old=owned("another"), theirs=owned("id-theirs", mirror="audit"),
        elsewhere=owned("id-elsewhere", source_id="x"), unnamed=owned(""),
    )  # fmt: skip
    assert main(seen.words) == 0
    assert seen.known == {"orders": "identical", "unnamed": "identical"} and seen.probes is False


def test_offset_maps_tell_in_which_mode_a_copy_began(seen: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = {"orders": "identical", "users": "mapped", "theirs": "identical"}
    monkeypatch.setattr(jobs_planning, "copy_modes", lambda mirror, names, target: modes)
    seen.ledger = Decided(orders=owned("id-orders"), users=owned("id-users"))
    assert main([*seen.words, "--probe"]) == 0
    assert seen.known == {"orders": "identical", "users": "mapped"} and seen.probes is True


def test_the_last_plan_on_the_target_is_continued(seen: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows modes and beginnings; unless it is for other clusters, or gone."""
    mirror = a_mirror(name="flow", start="latest")
    topic = topic_plan("orders", {0: 5}, source_topic_id="id", configs={"retention.ms": "5"})
    last = plan_of(mirror, topic, source_cluster_id="id of source", target_cluster_id="id of target")
    last = replace(last, known_topics={"orders": "mapped"})

    def fetch(plan_hash: str, name: str, target: Any, _: Any) -> Plan:
        assert (plan_hash, name, target.config.role) == ("abc", "flow", "target")
        return last

    monkeypatch.setattr(ledger_store, "fetch", fetch)
    monkeypatch.setattr(jobs_planning, "begun_at", lambda *_: Begun({"by hand": {}}))
    seen.ledger = Decided(last="abc", orders=owned("id-orders"), users=owned("id-users"))
    assert main([*seen.words, "--start", "latest"]) == 0
    assert seen.known == {"orders": "mapped", "users": "identical"} and seen.begun.starts == {"id": {0: 5}}
    assert seen.earlier == {"orders": {"retention.ms": "5"}}
    last = replace(last, source_cluster_id="another")
    assert main([*seen.words, "--start", "latest"]) == 0
    assert seen.known == {"orders": "identical", "users": "identical"} and seen.begun.starts == {"by hand": {}}
    assert seen.earlier == {}

    def gone(*_: object) -> Plan:
        raise PlanNotKept("flow", "abc")

    monkeypatch.setattr(ledger_store, "fetch", gone)
    assert main(seen.words) == 0 and seen.known == {"orders": "identical", "users": "identical"}


def test_checks_that_passed_are_one_line_unless_they_are_asked_for(
    seen: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    well = [Finding("pass", f"check{i}", "1 topic", "all is well") for i in range(30)]
    seen.findings = (Finding("warn", "disk", "target brokers", "it is nearly full", "Free some."), *well)
    assert main(seen.words) == 0
    said = capsys.readouterr().out
    assert "\n\n30 checks passed.\n\n" in said and "| WARN | disk |" in said and "check7" not in said
    assert main([*seen.words, "--every-check"]) == 0
    said = capsys.readouterr().out
    assert "checks passed" not in said and "| ok | check7 | 1 topic | all is well |" in said
    seen.findings = ()
    assert main(seen.words) == 0 and "\n\n0 checks passed.\n\n" in capsys.readouterr().out


def test_long_block_is_wrapped(seen: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    seen.findings = (Finding("block", "disk", "target brokers", "nearly full " * 20, "Free some. " * 20),)
    assert main(seen.words) == 1
    first, *more = capsys.readouterr().err.splitlines()
    assert first.startswith("blocked: disk: target brokers: nearly full") and len(more) > 2
    assert all(line.startswith(" " * 9) for line in more) and max(map(len, [first, *more])) <= 110


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_every_block_is_said_and_the_plan_is_printed_all_the_same(
    seen: SimpleNamespace, capsys: pytest.CaptureFixture[str], json: list[str]
) -> None:
    levels = ("block", "block", "warn")
    seen.findings = tuple(Finding(level, f"check {i}", "topic 'orders'", "found") for i, level in enumerate(levels))
    seen.ledger = Decided(orders=owned("id-orders", mirror="audit"))
    assert main([*seen.words, *json]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("{" if json else "# Plan of mirror flow")
    lines = printed.err.splitlines()
    assert lines[:2] == [f"blocked: check {i}: topic 'orders': found" for i in range(2)]
    assert lines[2].startswith("blocked: ") and "mirror 'audit' of cluster id of source" in printed.err


def test_topics_in_production_and_a_lost_ledger_block(
    seen: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen.ledger = Decided(orders=owned("id-orders", opened_by="abc", opened_at="2026-01-01"))
    assert main(seen.words) == 1
    assert "orders" in capsys.readouterr().err and set(seen.known) == {"orders"}

    def values(self: Decided) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(Decided, "values", values)
    error: Exception = LedgerLost("it was cut")
    assert main(seen.words) == 1
    assert "it was cut" in (said := capsys.readouterr()).err and said.out == "", "no plan, and no advice about the topics"
    error = LedgerMissing()  # nobody has begun: the plan's own checks say whether the topics hold data
    assert main(seen.words) == 0 and seen.known == {}


def test_without_clusters_and_mirror_nothing_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--include", "orders"]) == 2
    assert "--source is missing" in capsys.readouterr().err


def test_a_mirror_names_its_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def config_of(name: str, role: str) -> ClientConfig:
        asked.append((role, name))
        return ClientConfig({"bootstrap.servers": "b:1"}, role)

    monkeypatch.setattr("airflow_mirror.console.clusters.config_of", config_of)
    file = tmp_path / "mirror.json"
    file.write_text('{"name": "flow", "source": "kafka_dc1", "target": "kafka_dc2"}')
    arguments = SimpleNamespace(source=None, target="dst.properties", mirror=str(file))
    both_of(arguments, a_mirror())
    assert asked == [("source", "kafka_dc1"), ("target", "dst.properties")]


def test_a_first_plan_onto_an_empty_target_is_no_reason_to_warn() -> None:
    """It said that 'here data were written before', of a target on which nothing is."""
    ledger = SimpleNamespace(values=lambda: (_ for _ in ()).throw(LedgerMissing()))
    told: list[str] = []
    assert ledger_store.last_between("m", None, None, ledger, told.append) is None and told == []  # type: ignore[arg-type]
