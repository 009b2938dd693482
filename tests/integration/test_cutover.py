"""Cutovers on real brokers: the source is alive, writers are fenced, and every failure gives everything back."""

from __future__ import annotations

import dataclasses
import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.console.main import main as console
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover import preview, quiet
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.after import After, look_after
from airflow_mirror.cutover.decision import CLOSED, LIFTED, OPENED, UP, FenceState, fence_state
from airflow_mirror.cutover.evidence import prove
from airflow_mirror.cutover.fence import AclFence, CallableFence, name_of
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.request import Additions, Limits
from airflow_mirror.cutover.steps import STEPS
from airflow_mirror.errors import (
    CutoverCancelled,
    CutoverRunning,
    CutoverTakenOver,
    DrainTimedOut,
    FencedByAnother,
    FenceGone,
    FenceLeaks,
    FenceStands,
    GroupActive,
    GroupsStillMoving,
    JobNotRunning,
    LeaseLost,
    NoAuthorizer,
    OpenByDefaultUnknown,
    PlanOutdated,
    SourceNotSilent,
    TargetMoved,
    TransactionsOpen,
    VerificationFailed,
)
from airflow_mirror.kafka.admin import Acl, ClusterAdmin, GroupPosition
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.chain import links
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import owned_topics
from airflow_mirror.verify.remaining import verify_rest
from sandbox import Cluster
from tests import cutting_over
from tests.builders import rule, shut_again
from tests.integration.cutover_once import LEASE_TIMES, LIMITS, SLOW_S
from tests.integration.cutover_world import EngineTail, HeardFence, Member, Tail, World, Writer, wait_for, writer_lease


@pytest.fixture(autouse=True)
def _slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "ENOUGH_S", SLOW_S)


@pytest.fixture
def world(walled_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path) -> Iterator[World]:
    with closing(World(walled_cluster, target_cluster, topic_name, tmp_path)) as made:
        yield made


_TIMES = {f.name for f in dataclasses.fields(Limits)}


def cut_over(world: World, **changes: Any) -> CutoverReport:
    plan = changes.pop("plan", None) or world.plan()
    arguments: dict[str, Any] = {
        "fence": HeardFence(world.source),
        "accept_ledger_writers": ["User:*"],
        "kept": world.kept(changes.pop("run_dir", None)),
        "verify": verify_rest(plan, world.source.config, world.target.config),
        "limits": dataclasses.replace(LIMITS, **{k: changes.pop(k) for k in _TIMES & changes.keys()}),
        **changes,
    }
    return cutting_over.cut_over(world.on, world.keep(plan), **arguments)


def decided(world: World) -> FenceState:
    """What is decided about the mirror's fence."""
    found = fence_state(Ledger(world.target).values(), world.mirror.name)
    assert found is not None
    return found


def opened_by(world: World) -> str | None:
    """The plan that opened the topic, as the ledger says."""
    owned = owned_topics(Ledger(world.target)).get(world.topic)
    return None if owned is None else owned.opened_by


def caught_up(world: World) -> None:
    wait_for(lambda: world.target.offsets(world.tps) == world.source.offsets(world.tps))


def on_disk(world: World) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((world.run_dir / "report.json").read_text())
    return found


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
        wait_for(lambda: tail.turns >= turns + 3)  # it tries again, and again
        assert world.target.offsets(world.tps) == report_ends(report)
    assert sum(world.source.offsets(world.tps).values()) > sum(report_ends(report).values())
    assert world.acls() == []
    assert report.fence is not None and report.fence.lifted is not None and not report.fence.kept


def report_ends(report: CutoverReport) -> dict[TopicPartition, int]:
    return {TopicPartition(row["topic"], row["partition"]): row["end"] for row in report.ends}


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
    wait_for(lambda: fence.is_up(intent))
    with Member(world, f"{world.topic}-reader"):
        pass
    fence.lift(intent, name, unfenced)
    assert world.acls() == [] and not fence.standing(world.mirror.name)


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
    wait_for(lambda: listed() == sorted([mine, deny]))
    fence = AclFence(world.source, open_by_default=True)
    intent = fence.intent([world.topic])
    assert intent.deny == intent.allow == []
    name = name_of(world.mirror.name, "run", "attempt")
    fence.raise_(intent, name, unfenced)
    assert fence.is_up(intent)
    fence.lift(intent, name, unfenced)
    assert listed() == sorted([mine, deny])
    world.source.delete_acls([deny], unfenced)
    wait_for(lambda: listed() == [mine])
    intent = fence.intent([world.topic])
    for _ in range(2):
        fence.raise_(intent, name, unfenced)
    wait_for(lambda: fence.is_up(intent))
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


