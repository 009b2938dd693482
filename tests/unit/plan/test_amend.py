"""What a rule selects by now: found by comparing, and decided as a plan decides, topic by topic."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.policy import Policy
from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.plan import Plan, amend, holes, inventory
from airflow_mirror.plan.amend import changes, decide_each, draft
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.holes import HoleSamples
from airflow_mirror.plan.inventory import Inventory, Refusal
from airflow_mirror.plan.model import HoleEstimate
from airflow_mirror.plan.owned import Owned
from airflow_mirror.plan.upstream import Upstream
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic
from tests.unit.plan.test_model import NOW


def made(*topics: str, **fields: Any) -> Plan:
    mirror = a_mirror(**{"topics": ["orders.*", "users"], "exclude_topics": [".*tmp"], **fields})
    return decide(mirror, a_cluster(*map(a_topic, topics)), a_cluster(cluster_id="c2"), (), NOW)


def infos(**partitions: int) -> dict[str, TopicInfo]:
    return {name: TopicInfo(name, f"id-of-{name}", count, 3) for name, count in partitions.items()}


def decided(plan: Plan, *topics: Any, there: Inventory | None = None, refused: Any = None, **holes: HoleEstimate) -> Any:
    here = {t.info.name: t for t in topics}
    there = replace(there or a_cluster(cluster_id="c2"), refused=refused or {})
    return decide_each(plan, here, there, HoleSamples(holes), NOW)


def test_what_is_new_grown_gone_and_created_again_is_told_apart() -> None:
    plan = made("orders", "orders.eu", "orders.us", "users")
    there = infos(**{"orders": 3, "orders.eu": 5, "orders.new": 1, "orders.tmp": 1, "other": 1, "__internal": 1})
    there["users"] = TopicInfo("users", "another id", 9, 3)
    found = changes(plan, there)
    assert (found.new, found.grown) == (("orders.new",), ("orders.eu",))
    assert (found.gone, found.again) == (("orders.us",), ("users",))


def test_topic_that_gets_an_id_was_not_created_again() -> None:
    """As all do while a mirror runs whose source is upgraded to 2.8."""
    plan = made("orders")
    before = replace(plan, topics=(replace(plan.topics[0], source_topic_id=""),))
    assert changes(before, infos(orders=3)).again == ()
    assert changes(before, infos(orders=4)).grown == ("orders",)
    assert changes(plan, {"orders": TopicInfo("orders", "", 3, 3)}).again == (), "a broker that tells no id for now"


def test_broker_that_shows_fewer_partitions_changes_nothing() -> None:
    """It has not heard of the others yet."""
    plan = made("orders")
    found = changes(plan, infos(orders=2))
    assert (found.new, found.grown, found.gone, found.again) == ((), (), (), ())


def test_topic_that_was_the_mirrors_before_goes_on_among_as_many_partitions() -> None:
    plan, there = made("orders", partitioning="by_key"), a_cluster(a_topic("users", spans=((0, 5),) * 4), cluster_id="c2")
    owned = {"users": Owned(topic_id="id-of-users", mirror=plan.mirror.name, source_id="c1", key_partitions=2)}
    here = {"users": a_topic("users")}
    (users,) = decide_each(plan, here, replace(there, owned=owned), HoleSamples(), NOW).topics
    assert users.key_partitions == 2
    more = decide_each(plan, {"orders": a_topic("orders", spans=((0, 5),) * 9)}, there, HoleSamples(), NOW)
    assert (more.topics[0].partitions, more.topics[0].key_partitions) == (9, 3), "the source alone has grown"


def test_new_topic_is_planned_as_in_a_plan() -> None:
    plan = made("orders", policy="prefix", source_alias="dc1")
    found = decided(plan, a_topic("users", spans=((7, 90),), cleanup_policy="compact"))
    (users,) = found.topics
    both = made("orders", "users", policy="prefix", source_alias="dc1")
    assert (users.target_topic, users.mode) == ("dc1.users", "identical")
    assert users.held_configs.keys() == both.topic("users").held_configs.keys()
    assert (users.starts, users.prime, users.compacted) == ({0: 7}, {0: 7}, True)
    assert not found.left_out
    assert {f.check for f in found.findings["users"]} == {"compacted", "priming"}


def test_what_concerns_the_whole_mirror_is_not_said_again() -> None:
    plan = made("orders", groups=["none"])
    there = a_cluster(cluster_id="c2", auto_create="true", socket_request_max_bytes={1: "104857600"})
    found = decided(plan, a_topic("users"), there=there)
    assert {f.check for f in found.findings["users"]} <= {"retention", "left_out_configs", "holes", "priming"}


def test_limits_of_a_shared_mirror_are_not_said_again_of_each_topic() -> None:
    shared = {"ownership": "shared", "delivery": "transactional", "sync_groups": False, "sync_configs": False}
    plan = made("orders", **shared)
    assert "ownership" in {f.check for f in plan.findings if f.level == "warn"}
    assert "ownership" not in {f.check for f in decided(plan, a_topic("users")).findings["users"]}


def test_topic_that_is_blocked_is_left_out_alone() -> None:
    plan = made("orders")
    there = a_cluster(a_topic("users"), cluster_id="c2")
    found = decided(
        plan,
        a_topic("orders.a"),
        a_topic("orders.b"),
        a_topic("users"),
        there=there,
        refused={"orders.b": Refusal(40, "no such codec")},
    )
    assert [t.source_topic for t in found.topics] == ["orders.a"]
    assert "holds data that this mirror did not write" in found.left_out["users"]
    assert "no such codec" in found.left_out["orders.b"]


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        (HoleSamples(unreadable={"orders.b": "no READ"}), "it can't be read: no READ"),
        (HoleSamples(keyless={"orders.b": 7}), "it holds records without a key"),
    ],
)
def test_topic_that_can_not_be_copied_leaves_out_no_other(samples: HoleSamples, why: str) -> None:
    """The others bore its reason, and waited for it."""
    here = {name: a_topic(name) for name in ("orders.a", "orders.b")}
    found = decide_each(made("orders"), here, a_cluster(cluster_id="c2"), samples, NOW)
    assert [t.source_topic for t in found.topics] == ["orders.a"]
    assert found.left_out.keys() == {"orders.b"} and why in found.left_out["orders.b"]


def test_two_topics_never_get_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of a topic which is mirrored, nor of one that appeared with it."""
    plan = made("orders")
    monkeypatch.setattr(Policy, "target_topic", lambda _, name: name.split(".")[0])
    found = decided(plan, a_topic("orders.a"), a_topic("users.a"), a_topic("users.b"))
    assert [t.source_topic for t in found.topics] == ["users.a"]
    assert "that of topic 'orders'" in found.left_out["orders.a"]
    assert "that of topic 'users.a'" in found.left_out["users.b"]


