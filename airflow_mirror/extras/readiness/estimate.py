"""How long the rest of each topic takes, at the rates that were seen, and what holds it up. No cluster is asked.

Where nothing is copied yet, a trial copy may have shown the rates (:mod:`.trial`): then a topic takes as long as its
largest partition, or as all of it by all tasks, whatever is longer, as if no other topic were copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.extras.readiness.race import Race
from airflow_mirror.wording import count, size

CORE, SOURCE, TARGET, LIMIT = "core", "source", "target", "limit"
_AT_THE_LIMIT = 0.9
_WAITS = {
    CORE: "a core of this host for each task: more tasks, or faster cores",
    SOURCE: "reading from the source: its disks, or the network",
    TARGET: "writing to the target: its brokers, or the network",
    LIMIT: "",  # said with its value
}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a trial has shown.

    :param alone: the partition that was copied by itself, ``topic-partition``. :param together: those of the second part.
    :param one_bytes_per_s: of the first part; ``task_bytes_per_s``: of the second one, all partitions.
    :param copied_bytes: in both.
    :param waits_for: what the second part mostly waited for: a ``core`` of this host, the ``source``,
        the ``target`` or the mirror's own ``limit``.
    """

    alone: str
    together: Sequence[str]
    one_bytes_per_s: int
    task_bytes_per_s: int
    copied_bytes: int
    waits_for: str


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


def estimates(
    races: Sequence[Race], bytes_of: Mapping[TopicPartition, float], limit: int | None, trial: Trial | None = None,
    tasks: int = 1,
) -> list[Estimate]:  # fmt: skip
    """Return how long each topic with a rest takes, the slowest first.

    :param bytes_of: bytes of an offset, by partition. :param limit: the mirror's own, ``max_bytes_per_second``.
    :param trial: what a trial copy has shown, of topics of which nothing is copied; with so many ``tasks``.
    """
    behind: dict[str, list[Race]] = {}
    for one in races:
        if one.behind:
            behind.setdefault(one.topic, []).append(one)
    rate = sum((one.copied_per_s or 0.0) * bytes_of.get(TopicPartition(one.topic, one.partition), 0.0) for one in races)
    limited = f"max_bytes_per_second={size(limit or 0)}/s" if limit is not None else ""
    found = [
        _estimate(topic, its, limited if limit is not None and rate > _AT_THE_LIMIT * limit else "")
        if trial is None or any(one.copied_per_s for one in its)
        else _tried(topic, its, bytes_of, trial, tasks, limited)
        for topic, its in behind.items()
    ]
    return sorted(found, key=lambda one: (one.seconds is not None, -(one.seconds or 0.0), one.topic))


def whole_s(races: Sequence[Race], bytes_of: Mapping[TopicPartition, float], trial: Trial, tasks: int) -> float | None:
    """Return the seconds that all topics take together at the rates of a trial copy; None: nobody knows, or never."""
    return _tried("", [one for one in races if one.behind], bytes_of, trial, tasks, "").seconds


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


def _tried(
    topic: str, its: Sequence[Race], bytes_of: Mapping[TopicPartition, float], trial: Trial, tasks: int, limit: str
) -> Estimate:  # fmt: skip
    tps = {one: TopicPartition(one.topic, one.partition) for one in its}
    known = [one for one in its if tps[one] in bytes_of]
    total, why, seconds = sum(one.behind for one in its), "", None
    written = {one: one.produced_per_s * bytes_of[tps[one]] for one in known}
    rest = {one: one.behind * bytes_of[tps[one]] for one in known}
    # The limit is the whole mirror's: more tasks copy no more.
    together = trial.task_bytes_per_s * (1 if trial.waits_for == LIMIT else tasks)
    gain, gains = together - sum(written.values()), {one: trial.one_bytes_per_s - written[one] for one in known}
    if len(known) < len(its):
        why = "nobody tells how large its records are"
    elif gain <= 0 or min(gains.values(), default=1.0) <= 0:
        why = "producers write at least as fast as a trial copied"
    elif its:
        slowest = max(known, key=lambda one: rest[one] / gains[one])
        alone_s, together_s = rest[slowest] / gains[slowest], sum(rest.values()) / gain
        seconds = max(alone_s, together_s)
        one = f"one partition, {tps[slowest]}, with {rest[slowest] / sum(rest.values()):.0%} of it: none is split"
        why = one if alone_s > together_s else limit if trial.waits_for == LIMIT else _WAITS[trial.waits_for]
        if alone_s <= together_s and trial.waits_for == CORE:
            why = f"{why} ({count(tasks, 'task')} assumed)"
    return Estimate(topic=topic, behind=total, copied_per_s=0.0, seconds=seconds, bottleneck=why)
