"""What an error of a partition means, and when it is opened again, on a clock that the test turns."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from airflow_mirror.copy.loop import loop, retries
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.retries import Retries, Verdict, verdict
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.opening.identical import Opening
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import (
    AuthenticationFailed,
    ForeignData,
    InputError,
    LeaseLost,
    MirrorError,
    MissingRight,
    TargetGone,
    TargetMoved,
    TryAgain,
)
from airflow_mirror.wire.errors import TlsRefused


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(s=1000.0)


@pytest.fixture
def kept(clock: SimpleNamespace) -> Retries:
    return Retries(lambda: clock.s)


@pytest.fixture
def p() -> PartitionCopy:
    return PartitionCopy(CopyRange(source_topic="t", target_topic="t", partition=0, start_offset=0), True, 1 << 20)


def test_quiet_partition_outlives_two_failures_far_apart(kept: Retries, p: PartitionCopy, clock: SimpleNamespace) -> None:
    """They have nothing to do with each other.

    In a rolling restart each broker fails once; only a write would have said that all was well between.
    """
    for _ in range(3):
        assert kept.again(p, "a broker is restarted") is None
        kept.opened(p)
        clock.s += retries.PATIENCE_S + 1
    assert p.failures == 1


def level(p: PartitionCopy) -> None:
    """Have it opened, and told by the source's leader that there is nothing new."""
    p.begin_opening()
    p.reopen(Opening(position=0, producer_id=1, epoch=0, sequence=0))
    p.available_end = 0


@pytest.mark.parametrize("also", ["nothing", "records", "no answer"])
def test_quiet_partition_outlives_failures_less_than_a_minute_apart(
    kept: Retries, p: PartitionCopy, clock: SimpleNamespace, also: str
) -> None:
    """A rolling restart that takes 45 seconds for each broker. It is level in between, and has nothing to write.

    One that has something to write, or gets nothing from its source, makes no progress all the while.
    """
    errors = []
    for _ in range(8):
        errors.append(kept.again(p, "a broker is restarted"))
        if p.is_open:
            p.fail()
        clock.s += 1
        level(p)
        kept.opened(p)
        if also == "records":
            p.state = State.SENDING
        elif also == "no answer":
            p.available_end = -1
        clock.s += 44
    given_up = [error for error in errors if error is not None]
    assert bool(given_up) == (also != "nothing")
    assert errors[:3] == [None] * 3


def test_partition_failing_right_after_opening_is_given_up(
    kept: Retries, p: PartitionCopy, clock: SimpleNamespace
) -> None:
    for _ in range(10):
        error = kept.again(p, "too few replicas")
        if error is not None:
            break
        kept.opened(p)
        clock.s += loop._SILENCE_S  # as long as a broker may take to refuse
    assert "no progress for 140 s: too few replicas" in str(error)
    assert retries.FORGIVEN_S > loop._SILENCE_S


def test_partition_that_cannot_be_reopened_is_given_up(kept: Retries, p: PartitionCopy, clock: SimpleNamespace) -> None:
    """It had worked for an hour before."""
    kept.opened(p)
    clock.s += 3600
    for number in range(1, 30):
        error = kept.again(p, "no leader")
        if error is not None:
            break
        assert p.failures == number
        clock.s += 10
    assert "no progress for 130 s: no leader" in str(error)


@pytest.mark.parametrize("bound_s", [7.0, 4000.0, float("inf")])
def test_partition_is_given_up_after_the_time_that_its_options_say(
    p: PartitionCopy, clock: SimpleNamespace, bound_s: float
) -> None:
    kept, begun, error = Retries(lambda: clock.s, bound_s), clock.s, None
    while error is None and clock.s - begun < 10 * 3600:
        error = kept.again(p, "no leader")
        clock.s += 30
    waited_s = clock.s - begun
    assert (waited_s == 10 * 3600 and error is None) if bound_s == float("inf") else bound_s < waited_s <= bound_s + 60


def test_pauses_grow_and_progress_makes_them_short_again(kept: Retries, p: PartitionCopy, clock: SimpleNamespace) -> None:
    seen = []
    for _ in range(8):
        kept.again(p, "no leader")
        seen += [round(pause, 3) for pause in kept.pauses()]
        assert kept.take_due(lambda _: True) == []
        clock.s += seen[-1]
        assert kept.take_due(lambda _: True) == [p]
    p.failures = 0  # a batch was acknowledged
    kept.again(p, "no leader")
    assert seen == [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0]
    assert [round(pause, 3) for pause in kept.pauses()] == [0.1]


def test_a_partition_that_must_not_be_opened_yet_stays_due(kept: Retries, p: PartitionCopy) -> None:
    kept.now([p])
    assert kept.take_due(lambda _: False) == []
    assert kept.take_due(lambda _: True) == [p]
    assert kept.take_due(lambda _: True) == []


def test_who_has_waited_longest_is_opened_first(kept: Retries, clock: SimpleNamespace) -> None:
    first, second = (
        PartitionCopy(CopyRange(source_topic="t", target_topic="t", partition=number, start_offset=0), True, 1 << 20)
        for number in range(2)
    )
    kept.again(second, "no leader")
    clock.s += 0.05
    kept.again(first, "no leader")
    clock.s += 1
    assert kept.take_due(lambda _: True) == [second, first]


def test_a_partition_that_stopped_is_never_due(kept: Retries, p: PartitionCopy, clock: SimpleNamespace) -> None:
    kept.again(p, "no leader")
    kept.drop(p)
    clock.s += 100
    assert (kept.take_due(lambda _: True), list(kept.pauses())) == ([], [])


@pytest.mark.parametrize(
    ("error", "means"),
    [
        (LeaseLost("id", 1, "epoch 2"), Verdict.END_TASK),  # although it is a TryAgain: the next job tries
        (TryAgain("no leader"), Verdict.RETRY),
        (TargetMoved("t", 0, 1, 2, "it stands at 3", "Stop the writer."), Verdict.RETRY),
        (ForeignData("t", 0, 1, 2, "it differs", "Delete it."), Verdict.STOP),
        (TargetGone("t", "id-then", "id-now"), Verdict.STOP),
        (InputError("a setting is wrong"), Verdict.STOP),
    ],
)
def test_error_ends_the_task_or_partition_or_is_retried(error: MirrorError, means: Verdict) -> None:
    assert verdict(error) is means


@pytest.mark.parametrize(
    "error",
    [
        MissingRight("fetch t-0", "TOPIC_AUTHORIZATION_FAILED", "User:m"),
        AuthenticationFailed("source", "b:1", "no such user"),
        TlsRefused("source", "b:1", "certificate has expired", "Renew it."),
    ],
)
def test_what_a_partition_had_when_it_was_open_may_come_back(error: MirrorError) -> None:
    """A right that is being replaced, a certificate that is renewed, a password that was changed."""
    assert verdict(error) is Verdict.STOP and verdict(error, opened=True) is Verdict.RETRY


def test_the_log_grows_louder_with_the_third_failure(
    kept: Retries, p: PartitionCopy, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            kept.again(p, "no leader")
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.INFO, logging.WARNING]
