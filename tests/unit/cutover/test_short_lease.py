"""How a cutover goes by a lease that it sees to be short: before its fence, and when it takes the lease."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover import quiet, writers
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.errors import MissingRight
from airflow_mirror.wire.transactions import TransactionDescription
from tests.unit.cutover.builders import Leases, a_run, go_up, want

SHORT = TransactionDescription(7001, 3, "Empty", 95_000)
LATER = TransactionDescription(7001, 5, "Empty", 95_000)


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> Leases:
    return Leases(monkeypatch)


@pytest.fixture
def attempt(tmp_path: Path, leases: Leases) -> Attempt:
    return a_run(tmp_path, CallableFence(lambda: None, lambda: None, lambda: True))


def test_a_lease_that_is_short_is_waited_for_before_the_fence_and_taken_behind_a_short_wait(
    attempt: Attempt, leases: Leases
) -> None:
    leases.short = SHORT
    attempt.short_lease.wait(attempt.pause)
    assert leases.clock == lease.HANDOVER_S
    go_up(attempt)
    assert writers.stop_writers(attempt)["wait_s"] == lease.SHORT_HANDOVER_S


def test_what_was_seen_while_the_source_was_watched_counts(attempt: Attempt, leases: Leases, no_logs: None) -> None:
    leases.short = SHORT
    want(attempt, limits=replace(attempt.limits, quiet_at_most_s=10.0))
    quiet.longest_pause(attempt)
    watched = leases.clock
    assert watched >= lease.HANDOVER_S
    attempt.short_lease.wait(attempt.pause)
    assert leases.clock == watched and attempt.short_lease.ripe == SHORT


def test_a_lease_that_is_not_short_is_not_waited_for(attempt: Attempt, leases: Leases) -> None:
    """A tail of another version, or none."""
    attempt.short_lease.wait(attempt.pause)
    assert leases.clock == 0.0
    go_up(attempt)
    assert writers.stop_writers(attempt)["wait_s"] == lease.HANDOVER_S


def test_a_lease_that_nobody_may_look_at_is_not_short(
    attempt: Attempt, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The preview has to say which right is missing."""

    def refused(*_: object) -> None:
        raise MissingRight("DescribeTransactions", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "User:m")

    leases.short = SHORT
    attempt.short_lease.look()
    monkeypatch.setattr(lease, "seen_short", refused)
    attempt.short_lease.wait(attempt.pause)
    assert leases.clock == 0.0 and not attempt.short_lease.is_seen


def test_a_change_begins_the_time_anew_and_not_for_ever(
    attempt: Attempt, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    leases.short = SHORT
    pause = Attempt.pause

    def changes(attempt: Attempt, seconds: float | None = None) -> None:
        pause(attempt, seconds)
        leases.short = LATER if leases.clock < 10 else None

    monkeypatch.setattr(Attempt, "pause", changes)
    attempt.short_lease.wait(attempt.pause)
    assert leases.clock == 2 * lease.HANDOVER_S and not attempt.short_lease.is_seen

    every = iter(range(10, 100, 2))
    monkeypatch.setattr(leases, "_seen_short", lambda *_: None)
    monkeypatch.setattr(lease, "seen_short", lambda *_: TransactionDescription(7001, next(every), "Empty", 95_000))
    attempt.short_lease.wait(attempt.pause)
    assert leases.clock <= 4 * lease.HANDOVER_S and attempt.short_lease.ripe is None


def test_one_that_was_seen_too_late_is_not_ripe(attempt: Attempt, leases: Leases) -> None:
    leases.short = SHORT
    attempt.short_lease.look()
    leases.clock += lease.HANDOVER_S - 0.1
    assert attempt.short_lease.ripe is None
    go_up(attempt)
    assert writers.stop_writers(attempt)["wait_s"] == lease.HANDOVER_S


@pytest.fixture
def no_logs(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    class Logs:
        def log_ends(self, _: Any) -> dict[Any, int]:
            return {}

    monkeypatch.setattr(Attempt, "source_log", Logs())
