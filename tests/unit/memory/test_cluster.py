"""What the conformance suite can't ask a real cluster: late news, permits, events, answers that are lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import LeaseLost, MissingRight, TryAgain
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.errors import ConnectionLost
from airflow_mirror.wire.served import unproven, without
from tests.builders import rule
from tests.driven.clock import Clock
from tests.memory.admin import MemoryAdmin
from tests.memory.applications import Consumer, Producer, add_partitions, create_topic
from tests.memory.cluster import MemoryCluster
from tests.memory.ledger import MemoryLedger, MemoryState
from tests.memory.rules import Rules

T = TypeVar("T")
TP = TopicPartition("orders", 0)
DENY = rule("orders", "WRITE", "DENY")


class Noting:
    """A hook that notes what is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool, str, frozenset[str]]] = []

    def __call__(
        self, what: str, do: Callable[[], T], *, effect: bool = False, at: str = "",
        touches: frozenset[str] = frozenset(), check: Callable[[], object] | None = None, **_: Any,
    ) -> T:  # fmt: skip
        self.asked.append((what, effect, at, touches))
        if check is not None:
            check()
        return do()


def cluster(**given: Any) -> MemoryCluster:
    made = MemoryCluster("source", **given)
    made.create("orders", 2)
    return made


def test_one_broker_hears_of_a_rule_later_than_the_others() -> None:
    clock = Clock()
    c = cluster(brokers=2, clock=clock, rules=Rules(open_by_default=True, news_s={2: 1.0}))
    admin, producer = MemoryAdmin(c), Producer(c)
    admin.create_acls([DENY], unfenced)
    assert admin.acls_by_broker(resource_type="TOPIC") == {1: [DENY], 2: []} and admin.describe_acls() == [DENY]
    behind = TopicPartition("orders", 1)  # its leader is broker 2
    assert producer.write(behind, b"still") == 0
    assert c.writable("User:app") == ["orders"] and list(admin.wire.write_answers([TP, behind]).values()) == [29, 2]
    with pytest.raises(MissingRight):
        producer.write(TP, b"no more")
    clock.advance(1.001)
    assert admin.acls_by_broker(resource_type="TOPIC") == {1: [DENY], 2: [DENY]} and c.writable("User:app") == []
    with pytest.raises(MissingRight):
        producer.write(behind, b"no more")
    assert [(tp, value) for _, tp, _, value in c.written] == [(behind, b"still")]


def test_each_call_is_one_event_and_says_what_it_touches() -> None:
    c, noting = cluster(rules=Rules(open_by_default=True)), Noting()
    admin = MemoryAdmin(c, noting)
    admin.create_acls([DENY, rule("payments", "WRITE", "DENY"), rule("g", "READ", kind="GROUP")], unfenced)
    admin.delete_acls([DENY], unfenced)
    admin.create_acls([], unfenced)
    admin.describe_acls(resource_type="TOPIC")
    admin.commit_group_offsets("app", {TP: GroupPosition(5)}, unfenced)
    admin.groups_offsets([])
    admin.wire.log_ends([TP, TopicPartition("orders", 1)])
    MemoryLedger(c, noting).decide(lambda _: {"fence/flow": {"phase": "up", "run": "r1", "attempt": 1}})
    state = MemoryState(c, "report/flow", ask=noting)
    state.write({"report/flow/r1/000001-a": b"x", "report/flow/r1/000002-b": b"y"})
    state.read()
    Producer(c, ask=noting).write(TP, b"x")
    assert [(what, effect, sorted(touches)) for what, effect, _, touches in noting.asked] == [
        ("source: create ALLOW READ on group g; DENY WRITE on topic orders,payments", True, ["acl:GROUP", "acl:TOPIC"]),
        ("source: delete DENY WRITE on topic orders", True, ["acl:TOPIC"]),
        ("source: describe ACLs TOPIC", False, ["acl:TOPIC"]),
        ("source: set app at orders-0 to 5", True, ["group:app"]),
        ("source: log ends of orders", False, ["log:orders"]),
        ("source: read the ledger", False, ["ledger:*"]),
        ("source: decide fence/flow up (r1.1)", True, ["ledger:fence/flow"]),
        ("source: read the ledger", False, ["ledger:*"]),
        ("source: write state report/flow/r1", True, ["state:report"]),
        ("source: read state report/flow", False, ["state:report"]),
        ("source: User:app writes to orders-0", True, ["log:orders"]),
    ]
    assert {at for _, _, at, _ in noting.asked} == {"source"}


