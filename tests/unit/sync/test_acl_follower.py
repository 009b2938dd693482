"""Rights of readers follow: granted under the lease, taken back on request alone, and told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.cutover.decision import FenceState
from airflow_mirror.errors import InvalidField, LeaseLost, LedgerNewer, TryAgain
from airflow_mirror.kafka.model import Acl, TopicInfo
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.direction import Direction, turn
from airflow_mirror.plan.owned import Owned, active_topics
from airflow_mirror.plan.ownership import claim
from airflow_mirror.sync import seen_acls
from airflow_mirror.sync.acl_follower import AclFollower, AclFollowReport
from tests.builders import plan_of, rule, topic_plan
from tests.followed import sides
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.sync.confirmed import Confirmed
from tests.unit.sync.test_acls import ALICE, BOB, DENY, READ, WRITE, Cluster

OTHER = rule("users", "READ", "ALLOW", ALICE)


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source, self.target = Cluster("source", READ, WRITE, DENY, OTHER), Cluster("target")
        for cluster in (self.source, self.target):
            cluster.wire = None  # type: ignore[attr-defined]
        topics = (topic_plan(name, {0: 0}, source_topic_id=name) for name in ("orders", "users"))
        self.plan = replace(plan_of(self.mirror(), *topics), known_topics=dict.fromkeys(("orders", "users"), "identical"))
        self.active, self.right = {"orders", "users"}, Confirmed()
        monkeypatch.setattr("airflow_mirror.sync.passes.active_topics", lambda *_: self.active)
        self.state, self.ledger = MemoryState(), MemoryLedger()

    def mirror(self, **fields: Any) -> Mirror:
        return Mirror(name="m", source="dc1", target="dc2", **fields)

    def follow(self) -> AclFollowReport:
        given = sides(self.plan, self.source, self.target, self.right, state=self.state, ledger=self.ledger)
        return AclFollower(given).follow(0)

    def fence(self, phase: str) -> None:
        one = FenceState(run="r", attempt=1, id="i", plan="p", revision="p", owner="o", max_fence_s=60.0, phase=phase)
        self.ledger.decide(lambda _: {"fence/m": {"v": 1, **asdict(one)}})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_readers_get_their_rights_and_writers_wait(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    found = world.follow().to_dict()
    assert world.target.acls == {READ, DENY, OTHER} and found["granted"]["count"] == 3 and found["rules"] == 3
    assert found["later"] == {"count": 1, "first": [str(WRITE)]}
    assert [r.message for r in caplog.records] == [f"+ {DENY}", f"+ {READ}", f"+ {OTHER}"]
    again = world.follow()
    assert again.to_dict()["granted"]["count"] == 0 and str(again) == "3 rules kept level" and len(caplog.records) == 3


def test_a_target_without_authorizer_is_told_and_is_no_failure(world: World) -> None:
    """MirrorMaker 2 lets rights follow by default, and most clusters that it runs on have none."""
    world.target._authorizer = False
    found = world.follow()
    assert str(found) == "0 rules kept level; note: no rules follow: the target has no authorizer"
    assert found.to_dict()["said"] == [] and found.to_dict()["rules"] == 0
    world.target._authorizer = True
    assert world.follow().to_dict()["rules"] == 3


def test_certificates_principal_is_demanded_and_its_rights_are_spared(world: World) -> None:
    """Brokers make a name of it that no client is told. Nobody else's rights are written before it is known."""
    ours = rule("orders", "READ", "ALLOW", "User:CN=mirror")
    world.source.principal, world.source.acls = None, {*world.source.acls, ours}
    with pytest.raises(InvalidField, match='own_principals.*source\'s connection.*{"source": "User:'):
        world.follow()
    assert not world.target.acls
    named = world.mirror(own_principals={"source": "User:CN=mirror"})
    world.plan = replace(world.plan, mirror=named)
    world.follow()
    assert world.target.acls == {READ, DENY, OTHER}


def test_pattern_opens_no_topic_that_was_created_again(world: World) -> None:
    """The plan knows it by name, and the ledger does not say that it is the mirror's."""
    world.source.acls = {rule("", "READ", "ALLOW", ALICE, pattern="PREFIXED")}
    world.target._topics, world.active = ["orders", "users"], {"orders"}
    world.follow()
    assert world.target.acls == {READ}


