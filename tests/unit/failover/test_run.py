"""A failover that is completed from wherever it was killed, and what it refuses before that."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.failover import check
from airflow_mirror.cutover.failover.record import STEPS, Record
from airflow_mirror.errors import (
    InputError,
    MirrorCutOver,
    TopicsShared,
    TryAgain,
)
from airflow_mirror.jobs.runner.active import Sign
from airflow_mirror.jobs.runner.state import LOST, RUNNING
from airflow_mirror.kafka.model import Acl, GroupPosition
from airflow_mirror.ledger.records import AMENDMENT
from airflow_mirror.plan import ownership, requirements
from airflow_mirror.plan.amendment import next_amendment
from airflow_mirror.plan.direction import Direction, direction, turn
from airflow_mirror.plan.ledger_store import amend
from airflow_mirror.plan.owned import active_topics, owned_topics
from airflow_mirror.sync import seen_acls
from airflow_mirror.sync.ends.notes import End, SourceEnds
from tests.builders import plan_of, topic_plan
from tests.unit.failover.world import A0, A1, B0, PLAN, WRITERS, Part, World
from tests.unit.plan.builders import a_mirror

FOLLOW = ("sync_groups", "sync_configs", "sync_topics", "sync_log_starts")


DONE = {
    "open": {"a", "b"}, "direction": True, "tail": False, "holder": "",
    "configs": {"a": {"retention.ms": "60000"}, "b": {}}, "acls": set(WRITERS),
}  # fmt: skip


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


def test_topics_that_join_until_the_tail_is_ended_are_opened(world: World) -> None:
    """Somebody has looked for half a minute at the plan as it was before."""
    joined = next_amendment(PLAN, [topic_plan("c", {0: 0}, source_topic_id="3")], [], "noon")
    world.lease.on_take = lambda: amend(joined, "m", Part(world.state, (AMENDMENT.below("m"),)), world.ledger())
    world.target.ids["c"], world.target.stable[TopicPartition("c", 0)] = "id-c", 20
    world.target.configs["c"] = {}
    world.fail_over()
    assert world.outcome()["open"] == {"a", "b", "c"}


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


def test_unknown_mirrors_and_other_targets_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mirror.cutover.failover.run import run

    with pytest.raises(
        InputError, match="mirror 'x': the target's ledger knows no such mirror. Nothing was changed. Give one of m"
    ):
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
