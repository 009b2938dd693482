"""How much is told to be lost, and how much is: sources of different kinds that die, watched by a tail that lives on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.failover.losses import Losses, losses
from airflow_mirror.errors import ClusterUnreachable
from airflow_mirror.sync.ends import notes
from airflow_mirror.sync.ends.follower import EndsFollower
from airflow_mirror.wire import requests
from tests.builders import plan_of, topic_plan
from tests.followed import sides
from tests.unit.ledger.memory import MemoryState
from tests.unit.plan.builders import a_mirror
from tests.unit.sync.confirmed import Confirmed

A = TopicPartition("a", 0)
PLAN = plan_of(a_mirror(name="m"), topic_plan("a", {0: 0}, source_topic_id="id"))
FIRST_S = 0.3  # the first look
BEGUN_MS = 1_800_000_000_000  # by the clock of who looks: the first look is noted at once
GONE = ClusterUnreachable("source", "host:9092", "connection refused")

Written = Callable[[float], int]  # records by then


def steadily(t: float) -> int:
    return int(400 * t)


def in_bursts(t: float) -> int:
    """A thousand at once, every seven seconds."""
    return 1000 * int(t / 7)


def idle(_: float) -> int:
    return 123


def begun_by_a_load(t: float) -> int:
    """50,000 in the first minute, then ten a second."""
    return int(min(t, 60) * 833) + int(max(0.0, t - 60) * 10)


class Source:
    """A source that is written to until it dies.

    :param slow_s: how long a look takes; the source answers at its end.
    """

    def __init__(self, written: Written, dies_s: float, slow_s: float = 0.0) -> None:
        self.written, self.dies_s, self.slow_s, self.now = written, dies_s, slow_s, 0.0

    @property
    def wire(self) -> Source:
        return self

    def refresh_present(self, _topics: Any) -> set[str]:
        if self.now >= self.dies_s:
            raise GONE
        return set()

    def topic_id(self, _: str) -> str:
        return "id"

    def partitions(self, _: str) -> int:
        return 1

    def ask_each(self, _what: str, tps: Any, _ask: Any, _operation: str) -> tuple[Any, Any]:
        end = self.written(min(self.now + self.slow_s, self.dies_s))
        return dict.fromkeys(tps, end), {}


def told(
    source: Source, copied_s: float, failover_s: float, *, tail_dies_s: float = math.inf, every_s: float = 1.0
) -> Losses:
    """Let a tail look until the failover, and return what that tells.

    :param copied_s: until when it has copied what was written. :param tail_dies_s: when it is lost itself.
    """
    state = MemoryState()
    target: Any = source
    follower = EndsFollower(sides(PLAN, source, target, Confirmed(), state=state), lambda: source.now)
    at = FIRST_S
    while at < min(failover_s, tail_dies_s):
        source.now = at
        follower.follow(BEGUN_MS + int(1000 * at))
        at += max(1.0, source.slow_s)
    seen, copied = notes.load("m", state.read()), {A: source.written(copied_s)}
    return losses(seen, copied, [A], [A], BEGUN_MS + int(1000 * failover_s))


@pytest.mark.parametrize(
    ("written", "limit"), [(steadily, 900), (in_bursts, 2100), (idle, 0), (begun_by_a_load, 2100)]
)  # fmt: skip
@pytest.mark.parametrize("dies_s", [200.0, 204.31, 207.9])
def test_what_is_told_is_true_and_tight(written: Written, limit: int, dies_s: float) -> None:
    """The copy was 50 ms behind when the source died, and it is failed over 43 s later."""
    source = Source(written, dies_s)
    lost = written(dies_s) - written(dies_s - 0.05)
    found = told(source, dies_s - 0.05, dies_s + 43)
    assert found.at_least <= lost <= (found.at_most or 0) <= limit
    assert found.missed_s is not None and 0.9 <= found.missed_s < 1.2
    assert (found.until_now or 0) >= (found.at_most or 0)


def test_a_copy_that_is_behind_lacks_what_it_lacks() -> None:
    found = told(Source(steadily, 200.0), 170.0, 243.0)
    assert found.at_least <= 12_000 <= (found.at_most or 0) <= 13_000


def test_a_slow_look_leaves_more_time() -> None:
    """The last one that was answered began eight seconds before the next one failed."""
    source = Source(steadily, 200.0, slow_s=4.0)
    found = told(source, 199.9, 243.0)
    lost = steadily(200.0) - steadily(199.9)
    assert found.at_least <= lost <= (found.at_most or 0) <= 4000


def test_who_went_with_the_source_has_not_missed_it() -> None:
    """It may have lived on until now: nobody looked. What was copied since the last note is not lost at least."""
    found = told(Source(steadily, 200.0), 199.9, 243.0, tail_dies_s=200.0)
    assert found.missed_s is None and found.at_most == found.until_now
    assert 40 <= (found.at_most or 0) <= 400 * 53
    assert "did not answer" not in "".join(found.lines())


def test_both_numbers_are_told() -> None:
    lines = list(told(Source(steadily, 200.0), 199.9, 243.0).lines())
    assert "did not answer 1.0 s later" in lines[0] and "offsets a second" in lines[0]
    assert lines[1].startswith("  if it was only cut off, and went on until now, at most about 17,")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 900), min_size=60, max_size=60), st.floats(31, 58), st.floats(0, 3), st.floats(2, 45),
    st.floats(0, 1),
)  # fmt: skip
def test_no_faster_than_ever_is_never_above_the_estimate(
    seconds: list[int], dies_s: float, behind_s: float, later_s: float, burst: float
) -> None:
    """Whatever a source took in each second, if the last one was not busier than the busiest before."""
    last = int(dies_s - FIRST_S)
    seconds[last] = min(seconds[last], max(seconds[:last]))

    def written(t: float) -> int:
        """A part of each second's records come at its beginning."""
        whole = max(0, min(int(t - FIRST_S), len(seconds) - 1))
        share = min(1.0, burst + max(0.0, t - FIRST_S - whole))
        return sum(seconds[:whole]) + int(seconds[whole] * share) * (t > FIRST_S)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "list_offsets", lambda *_: None)
        found = told(Source(written, dies_s), dies_s - behind_s, dies_s + later_s)
    lost = written(dies_s) - written(dies_s - behind_s)
    assert found.at_least <= lost <= (found.at_most or 0) + 1, "rates are rounded"
