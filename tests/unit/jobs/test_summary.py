"""The figures of a running copy: what they are made of, and how they are bounded. No broker."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.jobs.progress import keeper, poller, wording
from airflow_mirror.jobs.progress.delay import Moment, behind
from airflow_mirror.jobs.progress.figures import (
    MAX_ROWS,
    WINDOW_S,
    eta_s,
    summary_of,
    worth_listing,
)
from airflow_mirror.jobs.progress.listener import Hosts
from airflow_mirror.jobs.progress.retained import Retained
from airflow_mirror.jobs.progress.table import Table
from airflow_mirror.jobs.runner import status as status_file
from airflow_mirror.jobs.runner.status import StatusFile
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.validation import TopicConfig
from tests.listening import listeners
from tests.unit.jobs.progress import Job, bounded, row, tail, told
from tests.waiting import wait_until

# --- rates and time to go --------------------------------------------------------------------------------------------


def test_rate_is_smoothed_over_the_window_and_forgets_older_samples() -> None:
    job = Job()
    for second in range(61):
        position = 100 * second if second <= 30 else 3000
        (row,), _ = job.look(float(second), (bounded(end=9000), told(position)))
        if second in (0, 60):
            assert row.advances_per_s == 0
        if 0 < second <= 30:
            assert row.advances_per_s == 100
        if second == 35:
            assert row.advances_per_s == pytest.approx(100 * 5 / WINDOW_S)  # half the window stood still
    assert len(job.course._looks) < 15


def test_eta_is_unknown_while_nothing_moves_or_lag_grows() -> None:
    assert (eta_s(100, 10.0, 10.0), eta_s(0, 0.0, 0.0), eta_s(100, 0.0, 0.0), eta_s(100, -5.0, 9.0)) == (
        10,
        0,
        None,
        None,
    )
    assert (eta_s(100, 0.0, 200.0), eta_s(300, -1.0, 200.0), eta_s(401, -1.0, 200.0)) == (
        0,
        2,
        None,
    )  # keeps up, or doesn't


def test_a_row_has_rates_and_time_to_go() -> None:
    job = Job()
    job.look(0.0, (bounded(), told(100, bytes=1_000, records=100)))
    (row,), summary = job.look(4.0, (bounded(), told(300, bytes=41_000, records=300, passed=9, dropped=2)))
    assert row.to_dict() == {
        "topic": "orders", "partition": 0, "target_partition": 0, "state": "copying", "position": 300, "end": 1000,
        "lag": 700, "held": 0, "eta_s": 14, "bytes_per_s": 10_000, "records_per_s": 50, "records": 300, "bytes": 41_000,
        "batches": 0, "passed": 9, "reencoded": 0, "merged": 0, "dropped": 2, "padded": 0, "primed": 0, "error": None,
    }  # fmt: skip
    assert (summary["lag"], summary["offsets"], summary["eta_s"], summary["bytes_per_s"]) == (700, 1000, 14, 10_000)
    assert summary["tiers"]["dropped"] == 2 and summary["slowest"][0]["partition"] == "orders-0"


def test_a_tail_that_falls_behind_has_no_end_in_sight() -> None:
    job = Job()
    job.look(0.0, (tail(), told(100, end=200)))
    (row,), summary = job.look(2.0, (tail(), told(200, end=500)))
    assert (row.lag, row.eta_s, summary["eta_s"], summary["offsets"]) == (300, None, None, None)
    assert "300 offsets behind in 1 partition" in wording.describe(summary)
    assert "lag does not shrink" in wording.describe(summary)


def test_a_tail_that_keeps_up_is_neither_slow_nor_stuck() -> None:
    job = Job()
    for now in range(12):  # 250 offsets a second on both sides, always 25 behind
        _, summary = job.look(float(now), (tail(), told(250 * now, end=250 * now + 25, passed=now)))
    assert summary["eta_s"] == 0 and summary["slowest"][0]["advances"]
    assert wording.describe(summary) == (
        "25 offsets behind in 1 partition; 0.0 kB/s, 0 records/s, about 0 s to go; batches: 11 passed"
    )


def test_stopped_partition_does_not_spoil_the_others_eta() -> None:
    job = Job()
    stuck = (bounded(1), told(10, "stopped", error="orders-1: broken batch"))
    job.look(0.0, (bounded(0), told(0)), stuck)
    rows, summary = job.look(1.0, (bounded(0), told(500)), stuck)
    assert summary["eta_s"] == 1 and rows[1].eta_s is None
    assert summary["stopped"] == ["orders-1: orders-1: broken batch"]
    assert summary["states"] == {"copying": 1, "stopped": 1}


def test_a_resumed_partition_is_no_spike_in_the_rate() -> None:
    job = Job()
    job.look(0.0, (bounded(), None))
    (row,), _ = job.look(1.0, (bounded(), told(900)))  # an earlier job copied these 900
    assert row.shrinks_per_s == 0
    (row,), _ = job.look(2.0, (bounded(), told(910)))
    assert row.shrinks_per_s == 10


# --- where no task speaks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("copy_range", "where", "state"),
    [
        (bounded(), (0, 1000), "opening"), (bounded(), (10, 1000), "copying"),
        (bounded(), (1000, 1000), "done"), (tail(), (40, 40), "following"), (tail(), (30, 40), "copying"),
    ],
)  # fmt: skip
def test_unreported_partition_is_where_the_clusters_say(
    copy_range: CopyRange, where: tuple[int, int], state: str
) -> None:
    (row,), _ = Job().look(0.0, (copy_range, None), seen=where)
    assert (row.state, row.position, row.to_dict()["bytes_per_s"], row.to_dict()["passed"]) == (
        state,
        where[0],
        None,
        None,
    )


def test_nothing_known_is_said_as_nothing_known() -> None:
    (row,), summary = Job().look(0.0, (tail(), None))
    assert (row.state, row.position, row.lag, row.eta_s) == ("opening", None, None, None)
    assert summary["lag"] is None and summary["eta_s"] is None
    assert wording.describe(summary).startswith("1 partition being opened; ")
    stopped = {**summary, "states": {"stopped": 1}}
    assert wording.describe(stopped).startswith("the progress of 1 partition is unknown; ")
    _, summary = Job().look(0.0, (tail(), None), (tail(1), told(7, "following", end=7)))
    assert wording.describe(summary).startswith("0 offsets behind in 1 partition, unknown for 1; ")


def test_polled_position_counts_only_while_the_task_is_silent() -> None:
    table = Table([bounded()])
    row = {"topic": "orders", "partition": 0, "target_partition": 0}
    table.see(("orders", 0, 0), 5, 1000)
    table.take("a", [row | told(10, bytes=7)])
    table.see(("orders", 0, 0), 20, 1000)
    (now,) = table.rows()
    assert (now.position, now.state) == (10, "copying")
    now.run.heard_at -= 100
    table.see(("orders", 0, 0), 20, 1000)
    (now,) = table.rows()
    assert (now.position, now.state, now.counters["bytes"]) == (20, "copying", 7)
    table.take("a", [row | told(30, "stopped", error="broken")])
    now.run.heard_at -= 100
    table.see(("orders", 0, 0), 40, 1000)
    table.see(("orders", 7, 7), 40, 1000)  # no longer followed
    (now,) = table.rows()
    assert (now.position, now.state, now.error) == (40, "stopped", "broken")


class Clusters:
    """Both clusters; they note what they are asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[int]]] = []

    def __getattr__(self, name: str) -> Any:
        def ask(tps: list[TopicPartition]) -> dict[TopicPartition, int]:
            self.asked.append((name, [tp.partition for tp in tps]))
            return {tp: {"log_ends": 50, "last_stable": 70, "high_watermarks": 90}[name] for tp in tps}

        return ask


