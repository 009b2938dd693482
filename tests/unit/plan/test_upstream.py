"""No record returns to a cluster that it came from: whoever would close a ring of mirrors is refused, by cluster ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from airflow_mirror.errors import LedgerLost, NeedsHuman, NothingMatches
from airflow_mirror.ledger.decisions import Values
from airflow_mirror.plan import missing_topics, upstream
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.direction import ARMED, Direction, turn
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import Owned
from airflow_mirror.plan.ownership import claim, mark_cut_over
from airflow_mirror.plan.selection import without_returning
from airflow_mirror.plan.upstream import Upstream, read_upstream, upstream_of
from tests.builders import plan_of, topic_plan
from tests.unit.ledger.memory import MemoryLedger
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic
from tests.unit.plan.test_checks import NOW, findings
from tests.unit.plan.test_store import FakeCluster

NOON = "2026-01-31T12:00:00+00:00"


class World:
    """Clusters with a ledger each, between which mirrors copy; a topic's id says where it is."""

    def __init__(self, clusters: str) -> None:
        self.ledgers = {cluster: MemoryLedger() for cluster in clusters}

    def plan(self, here: str, there: str, topic: str = "orders", target_topic: str | None = None) -> Plan:
        planned = topic_plan(topic, {0: 0}, source_topic_id=f"{topic} on {here}", target_topic=target_topic or topic)
        mirror = a_mirror(name=f"{here}-to-{there}")
        return plan_of(mirror, planned, source_cluster_id=here, target_cluster_id=there)

    def targets(self, plan: Plan) -> Any:
        return FakeCluster({t.target_topic: f"{t.target_topic} on {plan.target_cluster_id}" for t in plan.topics})

    def upstream(self, plan: Plan) -> Upstream:
        return upstream_of(plan, self.ledgers[plan.source_cluster_id].values())

    def start(self, here: str, there: str, **fields: Any) -> Plan:
        """Do what a job does first."""
        plan = self.plan(here, there, **fields)
        claim(self.ledgers[there], plan, self.targets(plan), self.upstream(plan).of)
        return plan

    def owner(self, cluster: str, topic: str = "orders") -> Owned:
        return Owned.of(topic, self.ledgers[cluster].values()[f"topic/{topic}"])


def test_the_last_mirror_of_a_ring_is_refused_by_name() -> None:
    world = World("abcd")
    for here, there in ("ab", "bc", "cd"):
        world.start(here, there)
    assert world.owner("d").upstream == ("a", "b", "c")
    for back in "abc":
        with pytest.raises(NeedsHuman, match=f"(?s)back to cluster {back}, .*orders: mirror 'c-to-d' of cluster c") as e:
            world.start("d", back)
        assert e.value.what.endswith(
            f"does not copy 1 topic(s) back to cluster {back}, where their records come from. On the source they "
            "belong to"
        )
        assert e.value.cause.count("\n  - ") == 1 and e.value.remedy == (
            "Exclude the topics from one mirror of the ring, or stop one and give up its topics with 'airflow-mirror "
            "ledger "
            "release'. Then start the others again."
        )
    world.start("d", "a", topic="clicks")  # another topic is no ring


def test_names_of_topics_do_not_hide_a_ring() -> None:
    """As with prefixes: the topic has another name in each cluster."""
    world = World("ab")
    world.start("a", "b", target_topic="a.orders")
    with pytest.raises(NeedsHuman, match="does not copy 1 topic"):
        world.start("b", "a", topic="a.orders", target_topic="b.a.orders")
    world.start("b", "a", topic="orders", target_topic="b.orders")


def test_a_topic_that_was_created_again_begins_a_chain() -> None:
    world = World("ab")
    claim(world.ledgers["b"], world.plan("a", "b"), FakeCluster({"orders": "an older one"}), lambda _: {"a"})  # type: ignore[arg-type]
    world.start("b", "a")


def test_production_ends_a_chain() -> None:
    """A mirror in the other direction is allowed after the cutover."""
    world = World("ab")
    there = world.start("a", "b")
    ids = {"orders": "orders on b"}
    mark_cut_over(world.ledgers["b"], there, ids, NOON)
    world.start("b", "a")
    assert world.owner("a").upstream == ("b",)


def test_an_owner_that_does_not_say_more_comes_from_its_source() -> None:
    """Written by a version that knew nothing of rings; or where the source's ledger could not be read."""
    world = World("abc")
    claim(world.ledgers["b"], world.plan("a", "b"), world.targets(world.plan("a", "b")))
    assert world.owner("b").upstream is None
    with pytest.raises(NeedsHuman, match="does not copy 1 topic"):
        world.start("b", "a")
    world.start("b", "c")
    claim(world.ledgers["c"], world.plan("b", "c"), world.targets(world.plan("b", "c")))
    assert world.owner("c").upstream == ("a", "b"), "what is known is not forgotten"


def test_what_is_said_again_is_decided_once() -> None:
    world = World("ab")
    for _ in range(2):
        world.start("a", "b")
    assert len(world.ledgers["b"].records) == 1


# --- plans --------------------------------------------------------------------------------------------------------------


