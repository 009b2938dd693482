"""The task's side of reports, over real sockets: what arrives, drivers that vanish, and who listens on the way."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import secrets
import socket
import threading
import time
from argparse import Namespace

import pytest
from cryptography import x509

from airflow_mirror.copy.delays import Delays
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.reporter import basis_of, row_of
from airflow_mirror.errors import ForeignData, LeaseLost, LeaseUnconfirmed
from airflow_mirror.jobs.progress.certificate import Identity, new_identity
from airflow_mirror.jobs.progress.listener import Listener
from airflow_mirror.jobs.progress.table import Table
from airflow_mirror.jobs.progress.wording import describe
from tests.unit.jobs.reports.driver import (
    FIRST,
    PATIENT,
    QUICK,
    RANGES,
    SECOND,
    at,
    copies,
    reporting,
    row,
    said,
    token,
    told,
    told_by,
)
from tests.waiting import wait_until

CERTIFICATE = new_identity().certificate


# --- the task's side -------------------------------------------------------------------------------------------------


def test_positions_and_counters_arrive_while_the_copy_runs(driver: Listener, table: Table) -> None:
    partitions = copies()
    with reporting(driver.address, partitions):
        partitions[1].position, partitions[1].counters.reencoded = 500, 7
        wait_until(lambda: table.rows()[1].position == 500)
        partitions[1].position = 600
        wait_until(lambda: told(table)[SECOND].position == 600)
    assert told(table)[SECOND].counters["reencoded"] == 7


def test_what_the_task_holds_arrives_as_it_changes(driver: Listener, table: Table) -> None:
    held = [17]
    with reporting(driver.address, copies(), lambda: {"held": held[0]}):
        wait_until(lambda: table.held == 17)
        held[0] = 5
        wait_until(lambda: table.held == 5)


def test_who_throttles_a_task_arrives_while_it_lasts(driver: Listener, table: Table) -> None:
    throttled = {"target": 9_800}
    with reporting(driver.address, copies(), lambda: {"held": 0, "throttled": dict(throttled)}):
        wait_until(lambda: table.throttled == {"target": 9_800})
        assert describe({"lag": 1, "throttled": table.throttled}).endswith(
            "throttled by quota: the target by 9.8 s a request"
        )
        throttled.clear()
        wait_until(lambda: table.throttled == {})


def test_delays_and_time_of_the_last_record_arrive(driver: Listener, table: Table) -> None:
    partitions = copies()
    partitions[1].timestamp = 1_600_000_000_000  # the target's last record, found when the partition was opened
    partitions[2].timestamp = -1  # it has none
    with reporting(driver.address, partitions):
        wait_until(lambda: len(told(table)) == 3)
        assert [one.timestamp_ms for one in table.rows()] == [0, 1_600_000_000_000, 0]
        partitions[1].delays.add(1_700_000_000_000, 1_700_000_000_005, 1_700_000_000_007)
        wait_until(lambda: told(table)[SECOND].delays.batches)
    assert told(table)[SECOND].delays == Delays(1, 5, 7, 5, 5, 7, 7)
    assert told(table)[SECOND].timestamp_ms == 1_700_000_000_000


def test_what_happened_last_is_told_too(driver: Listener, table: Table) -> None:
    partitions = copies()
    with reporting(driver.address, partitions, pace=QUICK._replace(every_s=60.0)):
        wait_until(lambda: len(told(table)) == 3)
        partitions[0].position, partitions[0].state = 1000, State.DONE
    wait_until(lambda: told(table)[FIRST].state == "done")


def test_unopened_partition_is_not_reported(driver: Listener, table: Table) -> None:
    partitions = [*copies(RANGES[:1]), PartitionCopy(RANGES[1], True, 1 << 20), PartitionCopy(RANGES[2], True, 1 << 20)]
    partitions[2].error = LeaseLost("id", 1, "gone")
    with reporting(driver.address, partitions):
        wait_until(lambda: told(table))
    assert set(told(table)) == {FIRST}  # their positions would be a guess


@pytest.mark.parametrize(
    "address", [None, "", "{}", "not an address", "h 99999 t", "h 1 t ?", "h 1 t QUJD", f"h x t {CERTIFICATE}"]
)
def test_senseless_address_does_not_stop_the_copy(address: str | None) -> None:
    with reporting(address, copies()) as reporter:
        pass
    reporter._thread.join(240) if address is not None else None
    assert not reporter._thread.is_alive()


def test_a_driver_that_is_gone_costs_the_copy_nothing(driver: Listener, caplog: pytest.LogCaptureFixture) -> None:
    driver.close()
    pace = QUICK._replace(goodbye_s=60.0)
    with caplog.at_level(logging.INFO), reporting(driver.address, copies(), pace=pace) as reporter:
        wait_until(lambda: caplog.text.count("does not listen") > 1)  # it tried again
        assert reporter._thread.is_alive()
    assert not reporter._thread.is_alive(), "it ended by itself, and held up nobody"


def test_a_driver_that_has_come_to_its_end_is_no_news(
    driver: Listener, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """It hangs up on its tasks, which end a moment later."""
    with caplog.at_level(logging.INFO), reporting(driver.address, copies(), pace=QUICK._replace(retry_s=60.0)):
        wait_until(lambda: told(table))
        driver.close()
        time.sleep(3 * QUICK.every_s)
    assert "does not listen" not in caplog.text


def test_driver_that_takes_nothing_does_not_hold_up_tasks() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as frozen:
        frozen.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        many = copies(
            [
                CopyRange(source_topic="t" * 200, target_topic="t", partition=p, start_offset=0, end_offset=1000)
                for p in range(20_000)
            ]
        )
        identity = new_identity()
        address = f"127.0.0.1 {frozen.getsockname()[1]} x {identity.certificate}"
        with reporting(address, many, pace=QUICK._replace(goodbye_s=0.2, timeout_s=600.0)) as reporter:
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
    with reporting(first.address, partitions) as reporter:
        wait_until(lambda: len(told(table)) == 3)
        first.close()
        other = Table(RANGES)
        second = _listen_at(other, first, identity, monkeypatch)
        try:
            wait_until(lambda: len(told(other)) == 3)
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
    partitions[1].error = ForeignData("a-secret-name", 1, 5, 6, "another tool wrote it", "Delete it.")
    with reporting(wire.address, partitions) as reporter:
        wait_until(lambda: len(told(table)) == 3)
        driver.end_tasks()
        wait_until(lambda: reporter.asked_to_end)
    wire.close()
    assert len(wire.seen) > 1000, "it all went through here"
    for shown in (b"orders", b"a-secret-name", b"position", token(driver), b"number"):
        assert shown not in wire.seen, shown


def test_task_tells_nothing_to_somebody_in_the_drivers_place(driver: Listener, caplog: pytest.LogCaptureFixture) -> None:
    table = Table(RANGES)
    other = Listener(table, limits=PATIENT)
    _, _, token_, certificate = driver.address.split()
    host, port = at(other)
    with caplog.at_level(logging.INFO), reporting(f"{host} {port} {token_} {certificate}", copies()):
        wait_until(lambda: caplog.text.count("CERTIFICATE_VERIFY_FAILED") > 1)
    other.close()
    assert told(table) == {} and not other._tasks


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
    bounded.error = ForeignData("orders", 0, 5, 6, "another tool wrote it", "Delete it.")
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


def test_a_lost_lease_stops_no_partition() -> None:
    """Only its task: the driver withdraws a lease for another rate, and whoever took it is told by the task's results."""
    (one,) = copies(RANGES[:1])
    one.error = LeaseLost("id", 1, "gone")
    assert (row_of(one)["state"], row_of(one)["error"]) == ("copying", None)
    one.error = LeaseUnconfirmed("id", 1, 600.0, None)
    assert row_of(one)["state"] == "stopped" and "id" in row_of(one)["error"]