@pytest.mark.parametrize(("committed_only", "end"), [(True, ("last_stable", 70)), (False, ("high_watermarks", 90))])
def test_clusters_are_polled_only_for_silent_partitions(committed_only: bool, end: tuple[str, int]) -> None:
    ranges = [bounded(0), bounded(1), tail(2), replace(tail(3), mode="mapped")]
    table, clusters = Table(ranges), Clusters()
    table.take("a", [{"topic": "orders", "partition": 0, "target_partition": 0} | told(10)])
    poller.look(clusters, clusters, committed_only, table)
    asked = [("high_watermarks", [2]), ("last_stable", [2])] if committed_only else [(end[0], [2])]
    assert clusters.asked == [("log_ends", [1, 2]), *asked]
    rows = table.rows()
    assert [row.held for row in rows] == [0, 0, 90 - end[1], 0]
    assert [(row.position, row.end) for row in rows] == [(10, 1000), (50, 1000), (50, end[1]), (None, None)]


def test_what_waits_for_an_open_transaction_is_told_beside_the_lag() -> None:
    """Short ones are how exactly-once writers write, and by key each target partition has a row of the same log."""
    job, by_key = Job(), [replace(tail(1), target_partition=place, key_partitions=2) for place in (0, 1)]
    one = (tail(0), told(70, end=70, held=30, state="following"))
    rows, summary = job.look(0.0, one, *((r, told(5, end=5, held=1, state="following")) for r in by_key))
    assert (summary["lag"], summary["held"]) == (0, 31)
    assert summary["open_transactions"] == [
        "orders-0: 30 offsets behind an open transaction since offset 70",
        "orders-1: 1 offset behind an open transaction since offset 5",
    ]
    assert "; 31 offsets behind open transactions (orders-0: 30 offsets behind an open" in wording.describe(summary)
    rows, summary = job.look(1.0, one)
    said = "0 offsets behind in 1 partition; orders-0: 30 offsets behind an open transaction since offset 70; "
    assert wording.describe(summary).startswith(said) and rows[0].to_dict()["held"] == 30
    known = rows[0].held_at
    assert summary_of(rows, known + 4)["held"] == 0 and summary_of(rows, known + 5)["held"] == 30
    (again,), _ = job.look(2.0, (tail(0), told(70, end=70, held=40)))
    (other,), _ = job.look(3.0, (tail(0), told(70, end=90, held=20)))
    assert again.held_at == known < other.held_at


