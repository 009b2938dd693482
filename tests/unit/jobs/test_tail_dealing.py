"""How a tail deals its partitions out: for each lease anew, by the bytes of the last ones, to what runs at once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.spark.tail import TailReader
from airflow_mirror.copy.task import CopyWork, work_from_json, work_to_json
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.errors import MirrorError, NeedsHuman, TryAgain
from airflow_mirror.jobs.driver.following import _outcome, _turn_s
from airflow_mirror.jobs.driver.turns import Tail
from airflow_mirror.jobs.request import TailRequest
from airflow_mirror.jobs.runner.directory import write_json
from airflow_mirror.jobs.runner.wishes import Wish, Wishes
from tests.builders import request


@pytest.fixture
def tail() -> Tail:
    job = SimpleNamespace(options=CopyOptions(mirror="m", max_bytes_per_second=100.0))
    made: Any = Tail(job, None)  # type: ignore[arg-type]
    made.slots = lambda: 2
    made.ranges = [CopyRange(source_topic="t", target_topic="t", partition=p, start_offset=0) for p in range(6)]
    made.deal()
    return made


def turn_of(tail: Tail) -> dict[str, Any]:
    """Return what was told last."""
    told: list[dict[str, Any]] = []
    tail.tell_turns(told.append)
    return told[-1]


def lists(tail: Tail) -> list[list[int]]:
    return sorted(sorted(r["partition"] for r in part) for part in turn_of(tail)["ranges"])


def lease(tail: Tail, **brought: int) -> None:
    """End a lease in which partition ``pN`` brought so many bytes."""
    results = [
        PartitionResult(
            topic="t",
            target_topic="t",
            partition=r.partition,
            position=1,
            done=False,
            bytes=brought.get(f"p{r.partition}", 0),
        )
        for r in tail.ranges
    ]
    tail.take(results)


def ended(tail: Tail, **results: Any) -> None:
    """End a lease in which partition 0 had these results."""
    result = PartitionResult(topic="t", target_topic="t", partition=0, position=1, done=False, **results)
    tail.take([result])


def outcome(tail: Tail) -> MirrorError | None:
    return _outcome(tail, 1.0)[1]


def test_partitions_that_failed_for_good_at_the_stop_are_the_outcome(
    tail: Tail, caplog: pytest.LogCaptureFixture
) -> None:
    """Who keeps a tail would start one again that was asked to stop, for what the next turn would have mended."""
    tail.stopping.set()
    tail.withdrawn.set()
    ended(tail, error="t-0: no leader")
    summary, error = _outcome(tail, 1.0)
    assert error is None and (summary["waiting"], summary["errors"]) == (["t-0"], [])
    assert "t-0 was not copied to its end by this tail: t-0: no leader" in caplog.text
    with pytest.raises(NeedsHuman, match="damaged"):
        ended(tail, error="t-0: damaged", final=True)
    assert tail.reported.is_set()


def test_a_lease_that_the_driver_withdrew_itself_is_no_failure(tail: Tail) -> None:
    tail.stopping.set()
    tail.withdrawn.set()
    ended(tail, error="lease lost", final=True, lease_lost=True)
    assert outcome(tail) is None


def test_lease_taken_by_another_job_fails_a_stopping_tail(tail: Tail, caplog: pytest.LogCaptureFixture) -> None:
    """Its end says so. Mostly it stops because it has heard of the other job: a warning would be a second cause."""
    tail.stopping.set()
    with pytest.raises(NeedsHuman, match="lease lost"):
        ended(tail, error="lease lost", final=True, lease_lost=True)
    assert not caplog.records


def test_lease_taken_by_another_job_deposes_a_running_tail(tail: Tail) -> None:
    """It may take it back; a partition that failed for another cause is not forgotten for that."""
    with pytest.raises(TryAgain, match="lease lost"):
        ended(tail, error="lease lost", final=True, lease_lost=True)
    assert (tail.deposed, tail.failed) == ("lease lost", None)
    with pytest.raises(NeedsHuman, match="damaged"):
        ended(tail, error="t-0: damaged", final=True)


def test_failure_not_repeated_in_the_next_lease_is_forgotten(tail: Tail) -> None:
    ended(tail, error="t-0: no leader")
    ended(tail)
    assert outcome(tail) is None


def test_before_anything_is_known_partitions_are_spread_by_number(tail: Tail) -> None:
    assert [len(part) for part in lists(tail)] == [3, 3]


def test_busiest_partition_gets_its_own_list_for_a_while(tail: Tail) -> None:
    lease(tail, p4=50_000_000)
    assert [4] in lists(tail)
    for _ in range(20):
        lease(tail)
    assert [len(part) for part in lists(tail)] == [3, 3]


def test_lost_executor_leaves_no_list_waiting(tail: Tail) -> None:
    """With a slot less the tail is crowded until the next lease deals fewer lists."""
    assert not tail.is_crowded
    tail.slots = lambda: 1
    assert tail.is_crowded
    lease(tail)
    assert lists(tail) == [[0, 1, 2, 3, 4, 5]]
    assert not tail.is_crowded


def test_more_tasks_than_slots_are_not_dealt() -> None:
    """The lists of the others would wait until the turn ends, which may last for weeks."""
    job = SimpleNamespace(options=CopyOptions(mirror="m"))
    tail: Any = Tail(job, 5)  # type: ignore[arg-type]
    tail.slots = lambda: 2
    tail.ranges = [CopyRange(source_topic="t", target_topic="t", partition=p, start_offset=0) for p in range(6)]
    assert [len(part) for part in tail.deal().lists] == [3, 3]
    tail.slots = lambda: 1
    assert tail.is_crowded


def test_executor_that_joins_brings_no_more_shares_of_a_rate(tail: Tail) -> None:
    """Each task has a share, and their number is fixed at the start."""
    tail.hear(Wishes())
    assert tail.tasks == 2 and tail.options.max_bytes_per_second == 50.0
    tail.slots = lambda: 4
    lease(tail, p4=50_000_000)
    assert len(lists(tail)) == tail.tasks == 2
    tail.slots = lambda: 1  # one that is lost leaves its share unused, and holds nothing up
    lease(tail)
    assert len(lists(tail)) == tail.tasks == 1


def test_few_partitions_have_the_whole_rate(tail: Tail) -> None:
    """There are no more tasks than partitions: shares of tasks that do not run would be lost."""
    tail.slots, tail.ranges = (lambda: 16), tail.ranges[:2]
    tail.hear(Wishes())
    tail.deal()
    assert len(lists(tail)) == 2 and turn_of(tail)["options"]["max_bytes_per_second"] == 50.0
    tail.ranges = tail.ranges[:1]
    tail.deal()
    assert turn_of(tail)["options"]["max_bytes_per_second"] == 100.0


def test_a_wished_rate_holds_from_the_next_turn_on(tail: Tail) -> None:
    """It replaces the Mirror's, and ends with the wish. The tasks that run when it begins share it."""
    share = lambda: turn_of(tail)["options"]["max_bytes_per_second"]  # noqa: E731
    lifted, lowered = (Wishes(rate=Wish(by="ann", at="today", max_bytes_per_second=rate)) for rate in (None, 10))
    heard = []
    for wishes in (Wishes(), lowered, lowered, lifted, Wishes()):
        changed = tail.hear(wishes)
        tail.deal()
        heard.append((changed, share()))
    assert heard == [(False, 50.0), (True, 5.0), (False, 5.0), (True, None), (True, 50.0)]
    tail.hear(lifted)
    tail.slots = lambda: 3
    tail.hear(lowered)
    tail.deal()
    assert (tail.tasks, share()) == (3, 10 / 3)
    tail.slots = lambda: 1
    tail.hear(lowered)
    tail.slots = lambda: 9
    assert tail.tasks == 3, "what is lost for a while comes back to its share"


