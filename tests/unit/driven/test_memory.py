"""The memory of a copy: who has ended or rests gives back what it held, or the others wait for ever."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from itertools import count

import pytest

from airflow_mirror.copy.loop import loop
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.loop.states import ENDED, OPEN, State
from airflow_mirror.copy.loop.steps import Steps
from airflow_mirror.copy.loop.target_side import TargetSide
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.errors import LeaseLost, LeaseUnconfirmed
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import ends, errors, ranges_of

LIMIT = 2 << 20
TURNS = 8_000  # it takes 80, and 1,600 if nothing is merged


def filled(source: DrivenCluster, target: DrivenCluster, partitions: int) -> None:
    """Partitions of 120 KB to 1 MB in batches of 3 KB, the small ones first: they end while the others go on."""
    for cluster in (source, target):
        cluster.create("t", partitions)
    for log in source.topics["t"].logs:
        for _ in range(40 + 300 * log.tp.partition // partitions):
            Writer(log).plain(10, size=270)


def of_all(
    source: DrivenCluster, target: DrivenCluster, check: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic, **options: object,
) -> CopyLoop:  # fmt: skip
    clusters = Clusters.of(source.config, target.config)
    return CopyLoop(ranges_of(source, "t"), clusters, CopyOptions(mirror="m", **options), check, clock)  # type: ignore[arg-type]


@pytest.mark.parametrize("merge_below", [0, 1 << 20])
def test_partitions_that_have_ended_leave_their_memory_to_the_others(
    source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch, merge_below: int
) -> None:
    """Each kept its last answer, and all that had come with it for others: the copy stood still for ever."""
    monkeypatch.setattr(loop, "_MEMORY_BYTES", LIMIT)
    filled(source, target, 18)
    copy = of_all(source, target, merge_below=merge_below)
    turns = count()
    copies = copy.run(lambda: next(turns) > TURNS)
    assert {p.range.partition: p.state for p in copies if not p.done} == {}
    assert set(errors(copies).values()) == {None}
    assert copy.memory.used == 0
    assert [log.rows() for log in target.topics["t"].logs] == [log.rows() for log in source.topics["t"].logs]


@pytest.mark.parametrize("how", ["told to stop", "by an error"])
def test_a_copy_that_ends_early_holds_nothing(
    source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(loop, "_MEMORY_BYTES", LIMIT)
    filled(source, target, 4)
    copy, held = of_all(source, target), list[int]()

    def should_stop() -> bool:
        if not copy.memory.used or not any(ends(target)):
            return False
        held.append(copy.memory.used)
        if how == "by an error":
            raise LeaseLost("id", 1, "another took it")
        return True

    try:
        copy.run(should_stop)
    except LeaseLost:
        assert how == "by an error"
    assert held and any(p.state is not State.DONE for p in copy.partitions)
    assert copy.memory.used == sum(p.queued_bytes for p in copy.partitions) == 0


# --- a copy that stands still -----------------------------------------------------------------------------------------


class Time:
    """Goes on by a second each turn from the moment at which all is fetched and nothing is awaited, up to a limit."""

    def __init__(self) -> None:
        self.s = self.held_at = 1000.0
        self.copy: CopyLoop | None = None

    def __call__(self) -> float:
        return self.s

    def is_over(self, seconds: float) -> bool:
        copy = self.copy
        assert copy is not None
        if any(p.state not in OPEN | ENDED or p.fetch_offset < p.end for p in copy.partitions) or copy._out.busy:
            self.held_at = self.s
            return False
        self.s += 1
        return self.s - self.held_at > seconds


def small(source: DrivenCluster, target: DrivenCluster) -> None:
    for cluster in (source, target):
        cluster.create("t", 5)
    for log in source.topics["t"].logs:
        Writer(log).plain(10 + log.tp.partition, size=270)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name.endswith("standstill")]


def test_a_copy_that_stands_still_with_its_memory_taken_says_so_and_then_seldom(
    source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    small(source, target)
    monkeypatch.setattr(TargetSide, "send", lambda _: None)  # whatever the reason
    said = told_after(range(0, 1400, 50), of_all(source, target, clock=(clock := Time())), clock, caplog)
    assert said == [0] * 2 + [1] * 12 + [2] * 12 + [3] * 2
    first = warnings(caplog)[0]
    assert re.fullmatch(
        r"no partition has advanced for 6\d s, while \d{5} of 50331648 bytes for fetched data are taken, by 5 "
        r"partitions: t-4 \(ready, \d+ bytes\), t-3 \(ready, \d+ bytes\), t-2 \(ready, \d+ bytes\)\. .*",
        first,
    )


@pytest.mark.parametrize("why", ["a rate", "a throttle", "an unconfirmed lease", "a hole that is filled"])
def test_a_copy_that_is_held_up_on_purpose_is_no_standstill(
    source: DrivenCluster,
    target: DrivenCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    why: str,
) -> None:
    small(source, target)
    clock, over = Time(), list[bool]()

    def check() -> None:
        if "lease" in why and copy.memory.used and all(p.fetch_offset >= p.end for p in copy.partitions):
            raise LeaseUnconfirmed("id", 1, 9.0, None)

    copy = of_all(source, target, check, clock, max_bytes_per_second=1 if "rate" in why else None)
    if "rate" not in why:
        monkeypatch.setattr(TargetSide, "send", lambda _: None)
    if "throttle" in why:
        monkeypatch.setattr(TargetSide, "pauses", lambda _: [0.0, 300.0])
    if "hole" in why:
        monkeypatch.setattr(Steps, "busy", property(lambda _: not over))
    told_after([500], copy, clock, caplog, over)
    assert warnings(caplog) == []


def told_after(
    seconds: Iterable[int], copy: CopyLoop, clock: Time, caplog: pytest.LogCaptureFixture, over: list[bool] | None = None
) -> list[int]:
    """Return how many warnings there were so many seconds after all was fetched."""
    clock.copy, said, left, turns = copy, list[int](), list(seconds), count()

    def should_stop() -> bool:
        if clock.is_over(left[0]):
            said.append(len(warnings(caplog)))
            del left[0]
        if not left and over is not None:
            over.append(True)
        return not left or next(turns) > TURNS

    copy.run(should_stop)
    assert not left
    return said
