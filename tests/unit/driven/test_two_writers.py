"""A task whose driver has lost it writes on, and somebody goes on with its partition: at every moment, and forgotten.

Its records are years old, so brokers forget their producer at each check, and take any sequence then. Spark runs the task
again at once; the rounds of the driver begin anew when the first attempt must have stopped.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.spark import attempt
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.jobs.driver.held_lease import HeldLease
from airflow_mirror.jobs.driver.rounds import copy_in_rounds
from airflow_mirror.jobs.runner.wishes import Wishes
from airflow_mirror.wire.cluster import WireCluster
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import copy, create_maps, errors, ranges_of
from tests.driven.script import WAIT_S, Fault, Request, Rule

BATCHES = 8
MOMENTS = (1, 2, 3, 4)  # at the nth Produce request the task is lost; there are more, merged or not
ALWAYS, ONCE = "before each request", "when the task is lost"


class Spark:
    """One task of Spark's, which it loses in the first round, and whose first attempt lives on.

    :ivar tokens: of the rounds. :ivar lost_at: the request at which it is lost.
    """

    def __init__(self, target: DrivenCluster, work: CopyWork, monkeypatch: pytest.MonkeyPatch) -> None:
        self._target, self._work = target, work
        self._attempts: dict[int, int] = {}
        self._orphan: threading.Thread | None = None
        self.tokens: list[LeaseToken] = []
        self.lost_at: Rule | None = None
        context = SimpleNamespace(get=self._context)
        monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(TaskContext=context))

    def _context(self) -> Any:
        number = self._attempts[threading.get_ident()]
        return SimpleNamespace(attemptNumber=lambda: number)

    def run(self, ranges: Sequence[CopyRange], _: Wishes, token: LeaseToken) -> list[PartitionResult]:
        self.tokens.append(token)
        work = replace(self._work, lease=token)
        first, told = self._start(0, work, ranges)
        if self._orphan is not None:
            return self._end(first, told)
        assert self.lost_at is not None
        self._orphan = first
        self.lost_at.wait()  # a request of its is on the way
        told = self._end(*self._start(1, work, ranges))
        self._target.expire_producers()
        self.lost_at.release()
        return told

    def _start(
        self, number: int, work: CopyWork, ranges: Sequence[CopyRange]
    ) -> tuple[threading.Thread, list[PartitionResult]]:
        told: list[PartitionResult] = []

        def carry_out() -> None:
            self._attempts[threading.get_ident()] = number
            told.extend(PartitionResult(**json.loads(text)) for text in attempt.carry_out(work, ranges))

        thread = threading.Thread(target=carry_out)
        thread.start()
        return thread, told

    def _end(self, thread: threading.Thread, told: list[PartitionResult]) -> list[PartitionResult]:
        thread.join(WAIT_S)
        assert not thread.is_alive()
        return told

    def end(self) -> None:
        """Wait for the orphan."""
        assert self._orphan is not None
        self._end(self._orphan, [])


class Ear:
    """Hears no wishes."""

    has_failed = False

    def __init__(self, held: HeldLease) -> None:
        self._held = held

    def begin(self) -> tuple[Wishes, LeaseToken]:
        while not self._held.is_safe:
            time.sleep(0.01)
        return Wishes(), self._held.begin()

    def end_round(self) -> None:
        self._held.withdraw()


class World:
    """A source with a topic of old records, and the driver of a copy.

    :param merged: batches are joined before they are written.
    """

    def __init__(
        self, source: DrivenCluster, target: DrivenCluster, directory: Path, monkeypatch: pytest.MonkeyPatch, *,
        mode: str, merged: bool,
    ) -> None:  # fmt: skip
        self.source, self.target, self.mode = source, target, mode
        self.here, self.there = source.create("t").logs[0], target.create("t").logs[0]
        self.writer = Writer(self.here)
        for number in range(BATCHES):
            self.writer.plain(3 + number % 3)
        if mode == MAPPED:
            create_maps(target)
        files = []
        for cluster in (source, target):
            files.append(directory / f"{cluster.config.role}.properties")
            files[-1].write_text(f"bootstrap.servers={cluster.config.bootstrap}\n")
        self.options = CopyOptions(
            mirror="m", merge_below=1024 if merged else 0, max_batch_bytes={"t": 500} if merged else {}
        )
        token = LeaseToken(transactional_id="", producer_id=0, epoch=0, mark_ms=0, wait_s=0.0)
        work = CopyWork(source=str(files[0]), target=str(files[1]), options=self.options, lease=token)
        self.spark = Spark(target, work, monkeypatch)

    def copy(self, moment: int, forgets: str) -> str | None:
        """Copy with a task that is lost at its nth request; return what stopped the partition."""
        forget = (lambda _: self.target.expire_producers()) if forgets == ALWAYS else None
        on = self.target.script.on
        self.spark.lost_at = on("Produce", Fault(before=forget, hold=True), nth=moment, when=_is_data)
        if forget:
            on("Produce", Fault(before=forget), times=None, when=_is_data)
        with WireCluster(self.target.config) as wire:
            held = HeldLease(wire, "m")
            ear: Any = Ear(held)
            (result,) = copy_in_rounds(
                ranges_of(self.source, "t", self.mode), self.spark.run, ear, held, lambda: None
            )  # fmt: skip
            held.release()
        self.spark.end()
        return result.error

    def copy_more(self) -> Exception | None:
        """Copy what was added since, as the next job does."""
        self.writer.plain(4)
        ranges, one = ranges_of(self.source, "t", self.mode), self.options
        copies = copy(
            self.source, self.target, ranges, merge_below=one.merge_below, max_batch_bytes=one.max_batch_bytes
        )  # fmt: skip
        return errors(copies)[ranges[0].source]

    def is_equal(self) -> bool:
        """Whether the target holds each record once, in its order; with identical offsets, where it was."""
        rows = [log.rows() for log in (self.here, self.there)]
        if self.mode == MAPPED:
            rows = [[row._replace(offset=0) for row in found] for found in rows]
        return rows[0] == rows[1]


def _is_data(request: Request) -> bool:
    return any("t" in (topic.name, getattr(topic, "topic", "")) for topic in request.message.topic_data)


pytestmark = pytest.mark.usefixtures("either_heart")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"CONFIRM_EVERY_S": 0.05, "VALID_S": 0.3, "HANDOVER_S": 0.5}.items():
        monkeypatch.setattr(lease, name, seconds)


@pytest.fixture
def world(
    source: DrivenCluster, target: DrivenCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, merged: bool
) -> World:
    return World(source, target, tmp_path, monkeypatch, mode=mode, merged=merged)


both = pytest.mark.parametrize("mode", ["identical", MAPPED])
either = pytest.mark.parametrize("merged", [False, True], ids=["single", "merged"])
moments = pytest.mark.parametrize("moment", MOMENTS)
forgetful = pytest.mark.parametrize("forgets", [ALWAYS, ONCE])


@both
@either
@moments
@forgetful
def test_an_orphan_and_who_goes_on_double_nothing_whenever_the_broker_forgets(
    world: World, moment: int, forgets: str
) -> None:
    assert world.copy(moment, forgets) is None
    assert world.is_equal()
    first, second = world.spark.tokens
    assert first != second, "nobody goes on under the lease of a task that was lost"
    assert world.copy_more() is None
    assert world.is_equal()


@both
@either
def test_a_second_attempt_that_wrote_would_double_records(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the scene is one in which it matters: sequences do not help where the broker has forgotten the producer."""
    monkeypatch.setattr(attempt, "_require_first", lambda _: None)
    world.copy(2, ONCE)
    assert not world.is_equal()
