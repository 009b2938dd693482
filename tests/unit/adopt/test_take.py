"""What an adoption does in which order, what it asks before, and what the next call does of one that was killed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import InputError, WritingEnded
from airflow_mirror.extras.adopt import take as module
from airflow_mirror.extras.adopt.examine import Adoption
from airflow_mirror.extras.adopt.matching import Match
from airflow_mirror.extras.adopt.mirrormaker import Flow
from airflow_mirror.extras.adopt.stopped import look
from airflow_mirror.extras.adopt.take import take
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat, JobId
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.ledger import state
from airflow_mirror.ledger.records import ACTIVE, PLAN, SIGN
from airflow_mirror.plan import ledger_store
from tests.builders import plan_of, topic_plan
from tests.memory.admin import MemoryAdmin
from tests.memory.applications import Consumer
from tests.memory.cluster import MemoryCluster
from tests.memory.ledger import MemoryLedger, MemoryState
from tests.unit.plan.builders import a_mirror

HERE, THERE = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
OFFSETS, STATUS = "mm2-offsets.A.internal", "mm2-status.A.internal"


class World:
    """A target that MirrorMaker 2 has filled and that was matched.

    :ivar did: effects, in order. :ivar before: what happens before which of them.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source, self.target = MemoryCluster("source"), MemoryCluster("target")
        for cluster, tp in ((self.source, HERE), (self.target, THERE)):
            cluster.create(tp.topic)
            cluster.append(tp, b"1", b"2")
        for name in (OFFSETS, STATUS, "heartbeats"):
            self.target.create(name)
        self.did: list[str] = []
        self.before: dict[str, Any] = {}
        topic = topic_plan("orders", {0: 0}, source_topic_id="id", target_topic="A.orders")
        self.plan = plan_of(a_mirror(name="m"), topic)
        seen, again = look(Flow(source="A"), self.here, self.there, {HERE: THERE}, 0.0)
        assert not [one for one in seen if one.alive]
        match = Match(
            source=HERE, target=THERE, source_end=2, target_start=0, target_end=2, records=2, copies=2, counts={},
            through=object(),  # type: ignore[arg-type]
        )  # fmt: skip
        self.found = Adoption(
            plan=self.plan, topics=self.plan.topics, done=(), seen=tuple(seen), matches=(match,), again=again
        )  # fmt: skip
        self.rerun = replace(self.found, topics=(), done=self.plan.topics, matches=(), is_kept=False)
        monkeypatch.setattr(module, "Ledger", lambda admin: MemoryLedger(admin.cluster))
        monkeypatch.setattr(state, "state_of", lambda admin, *prefixes, **_: MemoryState(admin.cluster, *prefixes))
        monkeypatch.setattr(module, "make_ready", lambda _: self._does("maps topic"))
        monkeypatch.setattr(MapStore, "adopt", lambda *_: self._does("map"))
        for name, effect in (("claim", "decision"), ("keep", "plan"), ("take", "lease")):
            owner = {"claim": module, "keep": ledger_store, "take": lease}[name]
            do = getattr(owner, name)
            monkeypatch.setattr(
                owner, name, lambda *given, do=do, effect=effect, **named: (self._does(effect), do(*given, **named))[1]
            )

    def _does(self, what: str) -> None:
        self.before.get(what, lambda: None)()
        self.did.append(what)

    @property
    def here(self) -> Any:
        return MemoryAdmin(self.source)

    @property
    def there(self) -> Any:
        return MemoryAdmin(self.target)

    def take(self, found: Adoption, **options: Any) -> Any:
        return take(found, self.here, self.there, lambda _: None, **options)

    def is_leased(self, *_: object) -> bool:
        return lease.is_anybody_writing(self.there.wire, "m")

    def last_plan(self) -> str | None:
        return ledger_store.last_hash(self.target.decided, "m")

    def mirrormaker_is_back(self) -> None:
        self.target.append(TopicPartition(STATUS, 0), b"RUNNING")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_maps_come_before_the_decision_and_its_plan_at_last(world: World) -> None:
    world.take(world.found)
    assert world.did == ["maps topic", "lease", "map", "decision", "plan"] and world.last_plan() == world.plan.hash


