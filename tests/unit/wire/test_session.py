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
    assert kept.request() == ([moved, C], Place(7, 2, [B.tp]))
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
    assert kept.request() == ([], Place(7, 2, [C.tp]))
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
