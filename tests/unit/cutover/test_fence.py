"""What a fence by ACL changes, in which order, and what it takes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.intent import Intent, fence_text
from airflow_mirror.errors import (
    FenceNotLifted,
    FenceStands,
    LedgerNewer,
    MissingRight,
    NoAuthorizer,
    OpenByDefaultUnknown,
)
from airflow_mirror.kafka.model import Acl, ConfigEntry
from airflow_mirror.kafka.permit import Permit, unfenced
from tests.builders import rule
from tests.unit.cutover.builders import Acls

NAME = name_of("flow", "monday", "1")


def up_and_down(cluster: Acls, *topics: str, **how: bool) -> list[str]:
    """Raise and lift, the lift by another object and from JSON, as after a crash; the ACLs must be what they were."""
    before = set(cluster.acls)
    intent = AclFence(cluster, **how).intent(topics)  # type: ignore[arg-type]
    assert cluster.acls == before and cluster.done == []
    AclFence(cluster, **how).raise_(intent, NAME, unfenced)  # type: ignore[arg-type]
    assert AclFence(cluster).is_up(intent) and AclFence(cluster).standing("flow", "") == {NAME: False}  # type: ignore[arg-type]
    decided = Intent.of(json.loads(json.dumps(intent.value())), topics)
    assert decided == intent
    AclFence(cluster).lift(decided, NAME, unfenced)  # type: ignore[arg-type]
    assert cluster.acls == before
    assert NAME in cluster.done[0] and NAME in cluster.done[-1], "named from the first rule to the last"
    return [line for line in cluster.done if NAME not in line]


def test_topic_with_acls_gets_one_deny_and_loses_it_again() -> None:
    cluster = Acls(rule("orders", "READ", "ALLOW", "User:alice"), open_by_default=True)
    assert up_and_down(cluster, "orders") == ["+DENY WRITE orders", "-DENY WRITE orders"]


def test_open_topic_without_acls_stays_readable_throughout() -> None:
    assert up_and_down(Acls(open_by_default=True), "orders") == [
        "+ALLOW READ orders", "+ALLOW DESCRIBE_CONFIGS orders", "+DENY WRITE orders",
        "-DENY WRITE orders", "-ALLOW READ orders", "-ALLOW DESCRIBE_CONFIGS orders",
    ]  # fmt: skip


@pytest.mark.parametrize("stated", [True, False])
def test_hidden_broker_default_requires_open_by_default_for_uncovered_topics(stated: bool) -> None:
    """As brokers answer: the key belongs to the authorizer's plug-in, so they hide its value."""
    cluster = Acls(rule("covered", "READ", "ALLOW"), open_by_default="hidden")
    with pytest.raises(OpenByDefaultUnknown, match=r"orders.*open_by_default=True"):
        AclFence(cluster).intent(["covered", "orders"])  # type: ignore[arg-type]
    assert cluster.done == []
    done = up_and_down(cluster, "covered", "orders", open_by_default=stated)
    assert ("+ALLOW READ orders" in done) == stated
    assert up_and_down(Acls(rule("covered", "READ", "ALLOW"), open_by_default="hidden"), "covered")  # nothing to know


def test_unreadable_broker_settings_leave_open_by_default_unknown() -> None:
    class Secretive(Acls):
        def broker_configs(self) -> dict[int, dict[str, ConfigEntry]]:
            raise MissingRight("read configs", "CLUSTER_AUTHORIZATION_FAILED", "me")

    with pytest.raises(OpenByDefaultUnknown, match="no DESCRIBE_CONFIGS"):
        AclFence(Secretive()).intent(["orders"])  # type: ignore[arg-type]


def test_topic_without_acls_that_was_closed_is_opened_to_nobody() -> None:
    assert up_and_down(Acls(open_by_default=False), "orders") == ["+DENY WRITE orders", "-DENY WRITE orders"]
    assert up_and_down(Acls(), "orders") == ["+DENY WRITE orders", "-DENY WRITE orders"]


def test_who_fences_may_say_whether_topics_are_open_by_default() -> None:
    assert up_and_down(Acls(open_by_default=True), "orders", open_by_default=False)[0] == "+DENY WRITE orders"
    assert up_and_down(Acls(), "orders", open_by_default=True)[0] == "+ALLOW READ orders"


@pytest.mark.parametrize(
    "covering",
    [
        rule("ord", "READ", "ALLOW", "User:bob", pattern="PREFIXED"),
        rule("*", "ALL", "ALLOW", "User:bob"),
        rule("orders", "WRITE", "DENY", "User:bob"),
    ],
)
def test_prefix_and_wildcard_acls_count_as_acls_of_the_topic(covering: Acl) -> None:
    assert up_and_down(Acls(covering, open_by_default=True), "orders")[0] == "+DENY WRITE orders"


