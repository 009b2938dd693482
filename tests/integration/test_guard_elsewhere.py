"""A cutover on one host and the guard of its tail on another: between the two there is nothing but Kafka."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_mirror.cutover.decision import LIFTED, UP
from airflow_mirror.plan.store import write as write_plan
from tests.integration.cutover_world import World, Writer, writer_lease
from tests.integration.cutovers import decided, opened_by
from tests.integration.hosts import ROOT, Host
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("ledger")]

DENIED = "DENY WRITE User:*"
PROMISED_S = 30.0  # "within half a minute producers write again"


class Two:
    """A world whose cutover runs on host ``a``, and a deposed tail's driver on host ``b``."""

    def __init__(self, world: World, a: Host, b: Host, directory: Path) -> None:
        self.world, self.a, self.b, self._logs = world, a, b, directory
        self.plan = directory / "plan.json"
        write_plan(world.keep(world.plan()), self.plan)

    def guard(self) -> None:
        """Start the guard on ``b``."""
        log = self._logs / "guard.log"
        self.b.run(self._command("guard_once.py", self.world.mirror.name), self._env("b"), log)
        wait_until(lambda: "guards" in log.read_text())

    def cut_over(self) -> None:
        """Start the cutover on ``a``; return once its fence is up. It stays, because nobody copies."""
        command = self._command("cutover_once.py", str(self.a.scratch / "run"), str(self.plan), "0")
        self.owner = self.a.run(command, self._env("a") | {"MAX_FENCE_S": "900"}, self._logs / "cutover.log")
        wait_until(lambda: DENIED in self.world.acls() or self.owner.poll() is not None, timeout_s=300)
        assert self.owner.poll() is None and decided(self.world).phase == UP

    def called(self, host: str) -> str:
        """What was said to a person on a host."""
        file = self._logs / f"called-{host}"
        return file.read_text() if file.exists() else ""

    def _env(self, host: str) -> dict[str, str]:
        world = self.world
        settings = {"SOURCE": world.source.config.dump(), "TARGET": world.target.config.dump()}
        return {**os.environ, **settings, "CALLED": str(self._logs / f"called-{host}"), "PYTHONPATH": str(ROOT)}

    @staticmethod
    def _command(script: str, *arguments: str) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name(script)), *arguments]


@contextmanager
def two_hosts(world: World, directory: Path) -> Iterator[Two]:
    with Host("host-a", directory / "a") as a, Host("host-b", directory / "b") as b:
        yield Two(world, a, b, directory)


def test_fence_of_a_lost_host_is_lifted_from_another_within_half_a_minute(world: World, tmp_path: Path) -> None:
    """The host is lost with the owner and its guard; a producer writes all the time."""
    with (
        Writer(world.source_cluster.properties("alice"), world.topic) as writer,
        writer_lease(world),
        two_hosts(world, tmp_path) as two,
    ):
        two.guard()
        two.cut_over()
        two.a.lose()
        lost, written = time.monotonic(), writer.acknowledged
        wait_until(lambda: writer.acknowledged > written)
        writes_again_s = time.monotonic() - lost
        wait_until(lambda: decided(world).phase == LIFTED, timeout_s=60)
        print(f"a producer writes {writes_again_s:.1f} s after the host was lost")
        assert world.acls() == [] and opened_by(world) is None
        assert "is lifted: DENY WRITE" in two.called("b") and two.called("a") == ""
    assert writes_again_s < PROMISED_S


def test_host_that_thaws_finds_its_fence_lifted_from_another_and_opens_nothing(world: World, tmp_path: Path) -> None:
    """All its processes were frozen, the guard too: none of them has ended, and none of them touches anything."""
    with writer_lease(world), two_hosts(world, tmp_path) as two:
        two.guard()
        two.cut_over()
        two.a.signal(signal.SIGSTOP)
        frozen = time.monotonic()
        wait_until(lambda: decided(world).phase == LIFTED)
        print(f"lifted {time.monotonic() - frozen:.1f} s after the host froze")
        assert world.acls() == []
        lifted = decided(world)
        two.a.signal(signal.SIGCONT)
        wait_until(lambda: two.owner.poll() is not None)
        assert two.owner.returncode == 1
        assert world.acls() == [] and opened_by(world) is None and decided(world) == lifted
