"""Run one cutover in a process of its own, which kills itself (SIGKILL) after the n-th write of its report.

Each write of the report stands between two effects, so that n walks through every place where a cutover can be cut off.
Arguments: run directory, plan file, n (0: never; -1: right behind the decision that the target is open; -2: right behind
the commit of the groups, which no write follows at once). SOURCE and TARGET hold the clusters' settings, MAX_FENCE_S how
long the fence may be up.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_mirror.config import load
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover import decision, preview
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync import groups
from airflow_mirror.verify.remaining import verify_rest
from tests.cutting_over import cut_over
from tests.integration.cutover_world import HeardFence, kept_in

# Short times: these tests are about the order of things.
LIMITS = Limits(
    max_fence_s=900, drain_timeout_s=300, quiet_s=0.5, quiet_at_most_s=0.5, wait_groups_s=60, settle_s=0.3,
    group_quiet_s=0.5, poll_s=0.05,
)  # fmt: skip

# The lease's times, shortened alike: two dozen cutovers are killed, and each makes the next one wait.
LEASE_TIMES = {"CONFIRM_EVERY_S": 0.5, "VALID_S": 2.0, "HANDOVER_S": 3.0}

# Where a test lets nobody copy, a cutover of a machine as slow as this would refuse: in so many seconds a tail moves.
SLOW_S = 600.0


def page(text: str) -> None:
    """Call a person: say so in a file that the environment names."""
    with Path(os.environ["CALLED"]).open("a") as file:
        file.write(f"{text}\n")


def main(run_dir: Path, plan_path: Path, kill_after: int) -> None:
    """See the module."""
    for name, seconds in LEASE_TIMES.items():
        setattr(lease, name, seconds)
    setattr(preview, "ENOUGH_S", SLOW_S)  # noqa: B010  (mypy wants the module that defines it)
    writes = 0
    save = CutoverReport.save

    def save_and_die(self: CutoverReport, directory: Path, text: str | None = None) -> None:
        nonlocal writes
        save(self, directory, text)
        writes += 1
        if writes == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    CutoverReport.save = save_and_die  # type: ignore[method-assign]

    def dies_behind(does: Callable[..., Any]) -> Callable[..., Any]:
        def do_and_die(*given: Any, **named: Any) -> None:
            does(*given, **named)
            os.kill(os.getpid(), signal.SIGKILL)

        return do_and_die

    if kill_after == -1:
        decision.open_behind = dies_behind(decision.open_behind)
    elif kill_after == -2:
        groups.set_positions = dies_behind(groups.set_positions)

    plan = Plan.load(plan_path)
    source, target = load("env:SOURCE", "source"), load("env:TARGET", "target")
    with ClusterAdmin(source, timeout_s=120) as admin, ClusterAdmin(target, timeout_s=120) as there:
        on = Platform.of(admin, there)
        cut_over(
            on, plan, kept_in(on, plan.mirror.name, run_dir), fence=HeardFence(admin), keep_fence=False,
            verify=verify_rest(plan, source, target),
            limits=replace(LIMITS, max_fence_s=float(os.environ["MAX_FENCE_S"])),
            alarm="tests.integration.cutover_once.page", accept_ledger_writers=["User:*"],
        )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
