"""A walk that another one overtakes, or whose rules come late."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.cutover import other_fences, steps
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.decision import (
    CLOSED,
    LIFTED,
    OPENED,
    FenceState,
    fence_state,
)
from airflow_mirror.cutover.decision import go_up as decide_up
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.lifting import Assurance, lift_leftover_fence
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.steps import STEPS, walk
from airflow_mirror.cutover.undoing import back_out, recover
from airflow_mirror.errors import (
    ClusterUnreachable,
    CutoverCancelled,
    CutoverTakenOver,
    FencedByAnother,
    FenceNotLifted,
    InputError,
    MayBeOpen,
    OpeningUnfinished,
)
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.kinds import in_pieces
from airflow_mirror.ledger.records import LAST_PLAN
from tests.unit.cutover.builders import (
    Acls,
    a_plan,
    go_up,
    ledger_of,
    open_behind,
    platform_in,
    target_of,
)
from tests.unit.cutover.running import Away
from tests.unit.cutover.walking import (
    Recorder,
    Target,
    a_run,
    lift_elsewhere,
    lifts,
    raising,
)


def test_owner_leaves_another_attempts_fence_alone(tmp_path: Path) -> None:
    """It was frozen for so long that the next cutover of the mirror is at work."""
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)

    def wake(attempt: Attempt) -> dict[str, Any]:
        lift_elsewhere(tmp_path)
        after = a_run(tmp_path, fence)
        after.report.attempt = 2
        go_up(after)
        raise RuntimeError("the fence leaks")

    with pytest.raises(CutoverTakenOver, match="opens and undoes nothing"):
        walk(run, [replace(step, do=wake) if step.name == "drain" else step for step in fence.steps()])
    assert "lift" not in fence.calls and run.report.undone == []


class FrozenBefore(AclFence):
    """A fence whose owner stands still before its request, until something else has happened."""

    def __init__(self, source: Acls, meanwhile: Callable[[], object]) -> None:
        super().__init__(source, open_by_default=False)  # type: ignore[arg-type]
        self._meanwhile = meanwhile

    def claim(self, name: str, permit: Permit) -> None:
        """Its name comes with its rules."""

    def raise_(self, intent: Intent, name: str, permit: Permit) -> None:
        permit()
        self._meanwhile()
        super().raise_(intent, name, unfenced)  # as a request that had been on its way already


@pytest.fixture
def nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """No log: nothing is asked of leaders before a fence."""
    monkeypatch.setattr(steps, "look_before", lambda _: {"by": "acls", "why": ""})
    monkeypatch.setattr(steps, "look_for_unseen", lambda _: "")


@pytest.mark.usefixtures("nobody_to_ask")
@pytest.mark.parametrize("next_ends", ["lifted", "kept", "not kept"])
def test_fence_that_is_raised_after_it_was_lifted_is_taken_back(tmp_path: Path, next_ends: str) -> None:
    """Its owner was frozen before its request; a guard has lifted it, and the next attempt came and went."""
    source = Acls()

    def meanwhile() -> None:
        lift_elsewhere(tmp_path)
        after = a_run(tmp_path, AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
        after.report.attempt, seconds[:] = 2, [after]
        walk(after, STEPS[:1])
        if next_ends == "lifted":
            back_out(after)
            return
        open_behind(after)
        if next_ends == "not kept":
            assert after.up is not None
            raised = Raised.of(after.on, "flow", after.up, after.fence, after.report)
            assert raised.close().phase == CLOSED

    seconds = list[Attempt]()
    run = a_run(tmp_path, FrozenBefore(source, meanwhile), source)
    with pytest.raises(CutoverTakenOver):
        walk(run)
    denied = sorted(a.name for a in source.acls if a.resource_type == "TOPIC")
    assert denied == (["orders", "payments"] if next_ends == "kept" else [])
    named = AclFence(source).standing("flow", "")  # type: ignore[arg-type]
    assert named == ({name_of("flow", run.store.run, seconds[0].me): False} if denied else {})


@pytest.mark.usefixtures("nobody_to_ask")
def test_what_is_raised_while_somebody_lifts_it_is_taken_back(tmp_path: Path) -> None:
    """Who lifts it had seen that all was gone, and had groups to restore yet; it would not have looked again."""
    source = Acls()
    run = a_run(tmp_path, FrozenBefore(source, lambda: lift_elsewhere(tmp_path, cleared=False)), source)
    with pytest.raises(CutoverTakenOver):
        steps.raise_fence(run)
    assert source.acls == set()


@pytest.mark.usefixtures("nobody_to_ask")
def test_what_was_raised_in_vain_is_another_mirrors_fence_by_now(tmp_path: Path) -> None:
    """Both fence the same topics, by the same rules: the other one's target is open, and its old source would be, too."""
    source, named = Acls(), name_of("other", "r1", "1")

    def meanwhile() -> None:
        lift_elsewhere(tmp_path)
        other = AclFence(source, open_by_default=False)  # type: ignore[arg-type]
        other.raise_(other.intent(["orders", "payments"]), named, unfenced)

    run = a_run(tmp_path, FrozenBefore(source, meanwhile), source)
    with pytest.raises(CutoverTakenOver):
        walk(run)
    assert sorted(a.name for a in source.acls if a.permission == "DENY") == [named, "orders", "payments"]