def test_what_is_decided_is_seen_without_asking() -> None:
    c, noting = cluster(), Noting()
    ledger = MemoryLedger(c, noting)
    for n in (1, 2):
        ledger.decide(lambda _, n=n: {"key": n, f"key{n}": None})  # type: ignore[misc]
        asked = len(noting.asked)
        assert c.decided == {"key": n} and len(noting.asked) == asked


def test_lease_is_taken_in_three_requests_by_the_code_itself() -> None:
    c, noting = cluster(), Noting()
    wire = MemoryAdmin(c, noting).wire
    token = lease.take(wire, "flow", to_end=True)
    assert [(what, effect) for what, effect, _, _ in noting.asked] == [
        ("source: who holds airflow-mirror:flow:lease", False), ("source: take over airflow-mirror:flow:lease", True),
        ("source: mark to end writing airflow-mirror:flow:lease", True),
    ]  # fmt: skip
    assert {touches for _, _, _, touches in noting.asked} == {frozenset({"lease:airflow-mirror:flow:lease"})}
    lease.take(wire, "flow")
    with pytest.raises(LeaseLost):
        lease.confirm(wire, token)


def test_permit_is_looked_at_before_the_effect() -> None:
    c = cluster()
    admin = MemoryAdmin(c)

    def gone() -> None:
        raise TryAgain("the lease is another one's")

    wanted = {"a": {TP: GroupPosition(1)}, "b": {TP: GroupPosition(2)}}
    done = admin.commit_groups(wanted, gone)
    assert [(one.done, one.refused, str(one.error)) for one in done.values()] == [
        (set(), {TP}, "the lease is another one's")
    ] * 2
    for act in (
        lambda: admin.create_acls([DENY], gone), lambda: admin.delete_acls([DENY], gone),
        lambda: admin.commit_group_offsets("a", wanted["a"], gone),
        lambda: admin.forget_group_offsets("a", [TP], gone),
        lambda: admin.wire.delete_records({TP: 0}, gone),
    ):  # fmt: skip
        with pytest.raises(TryAgain, match="another one's"):
            act()
    assert c.rules.now == frozenset() and c.groups.committed == {}


def test_answer_that_is_lost_is_an_error_of_the_connection() -> None:
    c = cluster()

    def losing(what: str, do: Callable[[], T], *, lost: Callable[[], T], **_: Any) -> T:
        do()
        return lost()

    admin = MemoryAdmin(c, losing)
    with pytest.raises(ConnectionLost, match="source: create DENY WRITE on topic orders"):
        admin.create_acls([DENY], unfenced)
    assert c.rules.now == {DENY}
    (commit,) = admin.commit_groups({"a": {TP: GroupPosition(1)}}, lambda: None).values()
    assert (commit.done, commit.refused, type(commit.error)) == (set(), set(), ConnectionLost)
    with pytest.raises(ConnectionLost):
        lease.take(admin.wire, "flow")
    assert MemoryLedger(c, losing).append(b"{}") is None and len(c.decisions) == 1


def test_consumers_commit_as_members_or_by_hand() -> None:
    c = cluster()
    for n in range(3):
        c.append(TP, b"%d" % n)
    member, alone = Consumer(c, "app", "m1", reset="earliest"), Consumer(c, "app", reset="earliest")
    assert alone.read(TP) == 3 and [value for _, _, value in alone.seen] == [b"0", b"1", b"2"]
    member.join()
    c.append(TP, b"3")
    with pytest.raises(Exception, match="UNKNOWN_MEMBER_ID"):
        alone.read(TP)
    assert member.read(TP) == 4 and [value for _, _, value in member.seen] == [b"3"]
    member.leave()
    assert alone.read(TP) == 4


def test_somebody_changes_topics() -> None:
    c = cluster()
    before = c.topics["orders"].topic_id
    add_partitions(c, "orders", 5)
    create_topic(c, "orders-eu")
    assert MemoryAdmin(c).topics()["orders"].partitions == 5 and "orders-eu" in c.topics
    create_topic(c, "orders")
    assert c.topics["orders"].topic_id != before


def test_code_that_asks_for_a_release_knows_it() -> None:
    wire = MemoryAdmin(cluster()).wire
    assert (unproven(wire), without(wire)) == ([], [])
