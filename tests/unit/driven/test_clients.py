"""Who has written since the opening is told by the source's log, whatever the clocks of its clients say."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.report import DONE, CutoverReport, FenceRecord
from airflow_mirror.extras.clients import inventory, since
from airflow_mirror.extras.clients.inventory import Inventory
from airflow_mirror.mirror import Mirror
from airflow_mirror.wire.cluster import WireCluster
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.content import TIME_MS, Writer
from tests.driven.script import Fault

ORDERS = TopicPartition("orders", 0)
HOUR_MS = 3_600_000
PLAN = plan_of(Mirror(name="m", source="s", target="t"), topic_plan("orders", {0: 0}, source_topic_id="id"))


@pytest.fixture
def written(source: DrivenCluster) -> Writer:
    """Before the cutover producers 11 and 12 have written five records, at noon by their own clocks."""
    writer = Writer(source.create("orders").logs[0])
    writer.idempotent(11, 3)
    writer.idempotent(12, 2)
    return writer


@pytest.fixture
def looking(
    source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:  # fmt: skip
    """Call it with when the target was opened, by our clock; 0: it was not. The cutover's end is offset 5."""
    target.create("orders")
    monkeypatch.setattr(inventory, "ask_groups", lambda *_: ([], {}))
    monkeypatch.setattr(inventory, "transactional_ids", lambda *_: {})
    with WireCluster(source.config) as old, WireCluster(target.config) as new:
        sides: list[Any] = [
            SimpleNamespace(
                wire=wire, config=wire.settings, group_states=lambda _: {}, groups_offsets=lambda _: {},
                topic_names=lambda: ["orders"], topics=lambda _: {},
            )
            for wire in (old, new)
        ]  # fmt: skip

        def look(opened_ms: int) -> Inventory:
            report = CutoverReport(mirror="m", plan_hash=PLAN.hash)
            report.ends = [{"topic": "orders", "partition": 0, "end": 5}]
            report.fence = FenceRecord(kind="acl", name="acl", intent={}, requested=1.0, opened=opened_ms / 1000)
            report.outcome = DONE
            old_side, new_side = sides
            return inventory.look(PLAN, old_side, new_side, report if opened_ms else None)

        yield look


def test_clock_that_is_ahead_does_not_write_after_the_opening(written: Writer, looking: Any) -> None:
    assert looking(TIME_MS - HOUR_MS).waiting == []


def test_clock_that_is_behind_is_seen_all_the_same(written: Writer, looking: Any) -> None:
    written.idempotent(12, 1)
    assert looking(TIME_MS + HOUR_MS).waiting == ["producer 12 has written to the source since the target was opened"]


def test_who_writes_without_a_producer_id_is_told_by_nobody(written: Writer, looking: Any) -> None:
    written.plain(4)
    found = looking(TIME_MS + HOUR_MS)
    assert found.waiting == []
    assert found.unseen == ["who has written 4 records to orders-0 since the target was opened: no producer id"]


def test_of_much_the_newest_is_read_and_the_rest_goes_by_time(
    written: Writer, looking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(since, "_MOST", 2)
    written.idempotent(11, 4)
    written.idempotent(12, 3)
    found = looking(TIME_MS + HOUR_MS)
    assert found.waiting == ["producer 12 has written to the source since the target was opened"]
    assert found.unseen == ["who has written to orders-0 since the opening, but for the newest part: by their clocks"]
    assert len(looking(TIME_MS - HOUR_MS).waiting) == 2


def test_log_that_is_another_one_by_now_is_no_proof_that_nobody_wrote(
    written: Writer, looking: Any, source: DrivenCluster
) -> None:
    """Its topic was created again, and written to: it ended before the cutover's end, and counted as read."""
    source.delete("orders")
    Writer(source.create("orders").logs[0]).idempotent(12, 2)
    found = looking(TIME_MS - HOUR_MS)
    assert found.waiting == ["producer 12 has written to the source since the target was opened"]
    assert found.unseen == [
        "who has written to orders-0 since the opening: created again or truncated, its log ends before the cutover's end"
    ]


def test_who_writes_while_it_is_looked_is_writing(written: Writer, looking: Any, source: DrivenCluster) -> None:
    assert [one.writing for one in looking(0).writers] == [False, False]
    source.script.on("DescribeProducers", Fault(before=lambda _: written.idempotent(12, 1)), nth=2)
    assert {one.name for one in looking(0).writers if one.writing} == {"producer 12"}