def test_group_that_reads_on_is_awaited_then_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its consumer has stopped, a second cutover moves its exact position."""
    world.write(4000)
    group = f"{world.topic}-slow"
    with Tail(world):
        caught_up(world)
        with Member(world, group, crawl_s=0.1) as member, monkeypatch.context() as patched:
            ask = world.source.groups_offsets

            def ask_later(groups: Collection[str]) -> dict[str, dict[TopicPartition, GroupPosition]]:
                # It moves between any two looks, however slow the machine is. Two commits, because the first may have
                # been made, though not answered, at the look before.
                goal = member.commits + 2
                wait_for(lambda: member.commits >= goal)
                return ask(groups)

            patched.setattr(world.source, "groups_offsets", ask_later)
            with pytest.raises(GroupsStillMoving, match=group):
                cut_over(world, wait_groups_s=3)
        wait_for(lambda: world.source.group_states([group]) == {group: "Empty"})
        assert world.acls() == [] and world.positions(group) == {}
        assert on_disk(world)["groups"] == []  # at no look was it taken to be at rest
        # Its consumer is stopped: now it is at rest, and its exact position moves.
        report = cut_over(world)
    assert {g.group: g.settled for g in report.groups} == {group: "empty"}
    assert world.positions(group) == world.positions(group, "source")
    row = report.groups[0].positions[0]
    assert row["lag"] == 2000 - row["source_offset"] > 0


def test_live_group_without_position_in_trimmed_partition_settles(world: World) -> None:
    """Asking for records below the log start would be an error, and take the cutover down with it."""
    world.write(40)
    with Tail(world):
        caught_up(world)
    for admin in (world.source, world.target):
        admin.delete_records(dict.fromkeys(world.tps, 7), unfenced)
    # It commits in partition 0 only, and once.
    group = f"{world.topic}-half"
    with Member(world, group, crawl_s=3600):
        wait_for(lambda: world.positions(group, "source") == {0: 1})
        report = cut_over(world, accept_still_groups=[group])
    assert [g.settled for g in report.groups] == ["stood still"]
    assert "expired" in report.groups[0].positions[0]["note"] and world.positions(group) == {0: 7}


def test_group_active_on_the_target_is_refused_before_fencing(world: World) -> None:
    world.write(6)
    group = world.group("g", {0: 1})
    with Tail(world):
        caught_up(world)
        consumer = Consumer(
            {**world.target_cluster.admin_properties(), "group.id": group, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([world.topic])
        wait_for(lambda: consumer.poll(0.2) is not None)
        with pytest.raises(GroupActive, match=group):
            cut_over(world)
        consumer.close()
    assert not (world.run_dir / "report.json").exists()
    assert world.acls() == []


def test_groups_get_their_positions_on_the_target_back(world: World) -> None:
    world.write(20)
    had = world.group("had", {0: 2}, "target")
    world.group("had", {0: 5, 1: 7})
    new = world.group("new", {1: 9})
    elsewhere = TopicPartition("elsewhere", 0)
    with Tail(world):
        caught_up(world)

        def refuse(_: object) -> dict[str, Any]:
            """Fail at the last moment: what else was to be decided with the opening."""
            assert world.positions(had) == {0: 5, 1: 7} and world.positions(new) == {1: 9}
            raise RuntimeError("its direction is another one")

        with pytest.raises(RuntimeError, match="direction"):
            cut_over(world, additions=Additions(decide_with=refuse))
    assert opened_by(world) is None
    assert world.positions(had) == {0: 2} and world.positions(new) == {}
    assert elsewhere not in world.target.group_offsets(had)
    assert world.acls() == []
    undone = [(u["step"], u["ok"]) for u in on_disk(world)["undone"]]
    assert undone == [(name, True) for name in ("fence", "commit_groups", "stop_writers", "decision")]


def transactional(world: World) -> Producer:
    settings = {"transactional.id": world.topic, "transaction.timeout.ms": "600000"}
    producer = Producer({**world.source_cluster.properties("alice"), **settings})
    producer.init_transactions(120)
    return producer


def test_transaction_open_at_the_fence_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker that ends it behind the fence is no leak."""
    producer = transactional(world)
    producer.begin_transaction()
    for p in (0, 1):
        producer.produce(world.topic, b"inside", partition=p)
    assert producer.flush(120) == 0
    moves, looks = quiet.moves, list[float]()
    committed = False

    def commit_in_time(before: Any, after: Any) -> Any:
        """End it while the proof looks on, at the first look after four times ``quiet_s``."""
        nonlocal committed
        looks.append(time.monotonic())
        if not committed and looks[-1] - looks[0] > 2:
            producer.commit_transaction(120)
            committed = True
            wait_for(lambda: world.target.offsets(world.tps) == dict.fromkeys(world.tps, 1))
        return moves(before, after)

    monkeypatch.setattr(quiet, "moves", commit_in_time)
    # The record tail can't copy a marker, so the drain is as far as this goes: behind by exactly the marker.
    with pytest.raises(DrainTimedOut) as caught, Tail(world):
        cut_over(world, drain_timeout_s=2)
    assert caught.value.behind == {f"{world.topic}-0": 1, f"{world.topic}-1": 1}
    proof = next(s for s in on_disk(world)["steps"] if s["name"] == "prove_fence")
    assert committed and proof["evidence"]["markers_after_fence"] == 2
    assert world.acls() == []


