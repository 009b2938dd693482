"""Rules that nothing decided explains are told from those of a fence; a fence behind an open target is decided once."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.cutover.alone import alone
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.decision import (
    LIFTED,
    OPENED,
    FenceState,
    begin_lifting,
    end_lifting,
    fence_state,
    stand_behind_open,
)
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import attempt_id, name_of
from airflow_mirror.cutover.lifting import told
from airflow_mirror.cutover.other_fences import described, lift_unexplained, told_unexplained, unexplained
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.errors import (
    CutoverTakenOver,
    FencedByAnother,
    FenceStands,
    InputError,
    LeaseLost,
    MirrorCutOver,
    RequestRefused,
)
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.kinds import in_pieces
from airflow_mirror.ledger.records import FENCE
from airflow_mirror.plan.direction import Direction, turn
from airflow_mirror.plan.ledger_store import keep
from airflow_mirror.plan.model import Plan
from tests.builders import rule
from tests.unit.cutover.builders import Acls, a_plan, a_run, dir_of, go_up, ledger_of, target_of, want

DENY = rule("orders", "WRITE", "DENY")
TURNED = Direction(generation=1, primary="t", by="failover", attempt="1", plan="p", at="noon")


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    """A run whose fence is described, and of whose mirror the ledger knows the plan."""
    run = a_run(tmp_path, None, Acls(rule("orders", "READ", "ALLOW"), rule("payments", "READ", "ALLOW")))
    keep(a_plan("orders", "payments"), target_of(tmp_path), ledger_of(tmp_path))
    run.fence = AclFence(run.source)
    run.intent = described(run)
    return run


def add(attempt: Attempt, *rules: Any) -> None:
    attempt.source.create_acls([*rules], unfenced)


def is_lifted(attempt: Attempt) -> None:
    """Decide that somebody has lifted the fence of a run."""
    assert attempt.up is not None
    lifting = begin_lifting(attempt.ledger, "flow", attempt.up, "guard")
    assert lifting is not None
    end_lifting(attempt.ledger, "flow", lifting)


def test_rules_of_a_fence_that_stands_are_explained_and_late_ones_are_not(attempt: Attempt) -> None:
    assert unexplained(attempt.on, "flow") == []
    go_up(attempt)
    name = name_of("flow", attempt.store.run, attempt.me)
    attempt.fence.raise_(attempt.intent, name, unfenced)
    assert unexplained(attempt.on, "flow") == []
    AclFence(attempt.source).announce(name_of("flow", "earlier", "x"), unfenced)  # came late
    (late,) = unexplained(attempt.on, "flow")
    assert late.name == name_of("flow", "earlier", "x")
    (said,) = told_unexplained(attempt.on, "flow", print)
    assert f"DENY READ on group {late.name} for" in said
    with pytest.raises(CutoverTakenOver):
        lift_unexplained(attempt.on, "flow", [late])  # while a fence stands, nobody's rules are removed


def test_late_rule_of_a_fence_that_was_lifted_is_found_and_removed_and_the_sites_own_is_not(attempt: Attempt) -> None:
    add(attempt, rule("payments", "WRITE", "DENY"))  # the site's own
    attempt.intent = described(attempt)
    go_up(attempt)
    is_lifted(attempt)
    add(attempt, DENY)
    assert unexplained(attempt.on, "flow") == [DENY]
    said: list[str] = []
    assert [line.split(" for ")[0] for line in told_unexplained(attempt.on, "flow", lambda *a: said.append(str(a)))] == [
        "DENY WRITE on topic orders"
    ]
    attempt.before = fence_state(attempt.ledger.values(), "flow")
    with pytest.raises(FenceStands, match="orders: late, or by you"):
        described(attempt)
    assert lift_unexplained(attempt.on, "flow", [DENY]) == [DENY]
    assert described(attempt).held == {"payments"} and unexplained(attempt.on, "flow") == [] and said == []


def test_late_rule_on_a_topic_that_left_the_plan_is_named_before_another_fence_goes_up(attempt: Attempt) -> None:
    """Behind that nobody would look for it: it is looked for by the plan of the last fence."""
    go_up(attempt)
    is_lifted(attempt)
    late = rule("payments", "WRITE", "DENY")
    add(attempt, late)
    attempt.before = fence_state(attempt.ledger.values(), "flow")
    want(attempt, plan=a_plan("orders"))
    with pytest.raises(FenceStands, match="payments: late, or by you"):
        described(attempt)
    assert unexplained(attempt.on, "flow") == [late] == lift_unexplained(attempt.on, "flow", [late])
    assert described(attempt).topics == ("orders",)


def test_rule_on_a_topic_that_left_the_plan_may_be_another_mirrors(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic was handed to that one, say, which keeps its fence for months."""
    go_up(attempt)
    is_lifted(attempt)
    fence = AclFence(attempt.source)
    fence.raise_(fence.intent(["payments"]), name_of("another", "monday", "x"), unfenced)
    attempt.before = fence_state(attempt.ledger.values(), "flow")
    want(attempt, plan=a_plan("orders"))
    monkeypatch.setattr(attempt, "pause", lambda _: None)  # while another target's fence may get its rules
    assert described(attempt).topics == ("orders",)


