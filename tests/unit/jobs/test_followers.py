"""What follows a tail's data: one table, and all that a new row needs to be seen wherever a person looks."""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

import airflow_mirror.sync
from airflow_mirror.copy.delays import DelayMeter
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import LeaseLost
from airflow_mirror.jobs.driver import followers as module
from airflow_mirror.jobs.driver.followers import FOLLOWERS, Follow, followers
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan
from airflow_mirror.sync.passes import SAID, Pass, PassReport, Sides, listed
from airflow_mirror.wire.cluster import WireCluster
from tests.builders import plan_of, topic_plan
from tests.driven.ledger import LedgerCluster

OLD = topic_plan("old", {0: 7}, source_topic_id="id-old")
NEW = topic_plan("new", {0: 0}, source_topic_id="id-new")
GROWN = replace(OLD, partitions=2, starts={0: 7, 1: 0})


@dataclass(kw_only=True)
class ToyReport(PassReport):
    head = "{toys:toy}"
    toys: int = 0
    broken: list[str] = listed("broken", SAID)


class ToyFollower(Pass[ToyReport]):
    """What somebody adds: this class, and :data:`TOY`."""

    report = ToyReport
    written: list[Plan] = []  # noqa: RUF012

    def make(self, plan: Plan, now_ms: int, report: ToyReport) -> None:
        with self._granted():
            self.written.append(plan)
        report.toys, report.broken = len(plan.topics), [f"{t.source_topic}: a wheel is off" for t in plan.topics]


TOY = Follow("toys", lambda mirror: mirror.sync_groups, lambda _: 0.01, ToyFollower)