def test_nothing_is_told_again_while_the_dealing_stays(tail: Tail) -> None:
    told: list[dict[str, Any]] = []
    tail.tell_turns(told.append)
    lease(tail)
    assert len(told) == 1
    lease(tail, p4=50_000_000)
    assert len(told) == 2


def test_copy_work_survives_the_trip_through_an_option() -> None:
    """Its collections may be of any kind."""
    options = CopyOptions(mirror="m", max_batch_bytes={"t": 7}, tombstone_topics=frozenset({"b", "a"}))
    work = CopyWork(
        source="env:A",
        target="env:B",
        options=options,
        lease=LeaseToken(transactional_id="id", producer_id=1, epoch=2, mark_ms=3, wait_s=0.0),
    )
    there = work_from_json(work_to_json(work))
    assert sorted(there.options.tombstone_topics) == ["a", "b"]
    assert replace(there, options=replace(there.options, tombstone_topics=options.tombstone_topics)) == work


def test_tail_ends_with_a_partition_that_is_given_up_only_where_that_is_asked_for(tail: Tail) -> None:
    ended(tail, error="t-0: no progress for 121 s: the target is away")
    assert not tail.is_over()
    job: Any = tail.job
    job.options = replace(job.options, abort_on_send_failure=True)
    ended(tail, error="t-0: no progress for 121 s: the target is away")
    assert not tail.is_over(), "nobody has said after how long"
    job.options = replace(job.options, give_up_after_s=60.0)
    with pytest.raises(TryAgain, match="the target is away"):
        ended(tail, error="t-0: no progress for 61 s: the target is away")
    assert tail.is_over() and not isinstance(tail.failed, NeedsHuman)


def test_turn_is_long_enough_to_give_a_partition_up_where_that_ends_the_tail() -> None:
    def turn_s(turn: float, bound: float | None, *, abort: bool = True, told: bool = True) -> float:
        return _turn_s(request(TailRequest, turn_s=turn, give_up_after_s=bound, abort_on_send_failure=abort), told=told)

    assert [turn_s(600, None), turn_s(600, 100), turn_s(600, 900), turn_s(600, 900, abort=False)] == [600, 600, 960, 600]
    assert [turn_s(600, float("inf")), turn_s(600, None, told=False), turn_s(600, 30, told=False)] == [600, 60, 90]


def test_no_option_and_no_text_of_the_work_shows_where_the_driver_listens(tail: Tail, tmp_path: Path) -> None:
    """Spark shows options in its query plans, and whoever has the token could forge progress. It comes with the turn."""
    lease = LeaseToken(transactional_id="id", producer_id=1, epoch=2, mark_ms=3, wait_s=0.0)
    work = CopyWork(source="a", target="b", options=CopyOptions(mirror="m"), lease=lease, report_to="h 1 the-token c")
    text = work_to_json(work)
    assert "the-token" not in text + repr(work)
    tail.report_to = work.report_to
    tail.deal()
    file = tmp_path / "turn.json"
    tail.tell_turns(partial(write_json, file))
    reader = TailReader({"work": text, "turn_file": str(file), "turn_s": "5"})
    assert {p.report_to for p in reader.partitions({"turn": 0}, {"turn": 1})} == {"h 1 the-token c"}
    assert "the-token" not in repr(vars(reader))
