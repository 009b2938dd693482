"""What the source still keeps: where its logs start and how long its topics keep records, asked now and then.

A mirror that falls behind loses records to the source's retention. The driver asks, not the tasks: the figure matters
most when they don't get on.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import load
from airflow_mirror.errors import MirrorError
from airflow_mirror.jobs.progress.table import Table
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry

log = logging.getLogger(__name__)

EVERY_S = 30.0  # brokers delete old segments every five minutes (log.retention.check.interval.ms)
_SETTINGS_EVERY_S = 300.0


class Retained(NamedTuple):
    """What the source keeps, as it was last seen.

    :param starts: log start offsets; empty: not known.
    :param kept_s: how long a topic keeps records, in seconds; only topics that delete old ones.
    """

    starts: Mapping[TopicPartition, int] = {}
    kept_s: Mapping[str, float] = {}


class RetainedWatch:
    """Asks the source in a thread of its own, from :meth:`start` to :meth:`close`.

    :param source: reference to its settings. :param every_s: how often.
    :ivar last: what was found last. It is replaced, never changed.
    """

    def __init__(self, source: str, table: Table, every_s: float = EVERY_S) -> None:
        self._source, self._table, self._every_s, self._ended = source, table, every_s, threading.Event()
        self._thread = threading.Thread(target=self._run, name="retained", daemon=True)
        self.last = Retained()

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """Stop asking; an answer that is awaited may still arrive."""
        self._ended.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        with ClusterAdmin(load(self._source, "source")) as admin:
            read_at, said = -math.inf, ""
            while not self._ended.is_set():
                again = time.monotonic() - read_at >= _SETTINGS_EVERY_S
                try:
                    self.last = look(admin, self._table, None if again else self.last.kept_s)
                    read_at = time.monotonic() if again else read_at
                except MirrorError as e:  # an old answer would pass for a new one
                    self.last, read_at = Retained(), -math.inf
                    if str(e) != said:  # who may not ask is refused each time
                        log.info("what the source keeps is unknown: %s", said := str(e))
                self._ended.wait(self._every_s)


def look(source: ClusterAdmin, table: Table, kept_s: Mapping[str, float] | None) -> Retained:
    """Return what the source keeps of the table's partitions.

    :param kept_s: as it was read a moment ago; None: read it.
    """
    partitions = {row.range.source for row in table.rows()}
    starts = source.offsets(partitions, "earliest")
    if kept_s is None:
        configs = source.topic_configs({tp.topic for tp in partitions})
        kept_s = {topic: kept for topic, entries in configs.items() if (kept := retention_s(entries)) is not None}
    return Retained(starts, kept_s)


def retention_s(entries: Mapping[str, ConfigEntry]) -> float | None:
    """Return for how long a topic keeps records; None: for ever, or its cluster does not tell."""
    kept_ms = _limit(entries, "retention.ms")
    return None if kept_ms is None else kept_ms / 1000


def retention_bytes(entries: Mapping[str, ConfigEntry]) -> int | None:
    """Return how many bytes of each partition a topic keeps at least; None: all, or its cluster does not tell."""
    return _limit(entries, "retention.bytes")


def _limit(entries: Mapping[str, ConfigEntry], name: str) -> int | None:
    policy, kept = (entries[key].value if key in entries else None for key in ("cleanup.policy", name))
    if "delete" not in (policy or ""):
        return None
    limit = int(kept or -1)
    return limit if limit >= 0 else None
