"""What tasks tell their driver: over real sockets, with drivers that vanish and strangers that call."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import secrets
import socket
import ssl
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509

from airflow_mirror.copy import reporter as report
from airflow_mirror.copy.delays import Delays
from airflow_mirror.copy.loop.counters import COUNTERS
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.reporter import Reporter, basis_of, row_of, trusting
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.errors import LeaseLost
from airflow_mirror.jobs.progress.certificate import Identity, new_identity
from airflow_mirror.jobs.progress.listener import LOOPBACK, SWITCH, Hosts, Limits, Listener, hosts_of
from airflow_mirror.jobs.progress.table import Key, Row, Table
from airflow_mirror.jobs.progress.wording import describe

RANGES = [
    CopyRange(source_topic="orders", target_topic="orders", partition=p, start_offset=0, end_offset=1000)
    for p in range(3)
]
CERTIFICATE = new_identity().certificate
FIRST, SECOND, THIRD = KEYS = [("orders", p, p) for p in range(3)]


@pytest.fixture
def table() -> Table:
    return Table(RANGES)


def told(table: Table) -> dict[Key, Row]:
    """The rows on which a task reported."""
    return {row.key: row for row in table.rows() if row.counters}


@pytest.fixture
def driver(table: Table) -> Iterator[Listener | None]:
    with listening(table) as listener:
        yield listener


# On a busy machine, patience that ends is not what these tests are about.
PATIENT = Limits(greet_within_s=60.0)


def listening(table: Table, limits: Limits = PATIENT) -> contextlib.closing[Listener]:
    return contextlib.closing(Listener(table, limits=limits))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "EVERY_S", 0.02)
    monkeypatch.setattr(report, "_RETRY_S", 0.02)
    monkeypatch.setattr(report, "_TIMEOUT_S", 60.0)


def copies(ranges: list[CopyRange] = RANGES) -> list[PartitionCopy]:
    return [PartitionCopy(r, True, 1 << 20, state=State.READY, opened=True) for r in ranges]


def until(question: Callable[..., Any], timeout_s: float = 240.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def at(driver: Listener) -> tuple[str, int]:
    host, port, _, _ = driver.address.split()
    return host, int(port)


def dial(driver: Listener) -> ssl.SSLSocket:
    """Connect as a task does, with its certificate in hand."""
    return trusting(driver.address.split()[3]).wrap_socket(socket.create_connection(at(driver), 60))


def call(driver: Listener, *lines: Any, end: bool = True) -> bytes:
    """Connect as anybody could, send lines and return what the driver did with the connection: b"" means closed."""
    others = len(driver._peers)
    with dial(driver) as stranger:
        try:
            for line in lines:
                stranger.sendall((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
            if end:
                stranger.unwrap()
                until(lambda: len(driver._peers) <= others)  # TLS says goodbye before all is read
                return b""
            return stranger.recv(1)
        except TimeoutError:
            raise
        except OSError:  # closed while we were still talking
            return b""


def token(driver: Listener) -> bytes:
    return driver.address.split()[2].encode()


def told_by(run: str, *rows: Any) -> dict[str, Any]:
    return {"run": run, "held": 0, "rows": list(rows)}


def row(partition: int = 0, position: int = 10, state: str = "copying", **counters: Any) -> dict[str, Any]:
    return {
        "topic": "orders", "partition": partition, "target_partition": partition, "state": state,
        "position": position, "end": 1000, "error": None, **dict.fromkeys(COUNTERS, 0), **counters,
    }  # fmt: skip


# --- the task's side -------------------------------------------------------------------------------------------------


def test_positions_and_counters_arrive_while_the_copy_runs(driver: Listener, table: Table) -> None:
    partitions = copies()
    with Reporter(driver.address, partitions):
        partitions[1].position, partitions[1].counters.reencoded = 500, 7
        until(lambda: table.rows()[1].position == 500)
        partitions[1].position = 600
        until(lambda: told(table)[SECOND].position == 600)
    assert told(table)[SECOND].counters["reencoded"] == 7


def test_what_the_task_holds_arrives_as_it_changes(driver: Listener, table: Table) -> None:
    held = [17]
    with Reporter(driver.address, copies(), lambda: {"held": held[0]}):
        until(lambda: table.held == 17)
        held[0] = 5
        until(lambda: table.held == 5)


def test_who_throttles_a_task_arrives_while_it_lasts(driver: Listener, table: Table) -> None:
    throttled = {"target": 9_800}
    with Reporter(driver.address, copies(), lambda: {"held": 0, "throttled": dict(throttled)}):
        until(lambda: table.throttled == {"target": 9_800})
        assert describe({"lag": 1, "throttled": table.throttled}).endswith(
            "throttled by quota: the target by 9.8 s a request"
        )
        throttled.clear()
        until(lambda: table.throttled == {})


def test_delays_and_time_of_the_last_record_arrive(driver: Listener, table: Table) -> None:
    partitions = copies()
    partitions[1].timestamp = 1_600_000_000_000  # the target's last record, found when the partition was opened
    partitions[2].timestamp = -1  # it has none
    with Reporter(driver.address, partitions):
        until(lambda: len(told(table)) == 3)
        assert [one.timestamp_ms for one in table.rows()] == [0, 1_600_000_000_000, 0]
        partitions[1].delays.add(1_700_000_000_000, 1_700_000_000_005, 1_700_000_000_007)
        until(lambda: told(table)[SECOND].delays.batches)
    assert told(table)[SECOND].delays == Delays(1, 5, 7, 5, 5, 7, 7)
    assert told(table)[SECOND].timestamp_ms == 1_700_000_000_000


def test_what_happened_last_is_told_too(driver: Listener, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "EVERY_S", 60.0)
    partitions = copies()
    with Reporter(driver.address, partitions):
        until(lambda: len(told(table)) == 3)
        partitions[0].position, partitions[0].state = 1000, State.DONE
    until(lambda: told(table)[FIRST].state == "done")


def test_unopened_partition_is_not_reported(driver: Listener, table: Table) -> None:
    partitions = [*copies(RANGES[:1]), PartitionCopy(RANGES[1], True, 1 << 20)]
    with Reporter(driver.address, partitions):
        until(lambda: told(table))
    assert set(told(table)) == {FIRST}  # its position would be a guess


@pytest.mark.parametrize(
    "address", [None, "", "{}", "not an address", "h 99999 t", "h 1 t ?", "h 1 t QUJD", f"h x t {CERTIFICATE}"]
)
def test_senseless_address_does_not_stop_the_copy(address: str | None) -> None:
    with Reporter(address, copies()) as reporter:
        pass
    reporter._thread.join(240) if address is not None else None
    assert not reporter._thread.is_alive()


def test_a_driver_that_is_gone_costs_the_copy_nothing(
    driver: Listener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(report, "_GOODBYE_S", 60.0)
    driver.close()
    with caplog.at_level(logging.INFO), Reporter(driver.address, copies()) as reporter:
        until(lambda: caplog.text.count("does not listen") > 1)  # it tried again
        assert reporter._thread.is_alive()
    assert not reporter._thread.is_alive(), "it ended by itself, and held up nobody"


def test_a_driver_that_has_come_to_its_end_is_no_news(
    driver: Listener, table: Table, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs up on its tasks, which end a moment later."""
    monkeypatch.setattr(report, "_RETRY_S", 60.0)
    with caplog.at_level(logging.INFO), Reporter(driver.address, copies()):
        until(lambda: told(table))
        driver.close()
        time.sleep(3 * report.EVERY_S)
    assert "does not listen" not in caplog.text


