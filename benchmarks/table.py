"""The results as tables: for a terminal, and as Markdown for the docs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.latency import PER_S, SOURCE_ALONE
from benchmarks.measure import Run
from benchmarks.results import CaseResult, Results, per_cpu_s, per_s, second_half, task_mb
from benchmarks.systems import LIMITS, MM2_DEFAULT, MM2_TUNED, OURS, PLAIN, TITLES
from benchmarks.targets import Verdict

_FIGURES = ("p50_ms", "p90_ms", "p99_ms", "max_ms")
Table = tuple[str, list[str], list[list[str]]]


def tables(results: Results) -> list[Table]:
    """Return (title, head, rows) of each table."""
    made = [] if not results.cases else [_speed(results), _cpu(results), _other(results)]
    made += [_plain(results)] if any(case.median(PLAIN, per_s) for case in results.cases) else []
    return made + ([_latency(results)] if results.latencies else [])


def _speed(results: Results) -> Table:
    head = [
        "records a second", "MM2 defaults", "MM2 tuned", "ours", "limit", "reading too", "ours / tuned", "ours / limit",
        "ours / reading too",
    ]  # fmt: skip
    return "Throughput", head, [_row(case, per_s, LIMITS) for case in results.cases]


def _cpu(results: Results) -> Table:
    head = ["records per CPU second of the copier", "MM2 defaults", "MM2 tuned", "ours", "ours / tuned"]
    return "CPU", head, [_row(case, per_cpu_s) for case in results.cases]


def _row(case: CaseResult, figure: Callable[[Run], float], limits: tuple[str, ...] = ()) -> list[str]:
    systems = [MM2_DEFAULT, MM2_TUNED, OURS, *limits]
    cells = [_count(case.median(system, figure)) + (" *" if case.cut(system) else "") for system in systems]
    ratios = [_ratio(case.ratio(OURS, MM2_TUNED, figure))]
    ratios += [_ratio(case.ratio(OURS, limit, figure), 2) for limit in limits]
    return [case.title, *cells, *ratios]


def _other(results: Results) -> Table:
    head = [
        "also", "MM2 tuned, second half/s", "ours, second half/s", "start to first record, MM2 tuned", "ours",
        "peak memory, MM2's JVM", "our largest task",
    ]  # fmt: skip
    rows = []
    for case in results.cases:
        both = MM2_TUNED, OURS
        halves = [_count(case.median(system, second_half)) for system in both]
        starts = [_with_unit(case.median(system, lambda run: run.start_s), "s", 1) for system in both]
        memory = [_with_unit(case.median(system, task_mb), "MB", 0) for system in both]
        rows.append([case.title, *halves, *starts, *memory])
    return "Also measured", head, rows


def _plain(results: Results) -> Table:
    head = [
        "plain processes beside Spark", "records a second, Spark", "plain", "ratio", "per CPU second, Spark", "plain",
        "ratio", "start to first record, Spark", "plain",
    ]  # fmt: skip
    rows = []
    for case in results.cases:
        cells = []
        for figure in (per_s, per_cpu_s):
            cells += [_count(case.median(system, figure)) for system in (OURS, PLAIN)]
            cells.append(_ratio(case.ratio(PLAIN, OURS, figure), 2))
        starts = [_with_unit(case.median(system, lambda run: run.start_s), "s", 1) for system in (OURS, PLAIN)]
        rows.append([case.title, *cells, *starts])
    return "Plain processes", head, rows


def _latency(results: Results) -> Table:
    head = [f"ms, at {PER_S} records a second", "p50", "p90", "p99", "max"]
    names = {SOURCE_ALONE: "the source alone, nothing copied"} | TITLES
    rows = []
    for system in (SOURCE_ALONE, MM2_DEFAULT, MM2_TUNED, OURS):
        values = [results.latency(system, figure) for figure in _FIGURES]
        if any(value is not None for value in values):
            rows.append([names[system], *("-" if value is None else f"{value:.1f}" for value in values)])
    return "Latency of the tail", head, rows


def distance_as_text(places: Mapping[str, Results]) -> str:
    """Return the tables of :mod:`benchmarks.distance` for a terminal."""
    return "\n\n".join(_text(one) for one in _distance(places))


def _distance(places: Mapping[str, Results]) -> list[Table]:
    systems = (MM2_DEFAULT, MM2_TUNED, OURS)
    rates, tails = [], []
    for place, found in places.items():
        (case,) = found.cases
        cells = [_count(case.median(system, per_s)) + (" *" if case.cut(system) else "") for system in systems]
        rates.append([place, *cells, _ratio(case.ratio(OURS, MM2_TUNED, per_s))])
        for system in systems:
            values = [found.latency(system, figure) for figure in _FIGURES]
            tails.append([f"{place}, {TITLES[system]}", *("-" if v is None else f"{v:.0f}" for v in values)])
    head = ["records a second", "MM2 defaults", "MM2 tuned", "ours", "ours / tuned"]
    return [
        ("Throughput", head, rates),
        ("Latency of the tail", [f"ms, at {PER_S} records a second", "p50", "p90", "p99", "max"], tails),
    ]


def _targets(verdicts: Sequence[Verdict]) -> Table:
    head = ["target, against MM2 tuned", "wanted", "measured", "result"]
    rows = [[v.target, v.wanted, v.measured, "reached" if v.reached else "MISSED"] for v in verdicts]
    return "Targets", head, rows


def _count(value: float | None) -> str:
    """Three digits are more than two shared cores are good for."""
    if value is None:
        return "-"
    digits = len(str(int(value)))
    return f"{round(value, 3 - digits):,.0f}" if digits > 3 else f"{value:,.0f}"


def _ratio(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _with_unit(value: float | None, unit: str, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f} {unit}"


def as_text(results: Results) -> str:
    """Return the tables for a terminal."""
    parts = [_text(one) for one in tables(results)]
    if any(run.cut for case in results.cases for run in case.runs):
        parts.append(f"* cut after {results.settings['box_s']:g} s of copying")
    parts += ["Failed:\n" + "\n".join(results.failures)] if results.failures else []
    return "\n\n".join(parts)


def targets_as_text(verdicts: Sequence[Verdict]) -> str:
    """Return the targets for a terminal."""
    missed = sum(not v.reached for v in verdicts)
    return f"{_text(_targets(verdicts))}\n\n{len(verdicts) - missed} of {len(verdicts)} targets reached, {missed} missed"


def _text(table: Table) -> str:
    title, head, rows = table
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [_line(head, widths), "  ".join("-" * w for w in widths), *(_line(row, widths) for row in rows)]
    return "\n".join([title, "", *lines])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = [
        cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join([first, *rest]).rstrip()


def as_markdown(results: Results) -> str:
    """Return the tables for the docs."""
    parts = [_markdown(one) for one in tables(results)]
    if any(run.cut for case in results.cases for run in case.runs):
        parts.append(rf"\* cut after {results.settings['box_s']:g} s of copying.")
    return "\n\n".join(parts)


def targets_as_markdown(verdicts: Sequence[Verdict]) -> str:
    """Return the targets for the docs."""
    return _markdown(_targets(verdicts))


def _markdown(table: Table) -> str:
    _, head, rows = table
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
