"""What went wrong once, as stories: each is one case of a kind that must not come back.

Who is overtaken, killed or frozen, and where, is said by named events; the invariants of the scenario say what must hold
(tests/explore/invariants.py), and each test also that the story still is about what it was about.
"""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mirror.common.policy import lease_id
from airflow_mirror.sync.write_permit import WritePermit
from tests.explore import gate
from tests.explore.deviations import freeze, hang, kill, late, switch
from tests.explore.scenario import Outcome
from tests.explore.story import story
from tests.explore.world import TOPICS, TPS

UP, OPEN = "target: decide fence/flow up", "target: decide fence/flow opened (r1.1), topic/orders, topic/payments"
DENY = "source: create DENY WRITE on topic orders,payments"
NAME = "source: create DENY DESCRIBE for User:airflow-mirror-fence on group airflow-mirror.fence.flow"
OF_TARGET = "@cluster-target"  # with which the id of an attempt ends
ANNOUNCE = "source: create DENY READ for User:airflow-mirror-fence on group airflow-mirror.fence.flow"
POSITIONS = "target: set readers at orders-0 to 7, payments-0 to 7"
LEASE, MARKED = (f"target: {what} {lease_id('flow')}" for what in ("take over", "mark to end writing"))
LISTED = "source: describe ACLs TOPIC at each broker"
REPORT = "target: write state report/flow/r1"


def sound(outcome: Outcome) -> Outcome:
    assert outcome.broken == {}, outcome.text
    return outcome


def end_of(outcome: Outcome, actor: str) -> str:
    """Return the type of an actor's error, or what its report says."""
    one = outcome.scheduler.actor(actor)
    return type(one.error).__name__ if one.error is not None else str(getattr(one.result, "outcome", one.result))


def decided(outcome: Outcome) -> Any:
    fence = outcome.world.fence
    return None if fence is None else (fence.phase, fence.run, fence.id.removesuffix(OF_TARGET))


def test_run_that_was_overtaken_before_its_fence_lifts_nobody_elses() -> None:
    """Its intent was on record, its decision was not: lifting overwrote the other run's opening, and lifted its fence."""
    for before in (kill(), freeze(), switch("R1")):
        outcome = sound(story("runs", ("R2", f"{UP} (r2.1)", 1, before)))
        assert decided(outcome) == ("opened", "r1", "R1-1") and outcome.scheduler.actor("L").result == []


def test_who_goes_on_with_a_lifting_leaves_another_mirrors_fence() -> None:
    """It had looked for its name before the other one came: it deleted that one's rules, which are the same."""
    for sleeps in (switch("R"), freeze(25)):
        outcome = sound(story("rivals_lifted", ("L", "source: delete DENY WRITE on topic orders,payments", 1, sleeps)))
        assert decided(outcome) == ("lifted", "r1", "before") and end_of(outcome, "R") == "CutoverCancelled"


def test_fence_is_not_raised_after_it_was_lifted() -> None:
    """A thawed owner created its rules behind the lifting of the attempt after it: no record explained them."""
    outcome = sound(story("retry", ("A", DENY, 1, freeze()), ("B", ANNOUNCE + ":r1:B-1" + OF_TARGET, 1, kill())))
    assert end_of(outcome, "A") == "CutoverTakenOver" and decided(outcome) == ("lifted", "r1", "B-1")
    assert outcome.world.denied == []


def test_owner_without_the_target_lifts_no_other_attempts_fence() -> None:
    """Its own record named the same rules as the open attempt's: it deleted them."""
    outcome = sound(story("retry", ("A", LISTED, 1, freeze(cut="target"))))
    assert end_of(outcome, "A") == "OpenOutcomeUnknown" and decided(outcome) == ("opened", "r1", "B-1")
    assert outcome.world.denied == ["orders", "payments"]


def test_thawed_owner_sets_no_positions_on_a_target_that_another_attempt_opened() -> None:
    outcome = sound(story("groups", ("A", POSITIONS, 1, freeze())))
    assert end_of(outcome, "A") == "CutoverTakenOver" and decided(outcome) == ("opened", "r1", "B-1")
    assert outcome.scheduler.actor("App").result == 12


