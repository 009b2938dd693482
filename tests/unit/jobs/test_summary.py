"""The figures of a running copy: what they are made of, how they are bounded, how they read. No clock, no broker."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.copy.loop.partition import COUNTERS
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.jobs.progress import wording
from airflow_mirror.jobs.progress.bar import progress_bar
from airflow_mirror.jobs.progress.rates import WINDOW_S, Window, eta_s
from airflow_mirror.jobs.progress.reports import Key, Run, Told, key_of
from airflow_mirror.jobs.progress.summary import MAX_ROWS, Course, Row, Where, unfinished, worth_listing
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.operators.summaries import progress_line

RUN = Run(1)
FIRST = Key("orders", 0, 0)


def bounded(partition: int = 0, start: int = 0, end: int = 1000) -> CopyRange:
    return CopyRange(
        source_topic="orders", target_topic="orders", partition=partition, start_offset=start, end_offset=end
    )


def tail(partition: int = 0, start: int = 0) -> CopyRange:
    return CopyRange(source_topic="orders", target_topic="orders", partition=partition, start_offset=start)


def told(
    position: int, state: str = "copying", end: int | None = None, error: str | None = None, **counters: Any
) -> Told:
    return Told(
        run=RUN, state=state, position=position, end=end, error=error, counters={**dict.fromkeys(COUNTERS, 0), **counters}
    )


def look(course: Course, now: float, *known: Any, seen: Any = ()) -> tuple[list[Row], dict[str, Any]]:
    """Look at pairs of a range and what its task told (None: nothing)."""
    ranges = [one for one, _ in known]
    return course.look(ranges, {key_of(one): t for one, t in known if t}, dict(seen), now)


# --- rates and time to go --------------------------------------------------------------------------------------------


def test_a_rate_is_smoothed_over_the_window_and_forgets_what_is_older() -> None:
    window = Window()
    window.add(0.0, 0)
    assert list(window.per_s) == [0.0]
    for second in range(1, 61):
        window.add(float(second), 100 * second if second <= 30 else 3000)
        if second == 30:
            assert list(window.per_s) == [100.0]
        if second == 35:
            assert window.per_s[0] == pytest.approx(100 * 5 / WINDOW_S)  # half the window stood still
    assert list(window.per_s) == [0.0] and len(window._samples) < 15


def test_time_to_go_is_unknown_while_nothing_moves_or_the_source_is_faster() -> None:
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
    course = Course()
    look(course, 0.0, (bounded(), told(100, bytes=1_000, records=100)))
    (row,), summary = look(course, 4.0, (bounded(), told(300, bytes=41_000, records=300, passed=9, dropped=2)))
    assert row.to_dict() == {
        "topic": "orders", "partition": 0, "target_partition": 0, "state": "copying", "position": 300, "end": 1000,
        "lag": 700, "eta_s": 14, "bytes_per_s": 10_000, "records_per_s": 50, "records": 300, "bytes": 41_000,
        "batches": 0, "passed": 9, "reencoded": 0, "merged": 0, "dropped": 2, "padded": 0, "primed": 0, "error": None,
    }  # fmt: skip
    assert (summary["lag"], summary["offsets"], summary["eta_s"], summary["bytes_per_s"]) == (700, 1000, 14, 10_000)
    assert summary["tiers"]["dropped"] == 2 and summary["slowest"][0]["partition"] == "orders-0"


def test_a_tail_that_falls_behind_has_no_end_in_sight() -> None:
    course = Course()
    look(course, 0.0, (tail(), told(100, end=200)))
    (row,), summary = look(course, 2.0, (tail(), told(200, end=500)))
    assert (row.lag, row.eta_s, summary["eta_s"], summary["offsets"]) == (300, None, None, None)
    assert "300 offsets behind in 1 partition" in wording.describe(summary)
    assert "lag does not shrink" in wording.describe(summary)


def test_a_tail_that_keeps_up_is_neither_slow_nor_stuck() -> None:
    course = Course()
    for now in range(12):  # 250 offsets a second on both sides, always 25 behind
        _, summary = look(course, float(now), (tail(), told(250 * now, end=250 * now + 25, passed=now)))
    assert summary["eta_s"] == 0 and summary["slowest"][0]["advances"]
    assert wording.describe(summary) == (
        "25 offsets behind in 1 partition; 0.0 kB/s, 0 records/s, about 0 s to go; batches: 11 passed"
    )


def test_a_stopped_partition_does_not_keep_the_others_from_an_end() -> None:
    course = Course()
    stuck = (bounded(1), told(10, "stopped", error="orders-1: broken batch"))
    look(course, 0.0, (bounded(0), told(0)), stuck)
    rows, summary = look(course, 1.0, (bounded(0), told(500)), stuck)
    assert summary["eta_s"] == 1 and rows[1].eta_s is None
    assert summary["stopped"] == ["orders-1: orders-1: broken batch"]
    assert summary["states"] == {"copying": 1, "stopped": 1}


def test_a_resumed_partition_is_no_spike_in_the_rate() -> None:
    course = Course()
    look(course, 0.0, (bounded(), None))
    (row,), _ = look(course, 1.0, (bounded(), told(900)))  # an earlier job copied these 900
    assert row.shrinks_per_s == 0
    (row,), _ = look(course, 2.0, (bounded(), told(910)))
    assert row.shrinks_per_s == 10


# --- where no task speaks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "where", "state"),
    [
        (bounded(), Where(0, 1000), "opening"), (bounded(), Where(10, 1000), "copying"),
        (bounded(), Where(1000, 1000), "done"), (tail(), Where(40, 40), "following"), (tail(), Where(30, 40), "copying"),
    ],
)  # fmt: skip
def test_without_a_word_from_its_task_a_partition_is_where_the_clusters_say(
    one: CopyRange, where: Where, state: str
) -> None:
    (row,), _ = look(Course(), 0.0, (one, None), seen=[(key_of(one), where)])
    assert (row.state, row.position, row.to_dict()["bytes_per_s"], row.to_dict()["passed"]) == (
        state,
        where.position,
        None,
        None,
    )


def test_nothing_known_is_said_as_nothing_known() -> None:
    (row,), summary = look(Course(), 0.0, (tail(), None))
    assert (row.state, row.position, row.lag, row.eta_s) == ("opening", None, None, None)
    assert summary["lag"] is None and summary["eta_s"] is None
    assert wording.describe(summary).startswith("the progress of 1 partition is unknown; ")
    _, summary = look(Course(), 0.0, (tail(), None), (tail(1), told(7, "following", end=7)))
    assert wording.describe(summary).startswith("0 offsets behind in 1 partition, unknown for 1; ")


def test_a_partition_that_is_gone_leaves_no_window_behind() -> None:
    course = Course()
    look(course, 0.0, (bounded(0), told(1)), (bounded(1), told(1)))
    look(course, 1.0, (bounded(0), told(2)))
    assert set(course._windows) == {(FIRST, True)}


def test_the_time_before_a_task_began_does_not_count_as_slow() -> None:
    course, one = Course(), bounded()
    for now in range(10):
        look(course, float(now), (one, None), seen=[(key_of(one), Where(0, 1000))])
    look(course, 10.0, (one, told(0)))
    (row,), _ = look(course, 11.0, (one, told(100, records=100)))
    assert row.shrinks_per_s == row.records_per_s == 100


# --- bounded size ----------------------------------------------------------------------------------------------------


def row(partition: int, state: str, lag: int) -> Row:
    return Row(
        key=Key("t" * 60, partition, partition),
        start=0,
        position=10**9 - lag,
        end=10**9,
        state=state,
        error="x" * 300,
        counters=dict.fromkeys(COUNTERS, 10**9),
    )


def test_up_to_a_thousand_partitions_are_all_listed_in_their_order() -> None:
    rows = [row(p, "done", 0) for p in range(MAX_ROWS)]
    assert worth_listing(rows) == (rows, 0)


def test_of_ten_thousand_those_that_matter_are_listed_and_the_file_stays_small(tmp_path: Path) -> None:
    rows = [row(p, "done", 0) for p in range(7000)] + [row(7000 + p, "copying", p + 1) for p in range(2990)]
    rows += [row(9990 + p, "stopped", 5) for p in range(10)]
    listed, left_out = worth_listing(rows)
    assert len(listed) == MAX_ROWS and left_out == 9000
    assert [r.state for r in listed[:11]] == ["stopped"] * 10 + ["copying"]
    assert [r.lag for r in listed[10:13]] == [2990, 2989, 2988]
    status = StatusFile(tmp_path)
    status.update(partitions=[r.to_dict() for r in listed], left_out=left_out)
    written = tmp_path / "status.json"
    assert json.loads(written.read_text())["left_out"] == 9000
    assert written.stat().st_size < 1_000_000  # every row with the longest of errors
    # A line for each partition: people read it too.
    assert sum('"topic"' in line for line in written.read_text().splitlines()) == MAX_ROWS


def test_when_all_but_a_few_of_ten_thousand_are_done_only_those_few_are_listed() -> None:
    rows = [row(p, "following", 0) for p in range(9997)] + [row(9997 + p, "copying", 1) for p in range(3)]
    listed, left_out = worth_listing(rows)
    assert len(listed) == 3 and left_out == 9997


def test_nothing_is_written_after_the_final_state(tmp_path: Path) -> None:
    status = StatusFile(tmp_path)
    status.update("copying", summary={"lag": 5})
    late = threading.Thread(target=lambda: (status.succeed({"records": 7}), status.update(summary={"lag": 0})))
    late.start()
    late.join()
    final = json.loads((tmp_path / "status.json").read_text())
    assert (final["state"], final["phase"], final["summary"]) == ("SUCCEEDED", "done", {"records": 7})


# --- words -----------------------------------------------------------------------------------------------------------


def test_the_log_line_reads_like_a_sentence() -> None:
    course = Course()
    waiting = (bounded(2), None)
    look(course, 0.0, (bounded(0), told(0)), (bounded(1), told(0)), waiting)
    _, summary = look(
        course, 10.0, (bounded(0), told(900, bytes=10**9, records=800, passed=7, reencoded=2, padded=100)),
        (bounded(1), told(100, bytes=10**6, records=90, passed=1, dropped=1234)), waiting,
    )  # fmt: skip
    assert wording.describe(summary) == (
        "33 % of 3,000 offsets in 3 partitions; 100.1 MB/s, 89 records/s, about 20 s to go; "
        "slowest orders-1: 900 offsets, about 1 min 30 s to go; "
        "batches: 8 passed, 2 re-encoded, 1,234 dropped; offsets: 100 padded"
    )


def test_a_partition_that_does_not_advance_is_named_before_all_others() -> None:
    course = Course()
    for now in (0.0, 5.0):
        _, summary = look(course, now, (bounded(0), told(int(now))), (bounded(1, end=20), told(10)), (bounded(2), None))
    assert "slowest orders-1: 10 offsets, does not advance" in wording.describe(summary)


def test_a_copy_that_has_not_begun_has_no_forecast() -> None:
    _, summary = look(Course(), 0.0, (bounded(), None), seen=[(FIRST, Where(0, 1000))])
    assert wording.describe(summary) == (
        "0 % of 1,000 offsets in 1 partition; 0.0 kB/s, 0 records/s; slowest orders-0: 1,000 offsets, waits"
    )


def test_a_share_is_whole_only_when_everything_is_there() -> None:
    assert [wording.percent(done, 1000) for done in (0, 999, 1000)] == ["0 %", "99 %", "100 %"]
    assert [wording.duration(s) for s in (0, 59, 61, 7_260)] == ["0 s", "59 s", "1 min 1 s", "2 h 1 min"]
    assert wording.rate(150) == "0.1 kB/s" and wording.rate(2_500_000) == "2.5 MB/s"


def test_a_copy_of_nothing_has_words_too() -> None:
    _, summary = look(Course(), 0.0, (bounded(end=0), told(0, "done")))
    assert wording.describe(summary).startswith("nothing to copy in 1 partition")


def test_the_line_in_a_tasks_log_has_the_phase_and_what_the_job_says() -> None:
    _, summary = look(Course(), 0.0, (bounded(), told(500, passed=3)))
    line = progress_line({"phase": "copying", "summary": summary, "partitions": [{}]})
    assert line.startswith("copying: 50 % of 1,000 offsets in 1 partition; ") and "slowest orders-0: 500 offsets" in line
    assert progress_line({"phase": "starting Spark", "summary": {}}) == "starting Spark"
    assert progress_line({}) == "starting"


# --- the bar ---------------------------------------------------------------------------------------------------------


def test_the_bar_shows_stopped_partitions_first_and_then_those_with_most_to_do() -> None:
    rows = [row(0, "done", 0), row(1, "copying", 5), row(2, "opening", 900), row(3, "copying", 50), row(4, "stopped", 1)]
    assert [r.key.partition for r in unfinished(rows)] == [4, 3, 1, 2]


def test_there_is_no_bar_without_a_terminal() -> None:
    with progress_bar() as bar:
        assert bar is None


@pytest.mark.parametrize("one", [bounded(), tail()])
def test_the_bar_draws_every_kind_of_row(one: CopyRange) -> None:
    from io import StringIO

    from rich.console import Console

    from airflow_mirror.jobs.progress.bar import _drawing

    course, stuck = (
        Course(),
        CopyRange(source_topic="[bold]not markup[/]", target_topic="t", partition=1, start_offset=0, end_offset=10),
    )
    known = [
        (one, told(500, end=1000, bytes=5, passed=3)),
        (stuck, told(1, "stopped", error="[/] broken\nbatch")),
        (bounded(3), None),
    ]
    rows, summary = look(course, 0.0, *known)
    screen = StringIO()
    console = Console(file=screen, width=120, force_terminal=True, color_system=None)
    console.print(_drawing(summary, rows))
    text = screen.getvalue()
    assert "3 partitions" in text and "orders-0" in text and "[bold]not markup[/]-1" in text and "[/] broken" in text
    assert "batches: 3 passed" in text and len(text.splitlines()) == 5