def test_what_is_left_for_writers_is_noted_once(world: World) -> None:
    """For a failover, which has no source to ask."""
    assert seen_acls.last_seen("m", world.state) is None
    world.follow()
    assert seen_acls.last_seen("m", world.state) == (WRITE,)
    before = world.right.left
    world.follow()
    assert before - world.right.left == 1  # nothing is written again
    world.source.acls.remove(WRITE)
    world.follow()
    assert seen_acls.last_seen("m", world.state) == ()


def test_rules_are_noted_anew_once_the_direction_has_changed(world: World) -> None:
    """The same rules, of another round of disasters: until they were seen again nobody knows that they are in force."""
    world.follow()
    armed = Direction(generation=3, primary="s", by="armed", attempt="monday", plan="x", at="noon")
    world.ledger.decide(lambda _: turn("m", armed))
    assert seen_acls.last_seen("m", world.state, 3) is None
    world.follow()
    assert seen_acls.last_seen("m", world.state, 3) == (WRITE,) and seen_acls.last_seen("m", world.state) is None


def test_rules_that_were_read_before_the_direction_was_turned_are_of_the_round_before(world: World) -> None:
    armed = Direction(generation=3, primary="s", by="armed", attempt="monday", plan="x", at="noon")
    read = world.target.describe_acls

    def turned_meanwhile(**what: Any) -> Any:
        world.ledger.decide(lambda _: turn("m", armed))
        return read(**what)

    world.target.describe_acls = turned_meanwhile  # type: ignore[method-assign]
    world.follow()
    assert seen_acls.last_seen("m", world.state, 3) is None and seen_acls.last_seen("m", world.state) == (WRITE,)


def test_topics_that_a_broker_does_not_list_yet_take_no_rule_from_the_note(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failover let nobody write, whose target's broker had just started when rules were looked at last."""
    monkeypatch.setattr("airflow_mirror.sync.passes.active_topics", active_topics)
    listed = {t.target_topic: TopicInfo(t.target_topic, "", 1, 1) for t in world.plan.topics}
    present = {*listed}
    monkeypatch.setattr(world.target, "topics", lambda names=None: {n: listed[n] for n in names or listed if n in listed})
    world.target.wire = SimpleNamespace(refresh_present=lambda names: set(names) - present)  # type: ignore[attr-defined]
    claim(world.ledger, world.plan, world.target)  # type: ignore[arg-type]
    world.follow()
    noted = world.state.read()
    assert seen_acls.last_seen("m", world.state) == (WRITE,)
    orders = listed.pop("orders")
    with pytest.raises(TryAgain, match="target topics orders: a broker does not list them, and others have them"):
        world.follow()
    assert world.state.read() == noted
    listed["orders"] = orders
    assert world.follow().left_out == [] and world.state.read() == noted
    del listed["orders"]
    present.remove("orders")  # deleted, by the word of all brokers
    assert "orders: the ledger does not say" in world.follow().left_out[0]
    assert seen_acls.last_seen("m", world.state) == ()


def test_a_source_without_authorizer_leaves_what_was_noted(world: World) -> None:
    """A failover let nobody write, and said nothing: no rules at all passed for rules that name nobody."""
    world.source._authorizer = False
    report = world.follow()
    assert seen_acls.last_seen("m", world.state) is None, "a failover says that it knows of none"
    assert "the source has no authorizer" in str(report)
    world.source._authorizer = True
    world.follow()
    world.source._authorizer = False
    world.follow()
    assert seen_acls.last_seen("m", world.state) == (WRITE,)


def test_rules_of_any_number_are_noted_and_fewer_after_them(world: World, small_records: Callable[[int], None]) -> None:
    small_records(100)
    for rules in ((WRITE, DENY, OTHER), (WRITE,), (WRITE, DENY)):
        world.state.write(seen_acls.changed("m", world.state.read(), rules))
        assert seen_acls.last_seen("m", world.state) == tuple(sorted(rules))
        assert seen_acls.changed("m", world.state.read(), rules) == {}


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"7", b'{"v":99}'], ids=repr)
def test_a_note_of_a_newer_version_stays_and_rules_follow(world: World, value: bytes) -> None:
    world.state.write({"acls/m/later/0/1": value})
    with pytest.raises(LedgerNewer, match="rules of writers"):
        world.follow()
    assert world.target.acls == {READ, DENY, OTHER} and world.state.read() == {"acls/m/later/0/1": value}
    with pytest.raises(LedgerNewer):
        seen_acls.last_seen("m", world.state)


