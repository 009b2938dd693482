"""A referee for maps of offsets: reads both logs as any consumer does, and searches. Knows nothing of our maps."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import numpy as np
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned

from sandbox import Cluster


class Disagrees(Exception):
    """A map and the referee don't say the same, or the referee could not do its work."""


def contents(cluster: Cluster, topic: str, isolation: str, partition: int = 0) -> list[tuple[int, int]]:
    """Return offset and number of each record, as a plain consumer gets them; numbers are the records' keys."""
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": "referee", "enable.auto.commit": False, "check.crcs": True,
        "isolation.level": isolation, "auto.offset.reset": "error", "enable.partition.eof": True,
    })  # fmt: skip
    start, _ = consumer.get_watermark_offsets(Assigned(topic, partition), timeout=240)
    consumer.assign([Assigned(topic, partition, start)])
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + 240
    while True:
        messages = consumer.consume(5000, 0.2)  # waits for as many, or as long as that
        if not messages and time.monotonic() > deadline:
            raise Disagrees(f"{topic}-{partition}: nothing after {len(found)} records")
        deadline = time.monotonic() + 240 if messages else deadline
        found += [(m.offset(), int(m.key())) for m in messages if not m.error()]
        if any(m.error() for m in messages):
            consumer.close()
            return found


class Answers:
    """For any source offset, where a reader goes on, found by trying places on the target from the last one on.

    A place is good if from it on every committed record from the offset on is met, in order. Nothing of it is ours.

    :param source: offset and number of the committed records. :param target: of all that consumers of the target get.
    """

    def __init__(self, source: Sequence[tuple[int, int]], target: Sequence[tuple[int, int]]) -> None:
        copied = {number for _, number in target}
        held = [(offset, number) for offset, number in source if number in copied]
        self.end = held[-1][0] + 1
        self._offsets = np.array([offset for offset, _ in held])
        rank = {number: i for i, (_, number) in enumerate(held)}
        kept = [(offset, rank[number]) for offset, number in target if number in rank]
        self._there, self._ranks = (np.array(column) for column in zip(*kept, strict=True))
        self._last = len(held) - 1

    def place(self, offset: int) -> int | None:
        """Return the target offset; None beyond the last copy."""
        first = int(np.searchsorted(self._offsets, offset))
        if first > self._last:
            return None
        for at in reversed(np.flatnonzero(self._ranks == first).tolist()):
            rest = self._ranks[at:]
            reached = np.maximum.accumulate(rest[rest >= first])
            if reached[-1] == self._last and (np.diff(reached) <= 1).all():
                return int(self._there[at])
        raise Disagrees(f"no place for {offset}")


def check_offsets(translate: Callable[[int], int], answers: Answers, count: int, start: int, seed: int = 1) -> int:
    """Compare so many random offsets with the answers; return how many were compared.

    :raises Disagrees: at the first that differs.
    """
    rng = random.Random(seed)
    for offset in (rng.randrange(start, answers.end) for _ in range(count)):
        if (ours := translate(offset)) != (exact := answers.place(offset)):
            raise Disagrees(f"source offset {offset}: the map says {ours}, a search {exact}")
    return count
