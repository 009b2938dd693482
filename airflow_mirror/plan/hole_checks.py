"""Preflight checks of what the target has to do: prime, pad holes (the cost of identical offsets), replicate, create."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from airflow_mirror.plan import budget
from airflow_mirror.plan.decide import Pair, wanted_replicas
from airflow_mirror.plan.findings import BLOCK, Checks, Finding, block, warn, well
from airflow_mirror.plan.model import PRIME_OFFSETS_PER_S, TopicPlan
from airflow_mirror.plan.situation import Situation, each_topic
from airflow_mirror.wording import count, duration, size

CHECKS = Checks[Situation]()


@CHECKS.check("priming", "every log starts at 0, or is already on the target")
@each_topic
def _priming(s: Situation, pair: Pair, topic: TopicPlan) -> Iterator[Finding]:
    if excess := list(_excess(s, pair, topic, "priming")):
        yield from excess
    elif topic.prime:
        fill = sum(topic.prime.values())
        yield warn(
            f"{count(len(topic.prime), 'partition')} with a log start above 0; {fill:,} offsets are filled and deleted "
            "again first",
            f"About {duration(fill / PRIME_OFFSETS_PER_S)}. Start consumers on the target after that.",
            f"topic {topic.source_topic!r}",
        )


@CHECKS.check("holes", "no hole was found")
def _holes(s: Situation) -> Iterator[Finding]:
    for name, cause in sorted(s.unreadable.items()):
        yield block(f"it can't be read: {cause}", "Nothing could be copied.", f"topic {name!r}")
    yield from _filled(s)


@CHECKS.check(
    "capabilities", "the target lets the principal create, write, pad in bulk, prime, read", about="target cluster",
    of="mirror",
)  # fmt: skip
def _capabilities(s: Situation) -> Iterator[Finding]:
    tried = s.capabilities
    yield from each_topic(lambda s, pair, topic: _excess(s, pair, topic, "capabilities"))(s)
    if tried.lacks:
        padded = f"Holes are padded {_PADDED[tried.markers]}.{' ' + tried.note if tried.note else ''}"
        yield warn(f"missing: {'; '.join(tried.lacks)}", padded)
    elif tried.note:
        yield warn(tried.note, "A missing right is found only when the copy needs it.")
    elif tried.markers == "unknown":
        yield well("not tried out")


_PADDED = {
    "direct": "in bulk",
    "coordinator": "one by one through the transaction coordinator, about 200 a second per partition",
    "none": "not at all",
    "unknown": "as far as the rights allow",
}


def _excess(s: Situation, pair: Pair, topic: TopicPlan, check: str) -> Iterator[Finding]:
    """Block a topic whose identical offsets exceed a budget; a topic whose copy began with them continues."""
    if topic.mode != "identical" or pair.begun == "identical":
        return
    for finding in budget.excess(s.mirror, topic.prime, topic.holes, topic.filler, topic.partitions, s.capabilities):
        if finding.check == check and finding.level == BLOCK:
            yield replace(finding, object=f"topic {topic.source_topic!r}")


@each_topic
def _filled(s: Situation, pair: Pair, topic: TopicPlan) -> Iterator[Finding]:
    """Offsets without a record, which have to be filled."""
    holes, excess = topic.holes, list(_excess(s, pair, topic, "holes"))
    yield from excess
    if not holes or not holes.count or topic.mode != "identical" or excess:
        return
    if topic.filler == "tombstones":
        remedy = (
            "They are filled with tombstones of a reserved key. Consumers see them until the target's cleaner has "
            "removed them."
        )
    else:
        seconds = holes.padding_s(s.capabilities.markers, topic.partitions)
        remedy = (
            f"They are filled with markers: {size(holes.bytes)} on each replica, about {duration(seconds)}. Markers "
            "carry the time of the copy: a search by timestamp lands earlier than on the source, and time retention "
            "counts from the copy."
        )
    about = f"topic {topic.source_topic!r}"
    yield warn(f"about {holes.count:,} offsets ({holes.share:.0%}) hold no record", remedy, about)


@CHECKS.check("replication", "the target has brokers for every replica")
def _replication(s: Situation) -> Iterator[Finding]:
    capped = []
    for pair, topic in zip(s.pairs, s.topics, strict=True):
        wanted = wanted_replicas(s.mirror, pair, s.target.fixed_replicas)
        if wanted > topic.replication_factor and pair.target is None:
            capped.append(f"{pair.target_topic} ({wanted} -> {topic.replication_factor})")
    yield from s.of_topics(
        capped, f"more replicas wanted than the target has brokers ({s.target.brokers}): {{}}",
        "Created with as many as there are brokers, and so they stay. If one is only away, plan again when it is back; "
        "add brokers first if that is not enough.",
    )  # fmt: skip


@CHECKS.check("auto_create", "the target creates no topics by itself", about="target cluster", of="mirror")
def _auto_create(s: Situation) -> Iterator[Finding]:
    key = "auto.create.topics.enable"
    creating, where = s.target.of_brokers(key, lambda value: value == "true")
    if creating:
        yield warn(
            f"{key} is true{where}",
            "A client that starts early creates topics with the wrong partition count. Set it to false.",
        )
    elif unread := s.target.unread(key):
        yield warn(unread, "Make sure that it is false on every broker of the target.")
