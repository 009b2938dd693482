"""Tables and plot of docs/benchmarks.md, made from the stored points."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.document import PAGE, with_block
from benchmarks.growth import points
from benchmarks.growth.measuring import Measured
from benchmarks.growth.model import TERMS, Forecast, Model, Size, fit, forecast, size_of
from benchmarks.growth.plot import Curve, Panel, draw, number
from benchmarks.table import markdown

STORED = Path(__file__).parents[1] / "results" / "growth.json"
PLOT = PAGE.parent / "images" / "growth.svg"
_TB, _GB = 1e12, 1e9
LARGE, EXECUTORS, GBIT_S = (50 * _TB, 20_000), 40, 10.0
_BATCHES = (1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000)


@dataclass(frozen=True)
class Growth:
    """What was measured, and the models of it.

    :param about: machine, software and rounds, for people.
    """

    made: str
    about: str
    measured: Sequence[Measured]

    @classmethod
    def load(cls, values: dict[str, Any]) -> Growth:
        """Return what :meth:`dump` gave."""
        return cls(values["made"], values["about"], [Measured.load(one) for one in values["points"]])

    def dump(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {"made": self.made, "about": self.about, "points": [one.dump() for one in self.measured]}

    @property
    def tasks(self) -> Model:
        """The CPU seconds of tasks."""
        return fit(self._fitted, lambda one: one.cpu_s)

    @property
    def brokers(self) -> Model:
        """The CPU seconds of both clusters' brokers."""
        return fit(self._fitted, lambda one: one.brokers_cpu_s)

    @property
    def _fitted(self) -> list[Measured]:
        return [one for one in self.measured if one.point.of != points.CHECK]

    def forecasts(self) -> list[Forecast]:
        """Return the large copy, by the size of its batches."""
        total, partitions = LARGE
        tasks, brokers = self.tasks, self.brokers
        return [forecast(tasks, brokers, Size(EXECUTORS, partitions, total, b), EXECUTORS, GBIT_S) for b in _BATCHES]


def stored() -> Growth | None:
    """Return the points that are committed."""
    return Growth.load(json.loads(STORED.read_text(encoding="utf-8"))) if STORED.exists() else None


def block(growth: Growth) -> str:
    """Return the generated part of the page."""
    picture = "![CPU seconds against batch size, partitions, bytes and tasks](images/growth.svg)"
    return "\n\n".join(
        (f"{growth.made}. {growth.about}", picture, _points(growth), _costs(growth), _forecasts(growth)),
    )


def page_with(page: str, growth: Growth) -> str:
    """Return the page with its block made anew."""
    return with_block(page, "growth", f"{block(growth)}\n")


def write() -> None:
    """Make block and plot from the stored points."""
    if (growth := stored()) is not None:
        PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), growth), encoding="utf-8")
        PLOT.write_text(plot(growth), encoding="utf-8")


def _points(growth: Growth) -> str:
    model = growth.tasks
    rows = []
    for one in growth.measured:
        told = model.cpu_s(size_of(one))
        rows.append([
            one.point.of, _bytes(one.bytes / one.batches), f"{one.point.partitions:,}", _bytes(one.bytes),
            str(one.point.tasks), number(one.cpu_s), number(told), f"{100 * (told / one.cpu_s - 1):+.0f} %",
            number(one.brokers_cpu_s), number(one.bytes / 1e6 / one.seconds),
        ])  # fmt: skip
    head = [
        "copied for", "a batch", "partitions", "in all", "tasks", "CPU s", "by the model", "off by",
        "brokers' CPU s", "MB/s",
    ]  # fmt: skip
    return markdown(("", head, rows))


def _costs(growth: Growth) -> str:
    rows = [
        [term, _micro(task), _micro(broker)]
        for term, task, broker in zip(TERMS, growth.tasks.costs, growth.brokers.costs, strict=True)
    ]
    return markdown(("", ["each", "costs a task", "costs both brokers"], rows))


def _forecasts(growth: Growth) -> str:
    rows = [
        [
            _bytes(one.size.batch), number(one.cpu_h), number(one.hours["CPU"]), number(one.hours["network"]), one.bound,
            number(one.brokers_cpu_h),
        ]
        for one in growth.forecasts()
    ]  # fmt: skip
    head = ["a batch", "CPU hours of tasks", "hours, by their CPUs", "by the network", "bound", "brokers' CPU hours"]
    return markdown(("", head, rows))


def plot(growth: Growth) -> str:
    """Return the SVG."""
    model = growth.tasks

    def curve(of: str, x: Callable[[Measured], float], y: Callable[[Measured, float], float]) -> Curve:
        rows = sorted((one for one in growth.measured if one.point.of == of), key=x)
        return Curve(
            [(x(one), y(one, one.cpu_s)) for one in rows],
            [(x(one), y(one, model.cpu_s(size_of(one)))) for one in rows],
        )

    def per_gb(one: Measured, cpu_s: float) -> float:
        return cpu_s / one.bytes * _GB

    def as_it_is(_: Measured, cpu_s: float) -> float:
        return cpu_s

    return draw(
        [
            Panel("CPU s a GB, by bytes of a batch", curve(points.BATCH, lambda o: o.bytes / o.batches, per_gb)),
            Panel("CPU s a GB, by partitions", curve(points.PARTITIONS, lambda o: o.point.partitions, per_gb)),
            Panel("CPU s, by GB", curve(points.SIZE, lambda o: o.bytes / _GB, as_it_is)),
            Panel("CPU s, by tasks", curve(points.TASKS, lambda o: o.point.tasks, as_it_is)),
        ],
        f"{growth.made}; dots are measured, lines are the model",
    )


def _bytes(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if value >= 0.95 * size:
            return f"{number(value / size)} {unit}"
    return f"{value:.0f} B"


def _micro(seconds: float) -> str:
    if not seconds:
        return "nothing to be seen"
    return f"{number(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{number(seconds * 1e6)} µs"
