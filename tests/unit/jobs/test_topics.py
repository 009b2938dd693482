"""What a driver does with a plan that has got topics, before it copies them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.copy.delays import DelayMeter
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.jobs.driver import followers as module
from airflow_mirror.jobs.driver import recurring, topics
from airflow_mirror.jobs.driver.followers import followers
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.jobs.driver.topics import topics_follow
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan
from tests.builders import plan_of, topic_plan

OLD = topic_plan("old", {0: 7}, source_topic_id="id-old")
NEW = topic_plan("new", {0: 0}, source_topic_id="id-new")
GROWN = replace(OLD, partitions=2, starts={0: 7, 1: 0})


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, start: str) -> None:
        mirror = Mirror(name="m", source="src", target="dst", start=start)
        self.job = CopyJob(
            mirror=mirror, source="s", target="t", plan=plan_of(mirror, OLD), options=CopyOptions(mirror="m")
        )
        self.done: list[tuple[str, list[str]]] = []
        self.take_in: Callable[[Plan], None] = lambda _: None

        def amending(*_: Any, take_in: Callable[[Plan], None], **__: Any) -> Any:
            self.take_in = take_in
            return SimpleNamespace(look=None)

        monkeypatch.setattr(recurring, "load", lambda *_: None)
        monkeypatch.setattr(recurring, "ClusterAdmin", nullcontext)
        monkeypatch.setattr(topics, "state_of", lambda *_, **__: None)
        monkeypatch.setattr(topics, "Amending", amending)
        monkeypatch.setattr(topics, "remember", lambda plan, _: self.did("remember", plan))
        monkeypatch.setattr(topics, "taking_in", lambda job, plan, *_: replace(job, plan=plan))

    def did(self, what: str, plan: Plan) -> None:
        self.done.append((what, [t.source_topic for t in plan.topics]))

    def taken(self, *, by_hand: bool) -> list[tuple[str, list[str]]]:
        """Take in a plan with a new topic and a partition more; return what was done, in order."""

        def take_in(job: CopyJob) -> None:
            self.job = job
            self.did("copy", job.plan)

        held: Any = SimpleNamespace(token=None)
        status: Any = SimpleNamespace(report=print)
        thread = topics_follow(lambda: self.job, held, status, take_in=take_in, gone=dict, by_hand=by_hand)
        with thread._connect():
            self.take_in(replace(self.job.plan, topics=(GROWN, NEW)))
        return self.done


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_job_by_hand_remembers_where_topics_begin_before_it_copies(
    start: str, by_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one, whose plan is another, would begin at its own `latest`. A stored plan's amendment says it."""
    done = World(monkeypatch, start).taken(by_hand=by_hand)
    copied = ("copy", ["old", "new"])
    assert done == ([("remember", ["old", "new"]), copied] if by_hand and start == "latest" else [copied])


class Thread:
    """Stands in for a :class:`Recurring`."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def start(self) -> None:
        self.log.append(f"start {self.name}")

    def stop(self) -> None:
        self.log.append(f"stop {self.name}")

    def renew(self) -> None:
        self.log.append(f"renew {self.name}")


def test_groups_go_on_with_the_topics_that_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    world, log = World(monkeypatch, "earliest"), list[str]()
    world.job = replace(world.job, mirror=replace(world.job.mirror, traces="checkpoints, heartbeats"))
    given: dict[str, Any] = {}

    def topics_thread(*_: Any, **how: Any) -> Thread:
        given.update(how)
        return Thread("topics", log)

    monkeypatch.setattr(module, "topics_follow", topics_thread)
    monkeypatch.setattr(module, "groups_follow", lambda *_: Thread("groups", log))
    monkeypatch.setattr(module, "traces_follow", lambda *_: Thread("traces", log))
    monkeypatch.setattr(module, "on_both_clusters", lambda _job, _held, _status, name, *_: Thread(name, log))
    held: Any = None
    taken = list[CopyJob]()
    copying: Any = SimpleNamespace(job=world.job, gone={}, take_in=taken.append)
    with followers(copying, held, None, DelayMeter(), by_hand=False):  # type: ignore[arg-type]
        names = ("source", "topics", "configs", "heartbeats", "log_starts", "groups", "traces")
        assert log == [f"start {name}" for name in names]
        given["take_in"](world.job)
        assert taken == [world.job] and log[7:] == ["renew groups", "renew traces"]
    assert log[9:] == [f"stop {name}" for name in names]