def test_driver_that_takes_nothing_does_not_hold_up_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_GOODBYE_S", 0.2)
    monkeypatch.setattr(report, "_TIMEOUT_S", 600.0)
    with socket.create_server(("127.0.0.1", 0), backlog=1) as frozen:
        frozen.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        many = copies(
            [
                CopyRange(source_topic="t" * 200, target_topic="t", partition=p, start_offset=0, end_offset=1000)
                for p in range(20_000)
            ]
        )
        identity = new_identity()
        with Reporter(f"127.0.0.1 {frozen.getsockname()[1]} x {identity.certificate}", many) as reporter:
            driver, _ = frozen.accept()
            with identity.context.wrap_socket(driver, server_side=True) as driver:
                assert driver.recv(1)  # it has begun, and there is not room for all
                reporter.__exit__(None, None, None)
                assert reporter._thread.is_alive(), "the sender still waits for room"
    reporter._thread.join(240)
    assert not reporter._thread.is_alive()


def test_a_driver_that_comes_back_is_told_everything_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = new_identity()
    first = Listener(table, limits=PATIENT, identity=identity)
    partitions = copies()
    with Reporter(first.address, partitions) as reporter:
        until(lambda: len(told(table)) == 3)
        first.close()
        other = Table(RANGES)
        second = _listen_at(other, first, identity, monkeypatch)
        try:
            until(lambda: len(told(other)) == 3)
        finally:
            second.close()
    reporter._thread.join(240)
    assert not reporter._thread.is_alive()


