"""Windows that touch in time tile the log: each record belongs to one of them, whenever they were resolved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.driver import windows
from airflow_mirror.jobs.driver.prepare import CopyJob, resolve_window
from airflow_mirror.jobs.driver.windows import Span, Window, WindowBook
from airflow_mirror.mirror import time_ms
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.records import Record
from tests.unit.cutover.builders import a_plan
from tests.unit.ledger.memory import MemoryState
from tests.unit.verify.test_compare import batch

TIMES = ["2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00", "2026-01-01T02:00:00+00:00"]
T0 = time_ms("start", TIMES[0])


class FakeSource:
    """A partition whose records have these times, in seconds after the first window's start; offsets from 0."""

    def __init__(self, *seconds: Any, stable: int | None = None) -> None:
        self.stable = stable
        self.records = [Record(n, T0 + s * 1000, b"k", b"v", []) for n, s in enumerate(seconds)]

    def refresh(self, topics: dict[str, tuple[str, str]]) -> None:
        pass

    def partitions(self, topic: str) -> int:
        return 1

    def log_starts(self, tps: Any) -> Any:
        return dict.fromkeys(tps, 0)

    def high_watermarks(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, len(self.records))

    def last_stable(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return self.high_watermarks(tps) if self.stable is None else dict.fromkeys(tps, self.stable)

    def offsets_for_time(self, tps: Any, ms: int) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, next((r.offset for r in self.records if r.timestamp >= ms), -1))

    def read(
        self, _cluster: FakeSource, _tp: TopicPartition, start: int, end: int, **_: Any
    ) -> Iterator[tuple[RawBatch, list[Any]] | None]:
        yield from ((batch([r]), []) for r in self.records if start <= r.offset < end)


@pytest.mark.parametrize(
    ("end", "says"), [("2026-01-01T00:00:00", "has no time zone"), ("earliest", "not a point in time")]
)
def test_an_end_that_is_another_time_on_each_host_is_refused_by_name(end: str, says: str) -> None:
    with pytest.raises(InputError, match=rf"^end=.*{says}"):
        Span.of(TIMES[0], end, 0.0)


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> WindowBook:
    monkeypatch.setattr(windows, "read_batches", lambda source, *given, **more: source.read(source, *given, **more))
    return WindowBook(MemoryState(), "flow")


def window(source: FakeSource, number: int, book: WindowBook, *, topic_id: str = "id-orders") -> tuple[int, int | None]:
    """Resolve the first or the second hour."""
    plan = a_plan("orders")
    plan = replace(plan, topics=(replace(plan.topics[0], source_topic_id=topic_id),))
    job = CopyJob(mirror=plan.mirror, source="s", target="t", plan=plan, options=CopyOptions(mirror="flow"))
    [one], *_ = resolve_window(job, source, TIMES[number], TIMES[number + 1], 300, book)
    return one.start_offset, one.end_offset


HOUR = 3600


def test_a_window_that_ends_at_an_open_transaction_is_told_and_resolved_again(
    book: WindowBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored as it is, every later try would leave out what the transaction kept back."""
    monkeypatch.setattr("airflow_mirror.jobs.driver.stable.PATIENCE_S", 0.0)
    plan = a_plan("orders")
    job = CopyJob(mirror=plan.mirror, source="s", target="t", plan=plan, options=CopyOptions(mirror="flow"))
    open_at_1, ended = FakeSource(10, 20, 30, HOUR, stable=1), FakeSource(10, 20, 30, HOUR)
    resolved = [resolve_window(job, source, TIMES[0], TIMES[1], 300, book) for source in (open_at_1, ended, ended)]
    assert [r.end_offset for (r,), *_ in resolved] == [1, 3, 3]
    assert [[str(one) for one in held] for *_, held in resolved] == [
        ["orders-0: 3 offsets behind an open transaction since offset 1"], [], [],
    ]  # fmt: skip
    uncommitted = replace(job, options=replace(job.options, committed_only=False))
    assert resolve_window(uncommitted, open_at_1, TIMES[0], TIMES[1], 301, book)[2] == []


def test_late_record_between_windows_belongs_to_exactly_one(book: WindowBook) -> None:
    assert window(FakeSource(10, 20), 0, book) == (0, 2)  # copied before the hour was over
    later = FakeSource(10, 20, 30, HOUR, HOUR + 10, 2 * HOUR)  # offset 2 came late, before the next window's first
    assert window(later, 1, book) == (2, 5)


def test_late_records_inside_the_next_window_are_copied_once(book: WindowBook) -> None:
    source = FakeSource(10, HOUR + 1, 20, HOUR + 400, 2 * HOUR)
    assert window(source, 0, book) == (0, 3)
    assert window(source, 1, book) == (3, 4)
    assert window(source, 1, WindowBook(None, "flow")) == (1, 4), "by the broker alone"


def test_window_resolved_last_ends_where_the_next_begins(book: WindowBook) -> None:
    source = FakeSource(10, HOUR + 1, 20, HOUR + 400, 2 * HOUR)
    assert window(source, 1, book) == (1, 4)
    assert window(source, 0, book) == (0, 1)


def test_a_window_without_records_touches_both_of_its_neighbours(book: WindowBook) -> None:
    source = FakeSource(HOUR + 1, 2 * HOUR)
    assert (window(source, 0, book), window(source, 1, book)) == ((0, 0), (0, 1))


def test_windows_of_a_recreated_topic_are_resolved_alone(book: WindowBook) -> None:
    source = FakeSource(10, HOUR + 1, 20, HOUR + 400, 2 * HOUR)
    window(source, 0, book)
    assert window(source, 1, book, topic_id="again") == (1, 4)


def test_only_the_last_windows_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other mirrors are theirs."""
    monkeypatch.setattr(windows, "KEEP", 2)
    state = MemoryState()
    book, tp, ids = WindowBook(state, "flow"), TopicPartition("t", 0), {"t": "id"}
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
