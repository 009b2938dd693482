"""What is armed, in which order, and what there is no way back from."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.cutover.decision import CLOSED
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.rollback.arm import armed, cutover_of
from airflow_mirror.cutover.rollback.reverse import reverse_of
from airflow_mirror.cutover.rollback.run import way_back
from airflow_mirror.errors import (
    InputError,
    LedgerMissing,
    MirrorCutOver,
    NothingMatches,
    NoWayBack,
    TopicsOwned,
    TryAgain,
)
from airflow_mirror.ledger.kinds import in_pieces
from airflow_mirror.plan import ledger_store, ownership, requirements
from airflow_mirror.plan.direction import FAILOVER, Direction, turn
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import ended_by, owned_topics
from airflow_mirror.verify.bounds import bounds_difference
from airflow_mirror.verify.pairs import paired
from airflow_mirror.verify.result import LogBounds
from tests.builders import plan_of, rule, topic_plan
from tests.unit.cutover.authorizer import may_write
from tests.unit.cutover.builders import GivenSide
from tests.unit.ledger.memory import MemoryLedger
from tests.unit.rollback.arming import (
    raise_,
)
from tests.unit.rollback.world import MIRROR, ORDERS, PLAN, REVERSE, Died, World


@pytest.fixture
def world() -> World:
    return World()


def is_armed(world: World) -> bool:
    """The reverse mirror may write to the old source, by decisions on both sides, and applications may not."""
    decided = armed("flow", world.new.ledger.values())
    owned = owned_topics(world.old.ledger).get("orders")
    assert decided is not None and owned is not None
    requirements.require_active(world.old.ledger, REVERSE, world.old)  # type: ignore[arg-type]
    assert (decided.generation, decided.primary, decided.attempt, decided.plan) == (1, "new", "monday", REVERSE.hash)
    assert (owned.mirror, owned.topic_id, owned.opened_by) == ("flow-reverse", "id-old", None)
    assert not may_write(world.old.acls, "User:shop", "orders")
    return may_write(world.old.acls, "User:mirror", "orders")


def test_armed_way_back_is_decided_on_both_clusters(world: World) -> None:
    found = world.arm()
    assert is_armed(world) and found.plan == REVERSE and world.built == [reverse_of(MIRROR)]
    assert ledger_store.last_hash(world.old.ledger.values(), "flow-reverse") == REVERSE.hash
    said = found.lines()[0]
    assert all(
        words in said
        for words in (
            "a JVM of its own",
            "no end by itself",
            "'kafka_failback'",
            "retire --target old --mirror flow-reverse",
        )
    ), said
    before = world.changes.left
    assert world.arm().direction == found.direction and world.changes.left == before, "a second call changes nothing"


@pytest.mark.parametrize(("armed_by", "seen_by"), [(None, "night"), ("kafka_reverse_mirror", "kafka_reverse_mirror")])
def test_reverse_mirror_is_seen_by_readers_of_the_dag_that_armed_it_or_of_its_mirrors(
    world: World, armed_by: str | None, seen_by: str
) -> None:
    ledger_store.keep(PLAN, world.new.state, world.new.ledger, dag="night")
    world.arm(dag=armed_by)
    assert ledger_store.dag_of(world.old.ledger.values(), "flow-reverse") == seen_by


def test_what_the_old_sources_retention_has_deleted_is_not_asked_for_on_the_way_back(world: World) -> None:
    """The target's logs begin below: log starts follow late. A rollback was refused for what nobody could copy."""
    world.new.wire.start, world.old.wire.start = 2, 5
    plan = world.arm().plan
    assert plan.topic("orders").starts == {0: 5} and way_back("flow", world.on).plan == plan
    pair = paired(plan, {"orders"}, {})(ORDERS, plan.topic("orders").starts[0], 50, 60)
    assert bounds_difference(pair, LogBounds(2, 60, 60), LogBounds(5, 60, 60)) is None
    lost = bounds_difference(pair, LogBounds(2, 60, 60), LogBounds(7, 60, 60))
    assert lost is not None and lost.offset == 5, "what it has lost since is missing as before"


