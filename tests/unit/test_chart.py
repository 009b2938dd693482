"""Drawings: what stands where, the SVG to the letter, and ten thousand values that become a few."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from airflow_mirror.common.chart import Axis, Bar, Chart, Fold, Line, Span, bars, folded, number, plot, spans, thinned
from airflow_mirror.common.names import LONGEST, pieces
from airflow_mirror.common.page import template

GOLDEN = Path(__file__).parents[1] / "golden" / "charts.svg.txt"
LONG = "shop.eu-central-1.orders_placed." + "x" * 60 + ".v2-" + "y" * 150
AXIS = Axis.of_seconds(98.0, 108.0, 100.0, shade=(100.0, 106.0), limit=107.5)


def draw(chart: Chart) -> str:
    return str(template("common/page.html.jinja").module.draw(chart))  # type: ignore[attr-defined]


def in_seconds(value: float) -> str:
    return f"{value:g} s"


def every_kind() -> list[Chart]:
    steps = [
        Span(name="fence", start=100.0, end=100.5, said="0.50 s"),
        Span(name="drain", start=101.0, end=106.0, said="5.00 s, failed", kind="failed"),
    ]
    lag: list[tuple[float, float | None]] = [(99.0, 40.0), (101.0, 10.0), (102.0, None), (103.0, 7.0), (105.0, 0.0)]
    drills = Line(
        points=[(0.0, 3.0), (1.0, None), (2.0, 61.5)],
        say=in_seconds,
        wanted=30.0,
        bad=[2],
        dots=["a: 3 s", "", "c: 61.5 s"],
    )
    parts = Fold.of([(LONG, 9.0), ("<b>&", 2.0), *((f"t-{n}", 0.5) for n in range(30))], most=3)
    return [
        spans("Time line", "two steps", steps, AXIS),
        plot("Lag", "at most 40", Line(points=lag, say=number, steps=True), AXIS),
        plot("RTO", "three drills", drills, Axis(first=0, last=2, ticks=[(0, "Monday"), (2, "Friday")], width=520.0)),
        *folded("Slowest", "partition", parts, in_seconds, lambda name: name == "t-0"),
    ]  # fmt: skip


def test_every_kind_of_drawing_is_as_it_was() -> None:
    """Look at a difference in a browser before you write it anew (UPDATE_GOLDEN=1)."""
    drawn = "\n".join(map(draw, every_kind()))
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(drawn)
    assert drawn == GOLDEN.read_text()


def test_drawing_says_what_it_shows_to_who_can_not_see_it() -> None:
    for chart in every_kind():
        svg = ET.fromstring(re.search(r"<svg.*</svg>", draw(chart), re.S)[0])  # type: ignore[index]
        title, desc = svg.findall("title")[0], svg.findall("desc")[0]
        assert svg.get("role") == "img" and svg.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
        assert title.text == chart.title and desc.text == chart.text
    ids = [chart.id for chart in every_kind()]
    assert len(set(ids)) == len(ids) and all(re.fullmatch("[a-z0-9-]+", one) for one in ids)


def test_everything_stands_inside_of_its_drawing() -> None:
    for chart in every_kind():
        for mark in chart.marks:
            xs = [mark.at[key] for key in ("x", "x1", "x2", "cx") if key in mark.at]
            ys = [mark.at[key] for key in ("y", "y1", "y2", "cy") if key in mark.at]
            assert all(0 <= x <= chart.width for x in xs) and all(0 <= y <= chart.height for y in ys), mark
            assert mark.at.get("x", 0) + mark.at.get("width", 0) <= chart.width


def test_a_long_name_goes_on_below_behind_its_separators() -> None:
    (chart,) = [bars("b", "", [Bar(name=LONG, value=1, said="1"), Bar(name="short", value=1, said="1")])]
    names = [mark for mark in chart.marks if mark.at.get("class") == "name"]
    assert "".join(mark.text for mark in names[:-1]) == LONG and names[0].text == "shop.eu-central-1.orders_placed."
    assert all(len(mark.text) * 6.7 <= mark.at["x"] for mark in names), "each line has its room, in letters of one width"
    heights = [mark.at["y"] for mark in names]
    assert heights == sorted(set(heights)), "and none stands on another"


def test_no_word_of_a_name_is_broken_but_one_that_is_too_long() -> None:
    assert list(pieces("a.b-c_d/e")) == ["a.", "b-", "c_", "d/", "e"]
    assert "".join(pieces(LONG)) == LONG and max(map(len, pieces(LONG))) == LONGEST
    wrap = template("common/page.html.jinja").environment.filters["wrap"]
    assert wrap("the words of a sentence, and <b>") == "the words of a sentence, and &lt;b&gt;"
    assert wrap("in shop.eu-central-1.orders_placed") == "in shop.<wbr>eu-<wbr>central-<wbr>1.<wbr>orders_<wbr>placed"


def test_axis_counts_from_its_zero_in_both_directions() -> None:
    assert [text for _, text in AXIS.ticks] == [f"{n} s" for n in range(-2, 9)]
    assert AXIS.x(98.0) == 130.0 and AXIS.x(108.0) == 880.0 and AXIS.x(50.0) == 130.0
    hours = Axis.of_seconds(0.0, 7 * 3600.0, 0.0)
    assert [text for _, text in hours.ticks] == [f"{n} h" for n in range(8)]


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0], [1e-9], [1e15], [3.0] * 50, [float(n) for n in range(10_000)]])
def test_histogram_counts_each_value_once(values: list[float]) -> None:
    fold = Fold.of(((f"t-{n}", value) for n, value in enumerate(values)), most=0)
    assert sum(its for _, its in fold.spread) == len(values) == fold.total
    assert len(fold.spread) <= 16 and [bound for bound, _ in fold.spread] == sorted(bound for bound, _ in fold.spread)


def test_ten_thousand_values_become_the_first_few_and_a_histogram() -> None:
    values = [(f"topic-{n:05d}", float(n * 7919 % 10_000)) for n in range(10_000)]
    fold = Fold.of(values)
    assert [value for _, value in fold.top] == [float(n) for n in range(9999, 9987, -1)]
    assert fold.spread[:4] == [(0.0, 1), (1.0, 1), (2.0, 1), (5.0, 3)] and fold.spread[-1] == (10_000.0, 4999)
    charts = folded("Slow", "partition", fold, in_seconds)
    assert charts[0].title == "Slow: the first 12 of 10,000 partitions" and sum(map(len, map(draw, charts))) < 10_000
    least = Fold.of(values, smallest=True)
    assert least.top[0] == ("topic-00000", 0.0) and folded("Slow", "partition", Fold(), in_seconds) == []


def test_a_line_of_many_points_keeps_its_peak_and_its_end() -> None:
    points = [(float(n), 5.0 if n == 4321 else 1.0 + n / 1e5) for n in range(10_000)]
    kept = thinned(points)
    assert len(kept) <= 400 and points[4321] in kept and kept[-1] == points[-1]