@pytest.fixture(autouse=True)
def somewhere(ledger_target: LedgerCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[WireCluster]:
    """Both clusters of the tail, where ``env:SOMEWHERE`` leads."""
    ledger_target.create("old"), ledger_target.create("new")
    with WireCluster(ledger_target.config) as wire:
        monkeypatch.setenv("SOMEWHERE", ledger_target.config.dump())
        yield wire


class World:
    """A tail whose clusters have no records. ``rows``: what may follow it."""

    def __init__(
        self, somewhere: WireCluster, monkeypatch: pytest.MonkeyPatch, *rows: Follow, **mirror: Any
    ) -> None:  # fmt: skip
        self.rows = rows
        of, there = Mirror(name="m", source="src", target="dst", **mirror), "env:SOMEWHERE"
        self.job = CopyJob(mirror=of, source=there, target=there, plan=plan_of(of, OLD), options=CopyOptions(mirror="m"))
        self.gone, self.token = dict[str, str](), lease.take(somewhere, "m")
        self.done: list[tuple[str, list[str]]] = []
        self.status, self.told = StatusFile(None), threading.Condition()
        report = self.status.report

        def heard(kind: str, found: dict[str, Any]) -> None:
            with self.told:
                report(kind, found)
                self.told.notify_all()

        self.status.report = heard  # type: ignore[method-assign]
        monkeypatch.setattr(module, "remember", lambda plan, _: self.did("remember", plan))
        monkeypatch.setattr(ToyFollower, "written", [])

    def did(self, what: str, plan: Plan) -> None:
        self.done.append((what, [t.source_topic for t in plan.topics]))

    def take_in(self, job: CopyJob) -> None:
        self.job = job
        self.did("copy", job.plan)

    @contextmanager
    def running(self, *, by_hand: bool = False) -> Iterator[None]:
        with followers(self, self, self.status, DelayMeter(), by_hand=by_hand, rows=self.rows):  # type: ignore[arg-type]
            yield

    def follows(self) -> dict[str, Any]:
        found: dict[str, Any] = self.status.brief()["follows"]
        return found

    def wait_for(self, what: Callable[[dict[str, Any]], object]) -> None:
        with self.told:
            assert self.told.wait_for(lambda: what(self.follows()), 60)


def every_follower() -> set[type[Pass[Any]]]:
    """The subclasses in the package, whoever imports them."""
    for one in pkgutil.walk_packages(airflow_mirror.sync.__path__, "airflow_mirror.sync."):
        importlib.import_module(one.name)
    return {one for one in Pass.__subclasses__() if one.__module__.startswith("airflow_mirror.")}


def test_every_follower_is_one_row() -> None:
    assert {row.make for row in FOLLOWERS} == every_follower()
    keys = [row.keeps("m") for row in FOLLOWERS if row.keeps]
    assert len(FOLLOWERS) == len(every_follower()) == len({row.name for row in FOLLOWERS})
    assert len({*keys}) == len(keys), "two followers would write each other's keys"


def test_a_row_is_all_that_a_new_follower_needs(
    somewhere: WireCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has a thread, connections, the lease, its place in the log and in the status, which health reads."""
    caplog.set_level("INFO")
    world = World(somewhere, monkeypatch, TOY)
    with world.running():
        world.wait_for(lambda told: "toys" in told["toys"])
        told = world.follows()
        assert told["toys"]["toys"] == 1 and told["toys"]["error"] is None and told["toys"]["at"] > 0
        assert told["toys"]["broken"] == {"count": 1, "first": ["old: a wheel is off"]}
        assert "toys: 1 toy; broken: old: a wheel is off" in caplog.messages
        assert told["toys"]["said"] == ["broken: old: a wheel is off"]
        world.token = replace(world.token, mark_ms=world.token.mark_ms + 1)
        world.wait_for(lambda told: told["toys"]["error"])
    written = len(ToyFollower.written)
    assert written and not [one for one in threading.enumerate() if one.name == "toys"]
    with World(somewhere, monkeypatch, TOY, sync_groups=False).running():
        pass
    assert len(ToyFollower.written) == 0


def test_who_lost_the_lease_writes_nothing(somewhere: WireCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(somewhere, monkeypatch, TOY)
    another = lease.take(somewhere, "m")
    lost = str(LeaseLost(another.transactional_id, world.token.epoch, f"epoch {another.epoch}"))
    with world.running():
        world.wait_for(lambda told: told.get("toys", {}).get("error") == lost)
    assert not ToyFollower.written


def taker(sides: Sides) -> Any:
    """A follower that takes a new topic and a partition more into the plan, once."""

    def follow(_: int) -> PassReport:
        if NEW not in sides.plan().topics:
            sides.take_in(replace(sides.plan(), topics=(GROWN, NEW)))
        return ToyReport()

    return SimpleNamespace(follow=follow)


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_job_by_hand_remembers_where_topics_begin_before_it_copies(
    start: str, by_hand: bool, somewhere: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one, whose plan is another, would begin at its own `latest`. A stored plan's amendment says it."""
    world = World(somewhere, monkeypatch, replace(TOY, make=taker), start=start)
    with world.running(by_hand=by_hand):
        world.wait_for(lambda told: "toys" in told["toys"])
    copied = ("copy", ["old", "new"])
    assert world.done == ([("remember", ["old", "new"]), copied] if by_hand and start == "latest" else [copied])


def test_who_has_the_maps_of_topics_is_made_anew_when_topics_join(
    somewhere: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan that it is given stays that of its maps: it must not ask them for a topic that they don't know."""
    made: list[tuple[str, Sides]] = []

    def noted(sides: Sides, name: str) -> Any:
        made.append((name, sides))
        return SimpleNamespace(follow=lambda _: ToyReport())

    rows = [replace(TOY, name="of topics", make=lambda s: noted(s, "of topics"), of_topics=True)]
    rows += [replace(TOY, name="other", make=lambda s: noted(s, "other"))]
    go = threading.Event()

    def waiting(sides: Sides) -> Any:
        go.wait(60)
        return taker(sides)

    world = World(somewhere, monkeypatch, *rows, replace(TOY, name="taker", make=waiting))
    with world.running():
        world.wait_for(lambda told: "toys" in told["of topics"] and "toys" in told["other"])
        go.set()
        world.wait_for(lambda _: len(made) == 3)
    assert sorted(name for name, _ in made) == ["of topics", "of topics", "other"]
    old, new = (sides.plan().topics for name, sides in made if name == "of topics")
    assert (old, new) == ((OLD,), (GROWN, NEW))
    assert [sides.plan().topics for name, sides in made if name == "other"] == [(GROWN, NEW)]


def test_a_mirror_gets_what_it_asks_for() -> None:
    def wanted(**fields: Any) -> list[str]:
        mirror = Mirror(name="m", source="src", target="dst", **fields)
        return [row.name for row in FOLLOWERS if row.wanted(mirror)]

    every = ["source", "topics", "configs", "log_starts", "groups"]
    assert wanted(topics=[".*"]) == every
    assert wanted(sync_groups=False, sync_configs=False, sync_log_starts=False) == ["source", "topics"]
    schemas = {"sync_schemas": True, "source_registry": "a", "target_registry": "b"}
    assert wanted(sync_acls=True, traces="heartbeats, offset-syncs", **schemas) == [row.name for row in FOLLOWERS]
