"""Cutovers on real brokers: the source is alive, writers are fenced, and every failure gives everything back."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.after import After, look_after
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.decision import CLOSED, LIFTED, OPENED
from airflow_mirror.cutover.evidence import prove
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.steps import STEPS
from airflow_mirror.errors import (
    CutoverCancelled,
    DrainTimedOut,
    FenceGone,
    FenceLeaks,
    FenceStands,
    JobNotRunning,
    LeaseLost,
    NoAuthorizer,
    OpenByDefaultUnknown,
    PlanOutdated,
    SourceNotSilent,
    TargetMoved,
    VerificationFailed,
)
from airflow_mirror.kafka.admin import Acl, ClusterAdmin
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.chain import links
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.verify.remaining import verify_rest
from sandbox import Cluster
from tests.builders import rule
from tests.integration.cutover_world import EngineTail, HeardFence, Member, Tail, World, Writer, writer_lease
from tests.integration.cutovers import caught_up, cut_over, decided, on_disk, opened_by, report_ends
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("unhurried")


def test_live_source_is_cut_over_and_stays_fenced(world: World) -> None:
    alice = world.source_cluster.properties("alice")
    with Writer(alice, world.topic) as writer, Tail(world), Member(world, f"{world.topic}-live"):
        idle = world.group("idle", {0: 3})
        # With members and lag it is never taken to be at rest: the live group has to be found at the end.
        report = cut_over(world, fence=HeardFence(world.source, writer), wait_groups_s=120, compared_to={})
        assert writer.refused > 0
        # Not one record more: what was acknowledged is on both sides, at the same offsets.
        ends = world.source.offsets(world.tps)
        assert (
            ends
            == world.target.offsets(world.tps)
            == {TopicPartition(r["topic"], r["partition"]): r["end"] for r in report.ends}
        )
        assert sum(ends.values()) == writer.acknowledged
        assert world.positions(f"{world.topic}-live") == {tp.partition: end for tp, end in ends.items()}
    assert world.positions(idle) == {0: 3}
    assert [s.name for s in report.steps] == [step.name for step in STEPS]
    assert {g.group: g.settled for g in report.groups} == {f"{world.topic}-live": "at the end", idle: "empty"}
    assert "DENY WRITE User:*" in world.acls()
    assert report.summary()["fence_kept"] and report.summary()["fence_seconds"] > 0
    assert on_disk(world)["outcome"] == reports.DONE
    decided = links(Ledger(world.target).peek(), world.mirror.name)
    (proven,) = prove({"it": (world.run_dir / "report.json").read_text()}, None, decided)
    assert proven.link.run == world.run_dir.name
    page = (world.run_dir / "report.html").read_text()
    assert "Cut over" in page and f"<td>{world.topic}</td>" in page.replace("<wbr>", "") and "://" not in page
    predicted = on_disk(world)["preview"]["predicted"]
    assert predicted["steps"].keys() == {s.name for s in report.steps} and None not in predicted["steps"].values()
    assert "predicted" in page, (predicted, report.summary()["seconds"])
    verdicts = {f["check"]: f["level"] for f in on_disk(world)["preview"]["findings"]}
    assert (
        "block" not in verdicts.values() and verdicts["compared"] == verdicts["replicas"] == verdicts["length"] == "pass"
    )

    def after() -> After:
        return look_after(world.on, world.kept().load(), time.time())

    after().raise_if_wrong()
    assert (after().fence, after().moved, [g.committed for g in after().groups]) == ("up", {}, [False, False])
    world.group("idle", {0: 4}, "target")
    assert [g.group for g in after().groups if g.committed] == [idle]
    world.write(1)  # as a super user, whom no ACL binds
    with pytest.raises(SourceNotSilent, match=f"{world.topic}-0 by 1"):
        after().raise_if_wrong()


def test_target_gains_nothing_from_a_source_that_is_open_again(world: World) -> None:
    """Producers write through the lift while the engine's own tail is still there: its turns must all come to nothing."""
    alice = world.source_cluster.properties("alice")
    with Writer(alice, world.topic) as writer, EngineTail(world) as tail:
        report = cut_over(world, fence=HeardFence(world.source, writer), keep_fence=False)
        assert writer.refused > 0
        writer.wait_acknowledged(10)
        turns = tail.turns
        wait_until(lambda: tail.turns >= turns + 3)  # it tries again, and again
        assert world.target.offsets(world.tps) == report_ends(report)
    assert sum(world.source.offsets(world.tps).values()) > sum(report_ends(report).values())
    assert world.acls() == []
    assert report.fence is not None and report.fence.lifted is not None and not report.fence.kept