def test_what_another_mirrors_fence_may_explain_is_said_quietly(attempt: Attempt) -> None:
    add(attempt, DENY)
    AclFence(attempt.source).announce(name_of("another", "monday", "x"), unfenced)
    with pytest.raises(FencedByAnother):
        unexplained(attempt.on, "flow")
    said: list[str] = []
    assert told_unexplained(attempt.on, "flow", lambda text, *values: said.append(text % values)) == []
    assert "were not looked for" in said[0] and "another:monday" in said[0]
    with pytest.raises(FencedByAnother):
        described(attempt)


NAMESAKE = name_of("flow", "r1", attempt_id("1", "another target"))


def test_fence_of_a_mirror_of_this_name_to_another_target_is_another_mirrors(attempt: Attempt) -> None:
    """Its decision is in a ledger that nobody here can ask; 'lift-fence --unexplained' took its rules for leftovers."""
    fence = AclFence(attempt.source)
    fence.raise_(fence.intent(["payments"]), NAMESAKE, unfenced)
    fence.announce(NAMESAKE, unfenced)
    with pytest.raises(FencedByAnother, match="flow:r1:1@another target"):
        unexplained(attempt.on, "flow")
    with pytest.raises(FencedByAnother):
        lift_unexplained(attempt.on, "flow", [rule("payments", "WRITE", "DENY")])
    with pytest.raises(FencedByAnother):
        described(attempt)
    assert fence.is_up(fence.intent(["payments"]))


