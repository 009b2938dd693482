"""Cutovers that are stopped at any request: linked once, and never both opened and lifted."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover import run as run_module
from airflow_mirror.cutover import steps
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.decision import LIFTED, OPENED, UP, begin_closing, end_lifting, fence_state
from airflow_mirror.cutover.lifting import Assurance, lift_leftover_fence
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.errors import (
    CutoverTakenOver,
    MirrorError,
    OpeningUnfinished,
)
from airflow_mirror.ledger.chain import digest
from airflow_mirror.plan.owned import owned_topics
from airflow_mirror.wire.connection import Connection
from tests.builders import shut_again
from tests.driven.cluster import DrivenCluster
from tests.unit.driven.cutting import (
    JUST_TAKEN,
    LIMITS,
    PLAN,
    Killed,
    World,
    chain_of,
    kill,
)

WAYS = ["thawed", "thawed a minute later", "killed"]  # what becomes of a cutover that was stopped


@pytest.fixture
def world(
    source: DrivenCluster, target: DrivenCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> World:  # fmt: skip
    monkeypatch.setattr(Platform, "guarded", lambda *_, **__: nullcontext(lambda: None))
    for name, seconds in {"CONFIRM_EVERY_S": 0.1, "VALID_S": 0.4, "HANDOVER_S": 0.6}.items():
        monkeypatch.setattr(lease, name, seconds)
    return World(source, target, tmp_path / "run")


@pytest.fixture
def full(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose target holds every record, after a cutover that was killed; its next one is to be watched."""
    with world.tail():
        kill(world, monkeypatch, JUST_TAKEN)
    world.calls.clear()
    return world


class Thread:
    """The owner's thread, as its requests show it: at one of them something happens before it is sent, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.at, self.then = 0, -1, cast("Callable[[], object]", None)
        self.owner = threading.get_ident()
        send = Connection._send

        def counted(connection: Connection, *arguments: Any, **named: Any) -> Any:
            if threading.get_ident() == self.owner and self.then is not None:
                self.count += 1
                if self.count == self.at:
                    self.then()
            return send(connection, *arguments, **named)

        monkeypatch.setattr(Connection, "_send", counted)


def guard_acts(world: World) -> None:
    """Let a guard find the owner dead: it has given no sign for long enough. On connections of its own."""

    def act() -> None:
        with world.platform() as on, suppress(OpeningUnfinished, CutoverTakenOver):
            fence = CallableFence(lambda: None, lambda: world.calls.append("off"))
            there = fence_state(on.target.ledger.values(), PLAN.mirror.name)
            if there is not None and there.stands:
                lift_leftover_fence(on, PLAN.mirror.name, fence, known=Assurance(listened=True))

    thread = threading.Thread(target=act)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def forget_the_opening(world: World) -> None:
    """Let the topic be cut over once more: the mirror's fence is lifted, and its topic is the mirror's again."""
    with world.ledger() as ledger:
        there = fence_state(ledger.values(), PLAN.mirror.name)
        if there is not None and there.phase == OPENED:
            end_lifting(ledger, PLAN.mirror.name, begin_closing(ledger, PLAN.mirror.name, there, "a test"))
        shut_again(ledger, "t")


def decided(world: World) -> tuple[str, bool]:
    """What is decided about the fence of this run, and whether the topic is in production."""
    with world.ledger() as ledger:
        state, owned = fence_state(ledger.values(), PLAN.mirror.name), owned_topics(ledger).get("t")
    ours = state is not None and state.run == world.run_dir.name
    return state.phase if state is not None and ours else "", owned is not None and owned.opened_by is not None


@pytest.mark.repeats
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.faults), 5])
def test_killed_at_any_request_that_links_its_report_it_is_linked_once(
    full: World, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """By the next process, which also links what it has compared once more."""
    monkeypatch.setattr(sys.modules[__name__], "LIMITS", replace(LIMITS, quiet_s=0.0, quiet_at_most_s=0.0))
    for name in ("CONFIRM_EVERY_S", "VALID_S", "HANDOVER_S"):
        monkeypatch.setattr(lease, name, 0.02)
    thread, seal, runs = Thread(monkeypatch), run_module._seal, full.run_dir.parent
    assert full.cut_over().outcome == reports.DONE

    def die() -> None:
        raise Killed

    def counted_seal(attempt: Attempt, report: CutoverReport) -> None:
        thread.count, thread.then = 0, die
        seal(attempt, report)
        thread.then = cast("Callable[[], object]", None)

    for at in count(1, step):
        forget_the_opening(full)
        full.run_dir, thread.at = runs / f"at {at}", at
        with monkeypatch.context() as killed, suppress(Killed):
            killed.setattr(run_module, "_seal", counted_seal)
            full.cut_over()
        was_killed, thread.then = thread.count >= at, cast("Callable[[], object]", None)
        digest_then = digest(json.loads((full.run_dir / "report.json").read_text()))
        again = full.cut_over()
        mine = [link for link in chain_of(full) if link.run == full.run_dir.name]
        assert [link.report for link in mine] == [digest_then, digest(json.loads(again.to_json()))], f"at request {at}"
        assert again.seal == {"links": [link.value() for link in mine]}
        if not was_killed:
            break
    assert at > 4


@pytest.mark.repeats
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.faults), 40])
@pytest.mark.parametrize("how", WAYS)
def test_owner_stopped_at_any_request_never_both_opens_and_is_lifted(
    full: World, monkeypatch: pytest.MonkeyPatch, how: str, step: int
) -> None:
    """A guard acts right there; then the owner goes on, goes on when its time is over, or never does.

    At every request among the faults, which takes a minute or three; every day at one of 40, each way at others.
    """
    monkeypatch.setattr(sys.modules[__name__], "LIMITS", replace(LIMITS, quiet_s=0.0, quiet_at_most_s=0.0))
    for name in ("CONFIRM_EVERY_S", "VALID_S", "HANDOVER_S"):
        monkeypatch.setattr(lease, name, 0.02)
    thread, outcomes, runs = Thread(monkeypatch), set[tuple[str, bool]](), full.run_dir.parent
    assert full.cut_over().outcome == reports.DONE
    for at in count(1 + WAYS.index(how) * step // len(WAYS), step):
        forget_the_opening(full)
        full.run_dir, full.calls = runs / f"{how} at {at}", []
        thread.count, thread.at = 0, at

        def stop() -> None:
            guard_acts(full)
            if how == "thawed a minute later":
                full.target.advance(61)
            if how == "killed":
                raise Killed

        thread.then = stop
        with monkeypatch.context() as killed, suppress(MirrorError, Killed):
            if how == "killed":
                killed.setattr(steps, "back_out", lambda run, *_: run.report.undone.append(reports.UndoneRecord(step="")))
            full.cut_over()
        thread.then = cast("Callable[[], object]", None)
        if thread.count < at:
            break
        guard_acts(full)
        phase, in_production = decided(full)
        is_up = full.calls[-1:] == ["on"]
        assert phase != UP and (phase == OPENED) == in_production, f"at request {at}"
        assert not in_production or is_up, f"opened and lifted, at request {at}"
        assert in_production or not is_up, f"left up, at request {at}"
        outcomes.add((phase, is_up))
    both = {(LIFTED, False), (OPENED, True)}  # it is open behind few requests of them all
    assert (outcomes >= both if step == 1 else outcomes & both) and at > 30