def test_partition_that_was_added_before_the_fence_ends_the_cutover() -> None:
    """What was fenced had been looked at ten seconds before: the new partition's records were left behind."""
    for added in (UP + " (r1.1)", DENY):
        outcome = sound(story("partitions", ("A", added, 1, switch("P"))))
        assert end_of(outcome, "A") == end_of(outcome, "B") == "PlanOutdated"
        assert decided(outcome) == ("lifted", "r1", "A-1") and outcome.world.opened_by == {}
    outcome = sound(story("topics", ("A", UP + " (r1.1)", 1, switch("P"))))
    assert end_of(outcome, "A") == "PlanOutdated"


def test_failover_is_not_decided_over_a_tail_that_has_begun_since() -> None:
    """It had confirmed the lease, and decided: the new tail wrote into the open target until it looked."""
    decide = "target: decide active/flow ended, direction/flow, topic/orders, topic/payments"
    outcome = sound(story("orphan", ("F", decide, 1, freeze(11.0)), ("F", decide, 1, switch("T2"))))
    assert end_of(outcome, "F") == "TryAgain" and outcome.world.opened_by == {}


def test_guard_of_an_attempt_that_died_lifts_nothing_of_the_next_one() -> None:
    """It had loaded that attempt's report, and was slow: it overwrote the opening of the retry."""
    lifting = "target: decide fence/flow lifting (r1.1)"
    outcome = sound(story("retry", ("A", LISTED, 1, kill()), ("GA", lifting, 1, freeze())))
    assert decided(outcome) == ("opened", "r1", "B-1")


def test_task_that_is_cleared_after_another_run_has_opened_changes_nothing() -> None:
    """Its run had died behind its fence, and was lifted: its report said that it ran."""
    outcome = sound(story("runs", ("R2", LEASE, 1, kill())))
    assert decided(outcome) == ("opened", "r1", "R1-1") and end_of(outcome, "R2again") == "FenceStands"


def test_positions_of_a_dead_cutover_are_not_restored_on_an_open_target() -> None:
    """A retry restored them, and only then found that the mirror was failed over, or that another run had opened."""
    outcome = sound(story("failover", ("A", ANNOUNCE + ":r1:A-1" + OF_TARGET, 1, kill())))
    assert end_of(outcome, "FF").startswith("<airflow_mirror.cutover.failover") or "FailoverReport" in end_of(
        outcome, "FF"
    )
    assert outcome.scheduler.actor("App").result == 12
    outcome = sound(story("runs_groups", ("R2", ANNOUNCE + ":r2:R2-1" + OF_TARGET, 1, kill())))
    assert decided(outcome) == ("opened", "r1", "R1-1") and outcome.scheduler.actor("App").result == 12


def test_guard_that_is_slow_restores_no_positions_behind_a_forced_failover() -> None:
    killed = ("A", "target: positions of readers", 4, kill())
    slow = ("GB", "target: read the ledger", 1, switch("GA"))
    sound(story("failover", killed, ("GA", "target: read state report/flow/", 1, hang()), slow))


def test_owner_that_thaws_soon_and_takes_the_lease_itself_sets_no_positions() -> None:
    """It walked on behind the next attempt's fence; the lease that it then held proved nothing."""
    for taking in (LEASE, MARKED):
        for seconds in (16.0, 22.0):  # until the next attempt is behind its fence, or has opened
            outcome = sound(story("groups", ("A", taking, 1, freeze(seconds)), ("GA", REPORT, 1, switch("B"))))
            assert end_of(outcome, "A") == "CutoverTakenOver"


def test_owner_that_takes_the_lease_behind_an_opening_sets_no_positions_of_who_went_back() -> None:
    """Nothing else is in the way: no group is further than the cut, and the next attempt's fence stands."""
    outcome = sound(story("soon", ("A", LEASE, 1, freeze())))
    assert end_of(outcome, "A") == "CutoverTakenOver" and decided(outcome) == ("opened", "r1", "B-1")
    assert outcome.world.target.positions("readers")[TPS[0]].offset == 1


