"""Fill a topic with the broker's own files: eight million batches of one record in seconds.

A broker takes one batch a partition in each request, some 20,000 in a second. What it would have written for them is
written here while it is down: the batches one after another, each with its offset and its leader's epoch. Neither is
covered by a batch's checksum. The broker finds a log without an index at its start, reads it all, and builds the index.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np

from benchmarks import records
from benchmarks.cases import Case
from benchmarks.worlds import Endpoint

SEGMENT_BYTES = 1 << 30  # the broker's own bound: a log that is written here has one segment
_NODE = 1
_EPOCH_AT, _EPOCH_END = 12, 16  # of a batch's head; a new topic's first leader has epoch 0
_LOG = "0" * 20 + ".log"


def write(case: Case, source: Endpoint, batches: int) -> None:
    """Fill the empty topic of a case on a cluster of one node; return when the broker serves it.

    :param batches: of each partition.
    :raises RuntimeError: when a partition would be more than a segment.
    """
    ring = records.ring(case)
    directories = sorted(source.cluster.directory.rglob(f"{case.topic}-*/"))
    source.cluster.shut_down(_NODE)
    try:
        for partition, directory in enumerate(directories):
            write_log(directory, ring, case.per_batch, batches, partition * 7 % len(ring))
    finally:
        source.cluster.restart(_NODE)


def write_log(directory: Path, ring: list[memoryview], per_batch: int, batches: int, start: int) -> None:
    """Write one partition's log: so many batches of the ring, from ``start`` on, round and round.

    :raises RuntimeError: when it would be more than a segment.
    """
    for old in (*directory.glob("*index"), *directory.glob("*.snapshot")):
        old.unlink()
    turned = [*ring[start:], *ring[:start]]
    with (directory / _LOG).open("wb") as log:
        for first in range(0, batches, len(turned)):
            _write_round(log, turned[: batches - first], first, per_batch)
        if log.tell() > SEGMENT_BYTES:
            raise RuntimeError(f"{directory.name} has {log.tell():,} bytes, more than a segment holds")


def _write_round(log: BinaryIO, batches: list[memoryview], first: int, per_batch: int) -> None:
    raw = np.frombuffer(bytearray().join(batches), np.uint8)
    ends = np.cumsum([len(batch) for batch in batches])
    at = (ends - np.array([len(batch) for batch in batches]))[:, None]
    offsets = ((first + np.arange(len(batches))) * per_batch).astype(">i8")
    raw[at + np.arange(8)] = offsets.view(np.uint8).reshape(-1, 8)
    raw[at + np.arange(_EPOCH_AT, _EPOCH_END)] = 0
    log.write(raw.data)
