"""Retirement of a mirror that others use, or make anew, meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.common.policy import scratch_topic
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.direction import Direction, turn
from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster
from tests.unit.console.conftest import Time
from tests.unit.console.retiring import PLANNED, Target, before, is_fenced, kept_fence, own, run


@pytest.fixture
def target(dst: LedgerCluster, time: Time) -> Target:
    return Target(dst, time)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("effect", ["topics", "writing", "maps", "groups", "scratch", "decisions", "state"])
def test_retirement_that_slept_takes_nothing_of_a_mirror_that_was_made_anew(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], effect: str, ended: bool
) -> None:
    """Another retirement has ended it meanwhile, or none has, and it was planned again; as the same plan, even."""
    scratch = scratch_topic("m")
    target.topic(scratch)
    own(target, "m", "t")
    ledger_store.keep(PLANNED, target.state, target.ledger)

    def made_anew() -> None:
        target.cluster.advance(60)
        if ended:
            target.ledger.decide(lambda values: {key: None for key in target.decided()} or None)
        ledger_store.keep(PLANNED, target.state, target.ledger)  # the same plan

    with before(effect, made_anew):
        assert run(target, tmp_path, "--yes") == 1
    assert "plan/m was decided since its retirement began" in capsys.readouterr().err
    assert ledger_store.last_hash(target.ledger.values(), "m") == PLANNED.hash
    assert ledger_store.plan_in(target.state.read(), "m", PLANNED.hash) == PLANNED
    at = ["topics", "writing", "maps", "groups", "scratch", "decisions", "state"].index(effect)
    assert bool(target.ended) == (at > 1), "nobody ends the writing of the new one"
    left = [bool(target.maps), target.positions["airflow-mirror:m:progress"] > 0, scratch in target.cluster.topics]
    assert left == [at <= n for n in (2, 3, 4)]


@pytest.mark.parametrize("source", [False, True])
def test_armed_way_back_keeps_the_mirror_until_somebody_ends_it(
    target: Target, src: DrivenCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: bool
) -> None:
    """What says which plan copies back was removed, without a word: it could be neither taken nor armed again."""
    kept_fence(target, src)
    one = Direction(generation=1, primary="B", by="cutover", attempt="monday", plan="h", at="noon")
    target.ledger.decide(lambda _: turn("m", one))
    found = target.said
    if not source:
        assert run(target, tmp_path, "--yes") == 2
        said = capsys.readouterr().err
        assert "its way back was armed at noon: mirror 'm-reverse' copies to the old source. Nothing was changed" in said
        assert target.said == found and not target.changed and target.maps
        return
    assert run(target, tmp_path, "--source", "src", "--yes") == 0 and not is_fenced(src)
    assert "'airflow-mirror retire --target SOURCE --mirror m-reverse' removes its rest" in capsys.readouterr().out
    assert set(target.decided()) == {"fence/m"}