@pytest.mark.faults
def test_tail_that_is_started_again_meanwhile_keeps_the_target_shut(world: World) -> None:
    verify = verify_rest(world.plan(), world.source.config, world.target.config)
    world.write(10)
    with Tail(world), ExitStack() as stack:
        caught_up(world)

        class Watched(HeardFence):
            """Somebody starts a tail just before the last look at both sides."""

            def is_up(self, intent: Intent) -> bool:
                if (world.run_dir / "report.json").exists() and on_disk(world)["steps"][-1]["name"] == "open_target":
                    stack.enter_context(writer_lease(world))
                return super().is_up(intent)

        with pytest.raises(LeaseLost):
            cut_over(world, fence=Watched(world.source), verify=verify)
    assert decided(world).phase == LIFTED and opened_by(world) is None and world.acls() == []
    assert on_disk(world)["outcome"] == reports.BACKED_OUT
    with Tail(world):
        assert cut_over(world).outcome == reports.DONE


def test_target_behind_without_a_tail_is_refused_before_the_fence(world: World) -> None:
    world.write(4)
    with pytest.raises(JobNotRunning, match=f"{world.topic}-0 by 2"):
        cut_over(world)
    assert not (world.run_dir / "report.json").exists()


def test_fence_on_a_topic_open_to_everybody_spares_readers(world: World) -> None:
    """Its first ACL ends allow.everyone.if.no.acl.found for reading too: a bare DENY would cut off every consumer."""
    world.write(6)
    fence = AclFence(world.source, open_by_default=True)
    intent = fence.intent([world.topic])
    name = name_of(world.mirror.name, "run", "attempt")
    fence.raise_(intent, name, unfenced)
    wait_until(lambda: fence.is_up(intent))
    with Member(world, f"{world.topic}-reader"):
        pass
    fence.lift(intent, name, unfenced)
    assert world.acls() == [] and not fence.standing(world.mirror.name, "")


def test_topic_without_acls_is_not_fenced_on_a_guess(world: World) -> None:
    with pytest.raises(OpenByDefaultUnknown, match=world.topic):
        cut_over(world, fence=AclFence(world.source))
    assert world.acls() == [] and not (world.run_dir / "report.json").exists()


def test_acls_that_were_there_before_survive_the_lift(world: World) -> None:
    mine = rule(world.topic, "ALL", "ALLOW", "User:alice")
    deny = rule(world.topic, "WRITE", "DENY")

    def listed() -> list[Acl]:
        return world.source.describe_acls(resource_type="TOPIC", name=world.topic)

    world.source.create_acls([mine, deny], unfenced)
    wait_until(lambda: listed() == sorted([mine, deny]))
    fence = AclFence(world.source, open_by_default=True)
    intent = fence.intent([world.topic])
    assert intent.deny == intent.allow == []
    name = name_of(world.mirror.name, "run", "attempt")
    fence.raise_(intent, name, unfenced)
    assert fence.is_up(intent)
    fence.lift(intent, name, unfenced)
    assert listed() == sorted([mine, deny])
    world.source.delete_acls([deny], unfenced)
    wait_until(lambda: listed() == [mine])
    intent = fence.intent([world.topic])
    for _ in range(2):
        fence.raise_(intent, name, unfenced)
    wait_until(lambda: fence.is_up(intent))
    for _ in range(2):
        fence.lift(intent, name, unfenced)
    assert listed() == [mine]


def test_writer_slips_past_fence_and_cutover_backs_out(world: World) -> None:
    group = world.group("g", {0: 2}, "target")
    world.group("g", {0: 4, 1: 1})
    with Writer(world.source_cluster.properties("admin"), world.topic) as writer, Tail(world):
        with pytest.raises(
            FenceLeaks, match=rf"{world.topic}-\d: .*a producer without an id wrote from offset \d+ to \d+ of"
        ):
            cut_over(world, quiet_s=30)  # one of the looks sees it, whatever the tail has copied of it
        writer.wait_acknowledged(5)
        assert writer.refused == 0
    assert world.acls() == []
    assert world.positions(group) == {0: 2}
    report = on_disk(world)
    assert report["outcome"] == reports.BACKED_OUT
    undone = [(u["step"], u["ok"]) for u in report["undone"] if u["step"] != "stop_writers"]
    assert undone == [("fence", True), ("decision", True)]
    # The same again, without the leak, finishes.
    with Tail(world):
        again = cut_over(world)
    assert again.attempt == 2 and again.earlier[0]["error"].startswith("FenceLeaks")
    assert world.positions(group) == {0: 4, 1: 1}


def test_write_after_fence_proof_is_found_by_later_steps(world: World) -> None:
    world.write(10)
    group = world.group("g", {0: 2, 1: 2})
    with Tail(world):

        def verify(ends: Any) -> list[Any]:
            world.write(1)  # the super user again, when the fence is long proven
            return []

        with pytest.raises(FenceLeaks):
            cut_over(world, verify=verify)
    assert world.acls() == [] and world.positions(group) == {}


def test_no_authorizer_is_said_before_anything_is_touched(world: World, source_cluster: Cluster) -> None:
    world.write(4)
    with (
        ClusterAdmin(ClientConfig(source_cluster.admin_properties(), "source")) as open_source,
        writer_lease(world),
        pytest.raises(NoAuthorizer, match="callable"),
    ):
        cut_over(world, fence=AclFence(open_source))
    assert not (world.run_dir / "report.json").exists()


