"""``airflow-mirror cutover``: what a script reads from its exit status, and what it must not take for its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.console import cutover as command
from airflow_mirror.console.request import require_planned
from airflow_mirror.cutover.report import BACKED_OUT, DONE, CutoverReport, FenceRecord
from airflow_mirror.errors import (
    InputError,
    MirrorError,
    OpeningUnfinished,
    OpenOutcomeUnknown,
    PlanOutdated,
    RegistryStillHeld,
    TryAgain,
)
from airflow_mirror.plan.direction import ARMED, Direction, turn
from tests.driven.ledger import LedgerCluster
from tests.unit.cutover.builders import a_plan, kept_in

ASKED = argparse.Namespace(json=False, mirror="flow", target="dst")


def ends(error: MirrorError, directory: Path, *, fenced: bool) -> int:
    """Return the exit status of a cutover that ends so, with or without a fence that was up."""
    kept = kept_in(directory)

    def work() -> CutoverReport:
        report = CutoverReport(mirror="flow", plan_hash="p", outcome=BACKED_OUT)
        if fenced:
            report.fence = FenceRecord(kind="acl", intent={}, requested=1.0, lifted=2.0)
        kept.save_here(report)
        raise error

    return command._do(ASKED, kept, "source", work)


@pytest.mark.parametrize(
    ("error", "fenced", "status"),
    [
        (TryAgain("a broker is down"), True, 1),
        (PlanOutdated(["a topic is gone"]), False, 2),
        (PlanOutdated(["a topic is gone"]), True, 1),  # producers were kept out: that is not nothing
        (OpeningUnfinished("run 'r'", "its report is gone"), True, 3),
        (OpenOutcomeUnknown("source", "no answer"), True, 3),
        (RegistryStillHeld("target", "it is away"), True, 3),
    ],
)
def test_status_says_whether_the_target_may_be_open(
    error: MirrorError, fenced: bool, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(error, tmp_path, fenced=fenced) == status
    assert capsys.readouterr().err.startswith("error: ")


def test_done_is_status_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = CutoverReport(mirror="flow", plan_hash="p", outcome=DONE)
    assert command._do(ASKED, kept_in(tmp_path), "source", lambda: report) == 0
    assert ": cut_over" in capsys.readouterr().out


def test_a_way_back_is_cut_over_by_rollback_alone(dst: LedgerCluster) -> None:
    """A cutover of it would open the old source without a direction, behind the first cutover's fence."""
    one = Direction(generation=1, primary="new", by=ARMED, attempt="r", plan="p", at="noon")
    dst.ledger.decide(lambda _: turn("flow", one))
    with pytest.raises(InputError, match="it is a way back.*airflow-mirror rollback"):
        command._plan(ASKED)


def test_clusters_of_another_plan_are_refused() -> None:
    """A file of settings may be the wrong one, or name one cluster twice: both sides would be equal, and proven."""
    plan = a_plan("orders")
    named: Callable[[str, str], Any] = lambda role, its: SimpleNamespace(role=role, cluster_id=lambda: its)  # noqa: E731
    require_planned(plan, named("source", plan.source_cluster_id), named("target", plan.target_cluster_id))
    with pytest.raises(InputError, match="source cluster: it is staging, and mirror 'flow' was planned for"):
        require_planned(plan, named("source", "staging"), named("target", plan.target_cluster_id))
