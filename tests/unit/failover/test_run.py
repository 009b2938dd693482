"""A failover that is completed from wherever it was killed, and what it refuses before that."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
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
    TopicsShared,
    TryAgain,
)
from airflow_mirror.jobs.runner.active import Sign
from airflow_mirror.jobs.runner.state import LOST, RUNNING
from airflow_mirror.kafka.model import Acl, GroupPosition, TopicInfo
from airflow_mirror.ledger.records import AMENDMENT
from airflow_mirror.plan import ownership, requirements
from airflow_mirror.plan.amendment import next_amendment
from airflow_mirror.plan.direction import Direction, direction, turn
from airflow_mirror.plan.ledger_store import amend
from airflow_mirror.plan.owned import active_topics, owned_topics
from airflow_mirror.sync import seen_acls
from airflow_mirror.sync.ends.notes import End, SourceEnds
from tests.builders import plan_of, topic_plan
from tests.unit.failover.run_world import (
    anew,
)
from tests.unit.failover.world import A0, A1, B0, PLAN, WRITERS, Part, World
from tests.unit.plan.builders import a_mirror

FOLLOW = ("sync_groups", "sync_configs", "sync_topics", "sync_log_starts")


DONE = {
    "open": {"a", "b"}, "direction": True, "tail": False, "holder": "",
    "configs": {"a": {"retention.ms": "60000"}, "b": {}}, "acls": set(WRITERS),
}  # fmt: skip


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    one = World(monkeypatch)
    one.target.at = {"g": {A0: GroupPosition(55, "note"), B0: GroupPosition(30)}, "h": {A1: GroupPosition(3)}}
    return one


def test_applications_may_write_only_when_nobody_else_does(world: World) -> None:
    report = world.fail_over()
    assert [line.replace(report.direction.attempt, "X") for line in world.effects.log] == [
        f"write job/m/{world.tail.job}/stop", "take the lease", "write failover/m/X/cut/0", "decide",
        "write failover/m/X/done/writing", "commit g", "write failover/m/X/done/groups", "alter a", "alter b",
        "write configs/m/a",
        "write failover/m/X/done/settings", "grant", "grant", "write failover/m/X/done/grants",
    ]  # fmt: skip
    at = {"g": {A0: GroupPosition(50, "note"), B0: GroupPosition(30)}, "h": {A1: GroupPosition(3)}}
    assert world.outcome() == DONE | {"at": at}
    assert [rule.permission for rule in world.target.acls] == ["DENY", "ALLOW"]


def test_whatever_kills_it_the_next_call_completes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after every effect, and the call that completes it is killed as well.

    Applications write as soon as they may, and one of their groups is moved: to where the mirror never set it.
    """
    number = 0
    for first in range(50):
        for after in (False, True):
            world = World(monkeypatch)
            world.target.at = {"g": {A0: GroupPosition(55)}, "h": {A1: GroupPosition(45)}}
            if not world.dies(first, after=after):
                assert first > 11
                return
            open_before = world.outcome()["open"]
            assert world.outcome()["direction"] == (open_before == {"a", "b"})
            cut = dict(world.copied)
            if open_before:
                world.copied = {A0: 999, A1: 999, B0: 999}  # applications write from now on
                world.target.stable = dict(world.copied)
                world.target.at["h"][A1] = GroupPosition(60)
            world.dies(first // 2, after=after)
            report = world.fail_over()
            at = {"g": {A0: GroupPosition(50)}, "h": {A1: GroupPosition(60 if open_before else 40)}}
            assert world.outcome() == DONE | {"at": at}
            record = Record(Part(world.state, ("failover/m/",)), "m", report.direction.attempt)
            assert record.cut().offsets == cut
            assert {key.split("/")[2] for key in Part(world.state, ("failover/m/",)).read()} == {report.direction.attempt}
            number += 1


def test_a_finished_failover_changes_nothing_any_more(world: World) -> None:
    first = world.fail_over()
    assert tuple(first.steps) == STEPS, "a mirror is retired once these are noted"
    world.target.configs["a"] = {"retention.ms": "1"}  # its owner's, by now
    world.target.at["g"][A0] = GroupPosition(4_000)
    world.effects.log.clear()
    again = world.fail_over()
    assert world.effects.log == [] and again.steps == first.steps and again.lost == first.lost
    assert again.lines() == first.lines()


def test_slower_call_forgets_no_step_that_the_faster_one_has_done(world: World) -> None:
    """Or a call of next week would do it again: settings and groups of production."""
    assert world.dies(3, after=True)  # decided, and no step noted

    def meanwhile(seconds: float) -> None:
        """Another call completes the failover while this one waits for a task that nobody can hear."""
        world.wait = lambda _: None  # type: ignore[method-assign]
        world.fail_over()
        world.target.configs["a"] = {"retention.ms": "1"}  # its owner's, by now

    world.wait = meanwhile  # type: ignore[method-assign]
    with pytest.raises(TryAgain, match="another call has done the step"):
        world.fail_over()
    assert tuple(world.fail_over().steps) == STEPS
    assert world.target.configs["a"] == {"retention.ms": "1"}


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
    with pytest.raises(TryAgain, match="another direction of mirror 'm' was decided meanwhile"):
        world.fail_over()
    assert Record(Part(world.state, ("failover/m/",)), "m", "later").cut().offsets == {A0: 9}


@pytest.mark.parametrize("unseen_s", [0.0, 29.0, None])
def test_a_tail_that_sees_the_source_refuses(world: World, unseen_s: float | None) -> None:
    """Or may see it: one that has not said anything about it."""
    world.sign(unseen_s)
    world.effects.log.clear()
    with pytest.raises(InputError, match="tail runs on host 'far'"):
        world.fail_over()
    assert world.effects.log == []
    world.fail_over(force=True)
    assert world.outcome()["direction"]


def test_who_could_not_complete_it_is_refused_before_anything_is_touched(world: World) -> None:
    """Each right alone; also on a group that came to the target after the plan was made."""
    for name, operation, why in (
        ("topic a", "ALTER_CONFIGS", "retention off while the mirror writes"),
        ("group h", "READ", "read and commit positions"),
        ("topic airflow-mirror.decisions", "WRITE", "make a topic the mirror's"),
    ):
        world.target.denied = [(name.split()[1], operation)]
        with pytest.raises(InputError, match=f"{operation} is not allowed to the mirror on {name} .{why}") as caught:
            world.fail_over()
        assert caught.value.remedy == (
            "Grant them by the commands that this prints, or use a connection whose principal has them: airflow-mirror "
            "rights --name m --principal User:mirror --role failover --side target. With force, what needs them fails "
            "behind the decision, and stays to be done."
        ) and str(caught.value).startswith("mirror 'm' can't be failed over with these rights on the target: ")
        assert world.effects.log == []
        found = check.check(world.on(), "m")
        assert [str(one) for one in found.lacking] == found.to_dict()["lacking"]
        assert caught.value.cause == f"{'; '.join(map(str, found.lacking))}. Nothing was changed"
        assert "refused without force" in found.lines()[1]
    world.target.denied = [("kafka-cluster", "ALTER")]  # this mirror lets no rules of writers follow
    assert world.fail_over().steps


def test_with_force_or_once_it_is_decided_missing_rights_refuse_nothing(world: World) -> None:
    """A half is completed as far as it goes: nobody takes it back."""
    world.target.denied = [("a", "ALTER_CONFIGS")]
    assert world.fail_over(force=True).steps
    assert world.fail_over().steps


def test_a_look_that_failed_as_a_whole_is_no_absence_of_the_source(world: World) -> None:
    """The tail could not read its notes, say: nobody knows what it sees."""
    sign = Sign(number=2, state=RUNNING, at=5000.0, follows={"source": {"error": "no broker", "at": 5000.0}})
    world.state.write({f"job/m/{world.tail.job}/sign": sign.encode()})
    with pytest.raises(InputError, match="may see the source"):
        world.fail_over()
    never = Sign(number=3, state=RUNNING, at=5000.0, follows={"source": {"seen": None, "at": 5000.0}})
    world.state.write({f"job/m/{world.tail.job}/sign": never.encode()})
    world.fail_over()


def test_a_source_seen_a_moment_ago_by_a_tail_that_died(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.heard = LOST
    monkeypatch.setattr("tests.unit.failover.world.time.time", lambda: 100.0)
    world.seen = SourceEnds(at_ms=80_000, partitions={A0: End(60, 60, 80_000)})
    with pytest.raises(
        InputError,
        match="mirror 'm': .*20 s ago: cut off from here is not gone. Nothing was changed. If the source lives, cut over "
        r"instead \(CutoverOperator\): nothing is lost then. If it has just gone, try again in half a minute; or use "
        r"force: "
        "what the source takes from now on is lost.",
    ):
        world.fail_over()
    world.seen = SourceEnds(at_ms=60_000, partitions={A0: End(60, 60, 60_000)})
    assert world.fail_over().lost["at_least"] == 10


@pytest.mark.parametrize("heard", [LOST, "FAILED", "SUCCEEDED"])
def test_without_approval_a_tail_that_ended_is_no_proof_that_the_source_has(world: World, heard: str) -> None:
    """Its own host may be all that was lost, and producers write on."""
    world.heard = heard
    at_ms = int(time.time() * 1000) - 120_000
    seen = world.seen = SourceEnds(at_ms=at_ms, partitions={A0: End(50, 50, at_ms)})
    said = f"its tail on host 'far' is {heard}, and none has missed the source: it may live. Nothing was changed"
    with pytest.raises(InputError, match=said):
        world.fail_over(unattended=True)
    assert world.effects.log == []
    assert "refused without force" in check.check(world.on(), "m", unattended=True).lines()[1]
    assert "refused" not in check.check(world.on(), "m").lines()[1]
    world.seen = replace(seen, missed_ms=at_ms + 1_000)
    assert world.fail_over(unattended=True).direction.by == "failover"


@pytest.mark.parametrize("how", [{"unattended": True, "force": True}, {}])
def test_who_has_approved_or_forces_needs_no_proof_that_the_source_is_gone(world: World, how: dict[str, bool]) -> None:
    world.heard = LOST
    assert world.fail_over(**how).direction.by == "failover"


def test_without_approval_a_tail_that_misses_the_source_is_proof(world: World) -> None:
    assert world.fail_over(unattended=True).direction.by == "failover"


def test_without_approval_or_tail_nothing_is_failed_over(world: World) -> None:
    world.ledger().decide(lambda _: {"active/m": None})
    with pytest.raises(InputError, match="it has no tail, and none has missed the source"):
        world.fail_over(unattended=True)


def test_a_report_tells_both_ends_of_a_source_that_was_missed(world: World) -> None:
    """The cut is 5 offsets beyond the last look; until now is 40 s more, of ten offsets each."""
    world.seen = SourceEnds(at_ms=950_000, rates=(10.0,), missed_ms=951_000, partitions={A0: End(45, 45, 950_000)})
    found = world.fail_over(force=True)
    assert found.lost["missed_s"] == 1.0 and found.lost["at_most"] < found.lost["until_now"]
    assert f"; if the source was only cut off, and went on, {found.lost['until_now']:,}" in found.lines()[1]


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
    with pytest.raises(TryAgain, match="another direction of mirror 'm' was decided meanwhile"):
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


def test_the_mirrors_jobs_may_not_write_any_more(world: World) -> None:
    """Neither a new plan's nor the finished one's, nor what follows the data."""
    world.fail_over()
    ledger, target = world.ledger(), world.target
    for refused in (requirements.require_active, ownership.claim):
        with pytest.raises(MirrorCutOver):
            refused(ledger, PLAN, target)  # type: ignore[operator]
    assert active_topics(ledger, PLAN, target) == set()  # type: ignore[arg-type]


def test_topics_that_a_cutover_has_handed_over_stay_open_since_then(world: World) -> None:
    """One was created again since: what is done to all would be done to the other one, in production, as well."""
    ownership.mark_cut_over(world.ledger(), PLAN, {"a": "id-a"}, "noon")
    world.effects.log.clear()
    with pytest.raises(MirrorCutOver, match="target topics a are in production"):
        world.fail_over()
    assert world.effects.log == []
    world.fail_over(force=True)
    assert world.outcome()["open"] == {"a", "b"}
    assert owned_topics(world.ledger())["a"].opened_at == "noon"


def test_a_finished_cutover_leaves_nothing_to_fail_over(world: World) -> None:
    world.fence("opened")
    with pytest.raises(MirrorCutOver, match="run 'monday' has opened the target") as caught:
        world.fail_over(force=True)
    assert world.effects.log == []
    assert check.check(world.on(), "m").lines()[1] == f"a failover would be refused: {caught.value}"


def test_a_cutover_whose_fence_is_over_leaves_nothing_to_fail_over(world: World) -> None:
    """Not kept, or lifted by a person: its record alone says nothing of an opening. Its topics do."""
    ownership.mark_cut_over(world.ledger(), PLAN, {"a": "id-a", "b": "id-b"}, "noon")
    with pytest.raises(MirrorCutOver, match="was cut over .noon.: target topics a, b are in production"):
        world.fail_over(force=True)
    assert world.effects.log == ["decide"], "the opening alone"


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
    with pytest.raises(TryAgain, match="another tail of mirror 'm' began meanwhile"):
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
        with pytest.raises(TryAgain, match="another tail of mirror 'm' began while the one before was listened for"):
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
    with pytest.raises(TryAgain, match="another tail of mirror 'm' began"):
        world.fail_over(force=True)
    assert world.effects.log == ["decide"] and not world.outcome()["direction"]


def test_topics_that_join_until_the_tail_is_ended_are_opened(world: World) -> None:
    """Somebody has looked for half a minute at the plan as it was before."""
    joined = next_amendment(PLAN, [topic_plan("c", {0: 0}, source_topic_id="3")], [], "noon")
    world.lease.on_take = lambda: amend(joined, "m", Part(world.state, (AMENDMENT.below("m"),)), world.ledger())
    world.target.ids["c"], world.target.stable[TopicPartition("c", 0)] = "id-c", 20
    world.target.configs["c"] = {}
    world.fail_over()
    assert world.outcome()["open"] == {"a", "b", "c"}


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


def test_more_topics_than_a_decision_holds_are_opened(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "_AT_ONCE", 1)
    assert world.dies(4, after=False)  # between the two decisions
    assert world.outcome()["open"] == {"a"} and world.outcome()["direction"]
    with pytest.raises(MirrorCutOver):
        requirements.require_active(world.ledger(), PLAN, world.target)  # type: ignore[arg-type]
    world.fail_over()
    assert world.outcome()["open"] == {"a", "b"}


@pytest.mark.parametrize("died", [False, True])
def test_topics_that_a_broker_does_not_list_are_opened_or_nothing_is_decided(
    monkeypatch: pytest.MonkeyPatch, died: bool
) -> None:
    """It has just started, whenever it is asked. A job that is run again would copy into what applications use.

    One that is gone by the word of several keeps the others from nothing.
    """
    monkeypatch.setattr(ownership, "_AT_ONCE", 1 if died else 1000)
    plan, refusals = plan_of(a_mirror(name="m"), *PLAN.topics, topic_plan("gone", {0: 0}, source_topic_id="3")), 0
    for nth in range(20):
        world = World(monkeypatch, plan)
        assert not died or world.dies(3, after=True)
        before = world.outcome()["open"], world.outcome()["direction"]
        listings, topics = count(), world.target.topics

        def young(names: Any = None, *, nth: int = nth, topics: Any = topics, listings: Any = listings) -> Any:
            return {} if next(listings) == nth else topics(names)

        world.target.topics = young  # type: ignore[method-assign]
        wanted = {"a", "b"}, True
        try:
            world.fail_over()
        except TryAgain as e:
            assert "target topics" in str(e)
            wanted, refusals = before, refusals + 1
        assert (world.outcome()["open"], world.outcome()["direction"]) == wanted
        asked = next(listings)
        world.fail_over()
        assert (world.outcome()["open"], world.outcome()["direction"]) == ({"a", "b"}, True)
        if asked <= nth:  # of none that was there it had lacked the topics
            break
    assert refusals and asked <= nth


def test_what_lay_beyond_the_cut_goes_back_to_it_however_much_was_written_since(world: World) -> None:
    """It would skip what applications wrote first. Where they have moved a group, or set one, that is theirs."""
    world.target.at = {
        "g": {A0: GroupPosition(55, "note"), A1: GroupPosition(45), B0: GroupPosition(30)},
        "gone": {A0: GroupPosition(70)}, "read": {A0: GroupPosition(55)}, "same": {A0: GroupPosition(55)},
    }  # fmt: skip
    assert world.dies(3, after=True) and world.effects.log[3:] == ["decide"]
    world.target.stable = {A0: 60, A1: 60, B0: 60}
    world.target.at["g"][B0] = GroupPosition(61)
    world.target.at |= {"read": {A0: GroupPosition(58)}, "same": {A0: GroupPosition(55, "theirs")}}
    world.target.at["new"] = {A0: GroupPosition(61)}
    del world.target.at["gone"]
    report = world.fail_over()
    assert world.target.at == {
        "g": {A0: GroupPosition(50, "note"), A1: GroupPosition(40), B0: GroupPosition(61)},
        "read": {A0: GroupPosition(58)}, "same": {A0: GroupPosition(55, "theirs")}, "new": {A0: GroupPosition(61)},
    }  # fmt: skip
    assert sorted(report.steps["groups"]["lines"]) == [
        "g at a-0: 55 -> 50", "g at a-1: 45 -> 40",
        "read at a-0: stood at 55, beyond the copy's end, and was set to 58 since; it stays, and may have skipped "
        "records from 50 on",
        "same at a-0: stood at 55, beyond the copy's end, and was set to 55 since; it stays, and may have skipped "
        "records from 50 on",
    ]  # fmt: skip


def test_groups_with_members_are_left_and_named(world: World) -> None:
    world.target.members = {"g"}
    report = world.fail_over()
    assert world.target.at["g"][A0].offset == 55
    assert report.steps["groups"]["lines"] == ["g: has members and stays beyond the end of 1 partitions, as a-0"]


def many_topics(monkeypatch: pytest.MonkeyPatch) -> World:
    """Sixty topics on hold, the last of which the target's policy leaves there."""
    names = [f"t{n:02}" for n in range(60)]
    world = World(monkeypatch, plan_of(a_mirror(name="m"), *(topic_plan(t, {0: 0}, source_topic_id=t) for t in names)))
    world.target.ids = dict(zip(names, names, strict=True))
    world.target.configs = {name: {"retention.ms": "-1"} for name in names}
    world.target.refused = {"t59"}
    return world


def test_a_setting_that_the_target_refuses_is_said_before_what_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind fifty lines nobody would see that a topic in production is never deleted from."""
    world = many_topics(monkeypatch)
    report = world.fail_over()
    assert (
        report.lines()[2] == "settings: refused, tried again by the same command: t59: retention.ms: no policy takes it"
    )
    settings = report.steps["settings"]
    assert (settings["count"], settings["left"], len(settings["lines"])) == (60, 1, 51)
    assert "settings: and 9 more" in report.lines()
    assert "t59" not in " ".join(key for key in world.state.read() if key.startswith("configs/"))


def test_a_setting_that_the_target_refused_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is its owners' by then, and the failover is as complete as before."""
    world = many_topics(monkeypatch)
    first = world.fail_over()
    world.target.configs["t00"] = {"retention.ms": "1"}  # its owner's, by now
    world.effects.log.clear()
    again = world.fail_over()
    assert again.steps["settings"]["lines"][0] == first.steps["settings"]["lines"][0] and tuple(again.steps) == STEPS
    assert "settings: left alone, since it is in production: t00: {'retention.ms': '1'} -> {}" in again.lines()
    world.target.refused.clear()
    last = world.fail_over()
    assert [line for line in world.effects.log if line.startswith("alter")] == ["alter t59"]
    assert "refused" not in " ".join(last.lines()) and last.steps["settings"]["count"] == 61
    assert world.target.configs["t59"] == {} and world.target.configs["t00"] == {"retention.ms": "1"}
    world.effects.log.clear()
    assert world.fail_over().lines() == last.lines() and world.effects.log == []


def test_slower_call_tries_no_setting_that_the_faster_one_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    world = many_topics(monkeypatch)
    world.fail_over()
    world.target.refused.clear()
    alter = world.target.alter_topic_configs

    def meanwhile(*given: Any) -> None:
        monkeypatch.setattr(world.target, "alter_topic_configs", alter)
        world.fail_over()
        world.target.configs["t59"] = {"retention.ms": "1"}  # its owner's, by now
        alter(*given)

    monkeypatch.setattr(world.target, "alter_topic_configs", meanwhile)
    with pytest.raises(TryAgain, match="another call has done the step 'settings'"):
        world.fail_over()
    assert world.target.configs["t59"] == {"retention.ms": "1"}


def test_rules_that_nobody_noted_are_left_to_a_person(world: World) -> None:
    world.state.write({key: None for key in world.state.read() if key.startswith("acls/")})
    report = world.fail_over()
    assert "no rules of writers are known" in report.steps["grants"]["lines"][0] and world.target.acls == []


@pytest.mark.parametrize(("generation", "acls"), [(0, set()), (2, set()), (3, set(WRITERS))])
def test_rules_that_were_noted_before_the_last_change_of_direction_let_nobody_in(
    world: World, generation: int, acls: set[Acl]
) -> None:
    """In a round of disasters before this one. The target was in production since, where they may have been revoked."""
    armed = Direction(generation=3, primary="s", by="armed", attempt="monday", plan="x", at="noon")
    world.ledger().decide(lambda _: turn("m", armed))
    world.state.write(seen_acls.changed("m", {}, WRITERS, generation))  # type: ignore[arg-type]
    report = world.fail_over()
    assert {*world.target.acls} == acls
    assert ("no rules of writers are known" in report.steps["grants"]["lines"][0]) is (acls == set())


def test_topics_that_are_not_there_are_named(world: World) -> None:
    del world.target.ids["b"]
    report = world.fail_over()
    assert "b: it is not there" in report.steps["settings"]["lines"]
    assert world.outcome()["open"] == {"a"}


def pass_on(world: World, *topics: str) -> None:
    """As a split does, which is killed before the old mirror has a plan without them."""
    ownership.give_up(world.ledger(), "m", topics)
    ownership.pass_on(world.ledger(), "m", "n", topics)
    world.effects.log.clear()


def test_an_approval_of_what_was_seen_hours_ago_fails_nothing_over(world: World) -> None:
    """The source may have been back in between, and taken records: they are in no loss that anybody has read."""
    long_ago = time.time() - 3700
    world.effects.log.clear()
    with pytest.raises(InputError, match=r"too old: it was seen at .*\+00:00, more than 3600 s ago .*Clear 'check'"):
        world.fail_over(shown_at=long_ago)
    assert world.effects.log == []
    report = world.fail_over(shown_at=long_ago, approval_valid_s=3800.0)
    assert world.fail_over(shown_at=0.0).direction == report.direction, "what is decided is completed at any time"


def test_by_force_it_is_not_asked_how_old_an_approval_is(world: World) -> None:
    assert world.fail_over(shown_at=0.0, force=True).direction.primary == PLAN.target_cluster_id


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
    with pytest.raises(TryAgain, match="topics of mirror 'm' passed on meanwhile, and nothing was decided"):
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


def test_unknown_mirrors_and_other_targets_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mirror.cutover.failover.run import run

    with pytest.raises(InputError, match="knows no mirror 'x'; it knows m"):
        run(world.on(), "x")
    monkeypatch.setattr(world.target, "cluster_id", lambda: "another")
    with pytest.raises(InputError, match="planned for target cluster t, and this is another"):
        world.fail_over()


def test_shared_topics_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = {"ownership": "shared", "offsets": "mapped", "delivery": "transactional", **dict.fromkeys(FOLLOW, False)}
    mirror = a_mirror(name="m", **alone)  # type: ignore[arg-type]
    world = World(monkeypatch, plan_of(mirror, *PLAN.topics))
    with pytest.raises(TopicsShared):
        world.fail_over(force=True)


def test_the_decision_reads_back_as_it_was_made(world: World) -> None:
    made = world.fail_over().direction
    assert direction(world.ledger().values(), "m") == made
    assert (made.generation, made.primary, made.by, made.plan) == (1, "t", "failover", PLAN.hash)


def test_a_failover_onto_an_old_source_is_a_generation_higher(world: World) -> None:
    """The lost target, should it return, says that it was the primary when the mirror to here was armed."""
    armed = Direction(generation=3, primary="s", by="armed", attempt="monday", plan="x", at="noon")
    world.ledger().decide(lambda _: turn("m", armed))
    made = world.fail_over().direction
    assert (made.generation, made.primary, made.by) == (4, "t", "failover")
    assert world.fail_over().direction == made and world.outcome()["open"] == {"a", "b"}
