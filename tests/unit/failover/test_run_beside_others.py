"""A failover beside others: a tail, a cutover, another failover, a split that is at work meanwhile."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from airflow_mirror.copy.writer.lease import HANDOVER_S
from airflow_mirror.cutover.decision import CLOSED, Pin, fence_state, open_behind
from airflow_mirror.cutover.failover import check, decision, run
from airflow_mirror.cutover.failover.record import STEPS, Cut, Record
from airflow_mirror.cutover.failover.report import Found
from airflow_mirror.cutover.failover.tail_seen import TailSeen
from airflow_mirror.errors import (
    InputError,
    MirrorCutOver,
    MirrorError,
    TryAgain,
)
from airflow_mirror.jobs.runner.state import LOST
from airflow_mirror.kafka.model import GroupPosition, TopicInfo
from airflow_mirror.plan import ownership
from airflow_mirror.plan.direction import Direction, direction, turn
from airflow_mirror.plan.owned import owned_topics
from airflow_mirror.sync.ends.notes import End, SourceEnds
from tests.unit.failover.run_world import (
    anew,
)
from tests.unit.failover.world import A0, A1, B0, PLAN, Part, World


def test_call_that_slept_takes_no_lease_from_the_tail_that_copies_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert world.dies(3, after=True)
    back = Direction(generation=9, primary="old", by="rollback", attempt="r", plan="p", at="noon")

    def ended(*_: Any) -> bool:
        world.ledger().decide(lambda _: turn("m", back))
        world.lease.holder = "the tail that copies back"
        return False

    monkeypatch.setattr(world.lease, "is_writing_ended", ended)
    with pytest.raises(TryAgain, match="another direction"):
        world.fail_over()
    assert world.lease.holder == "the tail that copies back"


def test_call_that_slept_leaves_a_later_failovers_cut(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source had returned, applications with it, and was lost again: where that copy ended nobody could find."""
    first = world.fail_over()
    later = replace(first.direction, generation=9, attempt="later")
    promote = decision.promote

    def sleeps(*given: Any, **more: Any) -> Direction:
        found = promote(*given, **more)
        Record(Part(world.state, ("failover/m/",)), "m", "later").write_cut(Cut(at_ms=9, offsets={A0: 9}, lost={}))
        world.ledger().decide(lambda _: turn("m", later))
        return found

    monkeypatch.setattr(run, "promote", sleeps)
    with pytest.raises(TryAgain, match="mirror 'm': another direction was decided meanwhile"):
        world.fail_over()
    assert Record(Part(world.state, ("failover/m/",)), "m", "later").cut().offsets == {A0: 9}


def test_a_job_that_takes_the_lease_before_the_decision_ends_it(world: World) -> None:
    """What it writes would not be in the cut."""

    def taken() -> None:
        world.lease.epoch += 1

    world.lease.on_confirm = taken
    with pytest.raises(TryAgain, match="nothing was decided"):
        world.fail_over()
    assert not world.outcome()["direction"] and world.outcome()["open"] == set()


