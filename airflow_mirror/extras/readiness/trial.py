"""A short copy to the mirror's scratch topic: how fast this host copies between these clusters, and what it waits for.

It is the engine that copies, batches as they are, from where the copy of each partition would go on. First the largest
one alone, because no partition is split; then several together, as a task does. A partition of the scratch topic takes
the one of the same number, so each number is there once. Offsets are not kept, and no map is: nobody goes on with it.

What it can't tell is what other hosts would do, and what brokers do under a load of hours.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import errand, scratch_topic
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.offsets.no_maps import NoMaps
from airflow_mirror.copy.options import DEFAULT_MAX_BATCH_BYTES, CopyOptions
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease_watch import LeaseWatch
from airflow_mirror.errors import TryAgain
from airflow_mirror.extras.readiness.estimate import CORE, LIMIT, SOURCE, TARGET, Trial
from airflow_mirror.extras.readiness.race import Log
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NewTopicSpec
from airflow_mirror.plan import Plan, scratch
from airflow_mirror.wire.cluster import WireCluster

SECONDS = 10.0
_MOST = 8  # partitions together
_NUMBERS = 64  # of partitions: the scratch topic has as many as the highest one
_BEGINS_WITHIN_S = 60.0
_MOST_BYTES = 4 << 30  # of each of both parts
_TOO_SHORT_S = 0.5
_CORE_IS_FULL = 0.85
_AT_THE_LIMIT = 0.9

log = logging.getLogger(__name__)


class _Rate:
    """Measures a part of the trial while it runs; the loop asks at each turn whether it should stop."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._asked = self._at = clock()
        self._began: tuple[float, float, int] | None = None
        self._waited = {SOURCE: 0.0, TARGET: 0.0}
        self.bytes = 0

    def is_over(self, partitions: Sequence[PartitionCopy]) -> bool:
        now, copied = self._clock(), sum(p.counters.bytes for p in partitions)
        active = [p for p in partitions if not p.done and p.error is None]
        if self._began is None:
            if copied:
                self._began = now, time.process_time(), copied
        elif active:
            busy = sum(p.is_under_way for p in active) / len(active)
            self._waited[TARGET] += (now - self._at) * busy
            self._waited[SOURCE] += (now - self._at) * (1 - busy)
        self._at, self.bytes = now, copied
        if self._began is None:
            return now >= self._asked + _BEGINS_WITHIN_S
        return now >= self._began[0] + self._seconds or copied >= _MOST_BYTES or not active

    def per_s(self) -> float:
        """Bytes a second, from the first that landed on. So little that it was over at once: from the beginning on."""
        if self._began is None or self._at - self._began[0] < _TOO_SHORT_S:
            return self.bytes / max(0.001, self._at - self._asked)
        return (self.bytes - self._began[2]) / (self._at - self._began[0])

    def waits_for(self) -> str:
        if self._began is not None:
            used = (time.process_time() - self._began[1]) / max(0.001, self._at - self._began[0])
            if used >= _CORE_IS_FULL:
                return CORE
        return max(self._waited, key=lambda side: self._waited[side])


def try_copy(
    plan: Plan, logs: Mapping[TopicPartition, Log], source: ClusterAdmin, target: ClusterAdmin, seconds: float = SECONDS
) -> Trial | None:
    """Copy for some seconds to the scratch topic, which is deleted again; None: there is nothing left to copy.

    It takes some seconds more than ``seconds``, and is held to the mirror's own limit.

    :param logs: partitions of the source, with what is left of each.
    :raises TryAgain: nothing was copied: the scratch topic can't be had, or a cluster does not serve.
    :raises MirrorError: what stopped a partition.
    """
    chosen = choose(logs)
    if not chosen:
        return None
    topic = scratch_topic(plan.mirror.name)
    largest = max((plan.topic(tp.topic) for tp in chosen), key=lambda t: t.replication_factor)
    limit = max(_batch_bytes(plan, tp.topic) for tp in chosen)
    configs = {**scratch.CONFIGS, "segment.bytes": str(256 << 20), "max.message.bytes": str(limit)}
    spec = NewTopicSpec(topic, 1 + max(tp.partition for tp in chosen), largest.replication_factor, configs)
    if (why := scratch.create(target, spec)) is not None:
        raise TryAgain("no trial copy: there is no scratch topic on the target", why)
    try:
        ranges = [
            CopyRange(
                source_topic=tp.topic, target_topic=topic, partition=tp.partition, mode=MAPPED,
                start_offset=logs[tp].position, end_offset=logs[tp].end,
            )
            for tp in chosen
        ]  # fmt: skip
        options = CopyOptions(
            mirror=errand(plan.mirror.name, "trial"), committed_only=plan.mirror.isolation == "read_committed",
            max_batch_bytes={topic: limit}, max_bytes_per_second=plan.mirror.max_bytes_per_second,
            merge_below=plan.mirror.merge_below,
        )  # fmt: skip
        return _measured(ranges, options, source, target, seconds)
    finally:
        if (left := scratch.delete(target, topic)) is not None:
            log.warning("the scratch topic %r was left behind: %s", topic, left)


def choose(logs: Mapping[TopicPartition, Log]) -> list[TopicPartition]:
    """Return the partitions to copy, the one with the largest rest first; of each number one."""
    rest = {tp: (one.end - one.position) * (one.offset_bytes or 1.0) for tp, one in logs.items()}
    found: dict[int, TopicPartition] = {}
    for tp in sorted(rest, key=lambda tp: (-rest[tp], tp)):
        if rest[tp] > 0 and tp.partition < _NUMBERS and len(found) < _MOST:
            found.setdefault(tp.partition, tp)
    return list(found.values())


def _batch_bytes(plan: Plan, topic: str) -> int:
    return int(plan.topic(topic).configs.get("max.message.bytes", DEFAULT_MAX_BATCH_BYTES))


def _measured(
    ranges: list[CopyRange], options: CopyOptions, source: ClusterAdmin, target: ClusterAdmin, seconds: float
) -> Trial:
    with WireCluster(target.config) as wire:
        token = lease.take(wire, options.mirror)
        time.sleep(token.wait_s)
        try:
            with closing(LeaseWatch(target.config, token)) as watch:

                def run(several: list[CopyRange], name: str) -> _Rate:
                    # Under a name of its own: one that has written there would first look where it ended.
                    own = replace(options, mirror=errand(options.mirror, name))
                    clusters = Clusters.of(source.config, target.config)
                    loop = CopyLoop(several, clusters, own, watch.check, store=NoMaps(own.mirror))
                    rate = _Rate(seconds / 2)
                    loop.run(lambda: rate.is_over(loop.partitions))
                    if error := next((p.error for p in loop.partitions if p.error is not None), None):
                        raise error
                    if not rate.bytes:
                        raise TryAgain("no trial copy", f"nothing arrived within {_BEGINS_WITHIN_S:.0f} s")
                    return rate

                alone, together = run(ranges[:1], "alone"), run(ranges, "together")
        finally:
            lease.release(wire, token)
    limit = options.max_bytes_per_second
    limited = limit is not None and together.per_s() >= _AT_THE_LIMIT * limit
    return Trial(
        alone=str(ranges[0].source), together=[str(one.source) for one in ranges], one_bytes_per_s=round(alone.per_s()),
        task_bytes_per_s=round(together.per_s()), copied_bytes=alone.bytes + together.bytes,
        waits_for=LIMIT if limited else together.waits_for(),
    )  # fmt: skip
