"""What was found and done, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.extras.adopt import groups
from airflow_mirror.extras.adopt.examine import Adoption
from airflow_mirror.extras.adopt.matching import KINDS, Match
from airflow_mirror.sync.groups import GroupReport

_SHOWN = 50  # partitions, and groups


def lines(found: Adoption, corrected: GroupReport | None) -> Iterator[str]:
    """Yield what there is to say: what was seen, what was matched, where groups stand, and the sum."""
    yield from map(str, found.seen)
    for topic in found.done:
        yield f"adopted  {topic.target_topic} before"
    yield from _some([line for one in found.matches for line in _partition(found, one)], "lines about partitions")
    if corrected is not None:
        told = groups.lines(corrected, maps_of(found), follow=found.plan.mirror.sync_groups)
        yield from _some([f"group    {line}" for line in told], "lines about groups")
    yield f"in all   {_sum(found)}"


def to_dict(found: Adoption, corrected: GroupReport | None, *, done: bool) -> dict[str, Any]:
    """Return JSON-ready values."""
    return {
        "done": done,
        "mirror": found.plan.mirror.name,
        "seconds": round(found.seconds, 3),
        "seen": [{"what": one.what, "alive": one.alive} for one in found.seen],
        "topics": [t.target_topic for t in found.topics],
        "adopted_before": [t.target_topic for t in found.done],
        "partitions": [{**one.to_dict(), "replicated": found.replicated.get(one.source)} for one in found.matches],
        "sum": totals(found),
        "groups": None if corrected is None else {**corrected.to_dict(), "read_again": groups.again(corrected.moves)},
        "refusals": list(found.refusals),
    }


def totals(found: Adoption) -> dict[str, int]:
    """Return what all partitions have together, by kind."""
    kinds = {kind.replace(" ", "_"): sum(one.counts[kind] for one in found.matches) for kind in KINDS}
    return {
        "records": sum(one.records for one in found.matches), "copies": sum(one.copies for one in found.matches), **kinds,
        "undecided": sum(one.undecided for one in found.matches),
    }  # fmt: skip


def maps_of(found: Adoption) -> dict[TopicPartition, OffsetMap]:
    """Return the maps that were made, by source partition."""
    return {one.source: one.through for one in found.matches if one.through is not None}


def _partition(found: Adoption, one: Match) -> Iterator[str]:
    goes_on = "nothing of the source's" if one.through is None else f"goes on at source offset {one.next_offset}"
    said = found.resent(one)
    yield f"matched  {one.target}: {one.copies:,} of {one.records:,} records; {goes_on}{'; ' + said if said else ''}"
    for kind, count in one.counts.items():
        if count:
            yield f"         {one.named(kind)}"
    if one.undecided:
        yield f"         {one.source}: {one.undecided:,} copies are of transactions that are still open"


def _sum(found: Adoption) -> str:
    counted = totals(found)
    named = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in counted.items() if count)
    return f"{named or 'nothing'}; {found.seconds:.1f} s"


def _some(every: list[str], what: str) -> Iterator[str]:
    yield from every[:_SHOWN]
    if len(every) > _SHOWN:
        yield f"         and {len(every) - _SHOWN:,} more {what} (--json lists all)"
