"""A way back behind another decision: retired mirrors, generations, and sources that returned."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import pytest

from airflow_mirror.cutover.decision import CLOSED, OPENED, fence_state
from airflow_mirror.cutover.failover import check
from airflow_mirror.cutover.failover.decision import require_no_cutover
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.rollback import arm as arming
from airflow_mirror.cutover.rollback.arm import armed, require_not_older
from airflow_mirror.cutover.rollback.reverse import reverse_of
from airflow_mirror.cutover.rollback.run import way_back
from airflow_mirror.cutover.rollback.topic_divergence import TopicDivergence
from airflow_mirror.errors import (
    InputError,
    LedgerLost,
    LedgerMissing,
    MirrorCutOver,
    NoWayBack,
)
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.direction import Direction, direction, reverse_name, turn
from airflow_mirror.plan.owned import owned_topics
from tests.builders import plan_of, rule, topic_plan
from tests.unit.cutover.authorizer import may_write
from tests.unit.cutover.builders import GivenSide
from tests.unit.rollback.arming import (
    one,
    raise_,
)
from tests.unit.rollback.world import MIRROR, PLAN, REVERSE, Died, World


@pytest.fixture
def world() -> World:
    return World()


def test_higher_generation_wins_and_equal_ones_need_a_person(world: World) -> None:
    require_not_older(None, None, "flow", "new")
    require_not_older(one(3, "new"), one(2, "old"), "flow", "new")
    require_not_older(None, one(2, "new"), "flow", "new")
    with pytest.raises(NoWayBack, match="cluster old was decided to be the primary at noon since"):
        require_not_older(one(1, "new"), one(2, "old"), "flow", "new")
    with pytest.raises(NoWayBack, match="a person has to pick"):
        require_not_older(one(2, "new"), one(2, "old"), "flow", "new")
    world.arm()
    world.old.ledger.decide(lambda _: turn("flow-reverse", one(2, "old")))
    with pytest.raises(NoWayBack, match="decided to be the primary"):
        world.arm()
    assert direction(world.new.ledger.values(), "flow") is not None


def test_mirror_that_was_retired_and_cut_over_again_has_a_way_back(world: World) -> None:
    """What the first way back has noted on the old source says the same: the target is the primary."""
    first = world.arm().direction
    assert first is not None
    world.new.ledger.decide(lambda _: {"direction/flow": None})
    again = world.arm().direction
    assert again is not None and (again.by, again.generation) == ("cutover", 2)


def retire_reverse(world: World) -> None:
    """As `airflow-mirror retire` of the mirror that copies back: its topics are nobody's, and no plan of it is kept."""
    old, name = world.old, "flow-reverse"
    owned = owned_topics(old.ledger)
    topics = {f"topic/{topic}" for topic, one in owned.items() if one.mirror == name}
    old.ledger.decide(lambda values: {k: None for k in values if k in topics or k.split("/")[1:2] == [name]} or None)
    old.state.write({key: None for key in old.state.read() if key.startswith(f"plan/{name}/")})


def test_way_back_whose_mirror_was_retired_is_armed_anew_where_nothing_was_copied_back(world: World) -> None:
    """Its plan was gone, and the error said that one has to be made first."""
    first = world.arm().direction
    retire_reverse(world)
    before = world.changes.left
    with pytest.raises(NoWayBack, match="mirror 'flow-reverse', which copied back, was retired .* Arm it again"):
        way_back("flow", world.on)
    assert world.arm(check_only=True).direction is None and world.changes.left == before
    again = world.arm()
    assert first is not None and again.direction is not None
    assert again.direction == replace(first, generation=2, at=again.direction.at)
    assert way_back("flow", world.on).plan == again.plan == REVERSE and len(world.built) == 3
    assert ledger_store.last_hash(world.old.ledger.values(), "flow-reverse") == REVERSE.hash
    assert direction(world.old.ledger.values(), "flow-reverse") == replace(again.direction, by="armed")
    assert owned_topics(world.old.ledger)["orders"].mirror == "flow-reverse"
    assert not may_write(world.old.acls, "User:shop", "orders")
    assert world.arm().direction == again.direction


