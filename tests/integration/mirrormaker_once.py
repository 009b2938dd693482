"""A real MirrorMaker 2 for tests of what it leaves behind, and the answers of somebody who knows nothing of our maps."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned

from benchmarks import mirrormaker
from sandbox import Cluster
from sandbox.process import Child


def settings_of(alias: str, topic: str, source: Cluster, target: Cluster, **more: str) -> dict[str, str]:
    """Return the file of one flow. :param more: keys, with ``__`` for a dot."""
    here, there = ({"bootstrap.servers": cluster.bootstrap} for cluster in (source, target))
    return {
        **mirrormaker.settings(alias, topic, here, there, (1, 1)),
        "refresh.topics.interval.seconds": "1",
        f"{alias}->{mirrormaker.TARGET}.sync.topic.configs.enabled": "false",
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def write_file(settings: Mapping[str, str], directory: Path) -> Path:
    file = directory / "connect-mirror-maker.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    return file


@contextmanager
def running(file: Path) -> Iterator[Child]:
    """MirrorMaker 2, killed at the latest at the end."""
    child = Child(mirrormaker.command(file, file.parent), file.parent / "mirrormaker.log", file.parent)
    try:
        yield child
    finally:
        if child.alive():
            child.kill()


def stop(child: Child) -> None:
    """Stop it as its script is stopped."""
    child.send(signal.SIGTERM)
    assert child.wait(240) is not None


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
        assert messages or time.monotonic() < deadline, f"{topic}-{partition}: nothing after {len(found)} records"
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
        raise AssertionError(f"no place for {offset}")


def check_offsets(translate: Any, answers: Answers, count: int, start: int, seed: int = 1) -> int:
    """Compare so many random offsets with the answers; return how many were compared."""
    rng = random.Random(seed)
    for offset in (rng.randrange(start, answers.end) for _ in range(count)):
        assert translate(offset) == answers.place(offset), f"source offset {offset}"
    return count
