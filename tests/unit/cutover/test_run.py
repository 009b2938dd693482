"""What a cutover is given, and what it makes of an earlier attempt in its directory."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover import run as cutover
from airflow_mirror.cutover.context import Limits, Run
from airflow_mirror.cutover.fence import AclFence, CallableFence
from airflow_mirror.cutover.report import CutoverReport, FenceRecord, StepRecord
from airflow_mirror.errors import InputError, NotUndone
from airflow_mirror.kafka.model import Acl
from tests.unit.cutover.builders import Acls, a_plan, a_run

DENY = Acl("TOPIC", "orders", "LITERAL", "User:*", "*", "WRITE", "DENY")

NOWHERE = SimpleNamespace(config=ClientConfig({"bootstrap.servers": "localhost:1"}, "source"), role="source")


def fenced(run_dir: Path, kind: str, outcome: str = reports.RUNNING) -> CutoverReport:
    """The report of a process that was killed behind its fence."""
    intent = {"topics": ["orders"]} if kind != "acl" else {"deny": [asdict(DENY)], "allow": [], "held": []}
    report = CutoverReport("flow", a_plan("orders", "payments").hash, outcome=outcome)
    report.fence = FenceRecord(kind, intent, 10.0, kept=outcome == reports.DONE)
    report.steps = [StepRecord("fence", "done", 10.0)]
    report.save(run_dir)
    return report


def test_fence_of_another_kind_does_not_count_as_lifting_the_one_that_is_up(tmp_path: Path):
    """The operator's argument was changed between two tries: it called `off`, noted it, and left the ACLs in place."""
    acls, calls = Acls(DENY), list[str]()
    other = CallableFence(lambda: calls.append("on"), lambda: calls.append("off"))
    fenced(tmp_path, "acl")
    cutover.recover(a_run(tmp_path, other, acls))
    assert acls.acls == set() and calls == []
    left = CutoverReport.load(tmp_path)
    assert left is not None and left.outcome == reports.BACKED_OUT

    fenced(tmp_path, "callable")
    with pytest.raises(NotUndone, match=r"fence: InputError: the fence that is up is of kind 'callable'.*kind 'acl'"):
        cutover.recover(a_run(tmp_path, AclFence(acls), acls))  # type: ignore[arg-type]
    left = CutoverReport.load(tmp_path)
    assert left is not None and left.is_fenced
    for given in (None, AclFence(acls)):  # type: ignore[arg-type]
        with pytest.raises(InputError, match="Pass the fence that was used"):
            cutover.lift_leftover_fence(tmp_path, acls, acls, given)  # type: ignore[arg-type]
    assert cutover.lift_leftover_fence(tmp_path, acls, acls, other) and calls == ["off"]  # type: ignore[arg-type]


def test_finished_cutover_looks_at_the_fence_that_it_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []
    monkeypatch.setattr(cutover, "reverify", lambda run: seen.append(run.fence.kind))
    fenced(tmp_path, "acl", reports.DONE)
    cutover._run(a_run(tmp_path, CallableFence(print, print), Acls(DENY)))
    assert seen == ["acl"]


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
