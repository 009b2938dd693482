"""Two driven clusters with a mirror to cut over."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import DECISIONS, STATE, WISHES
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease_watch import LeaseWatch
from airflow_mirror.cutover import platform, steps
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport, UndoneRecord
from airflow_mirror.cutover.report_store import ReportStore, reports_of
from airflow_mirror.errors import (
    FenceNotLifted,
    LeaseLost,
)
from airflow_mirror.kafka.model import ConfigEntry, GroupInfo, Replicas, TopicInfo
from airflow_mirror.ledger.chain import Link, links
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan import ledger_store
from airflow_mirror.wire.cluster import WireCluster
from tests.builders import CommitsMany
from tests.cutting_over import cut_over
from tests.driven.cluster import DrivenCluster, topic_config
from tests.driven.content import Writer
from tests.driven.copying import Following, ends, ranges_of
from tests.unit.cutover.builders import AllAllowed, a_plan

PLAN = a_plan("t")


LIMITS = Limits(quiet_s=0.05, quiet_at_most_s=0.05, settle_s=0.0, poll_s=0.01, drain_timeout_s=20)


class Admin(AllAllowed, CommitsMany):
    """A cluster with one topic and no group."""

    def __init__(self, config: ClientConfig) -> None:
        self.config, self.role = config, config.role
        self.wire = WireCluster(config)

    def cluster_id(self) -> str:
        return self.role[0]  # as `plan_of` plans

    def topic_names(self) -> list[str]:
        return ["t"]

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, f"id-{name}", 1, 1) for name in names}

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        return {name: {} for name in names}

    def replicas(self, names: Collection[str]) -> dict[TopicPartition, Replicas]:
        return {TopicPartition(name, 0): Replicas(1, 1) for name in names}

    def usable_bytes(self) -> dict[int, int | None]:
        return {1: 10**12}

    def groups(self) -> list[GroupInfo]:
        return []

    def group_states(self, _ids: Collection[str]) -> dict[str, str]:
        return {}

    describe_groups = group_states

    def groups_offsets(self, _ids: Collection[str], _only: object = None) -> dict[str, object]:
        return {}

    def groups_offsets_apart(self, _ids: Collection[str]) -> tuple[dict[str, object], dict[str, object]]:
        return {}, {}


class World:
    def __init__(self, source: DrivenCluster, target: DrivenCluster, run_dir: Path) -> None:
        self.source, self.target, self.run_dir, self.calls = source, target, run_dir, list[str]()
        self.when_called: Callable[[str], object] = lambda _: None
        self.log = source.create("t").logs[0]
        target.create("t")
        for name in (STATE, DECISIONS, WISHES):
            target.create(name, config=topic_config({"message.timestamp.type": "LogAppendTime"}))
        with self.ledger() as ledger:
            ledger.create()
        with self.platform() as on:
            ledger_store.keep(PLAN, on.target.state(f"plan/{PLAN.mirror.name}/"), on.target.ledger)
        self.write(10)

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The target's ledger, over connections of its own."""
        target = Admin(self.target.config)
        with closing(target.wire):
            yield Ledger(target, platform.PATIENCE_S)  # type: ignore[arg-type]

    @contextmanager
    def platform(self) -> Iterator[Platform]:
        """Both clusters, over connections of its own."""
        source, target = Admin(self.source.config), Admin(self.target.config)
        with closing(source.wire), closing(target.wire):
            yield Platform.of(source, target)  # type: ignore[arg-type]

    def write(self, count: int) -> None:
        with self.source.changing():
            Writer(self.log).plain(count)

    def cut_over(self, **more: Any) -> CutoverReport:
        def note(call: str) -> None:
            self.calls.append(call)
            self.when_called(call)

        with self.platform() as on:
            kept = ReportStore(on.target.reports(PLAN.mirror.name), PLAN.mirror.name, self.run_dir.name, self.run_dir)
            return cut_over(
                on, PLAN, kept, fence=CallableFence(lambda: note("on"), lambda: note("off")),
                verify=lambda _: [], limits=LIMITS,
                accept_ledger_writers=["User:*"], **more,
            )  # fmt: skip

    def report(self) -> CutoverReport:
        """The report that the target has."""
        target = Admin(self.target.config)
        with closing(target.wire):
            state = reports_of(target, PLAN.mirror.name)  # type: ignore[arg-type]
            found = ReportStore(state, PLAN.mirror.name, self.run_dir.name, None).load()
        assert found is not None
        return found

    @contextmanager
    def tail(self) -> Iterator[None]:
        """Copy under the lease, until somebody takes it."""
        with WireCluster(self.target.config) as wire:
            token = lease.take(wire, PLAN.mirror.name)
        with closing(LeaseWatch(self.target.config, token)) as watch:
            copy = Following(self.source, self.target, ranges_of(self.source, "t"), check=watch.check).__enter__()
            try:
                copy.until(lambda: ends(self.target) == [self.log.end], "the tail has caught up")
                yield
                copy._thread.join(30)  # it ends by itself: its lease is gone
            finally:
                with suppress(LeaseLost):
                    copy.__exit__()
        assert isinstance(copy.failed, LeaseLost)


class Killed(BaseException):
    pass


def kill(world: World, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Cut over until ``where`` is called, and take nothing back: nobody lives to do that. Its host is lost with it."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as killed, pytest.raises(FenceNotLifted) as caught:
        killed.setattr(where, die)
        killed.setattr(steps, "back_out", lambda run, *_: run.report.undone.append(UndoneRecord(step="")))
        world.cut_over()
    assert isinstance(caught.value.__cause__, Killed)
    shutil.rmtree(world.run_dir)


# Between the taking of the lease and the report that says so.
JUST_TAKEN = "airflow_mirror.cutover.writers.asdict"


def chain_of(world: World) -> list[Link]:
    """The links of the mirror's reports, which are one chain."""
    with world.ledger() as ledger:
        found = links(ledger.values(), PLAN.mirror.name)
    assert [link.before for link in found] == ["", *(link.digest for link in found[:-1])]
    return found
