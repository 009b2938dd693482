"""Retirement of a mirror that others use, or make anew, meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.console import retire
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.decision import CLOSED, OPENED, note_copy
from airflow_mirror.cutover.platform import Side
from airflow_mirror.jobs import retire as core
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.plan import ledger_store, ownership
from airflow_mirror.plan.direction import Direction, turn
from tests.unit.console.retiring import (
    PLANNED,
    Maps,
    Target,
    fenced,
    own,
    run,
)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    one = Target()

    @contextmanager
    def target_of(_: Any) -> Iterator[Target]:
        yield one

    monkeypatch.setattr(retire, "target_of", target_of)
    monkeypatch.setattr(retire, "Ledger", lambda _: one.ledger)
    monkeypatch.setattr(retire, "state_of", lambda *_, **__: one.state)
    monkeypatch.setattr(retire, "MapStore", lambda mirror: Maps(one, mirror))
    monkeypatch.setattr(Side, "end_writing", lambda _, mirror: one.end_writing(mirror))
    monkeypatch.setattr(lease, "is_anybody_writing", lambda *_: one.held)
    return one


class Anew(Target):
    """A target on which the mirror is retired by somebody else, perhaps, and made anew, right before an effect."""

    before, ended = "", True

    def is_next(self, effect: str) -> None:
        if effect == self.before:
            self.before = ""
            self.ledger.now_ms += 60_000
            if self.ended:
                self.ledger.decide(lambda values: dict.fromkeys(values) or None)
            ledger_store.keep(PLANNED, self.state, self.ledger)  # the same plan

    def end_writing(self, mirror: str) -> None:
        self.is_next("writing")
        super().end_writing(mirror)

    def forget_group_offsets(self, group: str, positions: Any, permit: Permit) -> None:
        self.is_next("groups")
        super().forget_group_offsets(group, positions, permit)

    def delete_topics(self, names: Any, permit: Permit) -> None:
        self.is_next("scratch")
        permit()
        self.log.append("delete scratch")

    def topics(self, names: Any) -> Mapping[str, Any]:
        return {n: TopicInfo(n, "x", 1, 1) for n in names if n.startswith("__")}


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("effect", ["topics", "writing", "maps", "groups", "scratch", "decisions", "state"])
def test_retirement_that_slept_takes_nothing_of_a_mirror_that_was_made_anew(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, effect: str,
    ended: bool,
) -> None:  # fmt: skip
    """Another retirement has ended it meanwhile, or none has, and it was planned again; as the same plan, even."""
    target.__class__ = Anew
    target.ended = ended  # type: ignore[attr-defined]
    monkeypatch.setattr(core, "sync_configs", lambda *_, **__: SimpleNamespace(drift=()))
    monkeypatch.setattr(core.Retirement, "_plans", [])
    give_up, write = ownership.give_up, target.state.write

    def on(name: str, do: Any) -> Any:
        return lambda *given, **named: (target.is_next(name), do(*given, **named))[1]  # type: ignore[attr-defined]

    monkeypatch.setattr(ownership, "give_up", on("topics", give_up))
    monkeypatch.setattr(Maps, "remove_all", on("maps", Maps.remove_all))
    monkeypatch.setattr(core.Retirement, "_forget", on("decisions", core.Retirement._forget))
    own(target, "m", "t")
    ledger_store.keep(PLANNED, target.state, target.ledger)
    monkeypatch.setattr(target.state, "write", on("state", write))
    target.before = effect  # type: ignore[attr-defined]
    assert run(tmp_path, "--yes") == 1 and "plan/m was decided since its retirement began" in capsys.readouterr().err
    monkeypatch.setattr(target.state, "write", write)
    assert ledger_store.last_hash(target.ledger.values(), "m") == PLANNED.hash
    assert ledger_store.plan_in(target.state.read(), "m", PLANNED.hash) == PLANNED
    at = ["topics", "writing", "maps", "groups", "scratch", "decisions", "state"].index(effect)
    assert [bool(target.maps), target.positions["airflow-mirror:m:progress"] > 0, "delete scratch" not in target.log] == [
        at <= n for n in (2, 3, 4)
    ]


@pytest.mark.parametrize("source", [False, True])
def test_armed_way_back_keeps_the_mirror_until_somebody_ends_it(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, source: bool
) -> None:
    """What says which plan copies back was removed, without a word: it could be neither taken nor armed again."""
    fenced(target, OPENED)
    one = Direction(generation=1, primary="B", by="cutover", attempt="monday", plan="h", at="noon")
    target.ledger.decide(lambda _: turn("m", one))
    before = dict(target.ledger.values()), target.state.read()
    if not source:
        assert run(tmp_path, "--yes") == 2
        said = capsys.readouterr().err
        assert "its way back was armed at noon: mirror 'm-reverse' copies to the old source. Nothing was changed" in said
        assert (target.ledger.values(), target.state.read()) == before and target.log == [] and target.maps
        return
    monkeypatch.setattr(
        retire, "lift", lambda _, there, fence: note_copy(there.ledger, "m", replace(fence, phase=CLOSED))
    )
    assert run(tmp_path, "--source", "src", "--yes") == 0
    assert "'airflow-mirror retire --target SOURCE --mirror m-reverse' removes its rest" in capsys.readouterr().out
    assert set(target.ledger.values()) == {"fence/m"}
