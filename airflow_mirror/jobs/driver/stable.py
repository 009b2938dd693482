"""What a job can't copy or compare because a transaction of the source is open: waited for a little, then named."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import load
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.held import Held, held_back, named
from airflow_mirror.wire.cluster import WireCluster

log = logging.getLogger(__name__)

# Exactly-once writers commit every 100 ms (Kafka Streams) to some seconds: those are no reason to leave anything out.
PATIENCE_S = 5.0
_LOOK_EVERY_S = 0.1
_NAMED = 20


def stable_ends(
    source: WireCluster, tps: Sequence[TopicPartition]
) -> tuple[Mapping[TopicPartition, int], list[Held]]:  # fmt: skip
    """Return the last stable offsets, and what waits behind them. Transactions that are open get a moment to end."""
    ends, until = source.high_watermarks(tps), time.monotonic() + PATIENCE_S
    while True:
        # The ends are older: records that have arrived since would look like an open transaction.
        held = held_back(ends, stable := source.last_stable(tps))
        if not held or time.monotonic() >= until:
            return stable, held
        time.sleep(_LOOK_EVERY_S)


def left_behind(held: Iterable[Held], ends: Mapping[TopicPartition, int]) -> list[Held]:
    """Return what waits for a transaction right where a job's ranges end.

    :param held: of the look by which the ranges end (:func:`stable_ends`). By a later one nothing waits behind a
        transaction that has ended in between, and its records are in no range all the same.
    """
    return [one for one in held if one.since <= ends[one.source]]


def say(source: str, found: Sequence[Held]) -> list[Held]:
    """Log what waits, and return it with whose transactions they are.

    :param source: reference to its settings.
    """
    if not found:
        return []
    with ClusterAdmin(load(source, "source")) as admin:
        told = named(admin, found)
    for one in told[:_NAMED]:
        log.warning("%s", one)
    return told