def test_failover_sees_a_cutover_by_what_is_decided() -> None:
    """It looked at reports: one that was killed between its decision and its report was not there."""
    outcome = sound(story("failover", ("A", "target: decide evidence/flow/000001", 1, kill())))
    assert end_of(outcome, "F") == end_of(outcome, "FF") == "MirrorCutOver"
    outcome = sound(story("failover", ("A", OPEN, 1, switch("FF"))))
    assert end_of(outcome, "A") != "cut_over" or end_of(outcome, "FF") == "MirrorCutOver"


def test_fence_does_not_go_up_for_a_mirror_that_was_failed_over_since() -> None:
    """A decision held only against what it set: what it had looked at could have changed by the time it was appended."""
    outcome = sound(story("failover", ("A", UP + " (r1.1)", 1, freeze())))
    assert end_of(outcome, "A") == "MirrorCutOver" and outcome.world.fences == []


def test_swap_and_lifting_do_not_undo_each_other() -> None:
    """The swap wrote over what the lifting had recorded, and kept applications out of a source that was let in again."""
    decide, add = (
        "target: decide fence/flow opened (r1.1)",
        "source: create DENY WRITE for User:app on topic orders,payments",
    )
    remove = "source: delete DENY WRITE on topic orders,payments"
    for at in (add, remove):
        outcome = sound(story("swap", ("S", at, 1, freeze())))
        assert end_of(outcome, "S") == "CutoverTakenOver" and decided(outcome)[0] == "closed"
        assert outcome.world.source.writable("User:app") == ["orders", "payments"]
    outcome = sound(story("swap", ("S", decide, 1, freeze())))
    assert end_of(outcome, "S") == "CutoverTakenOver" and decided(outcome)[0] == "closed"
    closes = ("K", "target: decide fence/flow closing (r1.1)", 1, switch("S"))
    outcome = sound(story("swap", ("S", decide, 1, switch("K")), closes))
    assert end_of(outcome, "K") == "CutoverTakenOver" and decided(outcome)[0] == "opened"
    assert outcome.world.source.writable("User:app") == []


def test_fence_of_a_source_that_returned_is_not_raised_again_over_its_swap() -> None:
    """Its process had not proven it yet, and tried again: it kept out the mirror that was let in meanwhile."""
    outcome = sound(story("returned", ("X", LISTED, 1, switch("S"))))
    assert outcome.world.source.writable("User:mirror") == ["orders", "payments"]
    assert outcome.world.source.writable("User:app") == []


def test_lifting_that_nobody_has_ended_is_ended_by_anybody() -> None:
    """An attempt died before its intent was saved, and who undid it died as well: no tool found anything to lift."""
    lifted = "target: decide fence/flow lifted (r1.1)"
    outcome = sound(story("retry", ("A", REPORT, 1, kill()), ("GA", lifted, 1, kill())))
    assert decided(outcome) == ("opened", "r1", "B-2") or decided(outcome)[0] in ("lifted", "opened")


def test_second_process_of_a_run_does_not_take_the_firsts_rules_for_the_sites_own() -> None:
    """It described the source behind the first one's CreateAcls, and counted its rules as found there before."""
    outcome = sound(story("twice", ("A", DENY, 1, switch("Y"))))
    assert end_of(outcome, "Y") == "CutoverRunning" and decided(outcome) == ("opened", "r1", "A-1")
    outcome = sound(story("twice", ("A", UP + " (r1.1)", 1, switch("Y")), ("Y", LISTED, 1, kill())))
    assert end_of(outcome, "A") == "CutoverTakenOver" and decided(outcome) == ("opened", "r1", "B-1")
    lifted = "target: decide fence/flow opened (r1.2), topic/orders, topic/payments"
    outcome = sound(
        story("twice", ("A", UP + " (r1.1)", 1, switch("Y")), ("Y", LISTED, 1, kill()), ("B", lifted, 1, kill()))
    )
    assert decided(outcome)[0] == "lifted" and outcome.world.denied == [], "nobody took them for the site's own"


