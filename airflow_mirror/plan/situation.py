"""The input of the preflight checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.decide import Pair
from airflow_mirror.plan.inventory import Inventory
from airflow_mirror.plan.model import Capabilities, TopicPlan
from airflow_mirror.plan.refusals import Refusal
from airflow_mirror.wire.served import Without


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Both sides' inventories, and the planned topics. ``pairs`` and ``topics`` are in the same order.

    :param unreadable: source topics that could not be sampled, and why.
    :param lost: what the source's brokers are too old to report.
    :param refused: why the target would not take topics as planned, by target topic.
    """

    mirror: Mirror
    source: Inventory
    target: Inventory
    pairs: list[Pair]
    topics: list[TopicPlan]
    capabilities: Capabilities = Capabilities()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[Without, ...] = ()
    refused: Mapping[str, Refusal] = field(default_factory=dict)
