"""The demo's last screen: a table of what was proven, or the places where it was not, and the exit status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from demo.clients import Partition
    from demo.verdict import GroupResult, TopicResult, TrafficResult, Verdict

SHOWN = 30
"""At most so many problems are listed."""


def print_verdict(verdict: Verdict, console: Console) -> int:
    """Print everything; return 0 when all of it holds, else 1."""
    console.print(_topics(verdict.topics))
    if verdict.groups:
        console.print(_groups(verdict.groups))
    if verdict.traffic or verdict.figures:
        console.print(_figures(verdict.traffic, verdict.figures))
    if verdict.seconds:
        console.print(_seconds(verdict.seconds))
    problems = verdict.problems
    if not problems:
        console.print("[bold green]Equal:[/] every record, every offset, every group.")
        return 0
    console.print(f"[bold red]NOT equal:[/] {len(problems)} problem(s).")
    for problem in problems[:SHOWN]:
        console.print(f"  {problem}", markup=False, highlight=False, soft_wrap=True)
    if len(problems) > SHOWN:
        console.print(f"  ... and {len(problems) - SHOWN} more")
    return 1


def _mark(good: bool) -> str:
    return "[green]yes[/]" if good else "[red]NO[/]"


def _topics(topics: list[TopicResult]) -> Table:
    table = _table("Topics, as two independent consumers read them")
    table.add_column("topic", no_wrap=True)
    for column in ("partitions", "records", "MB", "new on target"):
        table.add_column(column, justify="right")
    table.add_column("equal")
    table.add_column("offsets equal")
    for t in topics:
        added = f"{t.added:,}" if t.added else ""
        equal, offsets = _mark(not t.differences), _mark(not t.offsets)
        table.add_row(t.topic, str(t.partitions), f"{t.records:,}", f"{t.bytes / 1e6:,.1f}", added, equal, offsets)
    return table


def _groups(groups: list[GroupResult]) -> Table:
    table = _table("Consumer groups: partition:offset, before on the source and after on the target")
    for column in ("group", "topic", "before", "after", "same"):
        table.add_column(column, no_wrap=True)
    for g in groups:
        name = g.group
        for topic in sorted({p.topic for p in (*g.before, *g.after)}):
            partitions = [p for p in sorted({*g.before, *g.after}) if p.topic == topic]
            wrong = [p for p in partitions if g.before.get(p) != g.after.get(p)]
            shown = (wrong or partitions)[:3]
            more = len(partitions) - len(shown)
            before, after = (_offsets(shown, at, more) for at in (g.before, g.after))
            table.add_row(name, topic, before, after, _mark(not wrong))
            name = ""
    return table


def _offsets(shown: list[Partition], at: Mapping[Partition, int], more: int) -> str:
    return " ".join(f"{p.number}:{at.get(p, '-')}" for p in shown) + (f" +{more}" if more else "")


def _table(title: str, show_header: bool = True) -> Table:
    return Table(title=title, title_justify="left", show_header=show_header, box=SIMPLE_HEAD)


def _figures(traffic: TrafficResult | None, figures: Mapping[str, str]) -> Table:
    table = _table("Figures", show_header=False)
    table.add_column("figure")
    table.add_column("value", justify="right")
    if traffic is not None:
        for name, count in (("re-read by the live group", len(traffic.reread)), ("lost", len(traffic.lost))):
            table.add_row(f"records {name}", f"[{'red' if count else 'green'}]{count}[/]")
        table.add_row("acknowledged to the live producer by the source", f"{traffic.acknowledged_source:,}")
        table.add_row("... refused behind the fence, sent again to the target", f"{traffic.refused:,}")
        table.add_row("... acknowledged by the target", f"{traffic.acknowledged_target:,}")
        table.add_row("the live producer could not write for", f"{traffic.silent_s:.1f} s")
    for name, value in figures.items():
        table.add_row(name, value)
    return table


def _seconds(seconds: Mapping[str, float]) -> Table:
    table = _table("Seconds", show_header=False)
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    for name, value in seconds.items():
        table.add_row(name, f"{value:.1f}")
    return table
