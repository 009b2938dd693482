"""How long the rest takes, and what holds it up."""

from __future__ import annotations

from typing import Any

from airflow_mirror.night.estimate import Estimate, estimates
from airflow_mirror.night.race import Race
from airflow_mirror.partition import TopicPartition

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
