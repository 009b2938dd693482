"""The results as tables: for a terminal, and as Markdown for the docs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.cases import TAILS
from benchmarks.latency import PER_S, SOURCE_ALONE
from benchmarks.measure import Run
from benchmarks.results import CaseResult, Results, per_cpu_s, per_s, task_mb
from benchmarks.systems import CANDIDATES, LIMITS, MM2, OURS, PLAIN, TITLES
from benchmarks.targets import Verdict

_QUANTILES = {"p50": "p50_ms", "p90": "p90_ms", "p99": "p99_ms", "p99.9": "p999_ms", "max": "max_ms"}
Table = tuple[str, list[str], list[list[str]]]


def tables(results: Results) -> list[Table]:
    """Return (title, head, rows) of each table."""
    cases = results.cases
    made = [] if not cases else [_speed(results), _cpu(results), _other(results)]
    made += [_plain(results)] if any(case.median(PLAIN, per_s) for case in cases) else []
    made += [_candidates(results)] if any(run.system in CANDIDATES for case in cases for run in case.runs) else []
    return made + ([_latency(results)] if results.latencies else [])


def _speed(results: Results) -> Table:
    head = ["records a second", "MM2", "ours", "limit", "reading too", "ours / MM2", "ours / limit", "ours / reading too"]
    return "Throughput", head, [_row(case, per_s, LIMITS) for case in results.cases]


def _cpu(results: Results) -> Table:
    head = ["records per CPU second of the copier", "MM2", "ours", "ours / MM2"]
    return "CPU", head, [_row(case, per_cpu_s) for case in results.cases]


def _row(case: CaseResult, figure: Callable[[Run], float], limits: tuple[str, ...] = ()) -> list[str]:
    cells = [_count(case.median(system, figure)) for system in (MM2, OURS, *limits)]
    ratios = [_ratio(case.ratio(OURS, MM2, figure))]
    ratios += [_ratio(case.ratio(OURS, limit, figure), 2) for limit in limits]
    return [case.title, *cells, *ratios]


def _other(results: Results) -> Table:
    head = [
        "also", "MM2's tuning", "measured from", "for", "start to first record, MM2", "ours", "peak memory, MM2's JVM",
        "our largest task",
    ]  # fmt: skip
    tunings = results.settings.get("tunings", {})
    rows = []
    for case in results.cases:
        window = [_with_unit(case.median(MM2, figure), "s", 0) for figure in (lambda r: r.warm_s, lambda r: r.seconds)]
        starts = [_with_unit(case.median(system, lambda run: run.start_s), "s", 1) for system in (MM2, OURS)]
        memory = [_with_unit(case.median(system, task_mb), "MB", 0) for system in (MM2, OURS)]
        rows.append([case.title, tunings.get(case.name, "-"), *window, *starts, *memory])
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


def _candidates(results: Results) -> Table:
    rows = [
        [f"{case.title}, {TITLES[system]}", *(_count(case.median(system, figure)) for figure in (per_s, per_cpu_s))]
        for case in results.cases
        for system in CANDIDATES
        if case.median(system, per_s)
    ]
    return "MirrorMaker 2's tunings", ["tuning", "records a second", "records per CPU second"], rows


def _latency(results: Results) -> Table:
    names = {SOURCE_ALONE: "the source alone, nothing copied"} | TITLES
    rows = []
    for tail in TAILS:
        for system in (SOURCE_ALONE, MM2, *CANDIDATES, OURS):
            values = [results.latency(tail.name, system, figure) for figure in _QUANTILES.values()]
            if any(value is not None for value in values):
                cells = ["-" if value is None else f"{value:.1f}" for value in values]
                rows.append([f"{tail.title}: {names[system]}", *cells])
    return "Latency of the tail", [f"ms, at {PER_S} records a second", *_QUANTILES], rows


def distance_as_text(places: Mapping[str, Results]) -> str:
    """Return the tables of :mod:`benchmarks.distance` for a terminal."""
    return "\n\n".join(_text(one) for one in _distance(places))


def _distance(places: Mapping[str, Results]) -> list[Table]:
    rates, tails = [], []
    for place, found in places.items():
        (case,) = found.cases
        rates.append([place, *_row(case, per_s)[1:]])
        for system in (MM2, OURS):
            values = [found.latency(TAILS[0].name, system, figure) for figure in _QUANTILES.values()]
            tails.append([f"{place}, {TITLES[system]}", *("-" if v is None else f"{v:.0f}" for v in values)])
    return [
        ("Throughput", ["records a second", "MM2", "ours", "ours / MM2"], rates),
        ("Latency of the tail", [f"ms, at {PER_S} records a second", *_QUANTILES], tails),
    ]


def _targets(verdicts: Sequence[Verdict]) -> Table:
    head = ["target, against MM2", "wanted", "measured", "result"]
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
    return "\n\n".join(markdown(one) for one in tables(results))


def targets_as_markdown(verdicts: Sequence[Verdict]) -> str:
    """Return the targets for the docs."""
    return markdown(_targets(verdicts))


def markdown(table: Table) -> str:
    """Return a table for the docs, without its title."""
    _, head, rows = table
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
