"""Jobs without a plan: where they begin, and which target topics they may touch."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.common.policy import DECISIONS, starts_group
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.errors import BrokerError, InputError, LedgerLost
from airflow_mirror.jobs import start_memory
from airflow_mirror.jobs.driver import by_hand
from airflow_mirror.jobs.driver.prepare import CopyJob, frozen_starts, resolve_ranges
from airflow_mirror.jobs.request import BulkRequest
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry, GroupPosition, TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.configs import HELD_OPEN
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.sync.configs import ConfigsReport
from airflow_mirror.sync.topics import TopicsReport
from tests.builders import request
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import copy, create_maps, ranges_of
from tests.driven.ledger import LedgerCluster
from tests.unit.cutover.builders import a_plan

MIRROR = Mirror(name="flow", source="src", target="dst", topics=["orders", "users"], start="latest")


class FakeAdmin:
    """Topics with an id and spans [log start, end) of their partitions; the positions of groups; settings."""

    has_ids = True

    def __init__(
        self, topics: dict[str, list[tuple[Any, ...]]], settings: dict[str, dict[str, str]] | None = None
    ) -> None:
        self.of, self.committed, self.settings = topics, dict[str, Any](), settings or {}

    def topic_names(self) -> list[str]:
        return list(self.of)

    def topics(self, names: Any) -> dict[str, TopicInfo]:
        return {n: TopicInfo(n, f"id-{n}" * self.has_ids, len(self.of[n]), 1) for n in names if n in self.of}

    def offsets(self, partitions: list[TP], spec: str) -> dict[TP, int]:
        return {tp: self.of[tp.topic][tp.partition][spec == "latest"] for tp in partitions}

    def topic_configs(self, names: dict[str, TopicPlan]) -> dict[str, dict[str, ConfigEntry]]:
        return {n: {k: ConfigEntry(value=v) for k, v in self.settings.get(n, HELD_OPEN).items()} for n in names}

    def group_offsets(self, group: str) -> dict[TP, GroupPosition]:
        return self.committed.get(group, {})

    def commit_group_offsets(self, group: str, positions: dict[TP, GroupPosition], permit: Permit) -> None:
        self.committed.setdefault(group, {}).update(positions)


def plan_of(starts: dict[int, int], mirror: Mirror = MIRROR) -> Plan:
    plan = a_plan("orders")
    return replace(plan, mirror=mirror, topics=(replace(plan.topics[0], starts=starts, ends={0: 900}),))


def test_nothing_is_touched_where_the_ledger_is_lost(ledger_target: LedgerCluster, tmp_path: Path) -> None:
    """A topic may be in production: to hold its settings, or to write there, is not the copy's to try."""
    with LedgerCluster(tmp_path, "source") as source:
        source.create("orders"), ledger_target.create("orders")
        ledger_target.create(DECISIONS)  # which loses it
        for hold in (True, False):
            asked = len(ledger_target.requests)
            job = request(
                BulkRequest, MIRROR, source=source.reference, target=ledger_target.reference, no_probe=True, hold=hold
            )
            with pytest.raises(LedgerLost):
                by_hand.plan_by_hand(job)
            assert {one.api for one in ledger_target.requests[asked:]} == {"ApiVersions", "Metadata", "DescribeConfigs"}


def test_latest_start_is_stored_on_target_and_found_again() -> None:
    source, target = FakeAdmin({"orders": [(0, 500)], "audit": [(0, 1)]}), FakeAdmin({"orders": [(0, 0)]})
    assert start_memory.begun_at(MIRROR, source, target, {}).starts == {}
    start_memory.remember(plan_of({0: 100}), target)
    assert target.committed == {"airflow-mirror:flow:starts": {TP("orders", 0): GroupPosition(100, "id-orders")}}
    assert start_memory.begun_at(MIRROR, source, target, {}).starts == {"id-orders": {0: 100}}


def test_another_mirror_has_another_memory() -> None:
    target = FakeAdmin({"orders": [(0, 0)]})
    start_memory.remember(plan_of({0: 100}), target)
    source = FakeAdmin({"orders": [(0, 500)]})
    assert start_memory.begun_at(replace(MIRROR, name="other"), source, target, {}).starts == {}


def test_a_log_that_was_written_says_itself_where_it_began() -> None:
    source, target = FakeAdmin({"orders": [(0, 500)] * 2}), FakeAdmin({"orders": [(100, 300), (0, 0)]})
    assert start_memory.begun_at(MIRROR, source, target, {}).starts == {"id-orders": {0: 100}}
    assert start_memory.begun_at(MIRROR, source, target, {"orders": MAPPED}).starts == {}


