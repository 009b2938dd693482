"""What an old leader does otherwise, and only random conversations with a real one have shown."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mirror.wire import batch as wire_batch
from tests.conformance.asker import Asker
from tests.conformance.cases import OURS, READ_COMMITTED, ours
from tests.driven.cluster import DrivenCluster

OLD, NEW = "0.11.0.3", "4.4.0"


def asked(version: str, *questions: Any) -> list[Any]:
    """Ask a cluster with one empty topic; return the answers."""
    with DrivenCluster("driven", version=version) as driven:
        driven.create("t")
        with Asker(driven.config, "t") as asker:
            return [question(asker) for question in questions]


@pytest.mark.parametrize(("version", "answer"), [(OLD, (45, -1)), (NEW, (0, 0))])
def test_only_a_producers_last_batch_is_known_again(version: str, answer: tuple[int, int]) -> None:
    *_, again = asked(
        version, lambda a: a.produce(ours(2, 0)), lambda a: a.produce(ours(2, 2)), lambda a: a.produce(ours(2, 0))
    )
    assert again[:2] == answer


@pytest.mark.parametrize(("version", "answers"), [(OLD, [(45, -1), (0, 2)]), (NEW, [(0, 0), (45, -1)])])
def test_a_marker_takes_the_place_of_the_last_batch(version: str, answers: list[tuple[int, int]]) -> None:
    *_, batch, marker = asked(
        version, lambda a: a.produce(ours(2, 0)), lambda a: a.markers([(OURS, 0)]),
        lambda a: a.produce(ours(2, 0)), lambda a: a.produce(ours(1, 1)),
    )  # fmt: skip
    assert [batch[:2], marker[:2]] == answers


@pytest.mark.parametrize(("version", "aborted"), [(OLD, [(str(OURS), 0)]), (NEW, [])])
def test_a_marker_alone_is_an_aborted_transaction(version: str, aborted: list[tuple[str, int]]) -> None:
    _, seen = asked(version, lambda a: a.markers([(OURS, 0)], commit=False), lambda a: a.fetch(0, READ_COMMITTED))
    assert seen[4] == aborted


@pytest.mark.parametrize(("version", "stable"), [(OLD, 1), (NEW, 0)])
def test_last_stable_offset_of_a_transaction_whose_beginning_is_deleted(version: str, stable: int) -> None:
    def begin(a: Asker) -> None:
        a.find_coordinator("x", 1)
        _, producer_id, epoch = a.init("x")
        a.add_partition("x", producer_id, epoch)
        a.produce(ours(3, 0, producer_id=producer_id, attributes=wire_batch.TRANSACTIONAL), "x")

    *_, seen = asked(version, begin, lambda a: a.delete_records(1), lambda a: a.fetch(1, READ_COMMITTED))
    assert seen[2] == stable
