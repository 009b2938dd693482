"""Preflight checks of the cost of identical offsets: priming, holes, and the rights that both need."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_mirror.plan import budget
from airflow_mirror.plan.decide import Pair
from airflow_mirror.plan.model import PRIME_OFFSETS_PER_S, Found, TopicPlan, block, warn, well
from airflow_mirror.plan.situation import Situation
from airflow_mirror.wording import count, duration, size


def priming(s: Situation) -> Iterator[Found]:
    """Logs that don't start at 0."""
    for pair, topic in zip(s.pairs, s.topics, strict=True):
        blocked = list(_excess(s, pair, topic, "priming"))
        yield from blocked
        if topic.prime and not blocked:
            fill = sum(topic.prime.values())
            yield warn(
                f"topic {topic.source_topic!r}",
                f"{count(len(topic.prime), 'partition')} with a log start above 0; {fill:,} offsets are filled and "
                "deleted again first",
                f"About {duration(fill / PRIME_OFFSETS_PER_S)}. Start consumers on the target after that.",
            )


def holes(s: Situation) -> Iterator[Found]:
    """Offsets without a record, which have to be filled."""
    for name, cause in sorted(s.unreadable.items()):
        yield block(f"topic {name!r}", f"it can't be read: {cause}", "Nothing could be copied.")
    for pair, topic in zip(s.pairs, s.topics, strict=True):
        blocked = list(_excess(s, pair, topic, "holes"))
        yield from blocked
        if topic.holes and topic.holes.count and topic.mode == "identical" and not blocked:
            yield _filled(s, topic)


def capabilities(s: Situation) -> Iterator[Found]:
    """The rights of the mirror's principal on the target."""
    tried = s.capabilities
    for pair, topic in zip(s.pairs, s.topics, strict=True):
        yield from _excess(s, pair, topic, "capabilities")
    if tried.lacks:
        yield warn(
            "target cluster",
            f"missing: {'; '.join(tried.lacks)}",
            f"Holes are padded {_PADDED[tried.markers]}.{' ' + tried.note if tried.note else ''}",
        )
    elif tried.note:
        yield warn("target cluster", tried.note, "A missing right is found only when the copy needs it.")
    elif tried.markers == "unknown":
        yield well("target cluster", "not tried out")


_PADDED = {
    "direct": "in bulk",
    "coordinator": "one by one through the transaction coordinator, about 200 a second per partition",
    "none": "not at all",
    "unknown": "as far as the rights allow",
}


def _excess(s: Situation, pair: Pair, topic: TopicPlan, check: str) -> Iterator[Found]:
    """Block a topic whose identical offsets exceed a budget; a topic whose copy began with them continues."""
    if topic.mode != "identical" or pair.begun == "identical":
        return
    prime = topic.prime
    found = budget.excess(s.mirror, prime, topic.holes, topic.filler, topic.partitions, s.capabilities)
    for one in found:
        if one.check == check and not one.only_auto:
            yield block(f"topic {topic.source_topic!r}", one.evidence, one.remedy)


def _filled(s: Situation, topic: TopicPlan) -> Found:
    assert topic.holes is not None
    found = topic.holes
    about = f"about {found.count:,} offsets ({found.share:.0%}) hold no record"
    if topic.filler == "tombstones":
        remedy = (
            "They are filled with tombstones of a reserved key. Consumers see them until the target's cleaner has "
            "removed them."
        )
    else:
        seconds = found.padding_s(s.capabilities.markers, topic.partitions)
        remedy = (
            f"They are filled with markers: {size(found.bytes)} on each replica, about {duration(seconds)}. Markers "
            "carry the time of the copy: a search by timestamp lands earlier than on the source, and time retention "
            "counts from the copy."
        )
    return warn(f"topic {topic.source_topic!r}", about, remedy)
