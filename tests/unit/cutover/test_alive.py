"""Nobody lifts the fence of a cutover that is at work, on any host; one that was killed holds nobody up."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.cutover import alive
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover import run as cutover
from airflow_mirror.cutover.fence import CallableFence
from airflow_mirror.cutover.report import CutoverReport, FenceRecord
from airflow_mirror.errors import CutoverRunning, TryAgain
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.active import ActiveTail, Sign, Signs, Watch
from tests.unit.cutover.builders import a_run, go_up, kept_in, ledger_of, open_behind
from tests.unit.cutover.test_run import Away
from tests.unit.ledger.memory import MemoryState

CLUSTER: Any = SimpleNamespace(config=None, role="source")
ELSEWHERE = {"host": "w-3", "where": "w-3/1", "pid": 7, "started": 99, "job": "c0ffee"}


class Target(MemoryState):
    """The state on a target; seconds pass in no time, in each of which somebody may do something."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.clock, self.is_away = 0.0, False
        self.each_second: Callable[[], object] = lambda: None
        monkeypatch.setattr(alive, "state_of", lambda *_, **__: self)
        monkeypatch.setattr(alive, "Watch", lambda state, **times: Watch(state, lambda: self.clock, self._pause, **times))

    def read(self) -> dict[str, bytes]:
        if self.is_away:
            raise TryAgain("no broker answered")
        return super().read()

    def _pause(self, seconds: float) -> None:
        self.clock += seconds
        self.each_second()


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    return Target(monkeypatch)


def signs_of(target: Target, **values: Any) -> Signs:
    return Signs(target, ActiveTail(mirror={"name": "flow"}, plan="p", inputs="", directory="", **values))


def left_behind(run_dir: Path, by: dict[str, Any] | None) -> CutoverReport:
    """An attempt whose fence is up."""
    report = CutoverReport(mirror="flow", plan_hash="p", process=by)
    report.fence = FenceRecord(kind="callable", intent={"topics": []}, requested=1.0)
    kept_in(run_dir).save(report)
    return report


def test_fence_of_one_that_gives_signs_elsewhere_stays(target: Target, tmp_path: Path) -> None:
    signs, calls = signs_of(target, **ELSEWHERE), list[str]()
    target.each_second = lambda: signs.give("RUNNING")
    fence = CallableFence(print, lambda: calls.append("off"))
    left_behind(tmp_path, ELSEWHERE)
    with pytest.raises(CutoverRunning, match="on host w-3; it gives signs of life"):
        cutover.lift_leftover_fence(kept_in(tmp_path), CLUSTER, CLUSTER, fence, life=ledger_of(tmp_path))
    with pytest.raises(CutoverRunning, match="on host w-3"):
        cutover.recover(a_run(tmp_path, fence))
    assert calls == [] and target.clock < 5


def test_one_that_is_silent_elsewhere_is_taken_for_dead(target: Target, tmp_path: Path) -> None:
    signs_of(target, **ELSEWHERE).give("RUNNING")
    calls = list[str]()
    left_behind(tmp_path, ELSEWHERE)
    assert cutover.lift_leftover_fence(
        kept_in(tmp_path), CLUSTER, CLUSTER, CallableFence(print, lambda: calls.append("off")), life=ledger_of(tmp_path)
    )
    assert calls == ["off"] and 12 <= target.clock < 20


def test_one_that_opens_the_target_elsewhere_is_left_to_it(target: Target, tmp_path: Path) -> None:
    signs = signs_of(target, **ELSEWHERE)
    target.each_second = lambda: signs.give("RUNNING")
    report = left_behind(tmp_path, ELSEWHERE)
    owner = a_run(tmp_path, None)
    owner.report = report
    go_up(owner)
    open_behind(owner)
    with pytest.raises(CutoverRunning, match="on host w-3"):
        cutover.recover(a_run(tmp_path, CallableFence(print, print)))


def test_one_that_has_ended_here_is_not_listened_for(target: Target) -> None:
    gone = {**ELSEWHERE, "where": process.here(), "pid": os.getpid(), "started": 1}
    for by, outcome in ((gone, reports.RUNNING), (None, reports.RUNNING), (ELSEWHERE, reports.UNDO_FAILED)):
        alive.require_over(CLUSTER, CutoverReport(mirror="flow", plan_hash="p", process=by, outcome=outcome))
    signs_of(target, **ELSEWHERE).give("SUCCEEDED")
    alive.require_over(CLUSTER, CutoverReport(mirror="flow", plan_hash="p", process=ELSEWHERE))
    assert target.clock == 0


def test_one_that_is_frozen_here_is_taken_for_dead(target: Target) -> None:
    """Its process can be seen, and would be for hours."""
    here = {**ELSEWHERE, "where": process.here(), "pid": os.getppid(), "started": process.started_at(os.getppid())}
    signs_of(target, **here).give("RUNNING")
    alive.require_over(CLUSTER, CutoverReport(mirror="flow", plan_hash="p", process=here))
    assert 12 <= target.clock < 20


def test_target_that_can_not_tell_keeps_no_fence_up(
    target: Target, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left_behind(tmp_path, ELSEWHERE)
    target.is_away = True
    assert cutover.lift_leftover_fence(kept_in(tmp_path), CLUSTER, CLUSTER, CallableFence(print, print), life=Away())
    assert "no broker answered" in caplog.text
    left_behind(tmp_path, ELSEWHERE)
    with pytest.raises(TryAgain, match="no broker answered"):
        cutover.recover(a_run(tmp_path, CallableFence(print, print)))


def test_signs_are_given_until_the_end_and_say_it(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    given, first, again = list[Sign | None](), threading.Event(), threading.Event()
    write = target.write

    def heard(values: Any) -> None:
        write(values)
        given.append(Sign.decode(next(iter(values.values()))))
        if len(given) == 2:  # the one that could not be written
            again.set()
            raise TryAgain("no broker answered")
        first.set()

    monkeypatch.setattr(target, "write", heard)
    monkeypatch.setattr(alive, "SIGN_EVERY_S", 0.0)
    monkeypatch.setattr(alive, "ClusterAdmin", lambda _: nullcontext())
    report = CutoverReport(mirror="flow", plan_hash="p")
    with alive.signs_of_life(CLUSTER, report):
        assert report.process is not None and report.process["where"] == process.here()
        assert first.wait(30) and again.wait(30)
    states = [sign.state for sign in given if sign is not None]
    assert states[-1] == "SUCCEEDED" and set(states[:-1]) == {"RUNNING"} and len(states) >= 3
    alive.require_over(CLUSTER, report)
    assert target.clock == 0