def test_acls_of_other_topics_do_not_count() -> None:
    near = (
        rule("orders2", "READ", "ALLOW"),
        rule("order", "READ", "ALLOW"),
        rule("ordersX", "READ", "ALLOW", "u", pattern="PREFIXED"),
    )
    assert "+ALLOW READ orders" in up_and_down(Acls(*near, open_by_default=True), "orders")


def test_deny_that_was_there_before_is_held_and_survives() -> None:
    there = rule("orders", "WRITE", "DENY")
    cluster = Acls(there)
    assert up_and_down(cluster, "orders", "payments") == ["+DENY WRITE payments", "-DENY WRITE payments"]
    assert there in cluster.acls
    lines = fence_text("acl", AclFence(cluster).intent(["orders"]))  # type: ignore[arg-type]
    assert lines == ["DENY WRITE on topic orders for User:* from * (was there before, stays)"]


def test_no_authorizer_is_found_though_describing_says_nothing() -> None:
    with pytest.raises(NoAuthorizer):
        AclFence(Acls(authorizer=False)).intent(["orders"])  # type: ignore[arg-type]


def test_lift_waits_until_every_broker_knows_of_it() -> None:
    class Late(Acls):
        late = 3

        def acls_by_broker(self, resource_type: str) -> dict[int, list[Acl]]:
            there = self.describe_acls(resource_type)
            if "-DENY WRITE orders" in self.done and self.late:
                self.late -= 1
                return {1: there, 2: [*there, rule("orders", "WRITE", "DENY")], 3: there}
            return dict.fromkeys((1, 2, 3), there)

    cluster = Late()
    up_and_down(cluster, "orders")
    assert cluster.late == 0


def test_lift_that_the_cluster_did_not_follow_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mirror.cutover.fence.READ_BACK_S", 0.2)

    class Deaf(Acls):
        def delete_acls(self, acls: list[Acl], permit: Permit = unfenced) -> list[Acl]:
            return []

    cluster = Deaf()
    fence = AclFence(cluster)  # type: ignore[arg-type]
    intent = fence.intent(["orders"])
    fence.raise_(intent, NAME, unfenced)
    with pytest.raises(FenceNotLifted, match="orders"):
        fence.lift(intent, NAME, unfenced)


def test_ten_thousand_topics_fit_into_one_record() -> None:
    """Whatever differs between them: the decision must fit into what a broker takes (max.message.bytes, 1 MiB)."""
    topics = tuple(f"{'a-team.' * 20}{n:05}" for n in range(10_000))
    some = frozenset(topics[::2])
    intent = Intent(
        topics=topics, held=some, bare=frozenset(topics[1::2]), spared="User:mirror", allowed=some, copied_by="back",
        denied={f"User:{n}": frozenset(topics[n::3]) for n in range(3)}, replaced={"*": some},
    )  # fmt: skip
    text = json.dumps(intent.value())
    assert len(text) < 300_000 and Intent.of(json.loads(text), topics) == intent
    assert len(json.dumps(Intent(topics=topics, bare=frozenset(topics)).value())) < 50


def test_topics_of_other_mirrors_keep_their_places_in_the_plan() -> None:
    intent = Intent(topics=("a", "c", "d"), others=frozenset({"b"}), held=frozenset({"c"}), bare=frozenset({"d"}))
    assert Intent.of(json.loads(json.dumps(intent.value())), ["d", "c", "b", "a"]) == intent


@pytest.mark.parametrize(
    "value",
    [{"held": "0-7"}, {"held": "x"}, {"denied": ["orders"]}, {"allow": ["orders"]}, {"spared": "User:a", "more": 1}],
)
def test_what_is_no_fence_of_this_plan_is_undone_by_nobody(value: dict[str, Any]) -> None:
    """A record can name no topic, operation or kind of rule; one of a newer version may say more than is known here."""
    with pytest.raises(LedgerNewer):
        Intent.of(value, ["orders", "payments"])


def test_names_of_mirrors_that_begin_alike_are_told_apart() -> None:
    cluster = Acls()
    fence = AclFence(cluster)  # type: ignore[arg-type]
    for mirror in ("flow", "flow.eu", "flo"):
        fence.announce(name_of(mirror, "monday", "1"), unfenced)
    assert fence.standing("flow", "") == {NAME: True}
    with pytest.raises(FenceStands, match="'monday' is named at the source"):
        fence.require_no_other("flow", ["orders"], "")