class Source(FakeCluster):
    """A source whose ledger says this, or can't be read."""

    def __init__(self, names: str, monkeypatch: pytest.MonkeyPatch, said: Values | Exception) -> None:
        super().__init__({name: f"id-of-{name}" for name in names.split()})
        monkeypatch.setattr(upstream, "Ledger", lambda _: self)
        self.said = said

    def cluster_id(self) -> str:
        return "c1"

    def peek(self) -> Values:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def fed_by(cluster_id: str, *topics: str) -> Mapping[str, Any]:
    """A ledger in which these topics belong to a mirror of another cluster."""
    return {f"topic/{name}": Owned(topic_id=f"id-of-{name}", mirror="m", source_id=cluster_id).value() for name in topics}


def planned(source: Source, **mirror: Any) -> Plan:
    one = a_mirror(**mirror)
    found = read_upstream(source, source.ids)  # type: ignore[arg-type]
    names, returning = without_returning(one, list(source.ids), found, "c2")
    here = a_cluster(*(a_topic(name, replicas=3) for name in names))
    here = type(here)(**{**vars(here), "upstream": found, "returning": returning})
    return decide(one, here, a_cluster(cluster_id="c2"), (), NOW)


def test_a_topic_that_would_return_under_its_name_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(Source("orders users", monkeypatch, fed_by("c2", "orders")))
    assert findings(made, "loops") == [
        (
            "block", "topic 'orders'",
            "its records come from the target, cluster c2: on the source it belongs to mirror 'm' of cluster c2",
        )
    ]  # fmt: skip


def test_a_mesh_by_prefix_leaves_out_what_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody selects everything: a topic of the target that is here as a copy is not copied back, and listed."""
    source = Source("orders kafka_dc2.orders kafka_dc3.orders", monkeypatch, {
        **fed_by("c2", "kafka_dc2.orders"), **fed_by("c3", "kafka_dc3.orders"),
    })  # fmt: skip
    made = planned(source, policy="prefix")
    assert [t.target_topic for t in made.topics] == ["kafka_dc1.kafka_dc3.orders", "kafka_dc1.orders"]
    assert findings(made, "loops") == [
        ("warn", "1 topic", "they come from the target, cluster c2, and are left out: kafka_dc2.orders")
    ]
    assert missing_topics(made, source) == [], "a cutover does not miss it"  # type: ignore[arg-type]
    assert Plan.from_json(made.to_json()) == made
    (there,) = fed_by("c2", "kafka_dc2.orders").items()
    source.said = {there[0]: {**there[1], "opened_by": "h", "opened_at": NOON}}
    assert missing_topics(made, source) == ["kafka_dc2.orders"], "applications own it by now"  # type: ignore[arg-type]


def test_names_alone_make_no_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """From ``kafka_dc1`` to ``kafka_dc2``. MirrorMaker 2 refuses the first four by their names, whoever made them."""
    names = (
        "kafka_dc2.topic1", "kafka_dc2.kafka_dc1.topic1", "kafka_dc1.kafka_dc2.topic1", "kafka_dc1.topic1", "topic1",
        "kafka_dc3.topic1",
    )  # fmt: skip
    applications = planned(Source(" ".join(names), monkeypatch, {}), policy="prefix")
    assert [t.source_topic for t in applications.topics] == sorted(names)
    copies = {**fed_by("c2", *names[:3]), **fed_by("c3", names[-1])}
    mirrored = planned(Source(" ".join(names), monkeypatch, copies), policy="prefix")
    assert [t.source_topic for t in mirrored.topics] == sorted(names[3:])


def test_nothing_but_topics_that_return_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NothingMatches, match="1 that match come from the target"):
        planned(Source("kafka_dc2.orders", monkeypatch, fed_by("c2", "kafka_dc2.orders")), policy="prefix")


def test_a_source_ledger_that_can_not_be_read_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(Source("orders", monkeypatch, LedgerLost("topic airflow-mirror.decisions was created again")))
    ((level, about, evidence),) = findings(made, "loops")
    assert (level, about) == ("block", "source cluster") and "was created again" in evidence


@pytest.mark.parametrize("ledger", [{}, fed_by("c3", "orders")])
def test_topics_of_elsewhere_and_of_nobody_pass(monkeypatch: pytest.MonkeyPatch, ledger: Values) -> None:
    made = planned(Source("orders", monkeypatch, ledger))
    assert [f.level for f in made.findings if f.check == "loops"] == ["pass"]


@pytest.mark.parametrize(("by", "level"), [(ARMED, "warn"), ("rollback", "pass")])
def test_a_plan_names_the_way_back_that_writes_to_its_topics(
    monkeypatch: pytest.MonkeyPatch, by: str, level: str
) -> None:
    """Who plans anew from a source that was cut over would copy what comes back from its target."""
    ways = Direction(generation=1, primary="c3", by=by, attempt="monday", plan="p", at=NOON)
    made = planned(Source("orders users", monkeypatch, {**fed_by("c3", "orders"), **turn("m", ways)}))
    ((found, about, evidence),) = findings(made, "way_back") or [("pass", "", "")]
    assert found == level
    if level == "warn":
        assert about == "1 topic" and evidence.startswith(f"mirror 'm', the way back of a cutover, armed at {NOON}")
        assert evidence.endswith(": orders")
