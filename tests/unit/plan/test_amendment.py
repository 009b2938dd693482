"""What a plan's rule selects later is added to it, and stands behind a hash as the plan itself does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_mirror.errors import InputError, LedgerNewer, TryAgain
from airflow_mirror.ledger import kinds, state
from airflow_mirror.plan import Plan, ledger_store
from airflow_mirror.plan.amendment import added_since, amended, chain, next_amendment
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.ledger_store import amend, amendments_in, keep, revision, with_amendments
from airflow_mirror.plan.model import Amendment
from tests.builders import topic_plan
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.plan.test_model import a_plan

WARNING = Finding("warn", "retention", "1 of 1 topic", "it is short", "Off during the copy.")


def adding(plan: Plan, *names: str, partitions: int = 1) -> Amendment:
    topics = [topic_plan(n, dict.fromkeys(range(partitions), 3), source_topic_id=f"id-of-{n}") for n in names]
    return next_amendment(plan, topics, [WARNING], "2026-02-01T00:00:00+00:00")


def names(plan: Plan) -> list[str]:
    return [t.source_topic for t in plan.topics]


def test_amended_plan_has_all_topics_and_keeps_its_hash() -> None:
    plan = a_plan()
    more = amended(plan, [adding(plan, "users-eu", "bills")])
    assert names(more) == ["audit|raw", "bills", "orders", "users", "users-eu"]
    assert (more.hash, more.digest, more.to_json()) == (plan.hash, plan.digest, plan.to_json())
    assert more.revision != plan.revision == plan.hash
    assert more.known_topics["bills"] == "identical" and more.findings[-1] == WARNING
    assert more.summary()["topics"] == 5 and more.summary()["revision"] == more.revision


def test_revision_stands_for_every_amendment_before_it() -> None:
    """Of the same topics in another order, or in one instead of two, it is another."""
    plan = a_plan()
    one = amended(plan, [adding(plan, "a")])
    two = amended(one, [adding(one, "b")])
    other = amended(plan, [adding(plan, "b")])
    other = amended(other, [adding(other, "a")])
    at_once = amended(plan, [adding(plan, "a", "b")])
    assert len({plan.revision, one.revision, two.revision, other.revision, at_once.revision}) == 5
    assert names(two) == names(other) == names(at_once)
    assert two.rule == plan and len(two.amendments) == 2


def test_topic_that_got_partitions_takes_the_place_of_its_older_plan() -> None:
    plan = a_plan()
    one = amended(plan, [adding(plan, "a")])
    more = amended(one, [adding(one, "a", partitions=4)])
    assert names(more).count("a") == 1 and more.topic("a").partitions == 4


def test_an_amendment_survives_its_json_and_its_hash_too() -> None:
    """More than ten partitions: numbers and texts are not in the same order."""
    one = adding(a_plan(), "b", "a", partitions=12)
    again = Amendment.from_json(one.to_json())
    assert again == one and again.hash == one.hash
    later = Amendment.from_json(one.to_json().replace("2026-02-01", "2026-02-02"))
    assert later.hash == one.hash and later != one
    for text in ("{}", "[]", "no", one.to_json().replace('"v": 1', '"v": 2')):
        with pytest.raises(InputError):
            Amendment.from_json(text)


def test_amendments_out_of_order_are_refused() -> None:
    plan = a_plan()
    first = adding(plan, "a")
    second = adding(amended(plan, [first]), "b")
    for wrong in ([second], [first, first], [adding(a_plan(end=60001), "a")]):
        with pytest.raises(InputError, match="does not continue plan"):
            amended(plan, wrong)


def test_what_was_added_since_an_approval_is_named() -> None:
    plan = a_plan()
    one = amended(plan, [adding(plan, "a")])
    two = amended(one, [adding(one, "c", "b")])
    assert added_since(two, two.revision) == []
    assert added_since(two, one.revision) == ["b", "c"]
    assert added_since(two, plan.hash) == added_since(two, "of another plan") == ["a", "b", "c"]


class Target:
    """The state and the decisions of a target, as one process sees them."""

    def __init__(self, plan: Plan, fails_at: int | None = None) -> None:
        self.plan, self.ledger, self.plans = plan, MemoryLedger(), MemoryState()
        keep(plan, self.plans, self.ledger)
        self.plans.fails_at = fails_at

    def amend(self, amendment: Amendment) -> None:
        amend(amendment, self.plan.mirror.name, self.plans, self.ledger)

    def fetched(self) -> Plan:
        last = revision(self.ledger.values(), self.plan.mirror.name, self.plan.hash)
        return amended(self.plan, amendments_in(self.plans.read(), self.plan.mirror.name, self.plan.hash, last))


@pytest.fixture
def target(small_records: Callable[[int], None]) -> Target:
    small_records(500)  # in pieces
    return Target(a_plan())


def test_amendments_come_back_from_the_target_in_order(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = target.plan
    for name in "cab":
        target.amend(adding(plan, name))
        target.amend(adding(plan, name))  # again
        plan = amended(plan, [adding(plan, name)])
    assert target.fetched() == plan and len(target.ledger.records) == 4
    monkeypatch.setattr(state, "state_of", lambda *_: target.plans)
    assert with_amendments(target.plan, None, target.ledger) == plan  # type: ignore[arg-type]
    assert with_amendments(amended(target.plan, plan.amendments[:1]), None, target.ledger) == plan  # type: ignore[arg-type]


def test_interrupted_amending_adds_nothing_and_can_be_repeated(target: Target) -> None:
    """Killed at each write; a later amendment, of another process, does not read what was left."""
    one, other = adding(target.plan, "a", "b"), adding(target.plan, "c")
    pieces = len(kinds.in_pieces("", one.to_json().encode()))
    assert pieces > 2
    for fails_at in range(pieces):
        cut = Target(target.plan)
        cut.plans.fails_at = cut.plans._written + fails_at
        with pytest.raises(KeyboardInterrupt):
            cut.amend(one)
        assert cut.fetched() == cut.plan
        cut.plans.fails_at = None
        for amendment in (one, other)[fails_at % 2 :][:1]:
            cut.amend(amendment)
            assert cut.fetched() == amended(cut.plan, [amendment])


def test_of_two_that_amend_at_once_the_second_looks_again(target: Target) -> None:
    target.amend(adding(target.plan, "a"))
    with pytest.raises(TryAgain, match="amended by somebody else"):
        target.amend(adding(target.plan, "b"))
    assert names(target.fetched()) == ["a", "audit|raw", "orders", "users"]


def test_a_missing_amendment_is_an_error_never_a_shorter_plan(target: Target) -> None:
    one = adding(target.plan, "a")
    target.amend(one)
    for key in [key for key in target.plans.read() if "+" in key]:
        left = {k: v for k, v in target.plans.read().items() if k != key}
        with pytest.raises(InputError, match=f"lacks amendment {one.hash[:12]}"):
            amendments_in(left, target.plan.mirror.name, target.plan.hash, one.hash)
    with pytest.raises(InputError, match="lacks amendment"):
        chain({}, target.plan.hash, "x")


def test_what_a_newer_version_amended_is_refused(target: Target) -> None:
    target.ledger.decide(lambda _: {f"amended/{target.plan.mirror.name}/{target.plan.hash}": {"v": 2}})
    with pytest.raises(LedgerNewer, match="the amendments of plan"):
        target.fetched()


def test_amendments_go_with_their_plan_and_not_before(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_store, "KEEP", 2)
    target.amend(adding(target.plan, "a"))
    second, third = a_plan(end=60001), a_plan(end=60002)
    keep(second, target.plans, target.ledger)
    assert names(target.fetched())[0] == "a"
    keep(third, target.plans, target.ledger)
    assert {key.split("/")[2] for key in target.plans.read()} == {second.hash, third.hash}
    assert not any(value for key, value in target.ledger.values().items() if key.startswith("amended/"))
