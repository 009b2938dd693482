"""Windows that touch in time tile the log: each record belongs to one of them, whenever they were resolved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.driver.prepare import CopyJob, resolve_window
from airflow_mirror.jobs.driver.windows import Span, Window, WindowBook, resolve
from airflow_mirror.mirror import time_ms
from airflow_mirror.wire.batch import TRANSACTIONAL
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED
from tests.driven.cluster import DrivenCluster
from tests.driven.records import Row, encode
from tests.driven.script import Fault
from tests.unit.cutover.builders import a_plan
from tests.unit.ledger.memory import MemoryState

TIMES = ["2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00", "2026-01-01T02:00:00+00:00"]
T0 = time_ms("start", TIMES[0])


class Source:
    """A partition whose records have these times, in seconds after the first window's start; offsets from 0."""

    def __init__(self, cluster: DrivenCluster, wire: WireCluster) -> None:
        self.wire, self.log, self.script = wire, cluster.create("orders").logs[0], cluster.script

    def write(self, *seconds: int, **of_a_transaction: int) -> None:
        """Append a batch for each."""
        for s in seconds:
            row = Row(self.log.end, T0 + s * 1000, b"k", b"v", ())
            self.log.lay(encode([row], leader_epoch=self.log.epoch, **of_a_transaction))


@pytest.fixture
def source() -> Iterator[Source]:
    with DrivenCluster("source") as cluster, WireCluster(cluster.config) as wire:
        yield Source(cluster, wire)


@pytest.mark.parametrize(
    ("end", "says"), [("2026-01-01T00:00:00", "has no time zone"), ("earliest", "not a point in time")]
)
def test_an_end_that_is_another_time_on_each_host_is_refused_by_name(end: str, says: str) -> None:
    with pytest.raises(InputError, match=rf"^end=.*{says}"):
        Span.of(TIMES[0], end, 0.0)


@pytest.mark.parametrize("end", [TIMES[0], TIMES[1], "2026-01-01T02:00:00+01:00"])
def test_a_window_that_holds_no_time_is_refused(end: str) -> None:
    with pytest.raises(InputError, match=rf"^end='{re.escape(end)}': not after the start, {re.escape(TIMES[1])}"):
        Span.of(TIMES[1], end, 0.0)


@pytest.fixture
def book() -> WindowBook:
    return WindowBook(MemoryState(), "flow")


def window(source: Source, number: int, book: WindowBook, *, topic_id: str = "id-orders") -> tuple[int, int | None]:
    """Resolve the first or the second hour."""
    plan = a_plan("orders")
    plan = replace(plan, topics=(replace(plan.topics[0], source_topic_id=topic_id),))
    job = CopyJob(mirror=plan.mirror, source="s", target="t", plan=plan, options=CopyOptions(mirror="flow"))
    [one], *_ = resolve_window(job, source.wire, TIMES[number], TIMES[number + 1], 300, book)
    return one.start_offset, one.end_offset


HOUR = 3600


