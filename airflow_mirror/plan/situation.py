"""The input of the preflight checks, and two shapes that many of them have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.decide import Pair
from airflow_mirror.plan.findings import Finding, warn
from airflow_mirror.plan.inventory import Inventory
from airflow_mirror.plan.model import Capabilities, TopicPlan
from airflow_mirror.wording import count, some


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Both sides' inventories, and the planned topics. ``pairs`` and ``topics`` are in the same order.

    :param unreadable: source topics that could not be sampled, and why.
    :param keyless: records without a key that samples have found, by source topic; where a key is needed alone.
    """

    mirror: Mirror
    source: Inventory
    target: Inventory
    pairs: list[Pair]
    topics: list[TopicPlan]
    capabilities: Capabilities = Capabilities()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    keyless: Mapping[str, int] = field(default_factory=dict)

    def of_topics(self, named: Collection[str], evidence: str, remedy: str) -> Iterator[Finding]:
        """Yield one warning about so many of all topics, which stand in the braces of ``evidence``, if there are any."""
        if named:
            about = f"{len(named)} of {count(len(self.topics), 'topic')}"
            yield warn(evidence.format(some(named)), remedy, about)


def each_topic(
    judge: Callable[[Situation, Pair, TopicPlan], Iterator[Finding]],
) -> Callable[[Situation], Iterator[Finding]]:
    """Make a check of all topics from one of a single topic; what names no object is about the target topic."""

    def judge_all(s: Situation) -> Iterator[Finding]:
        for pair, topic in zip(s.pairs, s.topics, strict=True):
            for finding in judge(s, pair, topic):
                yield replace(finding, object=finding.object or f"target topic {pair.target_topic!r}")

    return judge_all
