"""What the target side makes of a broker's answer to a batch."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import crc32c
import pytest

from airflow_mirror.copy.loop.limits import Pace
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.target_side import ProduceLane, TargetSide
from airflow_mirror.errors import CorruptBatch, LeaseLost, LeaseUnconfirmed, MirrorError, PartitionStopped
from airflow_mirror.wire import codec
from tests.unit.copy.test_damage import START, feed, log, opened

UNKNOWN_SERVER_ERROR, UNSUPPORTED_COMPRESSION_TYPE, OFFSET_NOT_AVAILABLE = -1, 76, 78


class Answering:
    """A connection to a broker that answers every batch with one error code."""

    unsent = ends_soon = is_over = False
    address = "b:1"

    def __init__(self, error: int) -> None:
        self._error, self._ends = error, socket.socketpair()
        self.sent = 0

    def fileno(self) -> int:
        return self._ends[0].fileno()

    def send(self, *_: object, check: Callable[[], None], wait: bool) -> int:
        assert not wait
        check()
        self.sent += 1
        return 1

    def flush(self, check: Callable[[], None]) -> None:
        pass

    def arrived(self, _: int) -> bool:
        return True

    def receive(self, _: int) -> memoryview:
        topic = struct.pack(">ih", 1, 6) + b"orders"
        partition = struct.pack(">iihqqqih", 1, 4, self._error, -1, -1, -1, 0, -1)
        return memoryview(topic + partition + struct.pack(">i", 0))

    def close(self) -> None:
        for end in self._ends:
            end.close()


class Judge:
    """Notes what is reported to it."""

    def __init__(self) -> None:
        self.stopped: list[MirrorError] = []
        self.retried: list[str] = []
        self.errors: list[MirrorError] = []

    def failed(self, p: PartitionCopy, error: MirrorError) -> None:
        self.errors.append(error)

    def stop(self, p: PartitionCopy, error: MirrorError) -> None:
        self.stopped.append(error)

    def retry_later(self, p: PartitionCopy, cause: Exception | str) -> None:
        self.retried.append(str(cause))


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as one:
        yield one


def unreadable(content: bytearray) -> bytearray:
    """Make a batch's payload that of no codec; its checksum fits."""
    content[61:] = bytes(len(content) - 61)
    content[22] |= codec.ZSTD
    struct.pack_into(">I", content, 17, crc32c.crc32c(bytes(content[21:])))
    return content


def answered(
    error: int, selector: selectors.BaseSelector, content: bytearray | None = None, *, shed: bool = False
) -> Judge:
    """Send one batch, have the broker answer with ``error``, return what the judge was told.

    :param shed: the batch's bytes are given back meanwhile.
    """
    content = log(4)[0] if content is None else content
    p = opened(START + 4)
    feed(p, content)
    judge = Judge()
    dialler: Any = SimpleNamespace(dial=lambda connect, then: then(Answering(error)))
    side = TargetSide(dialler, selector, Pace(None), "m", {}, lambda: None, judge, time.monotonic)
    side.queue(p)
    side.send()  # has it connected
    side.send()
    if shed:
        lean = p.shed()
        assert lean is not None
        side.expect(p, lean)
    (key,) = selector.get_map().values()
    assert isinstance(key.data, ProduceLane)
    side.receive(key.data)
    side.close()
    assert not judge.errors
    return judge


def test_codec_that_the_target_does_not_know_is_refused(selector: selectors.BaseSelector) -> None:
    judge = answered(UNSUPPORTED_COMPRESSION_TYPE, selector)
    (error,) = judge.stopped
    assert isinstance(error, PartitionStopped) and "UNSUPPORTED_COMPRESSION_TYPE" in str(error)
    assert (error.start_offset, error.end_offset) == (START, START + 4)
    assert not judge.retried


def test_answer_that_passes_is_no_refusal(selector: selectors.BaseSelector) -> None:
    judge = answered(OFFSET_NOT_AVAILABLE, selector)
    assert not judge.stopped
    assert len(judge.retried) == 1


def test_batch_that_nobody_can_read_is_offered_and_then_named(selector: selectors.BaseSelector) -> None:
    """A broker says no more than UNKNOWN_SERVER_ERROR of it, and would say so for ever."""
    judge = answered(UNKNOWN_SERVER_ERROR, selector, unreadable(log(4)[0]))
    (error,) = judge.stopped
    assert isinstance(error, CorruptBatch)
    assert "not valid zstd" in str(error) or "records" in str(error)
    assert (error.topic, error.partition, error.start_offset, error.end_offset) == ("orders", 4, START, START + 4)
    assert not judge.retried


def test_readable_batch_is_retried_after_an_unknown_error(selector: selectors.BaseSelector) -> None:
    judge = answered(UNKNOWN_SERVER_ERROR, selector)
    assert not judge.stopped and len(judge.retried) == 1


def test_batch_whose_bytes_were_given_back_is_retried_after_an_unknown_error(selector: selectors.BaseSelector) -> None:
    """Nobody can read what is no longer there, which says nothing about the batch."""
    judge = answered(UNKNOWN_SERVER_ERROR, selector, shed=True)
    assert not judge.stopped and len(judge.retried) == 1


@pytest.mark.parametrize("error", [LeaseUnconfirmed("id", 1, 9.0, None), LeaseLost("id", 1, "epoch 2")])
def test_lease_ending_while_a_request_is_filled_holds_the_batch(
    selector: selectors.BaseSelector, error: MirrorError
) -> None:
    """To sign and to encode takes its time; another job takes over and writes meanwhile."""

    def check() -> None:
        raise error

    connection, judge, p = Answering(0), Judge(), opened(START + 4)
    feed(p, log(4)[0])
    dialler: Any = SimpleNamespace(dial=lambda connect, then: then(connection))
    side = TargetSide(dialler, selector, Pace(None), "m", {}, check, judge, time.monotonic)
    side.queue(p)
    side.send()  # has it connected
    if isinstance(error, LeaseLost):
        with pytest.raises(LeaseLost):
            side.send()
    else:
        side.send()
        assert judge.errors == [error] and not side.busy
    assert connection.sent == 0 and not judge.retried
    side.close()
