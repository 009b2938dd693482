"""The driver's side of reports: which rows it takes, who is turned away, and what it keeps of earlier runs."""

from __future__ import annotations

import json
import socket
import ssl
import time
from argparse import Namespace
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.copy.delays import Delays
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.errors import NeedsHuman
from airflow_mirror.jobs.progress.listener import LOOPBACK, SWITCH, Hosts, Limits, Listener, hosts_of
from airflow_mirror.jobs.progress.table import Table
from tests.unit.jobs.reports.driver import (
    FIRST,
    PATIENT,
    RANGES,
    SECOND,
    THIRD,
    at,
    call,
    copies,
    dial,
    listening,
    reporting,
    row,
    said,
    token,
    told,
    told_by,
)
from tests.waiting import wait_until

# --- the driver's side -----------------------------------------------------------------------------------------------


def test_rows_with_a_wrong_token_are_not_taken(driver: Listener, table: Table) -> None:
    right = token(driver)
    for wrong in (b"", b"x", right[:-1], right[:-1] + b"?", b"?" + right, right.swapcase(), right + b"x"):
        assert call(driver, wrong, told_by("a", row())) == b""
    assert told(table) == {}


@pytest.mark.parametrize(
    "line", [b"\xff\xfe\x00garbage", b"[1, 2]", b"null", b"{" * 100_000, b"[" * 500_000, b"9" * 5000, b""]
)
def test_garbage_ends_the_connection_and_nothing_else(driver: Listener, table: Table, line: bytes) -> None:
    assert call(driver, line.ljust(100), end=False) == b""
    assert call(driver, token(driver), line, end=False) == b""
    call(driver, token(driver), told_by("a", row()))
    wait_until(lambda: FIRST in told(table))
    assert told(table)[FIRST].position == 10