def test_callable_fence_is_called_in_order_and_lifted_on_failure(world: World) -> None:
    calls: list[str] = []
    fence = CallableFence(lambda: calls.append("on"), lambda: calls.append("off"))
    world.write(10)
    with writer_lease(world), pytest.raises(DrainTimedOut, match=f"{world.topic}-0 by 5"):
        cut_over(world, fence=fence, drain_timeout_s=0.5)  # a tail that copies nothing
    assert calls == ["on", "off"]
    with Tail(world):
        report = cut_over(world, fence=fence)
    assert calls == ["on", "off", "on"] and report.summary()["fence_kept"]


def test_difference_behind_the_fence_backs_out_naming_its_offset(world: World) -> None:
    world.write(10)
    producer = Producer(world.target_cluster.admin_properties())
    producer.produce(world.topic, b"foreign", partition=1)
    assert producer.flush(120) == 0
    with pytest.raises(VerificationFailed, match="offset 0"), Tail(world):
        cut_over(world)
    assert world.acls() == []


def test_target_that_goes_beyond_the_source_stops_the_drain(world: World) -> None:
    world.write(4)
    producer = Producer(world.target_cluster.admin_properties())
    for _ in range(5):
        producer.produce(world.topic, b"foreign", partition=0)
    assert producer.flush(120) == 0
    with writer_lease(world), pytest.raises(TargetMoved):
        cut_over(world)
    assert world.acls() == []


def test_fence_removed_by_somebody_else_is_noticed(world: World) -> None:
    world.write(4)

    class Meddler(HeardFence):
        def raise_(self, intent: Intent, name: str, permit: Permit) -> None:
            super().raise_(intent, name, permit)
            super().lift(intent, name, permit)

    with writer_lease(world), pytest.raises(FenceGone):
        cut_over(world, fence=Meddler(world.source))


def test_changed_source_is_said_before_anything_is_touched(world: World) -> None:
    plan = world.plan()
    world.source.grow_partitions(world.topic, 3, unfenced)
    wait_until(lambda: world.source.topics([world.topic])[world.topic].partitions == 3)
    with pytest.raises(PlanOutdated, match="has 3 partitions, the plan 2"):
        cut_over(world, plan=plan)
    assert not (world.run_dir / "report.json").exists()


def test_stop_and_leak_are_noticed_during_a_long_comparison(world: World) -> None:
    world.write(10)
    stop, hold, compared = threading.Event(), threading.Event(), threading.Event()

    def endless(ends: Any) -> list[Any]:
        stop.set() if not world.directory.joinpath("leak").exists() else world.write(1)
        hold.wait(600)
        compared.set()
        return []

    try:
        with Tail(world):
            caught_up(world)
            with pytest.raises(CutoverCancelled, match="verify"):
                cut_over(world, verify=endless, stop=stop)
            world.directory.joinpath("leak").touch()
            with pytest.raises(FenceLeaks):
                cut_over(world, verify=endless)
        assert not compared.is_set()  # neither waited for the comparison's end
    finally:
        hold.set()
    assert world.acls() == []


def test_finished_cutover_run_again_changes_nothing_and_verifies(world: World) -> None:
    group = world.group("g", {0: 2})
    world.write(10)
    with Tail(world):
        caught_up(world)
        first = cut_over(world)
    acls = world.acls()
    # Life goes on at the target.
    producer = Producer(world.target_cluster.admin_properties())
    producer.produce(world.topic, b"first write on the target", partition=0)
    assert producer.flush(120) == 0
    world.group("g", {0: 5}, "target")
    second = cut_over(world)
    assert (second.attempt, second.fence, second.ends) == (first.attempt, first.fence, first.ends)
    assert second.steps[-1].name == "verify_again" and second.steps[-1].evidence["fence_is_up"]
    assert world.acls() == acls and world.positions(group) == {0: 5}
    world.group("g", {0: 1}, "target")
    with pytest.raises(VerificationFailed, match="was set to 2, has 1"):
        cut_over(world)
    with pytest.raises(FenceStands, match="is opened"):
        cut_over(world, run_dir=world.directory / "another")  # what is kept is nobody's to raise again
    lift = partial(lift_leftover_fence, world.on, world.mirror.name, runs=world.directory)
    assert lift(run="another") == lift(run=world.run_dir.name) == []
    assert world.acls() == acls and decided(world).phase == OPENED
    assert lift(run=world.run_dir.name, include_retained=True) != []
    assert world.acls() == [] and decided(world).phase == CLOSED


def test_secrets_are_nowhere_in_the_run_directory(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world.write(4)
    with Tail(world):
        cut_over(world)
    text = caplog.text + "".join(p.read_text() for p in world.run_dir.iterdir())
    found = world.on.target.reports(world.mirror.name).read()
    text += b"".join(found.values()).decode()
    assert found
    assert "admin-secret" not in text
