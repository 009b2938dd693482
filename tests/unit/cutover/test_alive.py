"""Nobody lifts the fence of a cutover that is at work, on any host; one that was killed holds nobody up."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.cutover import heartbeat
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.decision import FenceState
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.platform import Side
from airflow_mirror.cutover.report import CutoverReport, FenceRecord
from airflow_mirror.cutover.undoing import recover
from airflow_mirror.errors import CutoverRunning, MayBeOpen, RequestRefused, TryAgain
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat, Sign, Watch
from tests.unit.cutover.builders import Acls, a_run, go_up, open_behind, platform_in
from tests.unit.cutover.running import Away
from tests.unit.ledger.memory import MemoryState

CLUSTER: Any = SimpleNamespace(config=None, role="source")
ELSEWHERE = {"host": "w-3", "where": "w-3/1", "pid": 7, "started": 99, "job": "c0ffee"}


class Target(MemoryState):
    """The state on a target; seconds pass in no time, in each of which somebody may do something."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.clock, self.is_away = 0.0, False
        self.each_second: Callable[[], object] = lambda: None
        monkeypatch.setattr(heartbeat, "state_of", lambda *_, **__: self)
        monkeypatch.setattr(Side, "watch_cutover", lambda *_: self.watch())

    def read(self) -> dict[str, bytes]:
        if self.is_away:
            raise TryAgain("no broker answered")
        return super().read()

    def watch(self) -> Watch:
        return Watch(self, lambda: self.clock, self._pause, heartbeat.SILENCE_S, heartbeat.SIGN_EVERY_S)

    def require_over(self, by: dict[str, Any]) -> None:
        heartbeat.require_over(self.watch(), "flow", replace(A_FENCE, process=by))

    def _pause(self, seconds: float) -> None:
        self.clock += seconds
        self.each_second()


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    return Target(monkeypatch)


A_FENCE = FenceState(run="monday", attempt=1, id="x", plan="p", revision="p", owner="x", max_fence_s=60.0)


def lifts(run_dir: Path, fence: Any, ledger: Any = None, **how: Any) -> list[str]:
    on = platform_in(run_dir, None, None, ledger)
    return lift_leftover_fence(on, "flow", fence, runs=run_dir.parent, run=run_dir.name, **how)


def signs_of(target: Target, **values: Any) -> Heartbeat:
    return Heartbeat(target, ActiveTail(mirror={"name": "flow"}, plan="p", inputs="", directory="", **values))


def left_behind(run_dir: Path, by: dict[str, Any] | None) -> Attempt:
    """An attempt whose fence is up."""
    owner = a_run(run_dir, CallableFence(print, print))
    owner.report.process = by
    owner.report.fence = FenceRecord(kind="callable", intent={"topics": ["orders", "payments"]}, requested=1.0)
    go_up(owner)
    owner.save()
    return owner


def test_fence_of_one_that_gives_signs_elsewhere_stays(target: Target, tmp_path: Path) -> None:
    signs, calls = signs_of(target, **ELSEWHERE), list[str]()
    target.each_second = lambda: signs.give("RUNNING")
    fence = CallableFence(print, lambda: calls.append("off"))
    left_behind(tmp_path, ELSEWHERE)
    with pytest.raises(CutoverRunning, match="on host w-3; it gives signs of life"):
        lifts(tmp_path, fence)
    with pytest.raises(CutoverRunning, match="on host w-3"):
        recover(a_run(tmp_path, fence))
    assert calls == [] and target.clock < 5


def test_one_that_is_silent_elsewhere_is_taken_for_dead(target: Target, tmp_path: Path) -> None:
    signs_of(target, **ELSEWHERE).give("RUNNING")
    calls = list[str]()
    left_behind(tmp_path, ELSEWHERE)
    assert lifts(tmp_path, CallableFence(print, lambda: calls.append("off")))
    assert calls == ["off"] and 12 <= target.clock < 20


def test_one_that_opens_the_target_elsewhere_is_left_to_it(target: Target, tmp_path: Path) -> None:
    signs = signs_of(target, **ELSEWHERE)
    target.each_second = lambda: signs.give("RUNNING")
    open_behind(left_behind(tmp_path, ELSEWHERE))
    with pytest.raises(CutoverRunning, match="on host w-3"):
        recover(a_run(tmp_path, CallableFence(print, print)))


def test_one_that_has_ended_here_is_not_listened_for(target: Target) -> None:
    gone = {**ELSEWHERE, "where": process.here(), "pid": os.getpid(), "started": 1}
    for by in (gone, {}):
        target.require_over(by)
    signs_of(target, **ELSEWHERE).give("SUCCEEDED")
    target.require_over(ELSEWHERE)
    assert target.clock == 0


def test_one_that_is_frozen_here_is_taken_for_dead(target: Target) -> None:
    """Its process can be seen, and would be for hours."""
    here = {**ELSEWHERE, "where": process.here(), "pid": os.getppid(), "started": process.started_at(os.getppid())}
    signs_of(target, **here).give("RUNNING")
    target.require_over(here)
    assert 12 <= target.clock < 20


def test_target_that_can_not_tell_keeps_no_fence_up_that_a_person_answers_for(
    target: Target, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a source without an authorizer no rules are asked for."""

    def no_authorizer(*_: object, **__: object) -> None:
        raise RequestRefused("source cluster: describe ACLs", 54, "SECURITY_DISABLED", "no authorizer")

    left_behind(tmp_path, ELSEWHERE)
    target.is_away = True
    monkeypatch.setattr(Acls, "describe_acls", no_authorizer)
    with pytest.raises(MayBeOpen, match="nothing there names a callable's attempt"):
        lifts(tmp_path, CallableFence(print, print), Away())
    assert lifts(tmp_path, CallableFence(print, print), Away(), include_retained=True)
    assert "no broker answered" in caplog.text
    with pytest.raises(TryAgain, match="no broker answered"):
        recover(a_run(tmp_path, CallableFence(print, print)))


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
    monkeypatch.setattr(heartbeat, "SIGN_EVERY_S", 0.0)
    monkeypatch.setattr(heartbeat, "ClusterAdmin", lambda _: nullcontext())
    report = CutoverReport(mirror="flow", plan_hash="p")
    with heartbeat.signs_of_life(CLUSTER, report):
        assert report.process is not None and report.process["where"] == process.here()
        assert first.wait(30) and again.wait(30)
    states = [sign.state for sign in given if sign is not None]
    assert states[-1] == "SUCCEEDED" and set(states[:-1]) == {"RUNNING"} and len(states) >= 3
    target.require_over(report.process)
    assert target.clock == 0
