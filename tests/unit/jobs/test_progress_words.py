"""What a running job says in its log and on a terminal: a line, and a bar."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.jobs.progress import keeper, wording
from airflow_mirror.jobs.progress.bar import on_terminal, progress_bar
from airflow_mirror.jobs.progress.figures import (
    unfinished,
)
from airflow_mirror.jobs.runner.status import StatusFile
from tests.unit.jobs.progress import Job, bounded, row, tail, told

# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [0, 7, None], ids=["nothing to do", "a lag that stays", "unknown"])
def test_a_tail_in_which_nothing_changes_says_so_once_then_once_an_hour_and_at_each_change(
    lag: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(keeper, "time", SimpleNamespace(monotonic=lambda: clock[0], time=lambda: clock[0]))
    progress = keeper.Progress("s", "t", [tail()], True, StatusFile(tmp_path), None)
    summary = {"lag": lag, "offsets": None, "partitions": 1, "records_per_s": 0}
    monkeypatch.setattr(keeper, "summary_of", lambda *_: summary)

    def lines(seconds: int) -> int:
        caplog.clear()
        with caplog.at_level(logging.INFO, keeper.log.name):
            for _ in range(seconds):
                clock[0] += 1.0
                progress._report(None, last=False)
        return len([line for line in caplog.messages if "0.0 kB/s" in line])

    assert [lines(60), lines(3500), lines(100)] == [1, 0, 1]
    summary["records_per_s"] = 7
    assert lines(10) == 1
    summary |= {"lag": 5, "records_per_s": 0}
    assert lines(10) == 1
    caplog.clear()
    summary["lag"] = 0
    assert lines(10) == 1
    with caplog.at_level(logging.INFO, keeper.log.name):
        progress._report(None, last=True)
    assert "0 offsets behind" in caplog.messages[-1]


def test_the_log_line_reads_like_a_sentence() -> None:
    job = Job()
    waiting = (bounded(2), None)
    job.look(0.0, (bounded(0), told(0)), (bounded(1), told(0)), waiting)
    _, summary = job.look(
        10.0, (bounded(0), told(900, bytes=10**9, records=800, passed=7, reencoded=2, padded=100)),
        (bounded(1), told(100, bytes=10**6, records=90, passed=1, dropped=1234)), waiting,
    )  # fmt: skip
    assert wording.describe(summary) == (
        "33 % of 3,000 offsets in 3 partitions; 100.1 MB/s, 89 records/s, about 20 s to go; "
        "slowest orders-1: 900 offsets, about 1 min 30 s to go; "
        "batches: 8 passed, 2 re-encoded, 1,234 dropped; offsets: 100 padded"
    )


def test_stuck_partition_is_named_before_all_others() -> None:
    job = Job()
    for now in (0.0, 5.0):
        _, summary = job.look(now, (bounded(0), told(int(now))), (bounded(1, end=20), told(10)), (bounded(2), None))
    assert "slowest orders-1: 10 offsets, does not advance" in wording.describe(summary)


def test_a_copy_that_has_not_begun_has_no_forecast() -> None:
    _, summary = Job().look(0.0, (bounded(), None), seen=(0, 1000))
    assert wording.describe(summary) == (
        "0 % of 1,000 offsets in 1 partition; 0.0 kB/s, 0 records/s; slowest orders-0: 1,000 offsets, waits"
    )


def test_a_share_is_whole_only_when_everything_is_there() -> None:
    assert [wording.percent(done, 1000) for done in (0, 999, 1000)] == ["0 %", "99 %", "100 %"]
    assert [wording.duration(s) for s in (0, 59, 61, 7_260)] == ["0 s", "59 s", "1 min 1 s", "2 h 1 min"]
    assert wording.rate(150) == "0.1 kB/s" and wording.rate(2_500_000) == "2.5 MB/s"


def test_a_copy_of_nothing_has_words_too() -> None:
    _, summary = Job().look(0.0, (bounded(end=0), told(0, "done")))
    assert wording.describe(summary).startswith("nothing to copy in 1 partition")


def test_progress_line_has_the_phase_and_the_jobs_summary() -> None:
    _, summary = Job().look(0.0, (bounded(), told(500, passed=3)))
    line = wording.progress_line({"phase": "copying", "summary": summary, "partitions": [{}]})
    assert line.startswith("copying: 50 % of 1,000 offsets in 1 partition; ") and "slowest orders-0: 500 offsets" in line
    assert wording.progress_line({"phase": "starting Spark", "summary": {}}) == "starting Spark"
    assert wording.progress_line({}) == "starting"


# --- the bar ---------------------------------------------------------------------------------------------------------


def test_bar_shows_stopped_partitions_before_copying_and_opening_ones() -> None:
    """Of those that copy, the one with most to do comes first."""
    rows = [row(0, "done", 0), row(1, "copying", 5), row(2, "opening", 900), row(3, "copying", 50), row(4, "stopped", 1)]
    assert [r.range.partition for r in unfinished(rows)] == [4, 3, 1, 2]


def test_there_is_no_bar_without_a_terminal() -> None:
    with progress_bar() as bar:
        assert bar is None


def whole(master: int) -> str:
    """Return what was written to a terminal that is closed by now: one read returns what has come through so far."""
    screen = b""
    with suppress(OSError):  # how Linux says that nothing will follow
        while piece := os.read(master, 1 << 16):
            screen += piece
    os.close(master)
    return screen.decode()


def test_log_stands_above_the_bar_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 50, 120, 0, 0))
    monkeypatch.setenv("TERM", "xterm")
    rows, summary = Job().look(0.0, (bounded(), told(500, passed=3)))
    log = logging.getLogger()
    monkeypatch.setattr(log, "handlers", [])
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        handler = logging.StreamHandler()
        log.addHandler(handler)
        assert on_terminal()
        with progress_bar() as draw:
            assert draw is not None
            draw(summary, rows)
            log.warning("[bold]%s", "orders " * 30)
            draw(summary, rows)
        assert handler.stream is terminal
    screen = whole(master)
    assert f"[bold]{'orders ' * 30}\r\n" in screen, "one line, whatever the width"
    above, _, below = screen.partition("[bold]")
    assert not above.rstrip().endswith("3 passed"), "the bar was taken away first"
    assert "━" in above and "orders-0" in above and "━" in below and "batches: 3 passed" in below


def test_bar_is_on_the_terminal_of_spark_submit() -> None:
    driver = (
        "from airflow_mirror.jobs.progress.bar import progress_bar\n"
        "from airflow_mirror.jobs.progress.figures import summary_of\n"
        "with progress_bar() as draw: draw(summary_of([]), [])\n"
    )
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 50, 120, 0, 0))
    env = os.environ | {"TERM": "xterm", "PYSPARK_GATEWAY_PORT": "1", "PYTHONPATH": str(Path(__file__).parents[3])}
    command = ["sh", "-c", '"$0" -c "$1" 2>&1 | cat; :', sys.executable, driver]  # sh stands in for the Java process
    job = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=slave, check=True)
    os.close(slave)
    screen = whole(master)
    assert job.stdout == b"" and "0 partitions" in screen


def test_dumb_terminal_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    for term, draws in (("xterm", True), ("dumb", False)):
        monkeypatch.setenv("TERM", term)
        assert on_terminal() == draws


@pytest.mark.parametrize("copy_range", [bounded(), tail()])
def test_the_bar_draws_every_kind_of_row(copy_range: CopyRange) -> None:
    from io import StringIO

    from rich.console import Console

    from airflow_mirror.jobs.progress.bar import _drawing

    stuck = CopyRange(source_topic="[bold]not markup[/]", target_topic="t", partition=1, start_offset=0, end_offset=10)
    known = [
        (copy_range, told(500, end=1000, bytes=5, passed=3)),
        (stuck, told(1, "stopped", error="[/] broken\nbatch")),
        (bounded(3), None),
    ]
    rows, summary = Job().look(0.0, *known)
    summary |= {"throttled": {"source": 1500}}
    screen = StringIO()
    console = Console(file=screen, width=120, force_terminal=True, color_system=None)
    console.print(_drawing(summary, rows))
    text = screen.getvalue()
    assert "3 partitions" in text and "orders-0" in text and "[bold]not markup[/]-1" in text and "[/] broken" in text
    assert "throttled by quota: the source by 1.5 s a request; batches: 3 passed" in text and len(text.splitlines()) == 5
