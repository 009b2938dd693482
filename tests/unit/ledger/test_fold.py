"""What the decisions of a log amount to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_mirror.errors import LedgerLost
from airflow_mirror.ledger.fold import NOTHING, Decision, Fold, Position, Verdict, decode, timeless


def made(claim: str, read: Position = NOTHING, expects: dict[str, int] | None = None, **sets: Any) -> bytes:
    return Decision(claim=claim, expects=expects or dict.fromkeys(sets, 0), sets=sets, read=read).encode()


def test_a_decision_applies_at_the_versions_it_expects() -> None:
    fold = Fold()
    assert fold.apply(0, made("c1", owner="dc1")) is Verdict.APPLIED
    assert fold.apply(1, made("c2", owner="dc2")) is Verdict.REFUSED
    assert fold.apply(2, made("c3", Position(1, "c2"), {"owner": 1}, owner="dc2")) is Verdict.APPLIED
    assert (fold.values, fold.version("owner"), fold.head, fold.end) == ({"owner": "dc2"}, 2, Position(2, "c3"), 3)
    assert [fold.verdict(claim) for claim in ("c1", "c2", "c9")] == [Verdict.APPLIED, Verdict.REFUSED, None]


def test_all_keys_of_a_decision_change_or_none() -> None:
    fold = Fold()
    fold.apply(0, made("c1", fence="up"))
    assert (
        fold.apply(1, made("c2", expects={"fence": 0, "direction": 0}, fence="opened", direction="target"))
        is Verdict.REFUSED
    )
    assert fold.values == {"fence": "up"} and fold.version("direction") == 0


def test_a_key_that_is_only_compared_keeps_its_version() -> None:
    fold = Fold()
    fold.apply(0, made("c1", production=True))
    assert fold.apply(1, made("c2", expects={"production": 0, "active": 0}, active="j1")) is Verdict.REFUSED
    assert fold.apply(2, made("c3", expects={"production": 1, "active": 0}, active="j1")) is Verdict.APPLIED
    assert (fold.version("production"), fold.version("active")) == (1, 1)


@pytest.mark.parametrize("first", [Verdict.APPLIED, Verdict.REFUSED])
def test_the_first_record_of_a_claim_decides(first: Verdict) -> None:
    """A refused one must not apply when it comes again: its writer has been told."""
    fold = Fold()
    version = 0 if first is Verdict.APPLIED else 1
    assert fold.apply(0, made("c1", expects={"a": version}, a="x")) is first
    fold.apply(1, made("c2", expects={"a": 1 - version}, a="y"))
    assert fold.apply(2, made("c1", expects={"a": version}, a="x")) is Verdict.REPEATED
    assert fold.verdict("c1") is first and fold.values == {"a": "y"}


def until(claim: str, until_ms: int, **sets: Any) -> bytes:
    return Decision(claim=claim, expects=dict.fromkeys(sets, 0), sets=sets, read=NOTHING, until_ms=until_ms).encode()


@pytest.mark.parametrize(("appended_ms", "verdict"), [(4_999, Verdict.APPLIED), (5_000, Verdict.LATE)])
def test_a_decision_after_its_deadline_changes_nothing(appended_ms: int, verdict: Verdict) -> None:
    """None of its keys, and it stays so in a log to which it is brought back at another time."""
    fold, value = Fold(), until("c1", 5_000, fence="opened", topic="in production")
    assert fold.apply(0, value, appended_ms) is fold.verdict("c1") is verdict
    assert bool(fold.values) == (verdict is Verdict.APPLIED) and fold.time_ms("fence") in (0, 4_999)
    for restored_ms in (1, 9_000):
        restored, there = Fold(), timeless(value, appended_ms)
        assert restored.apply(0, there, restored_ms) is verdict and restored.values == fold.values
        assert timeless(there, restored_ms) == there
    assert timeless(b"noise", 1) == b"noise" and timeless(None, 1) is None


def test_a_deadline_that_is_no_time_is_noise() -> None:
    envelope = {"claim": "c", "expects": {"a": 0}, "sets": {"a": 1}, "read": [-1, ""], "until_ms": "soon"}
    assert decode(json.dumps(envelope).encode()) is None


def test_the_version_of_a_key_survives_its_end() -> None:
    """Else a late decision of its first life would apply in its second."""
    fold = Fold()
    fold.apply(0, made("c1", a=1))
    fold.apply(1, made("c2", expects={"a": 1}, a=None))
    assert (fold.values, fold.version("a")) == ({}, 2)
    assert fold.apply(2, made("late", expects={"a": 0}, a=1)) is Verdict.REFUSED


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        made("", a=1),
        made("c", expects={"b": 0}, a=1),
        made("c", expects={"a": 0}),
        made("c", expects={"a": -1}, a=1),
        made("c", expects={"a": True}, a=1),
        made("c", expects={"a": 1.0}, a=1),  # type: ignore[dict-item]
        made("c", Position(-2, ""), a=1),
        json.dumps({"claim": "c", "expects": {"a": 0}, "sets": {"a": 1}}).encode(),
        json.dumps({"claim": "c", "expects": {"a": 0}, "sets": {"a": 1}, "read": [0]}).encode(),
    ],
)
def test_what_is_no_decision_changes_nothing(value: bytes | None) -> None:
    fold = Fold()
    fold.apply(0, made("c1", a=1))
    assert decode(value) is None and fold.apply(1, value) is Verdict.NOISE
    assert (fold.values, fold.head, fold.end) == ({"a": 1}, Position(0, "c1"), 2)
    assert fold.apply(2, made("c2", fold.head, {"a": 1}, a=2)) is Verdict.APPLIED


def test_fields_of_a_later_version_are_left_alone() -> None:
    """The envelope's four fields never change; what else is there is for those who know it."""
    envelope = json.loads(made("c1", a={"v": 7, "new": [1]})) | {"later": True}
    fold = Fold()
    assert fold.apply(0, json.dumps(envelope).encode()) is Verdict.APPLIED
    assert fold.values == {"a": {"v": 7, "new": [1]}}


@pytest.mark.parametrize("read", [Position(0, "other"), Position(1, "c1"), Position(7, "c7"), Position(2, "c3")])
def test_who_has_read_what_is_not_there_proves_a_loss(read: Position) -> None:
    """The log was truncated, or deleted and created again: versions of another life must not decide."""
    fold = Fold()
    fold.apply(0, made("c1", a=1))
    fold.apply(1, b"noise")
    with pytest.raises(LedgerLost, match=f"had read decision {read.claim} at offset {read.offset}, which is not there"):
        fold.apply(2, made("c3", read, {"a": 1}, a=2))
    assert (fold.values, fold.end) == ({"a": 1}, 2)


def test_a_hole_in_the_log_is_passed() -> None:
    fold = Fold()
    fold.apply(0, made("c1", a=1))
    assert fold.apply(5, made("c2", Position(0, "c1"), {"a": 1}, a=2)) is Verdict.APPLIED
    with pytest.raises(ValueError, match="offset 5 was read already"):
        fold.apply(5, made("c3", a=3))


def test_a_new_decision_is_based_on_what_was_read() -> None:
    fold = Fold()
    fold.apply(0, made("c1", a=1))
    decision = fold.decision({"a": 2, "b": 1}, {"c": 0})
    assert (decision.expects, decision.read) == ({"a": 1, "b": 0, "c": 0}, Position(0, "c1"))
    assert decode(decision.encode()) == decision and fold.can_still_apply(decision)
    fold.apply(1, made("c2", expects={"c": 0}, c=1))
    assert not fold.can_still_apply(decision)