def test_way_back_begins_where_the_target_does_if_the_old_source_has_more(world: World) -> None:
    world.reverse = replace(REVERSE, topics=(replace(REVERSE.topics[0], starts={0: 8}),))
    world.old.wire.start = 5
    assert world.arm().plan == world.reverse


def test_way_back_is_refused_where_the_targets_retention_has_passed_the_old_sources_end(world: World) -> None:
    """The tail of an armed one would end at once, with the advice to delete the topic that applications write to."""
    world.new.wire.start, world.new.wire.end = 60, 70
    with pytest.raises(
        NoWayBack, match="orders-0 starts at 60 on the target, .* old source's end at 50: leave the topic"
    ):
        world.arm(check_only=True)
    world.new.wire.start = 50
    assert world.arm().direction is not None, "up to its end nothing is missing"


def test_killed_before_any_change_the_next_call_arms(world: World) -> None:
    """The watched old source is never open to an application meanwhile."""
    for number in range(100):
        one = World()
        one.changes.left = number
        try:
            one.arm()
        except Died:
            one.changes.left = 10**6
            one.arm()
            assert is_armed(one), number
        else:
            assert number > 5
            return


def test_topics_are_the_reverse_mirrors_only_after_the_direction(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        assert armed("flow", world.new.ledger.values()) is not None
        raise Died

    monkeypatch.setattr(ownership, "adopt", killed)
    with pytest.raises(Died):
        world.arm()
    assert owned_topics(world.old.ledger) == {}


def test_fence_can_be_lifted_without_the_target(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is lost, and the old source promoted: its own state tells what was changed, and who else writes."""
    ended: list[str] = []
    monkeypatch.setattr(GivenSide, "end_writing", lambda _, mirror: ended.append(mirror))
    world.arm()
    world.old.shut = False
    lines = lift_leftover_fence(Platform(world.on.source, world.on.source), "flow", include_retained=True)
    assert "mirror 'flow-reverse' is ended" in lines[-1]
    assert ended == ["flow", "flow-reverse"], "no job may copy among what applications write then"
    with pytest.raises(MirrorCutOver):  # nor begin to, as the next try of a tail does
        requirements.require_active(world.old.ledger, REVERSE, world.old)  # type: ignore[arg-type]
    assert ended_by(world.old.ledger.values(), "flow-reverse") == "ended by lift-fence"
    assert world.old.acls == {rule("orders", "WRITE", "ALLOW", "User:shop")}


def test_fence_is_lifted_wherever_the_arming_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the old source has no ledger yet: then no job of the reverse mirror can begin."""
    monkeypatch.setattr(GivenSide, "end_writing", lambda *_: None)
    for number in range(100):
        one = World()
        one.changes.left = number
        with suppress(Died):
            one.arm()
            assert number > 5
            return
        one.changes.left, one.old.shut = 10**6, False
        with pytest.MonkeyPatch.context() as lost:
            if not one.old.ledger.values():
                lost.setattr(one.old.ledger, "decide", lambda *_: raise_(LedgerMissing()))
            assert lift_leftover_fence(one.on, "flow", include_retained=True), number
        assert one.old.acls == {rule("orders", "WRITE", "ALLOW", "User:shop")}, number
        # Whoever starts its tail: `follow --reverse-of`, or a person by the plan that is kept.
        if ledger_store.last_hash(one.old.ledger.values(), "flow-reverse") is not None:
            with pytest.raises(MirrorCutOver):
                ownership.claim(one.old.ledger, REVERSE, one.old)  # type: ignore[arg-type]


def test_what_the_reverse_mirror_has_is_handed_over_without_its_plan(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(GivenSide, "end_writing", lambda *_: None)
    world.arm()
    kept = [key for key in world.old.state.read() if key.startswith("plan/")]
    assert kept
    world.old.state.write(dict.fromkeys(kept))
    world.old.shut = False
    assert lift_leftover_fence(world.on, "flow", include_retained=True)
    assert ended_by(world.old.ledger.values(), "flow-reverse") == "ended by lift-fence"
    assert "without that plan no job of it begins" in caplog.text


def test_swapped_fence_is_lifted_whole_by_this_hosts_report(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While the target is away: what the swap has changed, the old source's own ledger knows."""
    ended: list[str] = []
    monkeypatch.setattr(GivenSide, "end_writing", lambda _, mirror: ended.append(mirror))
    (tmp_path / "monday").mkdir()
    ReportStore(world.new.state, "flow", "monday", tmp_path / "monday").save(world.report)  # type: ignore[arg-type]
    world.arm()
    world.old.shut = False
    monkeypatch.setattr(world.new.ledger, "values", lambda: raise_(TryAgain("away")))
    assert lift_leftover_fence(world.on, "flow", include_retained=True, runs=tmp_path)
    assert world.old.acls == {rule("orders", "WRITE", "ALLOW", "User:shop")} and ended == ["flow-reverse"]
    with pytest.raises(MirrorCutOver):
        requirements.require_active(world.old.ledger, REVERSE, world.old)  # type: ignore[arg-type]


@pytest.mark.parametrize("before", [True, False])
def test_way_back_whose_fence_somebody_lifts_meanwhile_is_nobodys(
    world: World, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """Right before the topics are the reverse mirror's, or right after."""
    monkeypatch.setattr(GivenSide, "end_writing", lambda *_: None)
    adopt = ownership.adopt

    def lifted() -> None:
        world.old.shut = False
        assert lift_leftover_fence(world.on, "flow", include_retained=True)

    def adopted(*given: Any, **how: Any) -> None:
        if before:
            lifted()
        adopt(*given, **how)
        if not before:
            lifted()

    monkeypatch.setattr(ownership, "adopt", adopted)
    for _ in range(2):  # and whoever arms again
        with pytest.raises(NoWayBack, match="fence of the old source is gone"):
            world.arm()
        with pytest.raises(MirrorCutOver):
            requirements.require_active(world.old.ledger, REVERSE, world.old)  # type: ignore[arg-type]


def test_arming_that_dies_behind_a_lifting_has_taken_nothing_out_of_production(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still right before its decision, and has no second look: nor does a call after it get so far."""
    monkeypatch.setattr(GivenSide, "end_writing", lambda *_: None)
    adopt = ownership.adopt

    def adopted(*given: Any, **how: Any) -> None:
        world.old.shut = False
        assert lift_leftover_fence(world.on, "flow", include_retained=True)
        with suppress(MirrorCutOver):
            adopt(*given, **how)
        raise Died

    monkeypatch.setattr(ownership, "adopt", adopted)
    with pytest.raises(Died):
        world.arm()
    with pytest.raises(MirrorCutOver):
        requirements.require_active(world.old.ledger, REVERSE, world.old)  # type: ignore[arg-type]


def test_fence_that_is_lifted_before_the_plan_is_kept_leaves_nothing_to_claim(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts a tail of the reverse mirror would copy into what writers were let into, days later perhaps."""
    monkeypatch.setattr(GivenSide, "end_writing", lambda *_: None)
    keep = ledger_store.keep

    def kept(plan: Plan, *given: Any, **how: Any) -> None:
        if plan == REVERSE:
            world.old.shut = False
            assert lift_leftover_fence(world.on, "flow", include_retained=True)
        keep(plan, *given, **how)

    monkeypatch.setattr(ledger_store, "keep", kept)
    with pytest.raises(NoWayBack, match="fence of the old source is gone"):
        world.arm()
    for start in (ownership.claim, requirements.require_active):
        with pytest.raises(MirrorCutOver):
            start(world.old.ledger, REVERSE, world.old)  # type: ignore[operator]


def test_arming_again_takes_nothing_from_a_rollback_that_has_opened_the_old_source(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is decided between the look of a second arming and its decision; the first cutover's fence stands still."""
    world.arm()
    adopt = ownership.adopt

    def adopted(*given: Any, **how: Any) -> None:
        back = Direction(generation=9, primary="old", by="rollback", attempt="r", plan=REVERSE.hash, at="noon")
        ownership.mark_cut_over(
            world.old.ledger, REVERSE, {"orders": "id-old"}, "noon", lambda _: turn("flow-reverse", back)
        )  # fmt: skip
        adopt(*given, **how)

    monkeypatch.setattr(ownership, "adopt", adopted)
    with pytest.raises(NoWayBack, match="cluster old was decided to be the primary"):
        world.arm()
    assert owned_topics(world.old.ledger)["orders"].opened_by == REVERSE.hash


def test_check_changes_nothing(world: World) -> None:
    before = world.changes.left
    found = world.arm(check_only=True)
    assert found.direction is None and any("User:mirror" in line for line in found.fence)
    assert world.changes.left == before


def test_fence_of_a_namesake_in_the_opposite_direction_is_met_before_anything_is_touched(world: World) -> None:
    """Behind the swap the way back could not be armed any more, and that fence was half of another mirror's."""
    plan = plan_of(replace(MIRROR, source="dst", target="src"), *PLAN.topics, source_cluster_id="new")
    world.old.state.write(in_pieces(f"plan/flow/{plan.hash}", plan.to_json().encode()))
    theirs = replace(world.fence, id="y", run="theirs", plan=plan.hash, revision=plan.hash)
    note_copy(world.old.ledger, "flow", theirs)
    before, rules = world.changes.left, set(world.old.acls)
    for check_only in (True, False):
        with pytest.raises(InputError, match="another mirror of this name"):
            world.arm(check_only=check_only)
    assert (world.changes.left, world.old.acls, world.built) == (before, rules, [])
    note_copy(world.old.ledger, "flow", replace(theirs, phase=CLOSED))
    world.arm()
    assert is_armed(world)


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "fence lifted": ({"lifted": 3.0, "kept": False}, "fence was not kept"),
    "fence callable": ({"kind": "callable", "name": "x"}, "by a callable"),
    "transaction unseen": ({"unseen": "no DESCRIBE"}, "may still end on the source: no DESCRIBE"),
}


@pytest.mark.parametrize("case", CASES)
def test_cutover_that_left_no_possible_target_says_so(world: World, case: str) -> None:
    fields, cause = CASES[case]
    assert world.report.fence is not None
    for name, value in fields.items():
        setattr(world.report.fence, name, value)
    world.save()
    with pytest.raises(NoWayBack, match=f"no way back after opening: .*{cause}"):
        world.arm()


def test_ends_that_moved_are_named(world: World) -> None:
    world.old.wire.end = 51
    with pytest.raises(NoWayBack, match="orders-0 ends at 51 on the old source, cut over at 50"):
        world.arm()
    world.old.wire.end, world.new.wire.end = 50, 49
    with pytest.raises(NoWayBack, match="orders-0 ends at 49 on the target"):
        world.arm()
    assert world.built == []


def test_ends_are_compared_again_behind_the_swapped_fence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    swap = world.old.acls_by_broker

    def moves(resource_type: str) -> Any:
        world.old.wire.end = 51
        return swap(resource_type)

    monkeypatch.setattr(world.old, "acls_by_broker", moves)
    with pytest.raises(NoWayBack, match="ends at 51"):
        world.arm()
    assert armed("flow", world.new.ledger.values()) is None


def test_topic_that_was_created_again_is_no_target(world: World) -> None:
    other = replace(PLAN, topics=(replace(PLAN.topics[0], source_topic_id="id-before"),))
    with pytest.raises(NoWayBack, match="gone, or another one"):
        world.arm(other)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [({"mode": "mapped"}, "offsets differ"), ({"target_topic": "dc1.orders"}, "other names on the target")],
)
def test_topics_that_differ_between_the_clusters_have_no_way_back(world: World, fields: Any, cause: str) -> None:
    with pytest.raises(NoWayBack, match=cause):
        world.arm(replace(PLAN, topics=(replace(PLAN.topics[0], **fields),)))


def test_what_blocks_the_reverse_plan_is_the_reason(world: World) -> None:
    world.reverse = replace(REVERSE, findings=(Finding("block", "brokers", "the target", "is too old", "Upgrade."),))
    with pytest.raises(NoWayBack, match="is too old"):
        world.arm()
    world.reverse = NothingMatches(["orders"], [], [])
    with pytest.raises(NoWayBack, match="orders"):
        world.arm()
    world.reverse = plan_of(REVERSE.mirror, *REVERSE.topics, topic_plan("orders-new", {0: 0}, source_topic_id="x"))
    with pytest.raises(NoWayBack, match="no such topic, which the target has: orders-new"):
        world.arm()
    world.reverse = plan_of(REVERSE.mirror, replace(REVERSE.topics[0], mode="mapped", reason="holes"))
    with pytest.raises(NoWayBack, match="would not keep its offsets: holes"):
        world.arm()
    assert rule("orders", "WRITE", "DENY") in world.old.acls


def test_fence_that_can_not_spare_the_mirror_is_the_reason(world: World) -> None:
    world.old.acls.add(rule("*", "WRITE", "ALLOW"))
    before = world.changes.left
    with pytest.raises(NoWayBack, match="covers more"):
        world.arm()
    assert world.changes.left == before


def test_source_that_was_built_anew_is_another_cluster(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.old, "cluster_id", lambda: "another")
    world.old.acls.clear()
    with pytest.raises(InputError, match="the source is cluster another: .* make an ordinary mirror to it"):
        world.arm()


def test_failover_whose_source_nobody_has_fenced_is_told_the_next_step() -> None:
    """It says more than that no cutover has opened the target."""
    ledger = MemoryLedger()
    failed_over = Direction(generation=1, primary="new", by=FAILOVER, attempt="x", plan="p", at="noon")
    ledger.decide(lambda _: turn("flow", failed_over))
    side: Any = SimpleNamespace(ledger=ledger)
    with pytest.raises(NoWayBack, match="'airflow-mirror fence-on-return' .* another cluster, to which an ordinary"):
        cutover_of("flow", side)
    with pytest.raises(NoWayBack, match="no cutover of it has opened"):
        cutover_of("other", side)


def test_topics_that_had_passed_on_are_left_out(world: World) -> None:
    """The fence of the source is not about them: they are the other mirror's to fail back."""
    theirs = topic_plan("payments", {0: 0}, source_topic_id="id-theirs")
    plan = replace(PLAN, topics=(*PLAN.topics, theirs))
    world.new.state.write(in_pieces(f"plan/flow/{plan.hash}", plan.to_json().encode()))
    fence = replace(world.fence, plan=plan.hash, revision=plan.hash, intent={**world.fence.intent, "others": "1"})
    world.new.ledger.decide(lambda _: {"fence/flow": {"v": 1, **asdict(fence)}})
    world.arm(plan)
    assert world.built == [reverse_of(MIRROR, ["payments"])]


def test_topics_of_another_mirror_are_not_taken(world: World) -> None:
    theirs = replace(PLAN, mirror=replace(MIRROR, name="other"), source_cluster_id="third")
    ownership.claim(world.old.ledger, theirs, world.old)  # type: ignore[arg-type]
    with pytest.raises(TopicsOwned):
        world.arm()


def test_topics_that_were_once_handed_over_there_are_taken_back(world: World) -> None:
    """The old source was itself the target of a migration once."""
    theirs = replace(PLAN, mirror=replace(MIRROR, name="first"), source_cluster_id="third")
    ownership.mark_cut_over(world.old.ledger, theirs, {"orders": "id-old"}, "long ago")
    with pytest.raises(MirrorCutOver):
        ownership.claim(world.old.ledger, theirs, world.old)  # type: ignore[arg-type]
    world.arm()
    assert is_armed(world)
