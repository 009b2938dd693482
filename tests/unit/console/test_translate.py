"""``airflow-mirror translate``: a row for each position, and a status that says whether a commit would be refused."""

from __future__ import annotations

import json
import time

import pytest

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.console.main import main
from airflow_mirror.console.translate import _show
from airflow_mirror.plan.owned import Owned
from airflow_mirror.sync.group_translation import GroupMove
from airflow_mirror.sync.groups import GroupReport
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.groups import Committed
from tests.driven.ledger import LedgerCluster

MOVED = GroupMove(
    group="[billing]", source=TP("orders", 0), target=TP("dc1.orders", 0), source_offset=1_200, target_offset=1_174,
    before=None, action="commit", found="exact",
)  # fmt: skip


class World:
    """Two clusters with a copied topic, and groups that stand in it."""

    def __init__(self, src: DrivenCluster, dst: LedgerCluster) -> None:
        self.src, self.dst = src, dst
        src.clock.now_ms = dst.clock.now_ms = int(time.time() * 1000)  # by which the records of a probe are judged
        for cluster in (src, dst):
            Writer(cluster.create("orders").logs[0]).plain(9)
        one = Owned(topic_id="", mirror="flow", source_id=src.cluster_id)
        dst.ledger.decide(lambda _: {"topic/orders": one.value()})

    def stands(self, cluster: DrivenCluster, group: str, offset: int) -> None:
        cluster.groups.committed[group] = {TP("orders", 0): Committed(offset, "", -1)}

    def position(self, cluster: DrivenCluster, group: str) -> int | None:
        found = cluster.groups.committed.get(group, {}).get(TP("orders", 0))
        return None if found is None else found.offset

    def run(self, *words: str) -> int:
        given = ["--source", "src", "--target", "dst", "--name", "flow", "--include", "orders"]
        return main(["translate", *given, *words])


@pytest.fixture
def world(src: DrivenCluster, dst: LedgerCluster, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("COLUMNS", "200")
    return World(src, dst)


def rows(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_each_position_is_a_row_with_both_sides(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.stands(world.src, "[billing]", 5)
    world.stands(world.src, "shipping", 7)
    world.stands(world.dst, "shipping", 9)
    assert world.run() == 0
    found = rows(capsys.readouterr().out)
    assert "[billing] orders-0 5 5 identical commit" in found
    assert "shipping orders-0 7 7 9 identical kept: the group is 2 offsets further on the target" in found
    assert "nothing was committed (--yes does it)" in found
    assert (world.position(world.dst, "[billing]"), world.position(world.dst, "shipping")) == (None, 9)
    _show(GroupReport(moves=(MOVED,), committed=False))
    assert "[billing] orders-0 -> dc1.orders-0 1,200 1,174 exact commit" in rows(capsys.readouterr().out)


def test_who_only_reads_creates_no_scratch_topic_to_try_rights_out(world: World) -> None:
    """On a target in production, too, a topic was created, written and deleted to say how far groups are."""
    before = len(world.dst.requests)
    assert world.run() == 0
    asked = {request.api for request in world.dst.requests[before:]}
    assert "Metadata" in asked and asked.isdisjoint({"CreateTopics", "DeleteTopics", "Produce", "InitProducerId"})


def test_json_is_the_report(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.stands(world.src, "billing", 9)
    world.stands(world.dst, "billing", 3)
    topic_id = world.dst.admin.topics(["orders"])["orders"].topic_id
    one = Owned(topic_id=topic_id, mirror="flow", source_id=world.src.cluster_id, opened_by="x", opened_at="noon")
    world.dst.ledger.decide(lambda _: {"topic/orders": one.value()})
    words = ["--json", "--yes", "--back", "--allow-rewind", "--allow-production"]
    for left_out in words[1:]:
        world.run(*(word for word in words if word != left_out))
        assert (world.position(world.src, "billing")) == 9, left_out
        world.stands(world.dst, "billing", 3)
    capsys.readouterr()
    assert world.run(*words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["committed"] and [one["target_offset"] for one in found["moves"]] == [3]
    assert world.position(world.src, "billing") == 3


def test_what_a_commit_would_refuse_is_said_with_status_1(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.stands(world.src, "far", 9)
    world.dst.topics["orders"].logs[0].truncate(7)
    world.stands(world.src, "live", 5)
    world.dst.groups.members["live"] = ["app"]
    assert world.run() == 1
    far, live = capsys.readouterr().err.splitlines()
    assert far.startswith("refused: ") and live == "refused: group 'live' has members there"
    world.src.groups.committed.pop("far")
    assert world.run("--yes") == 1 and world.position(world.dst, "live") is None
    world.src.groups.committed["live"] = {}
    world.src.groups.committed["idle"] = {}
    capsys.readouterr()
    assert world.run() in (0, 1)
    printed = capsys.readouterr().out
    assert "no group has a position in these topics" in printed
    assert "without a position in these topics: idle" in printed


def test_a_target_without_the_topics_is_refused(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.dst.delete("orders")
    assert world.run() == 1
    assert "the target has no topic 'orders'" in capsys.readouterr().err