def test_way_back_whose_mirror_was_retired_is_refused_where_something_was_copied_back(world: World) -> None:
    """Whether that is the same as on the target nobody has looked since it is nobody's."""
    world.arm()
    world.old.wire.end = world.new.wire.end = 60
    assert world.arm().direction is not None, "although the old source has moved on"
    retire_reverse(world)
    before, rules = world.changes.left, set(world.old.acls)
    with pytest.raises(
        NoWayBack, match="'flow-reverse', which copied back, was retired .* orders-0 ends at 60 on the old"
    ):
        world.arm()
    assert (world.changes.left, world.old.acls) == (before, rules)


def test_killed_before_any_change_the_next_call_arms_a_retired_way_back() -> None:
    for number in range(100):
        one = World()
        one.arm()
        retire_reverse(one)
        one.changes.left = number
        try:
            one.arm()
        except Died:
            one.changes.left = 10**6
            one.arm()
            assert way_back("flow", one.on).plan == REVERSE, number
            assert owned_topics(one.old.ledger)["orders"].mirror == "flow-reverse", number
        else:
            assert number > 3
            return


def test_retirement_of_a_way_back_that_died_before_its_last_step_is_no_plan(world: World) -> None:
    """What is left of its plans, the next retirement removes: who completed by one had a mirror without a last plan."""
    world.arm()
    kept = world.old.state.read()
    retire_reverse(world)
    world.old.state.write({key: value for key, value in kept.items() if key.startswith("plan/")})
    assert world.arm().direction is not None
    assert ledger_store.last_hash(world.old.ledger.values(), "flow-reverse") == REVERSE.hash