def test_mirror_that_may_not_go_on_takes_nothing_in() -> None:
    """Its target's brokers are too few by now, say: each topic says so."""
    plan = made("orders")
    found = decided(plan, a_topic("users", min_insync_replicas="2"), there=a_cluster(cluster_id="c2", brokers=1))
    assert not found.topics and "min_insync" in found.left_out["users"]
    same = decided(plan, a_topic("users"), there=a_cluster(cluster_id="c1"))
    assert "both are cluster c1" in same.left_out["users"]


def test_topic_waits_for_a_broker_that_restarts() -> None:
    """It would have two replicas for ever, because one of three brokers was away for a minute."""
    plan, two = made("orders"), a_cluster(cluster_id="c2", brokers=2)
    found = decided(plan, a_topic("users"), a_topic("orders.small", replicas=2), there=two)
    assert [t.source_topic for t in found.topics] == ["orders.small"], "as many as it would get anyway"
    assert found.left_out["users"].startswith("more replicas wanted than the target has brokers (2): users (3 -> 2)")
    assert "topics of the plan have 3" in found.left_out["users"]
    there = a_cluster(a_topic("users", spans=((0, 0),) * 3, replicas=2), cluster_id="c2", brokers=2)
    assert decided(plan, a_topic("users"), there=there).topics, "nothing is created"
    assert [t.replication_factor for t in decided(plan, a_topic("users")).topics] == [3]


def test_topic_joins_a_target_that_had_too_few_brokers_from_the_start() -> None:
    two = a_cluster(cluster_id="c2", brokers=2)
    plan = decide(made("orders").mirror, a_cluster(a_topic("orders")), two, (), NOW)
    assert [t.replication_factor for t in decided(plan, a_topic("users"), there=two).topics] == [2]