def test_transaction_that_never_ends_is_named(world: World) -> None:
    producer = transactional(world)
    producer.begin_transaction()
    producer.produce(world.topic, b"inside", partition=0)
    assert producer.flush(120) == 0
    with pytest.raises(TransactionsOpen, match=f"{world.topic}-0: stable to 0 of 1"):
        cut_over(world, transactions_timeout_s=1.0)
    producer.abort_transaction(120)
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
    wait_for(lambda: world.source.topics([world.topic])[world.topic].partitions == 3)
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


def test_asked_to_stop_it_backs_out(world: World) -> None:
    world.write(10)
    stop, over = threading.Event(), threading.Event()

    def stop_the_drain() -> None:
        while not over.wait(0.05):
            if (world.run_dir / "report.json").exists() and on_disk(world)["steps"][-1]["name"] == "drain":
                stop.set()
                return

    thread = threading.Thread(target=stop_the_drain)
    thread.start()
    try:
        with writer_lease(world), pytest.raises(CutoverCancelled, match="drain"):
            cut_over(world, stop=stop, drain_timeout_s=300)  # nobody copies: it would drain for long
    finally:
        over.set()
        thread.join()
    assert world.acls() == []
    assert on_disk(world)["outcome"] == reports.BACKED_OUT


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


def retried(attempt: Callable[[], CutoverReport]) -> CutoverReport:
    """Cut over, and try again as Airflow does: the guard of the killed process may be at work at the same time."""
    for _ in range(2):
        with suppress(CutoverTakenOver):
            return attempt()
    return attempt()


@pytest.mark.faults
def test_second_run_after_any_kill_finishes_and_lifts_fence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """kill -9 after every single write of the report, and behind the opening, with producers that go on writing.

    What comes next is on another worker, whose disk is empty. Every second time a teardown comes before the second run.
    Whatever happened, the target ends where the cutover says, and is in production, for all who read the ledger.
    """
    for name, seconds in LEASE_TIMES.items():
        monkeypatch.setattr(lease, name, seconds)  # as in the processes
    world.keep(world.plan())
    world.write(30)
    moved = world.group("g", {0: 3, 1: 4})
    fenced_when_killed, killed, forward = 0, 0, 0
    with Writer(world.source_cluster.properties("alice"), world.topic) as writer:
        for kill_after in [*range(1, 40), -1]:
            run_dir = world.directory / f"run-{kill_after}"
            shut_again(Ledger(world.target), world.topic)
            world.target.commit_group_offsets(
                moved, {TopicPartition(world.topic, 0): GroupPosition(1, "before")}, unfenced
            )
            with EngineTail(world):
                wait_for(lambda: world.behind() < 100)
                process = world.process(run_dir, kill_after)
                status = process.wait(300)
                if status == 0:
                    continue  # it has no more than that many writes
                assert status == -signal.SIGKILL
                killed += 1
                left = json.loads((run_dir / "report.json").read_text())
                fenced_when_killed += bool(world.acls())
                there = fence_state(Ledger(world.target).values(), world.mirror.name)
                here = there is not None and there.run == run_dir.name  # it was decided that its fence goes up
                assert here == bool(left["id"])
                opening = left["outcome"] == reports.RUNNING and here and there.phase == OPENED  # type: ignore[union-attr]
                assert bool(opened_by(world)) == (opening or left["outcome"] == reports.DONE)
                forward += opening
                other = world.directory / "another worker" / run_dir.name
                if kill_after % 2 and not opening:
                    with suppress(CutoverTakenOver):  # its guard was as quick, and goes on with it
                        lift_leftover_fence(world.on, world.mirror.name, run=run_dir.name)
                    wait_for(lambda: world.acls() == [])
                    assert bool(opened_by(world)) == (left["outcome"] == reports.DONE)
            over = left["outcome"] == reports.DONE or opening
            with nullcontext() if over else EngineTail(world):  # a tail has to be started again after a way back
                report = retried(
                    lambda o=other: cut_over(
                        world, run_dir=o, keep_fence=False, plan=Plan.load(world.directory / "plan.json"),
                    )
                )  # fmt: skip
                assert report.outcome == reports.DONE and opened_by(world) == report.plan_hash
                assert world.acls() == [], f"fence left after a kill behind write {kill_after}"
                assert world.positions(moved) == {0: 3, 1: 4}
                if over or not here:  # of an attempt whose fence never went up nobody else has to know
                    assert report.attempt == 1 and report.earlier == report.undone == []
                else:
                    assert report.attempt > 1 and {one["state"] for one in report.earlier} == {"CAUGHT_UP"}
                    assert all(u["ok"] for one in report.earlier for u in one["undone"])
                writer.wait_acknowledged(3)
                assert world.target.offsets(world.tps) == report_ends(report)
    assert killed >= 18 and fenced_when_killed >= 14 and forward >= 1  # the opening is one decision