class NamedMeanwhile(AclFence):
    """A fence beside which another mirror's is named, once it was looked for others."""

    def __init__(self, source: Acls, other: str) -> None:
        super().__init__(source, open_by_default=False)  # type: ignore[arg-type]
        self._other = other

    def claim(self, name: str, permit: Permit) -> None:
        AclFence(self._source).claim(self._other, unfenced)
        super().claim(name, permit)


@pytest.mark.usefixtures("nobody_to_ask")
@pytest.mark.parametrize("raised", [False, True])
@pytest.mark.parametrize("other_name", ["other:r1:1", "flow:r1:1@another target"])
def test_of_two_mirrors_that_fence_in_the_same_second_one_steps_back(
    tmp_path: Path, raised: bool, other_name: str
) -> None:
    """Their rules are the same: the first to lift would open the source of both. The other one's are left alone."""
    source, named = Acls(), f"airflow-mirror.fence.{other_name}"
    other = AclFence(source, open_by_default=False)  # type: ignore[arg-type]
    run = a_run(tmp_path, NamedMeanwhile(source, named), source)
    looked = run.fence.intent

    def meanwhile(topics: Any) -> Intent:
        intent = looked(topics)
        if raised:  # by the time at which we look for it: rules that we have not seen
            run.require_guard = lambda: other.raise_(intent, named, unfenced)  # type: ignore[misc]
        return intent

    run.fence.intent = meanwhile  # type: ignore[method-assign]
    with pytest.raises(FencedByAnother, match=other_name):
        walk(run)
    assert sorted({a.name for a in source.acls}) == sorted([named, *(["orders", "payments"] if raised else [])])
    there = fence_state(run.ledger.values(), "flow")
    assert there is not None and there.phase == LIFTED and not run.report.is_fenced


@pytest.mark.usefixtures("nobody_to_ask")
def test_name_that_comes_after_it_was_lifted_is_taken_back(tmp_path: Path) -> None:
    """Its owner was frozen before the bytes of its name: left there, it would refuse each later cutover of the mirror."""
    source = Acls()
    fence = AclFence(source, open_by_default=False)  # type: ignore[arg-type]

    def claim(name: str, permit: Permit) -> None:
        lift_elsewhere(tmp_path)
        AclFence.claim(fence, name, unfenced)

    fence.claim = claim  # type: ignore[method-assign]
    with pytest.raises(CutoverTakenOver):
        walk(a_run(tmp_path, fence, source))
    assert source.acls == set()


@pytest.mark.usefixtures("nobody_to_ask")
@pytest.mark.parametrize("other", ["other:by:hand:1", "a-name-of-somebody"])
def test_whose_name_tells_no_attempt_may_fence_any_topic(tmp_path: Path, other: str) -> None:
    """The run of a cutover by hand is whatever a person called it; and anybody may name a group as fences are named."""
    source = Acls()
    run = a_run(tmp_path, NamedMeanwhile(source, f"airflow-mirror.fence.{other}"), source)
    with pytest.raises(FencedByAnother, match=other):
        walk(run)
    assert [a.name for a in source.acls] == [f"airflow-mirror.fence.{other}"]


