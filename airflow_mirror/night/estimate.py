"""How long the rest of each topic takes, at the rates that were seen, and what holds it up. No cluster is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_mirror.night.race import Race
from airflow_mirror.partition import TopicPartition
from airflow_mirror.plan.wording import size

_AT_THE_LIMIT = 0.9


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The rest of one topic.

    :param behind: offsets still to copy. :param copied_per_s: 0: nothing of it was copied while somebody looked.
    :param seconds: until its last partition is level; None: nobody knows, or never. :param bottleneck: what decides that.
    """

    topic: str
    behind: int
    copied_per_s: float
    seconds: float | None
    bottleneck: str


def estimates(races: Sequence[Race], bytes_of: Mapping[TopicPartition, float], limit: int | None) -> list[Estimate]:
    """Return how long each topic with a rest takes, the slowest first.

    :param bytes_of: bytes of an offset, by partition. :param limit: the mirror's own, ``max_bytes_per_second``.
    """
    behind: dict[str, list[Race]] = {}
    for one in races:
        if one.behind:
            behind.setdefault(one.topic, []).append(one)
    rate = sum((one.copied_per_s or 0.0) * bytes_of.get(TopicPartition(one.topic, one.partition), 0.0) for one in races)
    limited = limit is not None and rate > _AT_THE_LIMIT * limit
    found = [_estimate(topic, its, f"max_bytes_per_second={size(limit or 0)}/s" if limited else "")
             for topic, its in behind.items()]  # fmt: skip
    return sorted(found, key=lambda one: (one.seconds is not None, -(one.seconds or 0.0), one.topic))


def _estimate(topic: str, its: Sequence[Race], limit: str) -> Estimate:
    total, copied = sum(one.behind for one in its), sum(one.copied_per_s or 0.0 for one in its)
    # A partition is copied by one task. One that did not move waits for a task: it is as quick as its neighbours then.
    moving = [one.copied_per_s for one in its if one.copied_per_s]
    usual = sum(moving) / len(moving) if moving else 0.0
    gains = {one: (one.copied_per_s or usual) - one.produced_per_s for one in its}
    slowest = max(its, key=lambda one: one.behind / gains[one] if gains[one] > 0 else float("inf"))
    seconds = slowest.behind / gains[slowest] if gains[slowest] > 0 else None
    if not moving:
        why = "nothing of it was copied while watched"
    elif seconds is None:
        why = f"{topic}-{slowest.partition}: producers write at least as fast as it is copied"
    elif limit:
        why = limit
    elif len(its) > 1 and slowest.behind > total / 2:
        why = f"{topic}-{slowest.partition} has {slowest.behind / total:.0%} of it, and no partition is split"
    else:
        why = "the copy itself: more cores, or a faster network"
    return Estimate(topic=topic, behind=total, copied_per_s=copied, seconds=seconds, bottleneck=why)