def test_ledger_of_the_old_source_that_is_lost_is_no_retirement(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.arm()
    monkeypatch.setattr(world.old.ledger, "peek", dict)
    monkeypatch.setattr(world.old.ledger, "values", lambda: raise_(LedgerMissing()))
    with pytest.raises(LedgerMissing):
        world.arm()
    assert len(world.built) == 1, "nothing is planned anew"


def test_no_new_ledger_is_made_over_one_that_is_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old source is the target of another mirror, too: by an empty one its jobs would begin again."""
    before = set(world.old.acls)
    monkeypatch.setattr(world.old.ledger, "begin", lambda: raise_(LedgerLost("gone")))
    with pytest.raises(LedgerLost):
        world.arm()
    assert world.old.acls == before, "nor is the fence swapped"


def test_old_source_knows_the_generation_without_the_target(world: World) -> None:
    """Should the target be lost, a failover onto the old source has to be the later decision."""
    made = world.arm().direction
    noted = direction(world.old.ledger.values(), "flow-reverse")
    assert made is not None and noted == replace(made, by="armed")
    assert armed("flow-reverse", world.old.ledger.values()) is None, "from there nothing can be rolled back"
    later = replace(noted, generation=2, primary="old", by="failover")
    world.old.ledger.decide(lambda _: turn("flow-reverse", later))
    with pytest.raises(NoWayBack, match="cluster old was decided to be the primary"):
        world.arm()


def test_way_back_of_an_open_source_is_not_armed_again(world: World) -> None:
    world.arm()
    world.old.shut = False
    world.old.acls = {rule("orders", "WRITE", "ALLOW", "User:shop")}
    with pytest.raises(NoWayBack, match="others may write there"):
        world.arm()


def test_reverse_of_the_reverse_is_the_mirrors_name() -> None:
    assert reverse_name(reverse_name("dc1-to-dc2")) == "dc1-to-dc2"
    mirror = replace(MIRROR, own_principals={"source": "User:CN=a"})
    assert reverse_of(mirror).own_principals == {"target": "User:CN=a"}
    turned = reverse_of(replace(MIRROR, source_registry="old", target_registry="new"))
    assert (turned.source_registry, turned.target_registry) == ("new", "old")
    assert (reverse_of(mirror).source, reverse_of(mirror).target) == ("new", "old")


def fenced_before(world: World) -> None:
    """Let the reverse mirror have been failed over once, and its source fenced, as the old source's ledger has it."""
    earlier = replace(world.fence, run="failover-x", id="y", plan=REVERSE.hash, revision=REVERSE.hash)
    world.old.ledger.decide(lambda _: {"fence/flow-reverse": {"v": 1, **asdict(earlier)}})
    report = replace(world.report, mirror="flow-reverse", id="y", plan_hash=REVERSE.hash)
    ReportStore(world.old.state, "flow-reverse", "failover-x", None).save(report)


def test_old_source_that_was_promoted_once_before_can_be_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fence of that time was lifted by its copy, while the ledger that has it was lost: it stood there for good."""
    ended: list[str] = []
    monkeypatch.setattr(GivenSide, "end_writing", lambda _, mirror: ended.append(mirror))
    fenced_before(world)
    ids = {"orders": "id-old"}
    with pytest.raises(MirrorCutOver, match="'failover-x' has opened"):
        require_no_cutover(world.old.ledger.values(), REVERSE, ids, force=True)
    world.arm(check_only=True)
    assert ended == []
    armed_at = world.arm().direction
    there = fence_state(world.old.ledger.values(), "flow-reverse")
    assert there is not None and there.phase == CLOSED and ended == ["flow-reverse"]
    require_no_cutover(world.old.ledger.values(), REVERSE, ids, force=False)
    assert owned_topics(world.old.ledger)["orders"].mirror == "flow-reverse"
    assert world.arm().direction == armed_at and ended == ["flow-reverse"]


def test_fence_of_a_rollback_that_came_while_an_arming_was_frozen_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lifted, producers that were not moved would write to the cluster that was left."""
    monkeypatch.setattr(GivenSide, "end_writing", lambda *_: None)
    world.arm()
    require = arming.require_not_older

    def looks_and_freezes(*given: Any) -> None:
        monkeypatch.setattr(arming, "require_not_older", require)
        require(*given)
        fenced_before(world)

    monkeypatch.setattr(arming, "require_not_older", looks_and_freezes)
    with suppress(NoWayBack):
        world.arm()
    there = fence_state(world.old.ledger.values(), "flow-reverse")
    assert there is not None and there.phase == OPENED


def test_killed_before_any_change_the_next_call_ends_the_fence_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GivenSide, "end_writing", lambda *_: None)
    for number in range(100):
        one = World()
        fenced_before(one)
        one.changes.left = number
        try:
            one.arm()
        except Died:
            one.changes.left = 10**6
            one.arm()
            require_no_cutover(one.old.ledger.values(), REVERSE, {"orders": "id-old"}, force=False)
            assert owned_topics(one.old.ledger)["orders"].mirror == "flow-reverse", number
        else:
            assert number > 7
            return


def test_direction_of_a_cutover_is_no_failover_to_complete(world: World) -> None:
    """A failover of that mirror finds its plan, and is refused because its cutover has finished."""
    ledger_store.keep(PLAN, world.new.state, world.new.ledger)
    world.arm()
    plan, decided, *_ = check.mirror_of(world.on.target, "flow")
    assert decided is None and plan == PLAN