def test_the_memory_wins_over_a_log_that_holds_only_fillers() -> None:
    """A priming that was killed leaves a log that begins at 0 and ends anywhere."""
    source, target = FakeAdmin({"orders": [(0, 500)]}), FakeAdmin({"orders": [(0, 60)]})
    start_memory.remember(plan_of({0: 100}), target)
    assert start_memory.begun_at(MIRROR, source, target, {}).starts == {"id-orders": {0: 100}}


@pytest.mark.parametrize("has_ids", [False, True])
def test_topics_of_brokers_without_ids_are_told_apart_by_name(has_ids: bool) -> None:
    """Also once those brokers have been upgraded, and have ids. What is not selected any more has begun nothing."""
    source = FakeAdmin({"orders": [(0, 500)], "users": [(0, 90)]})
    source.has_ids = has_ids
    target = FakeAdmin({"orders": [(0, 0)], "users": [(20, 40)]})
    orders = plan_of({0: 100}).topics[0]
    others = [replace(orders, source_topic=t, target_topic=t, starts={0: at}) for t, at in (("users", 30), ("gone", 1))]
    topics = tuple(replace(t, source_topic_id="") for t in (orders, *others))
    start_memory.remember(replace(plan_of({}), topics=topics), target)
    orders_id, users_id = ("id-orders", "id-users") if has_ids else ("orders", "users")
    assert start_memory.begun_at(MIRROR, source, target, {}).starts == {orders_id: {0: 100}, users_id: {0: 30}}


class OnItsWay(FakeAdmin):
    """A target whose coordinator is not there the first times. :ivar refusals: how often."""

    refusals = 2

    def commit_group_offsets(self, group: str, positions: dict[TP, GroupPosition], permit: Permit) -> None:
        if self.refusals:
            self.refusals -= 1
            raise BrokerError("set offsets", 15, "COORDINATOR_NOT_AVAILABLE")
        super().commit_group_offsets(group, positions, permit)


def test_a_coordinator_on_its_way_is_waited_for() -> None:
    target, pauses = OnItsWay({"orders": [(0, 0)]}), list[float]()
    start_memory.remember(plan_of({0: 100}), target, pause=pauses.append)
    assert starts_group(MIRROR.name) in target.committed and pauses == [1.0, 1.0]
    target.refusals = 1
    with pytest.raises(BrokerError):
        start_memory.remember(plan_of({0: 100}), target, patience_s=-1.0)


def test_records_partitioned_by_key_are_remembered_by_their_maps() -> None:
    target = FakeAdmin({"orders": [(0, 0)]})
    start_memory.remember(plan_of({0: 1, 1: 2}, replace(MIRROR, offsets="mapped", partitioning="by_key")), target)
    assert target.committed == {}


SHARED = {"ownership": "shared", "delivery": "transactional", "sync_groups": False, "sync_configs": False}


def test_what_a_shared_topic_holds_does_not_say_where_we_began() -> None:
    """Others may have filled it. What this mirror has begun, its maps say."""
    mirror = replace(MIRROR, **SHARED)
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        for cluster in (source, target):
            Writer(cluster.create("orders").logs[0]).plain(5)
        create_maps(target)
        with ClusterAdmin(source.config) as here, ClusterAdmin(target.config) as there:
            for modes in ({}, {"orders": MAPPED}):
                if modes:
                    copy(source, target, ranges_of(source, "orders", MAPPED), mirror=mirror.name)
                assert start_memory.copy_modes(mirror, here.topic_names(), there) == modes
                assert start_memory.begun_at(mirror, here, there, modes).starts == {}


BY_AGE = {**HELD_OPEN, "retention.ms": "604800000"}


@pytest.mark.parametrize(
    ("spans", "settings", "refused"),
    [([(0, 5)], BY_AGE, True), ([(0, 0), (0, 5)], BY_AGE, True), ([(0, 0)], BY_AGE, False), ([(0, 5)], HELD_OPEN, False)],
    ids=["filled", "one-partition-filled", "empty", "held"],
)
def test_topics_with_data_are_not_held_open_without_being_told(
    spans: list[tuple[int, int]], settings: dict[str, str], refused: bool
) -> None:
    topic = replace(a_plan("orders").topics[0], held_configs=HELD_OPEN)
    target = FakeAdmin({"orders": spans}, {"orders": settings})
    if not refused:
        by_hand._check_held([topic], target)
        return
    with pytest.raises(InputError, match=r"orders: retention.ms is 604800000, must be -1\n.*--hold"):
        by_hand._check_held([topic], target)


