"""What proves a fence: an invalid batch that no release writes, and what every broker says by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.decided_fence import intent_of
from airflow_mirror.cutover.decision import OPENED, fence_state, permit
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.proof import prove
from airflow_mirror.cutover.quiet import prove_fence
from airflow_mirror.cutover.steps import raise_fence
from airflow_mirror.cutover.swap import swap_fence
from airflow_mirror.cutover.undoing import back_out
from airflow_mirror.errors import FenceGone, TransactionsOpen
from airflow_mirror.kafka.admin import Acl, ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.model import COORDINATORS
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.kinds import in_pieces
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.served import REFUSING, fingerprint, unproven
from airflow_mirror.wire.single import read_batches
from airflow_mirror.wire.transactions import TransactionClient
from sandbox import Cluster
from sandbox.versions import RELEASES
from tests.builders import plan_of, rule, topic_plan
from tests.integration.copying import wait_until
from tests.integration.cutover_world import Writer
from tests.unit.cutover.builders import a_run, go_up, open_behind, target_of, want

PARTITIONS = 3
# What a topic may be set to that decides about batches: whose times, which codec, which format, how long.
KINDS = {
    "plain": {},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "recompressed": {"compression.type": "gzip"},
}


@pytest.fixture(params=RELEASES)
def walled(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    name = f"refusing-{request.param.replace('.', '-')}"
    with Cluster(name, version=request.param, authorizer=True, ready_timeout_s=400) as cluster:
        yield cluster


def config(cluster: Cluster, user: str = "admin") -> ClientConfig:
    return ClientConfig(cluster.properties(user), "source")


def content(wire: WireCluster, tps: list[TopicPartition]) -> dict[TopicPartition, list[bytes]]:
    return {
        tp: [bytes(one.view) for one, _ in read_batches(wire, tp, 0, 2**62, isolation=READ_UNCOMMITTED)] for tp in tps
    }


@pytest.mark.versions
def test_invalid_batch_is_refused_and_never_written(walled: Cluster) -> None:
    """To whoever may write, and to whoever may not; in logs with records and in empty ones."""
    tps = [TopicPartition(topic, p) for topic in KINDS for p in range(PARTITIONS)]
    with closing(ClusterAdmin(config(walled), timeout_s=120)) as root:
        root.create_topics([NewTopicSpec(name, PARTITIONS, 1, set_) for name, set_ in KINDS.items()], unfenced)
        wait_until(lambda: root.topics(KINDS).keys() == KINDS.keys(), "the topics are there")
        producer = Producer(walled.admin_properties())
        for topic in KINDS:
            for i in range(20):  # into its first partition; the others stay empty
                producer.produce(topic, b"value %d" % i, b"key %d" % i, 0)
        assert producer.flush(240) == 0
        with WireCluster(config(walled)) as wire, WireCluster(config(walled, "alice")) as alice:
            ends, before = wire.log_ends(tps), content(wire, tps)
            assert sum(ends.values()) == 20 * len(KINDS)
            assert fingerprint(wire.any_connection()) in REFUSING and not unproven(wire)
            for _ in range(3):
                assert set(wire.write_answers(tps).values()) == {ErrorCode.CORRUPT_MESSAGE}
            assert set(alice.write_answers(tps).values()) == {ErrorCode.CORRUPT_MESSAGE}
            fence = AclFence(root, open_by_default=True)
            intent = fence.intent(list(KINDS))
            fence.raise_(intent, name_of("flow", "run", "attempt"), unfenced)
            denied = {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            wait_until(lambda: set(alice.write_answers(tps).values()) == denied, "the fence is in force")
            assert not fence.brokers_without(intent)
            assert set(wire.write_answers(tps).values()) == {ErrorCode.CORRUPT_MESSAGE}, "a super user"
            assert wire.log_ends(tps) == wire.high_watermarks(tps) == ends and content(wire, tps) == before


def planned(attempt: Attempt, wire: WireCluster, topic: str, partitions: int) -> None:
    """Have a run cut one topic over, to the cluster itself."""
    topic_id = attempt.source.topics([topic])[topic].topic_id
    its = topic_plan(topic, dict.fromkeys(range(partitions), 0), source_topic_id=topic_id)
    want(attempt, plan=plan_of(replace(attempt.mirror, topics=[topic]), its))
    attempt.on.source.log, attempt.on.target.admin = wire, attempt.source


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster("proving", nodes=3, authorizer=True, ready_timeout_s=400) as cluster:
        yield cluster


@pytest.mark.nights
@pytest.mark.parametrize(("user", "by"), [("mirror", "answers"), ("admin", "acls")])
def test_every_leader_proves_the_fence_to_a_user_whom_acls_bind(
    three: Cluster, topic_name: str, tmp_path: Path, user: str, by: str
) -> None:
    """A producer hammers the topic meanwhile. What it is told to have written is there, and nothing after the proof."""
    with closing(ClusterAdmin(config(three, user), timeout_s=120)) as source, WireCluster(config(three, user)) as wire:
        source.create_topics([NewTopicSpec(topic_name, 12, 3)], unfenced)
        tps = [TopicPartition(topic_name, p) for p in range(12)]
        wait_until(lambda: topic_name in source.topics([topic_name]), "the topic is there")
        with Writer(three.properties("alice"), topic_name) as hammer:
            run = a_run(tmp_path, AclFence(source, open_by_default=True), source)
            planned(run, wire, topic_name, 12)
            raise_fence(run)
            assert run.report.fence is not None and run.report.fence.proof == {"by": "answers", "why": ""}
            found = prove(run)
            refused = hammer.refused
            wait_until(lambda: hammer.refused > refused, "the producer was refused after the proof")
            ends = wire.log_ends(tps)
            assert found["by"] == by and ("super user" in found["why"]) == (by == "acls")
            refused = hammer.refused
            wait_until(lambda: hammer.refused > refused + 3, "it was refused again")
        assert wire.log_ends(tps) == ends and sum(ends.values()) == hammer.acknowledged > 0
        assert prove(run)["by"] == by
        back_out(run)
        assert not run.report.is_fenced
        if by == "answers":
            want(run, limits=replace(run.limits, proof_timeout_s=0.5))
            with pytest.raises(FenceGone):
                prove(run)


@pytest.mark.nights
def test_transaction_without_data_holds_the_fence_until_its_marker(
    three: Cluster, topic_name: str, tmp_path: Path
) -> None:
    tp = TopicPartition(topic_name, 1)
    with (
        closing(ClusterAdmin(config(three, "mirror"), timeout_s=120)) as source,
        WireCluster(config(three, "mirror")) as wire,
        WireCluster(config(three, "alice"), timeout_s=240) as alice,
    ):
        source.create_topics([NewTopicSpec(topic_name, 3, 3)], unfenced)
        wait_until(lambda: topic_name in source.topics([topic_name]), "the topic is there")
        client = TransactionClient(alice, f"{topic_name}-billing")
        producer_id, epoch = client.init(60_000)
        client.begin(tp, topic_name, producer_id, epoch)
        run = a_run(tmp_path, AclFence(source, open_by_default=True), source)
        planned(run, wire, topic_name, 3)
        raise_fence(run)
        assert run.report.fence is not None and run.report.fence.unseen == ""
        want(run, limits=replace(run.limits, transactions_timeout_s=0.5, quiet_s=0.2, settle_s=0.1))
        who = rf"'{topic_name}-billing' \(producer {producer_id}, epoch {epoch}, Ongoing since 20.*\) holds {tp}"
        with pytest.raises(TransactionsOpen, match=who) as caught:
            prove_fence(run)
        assert not caught.value.open_at and wire.last_stable([tp]) == wire.log_ends([tp]) == {tp: 0}
        client.commit(tp, topic_name, 0, "", producer_id, epoch)
        want(run, limits=replace(run.limits, transactions_timeout_s=60))
        prove_fence(run)
        assert run.ends[tp] == 1, "its marker"
        back_out(run)
        assert not run.report.is_fenced


@pytest.mark.nights
def test_ids_of_which_acls_hide_one_are_never_taken_for_all(three: Cluster, topic_name: str) -> None:
    """Open by default, so that only the ids that have ACLs are hidden from whom these do not name."""
    theirs = rule(f"{topic_name}-a", "WRITE", "ALLOW", "User:alice", kind="TRANSACTIONAL_ID")
    ours = rule("*", "DESCRIBE", "ALLOW", "User:mirror", kind="TRANSACTIONAL_ID")
    never = rule(f"{topic_name}-", "DESCRIBE", "DENY", "User:mirror", kind="TRANSACTIONAL_ID", pattern="PREFIXED")
    topic = rule(COORDINATORS, "READ", "ALLOW", "User:alice")
    with (
        closing(ClusterAdmin(config(three), timeout_s=120)) as root,
        closing(ClusterAdmin(config(three, "mirror"), timeout_s=120)) as mirror,
    ):

        def hidden(*rules: Acl) -> str:
            for kind in ("TRANSACTIONAL_ID", "TOPIC"):
                root.delete_acls(root.describe_acls(resource_type=kind), unfenced)
            root.create_acls(rules, unfenced)
            wait_until(
                lambda: all(
                    set(rules) == {acl for acl in acls if acl.resource_type != "GROUP"}
                    for acls in root.acls_by_broker().values()
                ),
                "every broker lists the ACLs",
            )
            assert root.transactions_hidden() == "", "a super user"
            return mirror.transactions_hidden()

        try:
            assert hidden() == ""
            assert "transactional id" in hidden(theirs)
            assert hidden(theirs, ours) == ""
            assert "transactional id" in hidden(theirs, ours, never)
            assert COORDINATORS in hidden(ours, topic)
        finally:
            hidden()


@pytest.mark.nights
def test_swapped_fence_lets_in_the_mirror_and_no_application(three: Cluster, topic_name: str, tmp_path: Path) -> None:
    """Producers hammer the topics all the time, and another one beside them, which has the same grants."""
    granted, everybodys, other = (f"{topic_name}-{name}" for name in ("granted", "everybodys", "other"))
    before = {
        rule(f"{topic_name}-gr", "WRITE", "ALLOW", "User:alice", pattern="PREFIXED"),
        *(rule(topic, "WRITE", "ALLOW") for topic in (everybodys, other)),
        *(rule(topic, "DESCRIBE", "ALLOW") for topic in (granted, everybodys, other)),
    }
    with (
        closing(ClusterAdmin(config(three), timeout_s=120)) as root,
        WireCluster(config(three, "mirror")) as mirror,
        WireCluster(config(three, "alice")) as alice,
    ):
        root.create_topics([NewTopicSpec(topic, PARTITIONS, 3) for topic in (granted, everybodys, other)], unfenced)
        root.create_acls(before, unfenced)
        fenced = [TopicPartition(topic, p) for topic in (granted, everybodys) for p in range(PARTITIONS)]
        allowed, denied = {ErrorCode.CORRUPT_MESSAGE}, {ErrorCode.TOPIC_AUTHORIZATION_FAILED}

        def answers(wire: WireCluster) -> set[int]:
            return set(wire.write_answers(fenced).values())

        def listed() -> set[Acl]:
            return {acl for acl in root.describe_acls(resource_type="TOPIC") if acl.name.startswith(topic_name)}

        wait_until(lambda: answers(alice) == allowed, "the application may write")
        run, users = a_run(tmp_path, AclFence(root), root), three.properties("alice")
        topics = (topic_plan(t, {0: 0}, source_topic_id="") for t in (granted, everybodys))
        plan = replace(plan_of(run.mirror, *topics), source_cluster_id=root.cluster_id())
        want(run, plan=plan)
        target_of(tmp_path).write(in_pieces(f"plan/flow/{plan.hash}", plan.to_json().encode()))
        with Writer(users, granted) as one, Writer(users, everybodys) as two, Writer(users, other) as free:
            run.intent = run.fence.intent([granted, everybodys])
            go_up(run)
            name = name_of("flow", run.store.run, run.me)
            run.fence.raise_(run.intent, name, run.permit)
            wait_until(lambda: answers(alice) == answers(mirror) == denied, "everybody is out")
            begun = one.begun, two.begun
            wait_until(lambda: one.begun > begun[0] and two.begun > begun[1], "what was sent before is answered")
            open_behind(run)
            ends, before_swap = mirror.log_ends(fenced), (one.acknowledged, two.acknowledged)
            swap_fence(run.on, "flow", "User:mirror")
            wait_until(lambda: answers(mirror) == allowed, "the mirror may write")
            refused, written = (one.refused, two.refused), free.acknowledged
            wait_until(lambda: one.refused > refused[0] + 3 and two.refused > refused[1] + 3, "applications may not")
            wait_until(lambda: free.acknowledged > written + 3, "another topic is as it was")
            assert answers(alice) == denied and (one.acknowledged, two.acknowledged) == before_swap
            assert free.refused == 0 and root.wire.log_ends(fenced) == ends
        there = fence_state(run.ledger.values(), "flow")
        assert there is not None and there.phase == OPENED
        swapped = intent_of(run.on.target, "flow", there)
        assert swapped.spared == "User:mirror" and run.fence.is_up(swapped)
        run.fence.lift(swapped, name, permit(run.ledger, "flow", there))
        assert listed() == before
        wait_until(lambda: answers(alice) == allowed, "the application may write again")
