"""What a fetch session's next request names, behind whatever became of the last one."""

from __future__ import annotations

import pytest

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.wire import session as module
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.fetch import FetchSpec, Place
from airflow_mirror.wire.session import FetchSession

A, B, C = (FetchSpec(TP("t", n), 10 * n, 100, 3) for n in range(3))


@pytest.fixture
def kept() -> FetchSession:
    """A session of A and B that the broker keeps as 7."""
    one = FetchSession()
    one.put(A)
    one.put(B)
    assert one.request() == ([A, B], Place(0, 0))
    assert not one.is_kept
    one.answered(0, 7)
    assert one.is_kept and len(one) == 2
    return one


def test_a_request_names_what_has_changed(kept: FetchSession) -> None:
    assert kept.request() == ([], Place(7, 1, []))
    kept.answered(0, 7)
    moved = A._replace(offset=5)
    kept.put(moved)
    kept.put(C)
    kept.drop(B.tp)
    assert kept.request() == ([moved, C], Place(7, 2, [B]))
    kept.answered(0, 7)
    assert kept.request() == ([], Place(7, 3, []))


def test_a_partition_is_never_both_named_and_forgotten(kept: FetchSession) -> None:
    """The broker would forget it."""
    kept.drop(A.tp)
    kept.put(A)
    assert kept.request() == ([A], Place(7, 1, []))
    kept.answered(0, 7)
    kept.put(C)
    kept.drop(C.tp)
    assert kept.request() == ([], Place(7, 2, [C]))
    kept.drop(C.tp)
    kept.answered(0, 7)
    assert kept.request() == ([], Place(7, 3, []))


@pytest.mark.parametrize(
    ("error", "told", "named"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, 0),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 0, 7),
        (ErrorCode.NONE, 0, 7),
        (ErrorCode.NONE, 8, 7),
    ],
)
def test_a_session_that_ends_is_laid_down_anew(kept: FetchSession, error: int, told: int, named: int) -> None:
    kept.drop(B.tp)
    kept.put(C)
    kept.request()
    kept.answered(error, told)
    assert kept.request() == ([A, C], Place(named, 0))
    kept.answered(0, 9)
    assert kept.request() == ([], Place(9, 1, []))


def test_a_broker_without_room_is_told_everything(kept: FetchSession) -> None:
    kept.begin_anew()
    for _ in range(2):
        assert kept.request() == ([A, B], Place(7, 0))
        kept.answered(0, 0)


def test_epochs_begin_again_behind_the_last_one(kept: FetchSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAST_EPOCH", 2)
    epochs = []
    for _ in range(4):
        epochs.append(kept.request()[1].epoch)
        kept.answered(0, 7)
    assert epochs == [1, 2, 1, 2]


# --- topics by their ids -----------------------------------------------------------------------------------------------

AN_ID, ANOTHER = bytes(15) + b"1", bytes(15) + b"2"
A1, B1 = (one._replace(topic_id=AN_ID) for one in (A, B))


@pytest.fixture
def by_id() -> FetchSession:
    """A session of A and B by their topic's id, which the broker keeps as 7."""
    one = FetchSession()
    one.takes_ids = True
    one.put(A1)
    one.put(B1)
    assert one.request() == ([A1, B1], Place(0, 0, by_id=True))
    one.answered(0, 7)
    return one


def test_a_session_names_topics_by_ids_while_all_are_known(by_id: FetchSession) -> None:
    """A broker refuses a request that names them in the other way: it is another session."""
    by_id.drop(B1.tp)
    assert by_id.request() == ([], Place(7, 1, [B1], by_id=True))
    by_id.answered(0, 7)
    by_id.put(C)
    assert by_id.request() == ([A1, C], Place(7, 0))
    by_id.answered(0, 8)
    by_id.drop(C.tp)
    assert by_id.request() == ([A1], Place(8, 0, by_id=True))


def test_a_broker_that_knows_no_ids_is_told_names() -> None:
    one = FetchSession()
    one.put(A1)
    assert one.request() == ([A1], Place(0, 0))


@pytest.mark.parametrize("dropped", [False, True])
def test_a_topic_that_was_created_again_is_another_partition(by_id: FetchSession, dropped: bool) -> None:
    """The broker would keep both, and answer for the one that is gone."""
    if dropped:
        by_id.drop(A1.tp)
    again = A1._replace(topic_id=ANOTHER, offset=0)
    by_id.put(again)
    named, place = by_id.request()
    assert sorted(named) == sorted([again, B1]) and place == Place(7, 0, by_id=True)
