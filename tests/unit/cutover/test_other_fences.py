"""Fences of two mirrors on the same topics: their rules are the same, and each is lifted with the right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.cutover import decision
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.decision import LIFTED, FenceState, fence_state
from airflow_mirror.cutover.fence import AclFence, name_of
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.errors import ClusterUnreachable
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.kinds import in_pieces
from tests.builders import rule
from tests.unit.cutover.builders import Acls, a_plan, a_run, go_up, platform_in, target_of

BOTH = {rule("orders", "WRITE", "DENY"), rule("payments", "WRITE", "DENY")}
THEIRS = name_of("other", "r1", "1")


def up(tmp_path: Path, source: Acls) -> Attempt:
    """An attempt that has decided that its fence is up, and died before its name was at the source."""
    run = a_run(tmp_path, AclFence(source), source)  # type: ignore[arg-type]
    go_up(run)
    return run


def name(run: Attempt) -> str:
    return name_of(run.mirror.name, run.kept.run, run.me)


def raises(source: Acls, *topics: str) -> AclFence:
    """Another mirror raises its fence, which it has decided in the ledger of some target."""
    fence = AclFence(source)  # type: ignore[arg-type]
    fence.claim(THEIRS, unfenced)
    fence.raise_(Intent(topics=topics), THEIRS, unfenced)
    return fence


def decides(run: Attempt, tmp_path: Path, *topics: str) -> FenceState:
    """It decided that in the ledger that is ours, too."""
    plan = a_plan(*topics)
    target_of(tmp_path).write(in_pieces(f"plan/other/{plan.hash}", plan.to_json().encode()))
    state = FenceState(run="r1", attempt=1, id="1", plan=plan.hash, revision=plan.revision, owner="o", max_fence_s=60.0)
    decision.go_up(run.life, "other", state, None, None)
    return state


def lift(tmp_path: Path, run: Attempt, source: Acls) -> None:
    """Lift the mirror's fence, as whoever finds it does; it is decided then that it is."""
    lift_leftover_fence(platform_in(tmp_path, source), "flow")
    there = fence_state(run.life.values(), "flow")
    assert there is not None and there.phase == LIFTED
    assert AclFence(source).standing("flow") == {}, "its name is gone"  # type: ignore[arg-type]


@pytest.mark.parametrize("is_ours", [False, True])
def test_rules_of_another_mirror_stay_when_an_attempt_had_none_yet(tmp_path: Path, is_ours: bool) -> None:
    """It died between its decision and its name. The other mirror saw nobody there, whatever its ledger is."""
    source = Acls()
    run = up(tmp_path, source)
    raises(source, "orders", "payments")
    if is_ours:
        decides(run, tmp_path, "orders", "payments")
    lift(tmp_path, run, source)
    assert source.acls >= BOTH


@pytest.mark.parametrize(("begins", "left"), [(False, {"orders"}), (True, set())])
def test_of_two_that_died_behind_their_names_the_last_lifts(tmp_path: Path, begins: bool, left: set[str]) -> None:
    """Only the ledger tells whose rules they are then; who is being lifted itself needs them no more."""
    source = Acls()
    run = up(tmp_path, source)
    AclFence(source).claim(name(run), unfenced)  # type: ignore[arg-type]
    fence, state = raises(source, "orders"), decides(run, tmp_path, "orders")
    source.acls |= BOTH
    if begins:
        assert decision.begin_lifting(run.life, "other", state, "somebody") is not None
    lift(tmp_path, run, source)
    assert {acl.name for acl in source.acls & BOTH} == left
    fence.lift(Intent(topics=("orders",)), THEIRS, unfenced)
    assert source.acls == set()


def test_fences_of_other_targets_keep_no_fence_up(tmp_path: Path) -> None:
    """They stand for months behind targets that were opened, and may be about any topics."""
    source = Acls()
    run = up(tmp_path, source)
    raises(source, "audit")
    fence = AclFence(source)  # type: ignore[arg-type]
    fence.claim(name(run), unfenced)
    fence.raise_(run.intent, name(run), unfenced)
    lift(tmp_path, run, source)
    assert not source.acls & BOTH and rule("audit", "WRITE", "DENY") in source.acls


def test_a_ledger_that_is_away_keeps_no_fence_up(tmp_path: Path) -> None:
    """A guard lifts without it, and asks the source alone."""
    source = Acls()
    run = up(tmp_path, source)
    fence = AclFence(source)  # type: ignore[arg-type]
    fence.claim(name(run), unfenced)
    fence.raise_(run.intent, name(run), unfenced)
    raises(source, "audit")

    class Away:
        def values(self) -> None:
            raise ClusterUnreachable("target", "nowhere:1", "no answer")

    assert run.up is not None
    on = platform_in(tmp_path, source, ledger=Away())
    raised = Raised(on=on, mirror="flow", state=run.up, fence=fence, intent=run.intent, report=None)
    raised.lift_rules(unfenced)
    assert not source.acls & BOTH
