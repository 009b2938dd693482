"""A kept fence is swapped: nobody gets in on the way, whatever dies, and lifting gives back what was there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.cutover import decision
from airflow_mirror.cutover.decided_fence import intent_of
from airflow_mirror.cutover.decision import fence_state
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import DONE, FenceRecord, as_recorded
from airflow_mirror.cutover.swap import of_fence, swap_fence
from airflow_mirror.errors import CutoverTakenOver, FenceGone, FenceNotSwapped, FenceUnproven
from airflow_mirror.kafka.model import Acl
from airflow_mirror.kafka.permit import Permit, unfenced
from tests.builders import rule
from tests.unit.cutover.authorizer import may_write
from tests.unit.cutover.builders import Acls, GivenSide, a_run, go_up, ledger_of, open_behind, platform_in

OWN = "User:mirror"
APPLICATIONS = ("User:a", "User:b", "User:new")
BEFORE = (
    rule("orders", "WRITE", "ALLOW", "User:a"),
    rule("orders", "WRITE", "ALLOW"),
    rule("pay", "ALL", "ALLOW", "User:b", pattern="PREFIXED"),
    rule("orders", "READ", "ALLOW"),
    rule("other", "WRITE", "ALLOW"),
)


class Died(Exception):
    """The process ends here."""


class Watched(Acls):
    """A source whose applications are asked after every change whether they may write; dies before a change.

    :ivar left: changes until then.
    """

    left = 10**6

    def __init__(self, *acls: Acl) -> None:
        super().__init__(*acls, open_by_default=True)
        self.shut = False

    def _one(self, change: Any, acls: list[Acl]) -> Any:
        done: list[Acl] = []
        for acl in acls:  # brokers take them one by one
            if self.left == 0:
                raise Died
            self.left -= 1
            done += change([acl]) or []
            if self.shut:
                for who in APPLICATIONS:
                    for topic in ("orders", "payments"):
                        assert not may_write(self.acls, who, topic, open_by_default=True)
        return done

    def create_acls(self, acls: list[Acl], permit: Permit = unfenced) -> None:
        if acls:
            permit()
        self._one(super().create_acls, acls)

    def delete_acls(self, acls: list[Acl], permit: Permit = unfenced) -> list[Acl]:
        if not acls or acls[0].name == "airflow-mirror-probe":
            return super().delete_acls(acls)
        permit()
        return self._one(super().delete_acls, acls)  # type: ignore[no-any-return]


def fenced(tmp_path: Path, *acls: Acl) -> Watched:
    """A finished cutover with its fence kept."""
    source = Watched(*acls)
    run = a_run(tmp_path, AclFence(source), source)  # type: ignore[arg-type]
    run.intent = run.fence.intent(["orders", "payments"])
    go_up(run)
    run.fence.raise_(run.intent, name_of("flow", run.store.run, run.me), run.permit)
    open_behind(run)
    source.shut = True
    record = FenceRecord(kind="acl", intent=as_recorded(run.intent), requested=1.0, opened=2.0, kept=True)
    run.report.outcome, run.report.fence = DONE, record
    run.save()
    return source


def on(tmp_path: Path, source: Watched) -> Platform:
    return platform_in(tmp_path, source)


def swap(tmp_path: Path, source: Watched, **how: Any) -> list[str]:
    return swap_fence(on(tmp_path, source), "flow", OWN, **how)


def intent(tmp_path: Path, source: Watched) -> Intent:
    """What is decided to be the fence."""
    there = fence_state(ledger_of(tmp_path).values(), "flow")
    assert there is not None
    return intent_of(on(tmp_path, source).target, "flow", there)


def lift(tmp_path: Path, source: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GivenSide, "end_writing", lambda *_: None)
    source.shut = False
    assert lift_leftover_fence(on(tmp_path, source), "flow", include_retained=True)


@pytest.mark.parametrize("acls", [BEFORE, ()], ids=["with ACLs", "bare"])
def test_swapped_fence_spares_the_mirror_and_lifts_to_what_was(
    tmp_path: Path, acls: tuple[Acl, ...], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    source = fenced(tmp_path, *acls)
    lines = swap(tmp_path, source)
    for topic in ("orders", "payments"):
        assert may_write(source.acls, OWN, topic, open_by_default=True)
    decided = intent(tmp_path, source)
    assert AclFence(source).is_up(decided) and lines == decided.lines()  # type: ignore[arg-type]
    lift(tmp_path, source, monkeypatch)
    assert source.acls == set(acls)


def test_killed_before_any_change_the_swap_is_completed_or_lifted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    for number in range(100):
        for goes_on in (True, False):
            run = tmp_path / f"{number}-{goes_on}"
            source = fenced(run, *BEFORE)
            source.left = number
            try:
                swap(run, source)
            except Died:
                source.left = 10**6
                assert AclFence(source).is_up(intent(run, source))  # type: ignore[arg-type]
                if goes_on:
                    swap(run, source)
                    assert may_write(source.acls, OWN, "orders")
            else:
                assert number > 5
                return
            lift(run, source, monkeypatch)
            assert source.acls == set(BEFORE)


def test_nothing_is_changed_before_it_is_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = fenced(tmp_path, *BEFORE)
    there = set(source.acls)

    def fail(*_: object) -> None:
        raise Died

    monkeypatch.setattr(decision, "change_intent", fail)
    with pytest.raises(Died):
        swap(tmp_path, source)
    assert source.acls == there


def test_check_changes_nothing_and_says_what_would(tmp_path: Path) -> None:
    source = fenced(tmp_path, *BEFORE)
    there, decided = set(source.acls), intent(tmp_path, source)
    text = "\n".join(swap(tmp_path, source, check_only=True))
    assert "DENY WRITE on topic payments for User:b from * (so that only the mirror may write)" in text
    assert "ALLOW WRITE on topic orders for User:* from * (deleted; comes back when the fence is lifted)" in text
    assert source.acls == there and intent(tmp_path, source) == decided


def test_right_that_is_granted_on_the_way_keeps_everybody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr("airflow_mirror.cutover.fence.READ_BACK_S", 0.1)
    source = fenced(tmp_path, *BEFORE)
    asked = source.acls_by_broker

    def granted(resource_type: str) -> dict[int, list[Acl]]:
        source.acls.add(rule("orders", "WRITE", "ALLOW", "User:new"))
        return asked(resource_type)

    monkeypatch.setattr(source, "acls_by_broker", granted)
    with pytest.raises(FenceUnproven, match="would let others write"):
        swap(tmp_path, source)
    swap(tmp_path, source)
    assert rule("orders", "WRITE", "DENY", "User:new") in source.acls


def test_broker_that_hears_late_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = fenced(tmp_path, *BEFORE)
    old, looks = sorted(source.acls), 0

    def each(resource_type: str) -> dict[int, list[Acl]]:
        nonlocal looks
        looks += 1
        assert rule("orders", "WRITE", "DENY") in source.acls
        return {1: source.describe_acls(resource_type), 2: old if looks < 3 else source.describe_acls(resource_type)}

    monkeypatch.setattr(source, "acls_by_broker", each)
    swap(tmp_path, source)
    assert looks == 3


def test_fence_that_is_lifted_meanwhile_stays_lifted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = fenced(tmp_path, *BEFORE)
    asked = source.acls_by_broker

    def lifted(resource_type: str) -> dict[int, list[Acl]]:
        monkeypatch.setattr(source, "acls_by_broker", asked)
        lift(tmp_path, source, monkeypatch)
        return asked(resource_type)

    monkeypatch.setattr(source, "acls_by_broker", lifted)
    with pytest.raises(CutoverTakenOver):
        swap(tmp_path, source)
    assert source.acls == set(BEFORE)


def test_swapped_fence_with_a_new_writer_is_not_up(tmp_path: Path) -> None:
    source = fenced(tmp_path, *BEFORE)
    swap(tmp_path, source)
    source.acls.add(rule("orders", "WRITE", "ALLOW", "User:new"))
    assert not AclFence(source).is_up(intent(tmp_path, source))  # type: ignore[arg-type]
    with pytest.raises(FenceGone):
        swap(tmp_path, source)


@pytest.mark.parametrize(
    ("fence", "cause"),
    [
        ({"phase": "up"}, "no cutover of mirror 'flow' has finished"),
        ({"phase": "closing"}, "no cutover of mirror 'flow' has finished"),
        ({"kind": "callable", "name": "site.gate", "intent": {}}, "callable .site.gate."),
    ],
)
def test_only_a_kept_fence_of_acls_can_be_swapped(tmp_path: Path, fence: dict[str, Any], cause: str) -> None:
    source = fenced(tmp_path, *BEFORE)
    ledger_of(tmp_path).decide(lambda values: {"fence/flow": {**values["fence/flow"], **fence}})
    with pytest.raises(FenceNotSwapped, match=cause):
        swap(tmp_path, source)


def test_what_a_swapped_fence_has_changed_is_told_to_who_copies_the_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copied to the target, its DENY by name would keep applications out of the cluster that they were moved to."""
    source = fenced(tmp_path, *BEFORE)
    before = of_fence(on(tmp_path, source).target, "flow")
    assert {acl.operation for acl in before.added} <= {"READ", "DESCRIBE_CONFIGS"} and not before.taken
    swap(tmp_path, source)
    told = of_fence(on(tmp_path, source).target, "flow")
    assert rule("orders", "WRITE", "DENY", "User:a") in told.added
    told_there = {*source.acls}
    assert (source.acls - told.added) | told.taken >= {*BEFORE}
    assert {acl for acl in source.acls - told.added if acl.permission == "DENY"} <= {
        rule(name, "WRITE", "DENY") for name in ("orders", "payments")
    } | {acl for acl in source.acls if acl.resource_type == "GROUP"}
    lift(tmp_path, source, monkeypatch)
    behind = of_fence(on(tmp_path, source).target, "flow")
    assert not behind.added and not behind.taken
    assert {before.name, told.name, behind.name} == {next(a.name for a in told_there if a.resource_type == "GROUP")}
    assert behind != before, "who reads rules meanwhile reads them again"