def test_rules_that_come_late_are_named_and_removed() -> None:
    """A request that was given up was applied when everything was over."""
    outcome = sound(story("retry", ("A", DENY, 1, late()), ("B", ANNOUNCE + ":r1:B-1" + OF_TARGET, 1, kill())))
    assert len(outcome.scheduler.actor("LU").result) == 2
    outcome = sound(story("unkept", ("A", NAME + ":r1:A-1" + OF_TARGET, 1, late())))
    assert outcome.world.names == [], "it would keep each later cutover from its fence"


def test_gateway_that_is_shut_behind_its_lifting_is_opened_when_a_person_says_so() -> None:
    """Its owner slept before the call, and thawed without the target: no tool had anything to lift."""
    asleep = ("A", "source: the gateway shuts", 1, freeze(cut="target"))
    outcome = sound(story("called_unkept", asleep))
    assert end_of(outcome, "A") == "OpenOutcomeUnknown" and outcome.scheduler.actor("LZ").result == []
    assert outcome.scheduler.actor("LU").error is None and outcome.world.denied == []
    outcome = sound(story("called", asleep))
    assert decided(outcome) == ("opened", "r1", "B-1") and outcome.world.denied == ["orders", "payments"]


def test_gateway_that_is_shut_behind_its_lifting_is_opened_by_who_shut_it() -> None:
    outcome = sound(story("called", ("A", "source: the gateway shuts", 1, freeze(45)), ("B", UP + " (r1.2)", 1, kill())))
    assert end_of(outcome, "A") == "CutoverTakenOver" and outcome.world.denied == []


def test_tasks_that_were_permitted_a_moment_before_an_opening_change_nothing_behind_it() -> None:
    """What had been asked within two seconds was not asked again, and nobody who opens a target waits for that."""
    outcome = sound(story("translated", ("T", POSITIONS, 1, hang(1.99))))
    assert end_of(outcome, "T") == end_of(outcome, "Again") == "InputError"
    outcome = sound(
        story("synced", ("S", "target: create ALLOW READ for User:reader on topic orders,payments", 1, hang(1.5)))
    )
    assert end_of(outcome, "S") == end_of(outcome, "S2") == "InputError"
    outcome = sound(story("synced", ("C", "target: alter configs of payments", 1, hang(1.5))))
    assert end_of(outcome, "C") == end_of(outcome, "C2") == "MirrorCutOver"


def test_rule_that_comes_when_its_mirror_is_retired_is_named_and_removed() -> None:
    """The records were gone by which it is told from the site's own, and the mirror was unknown."""
    outcome = sound(story("retired", ("A", DENY, 1, late())))
    assert outcome.scheduler.actor("RT2").result == "retired" and decided(outcome)[0] == "lifted"
    assert len(outcome.scheduler.actor("LU").result) == 2