@pytest.mark.parametrize(
    "message",
    [
        {"run": "a"},
        {"rows": []},
        told_by("a") | {"run": 5},
        told_by("a") | {"run": ["a"]},
        told_by("a") | {"rows": 7},
        {},
        told_by("a") | {"held": -1},
        told_by("a") | {"held": "1"},
    ],  # fmt: skip
)
def test_a_message_of_another_kind_ends_the_connection_and_nothing_else(
    driver: Listener, table: Table, message: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert call(driver, token(driver), message, end=False) == b""
    wait_until(lambda: not driver._tasks)
    assert said(caplog) == []  # nor does it fill the job's log
    call(driver, token(driver), told_by("a", row()))
    wait_until(lambda: FIRST in told(table))
    assert told(table)[FIRST].position == 10


@pytest.mark.parametrize(
    "bad",
    [
        None, 3, {}, [], "row", {**row(), "topic": 7}, {**row(), "topic": ["orders"]}, {**row(), "state": "flying"},
        {**row(), "state": []}, {**row(), "position": -1}, {**row(), "position": None}, {**row(), "position": 2**63},
        {**row(), "end": "x"}, row(records=-1), row(records=1.5), row(records={}), {**row(), "topic": "payments"},
        {**row(), "partition": 77}, {**row(), "partition": None}, {**row(), "delays": [1, 2]},
        {**row(), "delays": [1, 2, 3, 4, 5, 6, -7]}, {**row(), "delays": 7}, {**row(), "timestamp_ms": -1},
    ],
)  # fmt: skip
def test_invalid_rows_are_skipped_and_others_taken(driver: Listener, table: Table, bad: Any) -> None:
    call(driver, token(driver), told_by("a", bad, row(2)))
    assert set(told(table)) == {THIRD}


def test_an_error_of_any_length_is_kept_in_three_hundred_characters(driver: Listener, table: Table) -> None:
    call(driver, token(driver), told_by("a", {**row(), "error": "x" * 100_000}, {**row(1), "error": ["x"] * 10_000}))
    assert [len(row.error or "") for row in told(table).values()] == [300, 300]


def test_a_line_without_end_is_cut_off(driver: Listener, table: Table) -> None:
    with dial(driver) as stranger:
        stranger.sendall(token(driver) + b"\n")
        deadline = time.monotonic() + 240
        with pytest.raises((ConnectionResetError, BrokenPipeError, ssl.SSLEOFError)):
            while time.monotonic() < deadline:
                stranger.sendall(b"x" * 65536)
                time.sleep(0.001)
    wait_until(lambda: not driver._tasks)


def test_a_stranger_who_says_nothing_is_shown_out(table: Table) -> None:
    with listening(table, Limits(greet_within_s=0.05)) as driver:
        assert call(driver, end=False) == b""


def test_a_stranger_who_does_not_even_shake_hands_is_shown_out(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    with (
        listening(table, Limits(greet_within_s=0.05)) as driver,
        socket.create_connection(at(driver), 60) as stranger,
    ):
        assert stranger.recv(1) == b""
    assert said(caplog) == []


def test_more_than_a_number_of_peers_are_turned_away(table: Table) -> None:
    with listening(table, replace(PATIENT, peers=1)) as driver:
        with dial(driver):
            wait_until(lambda: driver._tasks)
            assert call(driver, token(driver), told_by("a", row())) == b""
            assert told(table) == {}
        wait_until(lambda: not driver._tasks)
        call(driver, token(driver), told_by("a", row()))
        wait_until(lambda: FIRST in told(table))


def test_a_task_that_fell_silent_is_no_longer_waited_for(table: Table) -> None:
    with listening(table, replace(PATIENT, silent_s=0.5)) as driver:
        with dial(driver) as task:
            task.sendall(token(driver) + b"\n" + json.dumps(told_by("a", row())).encode() + b"\n")
            wait_until(lambda: FIRST in told(table))
            assert task.recv(1) == b""
        wait_until(lambda: not driver._tasks)


def test_sender_over_its_rate_waits_while_others_are_heard(table: Table) -> None:
    with listening(table, replace(PATIENT, bytes_per_s=0.001)) as driver, dial(driver) as task:
        task.sendall(token(driver) + b"\n")
        for position in (1, 2):
            task.sendall(json.dumps(told_by("a", row(position=position))).encode() + b"\n")
        wait_until(lambda: FIRST in told(table))
        with reporting(driver.address, copies(RANGES[1:2])):
            wait_until(lambda: SECOND in told(table))
        assert told(table)[FIRST].position == 1


def test_counters_of_runs_add_up_without_late_rows(table: Table) -> None:
    table.take("old", [row(records=10, dropped=1)])
    table.take("new", [row(position=50, records=5)])
    table.take("old", [row(position=40, records=11)])  # it was late
    table.take("new", [row(position=60, records=6)])
    now = told(table)[FIRST]
    assert (now.position, now.counters["records"], now.counters["dropped"]) == (60, 16, 1)


def test_delays_of_runs_add_up_and_extremes_are_the_newest(table: Table) -> None:
    def delays() -> Delays:
        return told(table)[FIRST].delays

    table.take("old", [{**row(), "delays": [2, 20, 30, 8, 12, 14, 16]}])
    table.take("new", [{**row(), "delays": [0, 0, 0, 0, 0, 0, 0]}])
    assert delays() == Delays(2, 20, 30, 8, 12, 14, 16), "nothing newer was measured"
    measured_at = told(table)[FIRST].measured_at
    table.take("new", [{**row(), "delays": [1, 5, 6, 5, 5, 6, 6]}])
    assert delays() == Delays(3, 25, 36, 5, 5, 6, 6) and told(table)[FIRST].measured_at >= measured_at
    measured_at = told(table)[FIRST].measured_at
    table.take("new", [{**row(position=11), "delays": [1, 5, 6, 5, 5, 6, 6]}])
    assert told(table)[FIRST].measured_at == measured_at
    table.settle([PartitionResult(topic="orders", target_topic="orders", partition=0, position=9, done=True,
                                  target_partition=0)])  # fmt: skip
    assert delays() == Delays(3, 25, 36, 5, 5, 6, 6), "a result says nothing of them"


def test_row_is_level_until_its_task_last_said_so(table: Table) -> None:
    """A task says nothing new of a partition that rests, but says that it is still there."""
    table.follow([replace(one, end_offset=None) for one in RANGES])
    table.take("a", [row(position=1000, state="following")])
    level = told(table)[FIRST].run
    for _ in range(3):
        table.take("a", [])
    last_said = level.heard_at
    table.take("a", [{**row(position=1000), "end": 1001}])
    assert told(table)[FIRST].level_at == last_said
    table.take("a", [{**row(position=1000), "end": 1002}])
    assert told(table)[FIRST].level_at == last_said
    assert told(table)[FIRST].lag == 2


def test_end_of_the_source_is_kept_into_the_next_turn(table: Table) -> None:
    table.take("a", [row(position=10)])
    table.take("b", [{**row(position=20), "end": None}])
    assert (told(table)[FIRST].position, told(table)[FIRST].end) == (20, 1000)


def test_a_run_that_connects_again_is_the_same_run(driver: Listener, table: Table) -> None:
    for records in (10, 12):
        call(driver, token(driver), told_by("a", row(records=records)))
    assert told(table)[FIRST].counters["records"] == 12


def test_a_row_holds_while_its_task_speaks_and_a_moment_longer(table: Table) -> None:
    table.take("a", [row(), row(1, 1000, "done")])
    table.take("b", [row(2)])
    now = time.monotonic()
    first, done = told(table)[FIRST], told(table)[SECOND]
    assert first.is_told(now + 4) and not first.is_told(now + 6)
    assert done.is_told(now + 100)  # done is done
    first.run.heard_at = now - 100
    assert not told(table)[FIRST].is_told(now)
    table.take("a", [])  # nothing changed, but it is still there
    assert told(table)[FIRST].is_told(now)


@pytest.mark.repeats
def test_many_turns_of_a_tail_leave_nothing_behind(table: Table) -> None:
    for number in range(10_000):
        table.take(f"run {number}", [row(records=1)])
        table.take("a task that runs all the time", [row(1, records=number)])
    table.take("x" * 1_000_000, [])
    assert len(table._runs) <= 4096 and max(map(len, table._runs)) == 64
    assert told(table)[FIRST].counters["records"] == 10_000
    assert told(table)[SECOND].counters["records"] == 9_999


def test_results_replace_what_tasks_told(table: Table) -> None:
    table.take("failed attempt", [row(records=10)])
    table.take("second attempt", [row(records=3)])
    table.settle(
        [
            PartitionResult(
                topic="orders",
                target_topic="orders",
                partition=0,
                position=1000,
                done=True,
                records=3,
                target_partition=0,
            )
        ]
    )
    table.take("second attempt", [row(position=900, records=2)])  # it was late
    now = told(table)[FIRST]
    assert (now.state, now.position, now.counters["records"]) == ("done", 1000, 3)


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", LOOPBACK), ("local[2]", LOOPBACK), ("local[*]", LOOPBACK),
        ("local-cluster[2,1,1024]", Hosts("10.1.2.3", "driver.example")),
        ("spark://m:7077", Hosts("10.1.2.3", "driver.example")),
    ],
)  # fmt: skip
def test_only_a_cluster_makes_the_driver_listen_beyond_this_machine(master: str, expected: Hosts) -> None:
    assert hosts_of(session(master)) == expected