def taken_right_before_the_decision(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    promote, jobs = decision.promote, iter(["bulk"])

    def late(*given: Any, **more: Any) -> Direction:
        if job := next(jobs, ""):
            vars(world.lease).update(holder=job, epoch=world.lease.epoch + 2)
        return promote(*given, **more)

    monkeypatch.setattr(run, "promote", late)


def test_a_job_that_takes_the_lease_right_before_the_decision_loses_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    taken_right_before_the_decision(world, monkeypatch)
    report = world.fail_over()
    assert report.steps["writing"]["count"] == 1 and world.outcome()["holder"] == ""


def test_who_goes_on_with_a_call_that_died_in_its_wait_waits_for_all_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease said that writing was ended, and a task of the job that had it could write for six seconds more."""
    taken_right_before_the_decision(world, monkeypatch)
    assert world.dies(4, after=True) and world.effects.log[3:] == ["decide", "take the lease"]
    assert world.outcome()["direction"] and world.lease.holder == ""
    world.waits.clear()
    world.effects.log.clear()
    world.fail_over()
    assert world.waits == [("", HANDOVER_S)], "before anything else"
    assert world.outcome()["at"]["g"][A0].offset == 50


def test_failover_that_thaws_behind_another_direction_changes_nothing_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was frozen behind its decision; the way back was armed since, or taken."""
    monkeypatch.setattr(run, "_end_writing", lambda on, _, **__: on.ledger.decide(anew) and Found())
    with pytest.raises(TryAgain, match="mirror 'm': another direction was decided meanwhile"):
        world.fail_over()
    assert not [what for what in world.effects.log if what.startswith(("alter", "grant", "commit", "set"))]


def test_two_failovers_at_once_are_one(world: World) -> None:
    """The one that decides later goes by what is decided: its own cut may hold what applications wrote."""
    first: list[str] = []

    def overtaken() -> None:
        world.lease.on_confirm = lambda: None
        first.append(world.fail_over().direction.attempt)
        world.copied = {A0: 999, A1: 999, B0: 999}
        world.lease.epoch -= 1  # both took it, and each sees its own as the last

    world.lease.on_confirm = overtaken
    report = world.fail_over()
    assert report.direction.attempt == first[0]
    record = Record(Part(world.state, ("failover/m/",)), "m", first[0])
    assert record.cut().offsets == {A0: 50, A1: 40, B0: 30}
    assert {one.opened_by for one in owned_topics(world.ledger()).values()} == {f"failover {first[0]}"}


def test_failover_that_thaws_behind_an_armed_way_back_decides_nothing(world: World) -> None:
    """Another call had failed over, and the way back was armed. It "completed" that: topics passed to the way back's
    direction, and what the failover had noted was deleted.
    """
    first: list[Direction] = []

    def overtaken() -> None:
        world.lease.on_take = lambda: None
        first.append(world.fail_over().direction)
        attempt = f"failover-{first[0].attempt}"
        world.ledger().decide(lambda _: turn("m", replace(first[0], generation=2, by="cutover", attempt=attempt)))

    world.lease.on_take = overtaken
    with pytest.raises(TryAgain, match="mirror 'm': another direction was decided meanwhile, and nothing was decided"):
        world.fail_over()
    assert {its.opened_by for its in owned_topics(world.ledger()).values()} == {f"failover {first[0].attempt}"}
    assert Record(Part(world.state, ("failover/m/",)), "m", first[0].attempt).cut().offsets == {A0: 50, A1: 40, B0: 30}


def turned_since(world: World) -> None:
    """Let the way back of a failover have been armed, and its source's fence be down: it was taken, or given up."""
    world.ledger().decide(anew)
    world.fence(CLOSED)


@pytest.mark.parametrize("unattended", [True, False])
def test_failover_whose_way_back_was_armed_since_does_not_begin_again(world: World, unattended: bool) -> None:
    """Its topics are in production: settings and rights are their owners' by now, and the source may live."""
    first = world.fail_over().direction
    turned_since(world)
    world.seen = SourceEnds(at_ms=950_000, rates=(10.0,), missed_ms=951_000, partitions={A0: End(45, 45, 950_000)})
    armed = direction(world.ledger().values(), "m")
    assert armed is not None
    with pytest.raises(MirrorCutOver) as caught:
        world.fail_over(unattended=unattended)
    assert world.effects.log == [] and direction(world.ledger().values(), "m") == armed
    assert str(caught.value) == (
        f"mirror 'm' was cut over (by failover {first.attempt} at {first.at}; its direction was decided anew, by "
        f"'cutover' at {armed.at}): target topics a, b are in production. Nothing was touched. Where applications are "
        "back on its source, arm the way back of mirror 'm-reverse' ('airflow-mirror arm-reverse'): it copies here "
        "again, and can be failed over. To start over, end this mirror ('airflow-mirror retire'), then delete the target "
        "topics."
    )
    found = check.check(world.on(), "m", unattended=unattended)
    assert found.lines()[1] == f"a failover would be refused: {caught.value}"
    with pytest.raises(MirrorCutOver):
        world.fail_over(force=True)


@pytest.mark.parametrize("how", ["armed from there", "started over"])
def test_topics_that_are_the_mirrors_again_are_failed_over_again(world: World, how: str) -> None:
    """By the way back of the way back, or made anew: what the first failover opened says nothing of them."""
    first = world.fail_over().direction
    turned_since(world)
    if how == "started over":
        world.target.ids = {"a": "new-a", "b": "new-b"}
        ownership.claim(world.ledger(), PLAN, world.target)  # type: ignore[arg-type]
    else:
        ownership.adopt(world.ledger(), PLAN, world.target, require=lambda _: None, unless="x")  # type: ignore[arg-type]
    assert check.check(world.on(), "m").cut_over is None
    again = world.fail_over().direction
    assert (again.generation, again.by, again.attempt == first.attempt) == (first.generation + 2, "failover", False)
    assert {one.opened_by for one in owned_topics(world.ledger()).values()} == {again.opened_by}


def test_failover_that_is_decided_while_another_listens_is_completed_by_that_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: list[Direction] = []

    def overtaken(*_: Any) -> TailSeen:
        listening.undo()
        first.append(world.fail_over().direction)
        return TailSeen.of(LOST, "far", None)

    with monkeypatch.context() as listening:
        listening.setattr(check, "tail_of", overtaken)
        assert world.fail_over().direction == first[0]


@pytest.mark.parametrize(
    ("phase", "error", "said"),
    [
        (
            "up",
            TryAgain,
            "is up, raised .*: Nothing was changed. Wait until it has ended. If the source is gone it can't",
        ),
        (
            "lifting",
            InputError,
            "is being lifted: that does not end while the source is gone. Nothing was changed. Use f",
        ),
    ],
)
def test_a_cutover_that_is_at_work_refuses_a_failover(
    world: World, phase: str, error: type[MirrorError], said: str
) -> None:
    """By what is decided: its report may be written late, or never. With force it opens nothing any more.

    One whose source is gone can't lift its fence, and to try again is in vain.
    """
    world.fence(phase)
    with pytest.raises(error, match=f"fence of its cutover 'monday' {said}.*orce") as caught:
        world.fail_over()
    assert world.effects.log == []
    assert check.check(world.on(), "m").lines()[1] == f"a failover would be refused without force: {caught.value}"
    assert world.fail_over(force=True).direction.by == "failover"
    there = fence_state(world.ledger().values(), "m")
    assert there is not None
    with pytest.raises(MirrorCutOver):
        open_behind(world.ledger(), PLAN, there, {"a": "id-a"}, "noon", 2**62, Pin(direction=None, tail=None))


def test_a_tail_that_begins_right_before_the_decision_ends_it(world: World) -> None:
    """It waits for its lease, and writes then: what it writes would not be in the cut."""

    def begins() -> None:
        world.ledger().decide(lambda _: {"active/m": {**world.tail.value(), "job": "another"}})

    world.lease.on_confirm = begins
    with pytest.raises(TryAgain, match="mirror 'm': another tail began meanwhile"):
        world.fail_over()
    assert not world.outcome()["direction"] and world.outcome()["open"] == set()


@pytest.mark.parametrize("before", [True, False], ids=["behind another", "the first"])
def test_a_tail_that_begins_while_its_forerunner_is_listened_for_is_judged_itself(
    world: World, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """Nobody had listened to it: it lives, and may see the source."""
    later = replace(world.tail, job="later")

    def begins(*_: Any) -> TailSeen:
        world.ledger().decide(lambda _: {"active/m": later.value()})
        return TailSeen.of(LOST, "far", None) if before else TailSeen()

    if not before:
        world.ledger().decide(lambda _: {"active/m": None})
    world.effects.log.clear()
    with monkeypatch.context() as patched:
        patched.setattr(check, "tail_of", begins)
        with pytest.raises(TryAgain, match="mirror 'm': another tail began while the one before was listened for"):
            world.fail_over()
    assert world.effects.log == ["decide"], "the tail's own; it is not stopped, and keeps its lease"
    with pytest.raises(InputError, match="its tail runs on host 'far', and may see the source"):
        world.fail_over()
    later = replace(later, job="third")
    with monkeypatch.context() as patched:
        patched.setattr(check, "tail_of", begins)
        assert world.fail_over(force=True).direction.by == "failover", "who forces takes it from whichever there is"


def test_a_tail_of_another_plan_is_not_taken_for_that_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by force: its topics are others than those that would be opened."""
    later = replace(world.tail, job="later", plan="another")

    def begins(*_: Any) -> TailSeen:
        world.ledger().decide(lambda _: {"active/m": later.value()})
        return TailSeen()

    monkeypatch.setattr(check, "tail_of", begins)
    with pytest.raises(TryAgain, match="mirror 'm': another tail began"):
        world.fail_over(force=True)
    assert world.effects.log == ["decide"] and not world.outcome()["direction"]


@pytest.mark.parametrize("tail", [True, False])
@pytest.mark.parametrize("listed", [True, False])
def test_mirror_that_was_started_over_is_failed_over_anew(
    world: World, monkeypatch: pytest.MonkeyPatch, listed: bool, tail: bool
) -> None:
    """By the old failover nothing was left to do: new topics were opened beside a tail, or a bulk copy, that copied on.

    A broker that has just started lists none of them.
    """
    first = world.fail_over().direction
    world.target.ids = {"a": "new-a", "b": "new-b"}
    ownership.claim(world.ledger(), PLAN, world.target)  # type: ignore[arg-type]
    world.lease.holder = "who copies"
    if tail:
        world.ledger().decide(lambda _: {"active/m": world.tail.value()})
    world.sign(0.0)
    topics, answers = world.target.topics, [dict[str, TopicInfo]()] * (not listed)
    refusal = "cut off from here is not gone" if tail else "none has missed the source"
    with monkeypatch.context() as patched:
        patched.setattr(world.target, "topics", lambda names: answers.pop() if answers else topics(names))
        with pytest.raises(InputError, match=refusal):
            world.fail_over(unattended=not tail)
    assert world.lease.holder == "who copies" and world.outcome()["open"] == set()
    world.sign(60.0)
    world.target.configs["a"] = {"retention.ms": "-1"}
    world.target.at["g"][A0] = GroupPosition(77)  # beyond where this copy ended
    again = world.fail_over()
    assert (world.target.at["g"][A0].offset, world.target.configs["a"]) == (50, {"retention.ms": "60000"})
    assert (again.direction.generation, again.direction.attempt == first.attempt) == (first.generation + 1, False)
    assert world.outcome()["open"] == {"a", "b"} and not world.outcome()["tail"] and world.lease.holder == ""
    assert tuple(again.steps) == STEPS
    assert Record(Part(world.state, ("failover/m/",)), "m", again.direction.attempt).cut().offsets == world.copied


@pytest.mark.parametrize("tail", [True, False])
def test_tail_that_is_decided_behind_a_failover_leaves_it_to_be_completed(
    world: World, monkeypatch: pytest.MonkeyPatch, tail: bool
) -> None:
    """It had looked before. Decided anew, the cut would be where applications write by now.

    So it would be without a tail, of a failover that has not opened all of the topics yet.
    """
    monkeypatch.setattr(ownership, "_AT_ONCE", 1)
    assert world.dies(3, after=True) and world.effects.log[3:] == ["decide"] and world.outcome()["open"] == {"a"}
    if tail:
        world.ledger().decide(lambda _: {"active/m": world.tail.value()})
    decided = direction(world.ledger().values(), "m")
    assert world.fail_over().direction == decided


def pass_on(world: World, *topics: str) -> None:
    """As a split does, which is killed before the old mirror has a plan without them."""
    ownership.give_up(world.ledger(), "m", topics)
    ownership.pass_on(world.ledger(), "m", "n", topics)
    world.effects.log.clear()


def test_topics_that_have_passed_on_stay_with_their_mirror(world: World) -> None:
    """A source that is lost right behind a split takes no topic of the old mirror along."""
    pass_on(world, "b")
    world.target.at["reads b"] = {B0: GroupPosition(99)}
    left = "left out: b belongs to mirror 'n' of cluster s"
    found = check.check(world.on(), "m")
    assert found.lines()[-1] == left and found.to_dict()["others"] == [left] and found.to_dict()["topics"] == 1
    report = world.fail_over()
    outcome = world.outcome()
    assert outcome["open"] == {"a"} and owned_topics(world.ledger())["b"].mirror == "n"
    assert outcome["configs"] == {"a": {"retention.ms": "60000"}, "b": {"retention.ms": "-1"}}
    assert outcome["at"]["reads b"] == {B0: GroupPosition(99)} and outcome["at"]["g"][A0].offset == 50
    assert left in report.lines() and report.to_dict()["others"] == [left] and report.direction.plan == PLAN.hash
    world.effects.log.clear()
    assert world.fail_over().lines() == report.lines() and world.effects.log == []


def test_groups_that_read_what_has_passed_on_are_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, replace(PLAN, positions={"g": {"a": {0: 1}}, "h": {"b": {0: 1}}}))
    pass_on(world, "b")
    assert check.check(world.on(), "m").groups.without == ("g",)


def test_topics_that_a_split_was_about_to_pass_on_are_opened(world: World) -> None:
    """Until another mirror has them they are nobody else's; the split that goes on finds nothing left to give."""
    ownership.give_up(world.ledger(), "m", ["b"])
    assert check.check(world.on(), "m").others == {}
    world.fail_over()
    ownership.pass_on(world.ledger(), "m", "n", ["b"])
    ownership.free(world.ledger(), "m", ["b"])
    one = owned_topics(world.ledger())["b"]
    assert (one.mirror, one.released) == ("m", None) and world.outcome()["open"] == {"a", "b"}


def test_topics_that_pass_on_right_before_the_decision_end_it(world: World) -> None:
    ownership.give_up(world.ledger(), "m", ["b"])
    world.lease.on_confirm = lambda: ownership.pass_on(world.ledger(), "m", "n", ["b"])
    with pytest.raises(TryAgain, match="mirror 'm': topics passed on meanwhile, and nothing was decided"):
        world.fail_over()
    assert world.outcome()["open"] == set() and not world.outcome()["direction"]
    world.fail_over()
    assert world.outcome()["open"] == {"a"}


def test_mirror_without_a_topic_of_its_own_is_refused(world: World) -> None:
    pass_on(world, "a", "b")
    said = r"mirror 'm' has no topic of its own: left out: a belongs to mirror 'n'.*; left out: b .* Fail over the"
    for call in (partial(check.check, world.on(), "m"), partial(world.fail_over, force=True)):
        with pytest.raises(InputError, match=said):
            call()
    assert world.effects.log == []