def test_the_clusters_are_not_asked_while_every_task_speaks() -> None:
    table, clusters = Table([bounded()]), Clusters()
    table.take("a", [{"topic": "orders", "partition": 0, "target_partition": 0} | told(10)])
    poller.look(clusters, clusters, True, table)
    assert clusters.asked == []


def test_a_partition_that_is_gone_leaves_nothing_behind() -> None:
    job = Job()
    job.look(0.0, (bounded(0), told(1)), (bounded(1), told(1)))
    (row,), _ = job.look(1.0, (bounded(0), told(2)))
    assert row.key == ("orders", 0, 0)
    for now in (20.0, 40.0):
        job.look(now, (bounded(0), told(2)))
    assert {key for _, numbers in job.course._looks for key, *_ in numbers} == {row.key}


def test_rates_do_not_count_time_before_the_task_began() -> None:
    job, one = Job(), bounded()
    for now in range(10):
        job.look(float(now), (one, None), seen=(0, 1000))
    job.look(10.0, (one, told(0)))
    (row,), _ = job.look(11.0, (one, told(100, records=100)))
    assert row.shrinks_per_s == row.records_per_s == 100


# --- bounded size ----------------------------------------------------------------------------------------------------


def test_up_to_a_thousand_partitions_are_listed_in_order() -> None:
    rows = [row(p, "done", 0) for p in range(MAX_ROWS)]
    assert worth_listing(rows) == rows


def test_status_of_ten_thousand_partitions_lists_what_matters(tmp_path: Path) -> None:
    """The file stays below a megabyte, with a line for each partition that is listed."""
    rows = [row(p, "done", 0) for p in range(7000)] + [row(7000 + p, "copying", p + 1) for p in range(2990)]
    rows += [row(9990 + p, "stopped", 5) for p in range(10)]
    listed = worth_listing(rows)
    assert len(listed) == MAX_ROWS
    assert [r.state for r in listed[:11]] == ["stopped"] * 10 + ["copying"]
    assert [r.lag for r in listed[10:13]] == [2990, 2989, 2988]
    status = StatusFile(tmp_path)
    status.update(partitions=[r.to_dict() for r in listed], left_out=9000)
    written = tmp_path / "status.json"
    assert json.loads(written.read_text())["left_out"] == 9000
    assert written.stat().st_size < 1_000_000  # every row with the longest of errors
    # A line for each partition: people read it too.
    assert sum('"topic"' in line for line in written.read_text().splitlines()) == MAX_ROWS


def test_only_unfinished_partitions_are_listed_when_most_are_done() -> None:
    rows = [row(p, "following", 0) for p in range(9997)] + [row(9997 + p, "copying", 1) for p in range(3)]
    assert len(worth_listing(rows)) == 3


