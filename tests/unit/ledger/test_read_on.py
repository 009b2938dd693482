"""What of a partition is read once more, whoever reads it: the state, traces, or an index of maps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_mirror.errors import BrokerError
from airflow_mirror.ledger.topic import ReadOn
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.records import Record


class Log:
    """A log of numbered records. :param stops: the offset at which an answer does not come."""

    def __init__(self, topic_id: str, start: int, end: int, stops: int | None = None) -> None:
        self._id, self._start, self._end, self._stops = topic_id, start, end, stops

    def topic_id(self) -> str:
        return self._id

    def start(self) -> int:
        return self._start

    def end(self) -> int:
        return self._end

    def ends_before(self, offset: int) -> bool:
        return self._end < offset

    def read(self, start: int, end: int, _max_bytes: int) -> Iterator[Record]:
        if start < self._start:
            raise BrokerError("read", ErrorCode.OFFSET_OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE")
        for offset in range(start, end):
            if offset == self._stops:
                raise BrokerError("read", ErrorCode.REQUEST_TIMED_OUT, "REQUEST_TIMED_OUT")
            yield Record(offset, 0, b"", None, [])


def offsets(read: ReadOn, log: Any) -> tuple[list[int], bool]:
    """Return what is read, and whether everything is read again."""
    again: list[None] = []
    return [record.offset for record in read.records(log, lambda: again.append(None))], bool(again)


def test_only_what_was_appended_is_read() -> None:
    read = ReadOn()
    assert offsets(read, Log("a", 2, 5)) == ([2, 3, 4], True)
    assert offsets(read, Log("a", 2, 7)) == ([5, 6], False)


def test_another_topic_and_one_that_has_lost_its_end_are_read_from_the_start() -> None:
    read = ReadOn()
    offsets(read, Log("a", 0, 5))
    assert offsets(read, Log("b", 1, 9)) == (list(range(1, 9)), True)
    assert offsets(read, Log("b", 1, 4)) == ([1, 2, 3], True)


def test_deleted_records_let_the_next_call_begin_again() -> None:
    read = ReadOn()
    offsets(read, Log("a", 0, 5))
    with pytest.raises(BrokerError):
        offsets(read, Log("a", 7, 9))
    assert offsets(read, Log("a", 7, 9)) == ([7, 8], True)


def test_a_read_that_breaks_off_goes_on_behind_its_last_record() -> None:
    read = ReadOn()
    with pytest.raises(BrokerError):
        offsets(read, Log("a", 0, 5, stops=3))
    assert offsets(read, Log("a", 0, 5)) == ([3, 4], False)
