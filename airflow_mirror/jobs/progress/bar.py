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
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from airflow_mirror.jobs.progress import wording
from airflow_mirror.jobs.progress.figures import unfinished
from airflow_mirror.jobs.progress.table import Row

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_SHOWN = 4  # partitions below the bar of the whole
_WIDTH = 30


Draw = Callable[[Mapping[str, Any], Sequence[Row]], None]  # over what was drawn before: the summary, and rows


@contextmanager
def progress_bar() -> Iterator[Draw | None]:
    """Yield what draws on the terminal that the job was started from, or None when there is none to draw on."""
    with _terminal() as file:
        if file is None:
            yield None
            return
        try:
            from rich.console import Console
            from rich.live import Live
        except ImportError:
            yield None
            return
        console = Console(file=file, width=_columns(file), force_terminal=True, highlight=False)
        with (
            Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live,
            _log_above(console),
        ):
            yield lambda summary, rows: live.update(_drawing(summary, rows), refresh=True)


def on_terminal() -> bool:
    """Say whether there is a terminal to draw on."""
    with _terminal() as file:
        return file is not None


@contextmanager
def _terminal() -> Iterator[IO[str] | None]:
    if os.environ.get("TERM", "dumb") == "dumb":  # it can't draw twice in one place
        yield None
        return
    if sys.stderr.isatty():
        yield sys.stderr
        return
    file = None
    # Set by spark-submit for the Python driver that it starts; its parent is the Java process.
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        try:
            file = open(f"/proc/{os.getppid()}/fd/2", "a", encoding="utf-8", errors="replace")  # noqa: SIM115
        except OSError:  # no /proc, or not ours to open
            pass
    try:
        yield file if file is not None and file.isatty() else None
    finally:
        if file is not None:
            file.close()


def _columns(file: IO[str]) -> int:
    try:
        return os.get_terminal_size(file.fileno()).columns or 80  # 0: unknown
    except OSError:
        return 80


@contextmanager
def _log_above(console: Console) -> Iterator[None]:
    """Print the log's lines above the bar instead of through it."""
    handlers = [
        h for h in logging.getLogger().handlers if isinstance(h, logging.StreamHandler) and h.stream is sys.stderr
    ]
    above: Any = _Above(console)
    for handler in handlers:
        handler.setStream(above)
    try:
        yield
    finally:
        for handler in handlers:
            handler.setStream(sys.stderr)


class _Above:
    """A stream whose text appears above what the console shows live."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> int:
        self._console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
        return len(text)

    def flush(self) -> None:
        self._console.file.flush()


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
    offsets, lag = summary["offsets"], summary["lag"]
    whole = f"{summary['partitions']:,} partitions"
    table.add_row(*_cells(whole, offsets, lag, summary["bytes_per_s"], summary["eta_s"], _states(summary["states"])))
    for row in unfinished(rows)[:_SHOWN]:
        total = None if row.end is None or offsets is None else row.end - row.range.start_offset
        table.add_row(*_cells(row.name, total, row.lag, row.bytes_per_s, row.eta_s, row.error or row.state))
    return Group(table, Text(wording.tiers(summary["tiers"]), no_wrap=True, overflow="ellipsis"))


def _cells(
    name: str, total: int | None, lag: int | None, bytes_per_s: float | None, eta_s: int | None, state: str
) -> list[Any]:
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    if total:
        done = max(0, total - (lag or 0))
        bar: Any = ProgressBar(total=total, completed=done, width=_WIDTH)
        share = wording.percent(done, total)
    else:  # a tail has no end to measure against
        bar, share = "", "" if lag is None else f"{lag:,} behind"
    when = "" if not lag or eta_s is None else wording.duration(eta_s)
    speed = "" if bytes_per_s is None else wording.rate(bytes_per_s)
    # Texts, because a name or an error may hold what Rich would read as markup; one line each, or the bar would jump.
    return [Text(name), bar, share, speed, when, Text(" ".join(state.split()))]


def _states(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in states.items())
