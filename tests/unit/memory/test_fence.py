"""The fence by ACL on a cluster in memory: who may write before, behind and after it, as its authorizer says."""

from __future__ import annotations

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.errors import MissingRight
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.served import unproven
from tests.builders import rule
from tests.memory.admin import MemoryAdmin
from tests.memory.applications import Producer
from tests.memory.cluster import MemoryCluster
from tests.memory.rules import Rules

TP = TopicPartition("orders", 0)
APP = "User:app"


@pytest.mark.parametrize("open_by_default", [True, False])
def test_fence_keeps_an_application_out_and_lets_it_in_again(open_by_default: bool) -> None:
    c = MemoryCluster("source", rules=Rules(open_by_default=open_by_default))
    for topic in ("orders", "payments"):
        c.create(topic)
    if not open_by_default:
        c.create_acls(rule("orders", "WRITE", principal=APP), rule("payments", "READ", principal=APP))
    before = c.rules.now
    admin, app = MemoryAdmin(c), Producer(c, APP)
    fence = AclFence(admin)
    intent = fence.intent(["orders", "payments"])
    assert app.write(TP, b"before") == 0 and not fence.is_up(intent)
    assert admin.wire.write_answers([TP])[TP] == (2 if open_by_default else 29) and unproven(admin.wire) == []
    name = name_of("flow", "r1", "a")
    fence.raise_(intent, name, unfenced)
    assert fence.is_up(intent) and fence.brokers_without(intent) == [] and c.writable(APP) == []
    assert c.allows(APP, "READ", "payments"), "its first rule does not end what was open before"
    with pytest.raises(MissingRight):
        app.write(TP, b"behind")
    assert admin.wire.write_answers([TP]) == {TP: 29}
    fence.lift(intent, name, unfenced)
    assert c.rules.now == before and app.write(TP, b"after") == 1
    assert c.values(TP) == [b"before", b"after"]
    assert [offset for _, _, offset, _ in c.written] == [0, 1]


def test_names_of_fences_stand_at_the_source() -> None:
    c = MemoryCluster("source")
    c.create("orders")
    one, other = AclFence(MemoryAdmin(c)), AclFence(MemoryAdmin(c))
    name = name_of("flow", "r1", "a")
    one.raise_(one.intent(["orders"]), name, unfenced)
    assert other.standing("flow", "") == {name: False} and other.standing("another", "") == {}
    one.announce(name, unfenced)
    assert other.standing("flow", "") == {name: True}
