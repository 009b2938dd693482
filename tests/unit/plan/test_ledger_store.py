"""Plans on the target: whole or not at all, the last one decided, old ones removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.errors import InputError, LedgerNewer, MissingRight, PlanNotKept, PlanUnreadable, TryAgain
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger import state
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.plan import Plan, ledger_store
from airflow_mirror.plan.ledger_store import dag_of, keep, last_hash, plan_in
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.plan.test_model import a_plan


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


@pytest.fixture
def plans(small_records: Callable[[int], None]) -> MemoryState:
    small_records(500)
    return MemoryState()


@pytest.fixture
def stored(
    ledger: MemoryLedger, plans: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Any], MemoryLedger]:  # fmt: skip
    """Returns the ledger of a target that holds something else in place of its last plan."""
    monkeypatch.setattr(state, "state_of", lambda *_, **__: plans)

    def put(other: Any) -> MemoryLedger:
        plan = a_plan()
        keep(plan, plans, ledger)
        plans.write(dict.fromkeys(plans.read()))
        plans.write(PLAN.pieces(json.dumps(other), plan.mirror.name, plan.hash))
        return ledger

    return put


def found(plans: MemoryState, plan: Plan) -> Plan:
    return plan_in(plans.read(), plan.mirror.name, plan.hash)


def test_a_plan_in_many_pieces_is_the_same_again(ledger: MemoryLedger, plans: MemoryState) -> None:
    first, second = a_plan(), a_plan(end=60001)
    for plan in (first, second, first):
        keep(plan, plans, ledger)
        assert last_hash(ledger.values(), plan.mirror.name) == plan.hash
    assert (found(plans, first), found(plans, second)) == (first, second)
    assert len(plans.read()) > 4 and all(key.startswith(PLAN.below(first.mirror.name)) for key in plans.read())


def test_the_same_plan_again_is_decided_once(ledger: MemoryLedger, plans: MemoryState) -> None:
    for _ in range(3):
        keep(a_plan(), plans, ledger)
    assert len(ledger.records) == 1


def test_dag_of_the_last_plan_is_noted_until_another_one_plans(ledger: MemoryLedger, plans: MemoryState) -> None:
    """Its readers may see the mirror: also after a person has planned it by hand."""
    first, second = a_plan(), a_plan(end=60001)
    name = first.mirror.name
    keep(first, plans, ledger)
    assert dag_of(ledger.values(), name) is None
    keep(first, plans, ledger, dag="orders")
    assert dag_of(ledger.values(), name) == "orders", "the same plan, by a DAG"
    keep(second, plans, ledger)
    assert (dag_of(ledger.values(), name), last_hash(ledger.values(), name)) == ("orders", second.hash)
    keep(second, plans, ledger, dag="payments")
    assert dag_of(ledger.values(), name) == "payments"


def test_a_plan_without_one_of_its_pieces_is_not_there(ledger: MemoryLedger, plans: MemoryState) -> None:
    """Its writer died half-way, and nothing names it; or the topic was deleted from."""
    plan = a_plan()
    keep(plan, plans, ledger)
    for key in plans.read():
        with pytest.raises(PlanNotKept, match=plan.hash[:12]):
            plan_in({k: v for k, v in plans.read().items() if k != key}, plan.mirror.name, plan.hash)
    with pytest.raises(PlanNotKept, match="Run PlanMirrorOperator first"):
        plan_in({}, plan.mirror.name, plan.hash)


def test_another_plan_under_its_hash_is_refused(ledger: MemoryLedger, plans: MemoryState) -> None:
    plan, other = a_plan(), a_plan(end=60001)
    keep(other, plans, ledger)
    swapped = {key.replace(other.hash, plan.hash): value for key, value in plans.read().items()}
    with pytest.raises(InputError, match=f"holds plan {other.hash} as {plan.hash}"):
        plan_in(swapped, plan.mirror.name, plan.hash)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (lambda plan: {**plan, "version": 1}, "not of version"),
        (lambda plan: {**plan, "hash": "0" * 64}, "its hash"),  # as where a release adds a field
        (lambda _: {}, "not a plan"),
    ],
)
def test_last_plan_that_can_not_be_loaded_is_not_passed_over(
    other: Callable[[dict[str, Any]], Any], why: str, stored: Callable[[Any], MemoryLedger]
) -> None:
    """The next one would lose what it alone knows, such as settings before the hold."""
    ledger = stored(other(json.loads(a_plan().to_json())))
    with pytest.raises(PlanUnreadable, match=rf"plan {a_plan().hash[:12]} .*{why}") as caught:
        ledger_store.last_between(a_plan().mirror.name, None, None, ledger, print)  # type: ignore[arg-type]
    assert "Make" not in str(caught.value), "another plan is what was refused"


def test_right_that_is_lacking_is_not_taken_for_a_plan_that_can_not_be_loaded(
    stored: Callable[[Any], MemoryLedger], plans: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, lacking = stored({}), MissingRight("read the state", "TOPIC_AUTHORIZATION_FAILED", "User:m")

    def refuse() -> dict[str, bytes]:
        raise lacking

    monkeypatch.setattr(plans, "read", refuse)
    with pytest.raises(MissingRight) as caught:
        ledger_store.last_between(a_plan().mirror.name, None, None, ledger)  # type: ignore[arg-type]
    assert caught.value is lacking


@pytest.mark.parametrize(
    "more",
    [
        {"version": 3},
        {"version": 3, "mirror": []},
        {"later": 1},
        {"mirror": {**a_plan().mirror.to_dict(), "later": 1}},
    ],
)
def test_last_plan_of_a_newer_version_is_not_passed_over(
    more: dict[str, Any], stored: Callable[[Any], MemoryLedger]
) -> None:
    ledger = stored({**json.loads(a_plan().to_json()), **more})
    with pytest.raises(LedgerNewer, match=rf"plan {a_plan().hash[:12]} that this version can't read"):
        ledger_store.last_between(a_plan().mirror.name, None, None, ledger)  # type: ignore[arg-type]


def test_interrupted_keeping_names_no_plan_that_is_not_there(ledger: MemoryLedger, plans: MemoryState) -> None:
    """Killed at each write; the next try completes it."""
    plan = a_plan()
    whole = MemoryState()
    keep(plan, whole, MemoryLedger())
    for fails_at in range(len(whole.read())):
        cut, book = MemoryState(fails_at), MemoryLedger()
        with pytest.raises(KeyboardInterrupt):
            keep(plan, cut, book)
        assert last_hash(book.values(), plan.mirror.name) is None or found(cut, plan) == plan
        cut.fails_at = None
        keep(plan, cut, book)
        assert found(cut, plan) == plan


def test_old_plans_are_removed_in_whole(
    ledger: MemoryLedger, plans: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were made first. One that was made again counts as new."""
    monkeypatch.setattr(ledger_store, "KEEP", 2)
    made = [a_plan(end=60000 + n) for n in range(3)]
    for plan in (made[0], made[1], made[0], made[2]):
        keep(plan, plans, ledger)
    assert {key.split("/")[2] for key in plans.read()} == {made[0].hash, made[2].hash}
    assert found(plans, made[0]) == made[0]


