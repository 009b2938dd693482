"""Prometheus' view of a running copy, made of its progress table each time that somebody asks.

Series of single partitions are bounded: beyond a limit only stopped partitions and those with lag have some, and a figure
says how many have none. Those of topics are always complete.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from airflow_mirror.copy.delays import Delays
from airflow_mirror.copy.phase import Phase
from airflow_mirror.jobs.metrics import catalogue
from airflow_mirror.jobs.metrics.catalogue import COUNTER, GAUGE, MEASURED, SUMMARY, Figure, Total
from airflow_mirror.jobs.metrics.measures import Measure, by_partition, by_topic, worth_listing
from airflow_mirror.jobs.progress.delay import Moment
from airflow_mirror.jobs.progress.retained import Retained
from airflow_mirror.jobs.progress.table import Row, Table
from airflow_mirror.jobs.request import LISTED

_OF_ALL = ("mirror", "source", "target")
_FAMILIES = {COUNTER: CounterMetricFamily, GAUGE: GaugeMetricFamily, SUMMARY: SummaryMetricFamily}
# Values of the labels after the common ones, and what is so labelled.
_Samples = Iterable[tuple[tuple[str, ...], float | Total | None]]


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A running copy, as its driver knows it.

    :param kind: of the job, as in its spec.
    :param source: the cluster's name in the Mirror; ``target`` likewise.
    :param epoch: returns that of the writer lease.
    :param retained: returns what the source keeps.
    :param held: returns for each target topic whether its settings were on hold at the last look; empty: not known.
    :param restored: returns how many settings of each target topic had to be set back.
    :param groups: returns how long the groups that were moved took to follow, as latency.
    """

    kind: str
    mirror: str
    source: str
    target: str
    table: Table
    epoch: Callable[[], int]
    retained: Callable[[], Retained] = Retained
    held: Callable[[], Mapping[str, bool]] = dict
    restored: Callable[[], Mapping[str, int]] = dict
    groups: Callable[[], Delays] = Delays


class CopyCollector(Collector):
    """Makes Prometheus' metrics of a copy.

    :param limit: most partitions with series of their own.
    :param clock: seconds since the epoch.
    """

    def __init__(self, watched: Watched, limit: int = LISTED, clock: Callable[[], float] = time.time) -> None:
        self._watched, self._limit, self._clock = watched, limit, clock
        self._common = (watched.mirror, watched.source, watched.target)
        self._running = True

    def end(self) -> None:
        """Say from now on that the job has ended."""
        self._running = False

    def collect(self) -> Iterator[Metric]:
        """Yield the figures as they are now."""
        rows = self._watched.table.rows()
        partitions = by_partition(rows, Moment(time.monotonic(), self._clock()), self._watched.retained())
        listed = worth_listing(partitions, self._limit)
        yield from self._of_job(rows, len(partitions) - len(listed))
        yield from self._of_topics(by_topic(partitions))
        for one in MEASURED:
            series = (((m.topic, str(m.partition)), one.read(m)) for m in listed)
            yield self._family(one.for_partitions, ("topic", "partition"), series)

    def describe(self) -> Iterator[Metric]:
        """Yield the figures without values, for a scrape that asks for some by name."""
        return (Metric(m.name, m.documentation, m.type) for m in self.collect())

    def _of_job(self, rows: list[Row], left_out: int) -> Iterator[Metric]:
        watched, states = self._watched, Counter(row.state for row in rows)
        yield self._family(catalogue.JOB, ("kind",), [((watched.kind,), 1)])
        yield self._family(catalogue.RUNNING, (), [((), self._running)])
        yield self._family(catalogue.UPDATED, (), [((), self._clock())])
        yield self._family(catalogue.EPOCH, (), [((), watched.epoch())])
        yield self._family(catalogue.PARTITIONS, ("state",), [((str(phase),), states[phase]) for phase in Phase])
        yield self._family(catalogue.UNKNOWN, (), [((), sum(row.lag is None for row in rows))])
        yield self._family(catalogue.LEFT_OUT, (), [((), left_out)])
        yield self._family(catalogue.HELD, (), [((), watched.table.held)])
        groups = watched.groups()
        known = groups.batches > 0
        total = Total(groups.batches, groups.latency_sum_ms / 1000)
        yield self._family(catalogue.GROUPS, (), [((), total if known else None)])
        yield self._family(catalogue.GROUPS_MIN, (), [((), groups.latency_min_ms / 1000 if known else None)])
        yield self._family(catalogue.GROUPS_MAX, (), [((), groups.latency_max_ms / 1000 if known else None)])

    def _of_topics(self, topics: list[Measure]) -> Iterator[Metric]:
        held, restored = self._watched.held(), self._watched.restored()
        yield self._family(catalogue.HOLD, ("topic",), (((topic,), intact) for topic, intact in held.items()))
        yield self._family(catalogue.RESTORED, ("topic",), (((topic,), times) for topic, times in restored.items()))
        for one in MEASURED:
            yield self._family(one.for_topics, ("topic",), (((m.topic,), one.read(m)) for m in topics))

    def _family(self, figure: Figure, labels: tuple[str, ...], samples: _Samples) -> Metric:
        family: Any = _FAMILIES[figure.kind](figure.name, figure.text, labels=(*_OF_ALL, *labels))
        for values, value in samples:
            if value is not None:
                family.add_metric((*self._common, *values), *(value if isinstance(value, Total) else (value,)))
        metric: Metric = family
        return metric
