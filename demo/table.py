"""The demo's last screen: a table of what was proven, or the places where it was not, and the exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from demo.verdict import GroupResult, TopicResult, TrafficResult, Verdict

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 30
"""At most so many problems are listed."""


def print_verdict(verdict: Verdict, console: Console) -> int:
    """Print everything; return 0 when all of it holds, else 1."""
    console.print(_topics(verdict.topics))
    if verdict.groups:
        console.print(_groups(verdict.groups))
    if verdict.traffic or verdict.figures:
        console.print(_figures(verdict.traffic, verdict.figures))
    problems = verdict.problems
    if not problems:
        console.print("[bold green]Equal:[/] every record, every offset, every group.")
        return 0
    console.print(f"[bold red]NOT equal:[/] {len(problems)} problem(s).")
    for problem in problems[:SHOWN]:
        console.print(f"  {problem}", markup=False, highlight=False)
    if len(problems) > SHOWN:
        console.print(f"  ... and {len(problems) - SHOWN} more")
    return 1


def _mark(good: bool) -> str:
    return "[green]yes[/]" if good else "[red]NO[/]"


def _topics(topics: list[TopicResult]) -> Table:
    table = Table(title="Topics, as two independent consumers read them", title_justify="left")
    table.add_column("topic")
    for column in ("partitions", "records", "MB", "new on target"):
        table.add_column(column, justify="right")
    table.add_column("equal")
    table.add_column("offsets equal")
    for t in topics:
        table.add_row(
            t.topic, str(t.partitions), f"{t.records:,}", f"{t.bytes / 1e6:,.1f}", f"{t.added:,}" if t.added else "",
            _mark(not t.differences), _mark(not t.offsets),
        )  # fmt: skip
    return table


def _groups(groups: list[GroupResult]) -> Table:
    table = Table(title="Consumer groups", title_justify="left")
    for column in ("group", "partitions", "source", "target", "same"):
        table.add_column(column, justify="left" if column in ("group", "same") else "right")
    for g in groups:
        # The first partition that differs, or else the one with the highest offset, says most.
        wrong = [p for p in sorted({*g.before, *g.after}) if g.before.get(p) != g.after.get(p)]
        shown = wrong[0] if wrong else max(g.before, key=lambda p: (g.before[p], p), default=None)
        before, after = (f"{shown} @ {at.get(shown, '-')}" if shown else "-" for at in (g.before, g.after))
        table.add_row(g.group, str(len(g.before)), before, after, _mark(not g.problems))
    return table


def _figures(traffic: TrafficResult | None, figures: dict[str, str]) -> Table:
    table = Table(title="Figures", title_justify="left", show_header=False)
    table.add_column("figure")
    table.add_column("value", justify="right")
    if traffic is not None:
        colour = "green" if not (traffic.reread or traffic.lost) else "red"
        table.add_row("records re-read by the live group", f"[{colour}]{len(traffic.reread)}[/]")
        table.add_row("records lost", f"[{colour}]{len(traffic.lost)}[/]")
        table.add_row("acknowledged to the live producer by the source", f"{traffic.acknowledged_source:,}")
        table.add_row("... refused behind the fence, sent again to the target", f"{traffic.refused:,}")
        table.add_row("... acknowledged by the target", f"{traffic.acknowledged_target:,}")
        table.add_row("the producer could not write for", f"{traffic.silent_s:.1f} s")
        table.add_section()
    for name, value in figures.items():
        table.add_row(name, value)
    return table