def test_a_plan_that_a_decision_names_stays_however_old_it_is(
    ledger: MemoryLedger, plans: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail runs by it, and a failover needs it: plans that were made since don't remove it."""
    monkeypatch.setattr(ledger_store, "KEEP", 2)
    tail, *others = (a_plan(end=60000 + n) for n in range(5))
    keep(tail, plans, ledger)
    ledger.decide(lambda _: {f"active/{tail.mirror.name}": {"v": 1, "plans": [{"plan": tail.hash}]}})
    for plan in others:
        keep(plan, plans, ledger)
    assert found(plans, tail) == tail
    assert {key.split("/")[2] for key in plans.read()} == {tail.hash, others[-2].hash, others[-1].hash}
    ledger.decide(lambda _: {f"active/{tail.mirror.name}": None})
    keep(others[-1], plans, ledger)
    assert {key.split("/")[2] for key in plans.read()} == {others[-2].hash, others[-1].hash}


def test_a_plan_of_a_part_is_there_and_is_not_the_last_one(ledger: MemoryLedger, plans: MemoryState) -> None:
    whole, part = a_plan(), a_plan(end=60001)
    keep(whole, plans, ledger)
    keep(part, plans, ledger, as_last=False)
    assert last_hash(ledger.values(), whole.mirror.name) == whole.hash
    assert found(plans, part) == part


def test_what_a_newer_version_decided_is_refused(ledger: MemoryLedger) -> None:
    plan = a_plan()
    ledger.decide(lambda _: {f"plan/{plan.mirror.name}": {"v": 2}})
    with pytest.raises(InputError, match="this version can't read"):
        last_hash(ledger.values(), plan.mirror.name)
    assert last_hash(ledger.values(), "other") is None


def test_changed_plan_has_another_hash() -> None:
    """It is computed once for each plan, and a changed plan is another one."""
    plan = a_plan()
    assert plan.hash == a_plan().hash != replace(plan, source_cluster_id="other").hash


def test_planner_that_slept_removes_no_old_plan_that_was_made_again_since(
    ledger: MemoryLedger, plans: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was to be removed, and is the last one by then: nobody could have copied by it."""
    monkeypatch.setattr(ledger_store, "KEEP", 1)
    old, new = a_plan(), a_plan(end=60001)
    keep(old, plans, ledger)
    write, other = plans.write, MemoryLedger(ledger.records)

    def sleeps(values: Mapping[str, bytes | None], permit: Permit = unfenced) -> None:
        if values and not any(values.values()):
            monkeypatch.setattr(plans, "write", write)
            keep(old, plans, other)
        write(values, permit)

    monkeypatch.setattr(plans, "write", sleeps)
    with pytest.raises(TryAgain, match="is not removed: it is used again"):
        keep(new, plans, ledger)
    assert last_hash(ledger.values(), old.mirror.name) == old.hash and found(plans, old) == old
