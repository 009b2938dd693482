"""A mirror that is over, retired on real clusters: what it has left goes; data, and what is decided for good, stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import starts_group
from airflow_mirror.console.main import main
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.copy.writer import lease
from airflow_mirror.jobs.decommission import Step
from airflow_mirror.jobs.retire import Retirement
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat, Watch, begin
from airflow_mirror.jobs.runner.state import SUCCEEDED
from airflow_mirror.jobs.runner.wishes import Wish, wish
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import build, ledger_store
from airflow_mirror.plan.amendment import next_amendment
from airflow_mirror.plan.owned import owned_topics
from airflow_mirror.plan.ownership import claim, mark_cut_over
from airflow_mirror.sync.configs import sync_configs
from airflow_mirror.sync.topics import create_target_topics
from sandbox import Cluster
from tests.integration.copying import config, copy, create, ends, map_keys, properties_of, ranges_of, write

pytestmark = pytest.mark.months

RETENTION = {"retention.ms": "9000000000000"}


class World:
    """A mirror of two topics with mapped offsets: one was handed over; the other joined later, and is on hold."""

    def __init__(self, name: str, source: Cluster, target: Cluster, clusters: list[str], admin: ClusterAdmin) -> None:
        self.name, self.ours, self.opened = name, f"{name}-ours", f"{name}-opened"
        self.target, self.options, self._cluster = admin, [*clusters[2:], "--mirror", name], target
        for topic in (self.ours, self.opened):
            create(source, topic, **{key.replace(".", "_"): value for key, value in RETENTION.items()})
            write(source, topic, 20, 1)
        mirror = Mirror(name=name, source="a", target="b", topics=[f"{name}.*"], offsets="mapped")
        self.ledger, self.state = Ledger(admin), state_of(admin, "")
        self.ledger.create()
        with ClusterAdmin(config(source)) as here:
            self.plan = build(mirror, here, admin, probe_target=False)
            first, joined = sorted(self.plan.topics, key=lambda t: t.target_topic == self.ours)
            rule = replace(self.plan, topics=(first,))
            ledger_store.keep(rule, self.state, self.ledger)
            amendment = next_amendment(rule, [joined], [], rule.created_at)
            ledger_store.amend(amendment, name, self.state, self.ledger)
            create_target_topics(self.plan, admin, unfenced)
            claim(self.ledger, self.plan, admin)
            sync_configs(self.plan, here, admin, unfenced)
        for topic in (self.ours, self.opened):
            copy(source, target, [replace(r, mode=MAPPED) for r in ranges_of(source, topic)], mirror=name)
        of_opened = replace(self.plan, topics=tuple(t for t in self.plan.topics if t.target_topic == self.opened))
        ids = {topic: info.topic_id for topic, info in admin.topics([self.opened]).items()}
        mark_cut_over(self.ledger, of_opened, ids, "2026-11-23T07:00:00+00:00")
        admin.commit_group_offsets(starts_group(name), {TopicPartition(self.ours, 0): GroupPosition(5, "id")}, unfenced)
        self.tail = ActiveTail(mirror=mirror.to_dict(), plan=self.plan.hash, inputs="", directory="", where="x", host="h")
        begin(self.ledger, self.tail, Watch(self.state))
        Heartbeat(self.state, self.tail).give(SUCCEEDED)
        wish(self.state, name, "rate", Wish(by="ann", at="noon", max_bytes_per_second=7))

    def retire(self, capsys: pytest.CaptureFixture[str], *options: str, status: int = 0) -> dict[str, Any]:
        """Run the command; return its JSON, or what it complains of."""
        capsys.readouterr()
        assert main(["retire", *self.options, "--json", *options]) == status
        printed = capsys.readouterr()
        return dict(json.loads(printed.out)) if status == 0 else {"error": printed.err}

    @property
    def seen(self) -> dict[str, Any]:
        """What is there of the mirror."""
        there = self.target.topic_configs([self.ours, self.opened])
        mine = [key for key in self.ledger.values() if key.split("/")[1:] == [self.name]]
        return {
            "held": {topic for topic, entries in there.items() if entries["retention.ms"].value == "-1"},
            "owned": {topic for topic, one in owned_topics(self.ledger).items() if one.mirror == self.name},
            "decided": mine,
            "state": {key.split("/")[0] for key in self.state.read() if f"/{self.name}/" in key},
            "maps": {topic for topic in (self.ours, self.opened) if map_keys(self._cluster, topic)},
            "groups": self.target.group_offsets(starts_group(self.name)),
        }

    def require_gone(self) -> None:
        assert self.seen == {
            "held": {self.opened}, "owned": {self.opened}, "decided": [], "state": set(), "maps": set(), "groups": {}
        }  # fmt: skip
        assert self.target.topic_configs([self.ours])[self.ours]["retention.ms"].value == RETENTION["retention.ms"]
        for topic in (self.ours, self.opened):
            assert ends(self._cluster, topic)[0][2] == 20


@pytest.fixture
def world(source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path) -> Iterator[World]:
    clusters = properties_of(tmp_path, source_cluster, target_cluster)
    with ClusterAdmin(config(target_cluster)) as admin:
        yield World(topic_name, source_cluster, target_cluster, clusters, admin)


def test_retiring_lists_first_then_removes_all_but_data(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice: the second time nothing is left. What a cutover has opened stays as it is, and decided."""
    before = world.seen
    assert before["held"] == before["owned"] == before["maps"] == {world.ours, world.opened}
    listed = world.retire(capsys)
    assert [step["step"] for step in listed["steps"]] == [
        "plan", "topics", "writing", "settings", "maps", "groups", "decisions", "state",
    ]  # fmt: skip
    assert not listed["done"] and world.seen == before
    assert listed["left"][0].startswith(f"{world.opened}: in production since 2026-11-23")
    assert f"{world.opened}: retention.ms: -1 -> 9000000000000 (in production: yours to set)" in listed["left"]
    done = world.retire(capsys, "--yes")
    assert done == {**listed, "done": True}
    world.require_gone()
    again = world.retire(capsys, "--yes")
    assert again["steps"] == [] and again["left"][0] == done["left"][0]


