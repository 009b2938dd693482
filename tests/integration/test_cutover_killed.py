"""Cutovers that die, are stopped, or meet another one, on real brokers: a fence comes down, and only by who may."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.console.main import main as console
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.decision import OPENED, UP, fence_state
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.errors import CutoverCancelled, CutoverRunning, CutoverTakenOver, FencedByAnother
from airflow_mirror.kafka.admin import Acl, GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan.model import Plan
from tests.builders import shut_again
from tests.integration.cutover_once import LEASE_TIMES
from tests.integration.cutover_world import EngineTail, HeardFence, Tail, World, Writer, writer_lease
from tests.integration.cutovers import caught_up, cut_over, decided, on_disk, opened_by, report_ends
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("unhurried")


@pytest.mark.nights
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
        for kill_after in [*range(1, 40), -1, -2]:
            run_dir = world.directory / f"run-{kill_after}"
            shut_again(Ledger(world.target), world.topic)
            world.target.commit_group_offsets(
                moved, {TopicPartition(world.topic, 0): GroupPosition(1, "before")}, unfenced
            )
            with EngineTail(world):
                wait_until(lambda: world.behind() < 100)
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
                    wait_until(lambda: world.acls() == [])
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
                    assert report.attempt == 1 and (report.earlier, report.undone) == ([], [])
                else:
                    assert report.attempt > 1 and {one["state"] for one in report.earlier} == {"CAUGHT_UP"}
                    assert all(u["ok"] for one in report.earlier for u in one["undone"])
                writer.wait_acknowledged(3)
                assert world.target.offsets(world.tps) == report_ends(report)
    assert killed >= 17 and fenced_when_killed >= 13 and forward >= 1  # the opening is one decision


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


@pytest.mark.nights
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


@pytest.mark.nights
def test_sigterm_lifts_the_fence(world: World) -> None:
    world.write(10)
    with writer_lease(world):  # nobody copies: it drains until it is told to stop
        process = world.process()
        wait_until(lambda: "DENY WRITE User:*" in world.acls() or process.poll() is not None, timeout_s=300)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 1
    assert world.acls() == []
    report = on_disk(world)
    assert report["outcome"] == reports.BACKED_OUT and report["error"].startswith("CutoverCancelled")


@pytest.mark.nights
def test_second_process_is_refused_while_the_first_is_at_work(world: World) -> None:
    world.write(10)
    with writer_lease(world):
        process = world.process()
        try:
            wait_until(lambda: "DENY WRITE User:*" in world.acls(), timeout_s=300)
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
