"""Traces on real brokers, read by MirrorMaker 2's own client library, and the last ones of a mirror: the quick way."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.failover.run import run as fail_over
from airflow_mirror.cutover.platform import Platform, Side
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.plan import ledger_store
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.following.follower import GroupFollower
from airflow_mirror.verify.remaining import verify_rest
from sandbox import Cluster
from tests.cutting_over import cut_over
from tests.followed import sides
from tests.integration.copying import config, read, write, write_transactions
from tests.integration.cutover_once import LEASE_TIMES, LIMITS
from tests.integration.cutover_world import kept_in
from tests.integration.java_clients import compiled, java_client
from tests.integration.traces_world import PARTITIONS, World, world

pytestmark = pytest.mark.nights


def test_java_finds_the_cluster_and_the_groups_that_the_mirror_names(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    with world(source_cluster, target_cluster, topic_name, policy="prefix") as w:
        for topic in (w.kept, w.mapped):
            for p in range(PARTITIONS):
                write(source_cluster, topic, 300, seed=p, partition=p)
            write_transactions(source_cluster, topic, seed=5, transactions=3, partitions=PARTITIONS)
        w.copy()
        group = w.put("g", kept=[17, 250], mapped=[101, 333])
        beat, report = w.beat(), w.follow()
        of_source = w.heartbeats_of_source()  # and of clusters before it, where others have mirrored to it
        assert (beat.topics, beat.failed, report.checkpoints, report.failed) == (1 + len(of_source), [], 4, [])
        kept, mapped = (t.target_topic for t in w.plan.topics)
        with w.follower() as follower:
            expected = {
                (kept, 0): (17, ""), (kept, 1): (250, "kept 1"), (mapped, 0): (101, ""),
                (mapped, 1): (follower._sides.maps.to_target(TopicPartition(w.mapped, 1), 333).offset, "mapped 1"),
            }  # fmt: skip
        classpath = compiled(tmp_path)
        with java_client(classpath, target_cluster.bootstrap, w.policy()) as client:
            assert client.offsets(w.alias, group) == expected
            found = client.clusters(w.alias)
        assert found["hops"] == ["1"] and w.alias in found["upstream"]
        assert f"{w.alias}.heartbeats" in of_source and {"heartbeats", *of_source} <= {*found["heartbeats"]}
        assert f"{w.alias}.checkpoints.internal" in found["checkpoints"]
        assert {*found["remote of it"]} == {kept, mapped, *of_source}


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch, unhurried: None) -> None:
    for name, seconds in LEASE_TIMES.items():
        monkeypatch.setattr(lease, name, seconds)


def filled(w: World) -> None:
    """Fill both topics, copy them, and let a tail write the checkpoints of a group that lags, which then reads on."""
    for topic in (w.kept, w.mapped):
        for p in range(PARTITIONS):
            write(w.clusters[0], topic, 300, seed=p, partition=p)
        write_transactions(w.clusters[0], topic, seed=5, transactions=6, partitions=PARTITIONS)
        for p in range(PARTITIONS):
            write(w.clusters[0], topic, 40, seed=9, partition=p)
    w.copy()
    w.put("g", kept=[17, 250], mapped=[101, 290])
    assert w.follow().written == 4
    w.put("g", kept=[31, 345], mapped=[640, 600])  # behind markers and aborted records


def require_exact(w: World, group: str, upstream: dict[str, tuple[int, ...]]) -> None:
    """From the last checkpoint on, the target holds what the source holds from the group's position on.

    :param upstream: what they say of the source, by its topic.
    """
    newest = {one.tp: one for one in w.checkpoints() if one.group == group}
    names = {t.source_topic: t.target_topic for t in w.plan.topics}
    positions = w.source.group_offsets(group)
    assert len(newest) == len(positions) == 4
    for tp, position in positions.items():
        one = newest[TopicPartition(names[tp.topic], tp.partition)]
        source, target = w.clusters
        left = [row[2:4] for row in read(source, tp.topic, tp.partition, first=position.offset)]
        assert left and [row[2:4] for row in read(target, *one.tp, first=one.downstream)] == left, one
        assert (one.upstream, one.metadata) == (upstream[tp.topic][tp.partition], position.metadata), one
        assert one.downstream == position.offset if tp.topic == w.kept else one.downstream < position.offset, one


def test_a_cutover_leaves_checkpoints_where_it_has_set_the_groups(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, short_lease: None
) -> None:
    with world(source_cluster, target_cluster, topic_name, policy="prefix") as w:
        filled(w)
        configs = [config(cluster) for cluster in w.clusters]
        with w.maps() as maps:
            on = Platform.of(w.source, w.target)
            ledger_store.keep_on(w.target, w.plan, w.ledger())
            report = cut_over(
                on, w.plan, kept_in(on, w.mirror.name, tmp_path / "run"),
                fence=CallableFence(lambda: None, lambda: None), verify=verify_rest(w.plan, *configs), limits=LIMITS,
                tail_positions=maps.positions, translate_offset=maps.to_target, accept_ledger_writers=["User:*"],
            )  # fmt: skip
        (group,) = (one.group for one in report.groups)
        require_exact(w, group, {w.kept: (31, 345), w.mapped: (640, 600)})
        set_there = {tp: position.offset for tp, position in w.target.group_offsets(group).items()}
        assert {one.tp: one.downstream for one in w.checkpoints()[-4:]} == set_there


def test_a_failover_leaves_checkpoints_where_the_groups_stand(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, short_lease: None
) -> None:
    """Of the mapped topic the checkpoint keeps the source's offset that was known: nobody can ask the source any more."""
    with world(source_cluster, target_cluster, topic_name) as w:
        filled(w)
        ledger_store.keep(w.plan, state_of(w.target, PLAN.below(w.mirror.name)), w.ledger())
        state = state_of(w.target, notes.prefix(w.mirror.name))
        with w.maps() as maps:
            given = sides(w.plan, w.source, w.target, w.right(), ledger=w.ledger(), state=state, maps=maps)
            GroupFollower(given).follow(1)
        report = fail_over(Side(w.target), w.mirror.name, force=True)
        assert report.steps["checkpoints"]["count"] == 4, report
        (group,) = {one.group for one in w.checkpoints()}
        require_exact(w, group, {w.kept: (31, 345), w.mapped: (101, 290)})
