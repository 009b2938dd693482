"""The progress bar of a copy that runs in a terminal: the whole job, and the partitions with the most left to do.

spark-submit puts a pipe between a Python driver and the terminal. The terminal is then the standard error of the Java
process that started the driver; the bar goes there. Without a terminal, or where Rich is not installed (a driver needs no
Airflow, which depends on it), there is no bar and the log has the same figures every few seconds.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any

from airflow_mirror.jobs.progress import wording
from airflow_mirror.jobs.progress.figures import unfinished
from airflow_mirror.jobs.progress.table import Row

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN = 4  # partitions below the bar of the whole
_WIDTH = 30


Draw = Callable[[Mapping[str, Any], Sequence[Row]], None]  # over what was drawn before: the summary, and rows


@contextmanager
def progress_bar() -> Iterator[Draw | None]:
    """Yield what draws on the terminal that the job was started from, or None when there is none to draw on."""
    with _terminal() as file, ExitStack() as stack:
        try:
            from rich.console import Console
            from rich.file_proxy import FileProxy
            from rich.live import Live

            columns = 0 if file is None else os.get_terminal_size(file.fileno()).columns or 80  # 0: unknown
        except (ImportError, OSError):
            columns = 0
        if not columns:
            yield None
            return
        # Soft wrap: the log's lines keep their length.
        console = Console(file=file, width=columns, force_terminal=True, highlight=False, soft_wrap=True)
        live = stack.enter_context(
            Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        )
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
                handler.setStream(FileProxy(console, sys.stderr))  # above the bar instead of through it
                stack.callback(handler.setStream, sys.stderr)
        yield lambda summary, rows: live.update(_drawing(summary, rows), refresh=True)


def on_terminal() -> bool:
    """Say whether there is a terminal to draw on."""
    with _terminal() as file:
        return file is not None


@contextmanager
def _terminal() -> Iterator[IO[str] | None]:
    with ExitStack() as stack:
        file = sys.stderr
        # Set by spark-submit for the Python driver that it starts; its parent is the Java process.
        if not file.isatty() and "PYSPARK_GATEWAY_PORT" in os.environ:
            try:
                java = open(f"/proc/{os.getppid()}/fd/2", "a", encoding="utf-8", errors="replace")  # noqa: SIM115
                file = stack.enter_context(java)
            except OSError:  # no /proc, or not ours to open
                pass
        can_redraw = os.environ.get("TERM", "dumb") != "dumb"
        yield file if can_redraw and file.isatty() else None


def _drawing(summary: Mapping[str, Any], rows: Sequence[Row]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=34)
    table.add_column(no_wrap=True)
    for width in (5, 11, 11):  # wide enough that nothing moves from one drawing to the next
        table.add_column(no_wrap=True, justify="right", min_width=width)
    table.add_column(no_wrap=True, overflow="ellipsis")
    states = ", ".join(f"{count:,} {state}" for state, count in summary["states"].items())
    table.add_row(*_cells(f"{summary['partitions']:,} partitions", summary["offsets"], summary, states))
    for row in unfinished(rows)[:_SHOWN]:
        total = None if row.end is None or summary["offsets"] is None else row.end - row.range.start_offset
        table.add_row(*_cells(row.name, total, row.to_dict(), row.error or row.state))
    below = [wording.throttled(summary), wording.tiers(summary["tiers"])]
    return Group(table, Text("; ".join(filter(None, below)), no_wrap=True, overflow="ellipsis"))


def _cells(name: str, total: int | None, figures: Mapping[str, Any], state: str) -> Iterator[RenderableType]:
    """Yield the cells of a line.

    :param total: offsets from start to end; None for a tail, which has no end to measure against.
    """
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    # Texts, because a name or an error may hold what Rich would read as markup; one line each, or the bar would jump.
    lag, speed, left = figures["lag"], figures["bytes_per_s"], figures["eta_s"]
    yield Text(name)
    if total:
        done = max(0, total - (lag or 0))
        yield ProgressBar(total=total, completed=done, width=_WIDTH)
        yield wording.percent(done, total)
    else:
        yield from ("", "" if lag is None else f"{lag:,} behind")
    yield "" if speed is None else wording.rate(speed)
    yield "" if not lag or left is None else wording.duration(left)
    yield Text(" ".join(state.split()))