@pytest.mark.usefixtures("nobody_to_ask")
def test_cutover_that_is_stopped_while_it_waits_for_anothers_rules_never_fences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's decision is in another target's ledger: it may be between its name and its rules."""
    monkeypatch.setattr(other_fences, "READ_BACK_S", 0.1)
    monkeypatch.setattr(other_fences, "_ON_THE_WAY_S", 0.1)
    source, named = Acls(), name_of("other", "r1", "1")
    fence = AclFence(source, open_by_default=False)  # type: ignore[arg-type]
    fence.claim(named, unfenced)
    run, looked = a_run(tmp_path, fence, source), fence.require_no_other

    def look(*given: Any) -> list[str]:
        run.stop.set()
        return looked(*given)

    fence.require_no_other = look  # type: ignore[method-assign]
    with pytest.raises(CutoverCancelled):
        walk(run)
    assert fence_state(run.ledger.values(), "flow") is None and [a.name for a in source.acls] == [named]


@pytest.mark.usefixtures("nobody_to_ask")
@pytest.mark.parametrize("dies", ["before its name", "behind its name"])
def test_who_lifts_one_that_died_before_its_rules_leaves_another_mirrors_alone(tmp_path: Path, dies: str) -> None:
    """It was decided to be up, and had not looked for others by its name: the rules there are of who came meanwhile."""
    source, named = Acls(), name_of("other", "r1", "1")
    other, fence = AclFence(source, open_by_default=False), AclFence(source, open_by_default=False)  # type: ignore[arg-type]

    def claim(name: str, permit: Permit) -> None:
        if dies == "behind its name":
            AclFence.claim(fence, name, permit)
        other.raise_(other.intent(["orders", "payments"]), named, unfenced)
        raise KeyboardInterrupt

    fence.claim = claim  # type: ignore[method-assign]
    run = a_run(tmp_path, fence, source)
    with pytest.MonkeyPatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(steps, "back_out", lambda *_, **__: None)
        walk(run)
    lifts(tmp_path, source=source, known=Assurance(listened=True))
    assert sorted(a.name for a in source.acls) == [named, "orders", "payments"]
    there = fence_state(run.ledger.values(), "flow")
    assert there is not None and there.phase == LIFTED


@pytest.mark.usefixtures("nobody_to_ask")
def test_who_lifts_undoes_what_its_owner_has_decided_since_it_was_read(tmp_path: Path) -> None:
    """Its owner was frozen behind its name; it thaws when somebody has read it, raises its rules, and dies."""
    source = Acls()
    fence = AclFence(source, open_by_default=False)  # type: ignore[arg-type]
    run = a_run(tmp_path, fence, source)
    read: list[Raised] = []

    def claim(name: str, permit: Permit) -> None:
        AclFence.claim(fence, name, permit)
        there = fence_state(ledger_of(tmp_path).values(), "flow")
        assert there is not None
        read.append(Raised.of(platform_in(tmp_path, source, Target(None)), "flow", there, None, None))

    fence.claim = claim  # type: ignore[method-assign]
    steps.raise_fence(run)
    assert fence.is_up(run.intent)
    assert read[0].begin("a guard") and read[0].undo()
    assert source.acls == set()


@pytest.mark.usefixtures("nobody_to_ask")
def test_mirrors_of_other_topics_fence_in_the_same_second(tmp_path: Path) -> None:
    """Two waves: the ledger knows what the other one's fence is about."""
    source, plan = Acls(), a_plan("audit")
    target_of(tmp_path).write(in_pieces(f"plan/other/{plan.hash}", plan.to_json().encode()))
    run = a_run(tmp_path, NamedMeanwhile(source, name_of("other", "r1", "1")), source)
    up = FenceState(run="r1", attempt=1, id="1", plan=plan.hash, revision=plan.revision, owner="o", max_fence_s=60.0)
    run.ledger.decide(lambda _: LAST_PLAN.put({"hash": plan.hash}, "other"))
    decide_up(run.ledger, "other", up, None, None)
    steps.raise_fence(run)
    assert run.fence.is_up(run.intent)


