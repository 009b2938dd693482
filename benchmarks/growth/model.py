"""What a copy costs, as a sum: so much for each task, partition, batch and byte. No clocks here.

CPU seconds of tasks and of brokers have a model each. Batches below ``merge_below`` are decoded and joined, those above
pass: each kind has its own cost for a batch, and what is merged a cost for a record as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.cases import MERGE_BELOW
from benchmarks.growth.measuring import Measured

TERMS = ("task", "partition", "batch that passes", "batch that is merged", "record that is merged", "MB")
_MB = 1e6


@dataclass(frozen=True)
class Size:
    """What is copied, by how many tasks: ``batch`` and ``record`` are bytes of one, ``size`` of all."""

    tasks: float
    partitions: float
    size: float
    batch: float
    record: float = 300.0

    @property
    def counts(self) -> list[float]:
        """How many of each of :data:`TERMS` there are."""
        batches, is_merged = self.size / self.batch, self.batch < MERGE_BELOW
        return [
            self.tasks, self.partitions, 0.0 if is_merged else batches, batches if is_merged else 0.0,
            self.size / self.record if is_merged else 0.0, self.size / _MB,
        ]  # fmt: skip


def size_of(one: Measured) -> Size:
    """Return the size of what was measured."""
    return Size(one.point.tasks, one.point.partitions, one.bytes, one.bytes / one.batches, one.bytes / one.records)


@dataclass(frozen=True)
class Model:
    """CPU seconds for one of each of :data:`TERMS`."""

    costs: tuple[float, ...]

    def cpu_s(self, size: Size) -> float:
        """Return what a copy of this size takes."""
        return float(np.dot(self.costs, size.counts))


def fit(measured: Sequence[Measured], cost: Callable[[Measured], float]) -> Model:
    """Return the model with the least squares of relative errors, among those in which nothing costs less than 0."""
    counts = np.array([size_of(one).counts for one in measured])
    costs = np.array([cost(one) for one in measured])
    weighted, wanted = counts / costs[:, None], np.ones(len(measured))
    kept = list(range(len(TERMS)))
    while True:
        found, *_ = np.linalg.lstsq(weighted[:, kept], wanted, rcond=None)
        if all(found >= 0):
            break
        kept.pop(int(np.argmin(found * counts[:, kept].max(axis=0))))
    values = np.zeros(len(TERMS))
    values[kept] = found
    return Model(tuple(float(value) for value in values))


@dataclass(frozen=True)
class Forecast:
    """How long a large copy takes, and by what.

    :param cpu_h: CPU hours of all tasks; ``brokers_cpu_h``: of both clusters' brokers, without what replicas cost.
    :param hours: by the tasks' CPUs, and by the network of their hosts.
    """

    size: Size
    cpu_h: float
    brokers_cpu_h: float
    hours: dict[str, float]

    @property
    def bound(self) -> str:
        """What takes longest."""
        return max(self.hours, key=lambda name: self.hours[name])


def forecast(tasks: Model, brokers: Model, size: Size, executors: int, gbit_s: float) -> Forecast:
    """Return how long it takes with one task on each of ``executors`` hosts, each with a network of ``gbit_s``."""
    cpu_h = tasks.cpu_s(size) / 3600
    network_h = size.size * 8 / (executors * gbit_s * 1e9) / 3600  # in and out are separate
    return Forecast(size, cpu_h, brokers.cpu_s(size) / 3600, {"CPU": cpu_h / executors, "network": network_h})