class Returned:
    """The same two clusters behind a failover at 50, whose source has returned and was fenced."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.levels, self.created = world, list[str | None](), list[str]()
        failed = Direction(generation=2, primary="new", by="failover", attempt="x", plan=PLAN.hash, at="noon")
        world.new.ledger.decide(lambda _: turn("flow", failed))
        self.kept = ReportStore(world.new.state, "flow", "failover-x", None)
        self.kept.save(replace(world.report, steps=[]))
        world.new.ledger.decide(lambda values: {"fence/flow": {**values["fence/flow"], "run": "failover-x"}})
        self.verdicts = [TopicDivergence(topic="orders", topic_id="id-old", verdict="delta")]
        monkeypatch.setattr(arming, "classify_divergence", self._parted)
        monkeypatch.setattr(arming, "create_target_topics", lambda plan, admin, _: self.created.append(admin.name))

    def _parted(self, cut: Any, plan: Any, source: Any, target: Any, level: str | None) -> list[TopicDivergence]:
        assert (source, target) == (self.world.old, self.world.new) and set(cut.values()) == {50}
        self.levels.append(level)
        return [one for one in self.verdicts if one.topic in {t.source_topic for t in plan.topics}]

    def arm(self, plan: Any = PLAN, **how: Any) -> Any:
        return arming.arm(self.world.on, self.kept, plan, planner=self.world.build, **how)


@pytest.fixture
def returned(world: World, monkeypatch: pytest.MonkeyPatch) -> Returned:
    return Returned(world, monkeypatch)


def test_source_that_returned_may_end_below_the_cut(returned: Returned) -> None:
    """Compared by content before anything is changed, and by its ends behind the swapped fence."""
    returned.world.old.wire.end = 20
    found = returned.arm()
    assert (found.direction.generation, found.direction.primary, found.direction.by) == (3, "new", "cutover")
    assert returned.levels == ["batches", None] and returned.created == ["old"]
    assert may_write(returned.world.old.acls, "User:mirror", "orders")
    assert not may_write(returned.world.old.acls, "User:shop", "orders")
    assert returned.arm().direction == found.direction


def test_topic_that_has_diverged_is_a_reason_until_it_is_left_out(returned: Returned) -> None:
    ours, theirs = topic_plan("orders", {0: 0}, source_topic_id="id-old"), topic_plan("a.b", {0: 0}, source_topic_id="i")
    both = plan_of(replace(MIRROR, topics=[".*"]), ours, theirs, source_cluster_id="old", target_cluster_id="new")
    returned.verdicts.append(
        TopicDivergence(topic="a.b", topic_id="i", verdict="diverged", reasons=("a.b-0: 3 offsets",))
    )
    before = returned.world.changes.left
    with pytest.raises(NoWayBack, match=r"a\.b has diverged \(a\.b-0: 3 offsets\): 'airflow-mirror failback' exports it"):
        returned.arm(both, check_only=True)
    with pytest.raises(InputError, match="has no topic nowhere to leave out"):
        returned.arm(both, exclude_topics=["nowhere"])
    assert returned.world.changes.left == before
    returned.arm(both, exclude_topics=["a.b"])
    (mirror,) = returned.world.built
    assert mirror.selects_topic("orders") and not mirror.selects_topic("a.b") and mirror.selects_topic("axb")


def test_partitions_that_the_target_got_since_are_added_before_the_direction_is_decided(world: World) -> None:
    """No job added them: the tail of the reverse mirror had nowhere to write what is in them."""
    topic = replace(REVERSE.topics[0], partitions=3, starts=dict.fromkeys(range(3), 0))
    world.reverse = replace(REVERSE, topics=(topic,), known_topics={"orders": "identical"})
    world.arm(check_only=True)
    assert world.old.partitions == 1
    for changes in range(100):
        world.changes.left = changes
        with suppress(Died):
            world.arm()
            break
        assert armed("flow", world.new.ledger.values()) is None or world.old.partitions == 3
    assert world.old.partitions == 3 and way_back("flow", world.on).plan == world.reverse


def test_topics_that_are_gone_are_created_before_the_direction_is_decided(returned: Returned) -> None:
    returned.world.reverse = replace(REVERSE, topics=(replace(REVERSE.topics[0], target_exists=False),))
    returned.verdicts = [TopicDivergence(topic="orders", topic_id="", verdict="gone")]
    returned.arm(check_only=True)
    assert returned.created == []
    returned.arm()
    assert returned.created == ["old"]


def test_fence_that_was_not_proven_has_no_way_back(returned: Returned) -> None:
    fence = returned.world.report.fence
    assert fence is not None
    fence.unseen = "nobody has looked"
    returned.kept.save(returned.world.report)
    with pytest.raises(NoWayBack, match="nobody has looked"):
        returned.arm()
    assert returned.levels == [], "nothing is read for minutes that is refused anyway"
