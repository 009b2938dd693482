"""Limits for the cost of identical offsets: priming, padding, and the rights for both. Pure functions.

Only the plan applies budgets. The copy never stops half way because an estimate was too low.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.findings import Finding, block, warn
from airflow_mirror.plan.model import Capabilities, HoleEstimate
from airflow_mirror.wording import duration, size, some

# Allowed at any share of holes: 8 MB, and about two minutes through the coordinator. A small topic is not worth a map.
ALWAYS_PADDED = 100_000
# Above that, a map is better than waiting. Only for ``auto``: a user who requests identical offsets accepts the wait.
PATIENCE_S = 6 * 3600


def excess(
    mirror: Mirror,
    prime: Mapping[int, int],
    holes: HoleEstimate | None,
    filler: str,
    partitions: int,
    capabilities: Capabilities,
) -> list[Finding]:
    """Return everything that speaks against identical offsets for one topic; empty if nothing does.

    What only warns is slow but possible: ``auto`` switches to mapped offsets, and nothing is blocked.

    :param prime: offsets to fill below the first record, by partition.
    :param filler: ``markers`` or ``tombstones``; tombstones are removed again and need no right of their own.
    :return: findings of the checks ``priming``, ``holes`` and ``capabilities``.
    """
    found = [replace(finding, check="priming") for finding in _priming(mirror, prime, capabilities)]
    if holes is not None and holes.count > 0:
        found += _share(mirror, holes)
        if filler == "markers":
            found += _markers(mirror, holes, partitions, capabilities)
    return [replace(finding, check=finding.check or "holes") for finding in found]


def _priming(mirror: Mirror, prime: Mapping[int, int], capabilities: Capabilities) -> Iterator[Finding]:
    too_many = {p: n for p, n in prime.items() if n > mirror.prime_budget}
    if too_many:
        shown = some(f"partition {p} starts at offset {n:,}" for p, n in too_many.items())
        yield block(
            f"{shown}; prime_budget is {mirror.prime_budget:,}",
            "Raise prime_budget, or leave the topic out (exclude_topics).",
        )
    if prime and not capabilities.prime:
        yield block(
            f"{some(f'partition {p} starts at offset {n:,}' for p, n in prime.items())}, and records can't be deleted",
            "Allow DELETE on the target topic.",
        )


def _share(mirror: Mirror, holes: HoleEstimate) -> Iterator[Finding]:
    offsets = round(holes.count / holes.share) if holes.share else holes.count
    allowed = max(ALWAYS_PADDED, mirror.hole_budget * offsets) if mirror.hole_budget else 0
    if holes.count > allowed:
        yield block(
            f"about {holes.count:,} of {offsets:,} offsets ({holes.share:.0%}) hold no record; hole_budget is "
            f"{mirror.hole_budget:.0%}",
            "Raise hole_budget, or leave the topic out (exclude_topics).",
        )


def _markers(mirror: Mirror, holes: HoleEstimate, partitions: int, capabilities: Capabilities) -> Iterator[Finding]:
    if holes.bytes > mirror.hole_budget_bytes:
        yield block(
            f"about {holes.count:,} markers take {size(holes.bytes)} on each replica; hole_budget_bytes is "
            f"{size(mirror.hole_budget_bytes)}",
            "Raise hole_budget_bytes. A compacted topic needs no markers with compacted_filler='tombstones'.",
        )
    if capabilities.markers == "none":
        lacking = block(
            f"about {holes.count:,} offsets hold no record, and no marker can be written: "
            f"{'; '.join(capabilities.lacks) or capabilities.note}",
            "Grant it. A compacted topic needs no markers with compacted_filler='tombstones'.",
        )
        yield replace(lacking, check="capabilities")
    seconds = holes.padding_s(capabilities.markers, partitions)
    if seconds > PATIENCE_S:
        yield warn(
            f"about {holes.count:,} offsets hold no record; padding them takes about {duration(seconds)}",
            "ALTER on the target cluster pads long holes in bulk. To wait for it, ask for offsets='identical'.",
        )