def test_empty_topic_that_a_cut_off_look_has_created_is_taken_as_it_is() -> None:
    plan = made("orders")
    there = a_cluster(a_topic("users", spans=((0, 0),) * 3), cluster_id="c2")
    (users,) = decided(plan, a_topic("users"), there=there).topics
    assert users.target_exists


def test_mode_of_a_new_topic_follows_its_own_holes() -> None:
    plan = made("orders")
    many = HoleEstimate(count=9_000_000, runs=1000, share=0.9, sampled=5000)
    (users,) = decided(plan, a_topic("users", spans=((0, 10_000_000),)), users=many).topics
    assert users.mode == "mapped"


def test_first_partitions_of_a_grown_topic_stay_as_planned() -> None:
    plan = made("orders")
    before = plan.topic("orders")
    state = a_topic("orders", spans=((50, 400), (60, 60), (0, 9), (0, 4), (3, 8)), stable={3: 2})
    (after,) = decided(plan, state).topics
    assert (after.partitions, after.source_topic_id) == (5, before.source_topic_id)
    assert after.starts == {**before.starts, 3: 0, 4: 3} and after.ends == {**before.ends, 3: 2, 4: 8}
    assert after.prime == {**before.prime, 4: 3}
    assert (after.configs, after.mode) == (before.configs, before.mode)


@pytest.mark.parametrize(
    ("start", "asked"), [("latest", "earliest"), ("earliest", "earliest")] + [("2026-01-01T00:00:00+00:00",) * 2]
)
def test_new_topic_is_copied_from_its_beginning(start: str, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is later than the moment of `latest`; a time means the same as for the others."""
    seen = []

    class Found(Exception):
        pass

    def topics(admin: object, names: object, start: str, *_: object) -> None:
        seen.append(start)
        raise Found

    monkeypatch.setattr(amend, "read_topics", topics)
    monkeypatch.setattr(amend, "read_upstream", lambda *_: Upstream("c1"))
    with pytest.raises(Found):
        draft(made("orders", start=start), None, None, ["users"], NOW, {})  # type: ignore[arg-type]
    assert seen == [asked]


def test_new_topic_gets_the_replicas_that_every_topic_of_the_targets_kind_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source with one broker says nothing of Confluent Cloud, which refuses any number but three."""
    monkeypatch.setattr(amend, "read_upstream", lambda *_: Upstream("c1"))
    monkeypatch.setattr(amend, "read_topics", lambda *_: {"users": a_topic("users", replicas=1)})
    monkeypatch.setattr(inventory, "read_topics", lambda *_: {})
    monkeypatch.setattr(holes, "sample", lambda *_, **__: HoleSamples())
    monkeypatch.setattr(amend, "refusals", lambda *_: {})
    target: Any = SimpleNamespace(
        config=ClientConfig({"bootstrap.servers": "pkc-abc12.eu-west-1.aws.confluent.cloud:9092"}),
        cluster_id=lambda: "c2", broker_count=lambda: 6, broker_configs=dict, topic_names=list, usable_bytes=dict,
        principal=None, quotas=dict, wire=SimpleNamespace(log_sizes=lambda _: {}),
    )  # fmt: skip
    (users,) = draft(made("orders"), SimpleNamespace(config=None), target, ["users"], NOW, {}).topics  # type: ignore[arg-type]
    assert users.replication_factor == 3


@pytest.mark.parametrize(
    ("upstream", "why"),
    [
        (Upstream("c1", {"users": Owned(topic_id="id", mirror="back", source_id="c2")}), "come from the target"),
        (Upstream("c1", {"users": Owned(topic_id="id", mirror="b", source_id="c3", upstream=("c2", "c3"))}), "'b'"),
        (Upstream("c1", unreadable="no right"), "not known whether its records come from the target: no right"),
    ],
)
def test_new_topic_that_may_return_is_left_out_unread(
    upstream: Upstream, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a mesh by prefix each mirror would copy the others' copies of its own topics, for ever."""
    monkeypatch.setattr(amend, "read_upstream", lambda *_: upstream)
    found = draft(made("orders"), None, None, ["users"], NOW, {})  # type: ignore[arg-type]
    assert not found.topics and why in found.left_out["users"] and found.upstream is upstream
