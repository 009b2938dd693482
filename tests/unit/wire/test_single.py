"""Reading one partition while its leader moves or is not ready."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import TryAgain
from airflow_mirror.wire import single

TP = TopicPartition("t", 0)


def answer(error: int) -> memoryview:
    partition = struct.pack(">iihqqqiii", 1, 0, error, 7, 7, 0, 0, -1, 0)
    return memoryview(struct.pack(">ihiih", 0, 0, 0, 1, 1) + b"t" + partition)


def a_cluster(answers: Callable[[], memoryview], *, patient: bool = True) -> Any:
    """A cluster of one broker that speaks Fetch 11."""
    broker = SimpleNamespace(
        send=lambda *_, **__: 1, receive=lambda *_, **__: answers(), newest=lambda *_: 11, throttle=lambda _: None,
        timeout_s=10.0,
    )  # fmt: skip
    return SimpleNamespace(
        leader=lambda _: SimpleNamespace(node_id=1, epoch=3), connection=lambda _: broker, refresh=lambda _: None,
        patient=patient, role="source",
    )  # fmt: skip


@pytest.mark.parametrize(("error", "final"), [(6, False), (78, False), (76, True), (1, True)])
def test_fetch_asks_again_only_after_an_error_that_passes(error: int, final: bool) -> None:
    """78 is OFFSET_NOT_AVAILABLE: a new leader does not know its high watermark yet. 76 is an unsupported codec."""
    answers = [answer(error), answer(0)]
    fetched = single.fetch_one(a_cluster(lambda: answers.pop(0)), TP, 0, isolation=0)
    assert fetched.error == (error if final else 0)


def test_ever_moving_leader_is_reported_without_an_invented_code() -> None:
    with pytest.raises(TryAgain, match=r"source cluster: .* from t-0 at offset 5: no leader answered: NOT_LEADER") as e:
        single.fetch_one(a_cluster(lambda: answer(6), patient=False), TP, 5, isolation=0)
    assert "(-1)" not in str(e.value)


def test_empty_answer_below_the_end_does_not_end_reading() -> None:
    """A broker sends one to a client that is over its quota."""
    empty = a_cluster(lambda: answer(0))
    with pytest.raises(TryAgain, match=r"offset 5: empty answers for 0 s, but the log ends at 7"):
        list(single.read_batches(empty, TP, 5, 99, isolation=0, timeout_s=0))
    assert list(single.read_batches(empty, TP, 7, 99, isolation=0, timeout_s=0)) == []