def test_retirement_killed_after_any_step_is_finished_later(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each step that has something to do: what was done is not lost, and what is left is still known."""
    steps = Retirement.steps
    for last in ("plan", "topics", "writing", "settings", "maps", "groups", "decisions", "state"):

        def cut(self: Retirement, *given: Any, last: str = last) -> Iterator[Step]:
            for step in steps(self, *given):
                if step.name == last and step.lines:
                    raise KeyboardInterrupt
                yield step

        monkeypatch.setattr(Retirement, "steps", cut)
        assert main(["retire", *world.options, "--yes"]) == 130, last
    assert world.seen["owned"] == {world.opened}, "what is left is the state, which nobody goes by"
    monkeypatch.setattr(Retirement, "steps", steps)
    world.retire(capsys, "--yes")
    world.require_gone()


def test_a_mirror_that_lives_is_not_retired(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Its tail, or any job that holds its writer lease: that one may have been killed, which only a person knows."""
    lease.take(world.target.wire, world.name)
    assert "a job holds its writer lease" in world.retire(capsys, "--yes", status=2)["error"]
    alive = ActiveTail(mirror={"name": world.name}, plan="", inputs="", directory="")  # this very process
    begin(world.ledger, alive, Watch(world.state))
    assert "its tail runs on host" in world.retire(capsys, "--yes", "--end-writing", status=2)["error"]
    assert world.seen["owned"] == world.seen["maps"] == {world.ours, world.opened}
    Heartbeat(world.state, alive).give(SUCCEEDED)
    world.retire(capsys, "--yes", "--end-writing")
    world.require_gone()
