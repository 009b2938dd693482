"""Keeps what the repository says about the results the same as the results: a block of the docs, and the plot."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import plot, table, targets
from benchmarks.results import LATEST, Results

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def stored() -> Results | None:
    """Return the results that are committed; None if there are none of this version."""
    text = LATEST.read_text(encoding="utf-8") if LATEST.exists() else ""
    return Results.load(text) if Results.is_readable(text) else None


def block(results: Results) -> str:
    """Return the generated part of the page."""
    m, s, settings = results.machine, results.software, results.settings
    about = (
        f"{results.made}. {m['cpu']}, {m['cores']} cores, {m['memory_gb']} GB, {m['system']} {m['kernel']}. "
        f"Kafka and MirrorMaker {s['mirrormaker']}, airflow_mirror {s['airflow_mirror']}, Spark {s['pyspark']}, "
        f"Python {s['python']}, Java {s['java']}. Medians of {settings['rounds']} rounds"
        f"{'' if settings['scale'] == 1 else ' at scale ' + format(settings['scale'], 'g')}."
    )
    picture = "![Records a second and per CPU second; the tables below have the figures](images/benchmarks.svg)"
    failed = "".join(f"\n- failed: {failure}" for failure in results.failures)
    judged = table.targets_as_markdown(targets.judge(results, complete=True))
    return f"{about}\n\n{picture}\n\n{table.as_markdown(results)}\n\n{judged}\n{failed and failed + chr(10)}"


def page_with(page: str, results: Results | None) -> str:
    """Return the page with its block made anew; without results it keeps the ones that it has."""
    return page if results is None else with_block(page, "results", block(results))


def with_block(page: str, name: str, made: str) -> str:
    """Return a page with all between the marks of a name replaced."""
    marked = re.compile(rf"(<!-- {name}: .*? -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    return marked.sub(lambda found: f"{found[1]}\n{made}\n{found[2]}", page)


def write() -> None:
    """Make block and plot from the stored results."""
    results = stored()
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    if results is not None:
        plot.PLOT.write_text(plot.draw(results), encoding="utf-8")