@pytest.mark.parametrize("hold", [True, False])
def test_topic_that_somebody_else_creates_behind_the_plan_is_held_open_as_well(
    hold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = a_plan("orders", "users", "audit")
    found = (replace(t, target_exists=t.source_topic == "audit", held_configs=HELD_OPEN) for t in made.topics)
    plan, held = replace(made, topics=tuple(found)), list[str]()
    target = FakeAdmin({"orders": [(0, 5)], "audit": [(0, 0)]}, {"orders": BY_AGE})

    def sync(plan: Plan, *_: object, hold: bool) -> ConfigsReport:
        held.extend(t.target_topic for t in plan.topics)
        return ConfigsReport(hold=hold, changes=(), applied=True)

    report = TopicsReport(created=("users",), grown=(), existing=("audit", "orders"), differences=())
    answers: dict[str, Any] = {
        "load": lambda *_: None, "ClusterAdmin": lambda _: nullcontext(target), "planned": lambda *_, **__: (plan, None),
        "begin": lambda *_: None, "require_active": lambda *_: None, "_keep": lambda *_: None, "sync_configs": sync,
        "create_target_topics": lambda *_: report,
    }  # fmt: skip
    for name, does in answers.items():
        monkeypatch.setattr(by_hand, name, does)
    job = request(BulkRequest, replace(MIRROR, start="earliest"), source="s", target="t", hold=hold)
    if hold:
        by_hand.plan_by_hand(job)
        assert held == ["audit", "orders"]
        return
    with pytest.raises(InputError, match=r"orders: retention.ms is 604800000, must be -1\n.*--hold"):
        by_hand.plan_by_hand(job)
    assert not held


def test_a_larger_batch_limit_on_the_target_is_enough() -> None:
    topic = replace(a_plan("orders").topics[0], held_configs={**HELD_OPEN, "max.message.bytes": "1000"})
    target = FakeAdmin({"orders": [(0, 5)]}, {"orders": {**HELD_OPEN, "max.message.bytes": "2000"}})
    by_hand._check_held([topic], target)
    target.settings["orders"]["max.message.bytes"] = "999"
    with pytest.raises(InputError, match="max.message.bytes is 999, must be 1000"):
        by_hand._check_held([topic], target)


# --- ranges of a plan -------------------------------------------------------------------------------------------------


class FakeWire:
    """A source of two partitions, the second of which was created after the plan was made."""

    def refresh(self, topics: dict[str, tuple[str, str]]) -> None:
        pass

    def partitions(self, topic: str) -> int:
        return 2

    def log_starts(self, tps: list[TP]) -> dict[TP, int]:
        return {tp: {0: 40, 1: 3}[tp.partition] for tp in tps}

    def last_stable(self, tps: list[TP]) -> dict[TP, int]:
        return {tp: {0: 1000, 1: 50}[tp.partition] for tp in tps}

    high_watermarks = last_stable

    def offsets_for_time(self, tps: list[TP], ms: int) -> dict[TP, int]:
        return {tp: {0: 500, 1: -1}[tp.partition] for tp in tps}


def ranges(plan: Plan, start: str, end: str | None = "latest") -> Any:
    job = CopyJob(mirror=plan.mirror, source="s", target="t", plan=plan, options=CopyOptions(mirror="flow"))
    return [(r.start_offset, r.end_offset) for r in resolve_ranges(job, FakeWire(), start, end)[0]]


@pytest.mark.parametrize(
    ("planned", "starts", "asked", "expected"),
    [
        ("latest", {0: 100}, "latest", [(100, 1000), (3, 50)]),
        ("earliest", {0: 20}, "earliest", [(40, 1000), (3, 50)]),
        ("earliest", {0: 20}, "latest", [(900, 1000), (3, 50)]),  # as of the plan, not of the job
        ("latest", {0: 100}, "earliest", [(40, 1000), (3, 50)]),
        ("latest", {0: 100}, "2026-01-01T00:00:00+00:00", [(500, 1000), (50, 50)]),
    ],
)
def test_a_job_begins_where_the_plan_says(
    planned: str, starts: dict[int, int], asked: str, expected: list[tuple[int, int]]
) -> None:
    assert ranges(plan_of(starts, replace(MIRROR, start=planned)), asked) == expected


def test_a_target_topic_is_named_by_its_id_where_that_is_known() -> None:
    plan = plan_of({0: 100})
    (name,) = {t.target_topic for t in plan.topics}
    job = CopyJob(mirror=plan.mirror, source="s", target="t", plan=plan, options=CopyOptions(mirror="flow"))
    for one, known in ((job, None), (replace(job, target_ids={name: "id-there"}), "id-there")):
        found, _ = resolve_ranges(one, FakeWire(), "earliest", None)  # type: ignore[arg-type]
        assert {r.target_topic_id for r in found} == {known}


def test_a_tail_follows_from_the_same_offsets_without_an_end() -> None:
    assert ranges(plan_of({0: 100}), "latest", None) == [(100, None), (3, None)]


def test_a_plan_knows_its_own_beginning_alone() -> None:
    plan = plan_of({0: 100})
    assert frozen_starts(plan, "latest") == {TP("orders", 0): 100}
    assert frozen_starts(plan, "earliest") == {}