def test_right_that_is_gone_is_taken_back_on_request_alone(world: World) -> None:
    world.follow()
    world.source.acls.remove(READ)
    report = world.follow()
    assert READ in world.target.acls and str(report) == f"2 rules kept level; not on the source: {READ}"
    world.plan = replace(world.plan, mirror=world.mirror(remove_acls=True))
    assert world.follow().to_dict()["removed"]["first"] == [str(READ)] and world.target.acls == {DENY, OTHER}


def test_pattern_that_others_names_came_under_is_named_and_stays(world: World) -> None:
    pattern = rule("o", "READ", "ALLOW", ALICE, pattern="PREFIXED")
    world.plan = replace(world.plan, mirror=world.mirror(remove_acls=True))
    world.source.acls = {READ, pattern}
    world.follow()
    assert pattern in world.target.acls
    world.source.acls.clear()
    world.target._topics = ["orders.local"]
    report = world.follow()
    assert world.target.acls == {pattern} and report.to_dict()["removed"]["first"] == [str(READ)]
    line = f"{pattern}: it also covers 'orders.local'; remove it by hand if the source has taken it back"
    assert str(report) == f"0 rules kept level; not on the source, and never removed: {line}"
    world.target._topics = []
    assert world.follow().to_dict()["removed"]["first"] == [str(pattern)] and not world.target.acls


def test_who_loses_access_is_told_to_a_person(world: World) -> None:
    world.target._open_by_default = True
    assert world.follow().to_dict()["said"][0].startswith("access is lost: TOPIC 'orders'")


def test_rules_of_topics_in_production_are_left_alone(world: World) -> None:
    world.active.discard("users")
    report = world.follow()
    assert OTHER not in world.target.acls and READ in world.target.acls
    assert report.to_dict()["left_out"]["count"] == 2  # the topic, and the rule about it
    assert "2 left out, as " in str(report)


def group(name: str, permission: str = "ALLOW", pattern: str = "LITERAL") -> Acl:
    return rule(name, "READ", permission, ALICE, kind="GROUP", pattern=pattern)


class Wave(World):
    """``users`` and its group ``people`` follow; ``orders`` and its group ``billing`` were another mirror's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, source_id: str = "", **mirror: Any) -> None:
        super().__init__(monkeypatch)
        self.plan = plan_of(self.mirror(sync_acls=True, **mirror), topic_plan("users", {0: 0}, source_topic_id="users"))
        self.plan = replace(self.plan, known_topics={"users": "identical"})
        for cluster in (self.source, self.target):
            cluster.acls, cluster._topics, cluster._groups = {OTHER}, ["orders", "users"], ["billing", "people"]
        self.source.read = {"billing": ("orders",), "people": ("users",)}
        source_id = source_id or self.plan.source_cluster_id
        one = Owned(topic_id="", mirror="wave-a", source_id=source_id, opened_by="hash", opened_at="2026-01-01")
        self.ledger.decide(lambda _: {"topic/orders": one.value()})


def test_what_a_wave_in_production_rests_on_is_removed_by_no_other_waves_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its old rights are taken back at the source once its applications have left."""
    wave = Wave(monkeypatch, remove_acls=True)
    denied = rule("tx", "WRITE", "DENY", BOB, kind="TRANSACTIONAL_ID")
    native = rule("native", "WRITE", "ALLOW", BOB, kind="TRANSACTIONAL_ID")
    rests = {group("billing"), group("people"), group("peo", pattern="PREFIXED"), denied, native}
    gone = rule("users", "DESCRIBE", "ALLOW", ALICE)
    wave.source.acls.add(rule("users", "WRITE", "ALLOW", BOB))
    wave.target.acls |= {*rests, gone}
    report = wave.follow()
    assert wave.target.acls == {OTHER, *rests} and report.removed == [str(gone)], "rules of its own topics follow"
    why = "another mirror's topics are in production, and may rest on it; remove it by hand if nobody does"
    assert sorted(report.stays) == sorted(f"{one}: {why}" for one in rests - {native})
    assert not report.drift


