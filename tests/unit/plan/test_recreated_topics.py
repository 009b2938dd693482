"""A topic that was created again while the target holds the old one's records: left out alone, until they are gone."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import LedgerLost, LedgerMissing, LedgerNewer
from airflow_mirror.ledger.decisions import Values
from airflow_mirror.plan import Plan, amend
from airflow_mirror.plan.brokers import Told
from airflow_mirror.plan.inventory import Inventory, TopicState
from airflow_mirror.plan.owned import Owned, owned_topics
from airflow_mirror.plan.ownership import claim
from airflow_mirror.plan.recreated_topics import created_again, decisions_of
from airflow_mirror.plan.upstream import Upstream
from tests.builders import plan_of, topic_plan
from tests.unit.ledger.memory import MemoryLedger
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic
from tests.unit.plan.test_checks import NOW, findings
from tests.unit.plan.test_store import FakeCluster

MIRROR = a_mirror(topics=["orders", "users"])
DATA, NONE = ((0, 40), (0, 0), (0, 7)), ((0, 0), (0, 0), (0, 0))


def held(topic: str = "orders", source_topic_id: str | None = "the old one's", **fields: Any) -> Values:
    """A decision about a target topic; by default this mirror's, of an older source topic."""
    owner = {"topic_id": f"id-of-{topic}", "mirror": MIRROR.name, "source_id": "c1", **fields}
    return {f"topic/{topic}": Owned(source_topic_id=source_topic_id, **owner).value()}


def found(values: Values, there: Inventory, here: TopicState | None = None) -> dict[str, str]:
    return created_again(MIRROR, "c1", {"orders": here or a_topic("orders")}, there, values)


def test_topic_is_another_one_than_its_target_holds() -> None:
    there = a_cluster(a_topic("orders", spans=DATA))
    assert found(held(), there) == {"orders": "orders"}
    mine = Owned.of("orders", held()["topic/orders"])
    shared = Owned.shared(mine, Owned(topic_id=mine.topic_id, mirror="b", source_id="c3", source_topic_id="x"))
    assert found({"topic/orders": shared.value()}, there) == {"orders": "orders"}


@pytest.mark.parametrize(
    "values",
    [
        {}, held(source_topic_id="id-of-orders"), held(source_topic_id=None), held(topic_id="of one before"),
        held(mirror="another"), held(source_id="c3"),
    ],
)  # fmt: skip
def test_same_topic_and_what_nobody_knows_are_not_left_out(values: Values) -> None:
    assert found(values, a_cluster(a_topic("orders", spans=DATA))) == {}


def test_target_without_records_holds_no_older_topic() -> None:
    for there in (a_cluster(a_topic("orders", spans=NONE)), a_cluster()):
        assert found(held(), there) == {}


def test_source_without_topic_ids_tells_nothing() -> None:
    here = a_topic("orders")
    object.__setattr__(here.info, "topic_id", "")
    assert found(held(), a_cluster(a_topic("orders", spans=DATA)), here) == {}


def test_newer_decision_is_no_permission_to_copy() -> None:
    with pytest.raises(LedgerNewer):
        found({"topic/orders": {"v": 9}}, a_cluster(a_topic("orders", spans=DATA)))


def test_ledger_that_never_was_says_nothing_and_a_lost_one_that_it_is_lost() -> None:
    class Ledger(MemoryLedger):
        def values(self) -> Values:
            raise error

    error: Exception = LedgerMissing()
    assert decisions_of(Ledger()) == {}
    error = LedgerLost("cut")
    with pytest.raises(LedgerLost):
        decisions_of(Ledger())
    ledger = MemoryLedger()
    ledger.decide(lambda _: {"a": 1})
    assert decisions_of(ledger) == {"a": 1}


