"""What a cutover is given, and what it makes of an earlier attempt in its directory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover import run as cutover
from airflow_mirror.cutover.context import Limits, Run
from airflow_mirror.cutover.report import CutoverReport
from tests.unit.cutover.builders import a_plan

if TYPE_CHECKING:
    import pytest

NOWHERE = SimpleNamespace(config=ClientConfig({"bootstrap.servers": "localhost:1"}, "source"), role="source")


def test_limits_that_are_given_are_the_ones_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[Limits] = []

    def keep(run: Run) -> CutoverReport:
        seen.append(run.limits)
        return run.report

    monkeypatch.setattr(cutover, "_run", keep)
    given, plan = Limits(drain_timeout_s=1, quiet_s=2, wait_groups_s=3, poll_s=4), a_plan("orders")
    cutover.run_cutover(
        plan.mirror, plan, NOWHERE, NOWHERE, fence=None, keep_fence=True, run_dir=tmp_path, verify=lambda _: [],
        limits=given,
    )  # type: ignore[arg-type]  # fmt: skip
    assert seen == [given]