@pytest.mark.faults
def test_cutover_of_another_run_lifts_what_a_lost_host_has_left(world: World) -> None:
    """Both guards are gone, and the next process has heard of nothing: it finds the fence on the target, and goes on."""
    world.write(10)
    with writer_lease(world):
        world.lose(world.process(world.directory / "lost"))
    with Tail(world):
        caught_up(world)
        report = cut_over(world, run_dir=world.directory / "another run")
    assert report.outcome == reports.DONE and (report.attempt, report.earlier) == (1, [])
    left = world.kept(world.directory / "lost").load()
    assert left is not None and left.fence is not None and left.fence.lifted is not None


@pytest.mark.faults
@pytest.mark.parametrize("swapped", [False, True], ids=["for everybody", "swapped for the way back"])
def test_topic_that_another_mirror_has_fenced_is_refused_and_not_adopted(world: World, swapped: bool) -> None:
    """Whose fence it is says an ACL on a group that nobody uses."""
    world.write(4)
    fence, name = HeardFence(world.source), name_of("another", "night", "3")
    if swapped:
        fence.raise_(Intent(topics=()), name, unfenced)
        by_name = Acl(
            resource_type="TOPIC", name=world.topic, pattern_type="LITERAL", principal="User:alice", host="*",
            operation="WRITE", permission="DENY",
        )  # fmt: skip
        world.source.create_acls([by_name], unfenced)
    else:
        fence.raise_(fence.intent([world.topic]), name, unfenced)
    before = world.acls()
    try:
        with Tail(world), pytest.raises(FencedByAnother, match=rf"{world.topic}.*another:night:3"):
            caught_up(world)
            cut_over(world)
        assert world.acls() == before and not (world.run_dir / "report.json").exists()
    finally:
        fence.forget(name, unfenced)


def test_console_lifts_the_fence_of_a_killed_cutover_and_keeps_a_finished_ones(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, seconds in LEASE_TIMES.items():
        monkeypatch.setattr(lease, name, seconds)
    command = ["lift-fence", "--mirror", world.mirror.name, "--home", str(world.directory / "another host")]
    for role, admin in (("source", world.source), ("target", world.target)):
        file = world.directory / f"{role}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in admin.config.properties.items()))
        command += [f"--{role}", str(file)]
    runs = world.directory / world.mirror.name / "runs"
    world.write(10)
    with Tail(world):
        caught_up(world)
        world.lose(world.process(runs / "killed"))  # with its guard, which would be as quick as we are
        assert (decided(world).run, decided(world).phase) == ("killed", UP)
        assert console(command) == 0
        assert f"run killed: lifted: DENY WRITE on topic {world.topic}" in capsys.readouterr().out and world.acls() == []
    with Tail(world):
        cut_over(world, run_dir=runs / "finished")
    assert console(command) == 0
    assert "--include-retained lifts it" in capsys.readouterr().out and "DENY WRITE User:*" in world.acls()
    assert console([*command, "--include-retained"]) == 0 and world.acls() == []


def test_sigterm_lifts_the_fence(world: World) -> None:
    world.write(10)
    with writer_lease(world):  # nobody copies: it drains until it is told to stop
        process = world.process()
        wait_for(lambda: "DENY WRITE User:*" in world.acls() or process.poll() is not None, 300)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 1
    assert world.acls() == []
    report = on_disk(world)
    assert report["outcome"] == reports.BACKED_OUT and report["error"].startswith("CutoverCancelled")


def test_second_process_is_refused_while_the_first_is_at_work(world: World) -> None:
    world.write(10)
    with writer_lease(world):
        process = world.process()
        try:
            wait_for(lambda: "DENY WRITE User:*" in world.acls(), 300)
            with pytest.raises(CutoverRunning):
                cut_over(world)
            with pytest.raises(CutoverRunning):
                lift_leftover_fence(world.on, world.mirror.name, runs=world.directory)
            other = world.directory / "another worker" / world.run_dir.name  # no lock tells there
            with pytest.raises(CutoverRunning, match="it gives signs of life"):
                cut_over(world, run_dir=other)
            with pytest.raises(CutoverRunning, match="it gives signs of life"):
                lift_leftover_fence(world.on, world.mirror.name, runs=other.parent)
            assert "DENY WRITE User:*" in world.acls()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(300)
    assert world.acls() == []


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