def test_a_full_disk_stops_no_copy_and_hides_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What could not be written comes with the next report. A job that can't report from the start does not begin."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    running = StatusFile(tmp_path)
    with monkeypatch.context() as disk:
        disk.setattr(status_file, "write_text", full)
        for phase in ("copying", "paused"):
            running.update(phase)
            running.report("groups", {"error": None})
        assert len(caplog.records) == 1 and "No space left" in caplog.text
        with pytest.raises(OSError, match="No space left"):
            StatusFile(tmp_path / "other")
    running.update()
    written = json.loads((tmp_path / "status.json").read_text())
    assert (written["phase"], written["follows"]) == ("paused", {"groups": {"error": None}})
    monkeypatch.setattr(status_file, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        running.succeed({})


def test_nothing_is_written_after_the_final_state(tmp_path: Path) -> None:
    status = StatusFile(tmp_path)
    status.update("copying", summary={"lag": 5})
    late = threading.Thread(target=lambda: (status.succeed({"records": 7}), status.update(summary={"lag": 0})))
    late.start()
    late.join()
    final = json.loads((tmp_path / "status.json").read_text())
    assert (final["state"], final["phase"], final["summary"]) == ("SUCCEEDED", "done", {"records": 7})


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Create the topic on both clusters, with nine records in each partition, which the source keeps for an hour."""
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        monkeypatch.setenv("S", source.config.dump())
        monkeypatch.setenv("T", target.config.dump())

        def create(partitions: int) -> None:
            for cluster in (source, target):
                for log in cluster.create("orders", partitions, TopicConfig(retention_ms=3_600_000)).logs:
                    Writer(log).plain(9)

        yield create


def test_summary_of_a_running_job_has_lag_and_headroom_in_seconds(tmp_path: Path, orders: Callable[[int], None]) -> None:
    orders(1)
    progress = keeper.Progress("env:S", "env:T", [tail()], True, StatusFile(tmp_path), None)
    progress.start()
    wait_until(lambda: progress.retained.last.kept_s and progress.table.rows()[0].end == 9)
    progress.stop()
    summary = json.loads((tmp_path / "status.json").read_text())["summary"]
    assert (summary["lag_s"], summary["headroom_s"]) == (0.0, 3600)


def test_one_partition_of_which_nobody_knows_makes_the_summary_unknown() -> None:
    """A bulk copy that begins: what is level already would stand for all that is about to be deleted."""
    now, kept = Moment(100.0, 1e9), Retained({}, {"orders": 3600.0})
    table = Table([tail(0), tail(1), tail(2)])
    for n, (position, end) in enumerate([(9, 9), (0, 0), (0, 5000)]):
        table.see(("orders", n, n), position, end)
    level, empty, far = (replace(row, seen_at=100.0) for row in table.rows())
    assert behind([level, empty], now, kept) == {"lag_s": 0.0, "headroom_s": 3600}
    assert behind([level, far], now, kept) == {"lag_s": None, "headroom_s": None}
    late = replace(far, timestamp_ms=999_999_000_000)
    assert behind([level, late], now, kept) == {"lag_s": 1000.0, "headroom_s": 2600}


def test_job_leaves_exact_rows_and_a_line_in_its_log(
    tmp_path: Path, orders: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    count = MAX_ROWS + 1
    orders(count)
    many = [bounded(p, start=9, end=1009) for p in range(count)]
    progress = keeper.Progress("env:S", "env:T", many, True, StatusFile(tmp_path))
    assert progress.report_to and progress.report_to.startswith("127.0.0.1 ")
    result = PartitionResult(topic="orders", target_topic="orders", partition=0, position=1009, done=True, records=7)
    status: dict[str, Any] = {"partitions": []}

    def is_written() -> bool:
        status.update(json.loads((tmp_path / "status.json").read_text()))
        return bool(status["partitions"])

    with caplog.at_level(logging.INFO, keeper.log.name):
        progress.start()
        wait_until(is_written)
        progress.stop([replace(result, target_partition=0)])
    assert status["summary"]["lag"] == 1_001_000
    assert "0 % of 1,001,000 offsets in 1,001 partitions" in caplog.messages[0]
    status = json.loads((tmp_path / "status.json").read_text())
    assert {(row["partition"], row["lag"]) for row in status["partitions"]} == {(p, 1000) for p in range(1, count)}
    assert (status["left_out"], len(status["partitions"])) == (1, MAX_ROWS)
    assert (status["summary"]["records"], status["summary"]["lag"]) == (7, 1_000_000)
    assert "of 1,001,000 offsets in 1,001 partitions" in caplog.messages[-1]


def test_job_without_a_port_is_shown(
    tmp_path: Path, orders: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    orders(1)
    nowhere = Hosts("192.0.2.1", "driver.example")  # TEST-NET-1: no interface has it
    progress = keeper.Progress("env:S", "env:T", [bounded()], True, StatusFile(tmp_path), nowhere)
    assert progress.report_to is None and "can't listen on 192.0.2.1" in caplog.text
    progress.start()
    progress.end_turn()
    progress.stop()
    assert len(json.loads((tmp_path / "status.json").read_text())["partitions"]) == 1


def test_job_that_is_to_listen_nowhere_is_shown_and_opens_no_port(tmp_path: Path, orders: Callable[[int], None]) -> None:
    orders(1)
    before = listeners([os.getpid()])
    progress = keeper.Progress("env:S", "env:T", [bounded()], True, StatusFile(tmp_path), None)
    assert progress.report_to is None and listeners([os.getpid()]) == before
    progress.start()
    progress.end_turn()
    progress.stop()
    assert len(json.loads((tmp_path / "status.json").read_text())["partitions"]) == 1
