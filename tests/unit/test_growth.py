"""The growth of a copy: the model finds what costs are made of, and the docs show the stored points and no others."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks.cases import CASES
from benchmarks.document import PAGE
from benchmarks.growth import page
from benchmarks.growth.measuring import Measured
from benchmarks.growth.model import Model, Size, fit, forecast, size_of
from benchmarks.growth.page import Growth
from benchmarks.growth.points import CHECK, POINTS, Point
from benchmarks.replay import Replay

TRUE = Model((0.2, 0.0004, 5e-5, 1e-6, 4e-7, 2e-4))


def a_measured(point: Point, off_by: float = 1.0) -> Measured:
    case = point.case
    records, batches = case.total(1.0), case.batches(1.0) * case.partitions
    size = records * case.record_bytes + batches * 61
    one = Measured(point, records, batches, size, 1.0, 1.0, 2.0)
    cost = round(TRUE.cpu_s(size_of(one)) * off_by, 6)
    return Measured(point, records, batches, size, cost, 3 * cost, 2.0)


@pytest.fixture
def growth() -> Growth:
    return Growth("2026-01-31", "a machine & its brokers", [a_measured(point) for point in POINTS])


def test_the_model_finds_what_a_copy_costs(growth: Growth) -> None:
    assert growth.tasks.costs == pytest.approx(TRUE.costs, rel=0.01)
    assert growth.brokers.costs == pytest.approx([3 * cost for cost in TRUE.costs], rel=0.01)


def test_nothing_costs_less_than_nothing() -> None:
    """Noise would give a partition a negative price, and many partitions would then make a copy cheap."""
    noisy = [a_measured(point, 0.5 if point.partitions > 500 else 1.0) for point in POINTS]
    found = fit(noisy, lambda one: one.cpu_s)
    assert min(found.costs) == 0 and found.cpu_s(Size(1, 20_000, 1e12, 64_000)) > 0


def test_points_to_check_by_are_not_fitted() -> None:
    wrong = [a_measured(point, 9.0 if point.of == CHECK else 1.0) for point in POINTS]
    assert Growth("", "", wrong).tasks.costs == pytest.approx(TRUE.costs, rel=0.01)


def test_a_forecast_is_bound_by_what_takes_longest() -> None:
    size = Size(40, 20_000, 50e12, 1e6)
    by_cpu = forecast(Model((0, 0, 0, 0, 0, 1e-2)), TRUE, size, 40, 10.0)
    assert by_cpu.bound == "CPU" and by_cpu.hours == pytest.approx({"CPU": 3.472, "network": 0.2778}, rel=0.001)
    assert forecast(Model((0, 0, 0, 0, 0, 1e-4)), TRUE, size, 40, 10.0).bound == "network"


def test_what_is_stored_is_read_again_and_drawn(growth: Growth) -> None:
    assert Growth.load(json.loads(json.dumps(growth.dump()))) == growth
    drawn = ElementTree.fromstring(page.plot(growth))
    circles = [one for one in drawn.iter() if one.tag.endswith("circle")]
    assert len(circles) == sum(point.of != CHECK for point in POINTS)
    assert "| 1 MB |" in page.block(growth) and "a machine & its brokers" in page.block(growth)


def test_docs_show_the_stored_points() -> None:
    stored = page.stored()
    assert stored is not None and page.PLOT.read_text(encoding="utf-8") == page.plot(stored)
    text = PAGE.read_text(encoding="utf-8")
    assert page.page_with(text, stored) == text and page.block(stored) in text


def test_a_replay_is_handed_over_whole() -> None:
    """Cases that no list names are filled as well."""
    for case in (CASES[0], POINTS[0].case):
        one = Replay(case, {"bootstrap.servers": "a:1"}, "t", [0, 1], 2)
        assert Replay.load(one.dump()) == one
