"""What each broker says of a fence, at real sockets; the rights themselves are played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover import proof
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.quiet import raise_if_written, written_by
from airflow_mirror.cutover.report import FenceRecord, as_recorded
from airflow_mirror.cutover.steps import raise_fence
from airflow_mirror.cutover.undoing import back_out
from airflow_mirror.cutover.writers import require_source_shut
from airflow_mirror.errors import FencedByAnother, FenceGone, FenceLeaks, FenceUnproven
from airflow_mirror.kafka.model import Acl
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.records import LAST_PLAN
from airflow_mirror.wire import served
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from tests.builders import plan_of, rule, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.script import Fault, Rule
from tests.unit.cutover.builders import Acls, a_run, want

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
BROKERS = (1, 2)
ORDERS = [TopicPartition("orders", p) for p in range(4)]


class World(Acls):
    """A source of two brokers. Each hears of the fence by itself: from then on it lists the ACLs and refuses writers."""

    def __init__(self, cluster: DrivenCluster, wire: WireCluster, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(rule("orders", "READ", "ALLOW", "User:alice"))
        self.cluster, self.clock = cluster, 0.0
        self.heard: set[int] = set()
        self.binds = set(BROKERS)  # those whose authorizer refuses our principal
        self.at: dict[int, Callable[[], object]] = {}
        self.waits = 0
        self._rules: dict[int, Rule] = {}
        Writer(cluster.create("orders", len(ORDERS)).logs[0]).plain(10)
        self.fence = AclFence(self)  # type: ignore[arg-type]
        self.run = a_run(tmp_path, self.fence, self)
        topic = topic_plan("orders", dict.fromkeys(range(len(ORDERS)), 0), source_topic_id="id")
        want(self.run, plan=plan_of(self.run.mirror, topic))
        self.run.on.source.log = wire  # type: ignore[misc]
        patch.setattr(Attempt, "now", lambda _: self.clock)
        patch.setattr(Attempt, "pause", lambda _, seconds=None: self._pause())

    def acls_by_broker(self, resource_type: str) -> dict[int, list[Acl]]:
        # Of its name every broker has heard; of its rules those of which a test says so.
        mine = [acl for acl in self.acls if acl.permission != "DENY" or acl.resource_type == "GROUP"]
        return {broker: sorted(self.acls) if broker in self.heard else mine for broker in BROKERS}

    def broker_count(self) -> int:
        return len(BROKERS)

    def transactions_hidden(self) -> str:
        return ""

    def hear(self, *brokers: int) -> None:
        self.heard |= set(brokers)
        for broker in self.binds & set(brokers):
            self._rules[broker] = self.cluster.script.on("Produce", Fault.refused(DENIED), times=None, broker=broker)

    def raised(self) -> dict[str, str]:
        """Look, and raise the fence; nobody has heard of it yet."""
        before = proof.look_before(self.run)
        intent = self.run.intent = self.run.fence.intent(["orders"])
        self.run.report.fence = FenceRecord(
            kind=self.run.fence.kind, intent=as_recorded(intent), requested=1.0, proof=before
        )  # fmt: skip
        self.run.fence.raise_(intent, name_of("flow", "run", "i"), unfenced)
        return before

    def contents(self) -> list[Any]:
        return [log.rows() for log in self.cluster.topics["orders"].logs]

    def _pause(self) -> None:
        self.waits += 1
        self.clock += 0.5
        self.at.get(self.waits, lambda: None)()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with DrivenCluster("source", brokers=2) as cluster, WireCluster(cluster.config) as wire:
        known = served.fingerprint(wire.connection(wire.broker_ids()[0]))
        monkeypatch.setattr(served, "REFUSING", {known: "driven"})
        yield World(cluster, wire, tmp_path, monkeypatch)


def test_leaders_that_stop_taking_our_batch_prove_the_fence(world: World) -> None:
    before = world.contents()
    assert world.raised() == {"by": "answers", "why": ""}
    world.at = {2: lambda: world.hear(1), 5: lambda: world.hear(2)}
    assert proof.prove(world.run) == {"by": "answers", "why": ""}
    assert world.waits == 5 and world.run.report.fence.proven  # type: ignore[union-attr]
    assert world.contents() == before


def test_each_broker_is_sent_one_invalid_batch_for_each_partition(world: World) -> None:
    world.raised()
    asked = world.cluster.asked("Produce")
    assert [r.broker for r in asked] == [1, 2]
    assert [sum(len(t.partition_data) for t in r.message.topic_data) for r in asked] == [2, 2]


def test_broker_that_never_hears_of_the_fence_is_named(world: World) -> None:
    world.raised()
    world.hear(1)
    with pytest.raises(FenceUnproven, match=r"after 10 s: broker 2 does not list its ACLs"):
        proof.prove(world.run)


def test_fence_that_no_broker_lists_was_taken_away(world: World) -> None:
    world.raised()
    with pytest.raises(FenceGone):
        proof.prove(world.run)
    assert world.clock >= world.run.limits.proof_timeout_s


@pytest.mark.parametrize("code", [DENIED, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_any_other_answer_before_leaves_the_lists_as_proof(world: World, code: ErrorCode) -> None:
    """A partition below its least in-sync replicas may be so for hours: it is not waited for."""
    world.cluster.script.on("Produce", Fault.refused(code, [ORDERS[2]]), times=None)
    before = world.raised()
    assert before["by"] == "acls"
    assert f"before the fence: {code.name} from 1 leader(s) (orders-2)" in before["why"]
    asked = len(world.cluster.asked("Produce"))
    world.at = {3: lambda: world.hear(*BROKERS)}
    assert proof.prove(world.run) == before
    assert world.waits == 3 and len(world.cluster.asked("Produce")) == asked


def test_super_user_gets_no_verdict_from_its_answers(world: World) -> None:
    world.binds = set()
    world.raised()
    world.hear(*BROKERS)
    found = proof.prove(world.run)
    assert found["by"] == "acls" and "a super user, whom no ACL binds" in found["why"]
    assert proof.prove(world.run) == found and world.waits == 0, "nobody waits for what can't come"


def test_one_leader_that_lets_us_in_while_others_refuse_is_named(world: World) -> None:
    """It lists the DENY and does not act on it: it would not act on it for others either."""
    world.binds = {1}
    world.raised()
    world.hear(*BROKERS)
    with pytest.raises(FenceUnproven, match=r"leader of orders-1 answers CORRUPT_MESSAGE; the leader of orders-3"):
        proof.prove(world.run)


def test_release_of_which_nothing_was_shown_gets_no_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "REFUSING", {})
    found = world.raised()
    assert found["by"] == "acls" and f"127.0.0.1:{world.cluster.brokers[2].port}" in found["why"]
    world.hear(*BROKERS)
    assert proof.prove(world.run) == found and not world.cluster.asked("Produce")


@pytest.mark.parametrize("moved", ["before", "meanwhile"])
def test_proof_follows_leaders_that_move(world: World, moved: str) -> None:
    world.raised()
    world.hear(*BROKERS)
    if moved == "before":
        world.cluster.move_leader(ORDERS[0], 2)
    else:
        move = Fault(before=lambda _: world.cluster.move_leader(ORDERS[0], 2))
        world.cluster.script.rules.insert(0, world.cluster.script.on("Produce", move, broker=1))
    assert proof.prove(world.run)["by"] == "answers"


@pytest.mark.parametrize(
    "fault", [Fault.lost_answer(), Fault.cut_answer(9), Fault.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
def test_lost_or_passing_answer_is_asked_for_again(world: World, fault: Fault) -> None:
    world.cluster.script.on("Produce", fault)
    assert world.raised() == {"by": "answers", "why": ""}


def test_fence_in_force_is_proven_again_right_before_opening(world: World) -> None:
    world.raised()
    world.hear(*BROKERS)
    proof.prove(world.run)
    ends = world.run.source_log.log_ends(ORDERS)
    world.run.report.ends = [{"topic": tp.topic, "partition": tp.partition, "end": end} for tp, end in ends.items()]
    require_source_shut(world.run)
    world.cluster.script.clear()  # the authorizers let everybody in again, whatever they list
    with pytest.raises(FenceUnproven, match=r"orders-0 answers CORRUPT_MESSAGE"):
        require_source_shut(world.run)


def test_fence_of_another_mirror_is_refused_by_name(world: World) -> None:
    """Adopted as somebody's own DENY, it would be gone as soon as the other mirror lifts it."""
    raise_fence(world.run)
    another = replace(world.run.plan, mirror=replace(world.run.mirror, name="another"))
    ours = replace(world.run, request=replace(world.run.request, plan=another), fenced_until=None)
    world.run.ledger.decide(lambda _: LAST_PLAN.put({"hash": another.hash}, "another"))
    before = set(world.acls)
    with pytest.raises(FencedByAnother, match=r"\(orders\), and these fences.*: flow:\w+:\w+@t\. Their owner"):
        raise_fence(ours)
    assert world.acls == before, "nothing was touched"
    back_out(world.run)
    assert {acl.resource_type for acl in world.acls} == {"TOPIC"}, "the name goes with the fence"
    world.create_acls([rule("orders", "WRITE", "DENY")])  # somebody's own
    raise_fence(ours)