def test_what_a_wave_in_production_took_back_is_granted_by_no_other_waves_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    wave = Wave(monkeypatch)
    taken = {group("billing"), group("billing", "DENY"), group("bill", pattern="PREFIXED")}
    new = {group("people"), group("new", "DENY")}
    wave.source.acls |= {*taken, *new, group("expired"), group("*")}
    report = wave.follow()
    assert wave.target.acls == {OTHER, *new}, "what names all is written out"
    why = "topics of another mirror are in production, and this one's know no position of the group"
    assert {f"{one}: {why}" for one in (group("billing"), group("billing", "DENY"), group("expired"))} <= {
        *report.left_out
    }
    wave.source.read["billing"] = ("orders", "users")
    wave.follow()
    assert wave.target.acls >= {group("billing"), group("billing", "DENY")}


def test_rules_that_a_wave_in_production_has_kept_are_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    wave = Wave(monkeypatch, remove_acls=True, groups=["billing", "people"])
    for cluster in (wave.source, wave.target):
        cluster.acls |= {group("billing"), group("*"), group("bill", pattern="PREFIXED")}
    report = wave.follow()
    assert not (report.removed or report.stays or report.drift) and wave.target.acls == wave.source.acls


@pytest.mark.parametrize("whose", ["nobody's", "another source's", "its own"])
def test_beside_nothing_in_production_groups_follow_as_ever(monkeypatch: pytest.MonkeyPatch, whose: str) -> None:
    wave = Wave(monkeypatch, source_id="another" if whose == "another source's" else "", remove_acls=True)
    if whose == "nobody's":
        wave.ledger.decide(lambda _: {"topic/orders": None})
    if whose == "its own":
        orders = topic_plan("orders", {0: 0}, source_topic_id="orders")
        wave.plan, wave.active = replace(wave.plan, topics=(*wave.plan.topics, orders)), {"users"}
    wave.target.acls.add(group("billing"))
    wave.source.acls.add(group("new"))
    report = wave.follow()
    assert wave.target.acls == {OTHER, group("new")} and report.removed == [str(group("billing"))]


@pytest.mark.parametrize("confirmed", [0, 1, 2])
def test_job_that_lost_the_lease_grants_nothing_more(world: World, confirmed: int) -> None:
    world.right.left = confirmed
    with pytest.raises(LeaseLost):
        world.follow()
    assert world.target.acls == ({DENY} if confirmed == 2 else set())


@pytest.mark.parametrize("phase", ["up", "lifting", "closing", "lifted", "closed"])
def test_nothing_of_a_fence_follows(world: World, phase: str) -> None:
    """Its DENY comes, or goes, a request apart from what lets everybody read: without it that looks like the site's."""
    readable = {rule("orders", op, "ALLOW") for op in ("READ", "DESCRIBE_CONFIGS")}
    world.source.acls = {*readable, OTHER}
    world.fence(phase)
    report = world.follow()
    if phase in ("lifted", "closed"):
        assert world.target.acls == {*readable, OTHER}, "then they are the site's"
    else:
        assert not world.target.acls and str(report).endswith(
            "no rules follow while a fence of the mirror stands at the source"
        )


def test_nothing_follows_beside_another_mirrors_fence(world: World) -> None:
    """Decided in a ledger that nobody here can ask. Of other topics' fences nothing is asked."""
    world.follow()
    noted = seen_acls.last_seen("m", world.state)
    name = rule("airflow-mirror.fence.mig:r:1", "DESCRIBE", "DENY", "User:airflow-mirror-fence", kind="GROUP")
    world.source.acls = {name, READ, OTHER, rule("orders", "WRITE", "DENY", BOB)}
    report = world.follow()
    assert str(report).endswith("no rules follow while fences of others stand on its topics: mig:r:1")
    assert world.target.acls == {READ, DENY, OTHER} and seen_acls.last_seen("m", world.state) == noted == (WRITE,)
    world.source.acls.remove(name)
    world.follow()
    assert rule("orders", "WRITE", "DENY", BOB) in world.target.acls, "then it is the site's"


def test_rules_that_a_fence_came_between_are_not_believed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    described = world.source.describe_acls

    def up(**match: Any) -> Any:
        world.fence("up")
        return described(**match)

    monkeypatch.setattr(world.source, "describe_acls", up)
    world.follow()
    assert not world.target.acls
