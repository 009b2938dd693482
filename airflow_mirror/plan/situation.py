"""What preflight checks look at, and how they list things."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_mirror.plan.model import Capabilities

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan.decide import Pair
    from airflow_mirror.plan.inventory import Inventory
    from airflow_mirror.plan.model import TopicPlan
    from airflow_mirror.wire.served import Without


@dataclass(frozen=True)
class Situation:
    """Both sides as they are, and what would be done. ``pairs`` and ``topics`` are in the same order.

    :param unreadable: source topics that could not be sampled, and why.
    :param lost: what the source's brokers are too old to tell.
    :param refused: the target's own words for topics that it would not create as planned, by target topic.
    """

    mirror: Mirror
    source: Inventory
    target: Inventory
    pairs: list[Pair]
    topics: list[TopicPlan]
    capabilities: Capabilities = Capabilities()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[Without, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


def some(items: Iterable[str], most: int = 5) -> str:
    """Return the first few items, and how many more there are: findings are for people."""
    everything = list(items)
    more = f" and {len(everything) - most} more" if len(everything) > most else ""
    return ", ".join(everything[:most]) + more


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 partition``, ``2,000 partitions``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(bytes_: int) -> str:
    """Return a number of bytes for people: ``780 B``, ``1.2 MB``."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if bytes_ >= factor:
            return f"{bytes_ / factor:,.1f} {unit}"
    return f"{bytes_} B"


def duration(seconds: float) -> str:
    """Return a time for people: ``1 s``, ``3 min``, ``7.4 d``."""
    for unit, factor in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * factor:
            return f"{seconds / factor:,.0f} {unit}"
    return f"{max(1, round(seconds))} s"