# --- on the way ------------------------------------------------------------------------------------------------------


class Wire:
    """A relay between a task and its driver that keeps every byte of both directions."""

    def __init__(self, driver: Listener) -> None:
        self._driver, self.seen = driver, bytearray()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = " ".join(["127.0.0.1", str(self._server.getsockname()[1]), *driver.address.split()[2:]])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the test has ended
            while True:
                task, _ = self._server.accept()
                driver = socket.create_connection(at(self._driver))
                for one, other in ((task, driver), (driver, task)):
                    threading.Thread(target=self._relay, args=(one, other), daemon=True).start()

    def _relay(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                self.seen += data
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._server.close()


def test_who_listens_on_the_way_reads_no_topic_and_no_token(driver: Listener, table: Table) -> None:
    wire, partitions = Wire(driver), copies()
    partitions[1].error = LeaseLost("a-secret-name", 5, "gone")
    with Reporter(wire.address, partitions) as reporter:
        until(lambda: len(told(table)) == 3)
        driver.end_tasks()
        until(lambda: reporter.asked_to_end)
    wire.close()
    assert len(wire.seen) > 1000, "it all went through here"
    for shown in (b"orders", b"a-secret-name", b"position", token(driver), report.END):
        assert shown not in wire.seen, shown


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the job's log has; a login of another test may still be renewed in the background."""
    return [one.getMessage() for one in caplog.records if one.name.startswith("airflow_mirror.jobs")]


def test_task_tells_nothing_to_somebody_in_the_drivers_place(driver: Listener, caplog: pytest.LogCaptureFixture) -> None:
    table = Table(RANGES)
    other = Listener(table, limits=PATIENT)
    _, _, token_, certificate = driver.address.split()
    host, port = at(other)
    with caplog.at_level(logging.INFO), Reporter(f"{host} {port} {token_} {certificate}", copies()):
        until(lambda: caplog.text.count("CERTIFICATE_VERIFY_FAILED") > 1)
    other.close()
    assert told(table) == {} and not other._peers


def test_certificate_is_valid_whatever_the_executors_clock_says() -> None:
    der = base64.b64decode(new_identity().certificate)
    found = x509.load_der_x509_certificate(der)
    assert found.not_valid_before_utc.year == 2000 and found.not_valid_after_utc.year == 9999


def test_no_two_drivers_have_the_same_key() -> None:
    assert new_identity().certificate != new_identity().certificate


def test_who_speaks_no_tls_is_shown_out(driver: Listener, table: Table, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(at(driver), 60) as plain:
        plain.sendall(token(driver) + b"\n" + json.dumps(told_by("a", row())).encode() + b"\n")
        while plain.recv(64):  # an alert may come first
            pass
    assert told(table) == {} and said(caplog) == []


def test_conversation_ends_although_a_line_arrives_in_that_moment(driver: Listener) -> None:
    """In Python 3.11 `wait_for` forgets that it was cancelled when it has something to return."""

    class Peer:
        transport = Namespace(abort=lambda: None)

    async def ended() -> bool:
        reader = asyncio.StreamReader()
        task = asyncio.create_task(driver._converse(reader, Peer()))  # type: ignore[arg-type]
        reader.feed_data(driver._greeting)
        while reader._waiter is None:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        reader.feed_data(b'{"run": "r", "held": 0, "rows": []}\n')
        task.cancel()
        reader.feed_eof()
        await asyncio.wait([task], timeout=30)
        return task.done()

    assert asyncio.run(ended())


def _listen_at(table: Table, first: Listener, identity: Identity, monkeypatch: pytest.MonkeyPatch) -> Listener:
    """A listener at the port of another, with its token and certificate."""
    original = socket.create_server
    with monkeypatch.context() as known:
        known.setattr(secrets, "token_urlsafe", lambda _: token(first).decode())
        known.setattr(socket, "create_server", lambda _, **kwargs: original(at(first), **kwargs))
        return Listener(table, limits=PATIENT, identity=identity)


def test_states_are_told_apart() -> None:
    bounded, tail = (
        copies([RANGES[0]])[0],
        copies([CopyRange(source_topic="orders", target_topic="orders", partition=1, start_offset=0)])[0],
    )
    seen = []

    def state_of(p: PartitionCopy) -> str:
        seen.append((p.range, basis_of(p)))
        return str(row_of(p)["state"])

    assert state_of(bounded) == "copying"
    bounded.state = State.WAITING
    assert state_of(bounded) == "opening"
    bounded.state = State.DONE
    assert state_of(bounded) == "done"
    bounded.error = LeaseLost("id", 1, "gone")
    assert state_of(bounded) == "stopped"
    assert state_of(tail) == "copying"
    tail.available_end = tail.fetch_offset = 10
    assert state_of(tail) == "following"
    tail.fetch_offset = 9
    assert state_of(tail) == "copying"
    tail.delays.add(1_700_000_000_000, 1_700_000_000_005, 1_700_000_000_007)
    assert state_of(tail) == "copying"
    tail.counters.padded = tail.position = 1
    assert state_of(tail) == "copying"
    assert len(set(seen)) == len(seen), "each of these changes is told"


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
    until(lambda: FIRST in told(table))
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
    until(lambda: not driver._peers)
    assert said(caplog) == []  # nor does it fill the job's log
    call(driver, token(driver), told_by("a", row()))
    until(lambda: FIRST in told(table))
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
    until(lambda: not driver._peers)


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
    with listening(table, PATIENT._replace(peers=1)) as driver:
        with dial(driver):
            until(lambda: driver._peers)
            assert call(driver, token(driver), told_by("a", row())) == b""
            assert told(table) == {}
        until(lambda: not driver._peers)
        call(driver, token(driver), told_by("a", row()))
        until(lambda: FIRST in told(table))


def test_a_task_that_fell_silent_is_no_longer_waited_for(table: Table) -> None:
    with listening(table, PATIENT._replace(silent_s=0.5)) as driver:
        with dial(driver) as task:
            task.sendall(token(driver) + b"\n" + json.dumps(told_by("a", row())).encode() + b"\n")
            until(lambda: FIRST in told(table))
            assert task.recv(1) == b""
        until(lambda: not driver._peers)


def test_sender_over_its_rate_waits_while_others_are_heard(table: Table) -> None:
    with listening(table, PATIENT._replace(bytes_per_s=0.001)) as driver, dial(driver) as task:
        task.sendall(token(driver) + b"\n")
        for position in (1, 2):
            task.sendall(json.dumps(told_by("a", row(position=position))).encode() + b"\n")
        until(lambda: FIRST in told(table))
        with Reporter(driver.address, copies(RANGES[1:2])):
            until(lambda: SECOND in told(table))
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
    return Namespace(sparkContext=Namespace(master=master, getConf=lambda: settings))


def test_a_driver_ends_the_tasks_that_run_and_no_others(table: Table, driver: Listener) -> None:
    first, second = copies(RANGES[:1]), copies(RANGES[1:2])
    with Reporter(driver.address, first) as one, Reporter(driver.address, second) as other:
        until(lambda: len(told(table)) == 2)
        assert not one.asked_to_end and not other.asked_to_end
        driver.end_tasks()
        until(lambda: one.asked_to_end and other.asked_to_end)
    with Reporter(driver.address, first) as next_lease:
        first[0].position += 1
        until(lambda: told(table)[FIRST].position == first[0].position)
        time.sleep(0.1)
        assert not next_lease.asked_to_end


def test_stopped_partition_stays_stopped_until_its_turn_ends(table: Table, driver: Listener) -> None:
    """Its task may have ended before."""
    (copy,) = copies(RANGES[:1])
    with Reporter(driver.address, [copy]):
        until(lambda: FIRST in told(table))
        assert not table.has_stopped()
        copy.error = LeaseLost("id", 5, "6")
        until(table.has_stopped)
    until(lambda: not driver._peers)
    assert table.has_stopped()  # other tasks of the lease may run for minutes
    table.begin_turn()
    assert not table.has_stopped()
