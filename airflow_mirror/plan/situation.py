"""What preflight checks look at, and how they list things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan.decide import Pair
    from airflow_mirror.plan.inventory import Inventory
    from airflow_mirror.plan.model import TopicPlan


@dataclass(frozen=True)
class Situation:
    """Both sides as they are, and what would be done. ``pairs`` and ``topics`` are in the same order."""

    mirror: Mirror
    source: Inventory
    target: Inventory
    pairs: list[Pair]
    topics: list[TopicPlan]


def some(items: Iterable[str], most: int = 5) -> str:
    """Return the first few items, and how many more there are: findings are for people."""
    everything = list(items)
    more = f" and {len(everything) - most} more" if len(everything) > most else ""
    return ", ".join(everything[:most]) + more


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 partition``, ``2,000 partitions``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