def test_who_got_through_is_named_by_its_batches(world: World) -> None:
    """Markers and what the cleaner emptied are nobody's writing; a batch may begin below the proven end."""
    log = world.cluster.topics["orders"].logs[1]
    writer = Writer(log)
    writer.plain(3)
    writer.end(9, commit=True)
    writer.in_transaction(7001, 2, epoch=3)
    writer.holed((), 4)
    writer.idempotent(8, 1)
    writer.in_transaction(7001, 2, epoch=3)
    wire = world.run.source_log
    assert written_by(wire, ORDERS[1], 3, 4) == []
    assert written_by(wire, ORDERS[1], 6, 10) == []
    assert written_by(wire, ORDERS[1], 1, log.end) == [
        "a producer without an id wrote from offset 1 to 2 of orders-1",
        "producer 7001 (epoch 3) wrote from offset 4 to 12 of orders-1",
        "producer 8 (epoch 0) wrote from offset 10 to 10 of orders-1",
    ]
    with pytest.raises(FenceLeaks, match=r"orders-1: 4 -> 13; producer 7001 \(epoch 3\) wrote from offset 4 to 12"):
        raise_if_written(world.run, {ORDERS[1]: 4}, {ORDERS[1]: log.end})


def test_callable_fence_is_nothing_that_a_broker_knows_of(world: World) -> None:
    world.run.fence = CallableFence(lambda: None, lambda: None)
    assert world.raised()["by"] == "check"
    assert proof.prove(world.run)["by"] == "check" and not world.cluster.asked("Produce")