def test_fence_of_a_mirror_of_this_name_to_another_target_refuses_no_cutover_of_other_topics(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = AclFence(attempt.source)
    fence.raise_(fence.intent(["audit"]), NAMESAKE, unfenced)
    assert unexplained(attempt.on, "flow") == [], "nor is its name a leftover"
    monkeypatch.setattr(attempt, "pause", lambda _: None)  # while it may get its rules
    attempt.intent = described(attempt)
    go_up(attempt)
    raised = Raised.by(attempt)
    raised.claim(attempt.others, unfenced)
    raised.raise_rules(unfenced)
    alone(raised, opened=False)()
    assert raised.begin("somebody") and raised.undo() and fence.is_up(fence.intent(["audit"]))


def test_rules_that_another_mirrors_fence_has_found_since_they_were_listed_stay(attempt: Attempt) -> None:
    """It takes them for the site's own, and opens its target behind them. A name of this mirror's own may go."""
    names = AclFence(attempt.source)
    names.announce(name_of("flow", "earlier", "x"), unfenced)
    add(attempt, DENY)
    listed = unexplained(attempt.on, "flow")
    names.announce(name_of("another", "monday", "x"), unfenced)
    with pytest.raises(FencedByAnother, match="another:monday:x"):
        lift_unexplained(attempt.on, "flow", listed)
    assert DENY in attempt.source.acls  # type: ignore[attr-defined]
    late_names = [acl for acl in listed if acl != DENY]
    assert lift_unexplained(attempt.on, "flow", late_names) == late_names != []


def test_mirror_without_a_plan_has_nothing_to_explain(attempt: Attempt) -> None:
    add(attempt, DENY)
    assert unexplained(attempt.on, "nobody") == []


def test_fence_that_goes_up_while_rules_are_listed_explains_them(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = AclFence.left

    def meanwhile(self: AclFence, *given: Any) -> Any:
        found = left(self, *given)
        if attempt.up is None:
            go_up(attempt)
        return found

    monkeypatch.setattr(AclFence, "left", meanwhile)
    add(attempt, DENY)
    assert unexplained(attempt.on, "flow") == [] and attempt.up is not None


def test_callable_fence_is_described_by_itself(attempt: Attempt) -> None:
    attempt.fence = CallableFence(lambda: None, lambda: None)
    add(attempt, DENY)
    assert described(attempt).topics == ("orders", "payments")


def test_source_that_does_not_list_its_rules_is_no_alarm(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise RequestRefused("describe ACLs", 35, "UNSUPPORTED_VERSION")

    monkeypatch.setattr(attempt.source, "describe_acls", refused)
    said: list[str] = []
    assert told_unexplained(attempt.on, "flow", lambda text, *values: said.append(text % values)) == [] and len(said) == 1


def behind(which: Attempt, **changes: Any) -> FenceState:
    one = FenceState(
        run="returned", attempt=1, id="a", plan="p", revision="p", owner="me", max_fence_s=60.0, phase=OPENED,
        intent=which.intent.value(),
    )  # fmt: skip
    return replace(one, **changes)


def test_of_several_who_stand_behind_a_failover_the_first_decides(attempt: Attempt) -> None:
    attempt.ledger.decide(lambda _: turn("flow", TURNED))
    first = stand_behind_open(attempt.ledger, "flow", behind(attempt), TURNED)
    assert stand_behind_open(attempt.ledger, "flow", behind(attempt, id="b"), TURNED) == first
    with pytest.raises(FenceStands, match="its cutover 'returned' stands behind an open target"):
        stand_behind_open(attempt.ledger, "flow", behind(attempt, run="another"), TURNED)
    note_copy(attempt.ledger, "flow", replace(first, phase=LIFTED))
    assert stand_behind_open(attempt.ledger, "flow", behind(attempt, run="another"), TURNED).run == "another"


def test_copy_of_a_fence_replaces_no_decision_about_a_mirror_of_the_same_name(attempt: Attempt) -> None:
    """Two mirrors of one name in opposite directions: the other one's fence would be nobody's."""
    go_up(attempt)
    assert attempt.up is not None
    copied = replace(attempt.up, id="A", run="theirs", phase=OPENED)
    with pytest.raises(InputError, match="'flow': another mirror of this name"):
        note_copy(attempt.ledger, "flow", copied)
    assert fence_state(attempt.ledger.values(), "flow") == attempt.up
    note_copy(attempt.ledger, "flow", copied, older=attempt.up)
    note_copy(
        attempt.ledger, "flow", again := replace(copied, intent={"bare": "0"})
    )  # of the same attempt, or over what is over
    note_copy(attempt.ledger, "flow", replace(again, phase=LIFTED))
    note_copy(attempt.ledger, "flow", attempt.up)
    assert fence_state(attempt.ledger.values(), "flow") == attempt.up


@pytest.mark.parametrize("now", [None, replace(TURNED, generation=2, by="rollback")])
def test_nobody_stands_behind_a_failover_that_is_no_more(attempt: Attempt, now: Direction | None) -> None:
    if now is not None:
        attempt.ledger.decide(lambda _: turn("flow", now))
    with pytest.raises(MirrorCutOver):
        stand_behind_open(attempt.ledger, "flow", behind(attempt), TURNED)
    assert fence_state(attempt.ledger.values(), "flow") is None


@pytest.mark.parametrize("gone", ["nothing", "fence", "lease", "direction"])
def test_positions_are_set_while_fence_lease_and_direction_are_this_attempts(
    attempt: Attempt, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failover by force leaves the fence up, and whoever thaws may have taken the lease after it."""
    go_up(attempt)
    assert attempt.up is not None
    confirmed: list[Any] = []

    def confirm(token: Any) -> None:
        confirmed.append(token)
        if gone == "lease":
            raise LeaseLost("airflow-mirror:flow:lease", 3, "epoch 5")

    attempt.lease = "ours"  # type: ignore[assignment]
    monkeypatch.setattr(attempt.on.target, "confirm_lease", confirm)
    if gone == "fence":
        begin_lifting(attempt.ledger, "flow", attempt.up, "guard")
    if gone == "direction":
        attempt.ledger.decide(lambda _: turn("flow", TURNED))
    if gone == "nothing":
        attempt.may_set()
        assert confirmed == ["ours"] and dir_of(attempt).name == attempt.store.run
    else:
        with pytest.raises((CutoverTakenOver, LeaseLost)):
            attempt.may_set()


def test_rules_that_an_attempt_was_about_to_make_are_looked_for_once_it_is_lifted(attempt: Attempt) -> None:
    """It has died before it decided that they are its own; those that are there came late, of the attempt before."""
    attempt.intent = replace(attempt.intent, pending=True)
    go_up(attempt)
    is_lifted(attempt)
    add(attempt, DENY)
    assert unexplained(attempt.on, "flow") == [DENY]


def test_fences_of_other_targets_keep_no_fence_up(attempt: Attempt) -> None:
    """They stand for months behind targets that were opened, and may be about any topics."""
    fence, other = AclFence(attempt.source), name_of("other", "r1", "1")
    fence.raise_(fence.intent(["audit"]), other, unfenced)
    go_up(attempt)
    raised = Raised.by(attempt)
    raised.claim(fence.others("flow", ""), unfenced)
    raised.raise_rules(unfenced)
    assert raised.begin("somebody") and raised.undo()
    denied = {acl.name for acl in attempt.source.describe_acls(resource_type="TOPIC") if acl.permission == "DENY"}
    assert denied == {"audit"} and fence.standing("flow", "") == {}


@pytest.mark.parametrize(
    ("phase", "known", "steps_back"), [(OPENED, True, False), (OPENED, False, True), (LIFTED, False, False)]
)
def test_another_mirror_whose_plan_is_lost_may_be_about_any_topic(
    attempt: Attempt, phase: str, known: bool, steps_back: bool
) -> None:
    """Behind our own decision that the fence is up; its fault was raised there as ours."""
    fence, plan = AclFence(attempt.source), a_plan("audit")
    fence.raise_(fence.intent(["audit"]), name_of("other", "r1", "1"), unfenced)
    decide_other(attempt, plan, phase)
    go_up(attempt)
    if steps_back:
        with pytest.raises(FencedByAnother, match="other:r1:1"):
            Raised.by(attempt).claim([], unfenced)
    else:
        Raised.by(attempt).claim(fence.others("flow", "") if known else [], unfenced)


def decide_other(attempt: Attempt, plan: Plan, phase: str) -> None:
    """Decide that the mirror ``other`` has a fence of the topics of a plan."""
    its = FenceState(
        run="r1", attempt=1, id="1", plan=plan.hash, revision=plan.revision, owner="o", max_fence_s=60.0, phase=phase
    )  # fmt: skip
    attempt.ledger.decide(lambda _: FENCE.put(asdict(its), "other"))


def test_plan_of_a_kept_fence_is_not_read_again_behind_our_own(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading is one of the whole topic, and forty such fences stood at a source: `max_fence_s` ran meanwhile."""
    fence, plan = AclFence(attempt.source), a_plan("audit")
    target_of(dir_of(attempt)).write(in_pieces(f"plan/other/{plan.hash}", plan.to_json().encode()))
    fence.raise_(fence.intent(["audit"]), name_of("other", "r1", "1"), unfenced)
    decide_other(attempt, plan, OPENED)
    attempt.intent, reads = described(attempt), list[str]()
    go_up(attempt)
    read = attempt.on.target.state

    def counted(*prefixes: str, **patience: float) -> Any:
        reads.append(prefixes[0])
        return read(*prefixes, **patience)

    monkeypatch.setattr(attempt.on.target, "state", counted)
    Raised.by(attempt).claim(attempt.others, unfenced)
    assert reads == []


def test_rules_of_another_mirror_stay_when_a_fence_is_lifted_again(attempt: Attempt) -> None:
    """Who lifted it has died before it was decided that it is lifted; the other fence, of the same topics, came then."""
    fence, topics, other = AclFence(attempt.source), ["orders", "payments"], name_of("other", "r1", "1")
    shared = replace(fence.intent(topics), bare=frozenset({"orders"}))
    attempt.intent = replace(attempt.intent, bare=shared.bare)
    go_up(attempt)
    raised = Raised.by(attempt)
    raised.claim([], unfenced)
    raised.raise_rules(unfenced)
    assert raised.begin("somebody")
    raised.lift_rules(unfenced)
    assert attempt.source.describe_acls(resource_type="GROUP") == []
    fence.raise_(shared, other, unfenced)
    assert raised.undo() and fence.is_up(shared), "by the next one"
    assert [line.partition(" for ")[0] for line in raised.lines] == [
        "but ALLOW DESCRIBE_CONFIGS on topic orders", "but ALLOW READ on topic orders",
        "but DENY WRITE on topic orders", "but DENY WRITE on topic payments",
    ], "and nobody is told that producers are in"  # fmt: skip
    assert list(map(told, raised.lines)) == raised.lines, "nor that a rule was lifted"
    assert told("DENY WRITE on topic orders") == "lifted: DENY WRITE on topic orders"
    assert raised.undone[0].what.endswith(
        "stays: its name was gone, and another mirror's fence, which may have the same rule, stands"
    )
