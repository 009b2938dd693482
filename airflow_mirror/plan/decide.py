"""What to do with each topic, decided from the inventories alone: name, replication, configs, mode, range, priming."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_mirror.plan import configs
from airflow_mirror.plan.model import TopicPlan

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan.inventory import Inventory, TopicState

# Beyond it, filling a partition up to its first offset takes too long: 5 minutes here.
PRIME_BUDGET = 2_000_000_000


@dataclass(frozen=True)
class Pair:
    """A source topic, its name on the target, and the topic there, if it exists.

    :param ours: an earlier plan of this mirror made or filled the target topic.
    """

    source: TopicState
    target_topic: str
    target: TopicState | None
    ours: bool

    @property
    def written(self) -> dict[int, int]:
        """Log ends of the target's partitions that are not untouched."""
        return {} if self.target is None else {p: end for p, end in self.target.ends.items() if end > 0}


def pairs(mirror: Mirror, source: Inventory, target: Inventory, known_topics: Collection[str]) -> list[Pair]:
    """Pair up the topics of both sides, by source topic."""
    named = ((state, mirror.naming.target_topic(name)) for name, state in sorted(source.topics.items()))
    return [Pair(state, name, target.topics.get(name), name in known_topics) for state, name in named]


def plan_topic(mirror: Mirror, pair: Pair, target_brokers: int) -> TopicPlan:
    """Decide everything about one topic."""
    info, source = pair.source.info, pair.source
    prime = _prime(pair)
    mode, reason = offset_mode(mirror.offsets)
    return TopicPlan(
        source_topic=info.name,
        target_topic=pair.target_topic,
        source_topic_id=info.topic_id,
        target_exists=pair.target is not None,
        partitions=info.partitions,
        replication_factor=min(mirror.replication_factor or info.replication_factor, target_brokers),
        configs=configs.overrides(source.configs, hold=False),
        held_configs=configs.overrides(source.configs, hold=True),
        left_out=configs.left_out(source.configs),
        compacted="compact" in (source.config("cleanup.policy") or ""),
        mode=mode,
        reason=reason,
        starts=source.begins,
        ends=source.stable_ends if mirror.isolation == "read_committed" else source.ends,
        prime=prime if mode == "identical" else {},
    )


def offset_mode(asked: str) -> tuple[str, str]:
    """Return mode and reason. What can't be copied in that mode is blocked by a check, with the reason."""
    if asked != "auto":
        return asked, f"asked for: offsets={asked!r}"
    return "identical", "auto: same offsets, nothing to translate; holes are counted while copying"


def _prime(pair: Pair) -> dict[int, int]:
    """Return the offsets to fill, by partition. A partition that has been written to is primed already."""
    begins = pair.source.begins
    return {p: begin for p, begin in begins.items() if begin > 0 and p not in pair.written}
