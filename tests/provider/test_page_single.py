"""However many look, one reads: what the page keeps between them, and what a process that loads it pays."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import resources

import pytest

from airflow_mirror.page.course import EVERY_S, KEEP_S, Courses, Seen, charts
from airflow_mirror.page.single import Single, Threads


class Source:
    """What is read, when the test lets it; ``most``: how many have read it at the same time."""

    def __init__(self) -> None:
        self.free, self.reads, self.now, self.most = threading.Event(), 0, 0.0, 0
        self._reading, self.fails = 0, False

    def read(self) -> int:
        self._reading += 1
        self.most = max(self.most, self._reading)
        assert self.free.wait(30)
        self._reading -= 1
        self.reads += 1
        if self.fails:
            raise OSError("away")
        return self.reads


def single(source: Source, fresh_s: float = 3.0) -> Single[int]:
    return Single(source.read, fresh_s, Threads(2), lambda: source.now)


def test_fifty_that_ask_at_once_are_one_reader() -> None:
    source = Source()
    one = single(source)
    with ThreadPoolExecutor(50) as pool:
        answers = [pool.submit(one.get, 30) for _ in range(50)]
        source.free.set()
        assert {answer.result() for answer in answers} == {1}
    assert (source.reads, source.most) == (1, 1)


def test_what_is_fresh_is_not_read_again() -> None:
    source = Source()
    one = single(source)
    source.free.set()
    assert one.get(30) == 1
    source.now = 2.9
    assert one.get(30) == 1
    source.now = 3.0
    assert one.get(30) == 2


def test_who_asks_while_it_takes_long_gets_what_was_read_before() -> None:
    source = Source()
    one = single(source)
    assert one.get(0.01) is None and not one.rests
    source.free.set()
    assert one.get(30) == 1
    source.free.clear()
    source.now = 9.0
    assert one.get(0.01) == 1
    source.free.set()
    assert one.get(30) == 2 and one.rests


def test_failed_reading_is_raised_and_tried_again_by_who_asks_next() -> None:
    """One answer that Airflow's database failed to give was every route's for 15 seconds."""
    source = Source()
    one = single(source)
    source.free.set()
    source.fails = True
    with pytest.raises(OSError, match="away"):
        one.get(30)
    source.fails = False
    assert (one.get(30), source.reads) == (2, 2)


def test_failed_reading_leaves_what_was_read_before() -> None:
    source = Source()
    one = single(source)
    source.free.set()
    assert one.get(30) == 1
    source.now, source.fails = 3.0, True
    assert one.get(30) == 1
    source.fails = False
    assert one.get(30) == 3


def test_readings_of_all_kinds_have_few_threads() -> None:
    source, threads = Source(), Threads(2)
    done = [threads.submit(lambda: source.read() and None) for _ in range(6)]
    source.free.set()
    for one in done:
        one.result(30)
    assert source.most <= 2


def row(mirror: str, lag: float | None, lag_s: float | None = None) -> dict[str, object]:
    return {"mirror": mirror, "lag": lag, "lag_s": lag_s, "bytes_per_s": None}


def test_course_has_a_value_each_quarter_minute_for_three_hours() -> None:
    courses = Courses()
    for second in range(0, round(KEEP_S) + 600, 3):
        courses.see([row("m", second)], 1000.0 + second)
    seen = courses.of("m")
    assert {b.at - a.at for a, b in zip(seen, seen[1:], strict=False)} == {EVERY_S}
    assert KEEP_S - EVERY_S <= seen[-1].at - seen[0].at <= KEEP_S and seen[-1].lag == seen[-1].at - 1000


def test_course_of_what_says_nothing_is_empty_and_of_what_is_gone_forgotten() -> None:
    courses = Courses()
    courses.see([row("m", 5, 0.4), row("silent", None)], 1000.0)
    assert (courses.of("m"), courses.of("silent"), courses.of("nobody")) == ([Seen(1000.0, 5, 0.4, None)], [], [])
    courses.see([row("m", None)], 1000.0 + KEEP_S + 1)
    assert courses.of("m") == [], "what ended long ago is no course any more"
    courses.see([row("m", 5)], 1.0)
    courses.see([], 4.0)
    assert courses.of("m") == []


def test_task_that_loads_the_plugin_does_not_wait_for_a_server() -> None:
    """Every task process loads plugins."""
    program = (
        "import sys; from airflow_mirror.page.plugin import MirrorPlugin; "
        "sys.exit(any(name in sys.modules for name in ('airflow_mirror.page.app', 'airflow_mirror.page.looks')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=240).returncode == 0


@pytest.mark.parametrize(
    "word", ["innerHTML", "InnerHTML", "outerHTML", "AdjacentHTML", "document.write", "eval(", "http://", "https://"]
)
def test_script_makes_no_markup_of_names_and_loads_nothing_from_elsewhere(word: str) -> None:
    own = (one for one in resources.files("airflow_mirror.page").iterdir() if one.name.endswith(".js"))
    lines = [line for one in own for line in one.read_text(encoding="utf-8").splitlines()]
    code = "\n".join(line for line in lines if not line.lstrip().startswith("//"))
    assert "createElement" in code
    assert word not in code


def test_course_is_drawn_in_time_with_a_gap_where_nobody_has_looked() -> None:
    seen = [Seen(at, 1000, lag_s, 2e6) for at, lag_s in ((0.0, 4.0), (15.0, 2.0), (200.0, 1.0), (215.0, 0.01))]
    lag, rate = charts(seen)
    assert (lag.title, lag.text) == ("behind", "level now, at most 4.0 s in 4 min")
    assert (rate.title, rate.text) == ("rate", "2.0 MB/s now, at most 2.0 MB/s in 4 min")
    assert [sum(mark.tag == "polyline" for mark in one.marks) for one in (lag, rate)] == [2, 2]
    assert charts(seen[:1]) == [] and charts([]) == []


def test_course_of_a_job_that_tells_no_seconds_is_drawn_in_records() -> None:
    (lag,) = charts([Seen(0.0, 1200, None, None), Seen(15.0, 7, None, None)])
    assert lag.text == "7 now, at most 1,200 in 15 s"