# --- plans --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """``here`` and ``there``: what reading the two clusters returns."""
    seen = SimpleNamespace(here=[a_topic("orders"), a_topic("users")], there=[a_topic("orders", spans=DATA)])
    module = importlib.import_module("airflow_mirror.plan.build")
    answers: dict[str, Any] = {"refusals": lambda *_: {}, "other_topics": lambda *_: ()}
    answers["check_brokers"] = lambda *_: Told([], drops_old_clients=False, served=frozenset())
    answers["ledger_writers"], answers["refused_ledger"] = lambda *_: (), lambda *_: {}
    answers["hides_groups"] = lambda _: False
    for name, does in answers.items():
        monkeypatch.setattr(module, name, does)
    for one in (module, amend):
        monkeypatch.setattr(one, "read_upstream", lambda *_: Upstream("c1"))
        monkeypatch.setattr(one, "read_target", lambda *_: a_cluster(*seen.there, cluster_id="c2"))
        monkeypatch.setattr(one.holes, "sample", lambda *_, **__: module.HoleSamples())
    monkeypatch.setattr(amend, "refusals", lambda *_: {})
    monkeypatch.setattr(module, "select_topics", lambda *_: [t.info.name for t in seen.here])
    groups = {"readers": {"orders-0": 5, "users-0": 5}}
    monkeypatch.setattr(module, "read_source", lambda *_: a_cluster(*seen.here, groups=groups))
    monkeypatch.setattr(
        amend, "read_topics", lambda _, names, __: {t.info.name: t for t in seen.here if t.info.name in names}
    )
    admin: Any = SimpleNamespace(
        config=ClientConfig({"bootstrap.servers": "t:1"}), cluster_id=lambda: "c2", topics=lambda _: {},
        sees_group_coordinators=lambda: True,
    )  # fmt: skip
    known = {"orders": "identical", "users": "identical"}
    seen.plan = lambda values: module.build(MIRROR, admin, admin, known, probe_target=False, decisions=values)
    seen.draft = lambda plan, values, *names: amend.draft(plan, admin, admin, names, NOW, values)
    return seen


def topics(plan: Plan) -> list[str]:
    return [t.source_topic for t in plan.topics]


def test_plan_leaves_out_the_topic_and_takes_the_others(clusters: SimpleNamespace) -> None:
    """A log that is longer than the new one's would block the whole plan, a shorter one would stop the whole copy."""
    for spans in (DATA, ((0, 4000), (0, 0), (0, 0))):
        clusters.there = [a_topic("orders", spans=spans), a_topic("users", spans=DATA)]
        plan = clusters.plan({**held(), **held("users", "id-of-users")})
        assert topics(plan) == ["users"] and not plan.blocks
        (finding,) = [f for f in plan.findings if f.check == "target_data"]
        assert (finding.level, finding.object) == ("warn", "topic 'orders'")
        assert "target topic 'orders' holds the old one's records; it is left out" in finding.evidence
        assert "Delete the target topic" in finding.remedy
        assert plan.positions["readers"].keys() == {"users"}, "its groups stand in the old one"
        assert Plan.from_json(plan.to_json()) == plan
    clusters.there = []
    assert topics(clusters.plan(held())) == ["orders", "users"], "once the target's topic is gone"


def test_plan_of_nothing_else_is_blocked(clusters: SimpleNamespace) -> None:
    clusters.here = clusters.here[:1]
    assert [level for level, *_ in findings(clusters.plan(held()), "target_data")] == ["block"]


def test_tail_leaves_it_out_until_the_target_has_none(clusters: SimpleNamespace) -> None:
    """Its plan has no such topic, because the old one was gone when it was made."""
    plan = plan_of(MIRROR, topic_plan("users", {0: 0}, source_topic_id="id-of-users"), source_cluster_id="c1")
    draft = clusters.draft(plan, held(), "orders")
    assert not draft.topics and "Delete the target topic" in draft.left_out["orders"]
    clusters.there = [a_topic("orders", spans=NONE)]
    draft = clusters.draft(plan, held(), "orders")
    assert [t.source_topic for t in draft.topics] == ["orders"] and not draft.left_out


# --- what is decided ----------------------------------------------------------------------------------------------------


class Target(FakeCluster):
    """Topics with one partition each, and its end."""

    def __init__(self, end: int) -> None:
        super().__init__({"orders": "id-of-orders"})
        self.end = end

    def offsets(self, partitions: list[TopicPartition], when: str) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.end)


def source_topic(plan_id: str, ledger: MemoryLedger, end: int) -> str | None:
    """What a target topic holds once a plan has claimed it that copies the source topic of this id."""
    plan = plan_of(MIRROR, topic_plan("orders", {0: 0}, source_topic_id=plan_id), source_cluster_id="c1")
    claim(ledger, plan, Target(end))  # type: ignore[arg-type]
    return owned_topics(ledger)["orders"].source_topic_id


def test_what_a_topic_holds_stays_until_it_is_empty() -> None:
    ledger = MemoryLedger()
    assert source_topic("one", ledger, 0) == "one"
    assert source_topic("two", ledger, 9) == "one", "a plan does not change what was copied"
    assert source_topic("two", ledger, 0) == "two"
    assert source_topic("one", ledger, 9) == "two", "nor does an old one"
    assert source_topic("", ledger, 9) == "two", "nor brokers without ids"


def test_what_an_older_version_decided_is_completed() -> None:
    ledger = MemoryLedger()
    ledger.decide(lambda _: held(source_topic_id=None))
    assert source_topic("one", ledger, 9) == "one"
    assert source_topic("", MemoryLedger(), 9) is None