@pytest.mark.parametrize(("comes_back", "did"), [
    ("", []), ("lease", ["maps topic", "lease"]), ("map", ["maps topic", "lease", "map"]),
])  # fmt: skip
def test_mirrormaker_that_comes_back_while_copies_are_matched_keeps_its_topics(
    world: World, comes_back: str, did: list[str]
) -> None:
    """It was asked for once, hours before."""
    world.before[comes_back] = world.mirrormaker_is_back
    if not comes_back:
        world.mirrormaker_is_back()
    with pytest.raises(InputError, match=f"(?s)MirrorMaker 2 may still copy.*{STATUS}"):
        world.take(world.found)
    assert world.did[: len(did)] == did and "decision" not in world.did and "topic/A.orders" not in world.target.decided


def test_a_worker_that_joins_or_a_heartbeat_is_seen_whenever_it_is_asked(world: World) -> None:
    assert not [one for one in world.found.again(False) if one.alive]
    world.target.append(THERE, b"3")
    assert [one.what for one in world.found.again(False) if one.alive][0].startswith("target topics grew")
    assert not [one for one in world.found.again(True) if one.alive], "the mirror's tail writes by now"
    world.source.append(HERE, b"3")
    Consumer(world.target, "A-mm2", "worker").join()
    for are_ours in (False, True):
        assert [one.what for one in world.found.again(are_ours) if one.alive][0].startswith("group 'A-mm2' has members")


def test_heartbeats_that_were_deleted_meanwhile_beat_no_more(world: World) -> None:
    del world.target.topics["heartbeats"]
    assert [one for one in world.found.again(False) if one.what.startswith("heartbeats: none") and not one.alive]


def test_who_was_killed_between_decision_and_plan_has_the_plan_kept_by_the_next_call(world: World) -> None:
    def killed() -> None:
        raise KeyboardInterrupt

    world.before["plan"] = killed
    with pytest.raises(KeyboardInterrupt):
        world.take(world.found)
    assert "topic/A.orders" in world.target.decided and world.last_plan() is None
    world.before.clear()
    world.take(world.rerun)
    assert world.last_plan() == world.plan.hash and PLAN.text(world.target.state, "m", world.plan.hash)
    assert world.did[-1] == "plan" and world.did.count("lease") == 1
    world.take(replace(world.rerun, is_kept=True))
    assert world.did[-1] == "plan" and world.did.count("plan") == 1, "it keeps the last one, which may be newer"


def test_groups_come_behind_the_plan_under_the_same_lease(world: World) -> None:
    did: list[list[str]] = []
    assert world.take(world.found, then=lambda token: [did.append([*world.did]), world.is_leased(token)][1])
    assert did == [["maps topic", "lease", "map", "decision", "plan"]] and not world.is_leased()
    assert world.take(replace(world.rerun, is_kept=True), then=world.is_leased)
    assert world.did[-1] == "lease" and world.did.count("map") == 1


def test_who_was_killed_while_groups_were_set_leaves_its_lease_to_the_next_call(world: World) -> None:
    world.take(world.found)
    rerun = replace(world.rerun, is_kept=True)
    lease.take(world.there.wire, "m")
    assert world.take(rerun, then=world.is_leased) and not world.is_leased()
    lease.take(world.there.wire, "m")
    Heartbeat(MemoryState(world.target, SIGN.below("m")), JobId(name="m", bulk=True)).give(RUNNING)
    with pytest.raises(InputError, match="a job holds its writer lease, and may be copying"):
        world.take(rerun, then=world.is_leased)
    assert world.take(rerun, then=world.is_leased, end_writing=True)


def test_beside_a_tail_or_a_cutover_groups_are_not_set_by_who_adopts_again(world: World) -> None:
    world.take(world.found)
    rerun = replace(world.rerun, is_kept=True)
    lease.take(world.there.wire, "m", to_end=True)
    with pytest.raises(WritingEnded):
        world.take(rerun, then=world.is_leased)
    tail = ActiveTail(mirror=world.plan.mirror.to_dict(), plan=world.plan.hash, inputs="", directory="", job="mine")
    MemoryLedger(world.target).decide(lambda _: {ACTIVE.key("m"): tail.value()})
    lease.take(world.there.wire, "m")
    with pytest.raises(InputError, match="its tail runs on host"):
        world.take(rerun, then=world.is_leased)