@pytest.mark.usefixtures("nobody_to_ask")
def test_attempt_that_never_was_up_leaves_anothers_opening_alone(tmp_path: Path) -> None:
    """Its process was killed between its report and its decision. The next run has opened the target since."""
    source = Acls()
    dead = a_run(tmp_path / "r2", AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    other = a_run(tmp_path / "r1", AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    dead.on.target.ledger = other.ledger  # type: ignore[misc]
    with pytest.MonkeyPatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(steps, "back_out", lambda *_, **__: None)
        dead.require_guard = raising(KeyboardInterrupt())
        walk(dead)
    assert dead.store.load() is None or dead.store.load() == dead.store.on_disk(), "the target has no report of it"
    walk(other, [*STEPS[:1], replace(STEPS[1], do=lambda _: {})])
    open_behind(other)
    other.report.outcome = reports.RUNNING
    other.save()
    with pytest.raises(OpeningUnfinished):
        lifts(tmp_path / "r1", source=source)
    assert lifts(tmp_path / "r1", source=source, run="r2") == []
    recover(dead)
    there = fence_state(other.ledger.values(), "flow")
    assert there is not None and (there.run, there.phase) == ("r1", OPENED)
    assert sorted(a.name for a in source.acls if a.resource_type == "TOPIC") == ["orders", "payments"]


@pytest.mark.parametrize("opened", [False, True])
def test_who_lifts_loses_to_an_opening_and_wins_before_it(tmp_path: Path, opened: bool) -> None:
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)
    with pytest.MonkeyPatch.context() as killed, pytest.raises(FenceNotLifted):
        killed.setattr(steps, "back_out", lambda *_, **__: run.report.undone.append(reports.UndoneRecord(step="")))
        broken = Recorder(tmp_path, "drain")
        walk(run, broken.steps())
    if opened:
        open_behind(run)
        with pytest.raises(OpeningUnfinished, match="run the cutover again"):
            lifts(tmp_path, fence)
        assert fence.calls == ["raise"]
        return
    assert lifts(tmp_path, fence, known=Assurance(listened=True))
    assert fence.calls == ["raise", "lift"]
    with pytest.raises(CutoverTakenOver):
        open_behind(run)


@pytest.mark.usefixtures("nobody_to_ask")
@pytest.mark.parametrize("announced", [False, True])
def test_source_says_whose_fence_it_is_while_the_ledger_is_away(tmp_path: Path, announced: bool) -> None:
    """Where an opening is announced the target may be open; where another attempt is named the rules are that one's."""
    source = Acls()
    run = a_run(tmp_path, AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    walk(run, [*STEPS[:1], replace(STEPS[1], do=lambda _: {})])
    run.report.outcome = reports.RUNNING
    run.save()
    name = name_of("flow", run.store.run, run.me)
    if announced:
        AclFence(source).announce(name, unfenced)  # type: ignore[arg-type]
        with pytest.raises(MayBeOpen, match="about to be opened"):
            lifts(tmp_path, source=source, ledger=Away(), run=run.store.run)
        assert AclFence(source).standing("flow", "") == {name: True}  # type: ignore[arg-type]
        assert lifts(tmp_path, source=source, ledger=Away(), run=run.store.run, include_retained=True)
        assert not source.acls, "the name goes with the fence"
        return
    other = name_of("flow", "another", "1")
    AclFence(source).announce(other, unfenced)  # type: ignore[arg-type]
    with pytest.raises(MayBeOpen, match="another attempt"):
        lifts(tmp_path, source=source, ledger=Away(), run=run.store.run)
    AclFence(source).forget(other, unfenced)  # type: ignore[arg-type]
    assert lifts(tmp_path, source=source, ledger=Away(), run=run.store.run) and not source.acls


@pytest.mark.usefixtures("nobody_to_ask")
@pytest.mark.parametrize("others", [set(), {"airflow-mirror.fence.flow:r1:1@another target"}])
def test_report_of_a_fence_that_is_long_gone_is_no_fault_once_the_one_that_stands_is_lifted(
    tmp_path: Path, others: set[str]
) -> None:  # fmt: skip
    """Its target was told that it was lifted, and this host was not. A mirror of the same name may go elsewhere."""
    source, run_dir = Acls(), tmp_path / "sunday"
    run = a_run(run_dir, AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    walk(run, [*STEPS[:1], replace(STEPS[1], do=lambda _: {})])
    run.report.outcome = reports.RUNNING
    run.save()
    shutil.copytree(run_dir, tmp_path / "saturday", ignore=shutil.ignore_patterns("lock"))
    on = platform_in(run_dir, source, None, Away())
    for name in others:
        AclFence(source).claim(name, unfenced)  # type: ignore[arg-type]
    assert lift_leftover_fence(on, "flow", runs=tmp_path) and {acl.name for acl in source.acls} == others


@pytest.mark.usefixtures("nobody_to_ask")
def test_fence_is_lifted_also_where_no_broker_of_the_target_has_ever_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that begins then has no connections yet, and what reads the reports there makes some."""
    source, run_dir = Acls(), tmp_path / "sunday"
    run = a_run(run_dir, AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    walk(run, [*STEPS[:1], replace(STEPS[1], do=lambda _: {})])
    run.report.outcome = reports.RUNNING
    run.save()
    on = platform_in(run_dir, source, None, Away())

    def connects(_: str) -> Any:
        raise ClusterUnreachable("target", "b:9092", "connection refused")

    monkeypatch.setattr(on.target, "reports", connects)
    assert lift_leftover_fence(on, "flow", runs=tmp_path) and not source.acls


@pytest.mark.usefixtures("nobody_to_ask")
@pytest.mark.parametrize("content", [b"[1", b"\xff\xfe", None], ids=["cut", "no-text", "directory"])
def test_report_that_can_not_be_read_keeps_no_other_fence_up(tmp_path: Path, content: bytes | None) -> None:
    """Of a run long ago, say: it is named, once producers are in again."""
    source, run_dir, broken = Acls(), tmp_path / "sunday", tmp_path / "monday" / "report.json"
    run = a_run(run_dir, AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    walk(run, [*STEPS[:1], replace(STEPS[1], do=lambda _: {})])
    run.report.outcome = reports.RUNNING
    run.save()
    broken.parent.mkdir()
    broken.mkdir() if content is None else broken.write_bytes(content)
    on = platform_in(run_dir, source, None, Away())
    with pytest.raises(InputError, match=f"{broken} is not a cutover report: .*Restore it"):
        lift_leftover_fence(on, "flow", runs=tmp_path)
    assert not source.acls


@pytest.mark.usefixtures("nobody_to_ask")
def test_no_fence_that_may_be_open_is_lifted_without_a_ledger_of_whatever_kind(tmp_path: Path) -> None:
    source, run_dir, off = Acls(), tmp_path / "sunday", list[str]()
    run = a_run(run_dir, AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    walk(run, [*STEPS[:1], replace(STEPS[1], do=lambda _: {})])
    run.report.outcome = reports.RUNNING
    run.save()
    AclFence(source).announce(name_of("flow", run.store.run, run.me), unfenced)  # type: ignore[arg-type]
    shutil.copytree(run_dir, tmp_path / "saturday", ignore=shutil.ignore_patterns("lock"))
    other = CutoverReport.load(tmp_path / "saturday")
    assert other is not None and other.fence is not None
    other.fence.kind = "callable"
    ReportStore(None, "flow", "saturday", tmp_path / "saturday").save_here(other)
    on = platform_in(run_dir, source, None, Away())
    fence = CallableFence(print, lambda: off.append("off"))
    for name, why in {"saturday": "nothing there names", run_dir.name: "about to be opened"}.items():
        with pytest.raises(MayBeOpen, match=why):
            lift_leftover_fence(on, "flow", fence, runs=tmp_path, run=name)
    assert off == [] and AclFence(source).is_up(run.intent)  # type: ignore[arg-type]
    assert lift_leftover_fence(on, "flow", fence, runs=tmp_path, include_retained=True) and not source.acls
    assert off == ["off"]