def test_follower_that_wakes_behind_an_opening_sets_no_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease was taken, and its application has gone back since; without its permit that would be found."""
    asleep = ("F", "target: set readers at orders-0 to 10, payments-0 to 7", 1, freeze())
    outcome = sound(story("followed", asleep))
    assert end_of(outcome, "F") == "LeaseLost" and outcome.world.target.positions("readers")[TPS[0]].offset == 1
    monkeypatch.setattr(WritePermit, "check", lambda _: None)
    assert "a committed offset on an open target is nobody's but its readers'" in story("followed", asleep).broken


def test_cutover_that_wakes_when_its_mirror_is_retired_raises_no_fence() -> None:
    """Its plan was gone from the target: its guard, and who lifts a fence, had nothing to lift it by."""
    outcome = sound(story("retired", ("A", "target: read the ledger", 1, freeze())))
    assert end_of(outcome, "A") == "PlanNotKept" and outcome.world.fences == []


def test_retirement_that_wakes_when_its_mirror_was_made_anew_takes_nothing_of_it() -> None:
    """It had looked at all that it removes, and the mirror was planned again: its plan was gone, or its topics."""
    gone = "target: write state plan/flow"
    for asleep in ("target: decide topic/orders, topic/payments", "target: decide plan/flow ended", gone):
        outcome = sound(story("remade", ("RT", asleep, 1, freeze())))
        assert end_of(outcome, "RT") == "TryAgain" and end_of(outcome, "P") == "planned"
        assert {outcome.world.target.decided[f"topic/{t}"].get("released") for t in TOPICS} == {None}


def test_same_plan_again_ends_a_retirement_that_goes_on() -> None:
    """Nothing was decided with it, so that the retirement went on, and the plan and the topics were gone."""
    for effect in ("target: decide topic/orders, topic/payments", "target: write state plan/flow"):
        outcome = sound(story("remade", ("RT", effect, 1, switch("P"))))
        assert end_of(outcome, "RT") == "TryAgain" and end_of(outcome, "P") == "planned"


def test_plan_that_a_retirement_removes_before_it_is_decided_is_written_again() -> None:
    removed = ("P", "target: decide plan/flow", 1, switch("RT"))
    outcome = sound(story("remade", ("RT", "target: write state plan/flow", 1, switch("P")), removed))
    assert end_of(outcome, "RT") == "retired" and end_of(outcome, "P") == "planned"


@pytest.mark.parametrize(("asks", "opens"), [(False, gate.OPENS), (True, gate.OPENS_IF)])
def test_function_that_asks_its_permit_lets_nobody_in_behind_another_attempts_opening(asks: bool, opens: str) -> None:
    """One that does not is called right behind it, and may sleep before what it does (docs/security.md)."""
    killed, asleep = ("A", LEASE, 1, kill()), ("GA", opens, 1, freeze())
    outcome = story("called_asking" if asks else "called", killed, asleep)
    assert decided(outcome) == ("opened", "r1", "B-1")
    assert ("never are both sides writable for applications" in outcome.broken) is not asks, outcome.text


def test_follower_that_wakes_when_another_job_has_the_lease_writes_no_note_over_that_ones() -> None:
    """It had confirmed its lease, and slept before the bytes: by an older note a position is somebody else's."""
    outcome = sound(story("followed", ("F", "target: write state groups/flow/readers", 1, freeze())))
    assert end_of(outcome, "F") == "LeaseLost"
    assert not [key for key in outcome.world.target.state if key.startswith("groups/")]


FORGOTTEN = "source: delete " + "; ".join(
    f"DENY {what} for User:airflow-mirror-fence on group airflow-mirror.fence.flow:failover-f:X-1{OF_TARGET}"
    for what in ("DESCRIBE", "READ")
)
RIVAL_UP = "target: decide fence/other up (o.1)"


def test_name_of_a_fence_that_another_process_has_raised_meanwhile_is_not_taken_back() -> None:
    """It had stepped back for another mirror, and slept: without its name, lifting that fence deleted no rule."""
    outcome = sound(story("rivals_returned", ("R", RIVAL_UP, 2, switch("X")), ("X", FORGOTTEN, 1, freeze())))
    assert decided(outcome) == ("opened", "failover-f", "X-1") and end_of(outcome, "R") == "CutoverCancelled"
    assert outcome.world.names == [f"airflow-mirror.fence.flow:failover-f:X-1{OF_TARGET}"]


def test_fence_whose_name_was_taken_back_is_not_raised_by_who_had_named_it() -> None:
    """Another mirror had looked when no name was there: its fence and this one stood, and its lifting opened both."""
    outcome = sound(
        story(
            "rivals_returned",
            ("R", RIVAL_UP, 1, switch("X")),
            ("X", "target: decide fence/flow opened (failover-f.1)", 2, freeze(8)),
            ("R", "source: describe ACLs GROUP User:airflow-mirror-fence", 3, switch("Y")),
        )
    )
    assert any("Y: " + FORGOTTEN in line for line in outcome.scheduler.lines), outcome.text
    assert end_of(outcome, "R") == "CutoverCancelled" and outcome.world.denied == [*TOPICS]