def test_a_setting_keeps_the_driver_from_listening() -> None:
    assert hosts_of(session("local[2]")) == LOOPBACK
    for value in ("false", " False "):
        assert hosts_of(session("local[2]", **{SWITCH: value})) is None
    assert hosts_of(session("spark://m:7077", **{SWITCH: "true"})) is not None


def session(master: str, **conf: str) -> Any:
    settings = {"spark.driver.host": "driver.example", "spark.driver.bindAddress": "10.1.2.3", **conf}
    return Namespace(master=master, getConf=lambda: settings)


def test_a_driver_ends_the_tasks_that_run_and_no_others(table: Table, driver: Listener) -> None:
    first, second = copies(RANGES[:1]), copies(RANGES[1:2])
    with reporting(driver.address, first) as one, reporting(driver.address, second) as other:
        wait_until(lambda: len(told(table)) == 2)
        assert not one.asked_to_end and not other.asked_to_end
        driver.end_tasks()
        wait_until(lambda: one.asked_to_end and other.asked_to_end)
    with reporting(driver.address, first) as next_lease:
        first[0].position += 1
        wait_until(lambda: told(table)[FIRST].position == first[0].position)
        time.sleep(0.1)
        assert not next_lease.asked_to_end


def test_stopped_partition_stays_stopped_until_its_turn_ends(table: Table, driver: Listener) -> None:
    """Its task may have ended before."""
    (copy,) = copies(RANGES[:1])
    with reporting(driver.address, [copy]):
        wait_until(lambda: FIRST in told(table))
        assert not table.has_stopped()
        copy.error = NeedsHuman("its records are damaged")
        wait_until(table.has_stopped)
    wait_until(lambda: not driver._tasks)
    assert table.has_stopped()  # other tasks of the lease may run for minutes
    table.begin_turn()
    assert not table.has_stopped()
