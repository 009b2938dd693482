"""The guard of a fence on real brokers: the owner is killed, or frozen and thawed, and nobody else does anything."""

from __future__ import annotations

import json
import signal

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.alarm import Alarm
from airflow_mirror.cutover.decision import LIFTED, UP
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.guard import Guard
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.jobs.runner.guarding import guarded
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from tests.integration.cutover_world import HeardFence, World, Writer, writer_lease
from tests.integration.cutovers import decided, opened_by
from tests.waiting import wait_until

DENIED = "DENY WRITE User:*"
PAGE = "tests.integration.cutover_once.page"


pytestmark = pytest.mark.usefixtures("ledger")


def test_killed_owners_fence_is_lifted_by_its_guard(world: World) -> None:
    """SIGKILL, to it and its process group; no second run, no teardown. Its guard ends, and has the secrets nowhere."""
    with Writer(world.source_cluster.properties("alice"), world.topic) as writer, writer_lease(world):
        process = world.process()
        wait_until(lambda: DENIED in world.acls() or process.poll() is not None, timeout_s=300)
        assert process.poll() is None, "it drains, because nobody copies"
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        wait_until(lambda: world.acls() == [], timeout_s=120)
        wait_until(lambda: decided(world).phase == LIFTED, timeout_s=60)
        writer.wait_acknowledged(3)
    assert opened_by(world) is None
    log = (world.run_dir / "guard.log").read_text()
    assert "ended, or is frozen" in log and "is lifted: DENY WRITE" in log and "admin-secret" not in log
    called = world.called.read_text().splitlines()
    assert [f"mirror {world.mirror.name!r}: the " in line for line in called] == [True, True]
    assert "ended, or is frozen" in called[0] and "is lifted: DENY WRITE" in called[1]


@pytest.mark.nights
def test_tails_guard_lifts_it_when_the_owners_is_gone_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cutover's host is lost. The tail's driver stands elsewhere, and was deposed, and stays until it is decided.

    It calls whom its own settings name.
    """
    monkeypatch.setenv("CALLED", str(world.called))  # this process is the tail's driver
    clusters = world.source.config, world.target.config
    with writer_lease(world):
        with guarded(*clusters, world.mirror.name, every_s=1.0, alarm=PAGE, wait_s=120.0) as ready:
            ready()
            world.lose(world.process())
        # The tail's driver has ended by now: it could not, while the fence stood.
        assert world.acls() == [] and decided(world).phase == LIFTED
    assert opened_by(world) is None and "is lifted" in world.called.read_text()


@pytest.mark.faults
def test_frozen_owner_finds_its_fence_lifted_and_opens_nothing(world: World) -> None:
    """Its process can be seen all the time, and holds its lock and its connections."""
    with writer_lease(world):
        process = world.process()
        wait_until(lambda: DENIED in world.acls() or process.poll() is not None, timeout_s=300)
        assert process.poll() is None
        process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: decided(world).phase == LIFTED, timeout_s=120)
            assert world.acls() == []
        finally:
            process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 1
    assert world.acls() == [] and opened_by(world) is None and decided(world).phase == LIFTED
    assert json.loads((world.run_dir / "report.json").read_text())["outcome"] == reports.BACKED_OUT


@pytest.mark.faults
@pytest.mark.parametrize("announced", [False, True])
def test_guard_that_alone_has_lost_the_target_lifts_what_nobody_was_about_to_open(
    world: World, monkeypatch: pytest.MonkeyPatch, announced: bool
) -> None:
    """Not before an opening of the owner would be void. With its opening announced at the source a person is called."""
    monkeypatch.setenv("CALLED", str(world.called))
    name = world.mirror.name
    nowhere = ClientConfig({"bootstrap.servers": "127.0.0.1:1"}, "target")
    with ClusterAdmin(nowhere, timeout_s=0.5) as away, writer_lease(world):
        guard, cut_off = Guard(name, world.on, alarm=Alarm(PAGE)), Ledger(away, 0.5)
        life = guard._life
        process = world.process(max_fence_s=30.0)

        def is_seen_whole() -> bool:
            guard.look()
            raised = guard._raised
            return process.poll() is not None or (raised is not None and not raised.intent.pending)

        # Until it is decided which rules are its own: before that nobody lifts it without a ledger.
        wait_until(is_seen_whole, timeout_s=300)
        if announced:
            there = decided(world)
            HeardFence(world.source).announce(name_of(name, there.run, there.id), unfenced)
        world.lose(process)
        guard._life = cut_off

        def said(words: str) -> bool:
            guard.look()
            return world.called.exists() and words in world.called.read_text()

        wait_until(lambda: said("can't be decided on, and comes down in"), timeout_s=60)
        assert DENIED in world.acls() and decided(world).phase == UP
        wait_until(lambda: said("find out whether its target is open" if announced else "without a word"), timeout_s=300)
        assert (DENIED in world.acls()) is announced
        guard._life = life
        wait_until(lambda: guard.look() or decided(world).phase == LIFTED, timeout_s=120)
        assert world.acls() == [] and opened_by(world) is None
        guard.alarm.wait(60)


@pytest.mark.faults
def test_teardown_of_a_frozen_owner_lifts_its_fence(world: World) -> None:
    """From its own host, where the process can be seen, and with the guard gone."""
    with writer_lease(world):
        process = world.process()
        wait_until(lambda: DENIED in world.acls() or process.poll() is not None, timeout_s=300)
        assert process.poll() is None
        process.send_signal(signal.SIGSTOP)
        try:
            lift_leftover_fence(world.on, world.mirror.name, HeardFence(world.source), run=world.run_dir.name)
            assert world.acls() == []
        finally:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGKILL)
            process.wait(60)
    wait_until(lambda: decided(world).phase == LIFTED, timeout_s=60)
    assert opened_by(world) is None
