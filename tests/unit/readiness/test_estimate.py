"""How long the rest takes, and what holds it up."""

from __future__ import annotations

from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.extras.readiness.estimate import CORE, LIMIT, TARGET, Estimate, Trial, estimates, whole_s
from airflow_mirror.extras.readiness.race import Race

LEVEL = {"lost": 0, "left_s": None, "verdict": "wins"}


def part(topic: str, partition: int, behind: int, copied: float | None, produced: float = 0.0) -> Race:
    return Race(
        topic=topic, partition=partition, behind=behind, copied_per_s=copied, produced_per_s=produced, **LEVEL
    )  # fmt: skip


def only(*parts: Race, limit: int | None = None, **bytes_of: float) -> Estimate:
    sizes: dict[TopicPartition, Any] = {TopicPartition(name, 0): size for name, size in bytes_of.items()}
    (found,) = estimates(parts, sizes, limit)
    return found


def test_a_topic_is_done_when_its_slowest_partition_is() -> None:
    """The rest is what is copied faster than producers write."""
    found = only(part("t", 0, 100, 10.0), part("t", 1, 300, 10.0, produced=4.0), part("t", 2, 0, None, 9.0))
    assert (found.behind, found.copied_per_s, found.seconds) == (400, 20.0, 50.0)
    assert found.bottleneck == "t-1 has 75% of it, and no partition is split"


def test_a_partition_that_waits_for_a_task_is_as_quick_as_its_neighbours() -> None:
    found = only(part("t", 0, 100, 10.0), part("t", 1, 100, None), part("t", 2, 50, 30.0))
    assert found.seconds == 10.0 and found.bottleneck.startswith("the copy itself")


def test_a_copy_that_is_not_faster_than_producers_never_gets_there() -> None:
    found = only(part("t", 0, 100, 10.0), part("t", 1, 10, 3.0, produced=3.0))
    assert found.seconds is None and found.bottleneck == "t-1: producers write at least as fast as it is copied"


def test_nobody_guesses_how_fast_a_copy_is_that_does_not_run() -> None:
    found = only(part("t", 0, 100, None))
    assert found.seconds is None and found.bottleneck == "nothing of it was copied while watched"


def test_the_mirrors_own_limit_is_named_only_where_it_is_reached() -> None:
    parts = part("t", 0, 100, 10.0), part("u", 0, 0, 10.0)
    assert only(*parts, limit=2000, t=100.0, u=90.0).bottleneck == "max_bytes_per_second=2.0 KB/s"
    assert only(*parts, limit=4000, t=100.0, u=90.0).bottleneck.startswith("the copy itself")
    assert only(*parts, t=100.0, u=90.0).bottleneck.startswith("the copy itself")


def test_what_nobody_knows_comes_first_then_what_takes_longest() -> None:
    found = estimates([part("a", 0, 10, 10.0), part("b", 0, 90, 10.0), part("c", 0, 5, None)], {}, None)
    assert [one.topic for one in found] == ["c", "b", "a"]


def shown(one: int = 10, task: int = 40, waits_for: str = TARGET) -> Trial:
    return Trial(
        alone="t-0", together=["t-0"], one_bytes_per_s=one, task_bytes_per_s=task, copied_bytes=1, waits_for=waits_for
    )  # fmt: skip


def tried(*parts: Race, trial: Trial, tasks: int = 1, limit: int | None = None, size: float = 1.0) -> Estimate:
    (found,) = estimates(parts, {TopicPartition(p.topic, p.partition): size for p in parts}, limit, trial, tasks)
    return found


def test_a_trial_tells_how_long_the_largest_partition_takes() -> None:
    """More tasks do not help, because none is split; what producers write meanwhile counts."""
    parts = part("t", 0, 300, None), part("t", 1, 100, None, produced=1.0)
    found = tried(*parts, trial=shown(), tasks=9, size=2.0)
    assert (found.seconds, found.bottleneck) == (60.0, "one partition, t-0, with 75% of it: none is split")
    assert tried(part("t", 0, 80, None, produced=6.0), trial=shown()).seconds == 20.0


def test_a_trial_tells_how_long_all_partitions_take_by_all_tasks() -> None:
    parts = [part("t", p, 100, None) for p in range(10)]
    found = tried(*parts, trial=shown(task=20), tasks=2)
    assert (found.seconds, found.bottleneck) == (25.0, "writing to the target: its brokers, or the network")
    core = tried(*parts, trial=shown(task=20, waits_for=CORE), tasks=2)
    assert core.bottleneck == "a core of this host for each task: more tasks, or faster cores (2 tasks assumed)"
    limited = tried(*parts, trial=shown(task=20, waits_for=LIMIT), tasks=2, limit=20)
    assert (limited.seconds, limited.bottleneck) == (50.0, "max_bytes_per_second=20 B/s"), "of the whole mirror"


def test_a_trial_that_producers_outrun_or_without_sizes_promises_nothing() -> None:
    fast = tried(part("t", 0, 10, None, produced=10.0), trial=shown())
    assert (fast.seconds, fast.bottleneck) == (None, "producers write at least as fast as a trial copied")
    (unknown,) = estimates([part("t", 0, 10, None)], {}, None, shown())
    assert (unknown.seconds, unknown.bottleneck) == (None, "nobody tells how large its records are")


def test_a_copy_that_runs_is_believed_more_than_a_trial() -> None:
    assert tried(part("t", 0, 100, 50.0), trial=shown()).seconds == 2.0


def test_all_topics_together_take_what_all_tasks_need() -> None:
    parts = [part(topic, 0, 100, None) for topic in "abcdefgh"]
    sizes = {TopicPartition(p.topic, 0): 1.0 for p in parts}
    assert whole_s(parts, sizes, shown(task=20), 2) == 20.0
    assert whole_s(parts[:1], sizes, shown(task=20), 2) == 10.0
    assert whole_s([part("t", 0, 0, None)], {}, shown(), 1) is None