def test_a_window_that_ends_at_an_open_transaction_is_told_and_resolved_again(
    source: Source, book: WindowBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored as it is, every later try would leave out what the transaction kept back."""
    monkeypatch.setattr("airflow_mirror.jobs.driver.stable.PATIENCE_S", 0.0)
    plan = a_plan("orders")
    job = CopyJob(mirror=plan.mirror, source="s", target="t", plan=plan, options=CopyOptions(mirror="flow"))
    source.write(10)
    source.write(20, producer_id=7, epoch=0, sequence=0, attributes=TRANSACTIONAL)
    source.write(30, HOUR)
    resolved = []
    for ends in (False, True, False):
        if ends:
            source.log.append_marker(7, 0, commit=True, coordinator_epoch=0)
        resolved.append(resolve_window(job, source.wire, TIMES[0], TIMES[1], 300, book))
    assert [r.end_offset for (r,), *_ in resolved] == [1, 3, 3]
    assert [[str(one) for one in held] for *_, held in resolved] == [
        ["orders-0: 3 offsets behind an open transaction since offset 1"], [], [],
    ]  # fmt: skip
    source.write(HOUR, producer_id=7, epoch=0, sequence=1, attributes=TRANSACTIONAL)
    uncommitted = replace(job, options=replace(job.options, committed_only=False))
    assert resolve_window(uncommitted, source.wire, TIMES[0], TIMES[1], 301, book)[2] == []


@pytest.mark.parametrize(("start", "end"), [(TIMES[0], TIMES[1]), ("earliest", TIMES[1]), ("earliest", "latest")])
def test_what_a_transaction_kept_back_is_told_though_it_has_ended_since(
    source: Source, book: WindowBook, monkeypatch: pytest.MonkeyPatch, start: str, end: str
) -> None:
    """The range ends where it began, and by the next look nothing waits."""
    monkeypatch.setattr("airflow_mirror.jobs.driver.stable.PATIENCE_S", 0.0)
    plan = a_plan("orders")
    job = CopyJob(mirror=plan.mirror, source="s", target="t", plan=plan, options=CopyOptions(mirror="flow"))
    source.write(10)
    source.write(20, producer_id=7, epoch=0, sequence=0, attributes=TRANSACTIONAL)
    source.write(30)
    commit = Fault(after=lambda _: source.log.append_marker(7, 0, commit=True, coordinator_epoch=0))
    looks = 2 if start == TIMES[0] else 1  # where that is comes before where it ends
    source.script.on("ListOffsets", commit, nth=looks, when=lambda r: r.message.isolation_level == READ_COMMITTED)
    [one], _, held = resolve_window(job, source.wire, start, end, 300, book)
    assert one.end_offset == 1 and [at.since for at in held] == [1]
    [one], _, held = resolve_window(job, source.wire, start, end, 300, book)
    assert one.end_offset in (3, 4) and not held


@pytest.mark.parametrize(
    ("start", "plan", "offsets"),
    [
        ("earliest", {"start_group": "g"}, {"starts": {0: 3}}),  # below are the records of an older tool
        ("latest", {}, {"ends": {0: 3}}),
        ("latest", {"start": "latest"}, {"starts": {0: 3}}),
    ],
)
def test_a_window_without_a_beginning_begins_where_the_mirror_does(
    source: Source, book: WindowBook, start: str, plan: dict[str, Any], offsets: dict[str, Any]
) -> None:
    source.write(10, 20, 30, 40, 50)
    made = a_plan("orders")
    made = replace(made, mirror=replace(made.mirror, **plan), topics=(replace(made.topics[0], **offsets),))
    job = CopyJob(mirror=made.mirror, source="s", target="t", plan=made, options=CopyOptions(mirror="flow"))
    [one], *_ = resolve_window(job, source.wire, start, TIMES[1], 300, book)
    assert (one.start_offset, one.end_offset) == (3, 5)


def test_late_record_between_windows_belongs_to_exactly_one(source: Source, book: WindowBook) -> None:
    source.write(10, 20)
    assert window(source, 0, book) == (0, 2)  # copied before the hour was over
    source.write(30, HOUR, HOUR + 10, 2 * HOUR)  # offset 2 came late, before the next window's first
    assert window(source, 1, book) == (2, 5)


def test_a_window_behind_one_that_retention_has_deleted_begins_at_the_log_start(source: Source, book: WindowBook) -> None:
    source.write(10, 20)
    assert window(source, 0, book) == (0, 2)
    source.write(30, HOUR, 2 * HOUR)
    source.log.log_start = 3
    assert window(source, 1, book) == (3, 4)


def test_older_records_that_retention_deletes_meanwhile_are_not_counted(source: Source) -> None:
    source.write(10, HOUR, 2 * HOUR)
    source.log.log_start = 1
    tp = TopicPartition("orders", 0)
    found = resolve(source.wire, Span.of(TIMES[0], TIMES[1], 0.0), {tp: 0}, {tp: 3}, True)
    assert found == {tp: Window(start=0, end=1)}


def test_late_records_inside_the_next_window_are_copied_once(source: Source, book: WindowBook) -> None:
    source.write(10, HOUR + 1, 20, HOUR + 400, 2 * HOUR)
    assert window(source, 0, book) == (0, 3)
    assert window(source, 1, book) == (3, 4)
    assert window(source, 1, WindowBook(None, "flow")) == (1, 4), "by the broker alone"


def test_window_resolved_last_ends_where_the_next_begins(source: Source, book: WindowBook) -> None:
    source.write(10, HOUR + 1, 20, HOUR + 400, 2 * HOUR)
    assert window(source, 1, book) == (1, 4)
    assert window(source, 0, book) == (0, 1)


def test_a_window_without_records_touches_both_of_its_neighbours(source: Source, book: WindowBook) -> None:
    source.write(HOUR + 1, 2 * HOUR)
    assert (window(source, 0, book), window(source, 1, book)) == ((0, 0), (0, 1))


def test_windows_of_a_recreated_topic_are_resolved_alone(source: Source, book: WindowBook) -> None:
    source.write(10, HOUR + 1, 20, HOUR + 400, 2 * HOUR)
    window(source, 0, book)
    assert window(source, 1, book, topic_id="again") == (1, 4)


def test_only_the_last_windows_are_remembered() -> None:
    """Those of other mirrors are theirs."""
    state = MemoryState()
    book, tp, ids = WindowBook(state, "flow", keep=2), TopicPartition("t", 0), {"t": "id"}
    WindowBook(state, "flow.2").save(Span(0, 1000), {tp: Window(start=7, end=9)}, ids)
    spans = [Span(n * 1000, (n + 1) * 1000) for n in range(4)]
    for age, span in enumerate(spans):
        book.save(span, {tp: Window(start=age, end=age)}, ids)
    assert [book.load(span, ids) for span in spans] == [
        {},
        {},
        {tp: Window(start=2, end=2)},
        {tp: Window(start=3, end=3)},
    ]
    assert WindowBook(state, "flow.2").load(spans[0], ids) == {tp: Window(start=7, end=9)}


def test_a_window_that_has_become_smaller_is_replaced_whole(small_records: Callable[[int], None]) -> None:
    small_records(200)
    book, span = WindowBook(MemoryState(), "flow"), Span(0, 1000)
    many = {TopicPartition("t", p): Window(start=p, end=p) for p in range(20)}
    few = {TopicPartition("t", p): Window(start=1, end=2) for p in range(2)}
    for stored in (many, few, many):
        book.save(span, stored, {"t": "id"})
        assert book.load(span, {"t": "id"}) == stored


def test_windows_of_a_newer_version_are_refused(book: WindowBook) -> None:
    """To resolve them again could copy records twice, or leave some out."""
    state = MemoryState()
    state.write({"window/flow/0_1000_300/0/1": b'{"v": 2}'})
    with pytest.raises(InputError, match="this version can't read"):
        WindowBook(state, "flow").load(Span(0, 1000), {})
