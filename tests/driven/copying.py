"""Copies between two driven clusters, in this thread and in milliseconds."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import MAP_PARTITIONS, MAPS
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import IDENTICAL, CopyRange
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.wire.cluster import WireCluster
from tests.driven.cluster import DrivenCluster, topic_config
from tests.driven.script import WAIT_S

_METADATA, _TELLS_IDS = 3, 10  # its key, and the version with ids


def ranges_of(source: DrivenCluster, topic: str, mode: str = IDENTICAL, *, committed: bool = True) -> list[CopyRange]:
    """Return the whole of a topic as it stands now, with the topic's id where the brokers tell it, as a plan has it."""
    found = []
    tells_ids = all(broker.served[_METADATA][1] >= _TELLS_IDS for broker in source.brokers.values())
    topic_id = id_of(source, topic) if tells_ids else None
    for log in source.topics[topic].logs:
        end = log.last_stable if committed else log.high_watermark
        found.append(
            CopyRange(
                source_topic=topic,
                target_topic=topic,
                partition=log.tp.partition,
                start_offset=log.log_start,
                end_offset=end,
                source_topic_id=topic_id,
                mode=mode,
            )
        )
    return found


def copy(
    source: DrivenCluster, target: DrivenCluster, ranges: Iterable[CopyRange], *,
    check: Callable[[], None] = lambda: None, should_stop: Callable[[], bool] = lambda: False, mirror: str = "m",
    clock: Callable[[], float] = time.monotonic, **options: Any,
) -> list[PartitionCopy]:  # fmt: skip
    """Copy until every range has ended or stopped. No lease is taken, and ``check`` stands for it; nor is there a driver.

    :raises LeaseLost: what ``check`` raised.
    """
    clusters = Clusters.of(source.config, target.config)
    loop = CopyLoop(_ready(target, ranges), clusters, CopyOptions(mirror=mirror, **options), check, clock)
    return loop.run(should_stop)


def _ready(target: DrivenCluster, ranges: Iterable[CopyRange]) -> list[CopyRange]:
    """Create the topic of offset maps if one of the ranges needs it, and name the target's topics, as a driver does."""
    found = [replace(r, target_topic_id=r.target_topic_id or id_of(target, r.target_topic)) for r in ranges]
    if any(one.is_mapped for one in found):
        create_maps(target)
    return found


def id_of(cluster: DrivenCluster, topic: str) -> str:
    """Return a topic's id as clients write it; empty if there is no such topic."""
    found = cluster.topics.get(topic)
    return "" if found is None else base64.urlsafe_b64encode(found.topic_id.bytes).decode().rstrip("=")


def create_maps(target: DrivenCluster) -> None:
    """Create the topic of offset maps unless it is there."""
    if MAPS not in target.topics:
        config = topic_config({"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"})
        target.create(MAPS, MAP_PARTITIONS, config)


def lose_maps(target: DrivenCluster) -> None:
    """Delete everything that is stored of offset maps."""
    target.delete(MAPS)


def lose_pieces(target: DrivenCluster) -> None:
    """Lose what is stored of offset maps, but for where they begin."""
    with WireCluster(target.config) as there:
        for log in target.topics[MAPS].logs:
            keys = {(row.key or b"").decode() for row in log.rows()}
            if lost := dict.fromkeys(key for key in keys if "/begin@" not in key):
                TopicLog(there, MAPS, log.tp.partition).put(lost, WAIT_S)


def map_of(target: DrivenCluster, copy_range: CopyRange) -> OffsetMap | None:
    """Return what is stored of the offset map of a range."""
    with WireCluster(target.config) as there:
        return MapStore("m").load(there, copy_range)


def errors(copies: Iterable[PartitionCopy]) -> dict[TopicPartition, Exception | None]:
    """Return what stopped each partition."""
    return {p.range.source: p.error for p in copies}


class Following:
    """A copy that follows, in a thread of its own, and what it is at."""

    def __init__(
        self, source: DrivenCluster, target: DrivenCluster, ranges: list[CopyRange], *,
        check: Callable[[], None] = lambda: None, clock: Callable[[], float] | None = None, **options: object,
    ) -> None:  # fmt: skip
        self.ranges = _ready(target, [replace(one, end_offset=None) for one in ranges])
        clusters = Clusters.of(source.config, target.config)
        timed = {} if clock is None else {"clock": clock}
        self.loop = CopyLoop(self.ranges, clusters, CopyOptions(mirror="m", **options), check, **timed)  # type: ignore[arg-type]
        self.failed: BaseException | None = None
        self._stop, self._turn = threading.Event(), threading.Condition()
        self._question: Callable[[], bool] | None = None  # what is waited for
        self._over = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Following:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self.failed is not None:
            raise self.failed

    def until(self, question: Callable[[], bool], what: str) -> None:
        """Wait until, at the beginning of a turn, the answer is yes.

        The loop's own thread asks, at each turn: no yes is missed that holds for one turn only. Once the loop has ended,
        because each partition has, it is asked here.
        """
        with self._turn:
            self._question = question
            self._turn.wait_for(lambda: self._question is None or self._over, WAIT_S)
            answered = self._question is None or (self._over and question())
        assert self.failed is None, self.failed
        assert answered, f"never: {what}"

    def state(self, tp: TopicPartition) -> State:
        """Return what the copy of a source partition is doing."""
        return next(p for p in self.loop.partitions if p.range.source == tp).state

    def _run(self) -> None:
        try:
            self.loop.run(self._should_stop)
        except BaseException as e:
            self.failed = e
        with self._turn:
            self._over = True
            self._turn.notify_all()

    def _should_stop(self) -> bool:
        with self._turn:
            if self._question is not None and self._question():
                self._question = None
                self._turn.notify_all()
        return self._stop.is_set()


def ends(cluster: DrivenCluster) -> list[int]:
    """Return where the logs of topic ``t`` end."""
    return [log.end for log in cluster.topics["t"].logs]
