"""What the source side makes of a broker that is slow, and of one that is silent."""

from __future__ import annotations

import selectors
import struct
import time
from queue import Queue
from types import SimpleNamespace
from typing import Any

from airflow_mirror.copy.loop.fetch_lane import FetchLane
from airflow_mirror.copy.loop.limits import Memory
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.source_side import SourceSide
from airflow_mirror.errors import MirrorError
from airflow_mirror.wire.connection import Connection
from tests.unit.copy.test_damage import opened
from tests.unit.peer import Talk, connected

SILENCE_S = 35.0


class Judge:
    """Notes which partitions are opened again, and why."""

    def __init__(self) -> None:
        self.retried: list[str] = []

    def failed(self, p: PartitionCopy, error: MirrorError) -> None:
        raise AssertionError(error)

    stop = failed

    def retry_later(self, p: PartitionCopy, cause: Exception | str) -> None:
        self.retried.append(str(cause))


def await_bytes(connection: Connection) -> None:
    deadline = time.monotonic() + 240
    while not connection.has_bytes:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_response_that_trickles_in_is_waited_for_and_a_silent_one_is_not() -> None:
    """A selector wakes once a megabyte has come, which takes a slow link longer than silence may last."""
    pieces: Queue[int] = Queue()

    def script(talk: Talk) -> None:
        correlation_id = talk.read()[2]
        talk.socket.sendall(struct.pack(">ii", (2 << 20) + 4, correlation_id))
        while size := pieces.get():
            talk.socket.sendall(bytes(size))

    now, judge = [0.0], Judge()
    with connected(script) as (connection, _peer), selectors.DefaultSelector() as selector:
        dialler: Any = SimpleNamespace(dial=lambda connect, then: then(connection))
        side = SourceSide(dialler, selector, Memory(48 << 20), 0, judge, lambda: now[0])
        p = opened()
        side.send([p])  # has it connected
        side.send([p])
        pieces.put(1000)
        ((key, _),) = selector.select(240)
        lane: FetchLane = key.data
        while not lane.connection or not lane.connection._arriving.is_body:
            side.receive(lane)
        for _ in range(5):
            pieces.put(1000)
            await_bytes(connection)
            assert not selector.select(0)
            now[0] += SILENCE_S + 1
            side.drop_silent(now[0] - SILENCE_S, SILENCE_S)
            assert lane.busy and not judge.retried
        while connection.has_bytes:
            side.receive(lane)
        now[0] += SILENCE_S + 1
        side.drop_silent(now[0] - SILENCE_S, SILENCE_S)
        assert judge.retried == ["no answer for 35 s"]
        pieces.put(0)
        side.close()
