"""Reading one partition while its leader moves or is not ready."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire import single

TP = TopicPartition("t", 0)


def answer(error: int) -> memoryview:
    partition = struct.pack(">iihqqqiii", 1, 0, error, 7, 7, 0, 0, -1, 0)
    return memoryview(struct.pack(">ihiih", 0, 0, 0, 1, 1) + b"t" + partition)


@pytest.mark.parametrize(("error", "final"), [(6, False), (78, False), (76, True), (1, True)])
def test_fetch_asks_again_only_after_an_error_that_passes(error: int, final: bool) -> None:
    """78 is OFFSET_NOT_AVAILABLE: a new leader does not know its high watermark yet. 76 is an unsupported codec."""
    answers = [answer(error), answer(0)]
    connection = SimpleNamespace(send=lambda *_: 1, receive=lambda _: answers.pop(0))
    cluster: Any = SimpleNamespace(
        leader=lambda _: SimpleNamespace(node_id=1, epoch=3), connection=lambda _: connection, refresh=lambda _: None,
        patient=True,
    )  # fmt: skip
    fetched = single.fetch_one(cluster, TP, 0, isolation=0)
    assert fetched.error == (error if final else 0)
