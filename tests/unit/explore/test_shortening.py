"""A lease that is short while a cutover runs: complete for each single deviation, and what its parts are worth."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover import short_lease
from tests.explore.__main__ import explore
from tests.explore.deviations import freeze
from tests.explore.scenario import run
from tests.explore.scenarios import SCENARIOS
from tests.explore.shortening import INVARIANTS, SCENARIO

if TYPE_CHECKING:
    import pytest

(ONE_WRITES,) = (one.sentence for one in INVARIANTS)


def test_nobody_writes_behind_an_opening_that_waited_for_less() -> None:
    (found,) = explore(["shortening"], SCENARIOS)
    assert found.findings == []
    assert found.single[0] == found.single[1] > 500


def test_a_lease_that_is_short_for_a_moment_only_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task goes by the answer that it had before."""
    monkeypatch.setattr(short_lease, "lease", SimpleNamespace(HANDOVER_S=1.0))
    outcome = run(SCENARIO, (("T1", "target: the mirror copies in turn 1", 2, freeze(5.0)),))
    assert "wrote to an open target" in outcome.broken[ONE_WRITES]


def test_a_lease_that_was_longer_meanwhile_is_waited_for_as_long_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cutover was taken for dead when it was about to take the lease, and wakes up."""
    frozen = (
        ("C", "target: take over airflow-mirror:flow:lease", 1, freeze(13.0)),
        ("T2", "target: the mirror copies in turn 2", 21, freeze(5.0)),
    )
    outcome = run(SCENARIO, frozen)
    assert outcome.broken == {} and "opened after 7 s" in outcome.text

    take = lease.take

    def believing(*args: Any, short: object, **named: Any) -> Any:
        return replace(take(*args, **named), wait_s=lease.SHORT_HANDOVER_S if short else lease.HANDOVER_S)

    monkeypatch.setattr(lease, "take", lambda *args, **named: (believing if "short" in named else take)(*args, **named))
    assert "wrote to an open target" in run(SCENARIO, frozen).broken[ONE_WRITES]


def test_tasks_that_go_on_for_as_long_as_before_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "SHORT_VALID_S", lease.VALID_S)
    (found,) = explore(["shortening"], SCENARIOS)
    assert ONE_WRITES in {one.sentence for one in found.findings}
